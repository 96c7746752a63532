//! One canonical list of turns, whatever the source called them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who speaks. Sources name these differently (`human`, `gpt`, `observation`); after normalisation only these are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that hold for the whole conversation.
    System,
    /// The newer OpenAI name of `system`; kept apart because templates tell them apart.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The word chat templates test for.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One turn, in OpenAI's shape. Absent keys stay absent: templates treat a present `null` differently from nothing at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Text, or a list of typed parts; absent on an assistant turn that only calls tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// What the model thought before it answered, without markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls the assistant made, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// On a tool turn: the call it answers, byte for byte as the call named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool, where the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Every other key of the source, untouched, so that a template which knows it can use it.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A plain text turn.
    pub fn text(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: Some(Value::String(content.into())),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            extra: Map::new(),
        }
    }

    /// The content when it is plain text.
    pub fn content_str(&self) -> Option<&str> {
        self.content.as_ref().and_then(Value::as_str)
    }
}

/// A function call made by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The server's id of the call, byte for byte (Kimi prints it into the prompt: `functions.NAME:IDX`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`, where the source says so.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What is called, with what.
    pub function: FunctionCall,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Function name.
    pub name: String,
    /// Arguments as a JSON value. Sources that carry them as a JSON *string* are decoded once when the string parses to an object.
    pub arguments: Value,
}
