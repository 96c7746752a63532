//! The target model in candle: Llama and Qwen families from safetensors or GGUF, KV cache, batched decoding, sampling.
//!
//! [`Target::open`] loads a model folder or a `.gguf` file; [`Engine`] answers many requests at once on a thread of its own;
//! [`LlamaModel`] is the forward pass itself, with all-position hidden states, taps on chosen layers and a cache that can be cut back.
//!
//! CPU only, and f32 in the arithmetic whatever the weights are stored in. With dense weights a sequence's logits are the same to the bit
//! alone and in any batch, in one piece and in chunks; with a seed, so are its tokens.

mod engine;
mod load;

mod config;
mod kv;
mod llama;
mod sampler;

mod gguf;
mod identity;
mod weights;

mod attention;
mod linear;
mod math;

pub use config::{Architecture, ConfigError, ModelConfig, RopeScaling};
pub use engine::{Engine, EngineConfig, EngineStats, Event, Finish, Finished, Request, Sink, SubmitError};
pub use gguf::{GgufError, GgufTokenizerError};
pub use identity::TargetIdentity;
pub use kv::{BLOCK_TOKENS, KvCache};
pub use llama::{ForwardError, Hidden, LlamaModel, Segment};
pub use load::{OpenError, Target};
pub use sampler::{GREEDY_BELOW, NotFinite, Sampler, argmax};
pub use weights::{WeightError, WeightMode};
