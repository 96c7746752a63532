//! The records every crate of eyas speaks: conversations, prompts, responses, finish reasons, usage and spans. serde only, no I/O.
//!
//! Token ids are the truth and text is for reading: [`Response::output_ids`] holds exactly what the engine returned, the stop token
//! included, and [`Spans`] says which part of it is reasoning, end marker, content and stop.
//!
//! Every on-disk record carries its schema name and version (`eyas.prompt/1`, `eyas.response/1`, …). A reader accepts the versions it
//! knows and refuses others by name; a field is only ever added, never given another meaning, within one version.

mod conversation;
mod fingerprint;
mod prompt;
mod response;
mod sampling;
mod schema;
mod spans;

pub use conversation::{FunctionCall, Message, Role, ToolCall};
pub use fingerprint::{Fingerprint, FingerprintInputs};
pub use prompt::{Failed, FailedAttempt, Prompt, Rejected, Source, ThinkState};
pub use response::{FinishReason, Flag, Matched, Response, Status, Timing, Usage};
pub use sampling::SamplingParams;
pub use schema::{Schema, SchemaMismatch};
pub use spans::{Span, Spans};
