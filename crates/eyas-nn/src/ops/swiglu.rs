//! The gated activation of Llama's MLP.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::simd::{exp, vectorized};

/// `silu(gate) * up`, element by element. Both inputs and the result have one shape, `[…, intermediate]`.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if is_fusable(gate) && is_fusable(up) {
        return gate.contiguous()?.apply_op2(&up.contiguous()?, SwiGlu);
    }
    swiglu_composed(gate, up)
}

/// [`swiglu`] out of plain candle operations.
pub fn swiglu_composed(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.silu()?.mul(up)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

struct SwiGlu;

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "eyas-swiglu"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        if l1.shape() != l2.shape() {
            bail!("{}: gate {:?} and up {:?} differ", self.name(), l1.shape(), l2.shape());
        }
        let (gate, up) = (storage_slice(s1, l1, self.name())?, storage_slice(s2, l2, self.name())?);
        let mut out = vec![0f32; gate.len()];
        vectorized(|| {
            for ((out, g), u) in out.iter_mut().zip(gate).zip(up) {
                *out = g * sigmoid(*g) * u;
            }
        });
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (gate_lock, up_lock, grad_lock) = (floats(gate)?, floats(up)?, floats(&grad)?);
        let n = gate.elem_count();
        let (mut d_gate, mut d_up) = (vec![0f32; n], vec![0f32; n]);
        let inputs = gate_lock.get().iter().zip(up_lock.get()).zip(grad_lock.get());
        vectorized(|| {
            for (((g, u), d), (d_gate, d_up)) in inputs.zip(d_gate.iter_mut().zip(d_up.iter_mut())) {
                let s = sigmoid(*g);
                *d_gate = d * u * s * (1.0 + g * (1.0 - s));
                *d_up = d * g * s;
            }
        });
        Ok((
            Some(Tensor::from_vec(d_gate, gate.shape(), gate.device())?),
            Some(Tensor::from_vec(d_up, up.shape(), up.device())?),
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
            &[random(&[3, 7], 3), random(&[3, 7], 4)],
            |t| swiglu(&t[0], &t[1]),
            |t| swiglu_composed(&t[0], &t[1]),
        );
    }
}
