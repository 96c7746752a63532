//! What adds up over the rows of a file: plain counts, mergeable, in file order.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    answer::{Fate, Fields, MarkerSearch, Markers, fate, whole_number},
    document::Place,
    drift::Series,
    ids::{Ids, Texts},
    lengths::LengthCounts,
    locations::{Field, Locations},
    plan::InspectPlan,
    scan::{Captured, Fault, Kind, Outcome, Remark, Row, Scanner, text},
};

/// Characters of an excerpt.
const EXCERPT: usize = 80;
/// Characters from which an answer that occurs twice is remarkable; `Yes.` is not.
const MIN_REPEATED: u64 = 200;
/// Groups that are kept apart in one way to cut; what comes after is folded together.
const MAX_GROUPS: usize = 200;

/// A count with its first places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sighting {
    pub(crate) count: u64,
    pub(crate) recoverable: u64,
    pub(crate) examples: Vec<Place>,
}

impl Sighting {
    fn see(&mut self, n_examples: usize, place: impl FnOnce() -> Place) {
        self.count += 1;
        if self.examples.len() < n_examples {
            self.examples.push(place());
        }
    }

    pub(crate) fn merge(&mut self, other: Self, n_examples: usize) {
        self.count += other.count;
        self.recoverable += other.recoverable;
        let room = n_examples.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }
}

/// Two locations that disagree.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disagreement {
    pub(crate) seen: Sighting,
    pub(crate) off_by_one: u64,
}

/// Ways to cut the answers into groups, besides the data set.
pub(crate) const CUTS: [Field; 6] =
    [Field::Dataset, Field::FinishReason, Field::Turn, Field::Fingerprint, Field::Model, Field::Endpoint];

/// One group of answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) answers: u64,
    pub(crate) failed: u64,
    pub(crate) truncated: u64,
    pub(crate) empty_content: u64,
    pub(crate) captured: u64,
    pub(crate) tokens: LengthCounts,
    pub(crate) characters: LengthCounts,
}

/// The groups of one way to cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    pub(crate) by_name: BTreeMap<Vec<u8>, Group>,
    pub(crate) folded: u64,
}

impl Groups {
    fn group(&mut self, name: &[u8]) -> &mut Group {
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= MAX_GROUPS {
                self.folded += 1;
                return self.by_name.entry(b"(other)".to_vec()).or_default();
            }
            self.by_name.insert(name.to_vec(), Group::default());
        }
        self.by_name.entry(name.to_vec()).or_default()
    }

    fn merge(&mut self, other: Self) {
        self.folded += other.folded;
        for (name, group) in other.by_name {
            let own = if name == b"(other)" { self.by_name.entry(name).or_default() } else { self.group(&name) };
            own.answers += group.answers;
            own.failed += group.failed;
            own.truncated += group.truncated;
            own.empty_content += group.empty_content;
            own.captured += group.captured;
            own.tokens.merge(&group.tokens);
            own.characters.merge(&group.characters);
        }
    }
}

/// A figure along the file, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Along {
    pub(crate) tokens: Series,
    pub(crate) characters: Series,
    pub(crate) captured: Series,
    pub(crate) truncated: Series,
}

/// Counts by kind of what is odd about the answers; names are those of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Odd {
    ReasoningMissing,
    ReasoningLeaked,
    LeakedClosingOnly,
    LeakedBesideCaptured,
    Unclosed,
    ChannelMarkup,
    TruncatedInReasoning,
    CountedButMissing,
    EmptyContent,
    Truncated,
    NoCount,
    Aborted,
    SeveralChoices,
}

impl Odd {
    pub(crate) const ALL: [Self; 13] = [
        Self::ReasoningMissing,
        Self::ReasoningLeaked,
        Self::LeakedClosingOnly,
        Self::LeakedBesideCaptured,
        Self::Unclosed,
        Self::ChannelMarkup,
        Self::TruncatedInReasoning,
        Self::CountedButMissing,
        Self::EmptyContent,
        Self::Truncated,
        Self::NoCount,
        Self::Aborted,
        Self::SeveralChoices,
    ];
}

/// All that is counted over the rows of one file (or, merged, of several).
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    n_examples: usize,
    pub(crate) parsed: u64,
    pub(crate) blank: u64,
    pub(crate) in_progress: u64,
    pub(crate) malformed: [Sighting; Fault::ALL.len()],
    pub(crate) remarks: [Sighting; Remark::ALL.len()],
    pub(crate) finished: u64,
    pub(crate) truncated: u64,
    pub(crate) failed: u64,
    pub(crate) without_answer: u64,
    pub(crate) failed_by_cause: BTreeMap<String, u64>,
    pub(crate) finish_reasons: BTreeMap<Vec<u8>, u64>,
    pub(crate) empty_content_truncated: u64,
    pub(crate) reasoning_captured: u64,
    pub(crate) reasoning_empty: u64,
    pub(crate) reasoning_null: u64,
    pub(crate) reasoning_absent: u64,
    pub(crate) odd: [Sighting; Odd::ALL.len()],
    /// By slot: rows in which that location won.
    pub(crate) wins: Vec<u64>,
    pub(crate) conflicts: BTreeMap<(u16, u16), Disagreement>,
    pub(crate) finished_tokens: LengthCounts,
    pub(crate) truncated_tokens: LengthCounts,
    pub(crate) finished_characters: LengthCounts,
    pub(crate) truncated_characters: LengthCounts,
    pub(crate) prompt_tokens: LengthCounts,
    pub(crate) reasoning_tokens: LengthCounts,
    pub(crate) content_tokens: LengthCounts,
    pub(crate) reasoning_characters: LengthCounts,
    pub(crate) content_characters: LengthCounts,
    /// Lengths of `..._tokens` that were counted by the tokenizer that was given.
    pub(crate) counted_by_tokenizer: u64,
    pub(crate) groups: [Groups; CUTS.len()],
    pub(crate) along: Along,
    pub(crate) ids: Ids,
    pub(crate) texts: Texts,
    pub(crate) verify_rows: u64,
    pub(crate) verify_tokens: u64,
    pub(crate) verify_steps: u64,
    pub(crate) verify_ratios: f64,
    /// Tokens of failed, cut and not kept rows.
    pub(crate) discarded_tokens: u64,
    pub(crate) failed_tokens: u64,
    pub(crate) first_sent_ms: Option<u64>,
    pub(crate) last_done_ms: Option<u64>,
}

/// Where a row is, and what it is made of.
#[derive(Clone, Copy)]
pub(crate) struct RowAt<'a> {
    pub(crate) region: &'a [u8],
    pub(crate) start: usize,
    /// From 1.
    pub(crate) line: u64,
    /// Byte of the text at which the row begins.
    pub(crate) byte: u64,
}

impl Tally {
    pub(crate) fn new(plan: &InspectPlan, locations: &Locations) -> Self {
        Self {
            n_examples: plan.n_examples,
            parsed: 0,
            blank: 0,
            in_progress: 0,
            malformed: Default::default(),
            remarks: Default::default(),
            finished: 0,
            truncated: 0,
            failed: 0,
            without_answer: 0,
            failed_by_cause: BTreeMap::new(),
            finish_reasons: BTreeMap::new(),
            empty_content_truncated: 0,
            reasoning_captured: 0,
            reasoning_empty: 0,
            reasoning_null: 0,
            reasoning_absent: 0,
            odd: Default::default(),
            wins: vec![0; locations.slots.len()],
            conflicts: BTreeMap::new(),
            finished_tokens: LengthCounts::default(),
            truncated_tokens: LengthCounts::default(),
            finished_characters: LengthCounts::default(),
            truncated_characters: LengthCounts::default(),
            prompt_tokens: LengthCounts::default(),
            reasoning_tokens: LengthCounts::default(),
            content_tokens: LengthCounts::default(),
            reasoning_characters: LengthCounts::default(),
            content_characters: LengthCounts::default(),
            counted_by_tokenizer: 0,
            groups: Default::default(),
            along: Along::default(),
            ids: Ids::default(),
            texts: Texts::default(),
            verify_rows: 0,
            verify_tokens: 0,
            verify_steps: 0,
            verify_ratios: 0.0,
            discarded_tokens: 0,
            failed_tokens: 0,
            first_sent_ms: None,
            last_done_ms: None,
        }
    }

    /// Adds what was counted over another file. What runs along a file is not merged.
    pub(crate) fn merge(&mut self, other: Self) {
        self.parsed += other.parsed;
        self.blank += other.blank;
        self.in_progress += other.in_progress;
        for (own, its) in self.malformed.iter_mut().zip(other.malformed) {
            own.merge(its, self.n_examples);
        }
        for (own, its) in self.remarks.iter_mut().zip(other.remarks) {
            own.merge(its, self.n_examples);
        }
        for (own, its) in self.odd.iter_mut().zip(other.odd) {
            own.merge(its, self.n_examples);
        }
        self.finished += other.finished;
        self.truncated += other.truncated;
        self.failed += other.failed;
        self.without_answer += other.without_answer;
        for (cause, n) in other.failed_by_cause {
            *self.failed_by_cause.entry(cause).or_default() += n;
        }
        for (reason, n) in other.finish_reasons {
            *self.finish_reasons.entry(reason).or_default() += n;
        }
        self.empty_content_truncated += other.empty_content_truncated;
        self.reasoning_captured += other.reasoning_captured;
        self.reasoning_empty += other.reasoning_empty;
        self.reasoning_null += other.reasoning_null;
        self.reasoning_absent += other.reasoning_absent;
        for (own, its) in self.wins.iter_mut().zip(other.wins) {
            *own += its;
        }
        for (pair, its) in other.conflicts {
            let own = self.conflicts.entry(pair).or_default();
            own.seen.merge(its.seen, self.n_examples);
            own.off_by_one += its.off_by_one;
        }
        self.finished_tokens.merge(&other.finished_tokens);
        self.truncated_tokens.merge(&other.truncated_tokens);
        self.finished_characters.merge(&other.finished_characters);
        self.truncated_characters.merge(&other.truncated_characters);
        self.prompt_tokens.merge(&other.prompt_tokens);
        self.reasoning_tokens.merge(&other.reasoning_tokens);
        self.content_tokens.merge(&other.content_tokens);
        self.reasoning_characters.merge(&other.reasoning_characters);
        self.content_characters.merge(&other.content_characters);
        self.counted_by_tokenizer += other.counted_by_tokenizer;
        for (own, its) in self.groups.iter_mut().zip(other.groups) {
            own.merge(its);
        }
        self.ids.merge(other.ids);
        self.texts.merge(other.texts);
        self.verify_rows += other.verify_rows;
        self.verify_tokens += other.verify_tokens;
        self.verify_steps += other.verify_steps;
        self.verify_ratios += other.verify_ratios;
        self.discarded_tokens += other.discarded_tokens;
        self.failed_tokens += other.failed_tokens;
        self.first_sent_ms = [self.first_sent_ms, other.first_sent_ms].into_iter().flatten().min();
        self.last_done_ms = self.last_done_ms.max(other.last_done_ms);
    }

    /// Answers, finished and cut.
    pub(crate) fn answers(&self) -> u64 {
        self.finished + self.truncated
    }

    /// How often something odd was seen.
    pub(crate) fn odd(&self, odd: Odd) -> &Sighting {
        &self.odd[odd as usize]
    }

    fn see(&mut self, odd: Odd, at: &RowAt<'_>) {
        self.odd[odd as usize].see(self.n_examples, || place(at, None, String::new()));
    }

    /// Counts a line that did not parse. `recoverable`: whole records inside it.
    pub(crate) fn malformed(
        &mut self,
        fault: Fault,
        at: &RowAt<'_>,
        trouble: usize,
        line_end: usize,
        recoverable: u64,
    ) {
        let sighting = &mut self.malformed[fault as usize];
        sighting.recoverable += recoverable;
        sighting.see(self.n_examples, || {
            let from = trouble.saturating_sub(EXCERPT / 2).max(at.start);
            let to = line_end.clamp(from, at.region.len());
            place(at, Some(at.byte + (trouble - at.start) as u64), text::excerpt(&at.region[from..to], EXCERPT))
        });
    }

    /// Counts a remark.
    pub(crate) fn remark(&mut self, remark: Remark, at: &RowAt<'_>) {
        self.remarks[remark as usize].see(self.n_examples, || place(at, None, String::new()));
    }
}

fn place(at: &RowAt<'_>, at_byte: Option<u64>, excerpt: String) -> Place {
    Place { file: 0, line: at.line, byte: at.byte, at_byte, excerpt }
}

/// What is needed to count the rows of one file.
pub(crate) struct Counter<'p> {
    plan: &'p InspectPlan,
    locations: &'p Locations,
    dataset: &'p [u8],
    pub(crate) tally: Tally,
    markers: MarkerSearch,
    /// A row with a token count was seen: lengths in characters will not be asked for.
    has_tokens: bool,
    /// Where escapes are undone for hashing.
    buffer: Vec<u8>,
}

impl<'p> Counter<'p> {
    pub(crate) fn new(plan: &'p InspectPlan, locations: &'p Locations, dataset: &'p str) -> Self {
        let tally = Tally::new(plan, locations);
        Self {
            plan,
            locations,
            dataset: dataset.as_bytes(),
            tally,
            markers: MarkerSearch::new(),
            has_tokens: false,
            buffer: Vec::new(),
        }
    }

    /// Counts a scanned row; malformed ones are counted by the reader, who looks closer at them first.
    pub(crate) fn row(&mut self, scanner: &Scanner<'_>, row: &Row, at: &RowAt<'_>) {
        match row.outcome {
            Outcome::Parsed => {}
            Outcome::Blank => {
                self.tally.blank += 1;
                return;
            }
            Outcome::Malformed(..) => return,
        }
        self.tally.parsed += 1;
        if row.remarks != 0 {
            for remark in Remark::ALL {
                if row.remarks & remark.bit() != 0 {
                    self.tally.remark(remark, at);
                }
            }
        }
        if row.next - at.start > self.plan.huge_line_bytes {
            self.tally.remark(Remark::HugeLine, at);
        }
        let fields = Fields::choose(self.locations, &scanner.captures);
        self.answer(&fields, scanner, at);
    }

    fn answer(&mut self, fields: &Fields, scanner: &Scanner<'_>, at: &RowAt<'_>) {
        let region = at.region;
        let fate = fate(fields, self.locations, region);
        let dataset = fields.word(Field::Dataset, region).unwrap_or(self.dataset);
        match fate {
            Fate::Nothing => {
                self.tally.without_answer += 1;
                return;
            }
            Fate::Failed => {
                self.tally.failed += 1;
                let cause = cause(fields, region);
                *self.tally.failed_by_cause.entry(cause).or_default() += 1;
                self.tally.groups[0].group(dataset).failed += 1;
                let lost = fields.number(Field::CompletionTokens, self.locations, region).unwrap_or(0);
                self.tally.discarded_tokens += lost;
                self.tally.failed_tokens += lost;
                if fields.word(Field::FinishReason, region) == Some(b"abort") {
                    self.tally.see(Odd::Aborted, at);
                }
                return;
            }
            Fate::Finished => self.tally.finished += 1,
            Fate::Truncated => self.tally.truncated += 1,
        }
        let truncated = fate == Fate::Truncated;
        for field in Field::PLACEABLE {
            if let Some(found) = fields.some(field) {
                self.tally.wins[usize::from(found.slot)] += 1;
            }
        }
        let lengths = self.lengths(fields, truncated, at);
        let parts = self.parts(fields, truncated, lengths.tokens, at);
        self.groups(fields, dataset, truncated, &parts, &lengths, region);
        self.along(truncated, &parts, &lengths);
        self.identity(fields, region);
        if lengths.characters >= MIN_REPEATED {
            self.repetition(fields, region);
        }
        self.speculation(fields, lengths.tokens, region);
        self.conflicts(fields, scanner, at);
        self.timing(fields, region);
        let kept = fields.some(Field::Kept).is_none_or(|kept| kept.value.kind != Kind::Bool(false));
        if truncated || !kept {
            self.tally.discarded_tokens += lengths.tokens.unwrap_or(0);
        }
        if fields.number(Field::Choices, self.locations, region).is_some_and(|n| n > 1) {
            self.tally.see(Odd::SeveralChoices, at);
        }
        if truncated {
            self.tally.see(Odd::Truncated, at);
        }
    }

    fn lengths(&mut self, fields: &Fields, truncated: bool, at: &RowAt<'_>) -> RowLengths {
        let characters = |field: Field| -> u64 {
            let text = fields.get(field).filter(|found| found.value.kind == Kind::String);
            text.map_or(0, |found| u64::from(found.value.size))
        };
        let (reasoning, content) = (characters(Field::Reasoning), characters(Field::Content));
        let mut tokens = fields.number(Field::CompletionTokens, self.locations, at.region);
        if let (None, Some(count)) = (tokens, &self.plan.count_tokens) {
            let text = |field: Field| {
                let found = fields.get(field).filter(|found| found.value.kind == Kind::String)?;
                Some(count(&text::unescape(found.value.of(at.region))))
            };
            tokens = Some(text(Field::Reasoning).unwrap_or(0) + text(Field::Content).unwrap_or(0));
            self.tally.counted_by_tokenizer += 1;
        }
        let tally = &mut self.tally;
        let (by_tokens, by_characters) = if truncated {
            (&mut tally.truncated_tokens, &mut tally.truncated_characters)
        } else {
            (&mut tally.finished_tokens, &mut tally.finished_characters)
        };
        if !self.has_tokens {
            by_characters.add(reasoning + content);
        }
        match tokens {
            Some(tokens) => {
                self.has_tokens = true;
                by_tokens.add(tokens);
            }
            None => tally.see(Odd::NoCount, at),
        }
        if reasoning > 0 {
            tally.reasoning_characters.add(reasoning);
        }
        if content > 0 {
            tally.content_characters.add(content);
        }
        if let Some(prompt) = fields.number(Field::PromptTokens, self.locations, at.region) {
            tally.prompt_tokens.add(prompt);
        }
        RowLengths { tokens, characters: reasoning + content }
    }

    fn parts(&mut self, fields: &Fields, truncated: bool, tokens: Option<u64>, at: &RowAt<'_>) -> Parts {
        let region = at.region;
        let number = |field| fields.number(field, self.locations, region);
        let span = |from, to| Some(number(to)?.saturating_sub(number(from)?));
        let reasoning_span = span(Field::ReasoningStart, Field::ReasoningEnd);
        let content_span = span(Field::ContentStart, Field::ContentEnd);
        let reasoning_tokens = reasoning_span.or_else(|| number(Field::ReasoningTokens));
        let content_tokens = content_span
            .or_else(|| Some(tokens?.saturating_sub(reasoning_tokens.filter(|_| reasoning_span.is_none())?)));
        let tally = &mut self.tally;
        if let Some(n) = reasoning_tokens {
            tally.reasoning_tokens.add(n);
        }
        if let Some(n) = content_tokens {
            tally.content_tokens.add(n);
        }

        let reasoning = fields.get(Field::Reasoning);
        let content = fields.get(Field::Content);
        let captured = reasoning.is_some_and(|found| found.holds()) || reasoning_span.is_some_and(|n| n > 0);
        let markers = content_markers(&self.markers, content, region);
        if captured {
            tally.reasoning_captured += 1;
            if markers.any() {
                tally.see(Odd::LeakedBesideCaptured, at);
            }
        } else if markers.any() {
            tally.see(Odd::ReasoningLeaked, at);
            if markers.closing && !markers.opening {
                tally.see(Odd::LeakedClosingOnly, at);
            }
        } else {
            match reasoning {
                None => tally.reasoning_absent += 1,
                Some(found) if found.value.kind == Kind::Null => tally.reasoning_null += 1,
                Some(_) => tally.reasoning_empty += 1,
            }
            tally.see(Odd::ReasoningMissing, at);
            if reasoning_tokens.is_some_and(|n| n > 0) {
                tally.see(Odd::CountedButMissing, at);
            }
        }
        if markers.channel {
            tally.see(Odd::ChannelMarkup, at);
        }
        let flags = fields.some(Field::Flags).map(|found| found.value.of(region)).unwrap_or_default();
        let flagged = |flag: &[u8]| !flags.is_empty() && memchr::memmem::find(flags, flag).is_some();
        if markers.opening && !markers.closing || flagged(b"\"unclosed_reasoning\"") {
            tally.see(Odd::Unclosed, at);
        }
        let calls = fields.get(Field::ToolCalls).is_some_and(|calls| calls.holds());
        let has_content = content.is_some_and(|found| found.holds()) || content_span.is_some_and(|n| n > 0);
        let has_text_field = content.is_some() || reasoning.is_some() || content_span.is_some();
        let empty_content = has_text_field && !has_content && !calls;
        if empty_content {
            tally.see(Odd::EmptyContent, at);
            if truncated {
                tally.empty_content_truncated += 1;
            }
        }
        let open_at_cap = truncated && (captured && empty_content || markers.opening && !markers.closing);
        if open_at_cap || flagged(b"\"truncated_in_reasoning\"") {
            tally.see(Odd::TruncatedInReasoning, at);
        }
        Parts { captured, empty_content }
    }

    fn groups(
        &mut self,
        fields: &Fields,
        dataset: &[u8],
        truncated: bool,
        parts: &Parts,
        lengths: &RowLengths,
        region: &[u8],
    ) {
        let reason = fields.word(Field::FinishReason, region).unwrap_or(b"(none)");
        if let Some(n) = self.tally.finish_reasons.get_mut(reason) {
            *n += 1;
        } else {
            self.tally.finish_reasons.insert(reason.to_vec(), 1);
        }
        for (n, field) in CUTS.into_iter().enumerate() {
            let name = match field {
                Field::Dataset => dataset,
                Field::FinishReason => reason,
                other => match fields.word(other, region) {
                    Some(name) => name,
                    None => continue,
                },
            };
            let group = self.tally.groups[n].group(name);
            group.answers += 1;
            group.truncated += u64::from(truncated);
            group.empty_content += u64::from(parts.empty_content);
            group.captured += u64::from(parts.captured);
            if let Some(tokens) = lengths.tokens {
                group.tokens.add(tokens);
            }
            if !self.has_tokens {
                group.characters.add(lengths.characters);
            }
        }
    }

    fn along(&mut self, truncated: bool, parts: &Parts, lengths: &RowLengths) {
        let along = &mut self.tally.along;
        if let Some(tokens) = lengths.tokens {
            along.tokens.add(tokens as f64);
        }
        if !self.has_tokens {
            along.characters.add(lengths.characters as f64);
        }
        along.captured.add(f64::from(u8::from(parts.captured)));
        along.truncated.add(f64::from(u8::from(truncated)));
    }

    fn identity(&mut self, fields: &Fields, region: &[u8]) {
        let id = fields.word(Field::Id, region);
        let conversation = fields.word(Field::ConversationId, region);
        let turn = fields.word(Field::Turn, region);
        let dataset = fields.word(Field::Dataset, region).unwrap_or(self.dataset);
        self.tally.ids.add(dataset, id, conversation, turn);
    }

    /// Notes the text of an answer, reasoning and content, however it is spelled.
    fn repetition(&mut self, fields: &Fields, region: &[u8]) {
        let mut hash = 0;
        for field in [Field::Reasoning, Field::Content] {
            let Some(found) = fields.get(field).filter(|found| found.value.kind == Kind::String) else { continue };
            let raw = found.value.of(region);
            hash = if found.value.unicode_escaped {
                self.buffer.clear();
                text::decode_unicode_into(raw, &mut self.buffer);
                xxh3_64_with_seed(&self.buffer, hash)
            } else {
                xxh3_64_with_seed(raw, hash)
            };
        }
        self.tally.texts.add(hash);
    }

    fn speculation(&mut self, fields: &Fields, tokens: Option<u64>, region: &[u8]) {
        let steps = fields.number(Field::VerifySteps, self.locations, region).filter(|steps| *steps > 0);
        if let (Some(steps), Some(tokens)) = (steps, tokens) {
            self.tally.verify_rows += 1;
            self.tally.verify_tokens += tokens;
            self.tally.verify_steps += steps;
            self.tally.verify_ratios += tokens as f64 / steps as f64;
        }
    }

    fn timing(&mut self, fields: &Fields, region: &[u8]) {
        let number = |field| fields.number(field, self.locations, region);
        if let Some(sent) = number(Field::SentUnixMs) {
            let done = sent + number(Field::ElapsedMs).unwrap_or(0);
            let tally = &mut self.tally;
            tally.first_sent_ms = Some(tally.first_sent_ms.map_or(sent, |first| first.min(sent)));
            tally.last_done_ms = Some(tally.last_done_ms.map_or(done, |last| last.max(done)));
        }
    }

    /// Compares the location that won with the others of the same field.
    fn conflicts(&mut self, fields: &Fields, scanner: &Scanner<'_>, at: &RowAt<'_>) {
        for (slot, value) in scanner.captures.iter() {
            let location = &self.locations.slots[usize::from(slot)];
            let field = location.field;
            if !matches!(field, Field::CompletionTokens | Field::PromptTokens | Field::Reasoning) || location.in_message
            {
                continue;
            }
            let Some(winner) = fields.get(field).filter(|winner| winner.slot != slot) else { continue };
            let take = self.locations.slots[usize::from(winner.slot)].take;
            let (off_by_one, excerpt) = if field == Field::Reasoning {
                if !differ(&winner.value, &value, at.region) {
                    continue;
                }
                (false, String::new())
            } else {
                let own = whole_number(&winner.value, take, at.region);
                let other = whole_number(&value, location.take, at.region);
                let (Some(own), Some(other)) = (own, other) else { continue };
                if own == other {
                    continue;
                }
                (own.abs_diff(other) == 1, format!("{own} against {other}"))
            };
            let disagreement = self.tally.conflicts.entry((winner.slot, slot)).or_default();
            disagreement.off_by_one += u64::from(off_by_one);
            disagreement.seen.see(self.plan.n_examples, || place(at, None, excerpt));
        }
    }
}

/// How long one answer is.
struct RowLengths {
    tokens: Option<u64>,
    characters: u64,
}

/// Which parts one answer has.
struct Parts {
    captured: bool,
    empty_content: bool,
}

fn content_markers(search: &MarkerSearch, content: Option<crate::answer::Found>, region: &[u8]) -> Markers {
    match content.map(|found| found.value) {
        Some(value) if value.kind == Kind::String => search.find(value.of(region), value.ascii_escaped),
        _ => Markers::default(),
    }
}

/// Whether two strings that both hold something are different texts.
fn differ(a: &Captured, b: &Captured, region: &[u8]) -> bool {
    let both = |value: &Captured| value.kind == Kind::String && value.end > value.start;
    if !both(a) || !both(b) || a.of(region) == b.of(region) {
        return false;
    }
    !(a.escaped || b.escaped) || text::unescape(a.of(region)) != text::unescape(b.of(region))
}

/// Why a request failed, short enough to be counted by.
fn cause(fields: &Fields, region: &[u8]) -> String {
    let aborted = fields.word(Field::FinishReason, region) == Some(b"abort");
    let error = fields.some(Field::Error).map(|found| found.value.of(region));
    let status_code =
        fields.word(Field::StatusCode, region).map(|code| format!("HTTP {}", String::from_utf8_lossy(code)));
    let error = error.map(|raw| text::excerpt(text::unescape(raw).as_bytes(), EXCERPT)).or(status_code);
    match (aborted, error) {
        (true, Some(error)) => format!("abort: {error}"),
        (true, None) => "abort".to_owned(),
        (false, Some(error)) => error,
        (false, None) => {
            let status = fields.word(Field::Status, region).or_else(|| fields.word(Field::FinishReason, region));
            status.map_or("(none given)".to_owned(), |raw| text::excerpt(raw, EXCERPT))
        }
    }
}
