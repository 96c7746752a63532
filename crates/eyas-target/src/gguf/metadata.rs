//! The key/value part of a GGUF file, and the model config in it.

use crate::config::{Architecture, ConfigError, ModelConfig, RopeScaling};
use candle_core::quantized::gguf_file::{Content, Value};

/// Tensor of per-pair divisors of rope's frequencies.
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";

/// Typed access to the metadata.
pub(crate) struct Metadata<'a>(pub(super) &'a Content);

impl<'a> Metadata<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.0.metadata.get(key)
    }

    pub(crate) fn str(&self, key: &str) -> Option<&'a str> {
        match self.value(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn unsigned(&self, key: &str) -> Option<u64> {
        unsigned(self.value(key)?)
    }

    /// A token id.
    pub(crate) fn id(&self, key: &str) -> Option<u32> {
        self.unsigned(key).and_then(|id| u32::try_from(id).ok())
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    fn float(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::F32(v) => Some(f64::from(*v)),
            Value::F64(v) => Some(*v),
            _ => None,
        }
    }

    pub(crate) fn strings(&self, key: &str) -> Option<Vec<&'a str>> {
        let Value::Array(items) = self.value(key)? else { return None };
        let strings = items.iter().map(|item| match item {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        });
        strings.collect()
    }

    pub(crate) fn unsigned_array(&self, key: &str) -> Option<Vec<u64>> {
        let Value::Array(items) = self.value(key)? else { return None };
        items.iter().map(unsigned).collect()
    }

    fn has_tensor(&self, name: &str) -> bool {
        self.0.tensor_infos.contains_key(name)
    }
}

fn unsigned(value: &Value) -> Option<u64> {
    match value {
        Value::U8(v) => Some(u64::from(*v)),
        Value::U16(v) => Some(u64::from(*v)),
        Value::U32(v) => Some(u64::from(*v)),
        Value::U64(v) => Some(*v),
        Value::I8(v) => u64::try_from(*v).ok(),
        Value::I16(v) => u64::try_from(*v).ok(),
        Value::I32(v) => u64::try_from(*v).ok(),
        Value::I64(v) => u64::try_from(*v).ok(),
        _ => None,
    }
}

/// Sizes and variants of the model in the file.
pub(super) fn model_config(content: &Content) -> Result<ModelConfig, ConfigError> {
    let metadata = Metadata(content);
    let name = metadata.str("general.architecture").unwrap_or("(none)");
    let architecture = match name {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        other => {
            let (found, known) = (other.to_owned(), "llama, qwen2, qwen3".to_owned());
            return Err(ConfigError::UnknownArchitecture { found, known });
        }
    };
    let key = |field: &str| format!("{name}.{field}");
    let optional = |field: &str| metadata.unsigned(&key(field)).and_then(|n| usize::try_from(n).ok());
    let need = |field: &str| optional(field).ok_or_else(|| ConfigError::Missing { field: key(field) });
    if let Some(n_experts) = optional("expert_count").filter(|&n| n > 0) {
        let found = n_experts.to_string();
        return Err(ConfigError::UnknownValue { field: "expert_count", found, known: "0 (dense models)" });
    }

    let (hidden_size, n_heads) = (need("embedding_length")?, need("attention.head_count")?);
    let head_dim = optional("attention.key_length").unwrap_or(hidden_size / n_heads.max(1));
    if let Some(rotary) = optional("rope.dimension_count").filter(|&rotary| rotary != head_dim) {
        let found = rotary.to_string();
        return Err(ConfigError::UnknownValue { field: "rope.dimension_count", found, known: "the width of a head" });
    }
    let embedding = content.tensor_infos.get("token_embd.weight");
    let vocab_size = embedding.and_then(|info| info.shape.dims().first().copied());
    let trained_len = need("context_length")?;
    let config = ModelConfig {
        architecture,
        vocab_size: vocab_size.ok_or_else(|| ConfigError::Missing { field: "token_embd.weight".to_owned() })?,
        hidden_size,
        intermediate_size: need("feed_forward_length")?,
        n_layers: need("block_count")?,
        n_heads,
        n_kv_heads: optional("attention.head_count_kv").unwrap_or(n_heads),
        head_dim,
        context_len: optional("attention.sliding_window")
            .filter(|&w| w > 0)
            .map_or(trained_len, |w| w.min(trained_len)),
        rms_norm_eps: metadata.float(&key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-6),
        rope_theta: metadata.float(&key("rope.freq_base")).unwrap_or(10_000.0),
        rope_scaling: rope_scaling(&metadata, name)?,
        qkv_bias: metadata.has_tensor("blk.0.attn_q.bias"),
        output_bias: metadata.has_tensor("blk.0.attn_output.bias"),
        mlp_bias: metadata.has_tensor("blk.0.ffn_up.bias"),
        qk_norm: metadata.has_tensor("blk.0.attn_q_norm.weight"),
        tie_word_embeddings: !metadata.has_tensor("output.weight"),
        eos_token_ids: eos_token_ids(&metadata),
        bos_token_id: metadata.id("tokenizer.ggml.bos_token_id"),
    };
    config.check()?;
    Ok(config)
}

fn rope_scaling(metadata: &Metadata<'_>, name: &str) -> Result<RopeScaling, ConfigError> {
    match metadata.str(&format!("{name}.rope.scaling.type")) {
        None | Some("none") => Ok(RopeScaling::None),
        Some("linear") => {
            let field = format!("{name}.rope.scaling.factor");
            let factor = metadata.float(&field).ok_or(ConfigError::Missing { field })?;
            Ok(RopeScaling::Linear { factor })
        }
        Some(other) => Err(ConfigError::UnknownValue {
            field: "rope.scaling.type",
            found: other.to_owned(),
            known: "none, linear (and the tensor rope_freqs.weight)",
        }),
    }
}

/// End of text, of turn and of message, sorted.
fn eos_token_ids(metadata: &Metadata<'_>) -> Vec<u32> {
    let keys = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    let mut ids: Vec<u32> = keys.into_iter().filter_map(|key| metadata.id(key)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
