//! Makes models/eyas-tiny from nothing: corpus of checkable tasks, tokenizer, training. A tool of the repository, not shipped.
//!
//! Reading order: what is learned ([`tasks`], [`corpus`]), how it becomes tokens ([`chat`], [`tokenizer`]), what learns it
//! ([`model`], [`train`]), how well ([`decode`], [`check`], [`evaluate`]), and what is written ([`artifacts`]).
//!
//! One seed fixes everything: sample `i` of step `s` hangs on the seed and `s` alone, so that a run can stop and go on.

pub mod tasks;
pub mod corpus;
pub mod chat;
pub mod tokenizer;
pub mod model;
pub mod train;
pub mod decode;
pub mod check;
pub mod evaluate;
pub mod artifacts;
pub mod rng;
