//! What is to be done: checked values, nothing left open.

use crate::gate::Gates;
use crate::split::Splitter;
use eyas_client::Endpoint;
use eyas_journal::FsyncPolicy;
use eyas_prompts::reasoning::ReasoningMode;
use eyas_types::{FingerprintInputs, SamplingParams};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A generation run.
pub struct GeneratePlan {
    /// The data sets, all answered together from one queue.
    pub datasets: Vec<DatasetPlan>,
    /// The servers; at least one, with at least one slot in all.
    pub endpoints: Vec<EndpointPlan>,
    /// How answers are drawn.
    pub sampling: SamplingParams,
    /// Takes answers apart.
    pub splitter: Arc<dyn Splitter>,
    /// Whether the target is to reason. [`ReasoningMode::Auto`] expects it of prompts that open the think block.
    pub reasoning: ReasoningMode,
    /// Everything that shapes the answers; its hash goes into every record.
    pub fingerprint: FingerprintInputs,
    /// The same of the run before, from its manifest; names what changed when records of another fingerprint turn up.
    pub previous: Option<FingerprintInputs>,
    /// What to do with answers that were made with other settings, or for a prompt that has changed since.
    pub on_change: OnChange,
    /// Ask again for prompts that were given up for good. Those that only ran out of tries are always asked again. Default false.
    pub retry_failed: bool,
    /// When an answer counts as kept.
    pub fsync: FsyncPolicy,
    /// How failed tries are repeated.
    pub retries: Retries,
    /// How long servers may be gone.
    pub patience: Patience,
    /// What is watched while answers come in.
    pub gates: Gates,
    /// Size of the target's vocabulary, where known: a prompt with an id beyond it kills a real server and is never sent.
    pub vocab_size: Option<u32>,
    /// Stop admitting after this many answers of this run, over all data sets. What is in flight is drained.
    pub stop_after: Option<u64>,
    /// Seed of the interleave and of the jitter of pauses.
    pub seed: u64,
    /// How often [`Event::Progress`](crate::Event::Progress) comes. Default 1 s.
    pub progress_interval: Duration,
}

impl GeneratePlan {
    /// A plan with defaults for everything that has one. `endpoints` and `datasets` are left empty.
    pub fn new(sampling: SamplingParams, splitter: Arc<dyn Splitter>, fingerprint: FingerprintInputs) -> Self {
        Self {
            datasets: Vec::new(),
            endpoints: Vec::new(),
            sampling,
            splitter,
            reasoning: ReasoningMode::Auto,
            fingerprint,
            previous: None,
            on_change: OnChange::Refuse,
            retry_failed: false,
            fsync: FsyncPolicy::EachBatch,
            retries: Retries::default(),
            patience: Patience::default(),
            gates: Gates::default(),
            vocab_size: None,
            stop_after: None,
            seed: 0,
            progress_interval: Duration::from_secs(1),
        }
    }
}

/// One data set: where its prompts are and where its answers go.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetPlan {
    /// Name, as in the records.
    pub name: String,
    /// `prompts.jsonl`, in the order in which they are to be asked.
    pub prompts: PathBuf,
    /// How many prompts the manifest says there are; another number on disk is refused.
    pub n_prompts: Option<u64>,
    /// `raw_responses.jsonl`.
    pub responses: PathBuf,
    /// `failed.jsonl`.
    pub failed: PathBuf,
    /// Share of the queue, relative to the number of its pending prompts: 1.0 (default) lets all data sets end together, 2.0 lets this
    /// one run twice as fast.
    pub weight: f64,
}

impl DatasetPlan {
    /// The usual names in a data set's folder of a run (`<run>/prepared/<dataset>`).
    pub fn in_dir(name: impl Into<String>, dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        Self {
            name: name.into(),
            prompts: dir.join("prompts.jsonl"),
            n_prompts: None,
            responses: dir.join("raw_responses.jsonl"),
            failed: dir.join("failed.jsonl"),
            weight: 1.0,
        }
    }
}

/// One server and how many requests it is given at a time.
#[derive(Debug, Clone)]
pub struct EndpointPlan {
    /// The server.
    pub endpoint: Arc<Endpoint>,
    /// Requests in flight; also the number of connections.
    pub slots: u32,
}

/// What to do with answers on disk that do not belong to this run: other fingerprint, or other prompt under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// Do not start; say what changed. The default.
    #[default]
    Refuse,
    /// Keep them and count them as answered. Every record says with which settings it was made.
    Keep,
    /// Move them to `raw_responses.jsonl.old` and ask again.
    Redo,
}

/// How failed tries are repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retries {
    /// Tries per prompt. Default 5.
    pub max_attempts: u32,
    /// Pause after the first failed try; doubles with each. Default 500 ms, of which a random half is taken off.
    pub base_pause: Duration,
    /// Longest pause. Default 30 s.
    pub max_pause: Duration,
    /// How often a prompt may be turned away by a full server (429, 503 with `Retry-After`) before that counts as a failed try. Such
    /// refusals are no tries. Default 100.
    pub max_refusals: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base_pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(30),
            max_refusals: 100,
        }
    }
}

/// How long servers may be gone before the run gives in. Nothing is marked as failed for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    /// All servers gone for this long ends the run with everything else pending. Default 120 s.
    pub server_down_after: Duration,
    /// Pause between looks at a server that is gone; grows to twenty times this. Default 500 ms.
    pub probe_pause: Duration,
    /// Failed tries in a row, without an answer in between, after which a server is looked at (`/health`) before it is asked again.
    /// Default 16.
    pub max_consecutive_failures: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            server_down_after: Duration::from_secs(120),
            probe_pause: Duration::from_millis(500),
            max_consecutive_failures: 16,
        }
    }
}
