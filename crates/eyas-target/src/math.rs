//! The loops that are not matrix products, on plain `f32` rows: exponential, norm, rotary embedding, gated activation.
//!
//! Each is written once in portable code and compiled a second time for AVX2, chosen at run time. Fused multiply-add stays off and sums
//! run in a fixed order, so both give the same bits; only the speed differs.

mod exp;
pub(crate) mod rope;

pub(crate) use exp::exp;

/// Defines `fn name(args)` that runs `body`, compiled for AVX2 where the machine has it.
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "a safe function is called for a feature the line above has found")]
                    // SAFETY: `wide` is safe code; it needs AVX2, and the machine has it.
                    return unsafe { wide($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use dispatched;

dispatched! {
    /// `out[r] = x[r] / rms(x[r]) * weight` for rows of `weight.len()` values. The mean square is summed in eight lanes.
    pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_rows
}

dispatched! {
    /// `x += delta`, value by value.
    pub(crate) fn add_assign(x: &mut [f32], delta: &[f32]) = add_assign_values
}

dispatched! {
    /// Adds `bias` to each row of `x`.
    pub(crate) fn add_bias(x: &mut [f32], bias: &[f32]) = add_bias_rows
}

dispatched! {
    /// `out[r] = silu(gate[r]) * up[r]`, where a row of `gate_up` is `width` gate values followed by `width` up values.
    pub(crate) fn silu_mul(gate_up: &[f32], width: usize, out: &mut [f32]) = silu_mul_rows
}

const LANES: usize = 8;

#[inline(always)]
fn rms_norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for (row, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let scale = 1.0 / (sum_of_squares(row) / width as f32 + eps).sqrt();
        for ((out, &value), &weight) in out.iter_mut().zip(row).zip(weight) {
            *out = value * scale * weight;
        }
    }
}

#[inline(always)]
fn sum_of_squares(row: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let mut sum = lanes.iter().sum::<f32>();
    for &value in chunks.remainder() {
        sum += value * value;
    }
    sum
}

#[inline(always)]
fn add_assign_values(x: &mut [f32], delta: &[f32]) {
    for (x, &delta) in x.iter_mut().zip(delta) {
        *x += delta;
    }
}

#[inline(always)]
fn add_bias_rows(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        add_assign_values(row, bias);
    }
}

#[inline(always)]
fn silu_mul_rows(gate_up: &[f32], width: usize, out: &mut [f32]) {
    for (row, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        let (gate, up) = row.split_at(width);
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_and_activation_agree_with_the_definition() {
        let x: Vec<f32> = (0..2 * 19).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let weight: Vec<f32> = (0..19).map(|i| 1.0 + i as f32 * 0.1).collect();
        let mut out = vec![0.0; x.len()];
        rms_norm(&x, &weight, 1e-5, &mut out);
        for r in 0..2 {
            let row = &x[r * 19..][..19];
            let rms = (row.iter().map(|v| v * v).sum::<f32>() / 19.0 + 1e-5).sqrt();
            for i in 0..19 {
                assert!((out[r * 19 + i] - row[i] / rms * weight[i]).abs() < 1e-5);
            }
        }

        let mut out = vec![0.0; 19];
        silu_mul(&x, 19, &mut out);
        for i in 0..19 {
            let want = x[i] / (1.0 + (-x[i]).exp()) * x[19 + i];
            assert!((out[i] - want).abs() < 1e-5, "{} {want}", out[i]);
        }
    }

    #[test]
    fn the_wide_and_the_portable_code_give_the_same_bits() {
        let x: Vec<f32> = (0..200).map(|i| (i as f32 * 0.37).sin() * 9.0).collect();
        let (mut wide, mut portable) = (vec![0.0; 100], vec![0.0; 100]);
        silu_mul(&x, 100, &mut wide);
        silu_mul_rows(&x, 100, &mut portable);
        assert_eq!(wide, portable);
        let weight = vec![1.5; 100];
        let (mut wide, mut portable) = (vec![0.0; 200], vec![0.0; 200]);
        rms_norm(&x, &weight, 1e-6, &mut wide);
        rms_norm_rows(&x, &weight, 1e-6, &mut portable);
        assert_eq!(wide, portable);
    }
}
