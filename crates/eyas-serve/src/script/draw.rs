//! Seeded draws that depend on nothing but their key, so that order and retries do not change an answer.

use super::config::Lengths;
use std::f64::consts::TAU;

/// SplitMix64 (Steele, Lea, Flood 2014), keyed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw(u64);

impl Draw {
    /// One stream for each (seed, key, purpose).
    pub(crate) fn new(seed: u64, key: u64, purpose: u64) -> Self {
        let mut draw = Self(seed ^ key.rotate_left(23) ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// In 0..n.
    #[expect(clippy::cast_possible_truncation, reason = "the high half of a product with a u32 fits a u32")]
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u32
    }

    /// Standard normal (Box-Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// A length by the law, tokens, at least 1.
    pub(crate) fn length(&mut self, law: &Lengths) -> u32 {
        match law {
            Lengths::Fixed { tokens } => *tokens,
            Lengths::Uniform { min, max } => min + self.below(max - min + 1),
            Lengths::List { tokens } => {
                let n = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
                tokens[self.below(n) as usize]
            }
            Lengths::LognormalMixture { weights, mu, sigma, cap } => {
                let mut left = self.uniform() * weights.iter().sum::<f64>();
                let mut part = 0;
                while part + 1 < weights.len() && left >= weights[part] {
                    left -= weights[part];
                    part += 1;
                }
                let drawn = (mu[part] + sigma[part] * self.normal()).exp().round();
                to_u32(drawn).clamp(1, *cap)
            }
        }
    }
}

/// To the nearest whole number that fits; not a number gives 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is what is wanted"
)]
pub(crate) fn to_u32(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_law_has_the_moments_of_the_run_it_was_fitted_to() {
        let law = Lengths::default();
        let mut lengths: Vec<f64> = (0..200_000).map(|n| f64::from(Draw::new(1, n, 0).length(&law))).collect();
        lengths.sort_by(f64::total_cmp);
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        let at = |share: f64| lengths[to_u32(share * lengths.len() as f64) as usize];
        assert!((mean / 1416.0 - 1.0).abs() < 0.02, "mean {mean}");
        assert!((at(0.9) / 3644.0 - 1.0).abs() < 0.03, "P90 {}", at(0.9));
        assert!((at(0.99) / 6849.0 - 1.0).abs() < 0.04, "P99 {}", at(0.99));
    }
}
