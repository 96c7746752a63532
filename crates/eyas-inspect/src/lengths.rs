//! Exact counts of lengths, and the statistics they give.
//!
//! Token counts are small capped integers, so every value has a counter of its own: quantiles are exact, and two sets merge by addition.

use crate::document::{Bin, LengthStats, LongestShare, ThresholdCount, Unit};
use std::collections::BTreeMap;

/// Values below this have a counter in a vector, larger ones in a map.
const N_DENSE: u64 = 1 << 16;

/// How often each length occurs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LengthCounts {
    /// Grown by powers of two, so that many small groups stay small.
    dense: Vec<u32>,
    sparse: BTreeMap<u64, u64>,
    n: u64,
    sum: u64,
}

impl LengthCounts {
    /// Counts one length.
    #[inline]
    pub(crate) fn add(&mut self, length: u64) {
        self.add_many(length, 1);
    }

    fn add_many(&mut self, length: u64, count: u64) {
        self.n += count;
        self.sum = self.sum.saturating_add(length.saturating_mul(count));
        let place = usize::try_from(length).ok().filter(|_| length < N_DENSE);
        if let (Some(place), Ok(count)) = (place, u32::try_from(count)) {
            if place >= self.dense.len() {
                self.dense.resize((place + 1).next_power_of_two(), 0);
            }
            if let Some(sum) = self.dense[place].checked_add(count) {
                self.dense[place] = sum;
                return;
            }
        }
        *self.sparse.entry(length).or_default() += count;
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (length, count) in other.iter() {
            self.add_many(length, count);
        }
    }

    /// How many lengths were counted.
    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    /// Their sum.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Lengths that occur, with their counts, ascending (a length whose dense counter is full comes twice).
    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        let dense = self.dense.iter().enumerate().filter(|(_, count)| **count > 0);
        dense.map(|(length, count)| (length as u64, u64::from(*count))).chain(self.sparse.iter().map(|(l, c)| (*l, *c)))
    }

    /// The statistics, for what `population` says.
    pub(crate) fn stats(&self, population: &str, unit: Unit, thresholds: &[u64]) -> LengthStats {
        let n = self.n as f64;
        let mean = (self.n > 0).then(|| self.sum as f64 / n);
        let moment = |power: i32| {
            let mean = mean?;
            let sum: f64 = self.iter().map(|(length, count)| count as f64 * (length as f64 - mean).powi(power)).sum();
            Some(sum / n)
        };
        let variance = moment(2);
        let stdev_sample = variance.filter(|_| self.n > 1).map(|variance| (variance * n / (n - 1.0)).sqrt());
        let half_width = stdev_sample.map(|stdev| 1.96 * stdev / n.sqrt());
        let quantile = Quantiles::new(self);
        LengthStats {
            population: population.to_owned(),
            unit,
            n: self.n,
            sum: self.sum,
            mean,
            mean_ci95: mean.zip(half_width).map(|(mean, half)| [mean - half, mean + half]),
            stdev: variance.map(f64::sqrt),
            stdev_sample,
            skew: variance.filter(|v| *v > 0.0).zip(moment(3)).map(|(m2, m3)| m3 / m2.powf(1.5)),
            min: self.iter().next().map(|(length, _)| length),
            median: quantile.at(0.5),
            p90: quantile.at(0.9),
            p95: quantile.at(0.95),
            p99: quantile.at(0.99),
            max: self.iter().next_back().map(|(length, _)| length),
            at_least: self.at_least(thresholds),
            longest: [0.01, 0.05, 0.1].into_iter().filter_map(|share| self.longest(share)).collect(),
            histogram: self.histogram(),
        }
    }

    fn at_least(&self, thresholds: &[u64]) -> Vec<ThresholdCount> {
        let count = |limit: u64| self.iter().filter(|(length, _)| *length >= limit).map(|(_, count)| count).sum();
        let row = |at_least: &u64| {
            let count: u64 = count(*at_least);
            ThresholdCount { at_least: *at_least, count, share: count as f64 / self.n.max(1) as f64 }
        };
        thresholds.iter().map(row).collect()
    }

    /// What the longest `share` of the lengths (rounded up) hold of the sum.
    fn longest(&self, share: f64) -> Option<LongestShare> {
        if self.sum == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
        let wanted = (self.n as f64 * share).ceil() as u64;
        let (mut left, mut sum) = (wanted, 0);
        for (length, count) in self.iter().rev() {
            let taken = count.min(left);
            sum += taken * length;
            left -= taken;
            if left == 0 {
                break;
            }
        }
        Some(LongestShare { of_answers: share, count: wanted, of_sum: sum as f64 / self.sum as f64 })
    }

    /// Bins on a logarithmic axis; at most 16, without empty ones at either end.
    fn histogram(&self) -> Vec<Bin> {
        const FINE: &[u64] = &[10, 15, 20, 30, 50, 70];
        const COARSE: &[u64] = &[10, 20, 50];
        const DECADES: &[u64] = &[10];
        const MAX_BINS: usize = 16;
        let mut bins = Vec::new();
        for steps in [FINE, COARSE, DECADES] {
            bins = self.bins(steps);
            if bins.len() <= MAX_BINS {
                return bins;
            }
            // What is left of the first half per cent fits into one bin and would only lengthen the axis.
            let few = self.n / 200;
            let mut seen = 0;
            let n_small = bins
                .iter()
                .take_while(|bin| {
                    seen += bin.count;
                    seen <= few
                })
                .count();
            if n_small > 1 && bins.len() - n_small < MAX_BINS {
                let rest = bins.split_off(n_small);
                let count = bins.iter().map(|bin| bin.count).sum();
                let first = Bin { from: bins[0].from, to: rest[0].from, count };
                return std::iter::once(first).chain(rest).collect();
            }
        }
        bins
    }

    /// Bins with edges at `steps` times powers of ten (tenths of `steps` below ten), and 0 and 1 on their own.
    fn bins(&self, steps: &[u64]) -> Vec<Bin> {
        let mut edges = vec![0, 1];
        let mut scale: u64 = 1;
        while let Some(top) = scale.checked_mul(steps[0]).filter(|_| scale < 1 << 58) {
            edges.extend(steps.iter().map(|step| step * scale / 10).filter(|edge| *edge > 1));
            scale = top;
        }
        edges.dedup();
        let mut bins: Vec<Bin> = edges.windows(2).map(|pair| Bin { from: pair[0], to: pair[1], count: 0 }).collect();
        for (length, count) in self.iter() {
            let place = edges.partition_point(|edge| *edge <= length).saturating_sub(1).min(bins.len() - 1);
            bins[place].count += count;
        }
        let first = bins.iter().position(|bin| bin.count > 0).unwrap_or(bins.len());
        let last = bins.iter().rposition(|bin| bin.count > 0).map_or(first, |place| place + 1);
        bins.drain(first..last).collect()
    }
}

/// Order statistics over counts.
struct Quantiles {
    /// Length, and how many lengths are at most as long.
    steps: Vec<(u64, u64)>,
}

impl Quantiles {
    fn new(counts: &LengthCounts) -> Self {
        let mut seen = 0;
        let steps = counts
            .iter()
            .map(|(length, count)| {
                seen += count;
                (length, seen)
            })
            .collect();
        Self { steps }
    }

    /// Length of rank `rank`, from 0.
    fn rank(&self, rank: u64) -> f64 {
        let place = self.steps.partition_point(|(_, seen)| *seen <= rank);
        self.steps.get(place).or(self.steps.last()).map_or(0.0, |(length, _)| *length as f64)
    }

    /// The quantile `q`, linear between the two nearest ranks: numpy's default, in numpy's order of operations.
    fn at(&self, q: f64) -> Option<f64> {
        let (_, n) = self.steps.last()?;
        let place = q * (n - 1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank: not negative, below n")]
        let lower = place.floor() as u64;
        let (a, b) = (self.rank(lower), self.rank((lower + 1).min(n - 1)));
        let t = place - place.floor();
        Some(if t < 0.5 { a + (b - a) * t } else { b - (b - a) * (1.0 - t) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(lengths: &[u64]) -> LengthCounts {
        let mut counts = LengthCounts::default();
        lengths.iter().for_each(|length| counts.add(*length));
        counts
    }

    #[test]
    fn nothing_has_no_statistics_and_does_not_crash() {
        let stats = LengthCounts::default().stats("none", Unit::Tokens, &[1024]);
        assert_eq!(
            (stats.n, stats.mean, stats.median, stats.p99, stats.max, stats.mean_ci95),
            (0, None, None, None, None, None)
        );
        assert!(stats.histogram.is_empty() && stats.longest.is_empty());
        assert_eq!(stats.at_least[0].count, 0);
    }

    #[test]
    fn two_values_follow_the_documented_rule() {
        let stats = counts(&[10, 20]).stats("two", Unit::Tokens, &[20]);
        assert_eq!((stats.mean, stats.median, stats.stdev), (Some(15.0), Some(15.0), Some(5.0)));
        assert_eq!(stats.p99, Some(19.9));
        assert_eq!(stats.at_least[0].count, 1);
        assert!((stats.stdev_sample.unwrap() - 50.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn the_longest_tenth_is_rounded_up() {
        let stats = counts(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 90]).stats("", Unit::Tokens, &[]);
        let tenth = &stats.longest[2];
        assert_eq!((tenth.count, tenth.of_sum), (2, 0.91));
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_sorted_values(mut lengths in prop::collection::vec(0_u64..200_000, 1..300)) {
            let stats = counts(&lengths).stats("", Unit::Tokens, &[]);
            lengths.sort_unstable();
            for (q, got) in [(0.5, stats.median), (0.9, stats.p90), (0.95, stats.p95), (0.99, stats.p99)] {
                let place = q * (lengths.len() - 1) as f64;
                let rank = (0..lengths.len()).rfind(|rank| *rank as f64 <= place).unwrap();
                let (low, high) = (lengths[rank] as f64, lengths[(rank + 1).min(lengths.len() - 1)] as f64);
                let expect = low + (high - low) * place.fract();
                prop_assert!((got.unwrap() - expect).abs() <= 1e-9 * expect.max(1.0), "{q}: {got:?} {expect}");
            }
            prop_assert_eq!(stats.histogram.iter().map(|bin| bin.count).sum::<u64>(), lengths.len() as u64);
            prop_assert!(stats.histogram.len() <= 16);
            prop_assert!(stats.histogram.windows(2).all(|pair| pair[0].to == pair[1].from));
        }

        #[test]
        fn merging_is_counting_together(a in prop::collection::vec(0_u64..100_000, 0..99), b in prop::collection::vec(0_u64..100_000, 0..99)) {
            let mut merged = counts(&a);
            merged.merge(&counts(&b));
            let all = counts(&[a, b].concat());
            prop_assert_eq!(merged.stats("", Unit::Tokens, &[]), all.stats("", Unit::Tokens, &[]));
        }
    }
}
