//! What stands behind the HTTP surface: a model, or a script.

use crate::fault::WireFault;
use crate::json::Json;
use crate::model::ModelInfo;
use crate::refusal::Refusal;
use crate::reply::{Meta, Rendered};
use crate::request::Job;
use crate::script::{ScriptBackend, ScriptGeneration};
use crate::target::{TargetBackend, TargetGeneration};
use eyas_types::FinishReason;
use std::sync::Arc;

/// Who answers. Made with `From` out of a [`ScriptBackend`] or a target backend.
#[derive(Debug)]
pub struct Backend(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Script(Box<ScriptBackend>),
    #[cfg_attr(not(feature = "target"), expect(dead_code, reason = "without the feature there is no model to serve"))]
    Target(Box<TargetBackend>),
}

impl From<ScriptBackend> for Backend {
    fn from(script: ScriptBackend) -> Self {
        Self(Kind::Script(Box::new(script)))
    }
}

/// How busy the backend is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) n_running: usize,
    pub(crate) n_queued: usize,
    pub(crate) used_tokens: u64,
    /// Tokens per second.
    pub(crate) gen_throughput: f64,
    pub(crate) n_retractions: u64,
}

impl Load {
    pub(crate) fn token_usage(&self, max_total: u64) -> f64 {
        if max_total == 0 { 0.0 } else { self.used_tokens as f64 / max_total as f64 }
    }
}

/// A generation under way, with the fault that will spoil its delivery.
pub(crate) struct Started {
    pub(crate) generation: Generation,
    pub(crate) wire_fault: Option<WireFault>,
}

impl Backend {
    pub(crate) fn model(&self) -> &ModelInfo {
        match &self.0 {
            Kind::Script(script) => script.model(),
            Kind::Target(target) => target.model(),
        }
    }

    pub(crate) fn load(&self) -> Load {
        match &self.0 {
            Kind::Script(script) => script.load(),
            Kind::Target(target) => target.load(),
        }
    }

    /// Whether the engine still works.
    pub(crate) fn is_alive(&self) -> bool {
        match &self.0 {
            Kind::Script(_) => true,
            Kind::Target(target) => target.is_alive(),
        }
    }

    pub(crate) fn script(&self) -> Option<&ScriptBackend> {
        match &self.0 {
            Kind::Script(script) => Some(script),
            Kind::Target(_) => None,
        }
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        match &self.0 {
            Kind::Script(script) => Ok(script.encode(text)),
            Kind::Target(target) => target.encode(text),
        }
    }

    /// Begins one answer. Does not wait.
    pub(crate) fn start(&self, job: &Arc<Job>, path: &str) -> Result<Started, Refusal> {
        match &self.0 {
            Kind::Script(script) => script.start(job, path),
            Kind::Target(target) => target.start_job(job),
        }
    }
}

/// One answer under way.
pub(crate) enum Generation {
    Script(Box<ScriptGeneration>),
    #[cfg_attr(not(feature = "target"), expect(dead_code, reason = "without the feature there is no model to serve"))]
    Target(Box<TargetGeneration>),
}

impl Generation {
    /// Goes on until there is something new worth sending (`whole`: until the end). `Some` at the end. Safe to drop and call again.
    pub(crate) async fn run(&mut self, whole: bool) -> Result<Option<FinishReason>, Refusal> {
        match self {
            Self::Script(script) => Ok(script.run(whole).await),
            Self::Target(target) => target.run(whole).await,
        }
    }

    /// The text so far: reasoning, where the server has a parser that finds it, and content.
    pub(crate) fn split_text(&self) -> (Option<String>, String) {
        match self {
            Self::Script(script) => script.split_text(),
            Self::Target(target) => (None, target.text()),
        }
    }

    /// The text so far.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Script(script) => script.text(),
            Self::Target(target) => target.text(),
        }
    }

    /// The ids so far.
    pub(crate) fn ids(&self) -> Vec<u32> {
        match self {
            Self::Script(script) => script.ids(),
            Self::Target(target) => target.ids().to_vec(),
        }
    }

    /// Stops; what is there so far stays.
    pub(crate) fn abort(&mut self) -> FinishReason {
        match self {
            Self::Script(script) => script.abort(),
            Self::Target(target) => target.abort(),
        }
    }
}

impl Rendered for Generation {
    fn write_output(&self, out: &mut Json) {
        match self {
            Self::Script(script) => script.write_output(out),
            Self::Target(target) => target.write_output(out),
        }
    }

    fn n_tokens(&self) -> usize {
        match self {
            Self::Script(script) => script.n_tokens(),
            Self::Target(target) => target.n_tokens(),
        }
    }

    fn meta(&self) -> Meta {
        match self {
            Self::Script(script) => script.meta(),
            Self::Target(target) => target.meta(),
        }
    }
}
