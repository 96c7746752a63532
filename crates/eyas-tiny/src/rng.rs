//! The one source of chance: SplitMix64, written out so that no library update changes the corpus or the weights.

/// A generator of 64-bit numbers with the handful of draws the corpus needs.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for `seed` and `stream`; different pairs give unrelated numbers.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ 0x9E37_79B9_7F4A_7C15);
        rng.0 = rng.next_u64() ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03);
        rng.next_u64();
        rng
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A number in `[0, n)`.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of `items`.
    pub fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// `n` different ones of `items`, in random order.
    pub fn pick_distinct<T: Copy>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut pool = items.to_vec();
        self.shuffle(&mut pool);
        pool.truncate(n);
        pool
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// A task size from `low` to `high` whose law has a long tail: nine in ten are geometric with the given ratio, one in ten
    /// is even over the whole range.
    pub fn long_tailed(&mut self, low: usize, high: usize, ratio: f64) -> usize {
        if self.chance(0.1) {
            return self.between(low, high);
        }
        let mut n = low;
        while n < high && self.chance(ratio) {
            n += 1;
        }
        n
    }
}
