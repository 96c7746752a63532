//! What a model is: sizes and variants, read from `config.json` and `generation_config.json` (GGUF metadata: [`crate::gguf`]).

use serde::Deserialize;
use serde_json::Value;

/// Families whose layers this crate computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama and what is built like it: SmolLM 1 and 2, TinyLlama, …
    Llama,
    /// Mistral, dense. Computed as Llama; a sliding window shortens the context instead.
    Mistral,
    /// Qwen2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3, dense: q and k are normed per head.
    Qwen3,
}

impl Architecture {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Llama, "LlamaForCausalLM", "llama"),
        (Self::Mistral, "MistralForCausalLM", "mistral"),
        (Self::Qwen2, "Qwen2ForCausalLM", "qwen2"),
        (Self::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    ];

    /// The name in `architectures` of `config.json`.
    pub fn class_name(self) -> &'static str {
        Self::ALL.iter().find(|(this, ..)| *this == self).map_or("", |(_, class, _)| class)
    }

    /// The `model_type` of `config.json`.
    pub fn model_type(self) -> &'static str {
        Self::ALL.iter().find(|(this, ..)| *this == self).map_or("", |(.., model_type)| model_type)
    }

    fn known() -> String {
        Self::ALL.map(|(_, class, _)| class).join(", ")
    }
}

/// How positions beyond the training length are squeezed into the rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// ≥ 1.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f64,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context of the first training, tokens.
        original_max_position_embeddings: f64,
    },
}

/// Sizes and variants of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the embedding; ids are below it. May exceed the tokenizer's vocabulary (padding).
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width between the two halves of the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head; `n_heads * head_dim` need not be `hidden_size`.
    pub head_dim: usize,
    /// Tokens the model can look at: `max_position_embeddings`, or the sliding window where that is shorter (within it, windowed and
    /// full attention are the same).
    pub context_len: usize,
    /// Added to the mean square in the norms.
    pub rms_norm_eps: f64,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Its scaling.
    pub rope_scaling: RopeScaling,
    /// Whether q, k and v projections have a bias.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub output_bias: bool,
    /// Whether the MLP's projections have biases.
    pub mlp_bias: bool,
    /// Whether q and k are normed per head before rope.
    pub qk_norm: bool,
    /// Whether the output layer is the embedding.
    pub tie_word_embeddings: bool,
    /// Ids that end an answer: of `config.json` and `generation_config.json` together, sorted.
    pub eos_token_ids: Vec<u32>,
    /// Beginning-of-text id, where the config names one. Prompts are sent as ids, so nothing here adds it.
    pub bos_token_id: Option<u32>,
}

/// Why a config was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or a field of the wrong type.
    #[error("config is not usable: {0}")]
    Json(#[from] serde_json::Error),
    /// A family this crate does not compute.
    #[error("architecture `{found}` is not known; known are {known}")]
    UnknownArchitecture {
        /// As the config names it.
        found: String,
        /// The names that would do.
        known: String,
    },
    /// A field has a value this crate does not compute.
    #[error("`{field}` is `{found}`; known are {known}")]
    UnknownValue {
        /// Which field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The values that would do.
        known: &'static str,
    },
    /// A field is missing.
    #[error("`{field}` is missing")]
    Missing {
        /// Which.
        field: String,
    },
    /// Sizes that contradict each other.
    #[error("{problem}")]
    Inconsistent {
        /// How.
        problem: String,
    },
}

/// The fields of `config.json` that are read.
#[derive(Debug, Deserialize)]
struct RawConfig {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    /// transformers 4 and before.
    rope_scaling: Option<RawRope>,
    /// transformers 5: theta and scaling together.
    rope_parameters: Option<RawRope>,
    partial_rotary_factor: Option<f64>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    tie_word_embeddings: Option<bool>,
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    eos_token_id: Option<OneOrMany>,
    bos_token_id: Option<OneOrMany>,
}

#[derive(Debug, Deserialize)]
struct RawRope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    fn to_vec(&self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![*id],
            Self::Many(ids) => ids.clone(),
        }
    }
}

impl ModelConfig {
    /// Reads `config.json` and, where there is one, `generation_config.json` (for its end tokens).
    pub fn from_json(config: &str, generation_config: Option<&str>) -> Result<Self, ConfigError> {
        let architecture = find_architecture(config)?;
        let raw: RawConfig = serde_json::from_str(config)?;
        raw.refuse_what_is_not_computed()?;

        let mut eos_token_ids = raw.eos_token_id.as_ref().map(OneOrMany::to_vec).unwrap_or_default();
        if let Some(generation_config) = generation_config {
            #[derive(Deserialize)]
            struct Generation {
                eos_token_id: Option<OneOrMany>,
            }
            let generation: Generation = serde_json::from_str(generation_config)?;
            eos_token_ids.extend(generation.eos_token_id.iter().flat_map(OneOrMany::to_vec));
        }
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();

        let attention_bias = raw.attention_bias.unwrap_or(false);
        let default_head_dim = match architecture {
            Architecture::Qwen3 => 128,
            _ => raw.hidden_size / raw.num_attention_heads.max(1),
        };
        let config = Self {
            architecture,
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            n_layers: raw.num_hidden_layers,
            n_heads: raw.num_attention_heads,
            n_kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim: raw.head_dim.unwrap_or(default_head_dim),
            context_len: raw.window().map_or(raw.max_position_embeddings, |w| w.min(raw.max_position_embeddings)),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(1e-6),
            rope_theta: raw.theta(),
            rope_scaling: raw.scaling()?,
            qkv_bias: architecture == Architecture::Qwen2 || attention_bias,
            output_bias: architecture != Architecture::Qwen2 && attention_bias,
            mlp_bias: raw.mlp_bias.unwrap_or(false),
            qk_norm: architecture == Architecture::Qwen3,
            tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
            eos_token_ids,
            bos_token_id: raw.bos_token_id.as_ref().and_then(|ids| ids.to_vec().first().copied()),
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses sizes that contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let problem = |problem: String| Err(ConfigError::Inconsistent { problem });
        for (name, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.n_layers),
            ("num_attention_heads", self.n_heads),
            ("num_key_value_heads", self.n_kv_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.context_len),
        ] {
            if size == 0 {
                return problem(format!("`{name}` is 0"));
            }
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return problem(format!(
                "{} attention heads cannot share {} key/value heads",
                self.n_heads, self.n_kv_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return problem(format!("`head_dim` is {}, rotary embedding needs an even one", self.head_dim));
        }
        Ok(())
    }

    /// Width of q, k and v side by side.
    pub fn qkv_size(&self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_dim
    }

    /// Radians per position for each pair of a head, `[head_dim / 2]`.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f64, used in f32")]
    pub(crate) fn inv_freq(&self) -> Vec<f32> {
        let exponent = |pair: usize| -2.0 * pair as f64 / self.head_dim as f64;
        (0..self.head_dim / 2).map(|pair| self.scaled_freq(self.rope_theta.powf(exponent(pair))) as f32).collect()
    }

    fn scaled_freq(&self, freq: f64) -> f64 {
        match self.rope_scaling {
            RopeScaling::None => freq,
            RopeScaling::Linear { factor } => freq / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let wavelength = 2.0 * std::f64::consts::PI / freq;
                let turns = original_max_position_embeddings / wavelength;
                if turns > high_freq_factor {
                    freq
                } else if turns < low_freq_factor {
                    freq / factor
                } else {
                    let smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * freq / factor + smooth * freq
                }
            }
        }
    }
}

/// Looks at the names alone, so that a foreign config is refused for what it is, not for a missing field.
fn find_architecture(config: &str) -> Result<Architecture, ConfigError> {
    let value: Value = serde_json::from_str(config)?;
    let classes = value["architectures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let model_type = value["model_type"].as_str();
    let found = classes
        .iter()
        .filter_map(Value::as_str)
        .find_map(|class| Architecture::ALL.iter().find(|(_, known, _)| *known == class))
        .or_else(|| {
            let by_type = |name| Architecture::ALL.iter().find(|(.., known)| *known == name);
            model_type.filter(|_| classes.is_empty()).and_then(by_type)
        });
    found.map(|(architecture, ..)| *architecture).ok_or_else(|| ConfigError::UnknownArchitecture {
        found: classes.first().and_then(Value::as_str).or(model_type).unwrap_or("(none)").to_owned(),
        known: Architecture::known(),
    })
}

impl RawConfig {
    fn rope(&self) -> Option<&RawRope> {
        self.rope_parameters.as_ref().or(self.rope_scaling.as_ref())
    }

    fn theta(&self) -> f64 {
        self.rope_parameters.as_ref().and_then(|rope| rope.rope_theta).or(self.rope_theta).unwrap_or(10_000.0)
    }

    /// The sliding window, where it is in use. Qwen's configs carry one that is switched off.
    fn window(&self) -> Option<usize> {
        self.sliding_window.filter(|_| self.use_sliding_window.unwrap_or(true))
    }

    fn scaling(&self) -> Result<RopeScaling, ConfigError> {
        let Some(rope) = self.rope() else { return Ok(RopeScaling::None) };
        let need = |value: Option<f64>, name: &str| {
            value.ok_or_else(|| ConfigError::Missing { field: format!("rope_scaling.{name}") })
        };
        match rope.rope_type.as_deref() {
            None | Some("default") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor: need(rope.factor, "factor")? }),
            Some("llama3") => Ok(RopeScaling::Llama3 {
                factor: need(rope.factor, "factor")?,
                low_freq_factor: need(rope.low_freq_factor, "low_freq_factor")?,
                high_freq_factor: need(rope.high_freq_factor, "high_freq_factor")?,
                original_max_position_embeddings: need(
                    rope.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            Some(other) => Err(ConfigError::UnknownValue {
                field: "rope_scaling.rope_type",
                found: other.to_owned(),
                known: "default, linear, llama3",
            }),
        }
    }

    fn refuse_what_is_not_computed(&self) -> Result<(), ConfigError> {
        if let Some(act) = self.hidden_act.as_deref().filter(|&act| act != "silu" && act != "swish") {
            return Err(ConfigError::UnknownValue { field: "hidden_act", found: act.to_owned(), known: "silu" });
        }
        let rotary = self.partial_rotary_factor.or(self.rope().and_then(|rope| rope.partial_rotary_factor));
        if let Some(factor) = rotary.filter(|factor| (factor - 1.0).abs() > 1e-9) {
            return Err(ConfigError::UnknownValue {
                field: "partial_rotary_factor",
                found: factor.to_string(),
                known: "1.0",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
