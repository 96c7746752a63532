//! A slot: one task, one connection, one prompt at a time. It keeps nothing.

use crate::record::{Landed, Recorder};
use crate::transport::Line;
use eyas_client::{Ask, Protocol, RequestError, Sampling};
use eyas_types::{FailedAttempt, Prompt};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A prompt on its way, with what was tried so far.
#[derive(Debug)]
pub(crate) struct Job {
    /// Number in this run.
    pub(crate) number: u64,
    pub(crate) dataset: usize,
    pub(crate) prompt: Box<Prompt>,
    pub(crate) attempts: Vec<FailedAttempt>,
    /// Times it was turned away by a full server.
    pub(crate) n_refused: u32,
    /// Times it was sent, for unique request ids.
    pub(crate) n_sent: u32,
    /// The last try may have been answered, and the answer was lost.
    pub(crate) maybe_answered: bool,
}

impl Job {
    /// Number of the try that is due, from 1.
    pub(crate) fn attempt(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// What a slot has to say.
pub(crate) struct Report {
    pub(crate) slot: usize,
    pub(crate) dataset: usize,
    /// Requests that were repeated at once because a kept connection was closed. None of them is a try.
    pub(crate) n_stale: u64,
    /// Boxed: most reports are small beside a job.
    pub(crate) result: Result<Landed, Box<(Job, RequestError)>>,
}

/// What a slot needs.
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) line: Box<dyn Line>,
    pub(crate) protocol: Protocol,
    pub(crate) url: Arc<str>,
    pub(crate) sampling: Arc<Sampling>,
    pub(crate) recorder: Arc<Recorder>,
    /// Part of every request id, so that no two runs share one.
    pub(crate) run_tag: Arc<str>,
    pub(crate) inbox: mpsc::Receiver<Job>,
    pub(crate) reports: mpsc::Sender<Report>,
}

impl Slot {
    /// Works until the dispatcher is gone.
    pub(crate) async fn work(mut self) {
        while let Some(job) = self.inbox.recv().await {
            let report = self.ask(job).await;
            if self.reports.send(report).await.is_err() {
                break;
            }
        }
    }

    async fn ask(&mut self, mut job: Job) -> Report {
        let mut n_stale = 0;
        let asked = loop {
            job.n_sent += 1;
            let rid = format!("{}-{:x}-{}", self.run_tag, job.number, job.n_sent);
            let ask = Ask {
                rid: &rid,
                prompt_ids: &job.prompt.prompt_ids,
                messages: &job.prompt.messages,
                tools: job.prompt.tools.as_deref(),
                sampling: &self.sampling,
            };
            match self.line.ask(ask).await {
                Err(RequestError::StaleReuse) if n_stale == 0 => n_stale += 1,
                // Closed, and then nobody there: the server died, perhaps of this prompt. That is a try.
                Err(RequestError::Connect { source, .. }) if n_stale > 0 => {
                    let message = format!("the connection was closed, and then: {source}");
                    break Err(RequestError::Reset { message });
                }
                Err(error) => {
                    self.abort_if_running(&error, &rid).await;
                    break Err(error);
                }
                Ok(answer) => break Ok(answer),
            }
        };
        let (slot, dataset) = (self.number, job.dataset);
        let result = match asked {
            Ok(answer) => {
                let attempt = job.attempt();
                Ok(self.recorder.record(*job.prompt, answer, self.protocol, &self.url, attempt))
            }
            Err(error) => Err(Box::new((job, error))),
        };
        Report { slot, dataset, n_stale, result }
    }

    /// A request whose answer never came whole may still be running; SGLang can be told to stop it before it is asked again.
    async fn abort_if_running(&mut self, error: &RequestError, rid: &str) {
        let running =
            matches!(error, RequestError::Timeout { .. } | RequestError::ShortBody { .. } | RequestError::Reset { .. });
        if running && self.protocol == Protocol::SglangGenerate {
            self.line.abort(rid).await;
        }
    }
}
