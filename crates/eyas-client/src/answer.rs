//! What came back, and the proof that it is whole.

use crate::ask::Ask;
use crate::endpoint::{Endpoint, Protocol};
use crate::error::RequestError;
use eyas_types::{FinishReason, FunctionCall, Matched, Timing, ToolCall, Usage};
use serde::Deserialize;
use serde_json::Value;

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// `/generate`: the whole text, markers included. Chat: the content field, empty when it is null.
    pub text: String,
    /// Reasoning that the server put into a field of its own (`reasoning` or `reasoning_content`).
    pub reasoning_text: Option<String>,
    /// Calls that the server parsed.
    pub tool_calls: Vec<ToolCall>,
    /// The ids, exactly as returned, the stop token included. Never `Some` of an empty list.
    pub output_ids: Option<Vec<u32>>,
    /// Why it ended: always a success ([`FinishReason::is_success`]).
    pub finish: FinishReason,
    /// The server's counts; `completion_tokens` is the number of ids where the server gives no count.
    pub usage: Usage,
    /// When.
    pub timing: Timing,
}

/// Reads a body that came with status 200. `timing` is left for the caller to fill.
pub(crate) fn parse(endpoint: &Endpoint, ask: &Ask<'_>, body: &[u8]) -> Result<Answer, RequestError> {
    match endpoint.protocol() {
        Protocol::SglangGenerate => generate(read_json(body)?, ask, endpoint.allow_text),
        Protocol::OpenaiChat => chat(read_json(body)?),
    }
}

fn read_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, RequestError> {
    serde_json::from_slice(body).map_err(|error| match std::str::from_utf8(body) {
        Err(utf8) => RequestError::BadUtf8 { valid_up_to: utf8.valid_up_to() },
        Ok(_) => RequestError::BadJson { message: error.to_string() },
    })
}

// ---------------------------------------------------------------------------------------------- /generate

#[derive(Deserialize)]
struct GenerateBody {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    output_ids: Option<Vec<u32>>,
    #[serde(default)]
    meta_info: Option<MetaInfo>,
    #[serde(default)]
    error: Option<Value>,
}

/// Every field is optional: versions differ in what they give.
#[derive(Deserialize, Default)]
struct MetaInfo {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    finish_reason: Option<FinishWire>,
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FinishWire {
    Object {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        matched: Option<Matched>,
        #[serde(default)]
        length: Option<u64>,
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        status_code: Option<u16>,
    },
    Word(String),
}

fn generate(body: GenerateBody, ask: &Ask<'_>, allow_text: bool) -> Result<Answer, RequestError> {
    if let Some(error) = body.error
        && body.output_ids.is_none()
    {
        return Err(RequestError::ErrorBody { message: shorten(&error_words(&error)) });
    }
    let meta = body.meta_info.unwrap_or_default();
    if let Some(got) = meta.id
        && got != ask.rid
    {
        return Err(RequestError::RidMismatch { sent: ask.rid.to_owned(), got });
    }
    let finish = finish_of(meta.finish_reason)?;
    let sent = ask.prompt_ids.len() as u64;
    if let Some(counted) = meta.prompt_tokens
        && counted != sent
    {
        return Err(RequestError::PromptTokens { sent, counted });
    }
    match &body.output_ids {
        None if !allow_text => return Err(RequestError::NoIds),
        None if body.text.is_none() => return Err(RequestError::NoIds),
        Some(ids) if ids.is_empty() => return Err(RequestError::NoTokens),
        _ => {}
    }
    let n_ids = body.output_ids.as_ref().map_or(0, |ids| ids.len() as u64);
    let usage = Usage {
        prompt_tokens: sent,
        completion_tokens: meta.completion_tokens.unwrap_or(n_ids),
        cached_tokens: meta.cached_tokens,
        reasoning_tokens: None,
    };
    Ok(Answer {
        text: body.text.unwrap_or_default(),
        reasoning_text: None,
        tool_calls: Vec::new(),
        output_ids: body.output_ids,
        finish,
        usage,
        timing: Timing::default(),
    })
}

fn finish_of(wire: Option<FinishWire>) -> Result<FinishReason, RequestError> {
    let (kind, matched, length, message, status_code) = match wire {
        None => return Err(RequestError::UnknownFinish { reason: "null".to_owned() }),
        Some(FinishWire::Word(kind)) => (kind, None, None, None, None),
        Some(FinishWire::Object { kind, matched, length, message, status_code }) => {
            (kind, matched, length, message, status_code)
        }
    };
    match kind.as_str() {
        "stop" if matches!(&matched, Some(Matched::Text(text)) if text == "NaN happened") => {
            Err(RequestError::NanHappened)
        }
        "stop" => Ok(FinishReason::Stop { matched }),
        "length" => Ok(FinishReason::Length { length }),
        "tool_calls" => Ok(FinishReason::ToolCalls),
        "abort" => Err(RequestError::Abort { message: shorten(&message.unwrap_or_default()), status_code }),
        _ => Err(RequestError::UnknownFinish { reason: kind }),
    }
}

// ---------------------------------------------------------------------------------------------- chat

#[derive(Deserialize)]
struct ChatBody {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<ChatUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChatMessage,
    #[serde(default)]
    finish_reason: Option<String>,
    /// SGLang.
    #[serde(default)]
    matched_stop: Option<Matched>,
    /// vLLM.
    #[serde(default)]
    stop_reason: Option<Matched>,
    /// vLLM.
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    /// SGLang.
    #[serde(default)]
    response_token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct ChatMessage {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ChatToolCall>>,
}

#[derive(Deserialize)]
struct ChatToolCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    function: ChatFunction,
}

#[derive(Deserialize)]
struct ChatFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize, Default)]
struct ChatUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    reasoning_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens_details: Option<Details>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize, Default)]
struct Details {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
    #[serde(default)]
    cached_tokens: Option<u64>,
}

fn chat(body: ChatBody) -> Result<Answer, RequestError> {
    let Some(choice) = body.choices.into_iter().next() else {
        return Err(match body.error {
            Some(error) => RequestError::ErrorBody { message: shorten(&error_words(&error)) },
            None => RequestError::BadJson { message: "no choices".to_owned() },
        });
    };
    let finish = match choice.finish_reason.as_deref() {
        Some("stop") => FinishReason::Stop { matched: choice.matched_stop.or(choice.stop_reason) },
        Some("length") => FinishReason::Length { length: None },
        Some("tool_calls") => FinishReason::ToolCalls,
        Some("abort") => return Err(RequestError::Abort { message: String::new(), status_code: None }),
        other => return Err(RequestError::UnknownFinish { reason: other.unwrap_or("null").to_owned() }),
    };
    if matches!(&finish, FinishReason::Stop { matched: Some(Matched::Text(text)) } if text == "NaN happened") {
        return Err(RequestError::NanHappened);
    }
    let output_ids = choice.token_ids.or(choice.response_token_ids).filter(|ids| !ids.is_empty());
    let usage = body.usage.unwrap_or_default();
    let n_ids = output_ids.as_ref().map_or(0, |ids| ids.len() as u64);
    let completion_tokens = usage.completion_tokens.unwrap_or(n_ids);
    let message = choice.message;
    let text = message.content.unwrap_or_default();
    // Servers have used either name, and some send both with the same text: one is taken, the newer name first.
    let reasoning_text =
        [message.reasoning, message.reasoning_content].into_iter().flatten().find(|text| !text.is_empty());
    let tool_calls: Vec<ToolCall> = message.tool_calls.unwrap_or_default().into_iter().map(tool_call).collect();
    if completion_tokens == 0 && text.is_empty() && reasoning_text.is_none() && tool_calls.is_empty() {
        return Err(RequestError::NoTokens);
    }
    let usage = Usage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens,
        cached_tokens: usage.prompt_tokens_details.and_then(|details| details.cached_tokens),
        reasoning_tokens: usage
            .completion_tokens_details
            .and_then(|details| details.reasoning_tokens)
            .or(usage.reasoning_tokens),
    };
    Ok(Answer { text, reasoning_text, tool_calls, output_ids, finish, usage, timing: Timing::default() })
}

fn tool_call(call: ChatToolCall) -> ToolCall {
    let arguments = match call.function.arguments {
        // Arguments come as a JSON string; what does not parse to an object stays the string it is.
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => Value::String(text),
        },
        other => other,
    };
    ToolCall { id: call.id, kind: call.kind, function: FunctionCall { name: call.function.name, arguments } }
}

// ---------------------------------------------------------------------------------------------- error bodies

/// The server's words in an error body: `{"error":{"message":…}}`, `{"error":"…"}`, `{"message":…}`, or the text itself.
pub(crate) fn error_message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(object)) => match (object.get("error"), object.get("message").and_then(Value::as_str)) {
            (Some(error), _) if !error.is_null() => error_words(error),
            (_, Some(message)) => message.to_owned(),
            _ => text.into_owned(),
        },
        _ => text.into_owned(),
    };
    shorten(&words)
}

fn error_words(error: &Value) -> String {
    match (error, error.get("message").and_then(Value::as_str)) {
        (_, Some(message)) => message.to_owned(),
        (Value::String(text), None) => text.clone(),
        (other, None) => other.to_string(),
    }
}

/// Long error pages are cut: they go into records and messages.
fn shorten(text: &str) -> String {
    const MAX_BYTES: usize = 600;
    let text = text.trim();
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
