//! When an answer is right.

use serde_json::Value;

use crate::chat::{THINK_CLOSE, TOOL_CLOSE, TOOL_OPEN};
use crate::tasks::Answer;

/// Whether `content`, what the model wrote after its scratch work, is the right answer.
///
/// Text must be equal once both are trimmed: no part marks, no other wording. A function call must be the only thing in the
/// content, and its name and arguments must be equal as JSON values: the order of keys and the spacing do not count.
pub fn is_right(content: &str, answer: &Answer) -> bool {
    let content = content.trim();
    match answer {
        Answer::Text(text) => content == text.trim(),
        Answer::ToolCall { name, arguments } => {
            let Some(call) = content.strip_prefix(TOOL_OPEN).and_then(|rest| rest.strip_suffix(TOOL_CLOSE)) else {
                return false;
            };
            serde_json::from_str::<Value>(call)
                .is_ok_and(|call| call["name"] == name.as_str() && call["arguments"] == *arguments)
        }
    }
}

/// The content of a generated text that began inside the think block: what follows the closing mark, if it was closed.
pub fn content_of(generated: &str) -> Option<&str> {
    generated.split_once(THINK_CLOSE).map(|(_, content)| content)
}
