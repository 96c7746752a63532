//! Root-mean-square norm over the last axis.

use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::simd::{add_scaled, dot, vectorized};

/// `x / sqrt(mean(x²) + eps) * weight`, the mean over the last axis.
///
/// `x`: `[…, hidden]`; `weight`: `[hidden]`. Returns the shape of `x`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    if is_fusable(x) && is_fusable(weight) {
        return x.contiguous()?.apply_op2(&weight.contiguous()?, RmsNorm { eps });
    }
    rms_norm_composed(x, weight, eps)
}

/// [`rms_norm`] out of plain candle operations.
pub fn rms_norm_composed(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean_square + f64::from(eps))?.sqrt()?)?.broadcast_mul(weight)
}

struct RmsNorm {
    eps: f32,
}

impl RmsNorm {
    #[inline(always)]
    fn inverse_rms(&self, row: &[f32]) -> f32 {
        1.0 / (dot(row, row) / row.len() as f32 + self.eps).sqrt()
    }
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "eyas-rms-norm"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (storage_slice(s1, l1, self.name())?, storage_slice(s2, l2, self.name())?);
        let hidden = weight.len();
        if l1.dims().last() != Some(&hidden) {
            bail!("{}: weight of {hidden} values for input {:?}", self.name(), l1.dims());
        }
        let mut out = vec![0f32; x.len()];
        vectorized(|| {
            for (row, out) in x.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
                let r = self.inverse_rms(row);
                for ((out, v), w) in out.iter_mut().zip(row).zip(weight) {
                    *out = v * r * w;
                }
            }
        });
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (x_lock, w_lock, g_lock) = (floats(x)?, floats(weight)?, floats(&grad)?);
        let w = w_lock.get();
        let hidden = w.len();
        let mut dx = vec![0f32; x.elem_count()];
        let (mut dw, mut scaled) = (vec![0f32; hidden], vec![0f32; hidden]);
        let rows = x_lock.get().chunks_exact(hidden).zip(g_lock.get().chunks_exact(hidden));
        vectorized(|| {
            for ((row, g), dx) in rows.zip(dx.chunks_exact_mut(hidden)) {
                let r = self.inverse_rms(row);
                for (((scaled, g), w), (dw, x)) in scaled.iter_mut().zip(g).zip(w).zip(dw.iter_mut().zip(row)) {
                    *scaled = g * w * r;
                    *dw += g * x * r;
                }
                let shrink = r * r * dot(row, &scaled) / hidden as f32;
                dx.copy_from_slice(&scaled);
                add_scaled(dx, row, -shrink);
            }
        });
        Ok((
            Some(Tensor::from_vec(dx, x.shape(), x.device())?),
            Some(Tensor::from_vec(dw, weight.shape(), weight.device())?),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::{check_against, random};

    #[test]
    fn agrees_with_the_composed_twin_and_with_finite_differences() {
        check_against(
            &[random(&[5, 8], 1), random(&[8], 2)],
            |t| rms_norm(&t[0], &t[1], 1e-5),
            |t| rms_norm_composed(&t[0], &t[1], 1e-5),
        );
    }
}
