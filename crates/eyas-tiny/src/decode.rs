//! Greedy decoding for the accuracy figures: many sequences at once, one token a step, a slot refilled when it frees.

use candle_core::{D, Device, Result, Tensor};
use eyas_nn::{rms_norm, swiglu};

use crate::model::{Model, linear};

/// Sequences decoded side by side.
const N_SLOTS: usize = 48;

struct Slot {
    prompt_idx: usize,
    ids: Vec<u32>,
    n_prompt: usize,
    n_fed: usize,
    /// Per layer: keys and values, `[n_fed, n_kv_heads * head_dim]`.
    cache: Vec<(Vec<f32>, Vec<f32>)>,
}

/// Continues each prompt greedily up to `end_id` (kept in the result) or `max_new` ids. Returns the new ids only.
pub fn generate(model: &Model, prompts: &[Vec<u32>], end_id: u32, max_new: usize) -> Result<Vec<Vec<u32>>> {
    let mut results = vec![Vec::new(); prompts.len()];
    let mut waiting = 0..prompts.len();
    let mut slots: Vec<Slot> = Vec::new();
    loop {
        while slots.len() < N_SLOTS {
            let Some(prompt_idx) = waiting.next() else { break };
            let ids = prompts[prompt_idx].clone();
            let cache = vec![(Vec::new(), Vec::new()); model.config.n_layers];
            slots.push(Slot { prompt_idx, n_prompt: ids.len(), ids, n_fed: 0, cache });
        }
        if slots.is_empty() {
            return Ok(results);
        }
        let next = step(model, &mut slots)?;
        let mut kept = Vec::with_capacity(slots.len());
        for (mut slot, id) in slots.into_iter().zip(next) {
            if slot.n_fed == slot.ids.len() {
                slot.ids.push(id);
                let n_new = slot.ids.len() - slot.n_prompt;
                if id == end_id || n_new >= max_new || slot.ids.len() >= model.config.max_positions {
                    results[slot.prompt_idx] = slot.ids.split_off(slot.n_prompt);
                    continue;
                }
            }
            kept.push(slot);
        }
        slots = kept;
    }
}

/// Feeds each slot its next id and returns the likeliest id after it.
fn step(model: &Model, slots: &mut [Slot]) -> Result<Vec<u32>> {
    let eps = model.config.rms_norm_eps;
    let ids: Vec<u32> = slots.iter().map(|slot| slot.ids[slot.n_fed]).collect();
    let mut hidden = model.embedding.detach().index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
    for (layer_idx, layer) in model.layers.iter().enumerate() {
        let x = rms_norm(&hidden, &layer.input_norm.detach(), eps)?;
        let project = |weight: &Tensor| linear(&x, &weight.detach())?.to_vec2::<f32>();
        let (q, k, v) = (project(&layer.q)?, project(&layer.k)?, project(&layer.v)?);
        let mut attended = Vec::with_capacity(slots.len() * model.config.hidden_size);
        for (slot, ((mut q, mut k), v)) in slots.iter_mut().zip(q.into_iter().zip(k).zip(v)) {
            for head in q.chunks_exact_mut(model.config.head_dim()).chain(k.chunks_exact_mut(model.config.head_dim())) {
                model.rope.rotate(head, slot.n_fed);
            }
            let (keys, values) = &mut slot.cache[layer_idx];
            keys.extend(k);
            values.extend(v);
            attend(model, &q, keys, values, &mut attended);
        }
        let attended = Tensor::from_vec(attended, hidden.shape(), &Device::Cpu)?;
        hidden = (hidden + linear(&attended, &layer.o.detach())?)?;
        let x = rms_norm(&hidden, &layer.post_norm.detach(), eps)?;
        let activated = swiglu(&linear(&x, &layer.gate.detach())?, &linear(&x, &layer.up.detach())?)?;
        hidden = (hidden + linear(&activated, &layer.down.detach())?)?;
    }
    for slot in slots {
        slot.n_fed += 1;
    }
    linear(&rms_norm(&hidden, &model.norm.detach(), eps)?, &model.lm_head.detach())?.argmax(D::Minus1)?.to_vec1()
}

/// Attention of one query over all cached keys; appends `[hidden]` to `out`.
fn attend(model: &Model, query: &[f32], keys: &[f32], values: &[f32], out: &mut Vec<f32>) {
    let (d, n_kv_heads) = (model.config.head_dim(), model.config.n_kv_heads);
    let group = model.config.n_heads / n_kv_heads;
    let scale = 1.0 / (d as f32).sqrt();
    for (head, q) in query.chunks_exact(d).enumerate() {
        let at = head / group * d;
        let row = |rows: &[f32], j: usize| j * n_kv_heads * d + at..rows.len().min(j * n_kv_heads * d + at + d);
        let n = keys.len() / (n_kv_heads * d);
        let scores: Vec<f32> =
            (0..n).map(|j| q.iter().zip(&keys[row(keys, j)]).map(|(a, b)| a * b).sum::<f32>() * scale).collect();
        let max = scores.iter().fold(f32::NEG_INFINITY, |max, s| max.max(*s));
        let mut sum = 0f32;
        let mut mixed = vec![0f32; d];
        for (j, score) in scores.iter().enumerate() {
            let weight = (score - max).exp();
            sum += weight;
            for (m, v) in mixed.iter_mut().zip(&values[row(values, j)]) {
                *m += weight * v;
            }
        }
        out.extend(mixed.iter().map(|m| m / sum));
    }
}
