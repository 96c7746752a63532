//! How a run ended.

use crate::event::{Snapshot, Warning};
use std::time::Duration;

/// How a run ended, with all counts. `snapshot.sum(DatasetCounts::pending)` is what a further run would ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub reason: ExitReason,
    /// The last counts. Nothing is in flight any more.
    pub snapshot: Snapshot,
}

impl Outcome {
    /// Whether every prompt is answered: nothing pending and nothing given up, now or before.
    pub fn all_answered(&self) -> bool {
        self.snapshot.datasets.iter().all(|dataset| dataset.answered_before + dataset.answered == dataset.total)
    }
}

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExitReason {
    /// Every prompt is answered or given up.
    #[error("every prompt is answered or given up")]
    Complete,
    /// [`GeneratePlan::stop_after`](crate::GeneratePlan::stop_after) was reached.
    #[error("the asked-for number of answers is reached")]
    StopAfter,
    /// The caller said so.
    #[error("interrupted")]
    Interrupted {
        /// Whether requests in flight were given up too.
        aborted: bool,
    },
    /// A gate tripped.
    #[error("stopped by a gate: {0}")]
    Gate(Warning),
    /// More prompts were given up than allowed.
    #[error("{n_failed} prompts were given up, more than the {limit} allowed")]
    TooManyFailures {
        /// Given up by this run.
        n_failed: u64,
        /// [`Gates::max_failures`](crate::Gates::max_failures).
        limit: u64,
    },
    /// No server could be reached for too long.
    #[error("no server could be reached for {} s; the last error at {url}: {message}", .down_for.as_secs())]
    ServerDown {
        /// How long.
        down_for: Duration,
        /// The server that failed last.
        url: String,
        /// What it failed with.
        message: String,
    },
    /// Every server turns every prompt away (key, route).
    #[error("{url} turns every prompt away: {message}")]
    Misconfigured {
        /// The server.
        url: String,
        /// Its words.
        message: String,
    },
    /// A journal could not be written. What is on disk is whole; the rest is pending.
    #[error("{message}")]
    Journal {
        /// The error with its causes.
        message: String,
    },
    /// `prompts.jsonl` could not be read, or changed since the run was opened.
    #[error("{message}")]
    Prompts {
        /// The error with its causes.
        message: String,
    },
}
