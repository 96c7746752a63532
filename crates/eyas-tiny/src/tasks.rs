//! The kinds of task: each makes a prompt, the scratch work written out, and the one right answer.
//!
//! The scratch work is built so that a model of a million parameters can follow it: every line repeats the state it needs, so
//! that the next token depends on the line before and not on a far or an uncounted place.

pub mod arithmetic;
pub mod lists;
pub mod tools;
pub mod words;

use serde_json::Value;

use crate::rng::Rng;

/// The kinds of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Two or more whole numbers added digit by digit.
    Sum,
    /// One whole number subtracted from another, digit by digit.
    Difference,
    /// A whole number times a digit, digit by digit.
    Product,
    /// A quantity carried from one unit to another, over up to three steps.
    Convert,
    /// The largest or smallest of a list of numbers.
    Extreme,
    /// Letters put in alphabetical order.
    Sort,
    /// A word written backwards.
    Reverse,
    /// The letter at a given place of a word.
    Letter,
    /// A cell of a table.
    Table,
    /// Links followed so many times.
    Chain,
    /// A day or a month so many steps later.
    Calendar,
    /// A function call as JSON, the tools declared in the prompt.
    Tool,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Difference,
        Self::Product,
        Self::Convert,
        Self::Extreme,
        Self::Sort,
        Self::Reverse,
        Self::Letter,
        Self::Table,
        Self::Chain,
        Self::Calendar,
        Self::Tool,
    ];

    /// Its name, as it stands in sample ids.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Difference => "difference",
            Self::Product => "product",
            Self::Convert => "convert",
            Self::Extreme => "extreme",
            Self::Sort => "sort",
            Self::Reverse => "reverse",
            Self::Letter => "letter",
            Self::Table => "table",
            Self::Chain => "chain",
            Self::Calendar => "calendar",
            Self::Tool => "tool",
        }
    }

    /// The demo data set it belongs to.
    pub fn dataset(self) -> &'static str {
        match self {
            Self::Sum | Self::Difference | Self::Product | Self::Convert | Self::Extreme => "arithmetic",
            Self::Sort | Self::Reverse | Self::Letter | Self::Table | Self::Chain | Self::Calendar => "words",
            Self::Tool => "tools",
        }
    }

    /// Makes a task of this kind.
    pub fn make(self, rng: &mut Rng) -> Task {
        match self {
            Self::Sum => arithmetic::sum(rng),
            Self::Difference => arithmetic::difference(rng),
            Self::Product => arithmetic::product(rng),
            Self::Convert => arithmetic::convert(rng),
            Self::Extreme => arithmetic::extreme(rng),
            Self::Sort => words::sort(rng),
            Self::Reverse => words::reverse(rng),
            Self::Letter => words::letter(rng),
            Self::Table => lists::table(rng),
            Self::Chain => lists::chain(rng),
            Self::Calendar => lists::calendar(rng),
            Self::Tool => tools::tool(rng),
        }
    }
}

/// The right answer to a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Text, compared exactly once trimmed.
    Text(String),
    /// One function call, compared as JSON values.
    ToolCall {
        /// The function.
        name: String,
        /// An object.
        arguments: Value,
    },
}

/// A prompt with its worked answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What the user asks.
    pub user: String,
    /// Tool declarations in OpenAI form; empty for most kinds.
    pub tools: Vec<Value>,
    /// The scratch work, without the think marks.
    pub thinking: String,
    /// The right answer.
    pub answer: Answer,
}

impl Task {
    pub(crate) fn text(user: String, lines: &[String], answer: impl Into<String>) -> Self {
        Self { user, tools: Vec::new(), thinking: lines.join("\n"), answer: Answer::Text(answer.into()) }
    }
}

/// Fills the one `{}` of a phrasing.
pub(crate) fn fill(template: &str, values: &[&str]) -> String {
    let mut out = String::new();
    let mut values = values.iter();
    let mut parts = template.split("{}");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str(values.next().copied().unwrap_or_default());
        out.push_str(part);
    }
    out
}
