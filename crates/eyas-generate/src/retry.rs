//! Failed tries wait here, not in a slot.

use crate::plan::Retries;
use crate::slot::Job;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait a server may ask for with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Jobs by the time of their next try.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Waiting>,
    n_pushed: u64,
}

struct Waiting {
    due: Instant,
    number: u64,
    job: Job,
}

impl Timers {
    pub(crate) fn push(&mut self, due: Instant, job: Job) {
        self.n_pushed += 1;
        self.heap.push(Waiting { due, number: self.n_pushed, job });
    }

    /// The next job that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Job> {
        if self.heap.peek().is_some_and(|waiting| waiting.due <= now) {
            return self.heap.pop().map(|waiting| waiting.job);
        }
        None
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|waiting| waiting.due)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

// The heap is a max-heap: the earliest is the greatest.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

/// How long to wait.
pub(crate) struct Backoff {
    retries: Retries,
    rng: StdRng,
}

impl Backoff {
    pub(crate) fn new(retries: Retries, seed: u64) -> Self {
        Self { retries, rng: StdRng::seed_from_u64(seed ^ 0x6261_636b_6f66_6621) }
    }

    /// After the `n`-th failure in a row: doubles, up to the longest, and a random half is taken off so that retries do not march in step.
    pub(crate) fn pause(&mut self, n: u32) -> Duration {
        let Retries { base_pause, max_pause, .. } = self.retries;
        let doubled = base_pause.saturating_mul(1 << n.saturating_sub(1).min(20));
        doubled.min(max_pause).mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// After the `n`-th refusal by a full server that asked for `at_least`.
    pub(crate) fn refusal(&mut self, n: u32, at_least: Option<Duration>) -> Duration {
        // Nobody who was told to wait a second should come back with all the others after exactly that.
        let asked = at_least.unwrap_or_default().min(MAX_RETRY_AFTER).mul_f64(self.rng.random_range(1.0..=1.25));
        asked.max(self.pause(n.min(6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_lose_up_to_half() {
        let mut backoff = Backoff::new(Retries::default(), 1);
        for (n, full_ms) in [(1, 500), (2, 1_000), (3, 2_000), (7, 30_000), (1_000_000, 30_000)] {
            for _ in 0..50 {
                let pause = backoff.pause(n);
                let full = Duration::from_millis(full_ms);
                assert!(pause <= full && pause >= full / 2, "{n}: {pause:?}");
            }
        }
        let asked = Duration::from_secs(7);
        assert!((asked..asked * 2).contains(&backoff.refusal(1, Some(asked))));
        assert!(backoff.refusal(1, Some(Duration::from_secs(86_400))) <= MAX_RETRY_AFTER * 2);
    }
}
