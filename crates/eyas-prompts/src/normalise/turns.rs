//! One turn of a source as a message.

use super::refusal::{Reason, Refusal};
use super::roles::{Speaker, known_role_words, speaker};
use super::tools::{function_calls, tool_calls};
use crate::source::{Repair, Surrogates, kind_of};
use eyas_types::{Message, Role};
use serde_json::{Map, Value};

/// The keys a turn is read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnKeys {
    /// Who speaks.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// Names that [`Message`] has fields for; they cannot be kept aside as unknown keys.
const FIELDS: [&str; 6] = ["role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"];

/// Reads a list of turns, in order.
pub(super) fn messages(
    turns: Vec<Value>,
    keys: &TurnKeys,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Vec<Message>, Refusal> {
    let n_turns = turns.len();
    let mut messages = Vec::with_capacity(n_turns);
    for (idx, turn) in turns.into_iter().enumerate() {
        let number = idx + 1;
        let message = message(turn, number, keys, surrogates, repairs)?;
        let may_be_silent = message.role == Role::Assistant && (!message.tool_calls.is_empty() || number == n_turns);
        if message.content.is_none() && !may_be_silent {
            let detail = format!("turn {number} ({}) has no `{}`", message.role.as_str(), keys.content);
            return Err(Refusal::new(Reason::NoContent, detail));
        }
        messages.push(message);
    }
    Ok(messages)
}

fn message(
    turn: Value,
    number: usize,
    keys: &TurnKeys,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Message, Refusal> {
    let Value::Object(mut turn) = turn else {
        let detail = format!("turn {number} is {}, expected an object", kind_of(&turn));
        return Err(Refusal::new(Reason::TurnNotAnObject, detail));
    };
    let speaker = take_speaker(&mut turn, number, keys)?;
    let role = speaker.role();
    let said = turn.shift_remove(&keys.content).filter(|value| !value.is_null());

    let mut calls = match turn.shift_remove("tool_calls") {
        Some(value) => tool_calls(value, surrogates, repairs).map_err(|refusal| in_turn(refusal, number))?,
        None => Vec::new(),
    };
    let mut content = None;
    match (speaker, said) {
        (Speaker::FunctionCall, Some(said)) => {
            calls.extend(function_calls(said, surrogates, repairs).map_err(|refusal| in_turn(refusal, number))?);
        }
        (Speaker::FunctionCall, None) => {
            return Err(in_turn(Refusal::new(Reason::MalformedToolCalls, "a function call without content"), number));
        }
        (Speaker::Turn(_), Some(said)) => content = Some(checked_content(said, number, keys)?),
        (Speaker::Turn(_), None) => {}
    }
    // The older OpenAI form of a single call.
    if turn.get("function_call").is_some_and(Value::is_null) {
        turn.shift_remove("function_call");
    }
    if calls.is_empty()
        && role == Role::Assistant
        && let Some(call) = turn.shift_remove("function_call")
    {
        calls = function_calls(call, surrogates, repairs).map_err(|refusal| in_turn(refusal, number))?;
    }
    if role != Role::Assistant && !calls.is_empty() {
        let detail = format!("turn {number} ({}) has tool calls; only the assistant can call", role.as_str());
        return Err(Refusal::new(Reason::MalformedTurn, detail));
    }
    let mut take_text = |key: &str| take_text(&mut turn, key, number);
    let tool_call_id = take_text("tool_call_id")?;
    let name = take_text("name")?;
    let reasoning_content = take_text("reasoning_content")?;
    let reasoning_content = reasoning_content.or_else(|| take_reasoning(&mut turn, role));
    if let Some(key) = FIELDS.iter().find(|key| turn.contains_key(**key)) {
        let detail = format!("turn {number} has `{key}` beside `{}` and `{}`", keys.role, keys.content);
        return Err(Refusal::new(Reason::MalformedTurn, detail));
    }
    Ok(Message { role, content, reasoning_content, tool_calls: calls, tool_call_id, name, extra: turn })
}

fn take_speaker(turn: &mut Map<String, Value>, number: usize, keys: &TurnKeys) -> Result<Speaker, Refusal> {
    let word = match turn.shift_remove(&keys.role) {
        Some(Value::String(word)) => word,
        Some(other) => {
            let detail = format!("`{}` of turn {number} is {}, expected a role", keys.role, kind_of(&other));
            return Err(Refusal::new(Reason::NoRole, detail));
        }
        None => {
            let found = key_list(turn);
            let detail = format!("turn {number} has no `{}`; its keys are: [{found}]", keys.role);
            return Err(Refusal::new(Reason::NoRole, detail));
        }
    };
    speaker(&word).ok_or_else(|| {
        let known = known_role_words().collect::<Vec<_>>().join(", ");
        let shown: String = word.chars().take(60).collect();
        Refusal::new(Reason::UnknownRole, format!("unknown role `{shown}` in turn {number}; known roles: {known}"))
    })
}

/// Text, or a list of typed parts (objects or strings).
fn checked_content(said: Value, number: usize, keys: &TurnKeys) -> Result<Value, Refusal> {
    let found = match &said {
        Value::String(_) => return Ok(said),
        Value::Array(parts) if !parts.is_empty() => {
            match parts.iter().find(|part| !part.is_object() && !part.is_string()) {
                None => return Ok(said),
                Some(part) => format!("a list with {} in it", kind_of(part)),
            }
        }
        Value::Array(_) => "an empty list".to_owned(),
        other => kind_of(other).to_owned(),
    };
    let detail = format!("`{}` of turn {number} is {found}, expected text or a list of parts", keys.content);
    Err(Refusal::new(Reason::ContentNotText, detail))
}

fn take_text(turn: &mut Map<String, Value>, key: &str, number: usize) -> Result<Option<String>, Refusal> {
    match turn.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let detail = format!("`{key}` of turn {number} is {}, expected text", kind_of(&other));
            Err(Refusal::new(Reason::MalformedTurn, detail))
        }
    }
}

/// The newer servers' name for reasoning. Only text is taken; anything else stays where it is.
fn take_reasoning(turn: &mut Map<String, Value>, role: Role) -> Option<String> {
    if role != Role::Assistant {
        return None;
    }
    match turn.get("reasoning") {
        Some(Value::Null) => {
            turn.shift_remove("reasoning");
            None
        }
        Some(Value::String(_)) => match turn.shift_remove("reasoning") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn in_turn(refusal: Refusal, number: usize) -> Refusal {
    Refusal { detail: format!("turn {number}: {}", refusal.detail), ..refusal }
}

/// The keys of an object as `a, b, c`, for messages.
pub(super) fn key_list(map: &Map<String, Value>) -> String {
    let short = |key: &String| key.chars().take(60).collect::<String>();
    map.keys().map(short).take(30).collect::<Vec<_>>().join(", ")
}
