//! What came back: one line of `raw_responses.jsonl`.

use crate::{Message, Schema, Spans, ThinkState, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why the answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum FinishReason {
    /// A stop token or stop string ended it.
    Stop {
        /// What matched; `None` where the server does not say (vLLM on its plain end token).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        matched: Option<Matched>,
    },
    /// The token cap ended it.
    Length {
        /// The cap the server applied, tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
    /// It ended in tool calls (OpenAI-style servers).
    ToolCalls,
    /// The server gave it up. Never a success.
    Abort {
        /// The server's words.
        message: String,
        /// HTTP status the server meant, where it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status_code: Option<u16>,
    },
    /// A reason this build does not know. Never a success.
    Unknown {
        /// The word as received.
        reason: String,
    },
}

/// What ended an answer at `stop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Matched {
    /// A stop token.
    Token(u32),
    /// A stop string.
    Text(String),
    /// A sequence of stop tokens.
    Tokens(Vec<u32>),
}

impl FinishReason {
    /// Whether the reason is a proof of completion (`stop`, `length`, `tool_calls`).
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Stop { .. } | Self::Length { .. } | Self::ToolCalls)
    }

    /// The word people count by.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop { .. } => "stop",
            Self::Length { .. } => "length",
            Self::ToolCalls => "tool_calls",
            Self::Abort { .. } => "abort",
            Self::Unknown { reason } => reason,
        }
    }
}

/// Token counts as the server reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated, the stop token included.
    pub completion_tokens: u64,
    /// Prompt tokens served from the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of `completion_tokens` that are reasoning; from ids when there are ids, else the server's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

/// Whether the answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It ended by itself.
    Complete,
    /// The cap cut it; kept raw, never counted as a finished answer, not trained on by default.
    Truncated,
}

/// What was noticed about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The cap fell inside the reasoning: there is no content.
    TruncatedInReasoning,
    /// The answer ended by itself with the think block still open.
    UnclosedReasoning,
    /// An end marker came up with no start marker in prompt or answer; all before it is taken as reasoning.
    MissingStart,
    /// Another start marker stands in the content; it was not re-opened.
    ExtraThink,
    /// Reasoning was expected and there is none.
    ReasoningMissing,
    /// Thinking was off and there is reasoning or a marker.
    UnexpectedReasoning,
    /// Markup of a format that is not configured is left in the content.
    UnparsedMarkup,
    /// The content is empty.
    EmptyContent,
    /// The server gave no token ids; spans are missing and the text is all there is.
    NoIds,
    /// `usage.completion_tokens` does not agree with the number of ids.
    UsageMismatch,
    /// A tool call in the content does not parse.
    MalformedToolCall,
    /// A tool call was cut by the cap.
    TruncatedToolCall,
}

/// When things happened, on the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// When the successful try was sent, milliseconds since 1970 (wall clock).
    pub sent_unix_ms: u64,
    /// From sending to the whole answer, milliseconds (monotonic clock).
    pub elapsed_ms: u64,
    /// From sending to the first token, milliseconds, where it was streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
}

/// A line of `raw_responses.jsonl`: one answer.
///
/// The names in front (`sample_id`, `messages`, `reasoning`, `content`, `finish_reason`, `usage`) are as people know them from other tools;
/// the rest makes the record exact. `finish_reason` is the plain word; [`Response::finish`] has its details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Always [`Schema::RESPONSE`].
    pub schema: Schema,
    /// Which prompt.
    pub sample_id: String,
    /// Data set name.
    pub dataset: String,
    /// Which assistant turn of the conversation, from 0.
    pub turn: u32,
    /// The conversation that was asked.
    pub messages: Vec<Message>,
    /// Tool schemas that were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Reasoning as text without markers; empty when there is none.
    pub reasoning: String,
    /// The answer as text, the stop token not included; tool-call markup stays in when the server did not parse it.
    pub content: String,
    /// Calls, where a reasoning format or the server yields them in parsed form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// `stop`, `length`, `tool_calls`.
    pub finish_reason: String,
    /// The finish reason in full.
    pub finish: FinishReason,
    /// Whole or cut.
    pub status: Status,
    /// Token counts.
    pub usage: Usage,
    /// The ids that were sent.
    pub prompt_ids: Vec<u32>,
    /// The ids that came back, exactly, the stop token included. Absent when the server gives none ([`Flag::NoIds`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_ids: Option<Vec<u32>>,
    /// The parts of `output_ids`; absent without ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
    /// State of the think block at the end of the prompt.
    pub think: ThinkState,
    /// What was noticed, sorted, without repeats.
    #[serde(default)]
    pub flags: Vec<Flag>,
    /// Fingerprint of everything that shaped the answer.
    pub fingerprint: String,
    /// Base URL that answered.
    pub endpoint: String,
    /// Which try succeeded, from 1.
    pub attempt: u32,
    /// When.
    pub timing: Timing,
    /// The source's last assistant turn, where it had one; for comparison, never for training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Message>,
}

impl Response {
    /// Whether the answer has any reasoning. By ids where there are ids.
    pub fn has_reasoning(&self) -> bool {
        match &self.spans {
            Some(spans) => !spans.reasoning.is_empty(),
            None => !self.reasoning.is_empty(),
        }
    }
}
