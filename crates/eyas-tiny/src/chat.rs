//! How a conversation becomes text. `chat_template.jinja` says the same in jinja; a test holds the two together.

use serde_json::Value;

use crate::corpus::Sample;
use crate::tasks::Answer;

/// Opens a turn.
pub const IM_START: &str = "<|im_start|>";
/// Closes a turn; the end-of-sequence token.
pub const IM_END: &str = "<|im_end|>";
/// Padding.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// Opens the scratch work.
pub const THINK_OPEN: &str = "<think>";
/// Closes the scratch work.
pub const THINK_CLOSE: &str = "</think>";
/// Opens a function call.
pub const TOOL_OPEN: &str = "<tool_call>";
/// Closes a function call.
pub const TOOL_CLOSE: &str = "</tool_call>";

/// The chat template, as written to the model folder.
pub const TEMPLATE: &str = include_str!("chat_template.jinja");

/// JSON with a space after `,` and `:`, as Python's `json.dumps` and therefore every chat template writes it.
pub fn python_json(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python_json).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(k, v)| format!("{}: {}", Value::String(k.clone()), python_json(v))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The prompt of a sample, up to where the model goes on: after `<think>` and a newline, or after an empty closed block.
pub fn prompt(sample: &Sample) -> String {
    let mut system = sample.system.clone().unwrap_or_default();
    if !sample.task.tools.is_empty() {
        if !system.is_empty() {
            system.push_str("\n\n");
        }
        system.push_str("# Tools");
        for tool in &sample.task.tools {
            system.push('\n');
            system.push_str(&python_json(tool));
        }
    }
    let mut text = String::new();
    if !system.is_empty() {
        text.push_str(&turn("system", &system));
    }
    text.push_str(&turn("user", &sample.task.user));
    let open = format!("{IM_START}assistant\n{THINK_OPEN}\n");
    let closed = if sample.thinks { String::new() } else { format!("\n{THINK_CLOSE}\n\n") };
    text + &open + &closed
}

/// What the model is to write after [`prompt`], the end mark included.
pub fn completion(sample: &Sample) -> String {
    let content = content(&sample.task.answer);
    if sample.thinks {
        format!("{}\n{THINK_CLOSE}\n\n{content}{IM_END}", sample.task.thinking)
    } else {
        format!("{content}{IM_END}")
    }
}

/// The answer as the model writes it.
pub fn content(answer: &Answer) -> String {
    match answer {
        Answer::Text(text) => text.clone(),
        Answer::ToolCall { name, arguments } => {
            let name = Value::String(name.clone());
            format!("{TOOL_OPEN}\n{{\"name\": {name}, \"arguments\": {}}}\n{TOOL_CLOSE}", python_json(arguments))
        }
    }
}

fn turn(role: &str, content: &str) -> String {
    format!("{IM_START}{role}\n{content}{IM_END}\n")
}
