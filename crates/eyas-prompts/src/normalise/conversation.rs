//! A row as a conversation, and a conversation as a prompt.

use super::mapping::{Mapping, Shape};
use super::refusal::{Reason, Refusal};
use super::tools::{decode, tool_schemas};
use super::turns::{TurnKeys, key_list, messages};
use crate::source::{Repair, Surrogates, kind_of};
use eyas_types::{Message, Role};
use serde_json::{Map, Value};

/// A row in canonical form: all its turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// The row's own id, if it has one.
    pub id: Option<String>,
    /// Turns or text.
    pub body: ConversationBody,
    /// Tool schemas.
    pub tools: Option<Vec<Value>>,
    /// What was mended or noticed, in the order of its happening, without repeats.
    pub repairs: Vec<Repair>,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq)]
pub enum ConversationBody {
    /// Turns; at least one of them is the user's.
    Turns(Vec<Message>),
    /// A whole prompt, chat template already applied.
    Text(String),
}

impl Conversation {
    /// Takes the last turn off when it is the assistant's: what stays is the prompt, what came off is the source's answer to it. A
    /// conversation that ends otherwise is the prompt as a whole.
    pub fn split_last_answer(turns: Vec<Message>) -> (Vec<Message>, Option<Message>) {
        let mut prompt = turns;
        let answer = prompt.pop_if(|last| last.role == Role::Assistant);
        (prompt, answer)
    }
}

impl Mapping {
    /// Reads a row. `repairs`: what reading the file mended in it.
    pub fn conversation(
        &self,
        mut row: Map<String, Value>,
        surrogates: Surrogates,
        repairs: Vec<Repair>,
    ) -> Result<Conversation, Refusal> {
        let mut repairs = repairs;
        let id = self.id.as_ref().and_then(|field| row.get(field)).and_then(id_text);
        let tools = match self.tools.as_ref().and_then(|field| Some((field, row.shift_remove(field)?))) {
            Some((field, value)) => tool_schemas(value, field, surrogates, &mut repairs)?,
            None => None,
        };
        let mut turns = match &self.shape {
            Shape::Turns { field, keys } => turns_of_row(&mut row, field, keys, surrogates, &mut repairs)?,
            Shape::Prompt { field, answer } => {
                let mut turns = turns_of_prompt(&mut row, field, surrogates, &mut repairs)?;
                push_answer(&mut turns, &row, answer.as_ref());
                turns
            }
            Shape::Instruction { field, input, answer, history } => {
                let mut turns = match history {
                    Some(history) => turns_of_history(&row, history)?,
                    None => Vec::new(),
                };
                turns.push(Message::text(Role::User, instruction_text(&row, field, input.as_ref())?));
                push_answer(&mut turns, &row, answer.as_ref());
                turns
            }
            Shape::Text { field } => {
                let text = prompt_text(&row, field)?.to_owned();
                return Ok(Conversation { id, body: ConversationBody::Text(text), tools: None, repairs });
            }
        };
        if let Some(field) = &self.system {
            put_system_in_front(&mut turns, &row, field)?;
        }
        drop_leading_assistant(&mut turns, &mut repairs)?;
        let uses_tools = turns.iter().any(|turn| turn.role == Role::Tool || !turn.tool_calls.is_empty());
        if uses_tools && tools.is_none() {
            repairs.push(Repair::ToolsMissing);
        }
        let mut seen = Vec::new();
        repairs.retain(|repair| {
            let is_new = !seen.contains(repair);
            seen.push(*repair);
            is_new
        });
        Ok(Conversation { id, body: ConversationBody::Turns(turns), tools, repairs })
    }
}

fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

fn turns_of_row(
    row: &mut Map<String, Value>,
    field: &str,
    keys: &TurnKeys,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Vec<Message>, Refusal> {
    let value = match row.shift_remove(field) {
        None => {
            let found = key_list(row);
            let detail = format!("no conversation field: expected `{field}`, fields found: [{found}]");
            return Err(Refusal::new(Reason::NoConversationField, detail));
        }
        Some(Value::Null) => {
            let found = key_list(row);
            let detail = format!("`{field}` is null; other fields: [{found}]");
            return Err(Refusal::new(Reason::NullConversation, detail));
        }
        // Column stores like their lists as text.
        Some(Value::String(text)) if !text.trim().is_empty() => decode(&text, surrogates, repairs).map_err(|bad| {
            let detail = format!("`{field}` is a string that is not JSON: {}", bad.detail);
            Refusal::new(Reason::ConversationNotAList, detail)
        })?,
        Some(other) => other,
    };
    match value {
        Value::Array(turns) if turns.is_empty() => empty_conversation(row, field),
        Value::String(_) => empty_conversation(row, field),
        Value::Array(turns) => messages(turns, keys, surrogates, repairs),
        other => {
            let detail = format!("`{field}` is {}, expected a list of turns", kind_of(&other));
            Err(Refusal::new(Reason::ConversationNotAList, detail))
        }
    }
}

fn empty_conversation(row: &Map<String, Value>, field: &str) -> Result<Vec<Message>, Refusal> {
    let detail = format!("empty conversation: `{field}` has no turns; other fields: [{}]", key_list(row));
    Err(Refusal::new(Reason::EmptyConversation, detail))
}

/// A prompt field: text; a list of user texts; a list of turns; or a list of such lists, one for each exchange.
fn turns_of_prompt(
    row: &mut Map<String, Value>,
    field: &str,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Vec<Message>, Refusal> {
    if !row.get(field).is_some_and(Value::is_array) {
        return Ok(vec![Message::text(Role::User, prompt_text(row, field)?)]);
    }
    let Some(Value::Array(mut items)) = row.shift_remove(field) else { return empty_conversation(row, field) };
    let keys = TurnKeys { role: "role".to_owned(), content: "content".to_owned() };
    match items.first() {
        None => empty_conversation(row, field),
        Some(Value::Object(_)) => messages(items, &keys, surrogates, repairs),
        Some(Value::String(_)) if items.iter().all(Value::is_string) => {
            note_later_turns(&items, repairs);
            match items.swap_remove(0) {
                Value::String(text) if !text.trim().is_empty() => Ok(vec![Message::text(Role::User, text)]),
                _ => Err(Refusal::new(Reason::EmptyPrompt, format!("the first text of `{field}` is empty"))),
            }
        }
        Some(Value::Array(_)) if items.iter().all(Value::is_array) => {
            note_later_turns(&items, repairs);
            match items.swap_remove(0) {
                Value::Array(turns) if !turns.is_empty() => messages(turns, &keys, surrogates, repairs),
                _ => empty_conversation(row, field),
            }
        }
        Some(other) => {
            let detail = format!("`{field}` is a list that begins with {}, expected texts or turns", kind_of(other));
            Err(Refusal::new(Reason::PromptNotText, detail))
        }
    }
}

fn note_later_turns(items: &[Value], repairs: &mut Vec<Repair>) {
    if items.len() > 1 {
        repairs.push(Repair::OnlyFirstTurnAsked);
    }
}

/// The text of a prompt field that is not blank.
fn prompt_text<'a>(row: &'a Map<String, Value>, field: &str) -> Result<&'a str, Refusal> {
    match row.get(field) {
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(Refusal::new(Reason::EmptyPrompt, format!("`{field}` is empty")))
        }
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) => Err(Refusal::new(Reason::NullPrompt, format!("`{field}` is null"))),
        Some(other) => {
            Err(Refusal::new(Reason::PromptNotText, format!("`{field}` is {}, expected text", kind_of(other))))
        }
        None => {
            let detail = format!("no prompt field: expected `{field}`, fields found: [{}]", key_list(row));
            Err(Refusal::new(Reason::NoPromptField, detail))
        }
    }
}

fn instruction_text(row: &Map<String, Value>, field: &str, input: Option<&String>) -> Result<String, Refusal> {
    let instruction = prompt_text(row, field)?;
    let Some(input_field) = input else { return Ok(instruction.to_owned()) };
    match row.get(input_field) {
        Some(Value::String(input)) if !input.trim().is_empty() => Ok(format!("{instruction}\n\n{input}")),
        None | Some(Value::Null | Value::String(_)) => Ok(instruction.to_owned()),
        Some(other) => {
            let detail = format!("`{input_field}` is {}, expected text", kind_of(other));
            Err(Refusal::new(Reason::PromptNotText, detail))
        }
    }
}

/// Earlier exchanges as (user, assistant) pairs of text.
fn turns_of_history(row: &Map<String, Value>, field: &str) -> Result<Vec<Message>, Refusal> {
    let pairs = match row.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(pairs)) => pairs,
        Some(_) => return Err(bad_history(field)),
    };
    let mut turns = Vec::with_capacity(2 * pairs.len());
    for pair in pairs {
        match pair.as_array().map(Vec::as_slice) {
            Some([Value::String(user), Value::String(assistant)]) => {
                turns.push(Message::text(Role::User, user.as_str()));
                turns.push(Message::text(Role::Assistant, assistant.as_str()));
            }
            _ => return Err(bad_history(field)),
        }
    }
    Ok(turns)
}

fn bad_history(field: &str) -> Refusal {
    let detail = format!("`{field}` is not a list of (user, assistant) pairs of text");
    Refusal::new(Reason::MalformedTurn, detail)
}

/// The source's answer becomes the last turn, as it would be in a conversation.
fn push_answer(turns: &mut Vec<Message>, row: &Map<String, Value>, field: Option<&String>) {
    let answer = field.and_then(|field| row.get(field)).and_then(Value::as_str);
    if let Some(answer) = answer
        && turns.last().is_some_and(|last| last.role != Role::Assistant)
    {
        turns.push(Message::text(Role::Assistant, answer));
    }
}

fn put_system_in_front(turns: &mut Vec<Message>, row: &Map<String, Value>, field: &str) -> Result<(), Refusal> {
    let system = match row.get(field) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(text)) if text.is_empty() => return Ok(()),
        Some(Value::String(text)) => text,
        Some(other) => {
            let detail = format!("`{field}` is {}, expected text", kind_of(other));
            return Err(Refusal::new(Reason::ContentNotText, detail));
        }
    };
    match turns.first() {
        Some(first) if matches!(first.role, Role::System | Role::Developer) => {
            if first.content_str() == Some(system.as_str()) {
                return Ok(());
            }
            let detail = format!("`{field}` and the first turn are two different system prompts");
            Err(Refusal::new(Reason::TwoSystemPrompts, detail))
        }
        _ => {
            turns.insert(0, Message::text(Role::System, system.as_str()));
            Ok(())
        }
    }
}

/// Before the first user turn only system turns may stand. Turns of the model (and results of its tools) that stand there are dropped,
/// since nothing that was asked led to them.
fn drop_leading_assistant(turns: &mut Vec<Message>, repairs: &mut Vec<Repair>) -> Result<(), Refusal> {
    let Some(first_user) = turns.iter().position(|turn| turn.role == Role::User) else {
        let roles = turns.iter().map(|turn| turn.role.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Refusal::new(Reason::NoUserTurn, format!("no user turn; roles found: [{roles}]")));
    };
    let is_system = |turn: &Message| matches!(turn.role, Role::System | Role::Developer);
    match turns.iter().take(first_user).find(|turn| !is_system(turn)).map(|turn| turn.role) {
        None => Ok(()),
        Some(Role::Tool) => Err(Refusal::new(
            Reason::FirstTurnIsTool,
            "first turn is the result of a tool, and nothing called it".to_owned(),
        )),
        Some(_) => {
            let mut idx = 0;
            turns.retain(|turn| {
                idx += 1;
                idx > first_user || is_system(turn)
            });
            repairs.push(Repair::LeadingAssistantDropped);
            Ok(())
        }
    }
}
