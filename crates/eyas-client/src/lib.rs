//! One request to one server: SGLang `/generate` and OpenAI-style chat. Wire types, errors by class; knows no files.
//!
//! A [`Connection`] is one keep-alive HTTP/1.1 connection that its owner (a slot of the fleet) keeps for itself: no pool, no background
//! task, as many sockets as slots. [`Connection::ask`] sends one prompt and returns an [`Answer`] only with proof that it is whole: a
//! known finish reason, at least one token, the request's own id, the prompt's own length. Everything else is a [`RequestError`], which
//! says by itself whether to try again ([`RequestError::retry`]) and whether the fault lies with the prompt or with the endpoint
//! ([`RequestError::scope`]).

mod answer;
mod ask;
mod connection;
mod endpoint;
mod error;
mod probe;

pub use answer::Answer;
pub use ask::{Ask, Sampling};
pub use connection::Connection;
pub use endpoint::{Endpoint, EndpointError, Protocol};
pub use error::{RequestError, Retry, Scope};
pub use probe::{Engine, ProbeError, ServerInfo, health, probe};
