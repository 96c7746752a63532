//! Fused operations with a backward pass, each beside its composed twin.
//!
//! A public function takes the fused way for f32 on the CPU and the composed way for everything else.

mod cross_entropy;
mod rms_norm;
mod rope;
mod softmax;
mod swiglu;

pub use cross_entropy::{cross_entropy, cross_entropy_composed};
pub use rms_norm::{rms_norm, rms_norm_composed};
pub use rope::{RopeTable, rope, rope_composed};
pub use softmax::{causal_softmax, causal_softmax_composed};
pub use swiglu::{swiglu, swiglu_composed};
