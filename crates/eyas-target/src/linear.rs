//! A linear layer's weight and its product with rows of activations.
//!
//! A dense weight is cut into tiles `[in, out]`, at most [`TILE_IN`] deep and about [`TILE_OUT`] wide: each product then adds up in the order
//! of the input axis, whatever the number of rows, so a row's result is the same to the bit alone and in any batch (tested for 1 to 130
//! rows on AVX2). It is also the fastest layout of those tried, for one row as for 64. Quantized weights go through candle's kernels,
//! which differ between one row and several: there batches agree only up to rounding.

use crate::math;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{CpuStorage, DType, Device, Module, Result, Storage, Tensor};
use half::{bf16, f16};

/// Deepest tile. The gemm sums up to 512 steps of the input axis in one go; beyond, its split depends on the batch.
const TILE_IN: usize = 512;
/// Width of the tiles of a wide weight.
const TILE_OUT: usize = 512;
/// Up to this width a weight is one tile wide.
const ONE_TILE_OUT: usize = 1024;
/// Unused columns at the end of a tile whose row length is a multiple of 1 KiB, against cache lines that fall on each other.
const PADDING: usize = 16;

/// How a dense weight is kept in memory. The arithmetic is f32 in all three; half precision is widened tile by tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenseDType {
    F32,
    Bf16,
    F16,
}

/// `y = x Wᵀ + b`.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Vec<f32>>,
    n_in: usize,
    n_out: usize,
}

#[derive(Debug)]
enum Weight {
    Dense(Vec<Tile>),
    /// Weights that share their input; their outputs lie side by side.
    Quantized(Vec<QMatMul>),
}

#[derive(Debug)]
struct Tile {
    first_in: usize,
    n_in: usize,
    first_out: usize,
    n_out: usize,
    values: Values,
}

/// `[n_in, n_out + padding]`, row-major.
#[derive(Debug)]
enum Values {
    F32(Tensor),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
}

impl Linear {
    /// From `weight` `[n_out, n_in]`, row-major.
    pub(crate) fn dense(weight: &[f32], n_out: usize, n_in: usize, dtype: DenseDType) -> Result<Self> {
        let (in_step, out_step) = (step(n_in, TILE_IN, TILE_IN, 1), step(n_out, ONE_TILE_OUT, TILE_OUT, 16));
        let mut tiles = Vec::new();
        for first_out in (0..n_out).step_by(out_step) {
            for first_in in (0..n_in).step_by(in_step) {
                let (n_in_tile, n_out_tile) = (in_step.min(n_in - first_in), out_step.min(n_out - first_out));
                let rows = transpose(&weight[first_out * n_in + first_in..], n_in, n_out_tile, n_in_tile);
                let values = Values::new(rows, n_in_tile, n_out_tile, dtype)?;
                tiles.push(Tile { first_in, n_in: n_in_tile, first_out, n_out: n_out_tile, values });
            }
        }
        Ok(Self { weight: Weight::Dense(tiles), bias: None, n_in, n_out })
    }

    /// From quantized weights `[n_out_i, n_in]` that share their input; the output is theirs side by side.
    pub(crate) fn quantized(parts: Vec<QTensor>) -> Result<Self> {
        let dims = parts.iter().map(|part| part.shape().dims2()).collect::<Result<Vec<_>>>()?;
        let n_in = dims.first().map_or(0, |&(_, n_in)| n_in);
        let n_out = dims.iter().map(|&(n_out, _)| n_out).sum();
        let parts = parts.into_iter().map(QMatMul::from_qtensor).collect::<Result<_>>()?;
        Ok(Self { weight: Weight::Quantized(parts), bias: None, n_in, n_out })
    }

    /// `weight` `[n_out, n_in]` in blocks of 32 signed bytes with a scale. `n_in` must be a multiple of 32.
    pub(crate) fn to_q8_0(weight: Vec<f32>, n_out: usize, n_in: usize) -> Result<QTensor> {
        QTensor::quantize(&Tensor::from_vec(weight, (n_out, n_in), &Device::Cpu)?, GgmlDType::Q8_0)
    }

    /// With a bias `[n_out]`.
    pub(crate) fn with_bias(self, bias: Option<Vec<f32>>) -> Self {
        Self { bias, ..self }
    }

    /// Values of the weight and the bias.
    pub(crate) fn n_params(&self) -> usize {
        self.n_in * self.n_out + self.bias.as_ref().map_or(0, Vec::len)
    }

    /// `x`: `[n, n_in]`, f32 → `[n, n_out]`, row-major.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Vec<f32>> {
        let mut out = match &self.weight {
            Weight::Dense(tiles) => self.forward_dense(tiles, x)?,
            Weight::Quantized(parts) => self.forward_quantized(parts, x)?,
        };
        if let Some(bias) = &self.bias {
            math::add_bias(&mut out, bias);
        }
        Ok(out)
    }

    fn forward_dense(&self, tiles: &[Tile], x: &Tensor) -> Result<Vec<f32>> {
        let mut out = vec![0f32; x.dim(0)? * self.n_out];
        for tile in tiles {
            let product = x.narrow(1, tile.first_in, tile.n_in)?.matmul(&tile.values.widened(tile)?)?;
            with_values(&product, |product| {
                for (out, product) in out.chunks_exact_mut(self.n_out).zip(product.chunks_exact(tile.n_out)) {
                    let out = &mut out[tile.first_out..][..tile.n_out];
                    if tile.first_in == 0 {
                        out.copy_from_slice(product);
                    } else {
                        math::add_assign(out, product);
                    }
                }
            })?;
        }
        Ok(out)
    }

    fn forward_quantized(&self, parts: &[QMatMul], x: &Tensor) -> Result<Vec<f32>> {
        let mut out = vec![0f32; x.dim(0)? * self.n_out];
        let mut first_out = 0;
        for part in parts {
            let product = part.forward(x)?;
            let n_out = product.dim(1)?;
            with_values(&product, |product| {
                for (out, product) in out.chunks_exact_mut(self.n_out).zip(product.chunks_exact(n_out)) {
                    out[first_out..][..n_out].copy_from_slice(product);
                }
            })?;
            first_out += n_out;
        }
        Ok(out)
    }
}

/// How far to step along an axis of `n` so that all steps are about equal, multiples of `unit`, and at most `step` where `n` exceeds `whole`.
fn step(n: usize, whole: usize, step: usize, unit: usize) -> usize {
    if n <= whole { n.max(1) } else { n.div_ceil(n.div_ceil(step)).next_multiple_of(unit) }
}

/// `weight` (`n_out` rows `row_len` apart, the first `n_in` values of each) as `[n_in, n_out + padding]`.
fn transpose(weight: &[f32], row_len: usize, n_out: usize, n_in: usize) -> Vec<f32> {
    const PATCH: usize = 16;
    let stride = padded(n_out);
    let mut out = vec![0f32; n_in * stride];
    for first_out in (0..n_out).step_by(PATCH) {
        for first_in in (0..n_in).step_by(PATCH) {
            for o in first_out..n_out.min(first_out + PATCH) {
                for i in first_in..n_in.min(first_in + PATCH) {
                    out[i * stride + o] = weight[o * row_len + i];
                }
            }
        }
    }
    out
}

fn padded(n_out: usize) -> usize {
    if n_out.is_multiple_of(256) { n_out + PADDING } else { n_out }
}

impl Values {
    fn new(rows: Vec<f32>, n_in: usize, n_out: usize, dtype: DenseDType) -> Result<Self> {
        Ok(match dtype {
            DenseDType::F32 => Self::F32(tile_tensor(rows, n_in, n_out)?),
            DenseDType::Bf16 => Self::Bf16(rows.into_iter().map(bf16::from_f32).collect()),
            DenseDType::F16 => Self::F16(rows.into_iter().map(f16::from_f32).collect()),
        })
    }

    /// `[n_in, n_out]`, f32.
    fn widened(&self, tile: &Tile) -> Result<Tensor> {
        match self {
            Self::F32(values) => Ok(values.clone()),
            Self::Bf16(values) => tile_tensor(values.iter().map(|v| v.to_f32()).collect(), tile.n_in, tile.n_out),
            Self::F16(values) => tile_tensor(values.iter().map(|v| v.to_f32()).collect(), tile.n_in, tile.n_out),
        }
    }
}

fn tile_tensor(rows: Vec<f32>, n_in: usize, n_out: usize) -> Result<Tensor> {
    Tensor::from_vec(rows, (n_in, padded(n_out)), &Device::Cpu)?.narrow(1, 0, n_out)
}

/// Lends the values of a contiguous f32 tensor on the CPU.
pub(crate) fn with_values<R>(tensor: &Tensor, use_values: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(use_values(&values[start..end])),
        (Storage::Cpu(CpuStorage::F32(_)), None) => candle_core::bail!("tensor {:?} is not contiguous", layout.shape()),
        _ => candle_core::bail!(
            "tensor is {:?} on {:?}, {:?} on the CPU is needed",
            tensor.dtype(),
            tensor.device(),
            DType::F32
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    fn check(n_out: usize, n_in: usize) {
        let (weight, bias) = (wave(n_out * n_in, 0.37), wave(n_out, 0.9));
        let linear = Linear::dense(&weight, n_out, n_in, DenseDType::F32).unwrap().with_bias(Some(bias.clone()));
        assert_eq!(linear.n_params(), n_out * n_in + n_out);
        let n = 70;
        let x = Tensor::from_vec(wave(n * n_in, 0.11), (n, n_in), &Device::Cpu).unwrap();
        let all = linear.forward(&x).unwrap();
        let weight_t = Tensor::from_vec(weight, (n_out, n_in), &Device::Cpu).unwrap().t().unwrap();
        let want = x.matmul(&weight_t).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        for (i, (got, want)) in all.iter().zip(&want).enumerate() {
            let want = want + bias[i % n_out];
            assert!((got - want).abs() < 1e-3, "{n_out}x{n_in} value {i}: {got} {want}");
        }
        for rows in [1, 2, 3, 5, 8, 13, 33, 64] {
            let some = linear.forward(&x.narrow(0, n - rows, rows).unwrap()).unwrap();
            assert_eq!(
                some,
                all[(n - rows) * n_out..],
                "{rows} rows of {n_out}x{n_in} differ from the same rows in a batch of {n}"
            );
        }
    }

    #[test]
    fn a_row_is_the_same_to_the_bit_in_every_batch() {
        check(24, 16);
        check(256, 128);
        check(688, 129);
        check(96, 576);
        check(2050, 40);
        check(1100, 1100);
    }

    #[test]
    fn half_precision_storage_equals_f32_storage_of_the_rounded_weight() {
        let x = Tensor::from_vec(wave(3 * 64, 0.11), (3, 64), &Device::Cpu).unwrap();
        let rounded: Vec<f32> = wave(80 * 64, 0.37).into_iter().map(|v| bf16::from_f32(v).to_f32()).collect();
        let forward = |dtype| Linear::dense(&rounded, 80, 64, dtype).unwrap().forward(&x).unwrap();
        assert_eq!(forward(DenseDType::F32), forward(DenseDType::Bf16));
        let rounded: Vec<f32> = wave(80 * 64, 0.37).into_iter().map(|v| f16::from_f32(v).to_f32()).collect();
        let forward = |dtype| Linear::dense(&rounded, 80, 64, dtype).unwrap().forward(&x).unwrap();
        assert_eq!(forward(DenseDType::F32), forward(DenseDType::F16));
    }

    #[test]
    fn q8_0_is_close_and_parts_lie_side_by_side() {
        let (a, b) = (wave(48 * 64, 0.37), wave(16 * 64, 0.53));
        let x = Tensor::from_vec(wave(5 * 64, 0.11), (5, 64), &Device::Cpu).unwrap();
        let both: Vec<f32> = a.iter().chain(&b).copied().collect();
        let want = Linear::dense(&both, 64, 64, DenseDType::F32).unwrap().forward(&x).unwrap();
        let parts = vec![Linear::to_q8_0(a, 48, 64).unwrap(), Linear::to_q8_0(b, 16, 64).unwrap()];
        let got = Linear::quantized(parts).unwrap().forward(&x).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 0.1, "{got} {want}");
        }
    }
}
