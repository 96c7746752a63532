//! Continuous batching: one thread owns the model and answers many requests at once.
//!
//! Requests join and leave between steps. A step takes the next token of every request that is being answered, and pieces of prompts up to
//! [`EngineConfig::max_prefill_tokens`], flat through the model at once. Cache space is taken as it is needed; when
//! [`EngineConfig::max_total_tokens`] are not enough for the next step, the youngest requests step back into the queue and are
//! computed again later (their tokens so far are kept; nothing is sent twice).

mod request;
mod scheduler;
mod stats;

pub use request::{Event, Finish, Finished, Request, Sink, SubmitError};
pub use stats::EngineStats;

use crate::llama::LlamaModel;
use scheduler::{Admitted, Command, Scheduler};
use stats::SharedStats;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Limits of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Requests answered at once. Default 64. SGLang: `--max-running-requests`.
    pub max_running: usize,
    /// Requests that may be held beyond `max_running`; one more is [`SubmitError::QueueFull`]. Default: no limit, as in SGLang
    /// (`--max-queued-requests`).
    pub max_waiting: usize,
    /// Tokens of cache over all running requests. Default: as many as fit 2 GiB, at least one context and at most `max_running` contexts. Never less
    /// than one context. SGLang: `--max-total-tokens`.
    pub max_total_tokens: Option<usize>,
    /// Prompt and answer together, tokens. Default: what the model's config says. SGLang: `--context-length`.
    pub context_len: Option<usize>,
    /// Prompt tokens in one step; longer prompts are taken in pieces. Default 512. SGLang: `--chunked-prefill-size`.
    pub max_prefill_tokens: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_running: 64,
            max_waiting: usize::MAX,
            max_total_tokens: None,
            context_len: None,
            max_prefill_tokens: 512,
        }
    }
}

/// Bytes of cache the default of [`EngineConfig::max_total_tokens`] stays within.
const DEFAULT_KV_BYTES: usize = 2 << 30;

/// A running engine. Dropping it ends all requests with [`Finish::Abort`] and waits for the thread.
#[derive(Debug)]
pub struct Engine {
    commands: Sender<Command>,
    live: Arc<LiveRequests>,
    stats: Arc<SharedStats>,
    limits: Limits,
    thread: Option<JoinHandle<()>>,
}

/// The limits as they hold, with no `Option` left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_running: usize,
    pub(crate) max_waiting: usize,
    pub(crate) max_total_tokens: usize,
    pub(crate) context_len: usize,
    pub(crate) max_prefill_tokens: usize,
    pub(crate) vocab_size: usize,
}

impl Limits {
    fn settle(config: &EngineConfig, model: &LlamaModel) -> Self {
        let max_running = config.max_running.max(1);
        let context_len = config.context_len.unwrap_or(model.config().context_len).max(1);
        let by_memory = DEFAULT_KV_BYTES / model.kv_bytes_per_token();
        let max_total_tokens =
            config.max_total_tokens.unwrap_or_else(|| by_memory.min(max_running.saturating_mul(context_len)));
        Self {
            max_running,
            max_waiting: config.max_waiting,
            max_total_tokens: max_total_tokens.max(context_len),
            context_len,
            max_prefill_tokens: config.max_prefill_tokens.max(1),
            vocab_size: model.config().vocab_size,
        }
    }
}

/// Names of the requests that are waiting or running.
#[derive(Debug, Default)]
pub(crate) struct LiveRequests {
    rids: Mutex<HashSet<String>>,
}

impl LiveRequests {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.rids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Starts the thread. `stop_ids` are the model's own end tokens ([`crate::Target::eos_token_ids`]).
    pub fn start(model: Arc<LlamaModel>, stop_ids: Vec<u32>, config: &EngineConfig) -> std::io::Result<Self> {
        let limits = Limits::settle(config, &model);
        let (commands, inbox) = channel();
        let live = Arc::new(LiveRequests::default());
        let stats = Arc::new(SharedStats::new(&limits));
        let scheduler = Scheduler::new(model, stop_ids, limits, Arc::clone(&live), Arc::clone(&stats));
        let thread = std::thread::Builder::new().name("eyas-engine".into()).spawn(move || scheduler.run(&inbox))?;
        Ok(Self { commands, live, stats, limits, thread: Some(thread) })
    }

    /// Queues a request. Its sink is called from the engine's thread from now on, unless this returns an error.
    pub fn submit(&self, request: Request) -> Result<(), SubmitError> {
        self.check(&request)?;
        let rid = request.rid.clone();
        let admitted =
            Admitted { seed: request.sampling.seed.unwrap_or_else(drawn_seed), request, submitted: Instant::now() };
        {
            let mut live = self.live.lock();
            let waiting = live.len().saturating_sub(self.limits.max_running);
            if live.contains(&rid) {
                return Err(SubmitError::DuplicateRid { rid });
            }
            if live.len() >= self.limits.max_running.saturating_add(self.limits.max_waiting) {
                return Err(SubmitError::QueueFull { waiting, limit: self.limits.max_waiting });
            }
            live.insert(rid.clone());
        }
        self.commands.send(Command::Submit(Box::new(admitted))).map_err(|_| {
            self.live.lock().remove(&rid);
            SubmitError::Stopped
        })
    }

    /// Gives a request up: it ends with [`Finish::Abort`] after the step at hand. An unknown name is no error; the request may just have ended.
    pub fn abort(&self, rid: &str) {
        // A stopped engine has ended all its requests already.
        self.commands.send(Command::Abort(rid.to_owned())).unwrap_or_default();
    }

    /// Gives all requests up.
    pub fn abort_all(&self) {
        self.commands.send(Command::AbortAll).unwrap_or_default();
    }

    /// The figures after the last step.
    pub fn stats(&self) -> EngineStats {
        self.stats.snapshot(self.live.lock().len())
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let Limits { context_len, vocab_size, .. } = self.limits;
        let prompt_tokens = request.input_ids.len();
        let max_new_tokens = request.sampling.max_new_tokens as usize;
        let total_tokens = prompt_tokens.saturating_add(max_new_tokens);
        if let Some(problem) = request.sampling.problem() {
            return Err(SubmitError::InvalidSampling { problem });
        }
        if prompt_tokens == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if let Some(position) = request.input_ids.iter().position(|&id| id as usize >= vocab_size) {
            return Err(SubmitError::TokenOutOfVocabulary { id: request.input_ids[position], position, vocab_size });
        }
        if prompt_tokens >= context_len {
            return Err(SubmitError::PromptTooLong { prompt_tokens, context_len });
        }
        if total_tokens > context_len {
            return Err(SubmitError::TotalTooLong { prompt_tokens, max_new_tokens, total_tokens, context_len });
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.commands.send(Command::Stop).unwrap_or_default();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed where it happened; there is nobody to hand it to here.
            thread.join().unwrap_or_default();
        }
    }
}

/// A seed for a request that brings none, from the keys the standard library draws for its hash maps.
fn drawn_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
