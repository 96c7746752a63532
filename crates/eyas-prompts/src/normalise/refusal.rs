//! Why a row has no conversation in it.

use crate::source::BadRow;
use std::fmt;

/// Class of a row that was read and could not be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The field that holds the conversation is missing.
    NoConversationField,
    /// The conversation is null.
    NullConversation,
    /// The conversation has no turns.
    EmptyConversation,
    /// The conversation is not a list of turns.
    ConversationNotAList,
    /// A turn is not an object.
    TurnNotAnObject,
    /// A turn does not say who speaks.
    NoRole,
    /// A turn's role is not in the table of known ones.
    UnknownRole,
    /// A turn has no text where it needs some.
    NoContent,
    /// A turn's content is neither text nor a list of parts.
    ContentNotText,
    /// A turn's other keys cannot be what they are named for.
    MalformedTurn,
    /// Tool calls cannot be read.
    MalformedToolCalls,
    /// Tool schemas cannot be read.
    MalformedTools,
    /// Nobody asks anything.
    NoUserTurn,
    /// The conversation begins with a tool's result.
    FirstTurnIsTool,
    /// The row has a system prompt of its own and the conversation begins with another one.
    TwoSystemPrompts,
    /// The field that holds the prompt is missing.
    NoPromptField,
    /// The prompt is null.
    NullPrompt,
    /// The prompt is empty or blank.
    EmptyPrompt,
    /// The prompt is neither text nor a list of turns.
    PromptNotText,
}

impl Reason {
    /// The word that stands in `rejected.jsonl` and in counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoConversationField => "no_conversation_field",
            Self::NullConversation => "null_conversation",
            Self::EmptyConversation => "empty_conversation",
            Self::ConversationNotAList => "conversation_not_a_list",
            Self::TurnNotAnObject => "turn_not_an_object",
            Self::NoRole => "no_role",
            Self::UnknownRole => "unknown_role",
            Self::NoContent => "no_content",
            Self::ContentNotText => "content_not_text",
            Self::MalformedTurn => "malformed_turn",
            Self::MalformedToolCalls => "malformed_tool_calls",
            Self::MalformedTools => "malformed_tools",
            Self::NoUserTurn => "no_user_turn",
            Self::FirstTurnIsTool => "first_turn_is_tool",
            Self::TwoSystemPrompts => "two_system_prompts",
            Self::NoPromptField => "no_prompt_field",
            Self::NullPrompt => "null_prompt",
            Self::EmptyPrompt => "empty_prompt",
            Self::PromptNotText => "prompt_not_text",
        }
    }
}

/// A row that is not taken, in the words of `rejected.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Class: the word of a [`Reason`], a [`RowFault`](crate::source::RowFault), a filter or a [`RenderError`](crate::RenderError).
    pub reason: &'static str,
    /// The whole story for a person.
    pub detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason: reason.as_str(), detail: detail.into() }
    }
}

impl From<BadRow> for Refusal {
    fn from(bad: BadRow) -> Self {
        Self { reason: bad.fault.as_str(), detail: bad.detail }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}
