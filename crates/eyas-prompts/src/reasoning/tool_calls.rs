//! Tool calls that a model writes into its content as JSON between tags (Hermes, Qwen, Kimi).

use eyas_types::{Flag, FunctionCall, ToolCall};
use serde_json::Value;

/// Calls found in a content, and what was wrong with others.
#[derive(Default)]
pub(super) struct Found {
    pub(super) calls: Vec<ToolCall>,
    pub(super) flags: Vec<Flag>,
}

/// Reads every call. `cut`: whether the cap ended the answer, so that an unfinished last call is a cut one.
pub(super) fn parse(content: &str, cut: bool) -> Found {
    let mut found = Found::default();
    if memchr::memmem::find(content.as_bytes(), b"tool_call").is_none() {
        return found;
    }
    for (body, closed) in bodies(content, "<tool_call>", "</tool_call>") {
        // Other dialects put XML between the same tags (Qwen3-Coder, GLM): left to the server's parser.
        if body.trim_start().starts_with('{') {
            found.take(hermes_call(body), closed, cut);
        }
    }
    for (body, closed) in bodies(content, "<|tool_call_begin|>", "<|tool_call_end|>") {
        found.take(kimi_call(body), closed, cut);
    }
    found
}

impl Found {
    fn take(&mut self, call: Option<ToolCall>, closed: bool, cut: bool) {
        match call {
            // Without its closing tag a call may be longer than what parses.
            Some(call) if closed || !cut => self.calls.push(call),
            _ => self.flags.push(if cut && !closed { Flag::TruncatedToolCall } else { Flag::MalformedToolCall }),
        }
    }
}

/// What stands between each pair of tags, and whether the closing tag was there.
fn bodies<'a>(content: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = (&'a str, bool)> {
    content.split(open).skip(1).map(move |rest| match rest.split_once(close) {
        Some((body, _)) => (body, true),
        None => (rest, false),
    })
}

/// `{"name": "f", "arguments": {…}}`.
fn hermes_call(body: &str) -> Option<ToolCall> {
    let value: Value = serde_json::from_str(body.trim()).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = value.get("arguments").or_else(|| value.get("parameters"))?.clone();
    Some(call(None, name, arguments))
}

/// `functions.NAME:IDX<|tool_call_argument_begin|>{…}`; the id is kept byte for byte.
fn kimi_call(body: &str) -> Option<ToolCall> {
    let (id, arguments) = body.split_once("<|tool_call_argument_begin|>")?;
    let id = id.trim();
    let name = id.strip_prefix("functions.").unwrap_or(id);
    let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
    Some(call(Some(id.to_owned()), name.to_owned(), serde_json::from_str(arguments.trim()).ok()?))
}

fn call(id: Option<String>, name: String, arguments: Value) -> ToolCall {
    ToolCall { id, kind: Some("function".to_owned()), function: FunctionCall { name, arguments } }
}
