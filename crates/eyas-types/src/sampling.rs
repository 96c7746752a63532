//! How the next token is drawn.

use serde::{Deserialize, Serialize};

/// Sampling parameters as they are sent to a server and stored in the manifest. Every field is always sent: server defaults differ
/// (SGLang's `max_new_tokens` is 128 when left out) and are never used silently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingParams {
    /// Cap on generated tokens, reasoning and answer together, the stop token included. Default 2048. SGLang `max_new_tokens`, OpenAI `max_tokens`.
    pub max_new_tokens: u32,
    /// Softmax temperature, ≥ 0; below 1e-6 decoding is greedy. Default 1.0: a drafter should see what the target really says.
    pub temperature: f32,
    /// Nucleus: smallest set of tokens whose probability reaches this, in (0, 1]. Default 1.0 (off).
    pub top_p: f32,
    /// Keep the k likeliest tokens; -1 keeps all. Default -1.
    pub top_k: i32,
    /// Drop tokens below this share of the likeliest one's probability, in [0, 1]. Default 0.0 (off).
    pub min_p: f32,
    /// Penalty on tokens already present, in (0, 2]; 1.0 is off (default).
    pub repetition_penalty: f32,
    /// Further ids that end an answer, besides the target's own end tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop_token_ids: Vec<u32>,
    /// Seed of the draw for engines that take one. SGLang ignores it unless it runs with deterministic inference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Go on past the end token. For measurements only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_eos: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_new_tokens: 2048,
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            repetition_penalty: 1.0,
            stop_token_ids: Vec::new(),
            seed: None,
            ignore_eos: false,
        }
    }
}

impl SamplingParams {
    /// The first value outside its range, as a sentence; `None` when all are usable.
    pub fn problem(&self) -> Option<String> {
        let Self { max_new_tokens, temperature, top_p, top_k, min_p, repetition_penalty, .. } = self;
        if *max_new_tokens == 0 {
            return Some("max_new_tokens must be at least 1, got 0".into());
        }
        if !(temperature.is_finite() && *temperature >= 0.0) {
            return Some(format!("temperature must be a finite number of at least 0, got {temperature}"));
        }
        if !(*top_p > 0.0 && *top_p <= 1.0) {
            return Some(format!("top_p must be in (0, 1], got {top_p}"));
        }
        if *top_k != -1 && *top_k < 1 {
            return Some(format!("top_k must be -1 (all) or at least 1, got {top_k}"));
        }
        if !(0.0..=1.0).contains(min_p) {
            return Some(format!("min_p must be in [0, 1], got {min_p}"));
        }
        if !(*repetition_penalty > 0.0 && *repetition_penalty <= 2.0) {
            return Some(format!("repetition_penalty must be in (0, 2], got {repetition_penalty}"));
        }
        None
    }
}
