//! A small SGLang-compatible server over the embedded target, or over a script of lengths and faults.

mod app;
mod backend;
mod connection;
mod fault;
mod generate;
mod json;
mod lifecycle;
mod meters;
mod model;
mod openai;
mod refusal;
mod registry;
mod reply;
mod request;
mod routes;
mod sampling;
pub mod script;
mod server;
mod target;

pub use backend::Backend;
pub use script::{Script, ScriptBackend, ScriptError, ScriptStats};
pub use server::{Server, ServerConfig, ServerHandle, StartError};
pub use target::{TargetBackend, TargetOptions};
