//! Looks at 64 bytes at a time: which of them end a run of plain string bytes, which are digits.
//!
//! All of the crate's `unsafe` is here: calls into code compiled for AVX2, behind a token that exists only after the processor was asked.
//! The portable twin gives the same masks on every machine.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls into AVX2 code after the processor was asked"))]

/// Bytes of one look.
pub(crate) const BLOCK: usize = 64;

/// Masks over a block, bit n for byte n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StringMasks {
    /// `"`, `\` and bytes below 0x20: where a run of plain bytes ends.
    pub(crate) stop: u64,
    /// Bytes from 0x80 on.
    pub(crate) high: u64,
}

/// Masks over a block inside an array of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntegerMasks {
    /// `0`–`9`.
    pub(crate) digit: u64,
    /// `0`.
    pub(crate) zero: u64,
    /// `,`.
    pub(crate) comma: u64,
    /// A space.
    pub(crate) space: u64,
}

/// A way to look at blocks.
pub(crate) trait Blocks: Copy {
    /// See [`StringMasks`].
    fn string(self, block: &[u8; BLOCK]) -> StringMasks;
    /// See [`IntegerMasks`].
    fn integers(self, block: &[u8; BLOCK]) -> IntegerMasks;
}

/// Work that is compiled once for each way to look at blocks. `run` must be `#[inline(always)]`, so that it becomes part of the function
/// that is compiled for the wider instructions.
pub(crate) trait WithBlocks {
    /// What comes out.
    type Out;
    /// Does it.
    fn run<B: Blocks>(self, blocks: B) -> Self::Out;
}

/// Runs `work` with the best way this processor has.
pub(crate) fn with_best<W: WithBlocks>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.run(work);
    }
    work.run(Portable)
}

/// Eight words of eight bytes, on any machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;

/// 0x80 in every byte of `word` that equals `byte`.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let diff = word ^ (ONES * byte as u64);
    !(((diff & !HIGHS) + !HIGHS) | diff | !HIGHS)
}

/// 0x80 in every byte of `word` that is below `limit` (at most 0x80).
#[inline(always)]
fn below(word: u64, limit: u8) -> u64 {
    !((word & !HIGHS) + ONES * (0x80 - limit) as u64) & !word & HIGHS
}

/// Packs the 0x80 bits into 8 bits, byte 0 lowest.
#[inline(always)]
fn pack(bits: u64) -> u64 {
    (bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Blocks for Portable {
    #[inline(always)]
    fn string(self, block: &[u8; BLOCK]) -> StringMasks {
        let (words, _) = block.as_chunks::<8>();
        let mut masks = StringMasks { stop: 0, high: 0 };
        for (n, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            masks.stop |= pack(equal(word, b'"') | equal(word, b'\\') | below(word, 0x20)) << (8 * n);
            masks.high |= pack(word & HIGHS) << (8 * n);
        }
        masks
    }

    #[inline(always)]
    fn integers(self, block: &[u8; BLOCK]) -> IntegerMasks {
        let (words, _) = block.as_chunks::<8>();
        let mut masks = IntegerMasks { digit: 0, zero: 0, comma: 0, space: 0 };
        for (n, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            masks.digit |= pack(below(word, b'9' + 1) & !below(word, b'0')) << (8 * n);
            masks.zero |= pack(equal(word, b'0')) << (8 * n);
            masks.comma |= pack(equal(word, b',')) << (8 * n);
            masks.space |= pack(equal(word, b' ')) << (8 * n);
        }
        masks
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use super::{BLOCK, Blocks, IntegerMasks, StringMasks, WithBlocks};
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_sub_epi8,
    };

    /// Proof that the processor has AVX2 and BMI1.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// Asks the processor.
        pub(crate) fn detect() -> Option<Self> {
            let there = std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("bmi1")
                && std::is_x86_feature_detected!("popcnt");
            there.then_some(Self(()))
        }

        /// Runs `work` inside a function that is compiled for AVX2.
        pub(crate) fn run<W: WithBlocks>(self, work: W) -> W::Out {
            #[target_feature(enable = "avx2,bmi1,popcnt")]
            fn inside<W: WithBlocks>(work: W, blocks: Avx2) -> W::Out {
                work.run(blocks)
            }
            // SAFETY: an `Avx2` exists only after the processor said that it has these features.
            unsafe { inside(work, self) }
        }
    }

    impl Blocks for Avx2 {
        #[inline(always)]
        fn string(self, block: &[u8; BLOCK]) -> StringMasks {
            // SAFETY: as above.
            unsafe { string(block) }
        }

        #[inline(always)]
        fn integers(self, block: &[u8; BLOCK]) -> IntegerMasks {
            // SAFETY: as above.
            unsafe { integers(block) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn load(block: &[u8; BLOCK], half: usize) -> __m256i {
        let (halves, _) = block.as_chunks::<32>();
        // SAFETY: the pointer is to 32 readable bytes; the load needs no alignment. (Built from four words instead, it becomes six shuffles.)
        unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn bits(low: __m256i, high: __m256i) -> u64 {
        let half = |v| u64::from(_mm256_movemask_epi8(v).cast_unsigned());
        half(low) | half(high) << 32
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn string(block: &[u8; BLOCK]) -> StringMasks {
        let quote = _mm256_set1_epi8(b'"'.cast_signed());
        let backslash = _mm256_set1_epi8(b'\\'.cast_signed());
        let control = _mm256_set1_epi8(0x1f);
        let stop = |v| {
            let special = _mm256_or_si256(_mm256_cmpeq_epi8(v, quote), _mm256_cmpeq_epi8(v, backslash));
            _mm256_or_si256(special, _mm256_cmpeq_epi8(_mm256_min_epu8(v, control), v))
        };
        let (low, high) = (load(block, 0), load(block, 1));
        StringMasks { stop: bits(stop(low), stop(high)), high: bits(low, high) }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn integers(block: &[u8; BLOCK]) -> IntegerMasks {
        let zero = _mm256_set1_epi8(b'0'.cast_signed());
        let comma = _mm256_set1_epi8(b','.cast_signed());
        let space = _mm256_set1_epi8(b' '.cast_signed());
        let nine = _mm256_set1_epi8(9);
        let digit = |v| {
            let value = _mm256_sub_epi8(v, zero);
            _mm256_cmpeq_epi8(_mm256_min_epu8(value, nine), value)
        };
        let (low, high) = (load(block, 0), load(block, 1));
        IntegerMasks {
            digit: bits(digit(low), digit(high)),
            zero: bits(_mm256_cmpeq_epi8(low, zero), _mm256_cmpeq_epi8(high, zero)),
            comma: bits(_mm256_cmpeq_epi8(low, comma), _mm256_cmpeq_epi8(high, comma)),
            space: bits(_mm256_cmpeq_epi8(low, space), _mm256_cmpeq_epi8(high, space)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_byte(block: &[u8; BLOCK], test: impl Fn(u8) -> bool) -> u64 {
        block.iter().enumerate().filter(|(_, byte)| test(**byte)).fold(0, |mask, (n, _)| mask | 1 << n)
    }

    fn check<B: Blocks>(blocks: B, block: &[u8; BLOCK]) {
        let expect = StringMasks {
            stop: by_byte(block, |b| b == b'"' || b == b'\\' || b < 0x20),
            high: by_byte(block, |b| b >= 0x80),
        };
        assert_eq!(blocks.string(block), expect);
        let expect = IntegerMasks {
            digit: by_byte(block, |b| b.is_ascii_digit()),
            zero: by_byte(block, |b| b == b'0'),
            comma: by_byte(block, |b| b == b','),
            space: by_byte(block, |b| b == b' '),
        };
        assert_eq!(blocks.integers(block), expect);
    }

    fn check_all(block: &[u8; BLOCK]) {
        check(Portable, block);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = avx2::Avx2::detect() {
            check(avx2, block);
        }
    }

    #[test]
    fn every_byte_value_is_classed_the_same_everywhere() {
        for byte in 0..=u8::MAX {
            check_all(&[byte; BLOCK]);
            let mut block = [b'x'; BLOCK];
            block[usize::from(byte) % BLOCK] = byte;
            check_all(&block);
        }
    }

    proptest! {
        #[test]
        fn masks_agree_with_a_look_at_each_byte(block in proptest::array::uniform32(any::<[u8; 2]>())) {
            let flat: Vec<u8> = block.as_flattened().to_vec();
            check_all(&flat.try_into().unwrap());
        }
    }
}
