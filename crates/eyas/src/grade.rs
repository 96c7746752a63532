//! How many answers are right, where the source had an answer of its own to compare with.
//!
//! An answer is right when its content, without the white space around it, is the reference's; or, where the reference calls tools, when it
//! makes the same calls in the same order with equal names and equal arguments (as JSON values). An answer that the cap cut is wrong.

use crate::error::CommandError;
use eyas_types::{Response, Status, ToolCall};
use serde::Serialize;
use std::path::Path;

/// Right answers of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Grades {
    /// Answers that have a reference.
    pub(crate) graded: u64,
    /// Of those: right.
    pub(crate) right: u64,
    /// `right / graded`; absent when nothing was graded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// Each data set.
    pub(crate) datasets: Vec<DatasetGrades>,
}

/// Right answers of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DatasetGrades {
    pub(crate) name: String,
    pub(crate) graded: u64,
    pub(crate) right: u64,
}

impl Grades {
    /// Grades the answers in the journals of `datasets` (name, path of `raw_responses.jsonl`).
    pub(crate) fn of<'a>(datasets: impl IntoIterator<Item = (String, &'a Path)>) -> Result<Self, CommandError> {
        let mut grades = Self::default();
        for (name, path) in datasets {
            let mut set = DatasetGrades { name, graded: 0, right: 0 };
            let unreadable =
                |error: anyhow::Error| CommandError::input(error.context(format!("cannot read `{}`", path.display())));
            let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.into()))?;
            for line in text.split_terminator('\n') {
                let response: Response = serde_json::from_str(line).map_err(|error| unreadable(error.into()))?;
                if let Some(right) = is_right(&response) {
                    set.graded += 1;
                    set.right += u64::from(right);
                }
            }
            grades.graded += set.graded;
            grades.right += set.right;
            grades.datasets.push(set);
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of answers are far below 2^53")]
        let share = (grades.graded > 0).then(|| grades.right as f64 / grades.graded as f64);
        Ok(Self { share, ..grades })
    }
}

/// Whether an answer is right; `None` when there is nothing to compare it with.
fn is_right(response: &Response) -> Option<bool> {
    let reference = response.reference.as_ref()?;
    if response.status == Status::Truncated {
        return Some(false);
    }
    if reference.tool_calls.is_empty() {
        return Some(reference.content_str()?.trim() == response.content.trim());
    }
    Some(same_calls(&reference.tool_calls, &response.tool_calls))
}

fn same_calls(wanted: &[ToolCall], made: &[ToolCall]) -> bool {
    wanted.len() == made.len()
        && wanted.iter().zip(made).all(|(wanted, made)| {
            wanted.function.name == made.function.name && wanted.function.arguments == made.function.arguments
        })
}

#[cfg(test)]
mod tests {
    use super::same_calls;
    use eyas_types::ToolCall;
    use serde_json::{Value, json};

    fn calls(value: Value) -> Vec<ToolCall> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn calls_are_equal_by_name_and_arguments_whatever_the_order_of_keys() {
        let wanted = calls(json!([{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]));
        let check = |made: Value, same| assert_eq!(same_calls(&wanted, &calls(made)), same);
        check(json!([{"id": "c1", "function": {"name": "add", "arguments": {"b": 2, "a": 1}}}]), true);
        check(json!([{"function": {"name": "add", "arguments": {"a": 1, "b": "2"}}}]), false);
        check(json!([{"function": {"name": "sub", "arguments": {"a": 1, "b": 2}}}]), false);
        check(json!([]), false);
    }
}
