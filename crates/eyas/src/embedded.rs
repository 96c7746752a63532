//! The embedded engine: a server over the target, on a loopback port inside this process. The client cannot tell the difference.

use crate::error::{CommandError, ErrorKind};
use crate::recipe::EmbeddedRecipe;
use eyas_serve::{Server, ServerConfig, ServerHandle, TargetBackend, TargetOptions};
use eyas_target::{EngineConfig, Target};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Longest context by default: beyond it a CPU is no place to generate.
const DEFAULT_CONTEXT_LEN: usize = 4096;

/// A running server over the target.
pub(crate) struct Embedded {
    handle: ServerHandle,
    identity: String,
}

impl Embedded {
    /// Loads the target and serves it on `port` of 127.0.0.1 (0: a free one).
    pub(crate) async fn start(model: &Path, recipe: &EmbeddedRecipe, port: u16) -> Result<Self, CommandError> {
        let target = tokio::task::block_in_place(|| open(model, recipe))?;
        let identity = serde_json::to_string(&target.identity).unwrap_or_default();
        let own = target.model.config().context_len;
        let config = EngineConfig {
            max_running: recipe.max_running as usize,
            context_len: Some(recipe.context_len.map_or(own.min(DEFAULT_CONTEXT_LEN), |asked| own.min(asked as usize))),
            ..EngineConfig::default()
        };
        let options =
            TargetOptions { model_path: model.display().to_string(), engine: config, ..TargetOptions::default() };
        let failed = |error: anyhow::Error| {
            CommandError::new(ErrorKind::Server, error.context("the embedded engine cannot start"))
        };
        let backend = TargetBackend::start(target, &options).map_err(|error| failed(error.into()))?;
        let config = ServerConfig { addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ..ServerConfig::default() };
        let handle = Server::start(backend, config).await.map_err(|error| failed(error.into()))?;
        Ok(Self { handle, identity })
    }

    /// Base URL.
    pub(crate) fn url(&self) -> String {
        self.handle.url()
    }

    /// What makes this target's answers what they are, as JSON: architecture, size, content hash, arithmetic.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Stops it.
    pub(crate) async fn shutdown(self) {
        self.handle.shutdown().await;
    }
}

fn open(model: &Path, recipe: &EmbeddedRecipe) -> Result<Target, CommandError> {
    Target::open(model, recipe.weights.into()).map_err(|error| {
        CommandError::usage(anyhow::Error::new(error).context("the embedded engine cannot load the target"))
            .hint("the embedded engine answers with Llama- and Qwen-family models; for others start SGLang and name it with --endpoint")
    })
}
