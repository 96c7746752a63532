//! One row, understood: which location won for each field, and what the row says of its answer.

use memchr::memmem::Finder;

use crate::{
    locations::{Field, Locations, Take},
    scan::{Captured, Captures, Kind, text},
};

const N_FIELDS: usize = Field::ALL.len();

/// The location that won for a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) slot: u16,
    pub(crate) value: Captured,
    score: u8,
}

impl Found {
    /// The location is there and not `null`.
    pub(crate) fn is_some(&self) -> bool {
        self.value.kind != Kind::Null
    }

    /// The location holds something: a string that is not empty, an array that is not, any number.
    pub(crate) fn holds(&self) -> bool {
        holds(&self.value)
    }
}

fn holds(value: &Captured) -> bool {
    match value.kind {
        Kind::Null => false,
        Kind::String => value.end > value.start,
        Kind::Array => value.size > 0,
        Kind::Bool(_) | Kind::Number | Kind::Object => true,
    }
}

/// The fields of one row. Values are spans of the scanned region.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    best: [Option<Found>; N_FIELDS],
}

impl Fields {
    /// Chooses for each field the best of the locations that the row fills.
    pub(crate) fn choose(locations: &Locations, captures: &Captures) -> Self {
        let mut this = Self { best: [None; N_FIELDS] };
        for (slot, value) in captures.iter() {
            this.offer(locations, slot, value, true);
        }
        let outside = |found: &Option<Found>| {
            found.is_some_and(|found| found.is_some() && !locations.slots[usize::from(found.slot)].in_message)
        };
        let reasoning = &this.best[Field::Reasoning.index()];
        let from_message = reasoning.is_some_and(|found| locations.slots[usize::from(found.slot)].in_message);
        if from_message && outside(&this.best[Field::Content.index()]) {
            // The answer stands outside the conversation, so the conversation's last message is part of the prompt.
            this.best[Field::Reasoning.index()] = None;
            for (slot, value) in captures.iter() {
                if locations.slots[usize::from(slot)].field == Field::Reasoning {
                    this.offer(locations, slot, value, false);
                }
            }
        }
        this
    }

    #[inline]
    fn offer(&mut self, locations: &Locations, slot: u16, value: Captured, messages: bool) {
        let location = &locations.slots[usize::from(slot)];
        if location.in_message && !messages || !usable(location.field, location.take, value.kind) {
            return;
        }
        let score = match (value.kind == Kind::Null, holds(&value), location.in_message) {
            (true, ..) => 0,
            (_, false, true) => 1,
            (_, true, true) => 2,
            (_, false, false) => 3,
            (_, true, false) => 4,
        };
        let best = &mut self.best[location.field.index()];
        let better = best.is_none_or(|best| (score, best.slot) > (best.score, slot));
        if better {
            *best = Some(Found { slot, value, score });
        }
    }

    pub(crate) fn get(&self, field: Field) -> Option<Found> {
        self.best[field.index()]
    }

    /// The winner, when it is there and not `null`.
    pub(crate) fn some(&self, field: Field) -> Option<Found> {
        self.get(field).filter(Found::is_some)
    }

    /// The winner as a whole number.
    pub(crate) fn number(&self, field: Field, locations: &Locations, region: &[u8]) -> Option<u64> {
        let found = self.get(field)?;
        whole_number(&found.value, locations.slots[usize::from(found.slot)].take, region)
    }

    /// The winner as raw bytes of a string (escapes not undone), a number or a word; nothing for containers and `null`.
    pub(crate) fn word<'r>(&self, field: Field, region: &'r [u8]) -> Option<&'r [u8]> {
        let found = self.some(field)?;
        matches!(found.value.kind, Kind::String | Kind::Number | Kind::Bool(_)).then(|| found.value.of(region))
    }
}

/// Whether a value of this kind can be what the location is meant for.
#[inline]
fn usable(field: Field, take: Take, kind: Kind) -> bool {
    if kind == Kind::Null {
        return true;
    }
    if take != Take::Value {
        return kind == Kind::Array;
    }
    match field {
        Field::CompletionTokens
        | Field::PromptTokens
        | Field::ReasoningTokens
        | Field::Turn
        | Field::VerifySteps
        | Field::StatusCode
        | Field::ReasoningStart
        | Field::ReasoningEnd
        | Field::ContentStart
        | Field::ContentEnd
        | Field::SentUnixMs
        | Field::ElapsedMs => kind == Kind::Number,
        Field::Content => matches!(kind, Kind::String | Kind::Array),
        Field::ToolCalls | Field::Flags | Field::Choices => kind == Kind::Array,
        Field::Id | Field::ConversationId => matches!(kind, Kind::String | Kind::Number),
        Field::Kept => matches!(kind, Kind::Bool(_)),
        Field::Error => true,
        Field::Reasoning
        | Field::FinishReason
        | Field::Dataset
        | Field::Fingerprint
        | Field::Model
        | Field::Endpoint
        | Field::Status
        | Field::Role => kind == Kind::String,
    }
}

/// A value as a whole number: `5`, `5.0`, the length of an array, the sum of one.
pub(crate) fn whole_number(value: &Captured, take: Take, region: &[u8]) -> Option<u64> {
    match (take, value.kind) {
        (Take::Length, Kind::Array) => Some(u64::from(value.size)),
        (Take::Sum, Kind::Array) => sum(value.of(region)),
        (Take::Value, Kind::Number) => parse_number(value.of(region)),
        _ => None,
    }
}

fn parse_number(text: &[u8]) -> Option<u64> {
    if text.len() <= 18 && text.iter().all(u8::is_ascii_digit) {
        return Some(text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')));
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a whole number in range"
    )]
    ((0.0..=9e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// Sum of an array of whole numbers, given with its brackets.
fn sum(array: &[u8]) -> Option<u64> {
    let inner = array.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut sum: u64 = 0;
    if inner.trim_ascii().is_empty() {
        return Some(0);
    }
    for number in inner.split(|byte| *byte == b',') {
        sum = sum.checked_add(parse_number(number.trim_ascii())?)?;
    }
    Some(sum)
}

/// What became of the request behind a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Finished,
    Truncated,
    Failed,
    /// No answer and no error.
    Nothing,
}

/// Think markers in a text that should hold the answer only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Markers {
    pub(crate) opening: bool,
    pub(crate) closing: bool,
    pub(crate) channel: bool,
}

/// Looks for [`Markers`]; made once, because building a search costs as much as searching a short text.
#[derive(Debug, Clone)]
pub(crate) struct MarkerSearch {
    think: Finder<'static>,
    open: Finder<'static>,
    close: Finder<'static>,
    channel: Finder<'static>,
}

impl MarkerSearch {
    pub(crate) fn new() -> Self {
        Self {
            think: Finder::new("think"),
            open: Finder::new("[THINK]"),
            close: Finder::new("[/THINK]"),
            channel: Finder::new("<|channel|>"),
        }
    }

    /// Looks for markers in raw string bytes. `escaped_ascii`: plain letters may be hidden behind escapes.
    pub(crate) fn find(&self, raw: &[u8], escaped_ascii: bool) -> Markers {
        if escaped_ascii {
            return self.find_plain(text::unescape(raw).as_bytes());
        }
        self.find_plain(raw)
    }

    fn find_plain(&self, text: &[u8]) -> Markers {
        let mut markers = Markers::default();
        for at in self.think.find_iter(text) {
            let (before, after) = (&text[..at], &text[at + 5..]);
            let tag = after.starts_with(b">") || after.starts_with(b"ing>") || after.starts_with("▷".as_bytes());
            if !tag {
                continue;
            }
            // A solidus may be escaped in JSON.
            markers.closing |=
                before.ends_with(b"</") || before.ends_with(b"<\\/") || before.ends_with("◁/".as_bytes());
            markers.opening |= before.ends_with(b"<") || before.ends_with("◁".as_bytes());
        }
        markers.opening |= self.open.find(text).is_some();
        markers.closing |= self.close.find(text).is_some();
        markers.channel = self.channel.find(text).is_some();
        markers
    }
}

impl Markers {
    pub(crate) fn any(self) -> bool {
        self.opening || self.closing || self.channel
    }
}

/// Reads a row's fate off its finish reason, its status and its errors.
pub(crate) fn fate(fields: &Fields, locations: &Locations, region: &[u8]) -> Fate {
    let finish = fields.word(Field::FinishReason, region).unwrap_or_default();
    let status = fields.word(Field::Status, region).unwrap_or_default();
    let is = |word: &[u8], words: &[&str]| words.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()));
    let status_code = fields.number(Field::StatusCode, locations, region);
    let error = fields.some(Field::Error).is_some_and(|error| error.holds());
    let failed = is(finish, &["abort", "error", "cancelled"])
        || is(status, &["failed", "failure", "error", "errored", "expired", "cancelled", "aborted", "timeout"])
        || status_code.is_some_and(|code| code >= 400)
        || error;
    if failed {
        return Fate::Failed;
    }
    let answered = [Field::CompletionTokens, Field::Content, Field::Reasoning, Field::FinishReason]
        .into_iter()
        .any(|field| fields.some(field).is_some())
        || fields.some(Field::ToolCalls).is_some_and(|calls| calls.holds());
    if !answered {
        return Fate::Nothing;
    }
    let truncated = is(finish, &["length", "max_tokens", "max_output_tokens", "model_length", "max_length"])
        || is(status, &["truncated", "incomplete"]);
    if truncated { Fate::Truncated } else { Fate::Finished }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_tags_and_not_words() {
        let find = |text: &str| {
            let markers = MarkerSearch::new().find(text.as_bytes(), text.contains("\\u00"));
            (markers.opening, markers.closing, markers.channel)
        };
        assert_eq!(find("I think > you"), (false, false, false));
        assert_eq!(find("<think>a</think>b"), (true, true, false));
        assert_eq!(find("2 and 2 is 4.\\n</think>\\n\\n4"), (false, true, false));
        assert_eq!(find("a<\\/think>b"), (false, true, false));
        assert_eq!(find("\\u003cthink\\u003ea"), (true, false, false));
        assert_eq!(find("◁think▷a◁/think▷"), (true, true, false));
        assert_eq!(find("[THINK]a[/THINK]"), (true, true, false));
        assert_eq!(find("<|channel|>analysis"), (false, false, true));
    }

    #[test]
    fn numbers_are_whole_or_nothing() {
        for (text, value) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("1e3", Some(1000)),
            ("-1", None),
            ("1.5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_number(text.as_bytes()), value, "{text}");
        }
        assert_eq!(sum(b"[0, 1,1 , 1]"), Some(3));
        assert_eq!(sum(b"[ ]"), Some(0));
        assert_eq!(sum(b"[true]"), None);
    }
}
