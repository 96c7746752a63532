//! Opening a target: a Hugging Face folder or a GGUF file.

use crate::config::{ConfigError, ModelConfig};
use crate::gguf::{GgufError, GgufSource, GgufTokenizerError};
use crate::identity::{TargetIdentity, content_hash};
use crate::llama::LlamaModel;
use crate::weights::{SafetensorsSource, WeightError, WeightMode};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// A target with all that comes with it.
#[derive(Debug)]
pub struct Target {
    /// The model.
    pub model: LlamaModel,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// The tokenizer's file, where it comes from one.
    pub tokenizer_json: Option<PathBuf>,
    /// The chat template, Jinja: of `chat_template.jinja`, else `tokenizer_config.json`, else the GGUF metadata.
    pub chat_template: Option<String>,
    /// Special tokens by role as chat templates name them: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    pub special_tokens: BTreeMap<String, String>,
    /// Ids that end an answer, sorted: of the config, the generation config, the tokenizer's `eos_token`, and `<|eom_id|>`.
    pub eos_token_ids: Vec<u32>,
    /// For the fingerprint of a run.
    pub identity: TargetIdentity,
}

/// Why a target could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither a folder with a `config.json` nor a GGUF file.
    #[error("`{path}` is neither a folder with a config.json nor a .gguf file")]
    NotATarget {
        /// What was given.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read `{path}`")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `config.json` describes no model this crate computes.
    #[error("cannot use `{path}`")]
    Config {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: ConfigError,
    },
    /// `tokenizer.json` or `tokenizer_config.json` is missing or damaged.
    #[error("cannot use `{path}`")]
    Tokenizer {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The tokenizer inside a GGUF file is of a kind this crate does not build.
    #[error("cannot use the tokenizer in `{path}`; a tokenizer.json beside it would take its place")]
    GgufTokenizer {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: GgufTokenizerError,
    },
    /// The GGUF file is of no use.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The weights do not make up the model of the config.
    #[error("cannot load the weights of `{path}`")]
    Weights {
        /// The target.
        path: PathBuf,
        /// Why.
        #[source]
        source: WeightError,
    },
}

impl Target {
    /// Opens `path`: a folder with `config.json`, `tokenizer.json` and safetensors, or a `.gguf` file.
    pub fn open(path: &Path, mode: WeightMode) -> Result<Self, OpenError> {
        if path.join("config.json").is_file() {
            Self::open_folder(path, mode)
        } else if path.is_file() && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            Self::open_gguf(path, mode)
        } else {
            Err(OpenError::NotATarget { path: path.to_owned() })
        }
    }

    fn open_folder(folder: &Path, mode: WeightMode) -> Result<Self, OpenError> {
        let config_path = folder.join("config.json");
        let config = read_text(&config_path)?;
        let generation_config = read_optional(&folder.join("generation_config.json"))?;
        let config = ModelConfig::from_json(&config, generation_config.as_deref())
            .map_err(|source| OpenError::Config { path: config_path.clone(), source })?;
        let tokenizer_json = folder.join("tokenizer.json");
        let tokenizer = read_tokenizer(&tokenizer_json)?;
        let settings = TokenizerSettings::read(folder)?;

        let weights = |source| OpenError::Weights { path: folder.to_owned(), source };
        let mut source = SafetensorsSource::open(folder).map_err(weights)?;
        let mut files: Vec<PathBuf> = FILES.map(|name| folder.join(name)).to_vec();
        files.extend(source.paths());
        let inv_freq = config.inv_freq();
        let mut eos_token_ids = config.eos_token_ids.clone();
        let model = LlamaModel::load(config, &mut source, mode, inv_freq).map_err(weights)?;

        let named = settings.special_tokens.get("eos_token").map(String::as_str);
        eos_token_ids.extend(named.into_iter().chain(["<|eom_id|>"]).filter_map(|token| tokenizer.token_to_id(token)));
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        Ok(Self {
            identity: identify(&model, mode, &files, folder)?,
            model,
            tokenizer,
            tokenizer_json: Some(tokenizer_json),
            chat_template: settings.chat_template,
            special_tokens: settings.special_tokens,
            eos_token_ids,
        })
    }

    fn open_gguf(path: &Path, mode: WeightMode) -> Result<Self, OpenError> {
        let mut source = GgufSource::open(path)?;
        let beside = path.with_file_name("tokenizer.json");
        let (tokenizer, tokenizer_json) = if beside.is_file() {
            (read_tokenizer(&beside)?, Some(beside))
        } else {
            let built = source.tokenizer();
            (built.map_err(|source| OpenError::GgufTokenizer { path: path.to_owned(), source })?, None)
        };
        let metadata = source.metadata();
        let chat_template = metadata.str("tokenizer.chat_template").map(str::to_owned);
        let roles = [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")];
        let special_tokens = roles
            .into_iter()
            .filter_map(|(role, key)| {
                let id = metadata.id(&format!("tokenizer.ggml.{key}_token_id"))?;
                Some((role.to_owned(), tokenizer.id_to_token(id)?))
            })
            .collect();

        let config = source.config().clone();
        let eos_token_ids = config.eos_token_ids.clone();
        let model = source
            .inv_freq()
            .and_then(|inv_freq| LlamaModel::load(config, &mut source, mode, inv_freq))
            .map_err(|source| OpenError::Weights { path: path.to_owned(), source })?;
        let files: Vec<PathBuf> = tokenizer_json.iter().cloned().chain([path.to_owned()]).collect();
        Ok(Self {
            identity: identify(&model, mode, &files, path)?,
            model,
            tokenizer,
            tokenizer_json,
            chat_template,
            special_tokens,
            eos_token_ids,
        })
    }
}

/// The files besides the weights that shape the answers.
const FILES: [&str; 5] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

fn identify(model: &LlamaModel, mode: WeightMode, files: &[PathBuf], path: &Path) -> Result<TargetIdentity, OpenError> {
    Ok(TargetIdentity {
        architecture: model.config().architecture.class_name().to_owned(),
        n_params: model.n_params() as u64,
        weight_mode: mode.as_str().to_owned(),
        content_hash: content_hash(files).map_err(|source| OpenError::Io { path: path.to_owned(), source })?,
    })
}

/// What `tokenizer_config.json` and `chat_template.jinja` say.
#[derive(Debug, Default)]
struct TokenizerSettings {
    chat_template: Option<String>,
    special_tokens: BTreeMap<String, String>,
}

impl TokenizerSettings {
    fn read(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join("tokenizer_config.json");
        let config = match read_optional(&path)? {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| OpenError::Tokenizer { path, source: Box::new(error) })?
            }
            None => Value::Null,
        };
        let chat_template = match read_optional(&folder.join("chat_template.jinja"))? {
            Some(template) => Some(template),
            None => template_in(&config["chat_template"]),
        };
        let special_tokens = ["bos_token", "eos_token", "pad_token", "unk_token"]
            .into_iter()
            .filter_map(|role| Some((role.to_owned(), token_text(&config[role])?.to_owned())))
            .collect();
        Ok(Self { chat_template, special_tokens })
    }
}

/// A template is a string, or one of several under the name `default`.
fn template_in(value: &Value) -> Option<String> {
    let named = |value: &Value| {
        let entry = value.as_array()?.iter().find(|entry| entry["name"] == "default")?;
        entry["template"].as_str().map(str::to_owned)
    };
    value.as_str().map(str::to_owned).or_else(|| named(value))
}

/// A special token is a string, or an object that holds it.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

fn read_text(path: &Path) -> Result<String, OpenError> {
    std::fs::read_to_string(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })
}

fn read_optional(path: &Path) -> Result<Option<String>, OpenError> {
    path.exists().then(|| read_text(path)).transpose()
}

fn read_tokenizer(path: &Path) -> Result<Tokenizer, OpenError> {
    Tokenizer::from_file(path).map_err(|source| OpenError::Tokenizer { path: path.to_owned(), source })
}
