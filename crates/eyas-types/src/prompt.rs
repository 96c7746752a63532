//! What is asked: prepared prompts, rejected rows, given-up prompts.

use crate::{Message, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a prompt comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    /// Path as the recipe names it.
    pub file: String,
    /// Line (JSONL), element (JSON array) or row (Parquet), counted from 1.
    pub row: u64,
}

/// Whether the rendered prompt leaves a think block open, read off the prompt ids: the last marker in them decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkState {
    /// The last marker is a start marker: the answer begins inside the reasoning.
    Open,
    /// The last marker is an end marker: thinking is switched off for this prompt.
    Closed,
    /// No marker at all: the model opens the block itself, or does not think.
    Undecided,
}

/// A line of `prompts.jsonl`: one prompt, ready to send.
///
/// Sample line: `{"schema":"eyas.prompt/1","sample_id":"sum-0001","dataset":"arithmetic","source":{"file":"arithmetic.jsonl","row":1},
/// "messages":[{"role":"user","content":"3+4?"}],"prompt_ids":[275,270],"think":"open"}`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Always [`Schema::PROMPT`].
    pub schema: Schema,
    /// Unique within the data set and stable under reordering of the source: the row's own id, or a hash of the prompt ids with an
    /// occurrence counter (`h0123456789abcdef-0`).
    pub sample_id: String,
    /// Data set name.
    pub dataset: String,
    /// Where it was read.
    pub source: Source,
    /// The conversation up to the turn that is to be generated.
    pub messages: Vec<Message>,
    /// Tool schemas given to the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// The rendered prompt as token ids, exactly as they are sent. Never empty.
    pub prompt_ids: Vec<u32>,
    /// State of the think block at the end of `prompt_ids`.
    pub think: ThinkState,
    /// The last assistant turn of the source, dropped to make the prompt; kept for comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Message>,
    /// What was mended on the way in (`leading_assistant_dropped`, `lone_surrogate_replaced`, …); empty for most rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<String>,
}

/// A line of `rejected.jsonl`: a row that was not taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Always [`Schema::REJECTED`].
    pub schema: Schema,
    /// Data set name.
    pub dataset: String,
    /// Where it was read.
    pub source: Source,
    /// Short machine-readable class (`malformed_json`, `lone_surrogate`, `no_user_turn`, `too_long`, …).
    pub reason: String,
    /// The whole story for a person.
    pub detail: String,
}

/// One failed try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Which try, from 1.
    pub attempt: u32,
    /// Where it was sent.
    pub endpoint: String,
    /// Class of the error (`connect`, `status_500`, `aborted`, …).
    pub class: String,
    /// The error in words, the server's message included.
    pub message: String,
}

/// A line of `failed.jsonl`: a prompt that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Always [`Schema::FAILED`].
    pub schema: Schema,
    /// Which prompt.
    pub sample_id: String,
    /// Data set name.
    pub dataset: String,
    /// Which assistant turn of the conversation, from 0.
    pub turn: u32,
    /// Fingerprint of the run's settings at the time.
    pub fingerprint: String,
    /// Whether another try could not have helped (a 400, an abort for length), as against tries used up.
    pub permanent: bool,
    /// Every try, oldest first.
    pub attempts: Vec<FailedAttempt>,
}
