//! What a client sees of the server, byte by byte where it matters.
#![cfg(test)]

mod client;
mod faults;
mod generate;
mod openai;
mod script;
#[cfg(feature = "target")]
mod target;
