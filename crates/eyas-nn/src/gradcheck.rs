//! Test help: a fused operation against its composed twin and against finite differences.

use candle_core::{Device, Result, Tensor, Var};

/// Values in [-1, 1) from a fixed generator.
pub(crate) fn random(dims: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let n: usize = dims.iter().product();
    let values: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_close(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "{what}[{i}]: {g} against {w}");
    }
}

/// Checks the value of `fused` and its gradients: against `composed` to 1e-5 (float order only), and against central differences
/// of the composed loss to 2e-2 (f32 with a step of 1e-2). The loss is a weighted sum, so that no direction of the gradient cancels.
pub(crate) fn check_against(
    inputs: &[Tensor],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    composed: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let vars: Vec<Var> = inputs.iter().map(|t| Var::from_tensor(t).unwrap()).collect();
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let (got, want) = (fused(&tensors).unwrap(), composed(&tensors).unwrap());
    assert_eq!(got.dims(), want.dims());
    assert_close("value", &flat(&got), &flat(&want), 1e-5);

    let weights = random(want.dims(), 99);
    let loss = |out: &Tensor| out.mul(&weights).unwrap().sum_all().unwrap();
    let (fused_grads, composed_grads) = (loss(&got).backward().unwrap(), loss(&want).backward().unwrap());
    for (i, var) in vars.iter().enumerate() {
        let fused_grad = flat(fused_grads.get(var).expect("every variable gets a gradient"));
        assert!(fused_grad.iter().any(|g| g.abs() > 1e-6), "gradient of input {i} is zero");
        assert_close("gradient", &fused_grad, &flat(composed_grads.get(var).unwrap()), 1e-5);
        for j in 0..fused_grad.len() {
            let moved = |step: f32| {
                let mut values = flat(&tensors[i]);
                values[j] += step;
                let mut moved = tensors.clone();
                moved[i] = Tensor::from_vec(values, tensors[i].shape(), &Device::Cpu).unwrap();
                loss(&composed(&moved).unwrap()).to_scalar::<f32>().unwrap()
            };
            let difference = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert_close("finite difference", &[fused_grad[j]], &[difference], 2e-2);
        }
    }
}
