//! What a server says about itself.

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::RequestError;
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// SGLang, or something that speaks its side routes.
    Sglang,
    /// Something with `/v1/models`.
    Openai,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sglang => "sglang",
            Self::Openai => "openai",
        })
    }
}

/// What a server says about itself; everything it does not say is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerInfo {
    /// Which program answers.
    pub engine: Engine,
    /// Its version.
    pub version: Option<String>,
    /// The model it serves: `model_path`, or the first id of `/v1/models`.
    pub model_path: Option<String>,
    /// Tokens of prompt and answer together.
    pub context_len: Option<u64>,
    /// Tokens of prompt it takes.
    pub max_req_input_len: Option<u64>,
    /// Its reasoning parser. eyas splits on ids and does not need one.
    pub reasoning_parser: Option<String>,
    /// Whether it makes up its draws from a seed (`enable_deterministic_inference`).
    pub deterministic: Option<bool>,
    /// Vocabulary size, where it says.
    pub vocab_size: Option<u32>,
}

/// A server that cannot be asked about itself.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The request failed.
    #[error("{url}: {source}")]
    Request {
        /// Base URL.
        url: String,
        /// Why.
        #[source]
        source: RequestError,
    },
    /// It took too long.
    #[error("{url}: no reply within {} s", .limit.as_secs_f64())]
    Timeout {
        /// Base URL.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// None of the routes that tell exists.
    #[error("{url} answers, but has none of the routes /model_info, /get_model_info, /v1/models")]
    Unknown {
        /// Base URL.
        url: String,
    },
}

/// Asks a server about itself: `/model_info` and `/server_info` (or their older names), else `/v1/models`.
pub async fn probe(endpoint: &Arc<Endpoint>, limit: Duration) -> Result<ServerInfo, ProbeError> {
    let url = endpoint.base_url().to_owned();
    let mut connection = Connection::new(Arc::clone(endpoint));
    match tokio::time::timeout(limit, ask_all(&mut connection)).await {
        Err(_) => Err(ProbeError::Timeout { url, limit }),
        Ok(Err(source)) => Err(ProbeError::Request { url, source }),
        Ok(Ok(None)) => Err(ProbeError::Unknown { url }),
        Ok(Ok(Some(info))) => Ok(info),
    }
}

/// Whether the server says it is well: `GET /health` with a status under 400. A server without that route counts as well.
///
/// SGLang generates a token for this, so do not call it often.
pub async fn health(endpoint: &Arc<Endpoint>, limit: Duration) -> Result<(), RequestError> {
    let mut connection = Connection::new(Arc::clone(endpoint));
    let reply = tokio::time::timeout(limit, connection.exchange(Method::GET, "/health", Bytes::new()))
        .await
        .unwrap_or(Err(RequestError::Timeout { limit }))?;
    match reply.status {
        0..400 | 404 => Ok(()),
        status => {
            let message = crate::answer::error_message(connection.body());
            Err(RequestError::Status { status, message, retry_after: reply.retry_after })
        }
    }
}

async fn ask_all(connection: &mut Connection) -> Result<Option<ServerInfo>, RequestError> {
    let model = first_object(connection, &["/model_info", "/get_model_info"]).await?;
    if let Some(model) = model {
        let server = first_object(connection, &["/server_info", "/get_server_info"]).await?.unwrap_or(Value::Null);
        return Ok(Some(sglang(&model, &server)));
    }
    let Some(models) = first_object(connection, &["/v1/models"]).await? else { return Ok(None) };
    let version = first_object(connection, &["/version"]).await?;
    let first = &models["data"][0];
    Ok(Some(ServerInfo {
        engine: Engine::Openai,
        version: version.as_ref().and_then(|version| text(version, "version")),
        model_path: text(first, "id"),
        context_len: first["max_model_len"].as_u64(),
        max_req_input_len: None,
        reasoning_parser: None,
        deterministic: None,
        vocab_size: None,
    }))
}

fn sglang(model: &Value, server: &Value) -> ServerInfo {
    // `context_length` is the argument (null when left to the model); newer servers also print what it came to.
    let context_len = ["context_len", "context_length", "max_model_len"]
        .iter()
        .find_map(|name| server[name].as_u64().or_else(|| server["internal_states"][0][name].as_u64()));
    let number = |name: &str| server[name].as_u64().or_else(|| server["scheduler_info"][name].as_u64());
    ServerInfo {
        engine: Engine::Sglang,
        version: text(server, "version"),
        model_path: text(model, "model_path"),
        context_len,
        max_req_input_len: number("max_req_input_len"),
        reasoning_parser: text(model, "reasoning_parser").or_else(|| text(server, "reasoning_parser")),
        deterministic: server["enable_deterministic_inference"].as_bool(),
        vocab_size: model["vocab_size"]
            .as_u64()
            .or_else(|| number("vocab_size"))
            .and_then(|size| u32::try_from(size).ok()),
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

/// The first of the routes that gives a JSON object; `None` when none does.
async fn first_object(connection: &mut Connection, paths: &[&str]) -> Result<Option<Value>, RequestError> {
    for path in paths {
        let reply = match connection.exchange(Method::GET, path, Bytes::new()).await {
            // A server may close after an error page.
            Err(RequestError::StaleReuse) => connection.exchange(Method::GET, path, Bytes::new()).await?,
            other => other?,
        };
        match reply.status {
            200 => {
                if let Ok(value @ Value::Object(_)) = serde_json::from_slice(connection.body()) {
                    return Ok(Some(value));
                }
            }
            401 | 403 | 500..=599 => {
                let message = crate::answer::error_message(connection.body());
                return Err(RequestError::Status { status: reply.status, message, retry_after: None });
            }
            _ => {}
        }
    }
    Ok(None)
}
