//! Causal attention over sequences packed end to end, without padding and without a mask tensor.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::ops::causal_softmax_composed;
use crate::simd::{self, add_scaled, vectorized};

/// Where each packed sequence begins and ends. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments(Arc<[Range<usize>]>);

impl Segments {
    /// Segments of the given lengths, end to end.
    pub fn from_lengths(lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut start = 0;
        Self(
            lengths
                .into_iter()
                .map(|n| {
                    start += n;
                    start - n..start
                })
                .collect(),
        )
    }

    /// Tokens in all.
    pub fn n_tokens(&self) -> usize {
        self.0.last().map_or(0, |last| last.end)
    }

    /// The token ranges, in order.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    /// The position of each token within its own sequence, `[n_tokens]`.
    #[expect(clippy::cast_possible_truncation, reason = "a sequence of 2^32 tokens fits no memory")]
    pub fn positions(&self) -> Arc<[u32]> {
        self.0.iter().flat_map(|range| (0..range.len()).map(|p| p as u32)).collect()
    }
}

/// Causal attention within each segment: `softmax(q·kᵀ / sqrt(head_dim)) · v`.
///
/// `q`: `[n_tokens, n_heads, head_dim]`; `k`, `v`: `[n_tokens, n_kv_heads, head_dim]`; `n_kv_heads` divides `n_heads` (query head
/// `h` reads key-value head `h / (n_heads / n_kv_heads)`). Returns the shape of `q`.
pub fn packed_attention(q: &Tensor, k: &Tensor, v: &Tensor, segments: &Segments) -> Result<Tensor> {
    check(q, k, v, segments)?;
    if is_fusable(q) && is_fusable(k) && is_fusable(v) {
        let op = PackedAttention {
            segments: segments.clone(),
            n_heads: q.dim(1)?,
            n_kv_heads: k.dim(1)?,
            head_dim: q.dim(2)?,
        };
        return q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, op);
    }
    packed_attention_composed(q, k, v, segments)
}

/// [`packed_attention`] out of plain candle operations, one segment after the other.
pub fn packed_attention_composed(q: &Tensor, k: &Tensor, v: &Tensor, segments: &Segments) -> Result<Tensor> {
    check(q, k, v, segments)?;
    let (_, n_heads, head_dim) = q.dims3()?;
    let n_kv_heads = k.dim(1)?;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let mut outputs = Vec::new();
    for range in segments.ranges() {
        // [n_heads, len, head_dim]
        let per_head = |t: &Tensor| t.narrow(0, range.start, range.len())?.transpose(0, 1)?.contiguous();
        let repeated = |t: &Tensor| {
            let t = per_head(t)?.unsqueeze(1)?;
            let shape = (n_kv_heads, n_heads / n_kv_heads, range.len(), head_dim);
            t.broadcast_as(shape)?.contiguous()?.reshape((n_heads, range.len(), head_dim))
        };
        let scores = per_head(q)?.matmul(&repeated(k)?.transpose(1, 2)?.contiguous()?)?;
        let probabilities = causal_softmax_composed(&scores, scale, range.len())?;
        outputs.push(probabilities.matmul(&repeated(v)?)?.transpose(0, 1)?);
    }
    Tensor::cat(&outputs, 0)
}

fn check(q: &Tensor, k: &Tensor, v: &Tensor, segments: &Segments) -> Result<()> {
    let (n_tokens, n_heads, head_dim) = q.dims3()?;
    let (_, n_kv_heads, _) = k.dims3()?;
    let kv_shape = (n_tokens, n_kv_heads, head_dim);
    if n_heads % n_kv_heads.max(1) != 0 || k.dims3()? != kv_shape || v.dims3()? != kv_shape {
        bail!("packed attention: q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape());
    }
    if segments.n_tokens() != n_tokens {
        bail!("packed attention: segments hold {} tokens, q {n_tokens}", segments.n_tokens());
    }
    Ok(())
}

struct PackedAttention {
    segments: Segments,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

/// Keys of one head of one segment, transposed to `[head_dim, len]`, so that the scores of a query are sums of whole rows.
#[inline(always)]
fn transpose_head(x: &[f32], range: &Range<usize>, stride: usize, head: Range<usize>, out: &mut Vec<f32>) {
    out.clear();
    out.resize(range.len() * head.len(), 0.0);
    for (i, token) in range.clone().enumerate() {
        for (d, value) in x[token * stride + head.start..token * stride + head.end].iter().enumerate() {
            out[d * range.len() + i] = *value;
        }
    }
}

/// `out[j] = Σ_d query[d] * transposed[d][j]` for the first `out.len()` columns.
#[inline(always)]
fn row_times_transposed(query: &[f32], transposed: &[f32], len: usize, out: &mut [f32]) {
    out.fill(0.0);
    let n = out.len();
    let mut pairs = query.chunks_exact(4).zip(transposed.chunks_exact(4 * len));
    for (q, rows) in &mut pairs {
        let (r0, r1) = (&rows[..n], &rows[len..len + n]);
        let (r2, r3) = (&rows[2 * len..2 * len + n], &rows[3 * len..3 * len + n]);
        for ((((o, a), b), c), d) in out.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
            *o += (q[0] * a + q[1] * b) + (q[2] * c + q[3] * d);
        }
    }
    let done = query.len() / 4 * 4;
    for (d, q) in query.iter().enumerate().skip(done) {
        add_scaled(out, &transposed[d * len..d * len + n], *q);
    }
}

/// `out[d] += Σ_j weights[j * weight_stride] * rows[j * stride + head.start + d]`, over as many `j` as there are weights.
///
/// The sums of 32 columns at a time stay in registers.
#[inline(always)]
fn add_weighted_rows(
    out: &mut [f32],
    weights: impl Iterator<Item = f32> + Clone,
    rows: &[f32],
    stride: usize,
    head: &Range<usize>,
) {
    const BLOCK: usize = 32;
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let n_blocks = blocks.len();
    for (b, block) in blocks.iter_mut().enumerate() {
        let mut sums = *block;
        for (weight, row) in weights.clone().zip(rows[head.start + b * BLOCK..].chunks(stride)) {
            if let Some(row) = row.first_chunk::<BLOCK>() {
                for (sum, r) in sums.iter_mut().zip(row) {
                    *sum += weight * r;
                }
            }
        }
        *block = sums;
    }
    if !rest.is_empty() {
        for (weight, row) in weights.zip(rows[head.start + n_blocks * BLOCK..].chunks(stride)) {
            add_scaled(rest, &row[..rest.len()], weight);
        }
    }
}

impl PackedAttention {
    #[inline(always)]
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    #[inline(always)]
    fn head(&self, head: usize) -> Range<usize> {
        head * self.head_dim..(head + 1) * self.head_dim
    }

    #[inline(always)]
    fn kv_head(&self, head: usize) -> Range<usize> {
        self.head(head / (self.n_heads / self.n_kv_heads))
    }

    #[inline(always)]
    fn forward(&self, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
        let (q_stride, kv_stride) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        let mut out = vec![0f32; q.len()];
        let (mut k_t, mut weights) = (Vec::new(), Vec::new());
        for range in self.segments.ranges() {
            let len = range.len();
            for head in 0..self.n_heads {
                let (q_head, kv_head) = (self.head(head), self.kv_head(head));
                transpose_head(k, range, kv_stride, kv_head.clone(), &mut k_t);
                for i in 0..len {
                    let token = (range.start + i) * q_stride;
                    weights.resize(i + 1, 0.0);
                    row_times_transposed(&q[token + q_head.start..token + q_head.end], &k_t, len, &mut weights);
                    simd::softmax(&mut weights, self.scale());
                    let out_row = &mut out[token + q_head.start..token + q_head.end];
                    let values = &v[range.start * kv_stride..];
                    add_weighted_rows(out_row, weights.iter().copied(), values, kv_stride, &kv_head);
                }
                weights.clear();
            }
        }
        out
    }

    /// Gradients of q, k and v. The weights are computed again rather than kept: that is cheaper than the memory they would take.
    #[inline(always)]
    fn backward(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> [Vec<f32>; 3] {
        let (q_stride, kv_stride) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        let (mut dq, mut dk, mut dv) = (vec![0f32; q.len()], vec![0f32; k.len()], vec![0f32; v.len()]);
        let (mut k_t, mut v_t) = (Vec::new(), Vec::new());
        // Weights and their gradients for one head of one segment, `[len, len]`, of which the lower triangle is used.
        let (mut weights, mut d_weights) = (Vec::new(), Vec::new());
        for range in self.segments.ranges() {
            let len = range.len();
            let (q_base, kv_base) = (range.start * q_stride, range.start * kv_stride);
            weights.resize(weights.len().max(len * len), 0.0);
            d_weights.resize(d_weights.len().max(len * len), 0.0);
            for head in 0..self.n_heads {
                let (q_head, kv_head) = (self.head(head), self.kv_head(head));
                transpose_head(k, range, kv_stride, kv_head.clone(), &mut k_t);
                transpose_head(v, range, kv_stride, kv_head.clone(), &mut v_t);
                for i in 0..len {
                    let row = q_base + i * q_stride + q_head.start..q_base + i * q_stride + q_head.end;
                    let (p, d) = (&mut weights[i * len..i * len + i + 1], &mut d_weights[i * len..i * len + i + 1]);
                    row_times_transposed(&q[row.clone()], &k_t, len, p);
                    simd::softmax(p, self.scale());
                    row_times_transposed(&grad[row.clone()], &v_t, len, d);
                    let dot = simd::dot(p, d);
                    for (d, p) in d.iter_mut().zip(&*p) {
                        *d = p * (*d - dot) * self.scale();
                    }
                    add_weighted_rows(&mut dq[row], d.iter().copied(), &k[kv_base..], kv_stride, &kv_head);
                }
                for j in 0..len {
                    let row = kv_base + j * kv_stride + kv_head.start..kv_base + j * kv_stride + kv_head.end;
                    let first = q_base + j * q_stride;
                    let p = weights[j * len + j..len * len].iter().step_by(len).copied();
                    let d = d_weights[j * len + j..len * len].iter().step_by(len).copied();
                    add_weighted_rows(&mut dv[row.clone()], p, &grad[first..], q_stride, &q_head);
                    add_weighted_rows(&mut dk[row], d, &q[first..], q_stride, &q_head);
                }
            }
        }
        [dq, dk, dv]
    }
}

impl CustomOp3 for PackedAttention {
    fn name(&self) -> &'static str {
        "eyas-packed-attention"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let q = storage_slice(s1, l1, self.name())?;
        let (k, v) = (storage_slice(s2, l2, self.name())?, storage_slice(s3, l3, self.name())?);
        Ok((CpuStorage::F32(vectorized(|| self.forward(q, k, v))), l1.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        debug_assert_eq!(grad.dtype(), DType::F32);
        let grad = grad.contiguous()?;
        let (q_lock, k_lock, v_lock, g_lock) = (floats(q)?, floats(k)?, floats(v)?, floats(&grad)?);
        let (q_values, k_values, v_values) = (q_lock.get(), k_lock.get(), v_lock.get());
        let [dq, dk, dv] = vectorized(|| self.backward(q_values, k_values, v_values, g_lock.get()));
        Ok((
            Some(Tensor::from_vec(dq, q.shape(), q.device())?),
            Some(Tensor::from_vec(dk, k.shape(), k.device())?),
            Some(Tensor::from_vec(dv, v.shape(), v.device())?),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::{check_against, random};

    #[test]
    fn agrees_with_the_composed_twin_and_with_finite_differences() {
        let segments = Segments::from_lengths([3, 1, 4]);
        check_against(
            &[random(&[8, 4, 6], 11), random(&[8, 2, 6], 12), random(&[8, 2, 6], 13)],
            |t| packed_attention(&t[0], &t[1], &t[2], &segments),
            |t| packed_attention_composed(&t[0], &t[1], &t[2], &segments),
        );
    }

    #[test]
    fn heads_may_be_wider_than_a_block_of_registers() {
        let segments = Segments::from_lengths([2, 3]);
        check_against(
            &[random(&[5, 1, 36], 14), random(&[5, 1, 36], 15), random(&[5, 1, 36], 16)],
            |t| packed_attention(&t[0], &t[1], &t[2], &segments),
            |t| packed_attention_composed(&t[0], &t[1], &t[2], &segments),
        );
    }

    #[test]
    fn positions_start_anew_in_each_segment() {
        assert_eq!(*Segments::from_lengths([2, 3]).positions(), [0, 1, 0, 1, 2]);
    }
}
