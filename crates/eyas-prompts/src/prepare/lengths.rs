//! Running figures over lengths.

use super::report::LengthReport;

/// Running figures over lengths in tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lengths {
    n: u64,
    shortest: u32,
    longest: u32,
    total: u64,
}

impl Lengths {
    pub(super) fn add(&mut self, n_tokens: u32) {
        self.shortest = if self.n == 0 { n_tokens } else { self.shortest.min(n_tokens) };
        self.longest = self.longest.max(n_tokens);
        self.n += 1;
        self.total += u64::from(n_tokens);
    }

    pub(super) fn report(self, limit: Option<u32>) -> Option<LengthReport> {
        let Self { n, shortest, longest, total } = self;
        let mean = ratio(total, n);
        (n > 0).then_some(LengthReport { n, shortest, longest, total, mean, limit })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}
