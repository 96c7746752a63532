//! Small random models, written as a Hugging Face folder.

use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Tensors by Hugging Face name: shape and values.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Sizes and variants of a model to make.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) class: &'static str,
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) tied: bool,
    /// Further fields of `config.json`, over the others.
    pub(crate) extra: Value,
}

impl Spec {
    /// A Llama small enough for a test of a millisecond.
    pub(crate) fn llama() -> Self {
        Self {
            class: "LlamaForCausalLM",
            vocab_size: 67,
            hidden_size: 32,
            intermediate_size: 48,
            n_layers: 3,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 8,
            tied: false,
            extra: json!({}),
        }
    }

    pub(crate) fn of(class: &'static str) -> Self {
        Self { class, ..Self::llama() }
    }

    pub(crate) fn with(self, extra: Value) -> Self {
        Self { extra, ..self }
    }

    pub(crate) fn config(&self) -> Value {
        let mut config = json!({
            "architectures": [self.class],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": self.tied,
            "hidden_act": "silu",
            "eos_token_id": 2,
        });
        for (key, value) in self.extra.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    /// Random weights, of a size that keeps the residual stream and the logits around 1.
    pub(crate) fn tensors(&self, seed: u64) -> Tensors {
        let flag = |key: &str| self.extra[key].as_bool().unwrap_or(false);
        let (qkv_bias, output_bias) = match self.class {
            "Qwen2ForCausalLM" => (true, false),
            _ => (flag("attention_bias"), flag("attention_bias")),
        };
        let (hidden, q_len, kv_len) = (self.hidden_size, self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim);
        let mut random = Random(seed);
        let mut tensors = Tensors::new();
        let mut put = |name: String, shape: &[usize], center: f32, spread: f32| {
            let n: usize = shape.iter().product();
            let values = (0..n).map(|_| center + spread * random.next()).collect();
            tensors.insert(name, (shape.to_vec(), values));
        };
        put("model.embed_tokens.weight".into(), &[self.vocab_size, hidden], 0.0, 1.0);
        for i in 0..self.n_layers {
            let mut linear = |part: &str, n_out: usize, n_in: usize, bias: bool| {
                let name = format!("model.layers.{i}.{part}");
                put(format!("{name}.weight"), &[n_out, n_in], 0.0, 2.0 / (n_in as f32).sqrt());
                if bias {
                    put(format!("{name}.bias"), &[n_out], 0.0, 0.5);
                }
            };
            linear("self_attn.q_proj", q_len, hidden, qkv_bias);
            linear("self_attn.k_proj", kv_len, hidden, qkv_bias);
            linear("self_attn.v_proj", kv_len, hidden, qkv_bias);
            linear("self_attn.o_proj", hidden, q_len, output_bias);
            linear("mlp.gate_proj", self.intermediate_size, hidden, flag("mlp_bias"));
            linear("mlp.up_proj", self.intermediate_size, hidden, flag("mlp_bias"));
            linear("mlp.down_proj", hidden, self.intermediate_size, flag("mlp_bias"));
            let mut norm = |part: &str, n: usize| put(format!("model.layers.{i}.{part}.weight"), &[n], 1.0, 0.3);
            norm("input_layernorm", hidden);
            norm("post_attention_layernorm", hidden);
            if self.class == "Qwen3ForCausalLM" {
                norm("self_attn.q_norm", self.head_dim);
                norm("self_attn.k_norm", self.head_dim);
            }
        }
        put("model.norm.weight".into(), &[hidden], 1.0, 0.3);
        if !self.tied {
            put("lm_head.weight".into(), &[self.vocab_size, hidden], 0.0, 2.0 / (hidden as f32).sqrt());
        }
        tensors
    }

    /// Writes config, tokenizer and `tensors` in one file.
    pub(crate) fn write(&self, folder: &Path, tensors: &Tensors, dtype: Dtype) {
        self.write_config(folder);
        write_safetensors(&folder.join("model.safetensors"), tensors, dtype);
    }

    /// Writes all but the weights.
    pub(crate) fn write_config(&self, folder: &Path) {
        write_text(&folder.join("config.json"), &self.config().to_string());
        write_text(&folder.join("tokenizer.json"), &tokenizer_json(self.vocab_size).to_string());
    }
}

/// A tokenizer of words `t0`, `t1`, …
fn tokenizer_json(vocab_size: usize) -> Value {
    let vocab: serde_json::Map<String, Value> = (0..vocab_size).map(|id| (format!("t{id}"), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
    })
}

pub(crate) fn write_safetensors(path: &Path, tensors: &Tensors, dtype: Dtype) {
    let bytes: Vec<Vec<u8>> = tensors.values().map(|(_, values)| encode(values, dtype)).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, (shape, _)), bytes)| (name, TensorView::new(dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn encode(values: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::BF16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        other => unreachable!("no test writes {other:?}"),
    }
}

pub(crate) fn write_text(path: &Path, text: &str) {
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// SplitMix64 over [-1, 1).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
