//! Softmax over attention scores under a causal mask.

use candle_core::{CpuStorage, CustomOp1, D, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::simd::{self, vectorized};

/// `softmax(scores * scale)` over the last axis, in which a row sees no later key.
///
/// `scores`: `[…, n_queries, n_keys + n_extra]`, of which the first `n_causal = n_keys` columns are causal: with the queries at
/// the end of the keys, row `t` sees the columns up to `t + n_causal - n_queries`. The columns past `n_causal` are seen by
/// every row; training-time test of EAGLE-3 puts its later steps there. Unseen columns get 0.
pub fn causal_softmax(scores: &Tensor, scale: f32, n_causal: usize) -> Result<Tensor> {
    check(scores, n_causal)?;
    if is_fusable(scores) {
        return scores.contiguous()?.apply_op1(CausalSoftmax { scale, n_causal });
    }
    causal_softmax_composed(scores, scale, n_causal)
}

/// [`causal_softmax`] out of plain candle operations.
pub fn causal_softmax_composed(scores: &Tensor, scale: f32, n_causal: usize) -> Result<Tensor> {
    check(scores, n_causal)?;
    let (n_queries, n_columns) = (scores.dim(D::Minus2)?, scores.dim(D::Minus1)?);
    let mask: Vec<f32> = (0..n_queries * n_columns)
        .map(|i| {
            let (row, column) = (i / n_columns, i % n_columns);
            if column < n_causal && column > row + n_causal - n_queries { f32::NEG_INFINITY } else { 0.0 }
        })
        .collect();
    let mask = Tensor::from_vec(mask, (n_queries, n_columns), scores.device())?.to_dtype(scores.dtype())?;
    let scaled = (scores * f64::from(scale))?.broadcast_add(&mask)?;
    let shifted = scaled.broadcast_sub(&scaled.max_keepdim(D::Minus1)?.detach())?.exp()?;
    shifted.broadcast_div(&shifted.sum_keepdim(D::Minus1)?)
}

fn check(scores: &Tensor, n_causal: usize) -> Result<()> {
    let (n_queries, n_columns) = (scores.dim(D::Minus2)?, scores.dim(D::Minus1)?);
    if n_causal < n_queries || n_causal > n_columns {
        bail!("causal softmax: {n_causal} causal columns for scores {:?}", scores.shape());
    }
    Ok(())
}

struct CausalSoftmax {
    scale: f32,
    n_causal: usize,
}

impl CustomOp1 for CausalSoftmax {
    fn name(&self) -> &'static str {
        "eyas-causal-softmax"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let scores = storage_slice(storage, layout, self.name())?;
        let dims = layout.dims();
        let (n_queries, n_columns) = (dims[dims.len() - 2], dims[dims.len() - 1]);
        let mut out = scores.to_vec();
        vectorized(|| {
            for (i, row) in out.chunks_exact_mut(n_columns).enumerate() {
                let n_seen = i % n_queries + 1 + self.n_causal - n_queries;
                row[n_seen..self.n_causal].fill(f32::NEG_INFINITY);
                simd::softmax(row, self.scale);
            }
        });
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, scores: &Tensor, probabilities: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let grad = grad.contiguous()?;
        let n_columns = scores.dim(D::Minus1)?;
        let (p_lock, g_lock) = (floats(probabilities)?, floats(&grad)?);
        let mut out = Vec::with_capacity(scores.elem_count());
        let rows = p_lock.get().chunks_exact(n_columns).zip(g_lock.get().chunks_exact(n_columns));
        vectorized(|| {
            for (p, g) in rows {
                let dot = simd::dot(p, g);
                out.extend(p.iter().zip(g).map(|(p, g)| p * (g - dot) * self.scale));
            }
        });
        Ok(Some(Tensor::from_vec(out, scores.shape(), scores.device())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::{check_against, random};

    fn check_shape(dims: &[usize], n_causal: usize) {
        check_against(
            &[random(dims, 7)],
            |t| causal_softmax(&t[0], 0.7, n_causal),
            |t| causal_softmax_composed(&t[0], 0.7, n_causal),
        );
    }

    #[test]
    fn agrees_with_the_composed_twin_and_with_finite_differences() {
        check_shape(&[2, 4, 4], 4);
    }

    #[test]
    fn queries_may_stand_at_the_end_of_longer_keys() {
        check_shape(&[2, 3, 5], 5);
    }

    #[test]
    fn extra_columns_are_seen_by_every_row() {
        check_shape(&[2, 3, 5], 3);
    }
}
