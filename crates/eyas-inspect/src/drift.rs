//! How a figure changes along a file: windows that grow with the file, means of the first n, and the cut that leaves two unlike parts.

use crate::document::{ChangePoint, FirstN, Window};

/// Most windows that are kept; when they are full, neighbours are joined and windows are twice as long from then on.
const MAX_WINDOWS: usize = 512;
/// Windows that the report shows at most.
const SHOWN_WINDOWS: usize = 64;
/// Fewest answers on either side of a cut: below, the mean of a long-tailed law is not near a normal one.
const MIN_PART: u64 = 40;
/// Rare events that a part must have room for.
const MIN_EVENTS: f64 = 5.0;
/// Standard errors from which a change is named. The best of some hundred cuts is looked at, so 2 or 3 would be reached by chance.
const MIN_Z: f64 = 5.0;

/// Sums over consecutive values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Part {
    n: u64,
    sum: f64,
    squares: f64,
}

impl Part {
    fn add(&mut self, value: f64) {
        *self += Self { n: 1, sum: value, squares: value * value };
    }

    fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    /// Variance of one value, estimated from these.
    fn variance(&self) -> f64 {
        let n = self.n as f64;
        let mean = self.mean();
        (self.squares / n - mean * mean).max(0.0) * n / (n - 1.0)
    }
}

impl std::ops::AddAssign for Part {
    fn add_assign(&mut self, other: Self) {
        self.n += other.n;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

/// A figure along a file, in the order of its rows.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    window: u64,
    windows: Vec<Part>,
    current: Part,
    total: Part,
    /// Sums over the first n, at [`checkpoints`].
    firsts: Vec<Part>,
    next_checkpoint: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            window: 1,
            windows: Vec::new(),
            current: Part::default(),
            total: Part::default(),
            firsts: Vec::new(),
            next_checkpoint: 50,
        }
    }
}

/// 50, 100, 200, 500, 1,000, … and the steps between them at which the first part of a file is remembered exactly.
fn after(checkpoint: u64) -> u64 {
    let mut scale = 1;
    while checkpoint >= 100 * scale {
        scale *= 10;
    }
    [50, 60, 70, 80, 100]
        .into_iter()
        .map(|n| n * scale / 5)
        .chain([20, 25, 30, 40, 50, 60, 70, 80, 100].map(|n| n * scale))
        .filter(|next| *next > checkpoint)
        .min()
        .unwrap_or(u64::MAX)
}

impl Series {
    /// The next value.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        self.total.add(value);
        self.current.add(value);
        if self.current.n == self.window {
            self.windows.push(std::mem::take(&mut self.current));
            if self.windows.len() == MAX_WINDOWS {
                self.join_neighbours();
            }
        }
        if self.total.n == self.next_checkpoint {
            self.firsts.push(self.total);
            self.next_checkpoint = after(self.next_checkpoint);
        }
    }

    #[cold]
    fn join_neighbours(&mut self) {
        let joined = self.windows.chunks_exact(2).map(|pair| {
            let mut both = pair[0];
            both += pair[1];
            both
        });
        self.windows = joined.collect();
        self.window *= 2;
    }

    /// Means of the first 50, 100, 200, 500, … against the mean of all; none that covers the whole file.
    pub(crate) fn first_n(&self) -> Vec<FirstN> {
        let round =
            |n: u64| matches!(n / 10_u64.pow(n.ilog10()), 1 | 2 | 5) && n.is_multiple_of(10_u64.pow(n.ilog10()));
        let whole = self.total.mean();
        let shown = self.firsts.iter().filter(|part| round(part.n) && part.n < self.total.n);
        shown
            .map(|part| FirstN { n: part.n, mean: part.mean(), of_whole: (whole != 0.0).then(|| part.mean() / whole) })
            .collect()
    }

    /// Means over windows of equal size, few enough to be shown.
    pub(crate) fn windows(&self) -> Vec<Window> {
        let joined = self.windows.len().div_ceil(SHOWN_WINDOWS).max(1);
        let mut parts: Vec<Part> = Vec::new();
        for (n, window) in self.windows.iter().enumerate() {
            if n % joined == 0 {
                parts.push(Part::default());
            }
            if let Some(part) = parts.last_mut() {
                *part += *window;
            }
        }
        if self.current.n > 0 {
            parts.push(self.current);
        }
        let mut first = 1;
        let mut window = |part: Part| {
            let window = Window { first, n: part.n, mean: part.mean() };
            first += part.n;
            window
        };
        parts.into_iter().map(&mut window).collect()
    }

    /// The cut with the largest difference of means in standard errors, when it is beyond chance and at least a tenth of the larger mean.
    pub(crate) fn change_point(&self) -> Option<ChangePoint> {
        let mut seen = Part::default();
        let window_ends = self
            .windows
            .iter()
            .map(|window| {
                seen += *window;
                seen
            })
            .collect::<Vec<_>>();
        let cuts = window_ends.iter().chain(&self.firsts);
        let best = cuts.filter_map(|before| self.cut(*before)).max_by(|a, b| a.z.abs().total_cmp(&b.z.abs()))?;
        let larger = |before: f64, after: f64| before.abs().max(after.abs());
        let scale = larger(best.mean_before, best.mean_after);
        // A share is judged by whichever of it and its rest is rarer: 2 % missing that become 6 % are a change, 98 % that become 94 % too.
        let scale =
            if self.is_binary() { scale.min(larger(1.0 - best.mean_before, 1.0 - best.mean_after)) } else { scale };
        let telling = best.z.abs() >= MIN_Z && (best.mean_before - best.mean_after).abs() >= 0.1 * scale;
        telling.then_some(best)
    }

    /// Whether every value is 0 or 1.
    fn is_binary(&self) -> bool {
        self.total.sum.to_bits() == self.total.squares.to_bits()
    }

    fn cut(&self, before: Part) -> Option<ChangePoint> {
        let after = Part {
            n: self.total.n - before.n,
            sum: self.total.sum - before.sum,
            squares: self.total.squares - before.squares,
        };
        let fewest = before.n.min(after.n);
        let rare = if self.is_binary() { self.total.mean().min(1.0 - self.total.mean()) } else { 1.0 };
        // Of a rare event a part must have room for several, else one more or less is a large step.
        if fewest < MIN_PART || (fewest as f64 * rare) < MIN_EVENTS {
            return None;
        }
        let variance = self.total.variance() * (1.0 / before.n as f64 + 1.0 / after.n as f64);
        (variance > 0.0).then(|| ChangePoint {
            n_before: before.n,
            n_after: after.n,
            mean_before: before.mean(),
            mean_after: after.mean(),
            z: (after.mean() - before.mean()) / variance.sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = f64>) -> Series {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.add(value));
        series
    }

    /// Deterministic noise in [0, 1).
    fn noise(n: u64) -> f64 {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn checkpoints_are_round_numbers() {
        let mut n = 50;
        let mut all = vec![n];
        while n < 1200 {
            n = after(n);
            all.push(n);
        }
        insta::assert_compact_debug_snapshot!(all, @"[50, 60, 70, 80, 100, 120, 140, 160, 200, 250, 300, 400, 500, 600, 700, 800, 1000, 1200]");
    }

    #[test]
    fn windows_cover_every_value_once_and_stay_few() {
        for n in [1, 63, 64, 65, 511, 512, 513, 5000] {
            let windows = series((0..n).map(|n| n as f64)).windows();
            assert_eq!(windows.iter().map(|window| window.n).sum::<u64>(), n);
            assert!(windows.len() <= SHOWN_WINDOWS + 1, "{n}: {}", windows.len());
            assert!(windows.windows(2).all(|pair| pair[0].first + pair[0].n == pair[1].first));
        }
    }

    #[test]
    fn a_short_beginning_is_found_where_it_ends() {
        let values = (0..1000).map(|n| if n < 100 { 200.0 + 200.0 * noise(n) } else { 400.0 + 2000.0 * noise(n) });
        let change = series(values).change_point().unwrap();
        assert_eq!((change.n_before, change.n_after), (100, 900));
        assert!(change.mean_before < 320.0 && change.mean_after > 1300.0);
    }

    #[test]
    fn a_field_that_is_filled_from_some_row_on_is_found() {
        let change = series((0..5000).map(|n| if n < 1600 { 0.0 } else { 1.0 })).change_point().unwrap();
        assert_eq!((change.n_before, change.mean_before, change.mean_after), (1600, 0.0, 1.0));
    }

    #[test]
    fn one_law_all_along_has_no_change() {
        for seed in 0..20 {
            let values = (0..3000).map(|n| (7.0 * noise(n + 100_000 * seed)).exp());
            assert_eq!(series(values).change_point(), None, "seed {seed}");
        }
    }
}
