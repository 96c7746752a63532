//! GGUF: one file with sizes, weights, tokenizer and chat template.
//!
//! **Rope.** Files of architecture `llama` hold the rows of the q and k projections in pairs (value `2 i` of a head turns with `2 i + 1`); those of
//! the Qwens hold them in halves (`i` with `i + head_dim / 2`), as Hugging Face does. This crate turns halves, so the rows of the former
//! are put back in order as they are read; quantized rows are moved whole, without being touched.

mod metadata;
mod tokenizer;

pub(crate) use metadata::Metadata;
pub use tokenizer::GgufTokenizerError;

use crate::config::{Architecture, ConfigError, ModelConfig};
use crate::linear::DenseDType;
use crate::weights::{WeightError, WeightSource, check_shape};
use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An open GGUF file. Tensors are read when they are asked for.
pub(crate) struct GgufSource {
    path: PathBuf,
    file: File,
    content: Content,
    config: ModelConfig,
    read: HashSet<String>,
}

/// Why a GGUF file was refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It could not be opened.
    #[error("cannot open `{path}`")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its head is damaged, or holds a type of tensor that candle does not know.
    #[error("`{path}` is not a usable GGUF file")]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: candle_core::Error,
    },
    /// Its metadata describe no model this crate computes.
    #[error("`{path}` cannot be used")]
    Config {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: ConfigError,
    },
}

impl GgufSource {
    pub(crate) fn open(path: &Path) -> Result<Self, GgufError> {
        let path = path.to_owned();
        let mut file = File::open(&path).map_err(|source| GgufError::Io { path: path.clone(), source })?;
        let content = Content::read(&mut file).map_err(|source| GgufError::Content { path: path.clone(), source })?;
        let config =
            metadata::model_config(&content).map_err(|source| GgufError::Config { path: path.clone(), source })?;
        Ok(Self { path, file, content, config, read: HashSet::new() })
    }

    pub(crate) fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(crate) fn metadata(&self) -> Metadata<'_> {
        Metadata(&self.content)
    }

    /// The tokenizer in the file.
    pub(crate) fn tokenizer(&self) -> Result<tokenizers::Tokenizer, GgufTokenizerError> {
        tokenizer::build(&self.metadata())
    }

    /// Radians per position: the config's, divided by the factors of `rope_freqs.weight` where the file has it (Llama 3.1 and later).
    pub(crate) fn inv_freq(&mut self) -> Result<Vec<f32>, WeightError> {
        let mut inv_freq = self.config.inv_freq();
        if self.content.tensor_infos.contains_key(metadata::ROPE_FREQS) {
            let factors = self.read(metadata::ROPE_FREQS, &[inv_freq.len()])?;
            for (freq, factor) in inv_freq.iter_mut().zip(factors) {
                *freq /= factor;
            }
        }
        Ok(inv_freq)
    }

    /// The tensor in the file's name, its rows in the order of Hugging Face.
    fn tensor(&mut self, name: &str, needed: &[usize]) -> Result<QTensor, WeightError> {
        let file_name = file_name(name);
        let Some(info) = self.content.tensor_infos.get(&file_name) else {
            return Err(WeightError::Missing { name: file_name, needed: needed.to_vec() });
        };
        check_shape(&file_name, info.shape.dims(), needed)?;
        let tensor = self.content.tensor(&mut self.file, &file_name, &Device::Cpu).map_err(|error| {
            WeightError::Damaged { path: self.path.clone(), problem: format!("tensor `{file_name}`: {error}") }
        })?;
        self.read.insert(file_name);
        match self.pairs_of_heads(name) {
            Some(n_heads) => Ok(halves_from_pairs(&tensor, n_heads)?),
            None => Ok(tensor),
        }
    }

    /// For a tensor whose rows lie in pairs, the number of its heads.
    fn pairs_of_heads(&self, name: &str) -> Option<usize> {
        let is_paired = matches!(self.config.architecture, Architecture::Llama | Architecture::Mistral);
        match name {
            _ if !is_paired => None,
            _ if name.contains(".q_proj.") => Some(self.config.n_heads),
            _ if name.contains(".k_proj.") => Some(self.config.n_kv_heads),
            _ => None,
        }
    }
}

impl WeightSource for GgufSource {
    fn read(&mut self, name: &str, needed: &[usize]) -> Result<Vec<f32>, WeightError> {
        Ok(self.tensor(name, needed)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?)
    }

    fn native_dtype(&self, name: &str) -> DenseDType {
        match self.content.tensor_infos.get(&file_name(name)).map(|info| info.ggml_dtype) {
            Some(GgmlDType::BF16) => DenseDType::Bf16,
            Some(GgmlDType::F16) => DenseDType::F16,
            _ => DenseDType::F32,
        }
    }

    fn read_quantized(&mut self, name: &str, needed: &[usize]) -> Result<Option<QTensor>, WeightError> {
        match self.content.tensor_infos.get(&file_name(name)).map(|info| info.ggml_dtype) {
            None | Some(GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16) => Ok(None),
            Some(_) => Ok(Some(self.tensor(name, needed)?)),
        }
    }

    fn unread(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.content.tensor_infos.keys().filter(|name| !self.read.contains(*name)).cloned().collect();
        names.sort_unstable();
        names
    }
}

/// GGUF's name of a tensor, given Hugging Face's. Names of neither kind stay as they are.
fn file_name(name: &str) -> String {
    const PARTS: [(&str, &str); 11] = [
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ];
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".to_owned(),
        "model.norm.weight" => return "output_norm.weight".to_owned(),
        "lm_head.weight" => return "output.weight".to_owned(),
        _ => {}
    }
    let in_layer = || {
        let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
        let (part, kind) = rest.rsplit_once('.')?;
        let (_, part) = PARTS.iter().find(|(theirs, _)| *theirs == part)?;
        Some(format!("blk.{layer}.{part}.{kind}"))
    };
    in_layer().unwrap_or_else(|| name.to_owned())
}

/// Moves rows (or, of a bias, values) from pairs to halves within each head: row `2 i + s` becomes row `s head_dim / 2 + i`.
fn halves_from_pairs(tensor: &QTensor, n_heads: usize) -> candle_core::Result<QTensor> {
    let n_rows = tensor.shape().dims().first().copied().unwrap_or(0);
    let half = n_rows / n_heads / 2;
    let data = tensor.data()?;
    let row_bytes = data.len() / n_rows.max(1);
    let mut moved = Vec::with_capacity(data.len());
    for head in 0..n_heads {
        for side in 0..2 {
            for i in 0..half {
                let row = head * 2 * half + 2 * i + side;
                moved.extend_from_slice(&data[row * row_bytes..][..row_bytes]);
            }
        }
    }
    let storage = QStorage::from_data(Cow::Owned(moved), &Device::Cpu, tensor.dtype())?;
    QTensor::new(storage, tensor.shape().clone())
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_are_translated() {
        let check = |name: &str, expect: &str| assert_eq!(file_name(name), expect);
        check("model.embed_tokens.weight", "token_embd.weight");
        check("lm_head.weight", "output.weight");
        check("model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias");
        check("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight");
        check("rope_freqs.weight", "rope_freqs.weight");
    }
}
