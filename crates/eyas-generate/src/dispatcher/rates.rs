//! Answers and tokens a second over the last half minute.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(30);

/// Running totals, remembered at each tick.
#[derive(Debug)]
pub(crate) struct Rates {
    marks: VecDeque<(Instant, u64, u64)>,
    n_answers: u64,
    n_tokens: u64,
}

impl Rates {
    pub(crate) fn new(now: Instant) -> Self {
        Self { marks: VecDeque::from([(now, 0, 0)]), n_answers: 0, n_tokens: 0 }
    }

    pub(crate) fn answered(&mut self, n_tokens: u64) {
        self.n_answers += 1;
        self.n_tokens += n_tokens;
    }

    /// Sets a mark and forgets those that are older than the window, but for the last of them.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.marks.push_back((now, self.n_answers, self.n_tokens));
        while self.marks.get(1).is_some_and(|(at, ..)| now - *at >= WINDOW) {
            self.marks.pop_front();
        }
    }

    pub(crate) fn per_second(&self, now: Instant) -> (f64, f64) {
        let Some((since, n_answers, n_tokens)) = self.marks.front() else { return (0.0, 0.0) };
        let seconds = (now - *since).as_secs_f64();
        if seconds < 1e-3 {
            return (0.0, 0.0);
        }
        #[expect(clippy::cast_precision_loss, reason = "counts within half a minute")]
        let rate = |n: u64| n as f64 / seconds;
        (rate(self.n_answers - n_answers), rate(self.n_tokens - n_tokens))
    }
}
