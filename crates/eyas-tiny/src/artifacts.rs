//! The files of the model folder and of the demo's data sets.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::DType;
use eyas_nn::checkpoint::to_safetensors;
use serde_json::{Value, json};
use tokenizers::Tokenizer;

use crate::chat::{self, END_OF_TEXT, IM_END};
use crate::corpus::Sample;
use crate::model::{Model, ModelConfig};
use crate::tasks::{Answer, Kind};

/// Writes a file whole or not at all: beside its place first, then renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension("partial");
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(beside, path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    write_whole(path, format!("{value:#}\n").as_bytes())
}

fn token_id(tokenizer: &Tokenizer, token: &str) -> Result<u32> {
    tokenizer.token_to_id(token).with_context(|| format!("tokenizer lacks `{token}`"))
}

/// Writes tokenizer, template and configs.
pub fn write_configs(folder: &Path, tokenizer: &Tokenizer, config: &ModelConfig) -> Result<()> {
    let (eos, pad) = (token_id(tokenizer, IM_END)?, token_id(tokenizer, END_OF_TEXT)?);
    write_whole(
        &folder.join("tokenizer.json"),
        tokenizer.to_string(true).map_err(anyhow::Error::from_boxed)?.as_bytes(),
    )?;
    write_whole(&folder.join("chat_template.jinja"), chat::TEMPLATE.as_bytes())?;
    let added = tokenizer.get_added_tokens_decoder();
    let mut decoder: Vec<_> = added.iter().collect();
    decoder.sort_by_key(|(id, _)| **id);
    let decoder: serde_json::Map<String, Value> = decoder
        .into_iter()
        .map(|(id, token)| {
            let entry = json!({"content": token.content, "lstrip": false, "normalized": token.normalized,
                "rstrip": false, "single_word": false, "special": token.special});
            (id.to_string(), entry)
        })
        .collect();
    write_json(
        &folder.join("tokenizer_config.json"),
        &json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": decoder,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "bos_token": null,
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "unk_token": null,
            "add_bos_token": false,
            "add_prefix_space": false,
            "clean_up_tokenization_spaces": false,
            "model_max_length": config.max_positions,
        }),
    )?;
    write_json(
        &folder.join("generation_config.json"),
        &json!({"do_sample": false, "eos_token_id": eos, "pad_token_id": pad, "max_new_tokens": 768}),
    )?;
    write_json(
        &folder.join("config.json"),
        &json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "num_key_value_heads": config.n_kv_heads,
            "head_dim": config.head_dim(),
            "hidden_act": "silu",
            "max_position_embeddings": config.max_positions,
            "rope_theta": config.rope_theta,
            "rope_scaling": null,
            "rms_norm_eps": (f64::from(config.rms_norm_eps) * 1e9).round() / 1e9,
            "attention_bias": false,
            "mlp_bias": false,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "tie_word_embeddings": false,
            "bos_token_id": null,
            "eos_token_id": eos,
            "pad_token_id": pad,
            "pretraining_tp": 1,
            "use_cache": true,
            "torch_dtype": "bfloat16",
        }),
    )
}

/// Writes the weights as bf16.
pub fn write_weights(folder: &Path, model: &Model) -> Result<()> {
    let tensors = model
        .variables
        .iter()
        .map(|(name, var)| Ok((name.clone(), var.to_dtype(DType::BF16)?)))
        .collect::<Result<Vec<_>>>()?;
    write_whole(&folder.join("model.safetensors"), &to_safetensors(&tensors, &[])?)
}

/// Loads a model folder; the weights become f32.
pub fn load(folder: &Path, config: ModelConfig) -> Result<(Model, Tokenizer)> {
    let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).map_err(anyhow::Error::from_boxed)?;
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &candle_core::Device::Cpu)?;
    Ok((Model::from_tensors(config, &tensors)?, tokenizer))
}

/// A row of a demo data set: the conversation in OpenAI form, the right answer as its last turn.
pub fn demo_row(id: &str, sample: &Sample) -> Value {
    let answer = match &sample.task.answer {
        Answer::Text(text) => json!({"role": "assistant", "content": text}),
        Answer::ToolCall { name, arguments } => json!({"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": arguments}},
        ]}),
    };
    let mut row = json!({"id": id, "messages": [{"role": "user", "content": sample.task.user}, answer]});
    if !sample.task.tools.is_empty() {
        row["tools"] = Value::Array(sample.task.tools.clone());
    }
    row
}

/// Writes the demo's data sets, kinds mixed in turn; returns (data set, rows) in order.
pub fn write_demo(folder: &Path, samples: &[Sample]) -> Result<Vec<(&'static str, usize)>> {
    let mut written = Vec::new();
    for dataset in ["arithmetic", "words", "tools"] {
        let mut numbered: Vec<(usize, Kind, String)> = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.dataset() == dataset) {
            for (i, sample) in samples.iter().filter(|sample| sample.kind == kind).enumerate() {
                let row = demo_row(&format!("{}-{:04}", kind.name(), i + 1), sample);
                numbered.push((i, kind, chat::python_json(&row)));
            }
        }
        numbered.sort_by_key(|(i, kind, _)| (*i, *kind));
        let lines: String = numbered.iter().flat_map(|(_, _, row)| [row.as_str(), "\n"]).collect();
        write_whole(&folder.join(format!("{dataset}.jsonl")), lines.as_bytes())?;
        written.push((dataset, numbered.len()));
    }
    Ok(written)
}
