//! The corpus, the chat template and the training run, from outside.
#![cfg(test)]

mod corpus;
mod template;
mod training;
