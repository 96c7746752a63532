//! Makes models/eyas-tiny from nothing: corpus of checkable tasks, tokenizer, training. A tool of the repository, not shipped.
//!
//! Reading order: what is learned ([`tasks`], [`corpus`]), how it becomes tokens ([`chat`], [`tokenizer`]), what learns it
//! ([`model`], [`train`]), how well ([`decode`], [`check`], [`evaluate`]), and what is written ([`artifacts`]).
//!
//! One seed fixes everything: sample `i` of step `s` hangs on the seed and `s` alone, so that a run can stop and go on.

pub mod artifacts;
pub mod chat;
pub mod check;
pub mod corpus;
pub mod decode;
pub mod evaluate;
mod init;
pub mod model;
pub mod rng;
pub mod tasks;
pub mod tokenizer;
pub mod train;
