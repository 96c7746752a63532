//! The inspection as text for a terminal: one screen, the most important last.

use eyas_inspect::{
    AnswerCounts, Compression, FieldReport, FileEvent, FileReport, Finding, Inspection, Layout, LengthStats, Place,
    Severity, Unit,
};

use crate::{
    histogram,
    numbers::{bytes, count, decimal, percent, short},
};

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Columns, at least 60 are used. Default 100.
    pub width: usize,
    /// Plain ASCII instead of block characters. Default off.
    pub ascii: bool,
    /// Colours for severities, which are words as well. Default off.
    pub color: bool,
}

impl Default for TerminalStyle {
    fn default() -> Self {
        Self { width: 100, ascii: false, color: false }
    }
}

/// Files that are listed by name.
const MAX_FILES: usize = 6;
/// Groups that are listed by name.
const MAX_GROUPS: usize = 12;
/// Findings that are shown in full.
const MAX_FINDINGS: usize = 10;

/// Renders the inspection. The last line says what to do.
pub fn terminal(inspection: &Inspection, style: &TerminalStyle) -> String {
    let mut page = Page { style: TerminalStyle { width: style.width.max(60), ..*style }, out: String::new() };
    page.files(&inspection.files);
    page.rows(inspection);
    page.fields(inspection);
    page.lengths(inspection);
    page.shape(&inspection.lengths.completion);
    page.endings(inspection);
    page.groups(inspection);
    page.findings(inspection);
    page.verdict(inspection);
    page.out
}

struct Page {
    style: TerminalStyle,
    out: String,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// `label` in the first column, `text` beside it, wrapped.
    fn entry(&mut self, label: &str, text: &str) {
        let text = if self.style.ascii { ascii(text) } else { text.to_owned() };
        for (n, line) in wrap(&text, self.style.width.saturating_sub(11)).iter().enumerate() {
            let label = if n == 0 { label } else { "" };
            self.line(&format!("{label:<10} {line}"));
        }
    }

    fn files(&mut self, files: &[FileReport]) {
        for (n, file) in files.iter().take(MAX_FILES).enumerate() {
            let label = match (n, files.len()) {
                (0, 1) => "file",
                (0, _) => "files",
                _ => "",
            };
            self.entry(label, &describe_file(file));
        }
        if files.len() > MAX_FILES {
            let rest = &files[MAX_FILES..];
            let n_bytes: u64 = rest.iter().map(|file| file.bytes).sum();
            self.entry("", &format!("and {} more, {}", count(rest.len() as u64), bytes(n_bytes)));
        }
    }

    fn rows(&mut self, inspection: &Inspection) {
        let rows = &inspection.rows;
        self.entry(
            "rows",
            &format!(
                "{} = {} parsed + {} malformed + {} blank + {} in progress",
                count(rows.total),
                count(rows.parsed),
                count(rows.malformed),
                count(rows.blank),
                count(rows.in_progress),
            ),
        );
        let classes: Vec<String> =
            rows.malformed_by_class.iter().map(|class| format!("{} {}", class.class, count(class.count))).collect();
        if !classes.is_empty() {
            self.entry("", &format!("malformed: {}", classes.join(" · ")));
        }
        self.entry("answers", &describe_answers(&inspection.answers));
        let conversations = &inspection.conversations;
        if conversations.conversations != conversations.requests && conversations.requests > 0 {
            self.entry(
                "",
                &format!(
                    "{} requests in {} conversations: {} prompt tokens processed, {} tokens generated",
                    count(conversations.requests),
                    count(conversations.conversations),
                    count(conversations.prompt_tokens),
                    count(conversations.completion_tokens),
                ),
            );
        }
    }

    /// Fields found in one place in every answer share a line; the others have one each.
    fn fields(&mut self, inspection: &Inspection) {
        let whole = inspection.answers.answers;
        if whole == 0 {
            return;
        }
        let everywhere = |field: &&FieldReport| field.used.len() == 1 && field.absent == 0;
        let (plain, mixed): (Vec<&FieldReport>, Vec<&FieldReport>) = inspection.fields.iter().partition(everywhere);
        let mut label = "fields";
        if !plain.is_empty() {
            let name = |field: &&FieldReport| match field.used.first() {
                Some(used) if used.path != field.field => format!("{} at {}", field.field, used.path),
                _ => field.field.clone(),
            };
            let names: Vec<String> = plain.iter().map(name).collect();
            self.entry(label, &format!("in all {} answers: {}", count(whole), names.join(" · ")));
            label = "";
        }
        for field in mixed {
            let mut parts: Vec<String> =
                field.used.iter().map(|used| format!("{} {}", used.path, count(used.rows))).collect();
            match (field.used.is_empty(), field.absent) {
                (true, _) => parts.push("not found".to_owned()),
                (false, 0) => {}
                (false, absent) => parts.push(format!("absent {}", count(absent))),
            }
            self.entry(label, &format!("{}: {}", field.field, parts.join(" · ")));
            label = "";
        }
    }

    fn lengths(&mut self, inspection: &Inspection) {
        let lengths = &inspection.lengths;
        if inspection.answers.answers == 0 {
            return;
        }
        let unit = unit_name(lengths.unit);
        let mut table = Table::new(&[unit, "n", "mean", "median", "stdev", "P90", "P95", "P99", "max"]);
        let mut add = |name: &str, stats: &LengthStats| {
            table.row(vec![
                name.to_owned(),
                count(stats.n),
                decimal(stats.mean),
                decimal(stats.median),
                decimal(stats.stdev),
                decimal(stats.p90),
                decimal(stats.p95),
                decimal(stats.p99),
                stats.max.map_or("n/a".to_owned(), count),
            ]);
        };
        add("answers", &lengths.completion);
        if lengths.truncated.n > 0 {
            add("  finished", &lengths.finished);
            add("  cut by the cap", &lengths.truncated);
        }
        let parts =
            [("  reasoning", &lengths.reasoning), ("  content", &lengths.content), ("prompts", &lengths.prompt)];
        for (name, stats) in parts {
            if let Some(stats) = stats {
                add(name, stats);
            }
        }
        let characters = [
            ("reasoning, characters", &lengths.reasoning_characters),
            ("content, characters", &lengths.content_characters),
        ];
        for (name, stats) in characters {
            if let (Some(stats), true) = (stats, lengths.reasoning.is_none()) {
                add(name, stats);
            }
        }
        self.line("");
        table.lines().iter().for_each(|line| self.line(line));
        self.how_made(&lengths.completion);
    }

    /// Every mean says how it was made.
    fn how_made(&mut self, stats: &LengthStats) {
        let interval = match (stats.mean, stats.mean_ci95) {
            (Some(mean), Some([low, _])) => format!(" ± {} (95 %)", decimal(Some(mean - low))),
            _ => String::new(),
        };
        self.entry("", &format!(
            "mean{interval} = sum {} / {} {}; stdev of the population (ddof 0); percentiles linear between ranks, as numpy",
            count(stats.sum), count(stats.n), stats.population,
        ));
    }

    fn shape(&mut self, stats: &LengthStats) {
        if stats.n == 0 {
            return;
        }
        self.line("");
        for line in histogram::lines(&stats.histogram, self.style.width, self.style.ascii) {
            self.line(&line);
        }
        let reached = stats.at_least.iter().filter(|threshold| threshold.count > 0);
        let at_least: Vec<String> = reached
            .map(|t| format!("≥{} {} ({})", short_binary(t.at_least), count(t.count), percent(t.share)))
            .collect();
        if !at_least.is_empty() {
            self.entry("long", &at_least.join(" · "));
        }
        let longest: Vec<String> = stats
            .longest
            .iter()
            .map(|part| format!("{:.0} % {}", 100.0 * part.of_answers, percent(part.of_sum)))
            .collect();
        if !longest.is_empty() {
            self.entry(
                "weight",
                &format!("of all {} the longest answers hold: {}", unit_name(stats.unit), longest.join(" · ")),
            );
        }
    }

    fn endings(&mut self, inspection: &Inspection) {
        let whole = inspection.answers.answers;
        let reasons: Vec<String> = inspection
            .finish_reasons
            .iter()
            .map(|reason| format!("{} {} ({})", reason.name, count(reason.count), percent(reason.share)))
            .collect();
        if !reasons.is_empty() {
            self.entry("finish", &reasons.join(" · "));
        }
        let reasoning = &inspection.reasoning;
        if let Some(rate) = reasoning.capture_rate {
            let mut text =
                format!("captured in {} of {} answers ({})", count(reasoning.captured), count(whole), percent(rate));
            let others = [
                ("left in content", reasoning.leaked),
                ("empty", reasoning.empty),
                ("null", reasoning.null),
                ("no field", reasoning.absent),
            ];
            for (name, n) in others.into_iter().filter(|(_, n)| *n > 0) {
                text = format!("{text} · {name} {}", count(n));
            }
            self.entry("reasoning", &text);
        }
        self.first_n(inspection);
        if let Some(acceptance) = &inspection.acceptance {
            self.entry("acceptance", &format!(
                "length {:.2} tokens per verify step, pooled ({} / {} over {} requests); mean of the requests' own ratios {:.2}",
                acceptance.pooled, count(acceptance.completion_tokens), count(acceptance.verify_steps), count(acceptance.rows), acceptance.per_request_mean,
            ));
        }
        if let Some(throughput) = &inspection.throughput {
            self.entry(
                "speed",
                &format!(
                    "generated {:.1} tokens/s, kept {:.1} tokens/s ({} discarded) over {:.1} s: {}",
                    throughput.generated_per_s,
                    throughput.kept_per_s,
                    percent(throughput.discarded_share),
                    throughput.wall_s,
                    throughput.wall_from,
                ),
            );
        }
    }

    fn first_n(&mut self, inspection: &Inspection) {
        let mut label = "first n";
        for drift in
            inspection.drift.iter().filter(|drift| drift.series == "length" && !drift.first_n.is_empty()).take(3)
        {
            let of_file = if inspection.files.len() > 1 {
                format!("{}: ", inspection.files[drift.file].path)
            } else {
                String::new()
            };
            let parts: Vec<String> = drift
                .first_n
                .iter()
                .map(|first| {
                    format!("{} {} ({:.2}x)", count(first.n), decimal(Some(first.mean)), first.of_whole.unwrap_or(0.0))
                })
                .collect();
            self.entry(label, &format!("{of_file}mean of the first {}", parts.join(" · ")));
            label = "";
        }
    }

    fn groups(&mut self, inspection: &Inspection) {
        let Some(grouping) =
            inspection.groups.iter().find(|grouping| grouping.by == "dataset" && grouping.groups.len() > 1)
        else {
            return;
        };
        let mut table = Table::new(&[
            "data set",
            "answers",
            "failed",
            "truncated",
            "empty",
            "reasoning",
            "mean",
            "median",
            "P90",
            "max",
        ]);
        for group in grouping.groups.iter().take(MAX_GROUPS) {
            let stats = &group.completion;
            table.row(vec![
                shorten(&group.name, 24),
                count(group.answers),
                count(group.failed),
                count(group.truncated),
                count(group.empty_content),
                percent(group.reasoning_captured as f64 / group.answers.max(1) as f64),
                decimal(stats.mean),
                decimal(stats.median),
                decimal(stats.p90),
                stats.max.map_or("n/a".to_owned(), count),
            ]);
        }
        self.line("");
        table.lines().iter().for_each(|line| self.line(line));
        if grouping.groups.len() > MAX_GROUPS {
            self.line(&format!("  and {} more", grouping.groups.len() - MAX_GROUPS));
        }
    }

    fn findings(&mut self, inspection: &Inspection) {
        if inspection.findings.is_empty() {
            return;
        }
        self.line("");
        for finding in inspection.findings.iter().take(MAX_FINDINGS) {
            self.finding(inspection, finding);
        }
        if inspection.findings.len() > MAX_FINDINGS {
            self.line(&format!("{:10} and {} more findings", "", inspection.findings.len() - MAX_FINDINGS));
        }
    }

    fn finding(&mut self, inspection: &Inspection, finding: &Finding) {
        let before = self.out.len();
        self.entry(finding.severity.as_str(), &finding.message);
        if self.style.color {
            let word = finding.severity.as_str();
            let painted = format!("{}{word}\u{1b}[0m", color(finding.severity));
            self.out.replace_range(before..before + word.len(), &painted);
        }
        if let Some(first) = finding.examples.first().filter(|place| place.line > 0) {
            self.entry("", &describe_place(inspection, first));
        }
    }

    fn verdict(&mut self, inspection: &Inspection) {
        self.line("");
        self.entry("next", &inspection.verdict.action);
    }
}

fn color(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "\u{1b}[31m",
        Severity::Warning => "\u{1b}[33m",
        Severity::Notice => "\u{1b}[36m",
    }
}

fn describe_file(file: &FileReport) -> String {
    let mut text = format!("{}  {}", file.path, bytes(file.bytes));
    text += match file.compression {
        Compression::None => "",
        Compression::Gzip => " gzip",
        Compression::Zstd => " zstd",
    };
    text += match file.layout {
        Layout::JsonLines => "",
        Layout::JsonArray => ", one JSON array",
        Layout::WrappedArray => ", an array inside a JSON object",
    };
    for event in &file.events {
        let event = match event {
            FileEvent::Grew { by_bytes } => format!(", grew by {} meanwhile", bytes(*by_bytes)),
            FileEvent::Shrank => ", shrank and was read again".to_owned(),
            FileEvent::Replaced => ", was replaced and read again".to_owned(),
            FileEvent::Unsettled { tries } => format!(", changed under each of {tries} looks"),
            FileEvent::CompressedStreamCut => ", compressed stream cut".to_owned(),
            FileEvent::CompressedStreamDamaged { at_text_byte, .. } => {
                format!(", damaged behind byte {}", count(*at_text_byte))
            }
            FileEvent::NoFinalNewline => ", no newline at the end".to_owned(),
            FileEvent::NotText { looks_like } => format!(", looks like {looks_like}"),
        };
        text.push_str(&event);
    }
    text
}

fn describe_answers(answers: &AnswerCounts) -> String {
    let mut text = format!(
        "{} = {} finished + {} truncated",
        count(answers.answers),
        count(answers.finished),
        count(answers.truncated),
    );
    let others = [
        ("failed", answers.failed),
        ("without an answer", answers.without_answer),
        ("given up by the run", answers.given_up),
    ];
    for (name, n) in others.into_iter().filter(|(_, n)| *n > 0) {
        text = format!("{text}; {name} {}", count(n));
    }
    if answers.failed > 0 {
        let causes: Vec<String> = answers
            .failed_by_cause
            .iter()
            .take(4)
            .map(|cause| format!("{} {}", cause.name, count(cause.count)))
            .collect();
        text = format!("{text} ({})", causes.join(" · "));
    }
    text
}

fn describe_place(inspection: &Inspection, place: &Place) -> String {
    let path = inspection.files.get(place.file).map_or("", |file| file.path.as_str());
    let mut text = format!("first at {path}:{} (byte {})", place.line, place.at_byte.unwrap_or(place.byte));
    if !place.excerpt.is_empty() {
        text = format!("{text}: {}", place.excerpt);
    }
    text
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens => "tokens",
        Unit::CountedTokens => "tokens (counted here)",
        Unit::Characters => "characters",
    }
}

/// Thresholds are powers of two: `1k` is 1,024.
fn short_binary(n: u64) -> String {
    if n >= 1024 && n.is_multiple_of(1024) { format!("{}Ki", n / 1024) } else { short(n) }
}

/// The beginning of a name that is too long.
fn shorten(name: &str, limit: usize) -> String {
    if name.chars().count() <= limit {
        return name.to_owned();
    }
    name.chars().take(limit - 1).chain(['…']).collect()
}

/// Text without characters beyond ASCII, where they have a plain form.
fn ascii(text: &str) -> String {
    let plain = [("·", "|"), ("±", "+-"), ("≥", ">="), ("…", "..."), ("–", "-")];
    plain.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Lines of at most `width` characters, broken at spaces where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let n = word.chars().count();
        if used > 0 && used + 1 + n > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
        }
        used += n;
    }
    lines
}

/// A table: first column left, others right.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).to_owned()).collect()] }
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn lines(&self) -> Vec<String> {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..n_columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                line.extend(if column == 0 { ["", cell, &pad] } else { ["  ", &pad, cell] });
            }
            line
        };
        self.rows.iter().map(line).collect()
    }
}
