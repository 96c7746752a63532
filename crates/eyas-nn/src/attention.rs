//! Causal attention over sequences packed end to end, without padding and without a mask tensor.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};

use crate::floats::{floats, is_fusable, storage_slice};
use crate::ops::causal_softmax_composed;

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
        let op = PackedAttention { segments: segments.clone(), n_heads: q.dim(1)?, n_kv_heads: k.dim(1)?, head_dim: q.dim(2)? };
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
fn transpose_head(x: &[f32], range: &Range<usize>, stride: usize, head: Range<usize>, out: &mut Vec<f32>) {
    out.clear();
    out.resize(range.len() * head.len(), 0.0);
    for (i, token) in range.clone().enumerate() {
        for (d, value) in x[token * stride + head.start..token * stride + head.end].iter().enumerate() {
            out[d * range.len() + i] = *value;
        }
    }
}

/// `out += scale * row`.
fn add_scaled(out: &mut [f32], row: &[f32], scale: f32) {
    for (o, r) in out.iter_mut().zip(row) {
        *o += scale * r;
    }
}

/// `out[j] = Σ_d query[d] * transposed[d][j]` for the first `out.len()` columns.
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

/// `out[d] += Σ_j weights[j] * rows[j][d]`, row `j` at `rows[j * stride + head]`.
fn add_weighted_rows(out: &mut [f32], weights: &[f32], rows: &[f32], stride: usize, head: &Range<usize>) {
    for (j, weight) in weights.iter().enumerate() {
        add_scaled(out, &rows[j * stride + head.start..j * stride + head.end], *weight);
    }
}

impl PackedAttention {
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn head(&self, head: usize) -> Range<usize> {
        head * self.head_dim..(head + 1) * self.head_dim
    }

    fn kv_head(&self, head: usize) -> Range<usize> {
        self.head(head / (self.n_heads / self.n_kv_heads))
    }

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
                    crate::ops::softmax_row(&mut weights, self.scale());
                    let out_row = &mut out[token + q_head.start..token + q_head.end];
                    add_weighted_rows(out_row, &weights, &v[range.start * kv_stride..], kv_stride, &kv_head);
                }
                weights.clear();
            }
        }
        out
    }

    /// Gradients of q, k and v. The weights are computed again rather than kept: that is cheaper than the memory they would take.
    fn backward(&self, q: &[f32], k: &[f32], v: &[f32], grad: &[f32]) -> [Vec<f32>; 3] {
        let (q_stride, kv_stride) = (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        let (mut dq, mut dk, mut dv) = (vec![0f32; q.len()], vec![0f32; k.len()], vec![0f32; v.len()]);
        let (mut k_t, mut v_t, mut weights, mut d_weights) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for range in self.segments.ranges() {
            let len = range.len();
            let base = range.start * kv_stride;
            for head in 0..self.n_heads {
                let (q_head, kv_head) = (self.head(head), self.kv_head(head));
                transpose_head(k, range, kv_stride, kv_head.clone(), &mut k_t);
                transpose_head(v, range, kv_stride, kv_head.clone(), &mut v_t);
                for i in 0..len {
                    let token = (range.start + i) * q_stride;
                    let row = token + q_head.start..token + q_head.end;
                    let (query, d_out) = (&q[row.clone()], &grad[row.clone()]);
                    weights.resize(i + 1, 0.0);
                    d_weights.resize(i + 1, 0.0);
                    row_times_transposed(query, &k_t, len, &mut weights);
                    crate::ops::softmax_row(&mut weights, self.scale());
                    row_times_transposed(d_out, &v_t, len, &mut d_weights);
                    let dot: f32 = weights.iter().zip(&d_weights).map(|(p, d)| p * d).sum();
                    for (j, (p, d)) in weights.iter().zip(d_weights.iter_mut()).enumerate() {
                        let kv_row = base + j * kv_stride + kv_head.start..base + j * kv_stride + kv_head.end;
                        add_scaled(&mut dv[kv_row.clone()], d_out, *p);
                        *d = p * (*d - dot) * self.scale();
                        add_scaled(&mut dk[kv_row], query, *d);
                    }
                    add_weighted_rows(&mut dq[row], &d_weights, &k[base..], kv_stride, &kv_head);
                }
                weights.clear();
                d_weights.clear();
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
        Ok((CpuStorage::F32(self.forward(q, k, v)), l1.shape().clone()))
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
        let (q_lock, k_lock, v_lock, g_lock) =
            (floats(q)?, floats(k)?, floats(v)?, floats(&grad)?);
        let [dq, dk, dv] = self.backward(q_lock.get(), k_lock.get(), v_lock.get(), g_lock.get());
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
    fn positions_start_anew_in_each_segment() {
        assert_eq!(*Segments::from_lengths([2, 3]).positions(), [0, 1, 0, 1, 2]);
    }
}
