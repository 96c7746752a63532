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
    let head_dim = shape.head_dim;
    let group = query.len() / (shape.n_kv_heads * head_dim);
    let scale = 1.0 / (head_dim as f32).sqrt();
    let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS);
    for (head, (query, out)) in query.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).enumerate() {
        let kv_head = head / group;
        scores.resize(n_blocks * BLOCK_TOKENS, 0.0);
        for ((keys, _), scores) in kv.head(layer_idx, kv_head).zip(scores.chunks_exact_mut(BLOCK_TOKENS)) {
            block_scores(query, keys, scale, scores);
        }
        scores.truncate(n_tokens);
        let sum = softmax_numerators(scores);
        out.fill(0.0);
        for ((_, values), weights) in kv.head(layer_idx, kv_head).zip(scores.chunks(BLOCK_TOKENS)) {
            add_weighted(weights, values, out);
        }
        let inverse = 1.0 / sum;
        out.iter_mut().for_each(|value| *value *= inverse);
    }
}

/// `scores[t] = scale × Σ_i query[i] keys[i, t]`; `keys` is `[head_dim, BLOCK_TOKENS]`.
#[inline(always)]
fn block_scores(query: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
    let mut sums = [0f32; BLOCK_TOKENS];
    for (&query, keys) in query.iter().zip(keys.chunks_exact(BLOCK_TOKENS)) {
        for (sum, &key) in sums.iter_mut().zip(keys) {
            *sum += query * key;
        }
    }
    for (score, sum) in scores.iter_mut().zip(sums) {
        *score = sum * scale;
    }
}

/// Replaces scores by `e^(score - max)` and returns their sum, taken in eight lanes.
#[inline(always)]
fn softmax_numerators(scores: &mut [f32]) -> f32 {
    const LANES: usize = 8;
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

/// `out += Σ_t weights[t] × values[t]`; `values` is `[BLOCK_TOKENS, head_dim]`.
#[inline(always)]
fn add_weighted(weights: &[f32], values: &[f32], out: &mut [f32]) {
    let head_dim = out.len();
    let mut at = 0;
    while head_dim - at >= 32 {
        add_weighted_columns::<32>(weights, values, at, out);
        at += 32;
    }
    while head_dim - at >= 8 {
        add_weighted_columns::<8>(weights, values, at, out);
        at += 8;
    }
    while at < head_dim {
        add_weighted_columns::<1>(weights, values, at, out);
        at += 1;
    }
}

/// The columns `[at, at + N)` of [`add_weighted`], with the sums held in registers. Two heads at once on the same keys and values were tried
/// and are half as fast: the compiler runs out of registers.
#[inline(always)]
fn add_weighted_columns<const N: usize>(weights: &[f32], values: &[f32], at: usize, out: &mut [f32]) {
    let head_dim = out.len();
    let out = &mut out[at..][..N];
    let mut sums = [0f32; N];
    sums.copy_from_slice(out);
    for (&weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
        for (sum, &value) in sums.iter_mut().zip(&values[at..][..N]) {
            *sum += weight * value;
        }
    }
    out.copy_from_slice(&sums);
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
