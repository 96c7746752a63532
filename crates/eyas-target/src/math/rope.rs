//! Rotary position embedding, half-split form: value `i` of a head turns with value `i + head_dim / 2`.

/// Turns per position and pair, and the cosines and sines of the positions at hand.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    /// `[head_dim / 2]`, radians per position.
    inv_freq: Vec<f32>,
}

impl Rope {
    pub(crate) fn new(inv_freq: Vec<f32>) -> Self {
        Self { inv_freq }
    }

    /// Cosines and sines of `positions`, each `[n, head_dim / 2]`.
    pub(crate) fn angles(&self, positions: impl Iterator<Item = usize>) -> Angles {
        let half = self.inv_freq.len();
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for &inv_freq in &self.inv_freq {
                let (s, c) = (position as f32 * inv_freq).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
        Angles { half, cos, sin }
    }
}

/// Cosines and sines for the tokens of one step.
#[derive(Debug)]
pub(crate) struct Angles {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// Turns each head of `heads` (`[n_heads, head_dim]`, one token) by the angles of token `row`.
    #[inline(always)]
    pub(crate) fn rotate(&self, row: usize, heads: &mut [f32]) {
        let half = self.half;
        let cos = &self.cos[row * half..][..half];
        let sin = &self.sin[row * half..][..half];
        for head in heads.chunks_exact_mut(2 * half) {
            let (low, high) = head.split_at_mut(half);
            for i in 0..half {
                let (a, b) = (low[i], high[i]);
                low[i] = a * cos[i] - b * sin[i];
                high[i] = b * cos[i] + a * sin[i];
            }
        }
    }
}
