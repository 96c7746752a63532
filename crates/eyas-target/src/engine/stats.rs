//! What an engine tells about itself.

use super::Limits;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Figures of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineStats {
    /// Requests being answered.
    pub running: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Requests that ended by a stop token or their cap.
    pub finished: u64,
    /// Requests that were given up.
    pub aborted: u64,
    /// Prompt tokens computed, those of retracted requests counted again.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Times a request stepped back for want of cache space.
    pub retractions: u64,
    /// Steps of the model.
    pub steps: u64,
    /// Tokens in the cache.
    pub kv_tokens: usize,
    /// Tokens the cache may hold.
    pub max_total_tokens: usize,
    /// Tokens generated per second over the last second or so in which there was work.
    pub gen_throughput: f64,
    /// Requests answered at once at most.
    pub max_running: usize,
    /// Tokens of prompt and answer together.
    pub context_len: usize,
    /// Ids are below this.
    pub vocab_size: usize,
}

/// The figures as the engine's thread leaves them.
#[derive(Debug)]
pub(crate) struct SharedStats {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    stats: EngineStats,
    /// Start of the stretch over which the throughput is taken, and the tokens generated before it.
    window: (Instant, u64),
}

const WINDOW: Duration = Duration::from_millis(1000);

impl SharedStats {
    pub(crate) fn new(limits: &Limits) -> Self {
        let stats = EngineStats {
            running: 0,
            waiting: 0,
            finished: 0,
            aborted: 0,
            prompt_tokens: 0,
            generated_tokens: 0,
            retractions: 0,
            steps: 0,
            kv_tokens: 0,
            max_total_tokens: limits.max_total_tokens,
            gen_throughput: 0.0,
            max_running: limits.max_running,
            context_len: limits.context_len,
            vocab_size: limits.vocab_size,
        };
        Self { inner: Mutex::new(Inner { stats, window: (Instant::now(), 0) }) }
    }

    /// A copy, with the waiting counted from `n_live`, the requests that are waiting or running at this moment.
    pub(crate) fn snapshot(&self, n_live: usize) -> EngineStats {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = inner.stats.clone();
        EngineStats { waiting: n_live.saturating_sub(stats.running), ..stats }
    }

    /// Lets the engine's thread change the figures.
    pub(crate) fn update(&self, change: impl FnOnce(&mut EngineStats)) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inner.stats);
    }

    /// Closes the stretch of the throughput when it is long enough.
    pub(crate) fn roll_window(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = inner.window;
        let elapsed = since.elapsed();
        if elapsed >= WINDOW {
            inner.stats.gen_throughput = (inner.stats.generated_tokens - before) as f64 / elapsed.as_secs_f64();
            inner.window = (Instant::now(), inner.stats.generated_tokens);
        }
    }

    /// Starts a new stretch after a time without work.
    pub(crate) fn restart_window(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.window = (Instant::now(), inner.stats.generated_tokens);
    }
}
