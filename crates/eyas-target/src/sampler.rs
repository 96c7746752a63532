//! How the next token is drawn from a row of logits.
//!
//! The draw is a function of the logits, the parameters, the seed and the number of tokens drawn so far, of nothing else: not of the batch, the
//! machine's random source or the clock. With dense weights the logits of a sequence do not depend on the batch either, so a seed gives
//! the same answer alone and among others.
//!
//! Order of the filters, as in SGLang: repetition penalty on the logits; temperature; softmax; then, on the sorted probabilities, `top_k`, `top_p`
//! (a token stays while the tokens before it have not passed `top_p` of the whole softmax) and `min_p`; what is left is drawn in
//! proportion.

use crate::math::{dispatched, exp};
use eyas_types::SamplingParams;
use std::cmp::Ordering;

/// Temperatures below this are greedy.
pub const GREEDY_BELOW: f32 = 1e-6;

/// Draws the tokens of one request.
#[derive(Debug, Clone)]
pub struct Sampler {
    temperature: f32,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    repetition_penalty: f32,
    /// Ids drawn so far, once each: what the penalty falls on (as in SGLang; other engines count the prompt in).
    drawn: Vec<u32>,
    seed: u64,
    n_drawn: u64,
    /// Scratch, `[vocab_size]`.
    weights: Vec<f32>,
}

/// The logits are of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits hold a NaN or an infinity")]
pub struct NotFinite;

impl Sampler {
    /// `params` are taken as usable (see [`SamplingParams::problem`]); its seed, if any, is left to the caller.
    pub fn new(params: &SamplingParams, seed: u64) -> Self {
        Self {
            temperature: params.temperature,
            top_k: usize::try_from(params.top_k).unwrap_or(usize::MAX),
            top_p: f64::from(params.top_p),
            min_p: f64::from(params.min_p),
            repetition_penalty: params.repetition_penalty,
            drawn: Vec::new(),
            seed,
            n_drawn: 0,
            weights: Vec::new(),
        }
    }

    /// The next id, given `logits` `[vocab_size]`.
    pub fn draw(&mut self, logits: &[f32]) -> Result<u32, NotFinite> {
        let penalized = self.penalized(logits);
        let logits = penalized.as_deref().unwrap_or(logits);
        let (best, max) = argmax(logits).ok_or(NotFinite)?;
        let id = if self.temperature < GREEDY_BELOW { best } else { self.draw_by_chance(logits, max)? };
        self.n_drawn += 1;
        if self.penalizes()
            && let Err(at) = self.drawn.binary_search(&id)
        {
            self.drawn.insert(at, id);
        }
        Ok(id)
    }

    fn penalizes(&self) -> bool {
        (self.repetition_penalty - 1.0).abs() > f32::EPSILON
    }

    fn penalized(&self, logits: &[f32]) -> Option<Vec<f32>> {
        if self.drawn.is_empty() || !self.penalizes() {
            return None;
        }
        let mut logits = logits.to_vec();
        for &id in &self.drawn {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit < 0.0 { *logit * self.repetition_penalty } else { *logit / self.repetition_penalty };
            }
        }
        Some(logits)
    }

    fn draw_by_chance(&mut self, logits: &[f32], max: f32) -> Result<u32, NotFinite> {
        self.weights.resize(logits.len(), 0.0);
        let total = softmax_numerators(logits, max, 1.0 / self.temperature, &mut self.weights);
        if !total.is_finite() {
            return Err(NotFinite);
        }
        let u = uniform(self.seed, self.n_drawn);
        if self.top_k >= logits.len() && self.top_p >= 1.0 && self.min_p <= 0.0 {
            return Ok(walk(self.weights.iter().copied().zip(0..), u * total));
        }
        let kept = self.kept(total);
        let kept_total: f64 = kept.iter().map(|&(w, _)| f64::from(w)).sum();
        Ok(walk(kept.into_iter(), u * kept_total))
    }

    /// The tokens the filters leave, likeliest first (lowest id first among equals), with their softmax numerators.
    fn kept(&self, total: f64) -> Vec<(f32, u32)> {
        let mut all: Vec<(f32, u32)> = self.weights.iter().copied().zip(0..).collect();
        let descending = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let limit = self.top_k.min(all.len());
        // Sorting a whole vocabulary to keep a few tokens is the cost of sampling: take the front in growing pieces.
        let mut n_front = 128.min(limit);
        loop {
            if n_front < all.len() {
                all.select_nth_unstable_by(n_front, descending);
            }
            all[..n_front].sort_unstable_by(descending);
            let n_kept = self.prefix_kept(&all[..n_front], total);
            if n_kept < n_front || n_front == limit {
                all.truncate(n_kept);
                return all;
            }
            n_front = (n_front * 8).min(limit);
        }
    }

    /// How many of the sorted tokens `top_p` and `min_p` leave: at least the first.
    fn prefix_kept(&self, sorted: &[(f32, u32)], total: f64) -> usize {
        let floor = sorted.first().map_or(0.0, |&(w, _)| f64::from(w) * self.min_p);
        let mut before = 0.0;
        let dropped = sorted.iter().position(|&(w, _)| {
            let drop = before > self.top_p * total || f64::from(w) < floor;
            before += f64::from(w);
            drop
        });
        dropped.unwrap_or(sorted.len()).max(1)
    }
}

/// The first token at which the running sum passes `target`; the last with any weight when rounding keeps it from being passed.
fn walk(tokens: impl Iterator<Item = (f32, u32)>, target: f64) -> u32 {
    let (mut sum, mut last) = (0.0, 0);
    for (weight, id) in tokens.filter(|&(weight, _)| weight > 0.0) {
        sum += f64::from(weight);
        last = id;
        if sum > target {
            break;
        }
    }
    last
}

/// Index and value of the greatest logit, the lowest index among equals, as torch's argmax. `None` when it is no finite number or there is a NaN.
pub fn argmax(logits: &[f32]) -> Option<(u32, f32)> {
    let max = max_of(logits);
    let (id, _) = (0..).zip(logits).find(|(_, logit)| logit.partial_cmp(&&max) == Some(Ordering::Equal))?;
    max.is_finite().then_some((id, max))
}

dispatched! {
    /// The greatest value; NaN when there is one.
    fn max_of(values: &[f32]) -> f32 = max_of_values
}

#[inline(always)]
fn max_of_values(values: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (mut max, mut nan) = ([f32::NEG_INFINITY; LANES], [0u32; LANES]);
    for chunk in values.chunks(LANES) {
        for ((max, nan), &value) in max.iter_mut().zip(&mut nan).zip(chunk) {
            *max = if value > *max { value } else { *max };
            *nan |= u32::from(value.is_nan());
        }
    }
    if nan == [0; LANES] { max.into_iter().fold(f32::NEG_INFINITY, f32::max) } else { f32::NAN }
}

dispatched! {
    /// `out = e^((logits - max) / temperature)`; returns the sum, taken in eight lanes.
    fn softmax_numerators(logits: &[f32], max: f32, inverse_temperature: f32, out: &mut [f32]) -> f64 = softmax_numerator_values
}

#[inline(always)]
fn softmax_numerator_values(logits: &[f32], max: f32, inverse_temperature: f32, out: &mut [f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0f64; LANES];
    for (out, logits) in out.chunks_mut(LANES).zip(logits.chunks(LANES)) {
        for ((out, &logit), sum) in out.iter_mut().zip(logits).zip(&mut sums) {
            *out = exp((logit - max) * inverse_temperature);
            *sum += f64::from(*out);
        }
    }
    sums.iter().sum()
}

/// A number in [0, 1) for the `n`-th draw under `seed`: two rounds of SplitMix64's mixer, 53 bits.
fn uniform(seed: u64, n: u64) -> f64 {
    let bits = mix(mix(seed).wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
