//! AdamW with f32 state, updated in place, with clipping by the global norm.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, InplaceOp2, Layout, Result, Tensor, Var, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::simd::vectorized;

/// Settings of [`AdamW`]; the learning rate is given with each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the mean of the gradients. PyTorch: `betas[0]`.
    pub beta1: f64,
    /// Decay of the mean of their squares. PyTorch: `betas[1]`.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, per unit of learning rate, on the parameters registered for it.
    pub weight_decay: f64,
    /// The gradients are scaled down together when their global norm is above this.
    pub max_grad_norm: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 }
    }
}

struct Slot {
    var: Var,
    decays: bool,
    /// `[2, n]`: first and second moment.
    moments: Tensor,
}

/// The optimizer and its state. Parameters keep the order in which they were given.
pub struct AdamW {
    config: AdamWConfig,
    slots: Vec<Slot>,
    n_steps: usize,
}

impl AdamW {
    /// `parameters`: each with whether weight decay applies to it (norms and biases: no).
    pub fn new(parameters: impl IntoIterator<Item = (Var, bool)>, config: AdamWConfig) -> Result<Self> {
        let slots = parameters
            .into_iter()
            .map(|(var, decays)| {
                if !is_fusable(&var) {
                    bail!("AdamW: parameter of {:?} on {:?}: only f32 on the cpu so far", var.dtype(), var.device());
                }
                let moments = Tensor::zeros((2, var.elem_count()), var.dtype(), var.device())?;
                Ok(Slot { var, decays, moments })
            })
            .collect::<Result<_>>()?;
        Ok(Self { config, slots, n_steps: 0 })
    }

    /// Steps taken so far.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// The moments of each parameter, `[2, n]`, in the order of the parameters: what a checkpoint must hold besides the weights.
    pub fn moments(&self) -> impl Iterator<Item = &Tensor> {
        self.slots.iter().map(|slot| &slot.moments)
    }

    /// Takes up where a checkpoint stopped.
    pub fn restore(&mut self, n_steps: usize, moments: Vec<Tensor>) -> Result<()> {
        if moments.len() != self.slots.len() {
            bail!("AdamW: {} states for {} parameters", moments.len(), self.slots.len());
        }
        for (slot, moments) in self.slots.iter_mut().zip(moments) {
            if moments.shape() != slot.moments.shape() {
                bail!("AdamW: state {:?} for a parameter that needs {:?}", moments.shape(), slot.moments.shape());
            }
            slot.moments = moments.copy()?;
        }
        self.n_steps = n_steps;
        Ok(())
    }

    /// One step at learning rate `rate`. Returns the global norm of the gradients before clipping.
    ///
    /// A parameter without a gradient is an error: it means that the graph was cut somewhere.
    pub fn step(&mut self, grads: &GradStore, rate: f64) -> Result<f64> {
        let mut gradients = Vec::with_capacity(self.slots.len());
        let mut sum_of_squares = 0f64;
        for (i, slot) in self.slots.iter().enumerate() {
            let Some(grad) = grads.get(&slot.var) else {
                bail!("AdamW: parameter {i} of shape {:?} has no gradient", slot.var.shape());
            };
            let grad = grad.contiguous()?;
            sum_of_squares += sum_of_squares_of(floats(&grad)?.get());
            gradients.push(grad);
        }
        let norm = sum_of_squares.sqrt();
        self.n_steps += 1;
        let clip = if norm > self.config.max_grad_norm { self.config.max_grad_norm / norm } else { 1.0 };
        let power = i32::try_from(self.n_steps).unwrap_or(i32::MAX);
        #[expect(clippy::cast_possible_truncation, reason = "the state is f32 by design")]
        for (slot, grad) in self.slots.iter().zip(&gradients) {
            let update = UpdateMoments {
                beta1: self.config.beta1 as f32,
                beta2: self.config.beta2 as f32,
                grad_scale: clip as f32,
            };
            slot.moments.inplace_op2(grad, &update)?;
            let apply = ApplyMoments {
                step_size: (rate / (1.0 - self.config.beta1.powi(power))) as f32,
                second_scale: (1.0 / (1.0 - self.config.beta2.powi(power))) as f32,
                eps: self.config.eps as f32,
                keep: if slot.decays { (1.0 - rate * self.config.weight_decay) as f32 } else { 1.0 },
            };
            slot.var.as_tensor().inplace_op2(&slot.moments, &apply)?;
        }
        Ok(norm)
    }
}

fn sum_of_squares_of(values: &[f32]) -> f64 {
    let mut lanes = [0f64; 4];
    let chunks = values.chunks_exact(4);
    let rest: f64 = chunks.remainder().iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*v) * f64::from(*v);
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// The values of a contiguous f32 storage, to be written.
fn storage_slice_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout, op: &str) -> Result<&'a mut [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&mut values[start..end]),
        _ => bail!("{op}: only contiguous f32 tensors can be updated"),
    }
}

struct UpdateMoments {
    beta1: f32,
    beta2: f32,
    grad_scale: f32,
}

impl InplaceOp2 for UpdateMoments {
    fn name(&self) -> &'static str {
        "eyas-adamw-moments"
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<()> {
        let grad = storage_slice(s2, l2, self.name())?;
        let (first, second) = storage_slice_mut(s1, l1, self.name())?.split_at_mut(grad.len());
        vectorized(|| {
            for ((m, v), g) in first.iter_mut().zip(second).zip(grad) {
                let g = g * self.grad_scale;
                *m = self.beta1 * *m + (1.0 - self.beta1) * g;
                *v = self.beta2 * *v + (1.0 - self.beta2) * g * g;
            }
        });
        Ok(())
    }
}

struct ApplyMoments {
    step_size: f32,
    second_scale: f32,
    eps: f32,
    keep: f32,
}

impl InplaceOp2 for ApplyMoments {
    fn name(&self) -> &'static str {
        "eyas-adamw-apply"
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<()> {
        let parameter = storage_slice_mut(s1, l1, self.name())?;
        let (first, second) = storage_slice(s2, l2, self.name())?.split_at(parameter.len());
        vectorized(|| {
            for ((p, m), v) in parameter.iter_mut().zip(first).zip(second) {
                *p = *p * self.keep - self.step_size * m / ((v * self.second_scale).sqrt() + self.eps);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn parameter(values: &[f32]) -> Var {
        Var::new(values, &Device::Cpu).unwrap()
    }

    fn square_loss(var: &Var) -> GradStore {
        (var.as_tensor().sqr().unwrap().sum_all().unwrap() * 0.5).unwrap().backward().unwrap()
    }

    /// The textbook update in f64, written out once more.
    fn reference(x: f64, config: &AdamWConfig, rate: f64, n_steps: i32, decays: bool) -> f64 {
        let (mut x, mut m, mut v) = (x, 0.0, 0.0);
        for t in 1..=n_steps {
            let norm: f64 = f64::abs(x);
            let g = if norm > config.max_grad_norm { x * config.max_grad_norm / norm } else { x };
            m = config.beta1 * m + (1.0 - config.beta1) * g;
            v = config.beta2 * v + (1.0 - config.beta2) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - config.beta1.powi(t)), v / (1.0 - config.beta2.powi(t)));
            if decays {
                x -= rate * config.weight_decay * x;
            }
            x -= rate * m_hat / (v_hat.sqrt() + config.eps);
        }
        x
    }

    #[test]
    fn follows_the_textbook_with_clipping_and_decay() {
        for decays in [false, true] {
            let config = AdamWConfig::default();
            let var = parameter(&[3.0]);
            let mut optimizer = AdamW::new([(var.clone(), decays)], config).unwrap();
            for _ in 0..20 {
                optimizer.step(&square_loss(&var), 0.1).unwrap();
            }
            let got = var.to_vec1::<f32>().unwrap()[0];
            let want = reference(3.0, &config, 0.1, 20, decays);
            assert!((f64::from(got) - want).abs() < 1e-4, "{got} against {want}");
        }
    }

    #[test]
    fn a_restored_optimizer_goes_on_as_if_never_stopped() {
        let var = parameter(&[3.0, -2.0]);
        let mut optimizer = AdamW::new([(var.clone(), true)], AdamWConfig::default()).unwrap();
        for _ in 0..5 {
            optimizer.step(&square_loss(&var), 0.1).unwrap();
        }
        let again = Var::from_tensor(&var.as_tensor().copy().unwrap()).unwrap();
        let mut restored = AdamW::new([(again.clone(), true)], AdamWConfig::default()).unwrap();
        restored.restore(5, optimizer.moments().map(|m| m.copy().unwrap()).collect()).unwrap();
        optimizer.step(&square_loss(&var), 0.1).unwrap();
        restored.step(&square_loss(&again), 0.1).unwrap();
        assert_eq!(var.to_vec1::<f32>().unwrap(), again.to_vec1::<f32>().unwrap());
    }

    #[test]
    fn a_parameter_without_a_gradient_is_an_error() {
        let (used, unused) = (parameter(&[1.0]), parameter(&[1.0]));
        let mut optimizer = AdamW::new([(used.clone(), true), (unused, true)], AdamWConfig::default()).unwrap();
        let err = optimizer.step(&square_loss(&used), 0.1).unwrap_err();
        assert!(err.to_string().contains("parameter 1 of shape [1] has no gradient"), "{err}");
    }
}
