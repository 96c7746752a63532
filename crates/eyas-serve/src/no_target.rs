//! In place of `target.rs` when the `target` feature is off: a backend that cannot exist, so that the rest need not know.

use crate::backend::{Load, Started};
use crate::json::Json;
use crate::model::ModelInfo;
use crate::refusal::Refusal;
use crate::reply::{Meta, Rendered};
use crate::request::Job;
use eyas_types::FinishReason;

/// Never made.
#[derive(Debug)]
pub(crate) enum TargetBackend {}

impl TargetBackend {
    pub(crate) fn model(&self) -> &ModelInfo {
        match *self {}
    }

    pub(crate) fn is_alive(&self) -> bool {
        match *self {}
    }

    pub(crate) fn load(&self) -> Load {
        match *self {}
    }

    pub(crate) fn encode(&self, _text: &str) -> Result<Vec<u32>, Refusal> {
        match *self {}
    }

    pub(crate) fn start_job(&self, _job: &Job) -> Result<Started, Refusal> {
        match *self {}
    }
}

/// Never made.
pub(crate) enum TargetGeneration {}

impl TargetGeneration {
    pub(crate) async fn run(&mut self, _whole: bool) -> Result<Option<FinishReason>, Refusal> {
        match *self {}
    }

    pub(crate) fn abort(&mut self) -> FinishReason {
        match *self {}
    }

    pub(crate) fn text(&self) -> String {
        match *self {}
    }

    pub(crate) fn ids(&self) -> &[u32] {
        match *self {}
    }
}

impl Rendered for TargetGeneration {
    fn write_output(&self, _out: &mut Json) {
        match *self {}
    }

    fn n_tokens(&self) -> usize {
        match *self {}
    }

    fn meta(&self) -> Meta {
        match *self {}
    }
}
