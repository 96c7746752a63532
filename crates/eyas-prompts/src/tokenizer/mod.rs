//! The target's own tokenizer: rendered text to ids, generated ids to text.
//!
//! * **Encoding adds nothing.** A chat template writes every control token itself; the post-processor that would put a second BOS in
//!   front is never run ([`Tokenizer::encode`]). Truncation and padding that a `tokenizer.json` asks for are switched off.
//! * **Decoding is whole.** A segment's tokens become bytes, the bytes become text once, lossily: a character whose bytes lie in two tokens
//!   comes out right, and U+FFFD appears only where bytes are not UTF-8, at the tail of an answer that was cut within a character, or where
//!   the model really wrote such bytes. An id outside the vocabulary is an error, never skipped.
//! * Byte-level and byte-fallback decoders are run from a table of bytes per id, which gives the same text as the `tokenizers` crate, faster;
//!   any other decoder is left to that crate.

mod decode_table;
mod escape;
mod special_tokens;

pub use special_tokens::SpecialTokens;

use decode_table::DecodeTable;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tokenizers::Tokenizer as Inner;

/// A loaded `tokenizer.json` with what the files beside it say about special tokens.
pub struct Tokenizer {
    inner: Inner,
    /// The same model without any added token, made when text has to be encoded as plain text.
    plain: OnceLock<Inner>,
    table: Option<DecodeTable>,
    added: BTreeMap<u32, AddedToken>,
    special_ids: HashSet<u32>,
    special: SpecialTokens,
    eos_ids: Vec<u32>,
    n_ids: u32,
}

/// A token that stands beside the model's own vocabulary and is matched before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// Whether it is flagged special, so that decoding with [`Specials::Skip`] leaves it out. `<think>` often is not.
    pub special: bool,
}

/// What decoding does with tokens that are flagged special.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// They are printed.
    Keep,
    /// They are left out (`skip_special_tokens`).
    Skip,
}

/// Why a tokenizer could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadTokenizerError {
    /// The file is missing or unreadable.
    #[error("cannot read `{path}`")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a tokenizer that the `tokenizers` library understands.
    #[error("`{path}` is not a usable tokenizer: {message}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// The library's words.
        message: String,
    },
    /// A configuration file beside it is not JSON.
    #[error("`{path}` is not valid JSON")]
    Config {
        /// Which file.
        path: PathBuf,
        /// Where it breaks.
        #[source]
        source: serde_json::Error,
    },
}

/// Why text could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The library refused.
    #[error("cannot tokenize: {0}")]
    Tokenizer(String),
    /// Text that was to be encoded as plain text still gives a control token.
    #[error("`{token}` in the data cannot be encoded as plain text with this tokenizer")]
    NotPlain {
        /// The token.
        token: String,
    },
}

/// Why ids could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// An id that is in no vocabulary.
    #[error("id {id} at position {position} is not in the vocabulary of {n_ids} ids")]
    UnknownId {
        /// The id.
        id: u32,
        /// Its place in the list.
        position: usize,
        /// One past the largest known id.
        n_ids: u32,
    },
    /// The library refused.
    #[error("cannot decode: {0}")]
    Tokenizer(String),
}

impl Tokenizer {
    /// Loads `tokenizer.json` of a model folder, and what `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and
    /// `config.json` say about special and end tokens, where they are.
    pub fn load(model_dir: &Path) -> Result<Self, LoadTokenizerError> {
        let special = SpecialTokens::load(model_dir)?;
        let mut tokenizer = Self::from_file(&model_dir.join("tokenizer.json"))?;
        tokenizer.eos_ids = special.end_ids(model_dir, |token| tokenizer.id_of(token))?;
        tokenizer.special = special;
        Ok(tokenizer)
    }

    /// Loads one `tokenizer.json`; nothing is known about BOS and end tokens then.
    pub fn from_file(path: &Path) -> Result<Self, LoadTokenizerError> {
        let bytes =
            std::fs::read(path).map_err(|source| LoadTokenizerError::Read { path: path.to_path_buf(), source })?;
        Self::from_bytes(&bytes).map_err(|message| LoadTokenizerError::Invalid { path: path.to_path_buf(), message })
    }

    /// Loads the bytes of a `tokenizer.json`. The error is the library's message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut inner = Inner::from_bytes(bytes).map_err(|e| e.to_string())?;
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        inner.with_padding(None);
        let added: BTreeMap<u32, AddedToken> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| (id, AddedToken { content: token.content, special: token.special }))
            .collect();
        let special_ids = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        let n_ids = inner.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        let table = DecodeTable::new(&inner, n_ids, &added);
        Ok(Self {
            inner,
            plain: OnceLock::new(),
            table,
            added,
            special_ids,
            special: SpecialTokens::default(),
            eos_ids: Vec::new(),
            n_ids,
        })
    }

    /// Text to ids, no special token added: control tokens come from the text alone.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let encoding = self.inner.encode_fast(text, false).map_err(|e| EncodeError::Tokenizer(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Ids to text, as one segment. See the module for U+FFFD.
    pub fn decode(&self, ids: &[u32], specials: Specials) -> Result<String, DecodeError> {
        match &self.table {
            Some(table) => {
                let skip = (specials == Specials::Skip).then_some(&self.special_ids);
                table.decode(ids, skip).map_err(|position| self.unknown_id(ids, position))
            }
            None => self.decode_by_library(ids, specials),
        }
    }

    /// The `tokenizers` crate's own decoding, with unknown ids refused; what [`Tokenizer::decode`] must agree with.
    pub fn decode_by_library(&self, ids: &[u32], specials: Specials) -> Result<String, DecodeError> {
        if let Some(position) = ids.iter().position(|id| self.inner.id_to_token(*id).is_none()) {
            return Err(self.unknown_id(ids, position));
        }
        self.inner.decode(ids, specials == Specials::Skip).map_err(|e| DecodeError::Tokenizer(e.to_string()))
    }

    fn unknown_id(&self, ids: &[u32], position: usize) -> DecodeError {
        DecodeError::UnknownId { id: ids.get(position).copied().unwrap_or_default(), position, n_ids: self.n_ids }
    }

    /// The bytes that one token adds to a text, where the decoder works token by token. `None` for other decoders and unknown ids.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.table.as_ref()?.bytes(id)
    }

    /// One past the largest id: every id below may be sent. A model's embedding can have more rows, padded ones.
    pub fn n_ids(&self) -> u32 {
        self.n_ids
    }

    /// The id of a token by its text in the vocabulary (`Ġworld`, `<think>`).
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// A token's text in the vocabulary.
    pub fn token_of(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Tokens that stand beside the model's vocabulary, by id.
    pub fn added_tokens(&self) -> &BTreeMap<u32, AddedToken> {
        &self.added
    }

    /// Whether the token is flagged special.
    pub fn is_special(&self, id: u32) -> bool {
        self.special_ids.contains(&id)
    }

    /// Ids that end an answer: the union of what generation config, model config and tokenizer config name. Empty when nothing was read.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// What the configuration files name as BOS, EOS and the like.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Sets BOS, EOS and the like by hand, for a tokenizer that did not come from a model folder; the end token becomes the only end id.
    pub fn with_special_tokens(mut self, special: SpecialTokens) -> Self {
        self.eos_ids = special.eos_token().and_then(|token| self.id_of(token)).into_iter().collect();
        self.special = special;
        self
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("n_ids", &self.n_ids).field("eos_ids", &self.eos_ids).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
