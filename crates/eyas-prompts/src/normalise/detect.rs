//! Which shape a data set has, found from a sample of its rows.

use super::mapping::{Mapping, SchemaName, SchemaOptions, Shape};
use super::roles::speaker;
use super::turns::TurnKeys;
use eyas_types::Role;
use serde_json::{Map, Value};
use std::collections::HashSet;

type RowMap = Map<String, Value>;

/// Fields that hold a list of turns, the likeliest first.
const CONVERSATION_FIELDS: [&str; 6] = ["messages", "conversations", "conversation", "dialogue", "dialog", "chat"];
/// Fields that hold a prompt, the likeliest first.
const PROMPT_FIELDS: [&str; 6] = ["prompt", "question", "query", "problem", "turns", "input"];
const INSTRUCTION_FIELD: &str = "instruction";
const INPUT_FIELD: &str = "input";
const HISTORY_FIELD: &str = "history";
const ANSWER_FIELDS: [&str; 6] = ["answer", "response", "completion", "output", "solution", "canonical_solution"];
const SYSTEM_FIELDS: [&str; 2] = ["system", "system_prompt"];
const TOOLS_FIELDS: [&str; 3] = ["tools", "functions", "function"];
const ID_FIELDS: [&str; 11] = [
    "id",
    "sample_id",
    "uuid",
    "conversation_id",
    "conv_id",
    "custom_id",
    "question_id",
    "prompt_id",
    "task_id",
    "problem_id",
    "qid",
];
const ROLE_KEYS: [&str; 4] = ["role", "from", "speaker", "sender"];
const CONTENT_KEYS: [&str; 4] = ["content", "value", "text", "message"];

/// No field of the rows holds a conversation or a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no conversation or prompt in the first {n_rows} rows; fields found: {}; fields expected: {}",
    quoted(found),
    quoted(expected)
)]
pub struct NoSchema {
    /// Rows looked at.
    pub n_rows: usize,
    /// Fields of those rows.
    pub found: Vec<String>,
    /// Fields that would have been understood, or the one that was asked for.
    pub expected: Vec<String>,
}

fn quoted(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Mapping {
    /// Settles how rows are read, from what is said and from a sample of good rows (some hundred are enough; none is an error).
    pub fn detect(sample: &[RowMap], options: &SchemaOptions) -> Result<Self, NoSchema> {
        let sample = Sample { rows: sample };
        let shape = match options.schema {
            Some(schema) => named_shape(&sample, schema, options)?,
            None => found_shape(&sample, options)?,
        };
        let tools = first_used(&sample, &TOOLS_FIELDS, is_tools);
        let system = match &shape {
            Shape::Text { .. } => None,
            _ => first_used(&sample, &SYSTEM_FIELDS, Value::is_string),
        };
        let id = options.id_field.clone().or_else(|| most_used(&sample, &ID_FIELDS, is_id));
        let roles = match &shape {
            Shape::Turns { field, keys } => seen_roles(&sample, field, keys),
            _ => Vec::new(),
        };
        let mut mapping = Self { shape, system, tools, id, roles, unused: Vec::new() };
        mapping.unused = mapping.unused_fields(&sample);
        Ok(mapping)
    }

    fn unused_fields(&self, sample: &Sample<'_>) -> Vec<String> {
        let mut used: Vec<&String> = [&self.system, &self.tools, &self.id].into_iter().flatten().collect();
        match &self.shape {
            Shape::Turns { field, .. } | Shape::Text { field } => used.push(field),
            Shape::Prompt { field, answer } => used.extend([Some(field), answer.as_ref()].into_iter().flatten()),
            Shape::Instruction { field, input, answer, history } => {
                used.extend([Some(field), input.as_ref(), answer.as_ref(), history.as_ref()].into_iter().flatten());
            }
        }
        sample.fields().into_iter().filter(|field| !used.contains(&field)).collect()
    }
}

/// Rows that were read without fault.
struct Sample<'a> {
    rows: &'a [RowMap],
}

impl Sample<'_> {
    fn count(&self, field: &str, fits: impl Fn(&Value) -> bool) -> usize {
        self.rows.iter().filter(|row| row.get(field).is_some_and(&fits)).count()
    }

    fn has(&self, field: &str) -> bool {
        self.count(field, |_| true) > 0
    }

    /// All fields, in the order in which they come up.
    fn fields(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        self.rows.iter().flat_map(Map::keys).filter(|key| seen.insert(key.as_str())).cloned().collect()
    }

    fn no_schema(&self, expected: Vec<String>) -> NoSchema {
        NoSchema { n_rows: self.rows.len(), found: self.fields(), expected }
    }
}

/// The field that fits most rows; of equals the first. `None` when none fits any.
fn most_used(sample: &Sample<'_>, fields: &[&str], fits: impl Fn(&Value) -> bool) -> Option<String> {
    let mut best = (0, None);
    for field in fields {
        let n = sample.count(field, &fits);
        if n > best.0 {
            best = (n, Some((*field).to_owned()));
        }
    }
    best.1
}

/// The first field that fits any row.
fn first_used(sample: &Sample<'_>, fields: &[&str], fits: impl Fn(&Value) -> bool) -> Option<String> {
    fields.iter().find(|field| sample.count(field, &fits) > 0).map(|field| (*field).to_owned())
}

fn first_present(sample: &Sample<'_>, fields: &[&str]) -> Option<String> {
    fields.iter().find(|field| sample.has(field)).map(|field| (*field).to_owned())
}

/// The shape that was asked for; its field must be there.
fn named_shape(sample: &Sample<'_>, schema: SchemaName, options: &SchemaOptions) -> Result<Shape, NoSchema> {
    let (candidates, default_keys): (&[&str], _) = match schema {
        SchemaName::Messages => (&CONVERSATION_FIELDS, ("role", "content")),
        SchemaName::Conversations => (&CONVERSATION_FIELDS, ("from", "value")),
        SchemaName::Prompt => (&PROMPT_FIELDS, ("", "")),
        SchemaName::Instruction => (&[INSTRUCTION_FIELD], ("", "")),
        SchemaName::Text => (&["text"], ("", "")),
    };
    let own_name = [schema.as_str()];
    let field = match &options.field {
        Some(field) => sample.has(field).then(|| field.clone()),
        None => first_present(sample, &own_name)
            .or_else(|| most_used(sample, candidates, is_turn_list))
            .or_else(|| first_present(sample, candidates)),
    };
    let Some(field) = field else {
        let expected = match &options.field {
            Some(field) => vec![field.clone()],
            None => candidates.iter().map(|field| (*field).to_owned()).collect(),
        };
        return Err(sample.no_schema(expected));
    };
    Ok(match schema {
        SchemaName::Messages | SchemaName::Conversations => {
            let keys = turn_keys(sample, &field, default_keys, options);
            Shape::Turns { field, keys }
        }
        SchemaName::Prompt => prompt_shape(sample, field),
        SchemaName::Instruction => instruction_shape(sample, field),
        SchemaName::Text => Shape::Text { field },
    })
}

/// The shape that fits the rows.
fn found_shape(sample: &Sample<'_>, options: &SchemaOptions) -> Result<Shape, NoSchema> {
    let turns = |field: String| {
        let defaults = if field == "conversations" { ("from", "value") } else { ("role", "content") };
        let keys = turn_keys(sample, &field, defaults, options);
        Shape::Turns { field, keys }
    };
    if let Some(field) = &options.field {
        if sample.count(field, is_turn_list) > 0 {
            return Ok(turns(field.clone()));
        }
        if sample.has(field) {
            return Ok(prompt_shape(sample, field.clone()));
        }
        return Err(sample.no_schema(vec![field.clone()]));
    }
    if let Some(field) = most_used(sample, &CONVERSATION_FIELDS, is_turn_list) {
        return Ok(turns(field));
    }
    if sample.count(INSTRUCTION_FIELD, Value::is_string) > 0 {
        return Ok(instruction_shape(sample, INSTRUCTION_FIELD.to_owned()));
    }
    if let Some(field) = first_used(sample, &PROMPT_FIELDS, is_prompt) {
        return Ok(prompt_shape(sample, field));
    }
    // The field is there, and empty or wrong in every row: each row says so by itself.
    if let Some(field) = first_present(sample, &CONVERSATION_FIELDS) {
        return Ok(turns(field));
    }
    let mut expected: Vec<String> = CONVERSATION_FIELDS.iter().map(|field| (*field).to_owned()).collect();
    expected.push(INSTRUCTION_FIELD.to_owned());
    expected.extend(PROMPT_FIELDS.iter().map(|field| (*field).to_owned()));
    Err(sample.no_schema(expected))
}

fn prompt_shape(sample: &Sample<'_>, field: String) -> Shape {
    let answer = answer_field(sample, &field);
    Shape::Prompt { field, answer }
}

fn instruction_shape(sample: &Sample<'_>, field: String) -> Shape {
    let input = first_used(sample, &[INPUT_FIELD], Value::is_string);
    let history = first_used(sample, &[HISTORY_FIELD], Value::is_array);
    let answer = answer_field(sample, &field);
    Shape::Instruction { field, input, answer, history }
}

fn answer_field(sample: &Sample<'_>, prompt_field: &str) -> Option<String> {
    first_used(sample, &ANSWER_FIELDS, Value::is_string).filter(|field| field != prompt_field)
}

fn turn_keys(sample: &Sample<'_>, field: &str, defaults: (&str, &str), options: &SchemaOptions) -> TurnKeys {
    let turns = || sample.rows.iter().filter_map(|row| row.get(field)).flat_map(turn_objects);
    let used = |candidates: &[&str]| {
        let mut best = (0, None);
        for key in candidates {
            let n = turns().filter(|turn| turn.get(*key).is_some_and(|value| !value.is_null())).count();
            if n > best.0 {
                best = (n, Some((*key).to_owned()));
            }
        }
        best.1
    };
    TurnKeys {
        role: options.role_key.clone().or_else(|| used(&ROLE_KEYS)).unwrap_or_else(|| defaults.0.to_owned()),
        content: options.content_key.clone().or_else(|| used(&CONTENT_KEYS)).unwrap_or_else(|| defaults.1.to_owned()),
    }
}

fn seen_roles(sample: &Sample<'_>, field: &str, keys: &TurnKeys) -> Vec<(String, Role)> {
    let mut seen: Vec<(String, Role)> = Vec::new();
    for turn in sample.rows.iter().filter_map(|row| row.get(field)).flat_map(turn_objects) {
        let Some(word) = turn.get(&keys.role).and_then(Value::as_str) else { continue };
        let Some(speaker) = speaker(word) else { continue };
        if !seen.iter().any(|(known, _)| known == word) {
            seen.push((word.to_owned(), speaker.role()));
        }
    }
    seen
}

/// The turns of a list, also when it comes as JSON text.
fn turn_objects(value: &Value) -> Vec<RowMap> {
    let list = match value {
        Value::Array(list) => list.clone(),
        Value::String(text) if text.trim_start().starts_with('[') => serde_json::from_str(text).unwrap_or_default(),
        _ => Vec::new(),
    };
    list.into_iter().filter_map(|turn| if let Value::Object(turn) = turn { Some(turn) } else { None }).collect()
}

fn is_turn_list(value: &Value) -> bool {
    !turn_objects(value).is_empty()
}

fn is_prompt(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(items) => {
            !items.is_empty() && items.iter().all(|item| item.is_string() || is_turn_list(item)) || is_turn_list(value)
        }
        _ => false,
    }
}

/// Objects, as a list or as JSON text. A list of plain names is something else.
fn is_tools(value: &Value) -> bool {
    let is_object_text = |text: &str| text.trim_start().starts_with('{');
    match value {
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.as_str().is_some_and(is_object_text)),
        Value::String(text) => is_object_text(text) || text.trim_start().strip_prefix('[').is_some_and(is_object_text),
        _ => false,
    }
}

fn is_id(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.is_i64() || number.is_u64(),
        _ => false,
    }
}
