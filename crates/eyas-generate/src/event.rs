//! What the caller gets to hear.

use crate::resume::DatasetState;
use std::collections::BTreeMap;
use std::time::Duration;

/// Something happened. Events come from the dispatcher, in order; a listener that blocks holds up the run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first requests are about to go out.
    Started(&'a Snapshot),
    /// Comes every [`GeneratePlan::progress_interval`](crate::GeneratePlan::progress_interval), also while nothing else happens.
    Progress(&'a Snapshot),
    /// An answer is on disk.
    Answered {
        /// Data set, as an index into the plan.
        dataset: usize,
        /// Which prompt.
        sample_id: &'a str,
        /// Tokens generated.
        completion_tokens: u64,
        /// Whether it has reasoning.
        has_reasoning: bool,
        /// Whether the cap cut it.
        truncated: bool,
    },
    /// A prompt was given up; its line in `failed.jsonl` is on disk.
    Failed {
        /// Data set, as an index into the plan.
        dataset: usize,
        /// Which prompt.
        sample_id: &'a str,
        /// Class of the last error.
        class: &'a str,
        /// The last error in words.
        message: &'a str,
        /// Whether another try could not have helped.
        permanent: bool,
    },
    /// A try failed and the prompt will be asked again.
    Retrying {
        /// Data set, as an index into the plan.
        dataset: usize,
        /// Which prompt.
        sample_id: &'a str,
        /// Class of the error.
        class: &'a str,
        /// The error in words.
        message: &'a str,
        /// Tries so far.
        attempt: u32,
        /// How long it waits.
        pause: Duration,
    },
    /// A server is gone, and is looked at from time to time.
    EndpointDown {
        /// Base URL.
        url: &'a str,
        /// Why.
        message: &'a str,
    },
    /// A server is back.
    EndpointUp {
        /// Base URL.
        url: &'a str,
        /// How long it was gone.
        down_for: Duration,
    },
    /// Something a person should look at now.
    Warning(&'a Warning),
    /// No more prompts are admitted; what is in flight is waited for.
    Draining {
        /// How many.
        in_flight: usize,
    },
}

/// Something a person should look at now.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Reasoning is expected and the first answers have none.
    #[error("none of the first {n_answers} answers has any reasoning, or closes it")]
    NoReasoningAtAll {
        /// Answers seen.
        n_answers: u64,
    },
    /// The share of answers with reasoning is under the gate.
    #[error("only {n_with_reasoning} of {n_answers} answers have reasoning")]
    LowReasoningCapture {
        /// Answers seen.
        n_answers: u64,
        /// Of those with reasoning.
        n_with_reasoning: u64,
    },
    /// Many prompts are done and none of them is usable.
    #[error("{n_done} prompts are done and none has a usable answer")]
    NothingUsable {
        /// Prompts answered or given up.
        n_done: u64,
    },
}

/// Answers and how many of them have reasoning, among those of which it is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capture {
    /// Answers of which reasoning is expected.
    pub n_answers: u64,
    /// Of those with reasoning.
    pub n_with_reasoning: u64,
}

impl Capture {
    /// Share with reasoning, in [0, 1]; `None` before the first answer.
    pub fn rate(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts of answers are far below 2^53")]
        (self.n_answers > 0).then(|| self.n_with_reasoning as f64 / self.n_answers as f64)
    }
}

/// Where one data set stands. `total = answered_before + answered + failed_before + failed + pending()`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatasetCounts {
    /// Name.
    pub name: String,
    /// Prompts in all.
    pub total: u64,
    /// Answered when the run was opened.
    pub answered_before: u64,
    /// Answered by this run: on disk.
    pub answered: u64,
    /// Given up when the run was opened, and not asked again.
    pub failed_before: u64,
    /// Given up by this run.
    pub failed: u64,
    /// With a server right now.
    pub in_flight: u64,
    /// Of `answered`: cut by the cap.
    pub truncated: u64,
    /// Of `answered`: with reasoning.
    pub with_reasoning: u64,
    /// Tokens sent with `answered`.
    pub prompt_tokens: u64,
    /// Tokens generated in `answered`.
    pub completion_tokens: u64,
    /// Tokens generated in `answered_before`.
    pub completion_tokens_before: u64,
}

impl DatasetCounts {
    pub(crate) fn opened(state: &DatasetState) -> Self {
        Self {
            name: state.name.clone(),
            total: state.total,
            answered_before: state.answered,
            failed_before: state.failed,
            completion_tokens_before: state.completion_tokens,
            ..Self::default()
        }
    }

    /// Neither answered nor given up: in flight, waiting, or not yet asked.
    pub fn pending(&self) -> u64 {
        self.total - self.answered_before - self.answered - self.failed_before - self.failed
    }

    /// Answered or given up.
    pub fn done(&self) -> u64 {
        self.total - self.pending()
    }
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointStatus {
    /// Base URL.
    pub url: String,
    /// Whether it is being asked.
    pub up: bool,
    /// Its slots.
    pub slots: usize,
    /// Requests it is working on.
    pub in_flight: usize,
    /// Answers it gave.
    pub answered: u64,
    /// Tries that failed there.
    pub errors: u64,
}

/// Where the run stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Since the run was started.
    pub elapsed: Duration,
    /// Every data set, in the order of the plan.
    pub datasets: Vec<DatasetCounts>,
    /// Every server, in the order of the plan.
    pub endpoints: Vec<EndpointStatus>,
    /// Requests with a server right now.
    pub in_flight: usize,
    /// Prompts waiting for their next try.
    pub waiting: usize,
    /// Answers that came and are not yet on disk.
    pub unacknowledged: usize,
    /// Requests sent.
    pub n_requests: u64,
    /// Of those: repeated because a try failed.
    pub n_retries: u64,
    /// Of those: repeated at once, because a kept connection was closed before it was used again. They are no tries.
    pub n_stale_retries: u64,
    /// Of those: turned away by a full server. They are no tries.
    pub n_refused: u64,
    /// Of those: repeated although the server may have generated the answer already, and so paid twice.
    pub n_asked_twice: u64,
    /// Reasoning among this run's answers.
    pub capture: Capture,
    /// Failed tries by class.
    pub errors: BTreeMap<String, u64>,
    /// Prompts given up by this run, by the class of their last error.
    pub failures: BTreeMap<String, u64>,
    /// Answers a second, over the last half minute.
    pub answers_per_s: f64,
    /// Generated tokens a second, over the last half minute.
    pub tokens_per_s: f64,
}

impl Snapshot {
    /// Sum over all data sets.
    pub fn sum(&self, count: impl Fn(&DatasetCounts) -> u64) -> u64 {
        self.datasets.iter().map(count).sum()
    }
}
