//! BOS, EOS and the like, by the names that templates use, and the ids that end an answer.

use super::LoadTokenizerError;
use serde_json::{Map, Value};
use std::path::Path;

/// Names as transformers hands them to a chat template (`bos_token`, `eos_token`, `pad_token`, `unk_token`, …) and their texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens(Vec<(String, String)>);

impl SpecialTokens {
    /// From pairs of name and text.
    pub fn new<N: Into<String>, T: Into<String>>(pairs: impl IntoIterator<Item = (N, T)>) -> Self {
        Self(pairs.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }

    /// Reads `tokenizer_config.json`, then `special_tokens_map.json` for names that the former does not give. Both may be missing.
    pub(super) fn load(model_dir: &Path) -> Result<Self, LoadTokenizerError> {
        let mut tokens = Self::default();
        for file in ["tokenizer_config.json", "special_tokens_map.json"] {
            if let Some(config) = read_object(&model_dir.join(file))? {
                tokens.take_from(&config);
            }
        }
        Ok(tokens)
    }

    fn take_from(&mut self, config: &Map<String, Value>) {
        for (name, value) in config {
            if name.ends_with("_token")
                && self.get(name).is_none()
                && let Some(text) = token_text(value)
            {
                self.0.push((name.clone(), text.to_owned()));
            }
        }
        // transformers lets a model name further tokens (`image_token`, …) here.
        if let Some(Value::Object(further)) = config.get("extra_special_tokens") {
            for (name, value) in further {
                if let (None, Some(text)) = (self.get(name), token_text(value)) {
                    self.0.push((name.clone(), text.to_owned()));
                }
            }
        }
    }

    /// The text of one, by name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// The end token's text.
    pub fn eos_token(&self) -> Option<&str> {
        self.get("eos_token")
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The union of the end ids that `generation_config.json`, `config.json` and the tokenizer's `eos_token` name, sorted.
    pub(super) fn end_ids(
        &self,
        model_dir: &Path,
        id_of: impl Fn(&str) -> Option<u32>,
    ) -> Result<Vec<u32>, LoadTokenizerError> {
        let mut ids: Vec<u32> = self.eos_token().and_then(id_of).into_iter().collect();
        for file in ["generation_config.json", "config.json"] {
            let Some(config) = read_object(&model_dir.join(file))? else { continue };
            let nested = config.get("text_config").and_then(|text| text.get("eos_token_id"));
            for value in [config.get("eos_token_id"), nested].into_iter().flatten() {
                let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                ids.extend(values.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// A JSON object from a file; `None` when there is no such file.
fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, LoadTokenizerError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| LoadTokenizerError::Config { path: path.to_path_buf(), source }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadTokenizerError::Read { path: path.to_path_buf(), source }),
    }
}
