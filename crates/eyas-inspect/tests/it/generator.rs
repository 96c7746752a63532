//! Makes answer files with the lengths of a real run, faults planted in them, and the truth about both.
//!
//! Lengths follow a mixture of three lognormal laws clipped at 10,240 tokens (mean 1,416, median 646, standard deviation 1,640, P90 3,644,
//! P95 4,660, P99 6,849). Everything is drawn from one seed with arithmetic that is the same on every machine: no `ln` or `exp` of the
//! platform is used.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "draws from small ranges")]

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
};

/// Token cap of the law.
pub(crate) const CAP: u32 = 10_240;

/// SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    /// Starts the sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Standard normal, by the polar method.
    fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * ln(s) / s).sqrt();
            }
        }
    }

    /// A length of the law, tokens.
    pub(crate) fn length(&mut self) -> u32 {
        let pick = self.unit();
        let (mu, sigma) = if pick < 0.5177 {
            (4.716, 0.969)
        } else if pick < 0.5177 + 0.1181 {
            (7.443, 0.157)
        } else {
            (7.918, 0.477)
        };
        (exp(mu + sigma * self.normal()).round() as u32).clamp(1, CAP)
    }
}

/// Natural logarithm of a positive number, from the exponent and the series of the area tangent.
fn ln(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52) as i64 - 1023) as f64;
    let mantissa = f64::from_bits(x.to_bits() & !(0x7ff << 52) | 1023 << 52);
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut sum, mut power) = (0.0, t);
    for n in 0..30 {
        sum += power / f64::from(2 * n + 1);
        power *= t * t;
    }
    2.0 * sum + exponent * std::f64::consts::LN_2
}

/// The exponential of a number of moderate size: a series for a 1,024th of it, squared ten times.
fn exp(x: f64) -> f64 {
    let small = x / 1024.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..12 {
        term *= small / f64::from(n);
        sum += term;
    }
    for _ in 0..10 {
        sum *= sum;
    }
    sum
}

/// What to plant.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// Stop after the row with which the file reaches this size.
    pub(crate) n_bytes: u64,
    /// Seed of everything.
    pub(crate) seed: u64,
    /// Plant faults; without, every row is good and alike.
    pub(crate) faults: bool,
    /// Give rows their token ids.
    pub(crate) ids: bool,
}

/// What is in the file, in the words of the inspection.
#[derive(Debug, Default, Clone)]
pub(crate) struct Truth {
    pub(crate) rows: u64,
    pub(crate) parsed: u64,
    pub(crate) blank: u64,
    pub(crate) in_progress: u64,
    pub(crate) malformed: BTreeMap<&'static str, u64>,
    pub(crate) recoverable: u64,
    pub(crate) remarks: BTreeMap<&'static str, u64>,
    pub(crate) answers: u64,
    pub(crate) truncated: u64,
    pub(crate) failed: u64,
    pub(crate) captured: u64,
    pub(crate) reasoning_null: u64,
    pub(crate) reasoning_empty: u64,
    pub(crate) reasoning_absent: u64,
    pub(crate) leaked: u64,
    pub(crate) empty_content: u64,
    pub(crate) duplicate_ids: u64,
    pub(crate) no_count: u64,
    pub(crate) by_location: BTreeMap<&'static str, u64>,
    /// Token counts of the answers that have one, in file order.
    pub(crate) lengths: Vec<u32>,
    pub(crate) prompt_tokens: u64,
    pub(crate) n_bytes: u64,
    /// Good rows swallowed by damage.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) loops: u64,
}

const WORDS: [&str; 48] = [
    "the",
    " of",
    " to",
    " and",
    " a",
    " is",
    " in",
    " that",
    " we",
    " so",
    " let",
    " then",
    " number",
    " value",
    " since",
    " if",
    " equation",
    " we",
    " have",
    " it",
    " as",
    " for",
    " consider",
    " function",
    " therefore",
    " answer",
    " check",
    " step",
    " because",
    " each",
    ",",
    ".",
    " =",
    " +",
    " x",
    " y",
    " 2",
    " 10",
    ":",
    " $\\frac{a}{b}$",
    " \"quoted\"",
    "\n",
    "\n\n",
    " `code`",
    " \\(n\\)",
    " naïve",
    " 漢字",
    " 😀",
];

/// Appends `n` tokens of text.
fn text(rng: &mut Rng, n: u32, out: &mut String) {
    out.clear();
    for _ in 0..n {
        // The product of two draws prefers small numbers, about as words do.
        let place = (rng.unit() * rng.unit() * WORDS.len() as f64) as usize;
        let place = if rng.chance(0.09) { 38 + rng.below(8) } else { place.min(37) };
        out.push_str(if rng.chance(0.004) { WORDS[45 + rng.below(3)] } else { WORDS[place] });
    }
}

/// A JSON string as Python writes it: with `ascii` everything beyond ASCII as escapes.
fn json_string(text: &str, ascii: bool, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend(b"\\\""),
            '\\' => out.extend(b"\\\\"),
            '\n' => out.extend(b"\\n"),
            c if c.is_ascii() => out.push(c as u8),
            c if ascii => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend(format!("\\u{unit:04x}").bytes());
                }
            }
            c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out.push(b'"');
}

/// Writes a file by `recipe`.
pub(crate) fn write(recipe: &Recipe, out: &mut impl Write) -> std::io::Result<Truth> {
    let mut maker = Maker {
        rng: Rng::new(recipe.seed),
        recipe,
        truth: Truth::default(),
        seen: HashSet::new(),
        texts: HashSet::new(),
        last: Body::default(),
        next_id: 0,
    };
    let mut line = Vec::new();
    let mut huge = false;
    while maker.truth.n_bytes < recipe.n_bytes {
        line.clear();
        if recipe.faults && !huge && maker.truth.n_bytes > recipe.n_bytes / 2 && recipe.n_bytes > 100_000_000 {
            huge = true;
            maker.huge(&mut line);
        } else if recipe.faults && maker.rng.chance(0.0006) {
            maker.fault(&mut line);
        } else {
            maker.good(&mut line);
        }
        out.write_all(&line)?;
        maker.truth.n_bytes += line.len() as u64;
    }
    if recipe.faults {
        line.clear();
        maker.row(&mut line, Spoil::None);
        let cut = line.len() / 2;
        out.write_all(&line[..cut])?;
        maker.truth.rows += 1;
        maker.truth.in_progress += 1;
        maker.truth.n_bytes += cut as u64;
    }
    Ok(maker.truth)
}

#[derive(Debug, Clone, Default)]
struct Body {
    reasoning: String,
    content: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoil {
    None,
    NotANumber,
    LoneSurrogate,
    DuplicateKey,
    InvalidUtf8,
    Control,
    Deep,
}

/// What a row that was made says of itself; counted only if the row survives.
#[derive(Debug, Clone, Default)]
struct Made {
    id: String,
    failed: bool,
    truncated: bool,
    reasoning: &'static str,
    empty_content: bool,
    location: &'static str,
    tokens: u32,
    prompt_tokens: u32,
    duplicate_answer: bool,
    /// Hash of reasoning and content as they stand in the file, and whether they are 200 characters and more.
    text: (u64, bool),
    looped: bool,
}

struct Maker<'a> {
    rng: Rng,
    recipe: &'a Recipe,
    truth: Truth,
    seen: HashSet<String>,
    texts: HashSet<u64>,
    last: Body,
    next_id: u64,
}

impl Maker<'_> {
    fn good(&mut self, line: &mut Vec<u8>) {
        let spoil = match (self.recipe.faults, self.rng.below(3000)) {
            (true, 0) => Spoil::NotANumber,
            (true, 1) => Spoil::LoneSurrogate,
            (true, 2) => Spoil::DuplicateKey,
            _ => Spoil::None,
        };
        let made = self.row(line, spoil);
        self.truth.rows += 1;
        self.count(&made);
        match spoil {
            Spoil::NotANumber => self.remark("not_a_number"),
            Spoil::LoneSurrogate => self.remark("lone_surrogate"),
            Spoil::DuplicateKey => self.remark("duplicate_key"),
            _ => {}
        }
        if self.recipe.faults && self.rng.chance(0.0008) {
            line.push(b'\r');
            self.remark("crlf");
        }
        line.push(b'\n');
    }

    fn remark(&mut self, name: &'static str) {
        *self.truth.remarks.entry(name).or_default() += 1;
    }

    fn bad(&mut self, class: &'static str) {
        self.truth.rows += 1;
        *self.truth.malformed.entry(class).or_default() += 1;
    }

    fn count(&mut self, made: &Made) {
        let truth = &mut self.truth;
        truth.parsed += 1;
        if made.failed {
            truth.failed += 1;
            return;
        }
        truth.answers += 1;
        truth.truncated += u64::from(made.truncated);
        truth.empty_content += u64::from(made.empty_content);
        truth.loops += u64::from(made.looped);
        truth.prompt_tokens += u64::from(made.prompt_tokens);
        match made.reasoning {
            "captured" => truth.captured += 1,
            "null" => truth.reasoning_null += 1,
            "empty" => truth.reasoning_empty += 1,
            "absent" => truth.reasoning_absent += 1,
            _ => truth.leaked += 1,
        }
        if made.location.is_empty() {
            truth.no_count += 1;
        } else {
            *truth.by_location.entry(made.location).or_default() += 1;
            truth.lengths.push(made.tokens);
        }
        truth.repeated += u64::from(made.text.1 && !self.texts.insert(made.text.0));
        truth.duplicate_ids += u64::from(!self.seen.insert(made.id.clone()));
    }

    /// A line that cannot be read, or nothing at all.
    fn fault(&mut self, line: &mut Vec<u8>) {
        match self.rng.below(9) {
            0 => {
                self.row(line, Spoil::None);
                line.truncate(line.len() * 2 / 3);
                // A cut behind a backslash would make the newline part of an escape; torn all the same.
                self.bad("torn");
                self.truth.lost += 1;
            }
            1 => {
                self.row(line, Spoil::None);
                line.truncate(line.len() / 2);
                let mut second = Vec::new();
                self.row(&mut second, Spoil::None);
                line.extend(second);
                self.bad("fused");
                self.truth.recoverable += 1;
                self.truth.lost += 2;
            }
            2 => {
                self.row(line, Spoil::InvalidUtf8);
                self.bad("invalid_utf8");
            }
            3 => {
                self.row(line, Spoil::Control);
                self.bad("control_character");
            }
            4 => {
                line.extend([0; 4096]);
                self.bad("nul");
            }
            5 => {
                self.truth.rows += 1;
                self.truth.blank += 1;
            }
            6 => {
                self.row(line, Spoil::Deep);
                self.bad("too_deep");
            }
            7 => {
                self.row(line, Spoil::None);
                line.extend(b" trailing words");
                self.bad("trailing");
                self.truth.recoverable += 1;
            }
            _ => {
                let mut second = Vec::new();
                self.row(line, Spoil::None);
                self.row(&mut second, Spoil::None);
                line.extend(second);
                self.bad("fused");
                self.truth.recoverable += 2;
                self.truth.lost += 2;
            }
        }
        // Nothing that was lost is repeated later.
        self.last = Body::default();
        line.push(b'\n');
    }

    /// One line of 16 MiB, good otherwise.
    fn huge(&mut self, line: &mut Vec<u8>) {
        let made = self.row(line, Spoil::None);
        line.pop();
        line.extend(b",\"log\":\"");
        line.resize(16 << 20, b'x');
        line.extend(b"\"}\n");
        self.truth.rows += 1;
        self.count(&made);
        self.remark("huge_line");
    }

    /// A record without its newline.
    fn row(&mut self, line: &mut Vec<u8>, spoil: Spoil) -> Made {
        let along = self.truth.n_bytes as f64 / self.recipe.n_bytes as f64;
        let faults = self.recipe.faults;
        let rng = &mut self.rng;
        let mut made = Made { tokens: rng.length(), prompt_tokens: 20 + rng.below(400) as u32, ..Made::default() };
        self.next_id += 1;
        made.id = format!("s{:08}", self.next_id);
        if faults && self.next_id > 100 && rng.chance(0.0005) {
            made.id = format!("s{:08}", self.next_id - 50);
        }
        let ascii = rng.chance(0.3);
        made.truncated = made.tokens == CAP || faults && rng.chance(0.005);
        made.failed = faults && rng.chance(0.003);
        made.reasoning = match rng.unit() {
            _ if !faults => "captured",
            p if p < 0.02 + 0.04 * along => "null",
            p if p < 0.07 => "captured",
            p if p < 0.072 => "empty",
            p if p < 0.074 => "absent",
            p if p < 0.078 => "leaked",
            _ => "captured",
        };
        made.location = match rng.below(100) {
            _ if self.recipe.ids => "len(output_ids)",
            _ if !faults => "usage.completion_tokens",
            0 => "",
            1 | 2 => "meta_info.completion_tokens",
            3..=5 => "completion_tokens",
            _ => "usage.completion_tokens",
        };
        made.empty_content = made.truncated && rng.chance(0.5) && made.reasoning != "leaked";
        made.duplicate_answer = faults && spoil == Spoil::None && !self.last.content.is_empty() && rng.chance(0.003);
        made.looped = faults && rng.chance(0.002) && made.tokens > 200 && !made.duplicate_answer;
        let n_reasoning = made.tokens * 2 / 3;
        let mut body = std::mem::take(&mut self.last);
        if made.duplicate_answer {
            // The body of the row before, in this row's spelling.
            made.empty_content = false;
            if made.reasoning == "captured" && body.reasoning.is_empty() {
                made.duplicate_answer = false;
            }
        }
        if !made.duplicate_answer {
            text(rng, n_reasoning.max(1), &mut body.reasoning);
            text(rng, (made.tokens - n_reasoning).max(1), &mut body.content);
            if made.looped {
                body.content.push_str(&" and again, once more".repeat(60));
            }
        }
        // An id belongs to one data set, also when it comes twice.
        let dataset = ["math", "code", "chat"][usize::from(made.id.as_bytes()[8] % 3)];
        line.extend(format!("{{\"sample_id\":\"{}\",\"dataset\":\"{dataset}\",\"messages\":[{{\"role\":\"user\",\"content\":\"question {}\"}}]", made.id, self.next_id).bytes());
        match made.reasoning {
            "captured" => {
                line.extend(b",\"reasoning\":");
                json_string(&body.reasoning, ascii, line);
            }
            "null" => line.extend(b",\"reasoning\":null"),
            "empty" => line.extend(b",\"reasoning\":\"\""),
            _ => {}
        }
        line.extend(b",\"content\":");
        if made.empty_content {
            line.extend(b"\"\"");
        } else if made.reasoning == "leaked" {
            json_string(&format!("<think>{}</think>{}", body.reasoning, body.content), ascii, line);
        } else {
            json_string(&body.content, ascii, line);
        }
        let reason = if made.failed {
            "abort"
        } else if made.truncated {
            "length"
        } else {
            "stop"
        };
        line.extend(format!(",\"finish_reason\":\"{reason}\"").bytes());
        let (prompt, tokens) = (made.prompt_tokens, made.tokens);
        let counts = match made.location {
            "" => format!(",\"usage\":{{\"prompt_tokens\":{prompt}}}"),
            "completion_tokens" => format!(",\"completion_tokens\":{tokens},\"usage\":{{\"prompt_tokens\":{prompt}}}"),
            "meta_info.completion_tokens" => {
                format!(",\"meta_info\":{{\"completion_tokens\":{tokens}}},\"usage\":{{\"prompt_tokens\":{prompt}}}")
            }
            _ => format!(
                ",\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{tokens},\"total_tokens\":{}}}",
                prompt + tokens
            ),
        };
        line.extend(counts.bytes());
        if self.recipe.ids {
            line.extend(b",\"output_ids\":[");
            for n in 0..tokens {
                let separator = if n == 0 { "" } else { ", " };
                line.extend(format!("{separator}{}", rng.below(150_000)).bytes());
            }
            line.push(b']');
        }
        match spoil {
            Spoil::None => {}
            Spoil::NotANumber => line.extend(b",\"score\":NaN"),
            Spoil::LoneSurrogate => line.extend(b",\"note\":\"5 m\\udcb2\""),
            Spoil::DuplicateKey => line.extend(b",\"score\":1,\"score\":2"),
            Spoil::InvalidUtf8 => line.extend(b",\"note\":\"caf\xe9\""),
            Spoil::Control => line.extend(b",\"note\":\"a\x07b\""),
            Spoil::Deep => {
                line.extend(b",\"deep\":");
                line.extend([b'['; 10_000]);
                line.extend([b']'; 10_000]);
            }
        }
        line.push(b'}');
        if faults {
            let reasoning = if made.reasoning == "captured" { body.reasoning.clone() } else { String::new() };
            let content = match (made.empty_content, made.reasoning) {
                (true, _) => String::new(),
                (_, "leaked") => format!("<think>{}</think>{}", body.reasoning, body.content),
                _ => body.content.clone(),
            };
            let n = reasoning.chars().count() + content.chars().count();
            let mut hasher = DefaultHasher::new();
            (reasoning, content).hash(&mut hasher);
            made.text = (hasher.finish(), n >= 200);
        }
        self.last = if made.failed { Body::default() } else { body };
        made
    }
}
