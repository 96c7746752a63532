//! From rows of any shape to one canonical list of turns.
//!
//! The shape is settled once per data set, from a sample of its rows or by option, and said in words ([`Mapping::describe`]). What does not
//! fit is refused by row and reason; no turn is lost, merged, invented or given a role by its position.
//!
//! Policies, the same everywhere:
//! - Role words are mapped by a fixed table ([`known_role_words`]), upper and lower case alike; an unknown word refuses the row.
//! - `function_call` turns become assistant turns with tool calls, `observation` and `function` turns become tool turns.
//! - A conversation that begins with turns of the model loses them up to the first user turn and is marked
//!   [`Repair::LeadingAssistantDropped`](crate::source::Repair::LeadingAssistantDropped).
//! - Two turns of one role in a row stay two turns.
//! - `null` where text, a name, an id or tool calls could stand counts as absent. Keys that are not known stay with the turn untouched.
//! - Tool calls, tool schemas and whole conversations may be lists or the JSON text of lists (`""` and `"null"` are none); arguments that
//!   are the JSON text of an object are decoded, once. Ids of calls stay byte for byte.
//! - A system prompt in a column of its own becomes the first turn; if the conversation has another one, the row is refused.
//! - `instruction` and `input` are joined by an empty line, as most trainers do.
//! - Several user turns without answers between them (MT-bench) are asked one after another only by multi-turn generation; until then the
//!   first is the prompt and the row is marked [`Repair::OnlyFirstTurnAsked`](crate::source::Repair::OnlyFirstTurnAsked).

mod conversation;
mod detect;
mod mapping;
mod refusal;
mod roles;
mod tools;
mod turns;

pub use conversation::{Conversation, ConversationBody};
pub use detect::NoSchema;
pub use mapping::{Mapping, SchemaName, SchemaOptions, Shape};
pub use refusal::{Reason, Refusal};
pub use roles::known_role_words;
pub use turns::TurnKeys;

#[cfg(test)]
mod tests;
