//! Loops the compiler vectorises: eight lanes side by side, added in a fixed order.
//!
//! Everything here is plain Rust and gives the same bits with or without wide registers: products and sums are not contracted,
//! and the order of a sum is the order of its lanes. [`vectorized`] only lets the compiler use AVX2 where the processor has it.

const LANES: usize = 8;

/// Runs `f` compiled for AVX2 if the processor has it. What is to gain from it must be inlined into `f`.
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    if let Some(v3) = pulp::x86::V3::try_new() {
        return pulp::Simd::vectorize(v3, f);
    }
    f()
}

/// Adds up lanes and the rest that filled none.
#[inline(always)]
fn total(lanes: [f32; LANES], rest: f32) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h)) + rest
}

/// `Σ values`.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v;
        }
    }
    total(lanes, rest.iter().sum())
}

/// `Σ a·b`.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0f32; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    total(lanes, a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum())
}

/// The largest value, minus infinity for none.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *v);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| larger(a, *b))
}

/// `out += scale * row`.
#[inline(always)]
pub(crate) fn add_scaled(out: &mut [f32], row: &[f32], scale: f32) {
    for (o, r) in out.iter_mut().zip(row) {
        *o += scale * r;
    }
}

/// `e^x` to about one unit in the last place; 0 below -87, the value at 88 above it.
///
/// Split into a power of two, taken from the bits of a rounded sum, and a polynomial over ±ln 2 / 2 (Cephes), so that a loop over
/// it has no branch and no call.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it leaves the integer in the low bits.
    let clamped = if x < -87.0 { -87.0 } else { x };
    let clamped = if clamped > 88.0 { 88.0 } else { clamped };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let mantissa = p * (r * r) + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    let value = mantissa * power;
    if x < -87.0 { 0.0 } else { value }
}

/// `softmax(row * scale)` in place; an entry of minus infinity becomes 0.
#[inline(always)]
pub(crate) fn softmax(row: &mut [f32], scale: f32) {
    let largest = max(row);
    for v in row.iter_mut() {
        *v = exp((*v - largest) * scale);
    }
    let inverse = 1.0 / sum(row);
    for v in row {
        *v *= inverse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_follows_the_library_to_the_last_place() {
        let mut x = -86.9f32;
        while x < 88.0 {
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 2e-7, "exp({x}) = {got}, not {want}");
            x += 0.0137;
        }
        let exact = [exp(0.0), exp(-100.0), exp(f32::NEG_INFINITY)].map(f32::to_bits);
        assert_eq!(exact, [1.0f32, 0.0, 0.0].map(f32::to_bits));
    }

    #[test]
    fn sums_and_maxima_take_in_the_rest() {
        let values: Vec<f32> = (1..=19u8).map(f32::from).collect();
        let exact = [sum(&values), max(&values), dot(&values, &values), max(&[])].map(f32::to_bits);
        assert_eq!(exact, [190.0, 19.0, 2470.0, f32::NEG_INFINITY].map(f32::to_bits));
    }
}
