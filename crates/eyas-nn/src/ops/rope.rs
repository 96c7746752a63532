//! Rotary position embedding, half-split as in Hugging Face's Llama.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, D, DType, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};

/// Cosines and sines for every position and frequency: two tables `[max_positions, head_dim / 2]`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RopeTable {
    cos: Arc<[f32]>,
    sin: Arc<[f32]>,
    half: usize,
}

impl RopeTable {
    /// The table of plain rotary embeddings: frequency `i` turns by `theta^(-2i / head_dim)` a position.
    pub fn new(head_dim: usize, theta: f64, max_positions: usize) -> Self {
        let half = head_dim / 2;
        let angle = |i: usize| {
            let (position, pair) = (i / half, i % half);
            position as f64 * theta.powf(-2.0 * pair as f64 / head_dim as f64)
        };
        let n = max_positions * half;
        // Rounding to f32 is the point of the table.
        #[expect(clippy::cast_possible_truncation, reason = "the tables are f32 by design")]
        let table = |f: fn(f64) -> f64| (0..n).map(|i| f(angle(i)) as f32).collect();
        Self { cos: table(f64::cos), sin: table(f64::sin), half }
    }

    /// Number of positions in the table.
    pub fn max_positions(&self) -> usize {
        self.cos.len() / self.half
    }

    /// Turns one head (`[head_dim]`) in place to `position`.
    pub fn rotate(&self, head: &mut [f32], position: usize) {
        self.turn(head, position, 1.0);
    }

    fn turn(&self, head: &mut [f32], position: usize, direction: f32) {
        let row = position * self.half..(position + 1) * self.half;
        let (low, high) = head.split_at_mut(self.half);
        for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(&self.cos[row.clone()]).zip(&self.sin[row]) {
            let sin = sin * direction;
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// Turns every head of every token to its position.
///
/// `x`: `[…, n_heads, head_dim]`; `positions`: one for each token, that is, as many as the product of the axes before `n_heads`.
pub fn rope(x: &Tensor, positions: &Arc<[u32]>, table: &RopeTable) -> Result<Tensor> {
    check(x, positions, table)?;
    if is_fusable(x) {
        return x.contiguous()?.apply_op1(Rope { positions: positions.clone(), table: table.clone(), direction: 1.0 });
    }
    rope_composed(x, positions, table)
}

/// [`rope`] out of plain candle operations.
pub fn rope_composed(x: &Tensor, positions: &Arc<[u32]>, table: &RopeTable) -> Result<Tensor> {
    check(x, positions, table)?;
    let (n_heads, head_dim) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    let n_tokens = positions.len();
    let gather = |values: &Arc<[f32]>| {
        let rows: Vec<f32> = positions
            .iter()
            .flat_map(|p| values[*p as usize * table.half..(*p as usize + 1) * table.half].iter().copied())
            .collect();
        Tensor::from_vec(rows, (n_tokens, 1, table.half), x.device())?.to_dtype(x.dtype())
    };
    let (cos, sin) = (gather(&table.cos)?, gather(&table.sin)?);
    let flat = x.reshape((n_tokens, n_heads, head_dim))?;
    let (low, high) = (flat.narrow(2, 0, table.half)?, flat.narrow(2, table.half, table.half)?);
    let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
    let turned_high = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
    Tensor::cat(&[turned_low, turned_high], 2)?.reshape(x.shape())
}

fn check(x: &Tensor, positions: &[u32], table: &RopeTable) -> Result<()> {
    let (n_heads, head_dim) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    if head_dim != 2 * table.half || positions.len() * n_heads * head_dim != x.elem_count() {
        bail!("rope: {:?} with {} positions and a table of head_dim {}", x.shape(), positions.len(), 2 * table.half);
    }
    match positions.iter().max() {
        Some(last) if *last as usize >= table.max_positions() => {
            bail!("rope: position {last} is past the table of {} positions", table.max_positions())
        }
        _ => Ok(()),
    }
}

struct Rope {
    positions: Arc<[u32]>,
    table: RopeTable,
    direction: f32,
}

impl Rope {
    fn turned(&self, x: &[f32]) -> Vec<f32> {
        let mut out = x.to_vec();
        let per_token = x.len() / self.positions.len().max(1);
        for (token, position) in out.chunks_exact_mut(per_token).zip(self.positions.iter()) {
            for head in token.chunks_exact_mut(2 * self.table.half) {
                self.table.turn(head, *position as usize, self.direction);
            }
        }
        out
    }
}

impl CustomOp1 for Rope {
    fn name(&self) -> &'static str {
        "eyas-rope"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = storage_slice(storage, layout, self.name())?;
        Ok((CpuStorage::F32(self.turned(x)), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        debug_assert_eq!(x.dtype(), DType::F32);
        let grad = grad.contiguous()?;
        let back = Self { positions: self.positions.clone(), table: self.table.clone(), direction: -self.direction };
        let dx = back.turned(floats(&grad)?.get());
        Ok(Some(Tensor::from_vec(dx, x.shape(), x.device())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::{check_against, random};

    #[test]
    fn agrees_with_the_composed_twin_and_with_finite_differences() {
        let table = RopeTable::new(6, 100.0, 16);
        let positions: Arc<[u32]> = vec![0, 3, 15, 7].into();
        check_against(
            &[random(&[4, 2, 6], 5)],
            |t| rope(&t[0], &positions, &table),
            |t| rope_composed(&t[0], &positions, &table),
        );
    }

    #[test]
    fn refuses_positions_past_the_table() {
        let table = RopeTable::new(4, 100.0, 8);
        let err = rope(&random(&[1, 1, 4], 1), &vec![8].into(), &table).unwrap_err();
        assert!(err.to_string().contains("position 8 is past the table of 8"), "{err}");
    }
}
