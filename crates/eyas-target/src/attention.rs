//! Causal attention of the tokens of one step over their sequences' caches.
//!
//! Every token is worked on by itself, block by block in the order of positions: its result depends on its own sequence alone, to the bit,
//! whatever else is in the step and however the prompt was cut into chunks.

use crate::kv::{BLOCK_TOKENS, KvCache};
use crate::math::{dispatched, exp};
use rayon::prelude::*;

/// Where a token of the step stands: which sequence, and how many tokens it sees (its own included).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) sequence: usize,
    pub(crate) n_tokens: usize,
}

/// Multiply-adds under which a step is not worth handing to other threads.
const PARALLEL_WORK: usize = 2_000_000;

/// Values worked on together.
const LANES: usize = 8;

/// Attention of one layer.
///
/// `query`: rows of `row_len` values, of which the first `n_heads * head_dim` are the queries after rope; `out`: `[n_tokens, n_heads * head_dim]`.
pub(crate) fn attend(
    caches: &[&KvCache],
    layer_idx: usize,
    seen: &[Seen],
    query: &[f32],
    row_len: usize,
    out: &mut [f32],
) {
    let Some(width) = out.len().checked_div(seen.len()) else { return };
    let work: usize = seen.iter().map(|s| s.n_tokens * 2 * width).sum();
    let attend_row = |scores: &mut Vec<f32>, (row, out): (usize, &mut [f32])| {
        let Seen { sequence, n_tokens } = seen[row];
        attend_token(caches[sequence], layer_idx, n_tokens, &query[row * row_len..][..width], scores, out);
    };
    if work >= PARALLEL_WORK && rayon::current_num_threads() > 1 {
        out.par_chunks_exact_mut(width).enumerate().for_each_init(Vec::new, attend_row);
    } else {
        let mut scores = Vec::new();
        out.chunks_exact_mut(width).enumerate().for_each(|row| attend_row(&mut scores, row));
    }
}

dispatched! {
    fn attend_token(
        kv: &KvCache,
        layer_idx: usize,
        n_tokens: usize,
        query: &[f32],
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) = attend_heads
}

#[inline(always)]
fn attend_heads(
    kv: &KvCache,
    layer_idx: usize,
    n_tokens: usize,
    query: &[f32],
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let shape = kv.shape();
    let group = query.len() / shape.n_kv_heads;
    let pair = 2 * shape.head_dim;
    let groups = query.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate();
    for (kv_head, (query, out)) in groups {
        let head = Head { kv, layer_idx, kv_head, n_tokens };
        // Two heads at once on the same keys and values: enough independent sums to fill the pipeline.
        for (query, out) in query.chunks(pair).zip(out.chunks_mut(pair)) {
            if query.len() == pair {
                head.attend::<2>(query, scores, out)
            } else {
                head.attend::<1>(query, scores, out)
            }
        }
    }
}

/// Keys and values that one or more query heads look at.
struct Head<'a> {
    kv: &'a KvCache,
    layer_idx: usize,
    kv_head: usize,
    n_tokens: usize,
}

impl Head<'_> {
    /// `query`, `out`: `[N_HEADS, head_dim]`.
    #[inline(always)]
    fn attend<const N_HEADS: usize>(&self, query: &[f32], scores: &mut Vec<f32>, out: &mut [f32]) {
        let head_dim = query.len() / N_HEADS;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let n_blocks = self.n_tokens.div_ceil(BLOCK_TOKENS);
        let row_len = n_blocks * BLOCK_TOKENS;
        scores.resize(N_HEADS * row_len, 0.0);
        for (block_idx, (keys, _)) in self.kv.head(self.layer_idx, self.kv_head).take(n_blocks).enumerate() {
            let sums = block_scores::<N_HEADS>(query, keys);
            for (scores, sums) in scores.chunks_exact_mut(row_len).zip(sums) {
                for (score, sum) in scores[block_idx * BLOCK_TOKENS..].iter_mut().zip(sums) {
                    *score = sum * scale;
                }
            }
        }
        let mut totals = [0f32; N_HEADS];
        for (scores, total) in scores.chunks_exact_mut(row_len).zip(&mut totals) {
            *total = softmax_numerators(&mut scores[..self.n_tokens]);
        }
        out.fill(0.0);
        for (block_idx, (_, values)) in self.kv.head(self.layer_idx, self.kv_head).take(n_blocks).enumerate() {
            let first = block_idx * BLOCK_TOKENS;
            let n_tokens = BLOCK_TOKENS.min(self.n_tokens - first);
            let weights = std::array::from_fn(|head| &scores[head * row_len + first..][..n_tokens]);
            add_weighted::<N_HEADS>(weights, values, out);
        }
        for (out, total) in out.chunks_exact_mut(head_dim).zip(totals) {
            let inverse = 1.0 / total;
            out.iter_mut().for_each(|value| *value *= inverse);
        }
    }
}

/// `sums[h][t] = Σ_i query[h, i] keys[i, t]`; `query` is `[N_HEADS, head_dim]`, `keys` `[head_dim, BLOCK_TOKENS]`.
#[inline(always)]
fn block_scores<const N_HEADS: usize>(query: &[f32], keys: &[f32]) -> [[f32; BLOCK_TOKENS]; N_HEADS] {
    let head_dim = query.len() / N_HEADS;
    let queries: [&[f32]; N_HEADS] = std::array::from_fn(|head| &query[head * head_dim..][..head_dim]);
    let mut sums = [[0f32; BLOCK_TOKENS]; N_HEADS];
    for (i, keys) in keys.as_chunks::<BLOCK_TOKENS>().0.iter().take(head_dim).enumerate() {
        for (sums, query) in sums.iter_mut().zip(queries) {
            let query = query[i];
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum += query * key;
            }
        }
    }
    sums
}

/// Replaces scores by `e^(score - max)` and returns their sum, taken in eight lanes.
#[inline(always)]
fn softmax_numerators(scores: &mut [f32]) -> f32 {
    let mut max = [f32::NEG_INFINITY; LANES];
    for chunk in scores.chunks(LANES) {
        for (max, &score) in max.iter_mut().zip(chunk) {
            *max = if score > *max { score } else { *max };
        }
    }
    let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0f32; LANES];
    for chunk in scores.chunks_mut(LANES) {
        for (sum, score) in sums.iter_mut().zip(chunk) {
            *score = exp(*score - max);
            *sum += *score;
        }
    }
    sums.iter().sum()
}

/// `out[h] += Σ_t weights[h][t] × values[t]`; `values` is `[BLOCK_TOKENS, head_dim]`, `out` `[N_HEADS, head_dim]`.
#[inline(always)]
fn add_weighted<const N_HEADS: usize>(weights: [&[f32]; N_HEADS], values: &[f32], out: &mut [f32]) {
    let head_dim = out.len() / N_HEADS;
    let mut at = 0;
    while head_dim - at >= 4 * LANES {
        add_weighted_columns::<N_HEADS, 4>(weights, values, at, out);
        at += 4 * LANES;
    }
    while head_dim - at >= LANES {
        add_weighted_columns::<N_HEADS, 1>(weights, values, at, out);
        at += LANES;
    }
    for (weights, out) in weights.into_iter().zip(out.chunks_exact_mut(head_dim)) {
        for (i, out) in out.iter_mut().enumerate().skip(at) {
            for (&weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
                *out += weight * values[i];
            }
        }
    }
}

/// The `N × LANES` columns from `at` on of [`add_weighted`], with the sums held in registers.
#[inline(always)]
fn add_weighted_columns<const N_HEADS: usize, const N: usize>(
    weights: [&[f32]; N_HEADS],
    values: &[f32],
    at: usize,
    out: &mut [f32],
) {
    let head_dim = out.len() / N_HEADS;
    let n_tokens = weights[0].len();
    let weights = weights.map(|weights| &weights[..n_tokens]);
    let mut sums = [[[0f32; LANES]; N]; N_HEADS];
    for t in 0..n_tokens {
        let values = &values[t * head_dim + at..][..N * LANES];
        let (values, _) = values.as_chunks::<LANES>();
        for lane in 0..N {
            for head in 0..N_HEADS {
                sums[head][lane] = multiply_add(sums[head][lane], weights[head][t], values[lane]);
            }
        }
    }
    for (sums, out) in sums.iter().zip(out.chunks_exact_mut(head_dim)) {
        for (out, sum) in out[at..].iter_mut().zip(sums.as_flattened()) {
            *out += sum;
        }
    }
}

/// `sums + weight × values`.
#[inline(always)]
fn multiply_add(sums: [f32; LANES], weight: f32, values: [f32; LANES]) -> [f32; LANES] {
    std::array::from_fn(|lane| sums[lane] + weight * values[lane])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvPool, KvShape};

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    fn check(head_dim: usize, n_kv_heads: usize, group: usize, n_tokens: usize) {
        let shape = KvShape { n_layers: 1, n_kv_heads, head_dim };
        let mut kv = KvCache::new(shape, KvPool::default());
        let width = n_kv_heads * head_dim;
        let (keys, values) = (wave(n_tokens * width, 0.31), wave(n_tokens * width, 0.17));
        kv.reserve(n_tokens);
        for t in 0..n_tokens {
            kv.write(0, t, &keys[t * width..][..width], &values[t * width..][..width]);
        }
        let query = wave(width * group, 0.73);
        let mut out = vec![0.0; width * group];
        attend(&[&kv], 0, &[Seen { sequence: 0, n_tokens }], &query, query.len(), &mut out);

        for head in 0..n_kv_heads * group {
            let kv_head = head / group;
            let q = &query[head * head_dim..][..head_dim];
            let at = |all: &[f32], t: usize, i: usize| f64::from(all[t * width + kv_head * head_dim + i]);
            let weights: Vec<f64> = (0..n_tokens)
                .map(|t| (0..head_dim).map(|i| f64::from(q[i]) * at(&keys, t, i)).sum::<f64>())
                .map(|score| (score / (head_dim as f64).sqrt()).exp())
                .collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..head_dim {
                let want = (0..n_tokens).map(|t| weights[t] / sum * at(&values, t, i)).sum::<f64>();
                let got = f64::from(out[head * head_dim + i]);
                assert!((got - want).abs() < 2e-5, "head {head} value {i}: {got} {want}");
            }
        }
    }

    #[test]
    fn attention_agrees_with_the_definition() {
        check(32, 2, 2, 70);
        check(64, 1, 3, 32);
        check(12, 1, 1, 1);
        check(41, 2, 4, 33);
    }
}
