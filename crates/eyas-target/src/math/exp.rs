//! An exponential that compilers vectorise and that gives the same bits on every machine.

/// `e^x` within 2 units in the last place for `x` in [-87, 88]; 0 (or the least normal number) below, `e^88` above. NaN stays NaN.
///
/// Cody-Waite reduction to `|r| ≤ ln 2 / 2`, then the degree-6 polynomial of Cephes `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 × 2^23 rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x_in_range = x.clamp(-87.0, 88.0);
    let shifted = x_in_range * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x_in_range - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5e-1;
    let value = p * (r * r) + r + 1.0;
    let power_of_two = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    let value = value * power_of_two;
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_close_to_the_true_value_over_the_whole_range() {
        let mut worst = 0f64;
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.4e-7, "relative error {worst:e}");
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(0.0).to_bits(), 1f32.to_bits());
        assert!(exp(1000.0) > 1e38);
        assert!(exp(f32::NAN).is_nan());
    }
}
