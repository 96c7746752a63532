//! Cross entropy against token ids.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, D, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::simd::{self, vectorized};

/// `-log softmax(logits)[target]` for every row, in nats.
///
/// `logits`: `[n_rows, vocab]`; `targets`: `[n_rows]`, each below `vocab`. Returns `[n_rows]`; how to average is the caller's choice.
pub fn cross_entropy(logits: &Tensor, targets: &Arc<[u32]>) -> Result<Tensor> {
    check(logits, targets)?;
    if is_fusable(logits) {
        return logits.contiguous()?.apply_op1(CrossEntropy { targets: targets.clone() });
    }
    cross_entropy_composed(logits, targets)
}

/// [`cross_entropy`] out of plain candle operations.
pub fn cross_entropy_composed(logits: &Tensor, targets: &Arc<[u32]>) -> Result<Tensor> {
    check(logits, targets)?;
    let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
    let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
    let ids = Tensor::from_vec(targets.to_vec(), (targets.len(), 1), logits.device())?;
    (log_sum - shifted.gather(&ids, 1)?)?.squeeze(1)
}

fn check(logits: &Tensor, targets: &[u32]) -> Result<()> {
    let (n_rows, vocab) = logits.dims2()?;
    if n_rows != targets.len() {
        bail!("cross entropy: {} targets for logits {:?}", targets.len(), logits.shape());
    }
    match targets.iter().max() {
        Some(id) if *id as usize >= vocab => bail!("cross entropy: target {id} is past the vocabulary of {vocab}"),
        _ => Ok(()),
    }
}

struct CrossEntropy {
    targets: Arc<[u32]>,
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "eyas-cross-entropy"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let logits = storage_slice(storage, layout, self.name())?;
        let vocab = layout.dims()[1];
        let mut shifted = vec![0f32; vocab];
        let losses = vectorized(|| {
            let rows = logits.chunks_exact(vocab).zip(self.targets.iter());
            rows.map(|(row, target)| {
                let max = simd::max(row);
                for (s, v) in shifted.iter_mut().zip(row) {
                    *s = simd::exp(v - max);
                }
                simd::sum(&shifted).ln() - (row[*target as usize] - max)
            })
            .collect()
        });
        Ok((CpuStorage::F32(losses), Shape::from(self.targets.len())))
    }

    fn bwd(&self, logits: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let grad = grad.contiguous()?;
        let vocab = logits.dim(1)?;
        let (logits_lock, grad_lock) = (floats(logits)?, floats(&grad)?);
        let mut out = logits_lock.get().to_vec();
        vectorized(|| {
            for ((row, target), g) in out.chunks_exact_mut(vocab).zip(self.targets.iter()).zip(grad_lock.get()) {
                simd::softmax(row, 1.0);
                row[*target as usize] -= 1.0;
                for v in row {
                    *v *= g;
                }
            }
        });
        Ok(Some(Tensor::from_vec(out, logits.shape(), logits.device())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::{check_against, random};

    #[test]
    fn agrees_with_the_composed_twin_and_with_finite_differences() {
        let targets: Arc<[u32]> = vec![0, 4, 2].into();
        check_against(
            &[random(&[3, 5], 8)],
            |t| cross_entropy(&t[0], &targets),
            |t| cross_entropy_composed(&t[0], &targets),
        );
    }

    #[test]
    fn refuses_targets_past_the_vocabulary() {
        let err = cross_entropy(&random(&[1, 5], 1), &vec![5].into()).unwrap_err();
        assert!(err.to_string().contains("target 5 is past the vocabulary of 5"), "{err}");
    }
}
