//! Tool calls and tool schemas: encoded once, whatever the source did.

use super::refusal::{Reason, Refusal};
use crate::source::json;
use crate::source::{BadRow, Repair, Surrogates, kind_of};
use eyas_types::{FunctionCall, ToolCall};
use serde_json::{Map, Value};

/// Reads JSON text that a source keeps in a string; what it mends is noted.
pub(super) fn decode(text: &str, surrogates: Surrogates, repairs: &mut Vec<Repair>) -> Result<Value, BadRow> {
    let parsed = json::parse(text, surrogates)?;
    repairs.extend(parsed.repairs);
    Ok(parsed.value)
}

/// The calls in a turn's `tool_calls`: a list, the JSON text of one, or nothing (`null`, `""`, `"null"`).
pub(super) fn tool_calls(
    value: Value,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Vec<ToolCall>, Refusal> {
    let list = match list_or_text(value, surrogates, repairs) {
        Ok(list) => list,
        Err(problem) => return Err(problem.refuse(Reason::MalformedToolCalls, "`tool_calls`")),
    };
    list.into_iter().map(|call| tool_call(call, surrogates, repairs)).collect()
}

/// The calls in a `function_call` turn or key: one call or a list of calls, as an object or as JSON text.
pub(super) fn function_calls(
    value: Value,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Vec<ToolCall>, Refusal> {
    let value = match value {
        Value::String(text) => decode(&text, surrogates, repairs).map_err(|bad| {
            Refusal::new(Reason::MalformedToolCalls, format!("a function call is not JSON: {}", bad.detail))
        })?,
        other => other,
    };
    let calls = match value {
        Value::Array(calls) => calls,
        other => vec![other],
    };
    if calls.is_empty() {
        return Err(Refusal::new(Reason::MalformedToolCalls, "a function call turn without a call"));
    }
    calls.into_iter().map(|call| tool_call(call, surrogates, repairs)).collect()
}

/// One call: `{"id", "type", "function": {"name", "arguments"}}`, or flat `{"name", "arguments"}`.
fn tool_call(call: Value, surrogates: Surrogates, repairs: &mut Vec<Repair>) -> Result<ToolCall, Refusal> {
    let refuse = |what: String| Err(Refusal::new(Reason::MalformedToolCalls, what));
    let Value::Object(mut outer) = call else { return refuse(format!("a tool call is {}", kind_of(&call))) };
    let id = match outer.shift_remove("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(other) => return refuse(format!("the id of a tool call is {}", kind_of(&other))),
    };
    let kind = match outer.shift_remove("type") {
        None | Some(Value::Null) => None,
        Some(Value::String(kind)) => Some(kind),
        Some(other) => return refuse(format!("the type of a tool call is {}", kind_of(&other))),
    };
    // The place of a call in a stream; the place in the list says the same.
    outer.shift_remove("index");
    let mut function = match outer.shift_remove("function") {
        Some(Value::Object(function)) => {
            note_dropped(&outer, repairs);
            function
        }
        None | Some(Value::Null) => outer,
        // `{"function": "name", "arguments": …}`
        Some(Value::String(name)) => {
            outer.insert("name".to_owned(), Value::String(name));
            outer
        }
        Some(other) => return refuse(format!("the function of a tool call is {}", kind_of(&other))),
    };
    let name = match function.shift_remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return refuse("a tool call does not name its function".to_owned()),
    };
    let arguments = match function.shift_remove("arguments").or_else(|| function.shift_remove("parameters")) {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) => arguments_of_text(text, surrogates, repairs),
        Some(other) => other,
    };
    note_dropped(&function, repairs);
    Ok(ToolCall { id, kind, function: FunctionCall { name, arguments } })
}

/// Arguments that came as text: decoded when the text is an object, else kept as the text they are.
fn arguments_of_text(text: String, surrogates: Surrogates, repairs: &mut Vec<Repair>) -> Value {
    match json::parse(&text, surrogates) {
        Ok(parsed) if parsed.value.is_object() => {
            repairs.extend(parsed.repairs);
            parsed.value
        }
        _ => Value::String(text),
    }
}

fn note_dropped(rest: &Map<String, Value>, repairs: &mut Vec<Repair>) {
    if rest.values().any(|value| !value.is_null()) {
        repairs.push(Repair::ToolCallKeysDropped);
    }
}

/// The schemas in a row's `tools`: a list, the JSON text of one, one schema alone, or nothing (`null`, `""`, `"null"`, `[]`).
pub(super) fn tool_schemas(
    value: Value,
    field: &str,
    surrogates: Surrogates,
    repairs: &mut Vec<Repair>,
) -> Result<Option<Vec<Value>>, Refusal> {
    let value = if value.is_object() { Value::Array(vec![value]) } else { value };
    let list = match list_or_text(value, surrogates, repairs) {
        Ok(list) => list,
        Err(problem) => return Err(problem.refuse(Reason::MalformedTools, &format!("`{field}`"))),
    };
    let mut schemas = Vec::with_capacity(list.len());
    for schema in list {
        let schema = match schema {
            Value::String(text) => decode(&text, surrogates, repairs).map_err(|bad| {
                Refusal::new(
                    Reason::MalformedTools,
                    format!("`{field}` holds a string that is not JSON: {}", bad.detail),
                )
            })?,
            other => other,
        };
        if !schema.is_object() {
            let what = format!("`{field}` holds {}, expected an object per tool", kind_of(&schema));
            return Err(Refusal::new(Reason::MalformedTools, what));
        }
        schemas.push(schema);
    }
    Ok((!schemas.is_empty()).then_some(schemas))
}

/// What a list is instead.
enum NotAList {
    /// Another kind of value.
    Is(&'static str),
    /// Text that is not JSON.
    BadText(BadRow),
}

impl NotAList {
    fn refuse(self, reason: Reason, what: &str) -> Refusal {
        match self {
            Self::Is(kind) => Refusal::new(reason, format!("{what} is {kind}, expected a list or its JSON text")),
            Self::BadText(bad) => Refusal::new(reason, format!("{what} is a string that is not JSON: {}", bad.detail)),
        }
    }
}

fn list_or_text(value: Value, surrogates: Surrogates, repairs: &mut Vec<Repair>) -> Result<Vec<Value>, NotAList> {
    let value = match value {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => decode(&text, surrogates, repairs).map_err(NotAList::BadText)?,
        other => other,
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => Ok(list),
        // The JSON text of one call or one schema.
        object @ Value::Object(_) => Ok(vec![object]),
        other => Err(NotAList::Is(kind_of(&other))),
    }
}
