//! Differentiable CPU operations, AdamW and schedules for candle: what training the tiny target and the drafter share.
//!
//! candle has no fused operation with a backward pass on the CPU: its own `rms_norm`, `rope` and `softmax_last_dim` cut the
//! gradient without a word. The operations of [`ops`] are fused *and* differentiable. Each has a composed twin made of plain
//! candle operations, which runs where the fused one cannot (another device, another dtype) and is the oracle of its tests.
//!
//! Everything here sums in a fixed order: the same inputs give the same bits, whatever the number of threads.

pub mod adamw;
pub mod attention;
pub mod checkpoint;
mod floats;
pub mod ops;
pub mod schedule;
mod simd;

#[cfg(test)]
mod gradcheck;

pub use adamw::{AdamW, AdamWConfig};
pub use attention::{Segments, packed_attention};
pub use ops::{RopeTable, causal_softmax, cross_entropy, rms_norm, rope, swiglu};
pub use schedule::CosineSchedule;
