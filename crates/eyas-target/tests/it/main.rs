//! Loading, forward pass and engine, on models made here and on real ones where the machine has them.
#![cfg(test)]

mod engine;
mod forward;
mod gguf;
mod interop;
mod loading;
mod naive;
mod tiny;
