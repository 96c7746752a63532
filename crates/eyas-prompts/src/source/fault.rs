//! Why a row is not taken, and what was mended in those that are.

use std::fmt;

/// Class of a row that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowFault {
    /// Not JSON.
    MalformedJson,
    /// The file breaks off inside the row (cut download, damaged compression).
    TornRow,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// Half a surrogate pair, written as an escape; no character stands for it.
    LoneSurrogate,
    /// `NaN`, `Infinity` or `-Infinity`, which JSON does not have.
    NotFinite,
    /// A number that cannot be held without changing its value.
    NumberOutOfRange,
    /// The same key twice in one object.
    DuplicateKey,
    /// More than [`MAX_DEPTH`](super::MAX_DEPTH) nested lists and objects.
    TooDeep,
    /// Raw NUL bytes, as a crash leaves them at the end of a file.
    NulByte,
    /// A list, string, number … where an object was expected.
    NotAnObject,
    /// Longer than the limit on a row's bytes.
    RowTooLarge,
}

impl RowFault {
    /// The word that stands in `rejected.jsonl` and in counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MalformedJson => "malformed_json",
            Self::TornRow => "torn_row",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::LoneSurrogate => "lone_surrogate",
            Self::NotFinite => "not_finite",
            Self::NumberOutOfRange => "number_out_of_range",
            Self::DuplicateKey => "duplicate_key",
            Self::TooDeep => "too_deep",
            Self::NulByte => "nul_byte",
            Self::NotAnObject => "not_an_object",
            Self::RowTooLarge => "row_too_large",
        }
    }
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Class.
    pub fault: RowFault,
    /// The whole story for a person.
    pub detail: String,
}

impl BadRow {
    pub(crate) fn new(fault: RowFault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into() }
    }
}

/// What was changed, dropped or noticed in a row that is taken all the same. Stands in [`Prompt::repairs`](eyas_types::Prompt::repairs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Repair {
    /// Half a surrogate pair became U+FFFD (only on request).
    LoneSurrogateReplaced,
    /// A fraction had more digits than a double holds; the nearest double was taken.
    FloatRounded,
    /// The conversation began with turns of the model (and results of its tools); those before the first user turn were dropped.
    LeadingAssistantDropped,
    /// The row asks several user turns one after another with no answers between; only the first is asked.
    OnlyFirstTurnAsked,
    /// A tool call had keys besides id, type, name and arguments; they were dropped.
    ToolCallKeysDropped,
    /// Nothing was changed, but the row has tool calls or results and no tool schemas: the model is not told what it may call.
    ToolsMissing,
}

impl Repair {
    /// The word that stands in `prompts.jsonl` and in counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LoneSurrogateReplaced => "lone_surrogate_replaced",
            Self::FloatRounded => "float_rounded",
            Self::LeadingAssistantDropped => "leading_assistant_dropped",
            Self::OnlyFirstTurnAsked => "only_first_turn_asked",
            Self::ToolCallKeysDropped => "tool_call_keys_dropped",
            Self::ToolsMissing => "tools_missing",
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
