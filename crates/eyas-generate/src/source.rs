//! The one queue: prompts of all data sets, in a seeded interleave by weight, read from disk as they are needed.

use crate::plan::GeneratePlan;
use crate::resume::Pending;
use crate::slot::Job;
use eyas_types::Prompt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

/// `prompts.jsonl` is not what it was when the run was opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` row {row} is no prompt: {source}")]
    Malformed { path: PathBuf, row: u64, source: serde_json::Error },
    #[error("`{path}` has become shorter since the run was opened: {missing} pending prompts are missing")]
    Shorter { path: PathBuf, missing: u64 },
}

/// What the queue gives.
#[derive(Debug)]
pub(crate) enum Fed {
    Job(Job),
    /// A prompt that must not be sent.
    Refused {
        job: Job,
        class: &'static str,
        message: String,
    },
}

/// Reads the data sets. Blocks, so it is called off the async threads.
pub(crate) struct Feeder {
    sets: Vec<Set>,
    vocab_size: Option<u32>,
    n_fed: u64,
}

struct Set {
    dataset: usize,
    path: PathBuf,
    reader: BufReader<File>,
    pending: Pending,
    /// The next row, from 0; blank lines are no rows.
    row: u64,
    left: u64,
    /// Where this set stands on the common road from 0 to 1.
    served: f64,
    stride: f64,
    line: Vec<u8>,
}

impl Feeder {
    pub(crate) fn new(plan: &GeneratePlan, pending: Vec<(Pending, u64)>) -> Result<Self, FeedError> {
        let mut rng = StdRng::seed_from_u64(plan.seed ^ 0x696e_7465_726c_6561);
        let mut sets = Vec::new();
        for (dataset, (pending, left)) in pending.into_iter().enumerate() {
            let path = plan.datasets[dataset].prompts.clone();
            let file = File::open(&path).map_err(|source| FeedError::Read { path: path.clone(), source })?;
            #[expect(clippy::cast_precision_loss, reason = "only the ratio of counts matters")]
            let stride = 1.0 / (left.max(1) as f64 * plan.datasets[dataset].weight.max(1e-6));
            // A random start within the first stride keeps small sets from all going first.
            let served = stride * rng.random::<f64>();
            let reader = BufReader::with_capacity(128 * 1024, file);
            sets.push(Set { dataset, path, reader, pending, row: 0, left, served, stride, line: Vec::new() });
        }
        Ok(Self { sets, vocab_size: plan.vocab_size, n_fed: 0 })
    }

    /// At most `n` more prompts; fewer, or none, at the end.
    pub(crate) fn chunk(&mut self, n: usize) -> Result<Vec<Fed>, FeedError> {
        let mut chunk = Vec::with_capacity(n);
        while chunk.len() < n {
            let open = self.sets.iter_mut().filter(|set| set.left > 0);
            let Some(set) = open.min_by(|a, b| a.served.total_cmp(&b.served)) else { break };
            let prompt = set.next()?;
            set.served += set.stride;
            set.left -= 1;
            self.n_fed += 1;
            let job = Job {
                number: self.n_fed,
                dataset: set.dataset,
                prompt: Box::new(prompt),
                attempts: Vec::new(),
                n_refused: 0,
                n_sent: 0,
                maybe_answered: false,
            };
            chunk.push(self.judge(job));
        }
        Ok(chunk)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.sets.iter().all(|set| set.left == 0)
    }

    /// Prompts that kill a real server are not sent.
    fn judge(&self, job: Job) -> Fed {
        if job.prompt.prompt_ids.is_empty() {
            return Fed::Refused { job, class: "empty_prompt", message: "the prompt has no tokens".to_owned() };
        }
        if let Some(vocab_size) = self.vocab_size
            && let Some(id) = job.prompt.prompt_ids.iter().find(|&&id| id >= vocab_size)
        {
            let message = format!("prompt id {id} is outside the vocabulary of {vocab_size}");
            return Fed::Refused { job, class: "out_of_vocabulary", message };
        }
        Fed::Job(job)
    }
}

impl Set {
    /// The next pending prompt; there is one.
    fn next(&mut self) -> Result<Prompt, FeedError> {
        loop {
            self.line.clear();
            let n = self
                .reader
                .read_until(b'\n', &mut self.line)
                .map_err(|source| FeedError::Read { path: self.path.clone(), source })?;
            if n == 0 || self.row >= self.pending.n_rows() {
                return Err(FeedError::Shorter { path: self.path.clone(), missing: self.left });
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            self.row += 1;
            if self.pending.get(self.row - 1) {
                return serde_json::from_slice(&self.line).map_err(|source| FeedError::Malformed {
                    path: self.path.clone(),
                    row: self.row,
                    source,
                });
            }
        }
    }
}
