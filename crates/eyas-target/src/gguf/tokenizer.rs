//! The tokenizer in a GGUF file, as far as it is byte-level BPE.
//!
//! How text is cut before the merges stands in the file only as a name (`tokenizer.ggml.pre`). A wrong guess gives other ids without any error, so
//! a name that is not in the table is refused; a `tokenizer.json` beside the file takes its place.

use super::Metadata;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

const REGEX_LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const REGEX_QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Why the tokenizer of a GGUF file was not built.
#[derive(Debug, thiserror::Error)]
pub enum GgufTokenizerError {
    /// Something it needs is not in the file, or of another type.
    #[error("metadata `{key}` is missing or not of its type")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// Not byte-level BPE, or cut in a way this build does not know.
    #[error("`{key}` is `{found}`; known are {known}")]
    Unknown {
        /// Which.
        key: &'static str,
        /// Its value.
        found: String,
        /// The values that would do.
        known: &'static str,
    },
    /// The tokenizers crate refused a part.
    #[error("the tokenizer cannot be built")]
    Build(#[source] tokenizers::Error),
}

/// How text is cut before the merges.
struct Cut {
    nfc: bool,
    pre_tokenizer: PreTokenizerWrapper,
    /// A piece that is a token as a whole is taken without merges.
    ignore_merges: bool,
}

impl Cut {
    fn named(pre: &str) -> Result<Self, GgufTokenizerError> {
        let with_regex = || PreTokenizerWrapper::from(ByteLevel::new(false, true, true));
        let split = |regex: &str| -> Result<PreTokenizerWrapper, GgufTokenizerError> {
            let pattern = SplitPattern::Regex(regex.to_owned());
            let split =
                Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(GgufTokenizerError::Build)?;
            Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, true, false).into()]).into())
        };
        match pre {
            "gpt-2" => Ok(Self { nfc: false, pre_tokenizer: with_regex(), ignore_merges: false }),
            "smollm" => {
                let digits_apart = Sequence::new(vec![Digits::new(true).into(), with_regex()]);
                Ok(Self { nfc: false, pre_tokenizer: digits_apart.into(), ignore_merges: false })
            }
            "llama-bpe" | "llama3" | "llama-v3" => {
                Ok(Self { nfc: false, pre_tokenizer: split(REGEX_LLAMA3)?, ignore_merges: true })
            }
            "qwen2" => Ok(Self { nfc: true, pre_tokenizer: split(REGEX_QWEN2)?, ignore_merges: false }),
            other => Err(GgufTokenizerError::Unknown {
                key: "tokenizer.ggml.pre",
                found: other.to_owned(),
                known: "gpt-2, smollm, llama-bpe, qwen2",
            }),
        }
    }
}

pub(super) fn build(metadata: &Metadata<'_>) -> Result<Tokenizer, GgufTokenizerError> {
    let missing = |key| GgufTokenizerError::Missing { key };
    let model = metadata.str("tokenizer.ggml.model").ok_or_else(|| missing("tokenizer.ggml.model"))?;
    if model != "gpt2" {
        let (key, found) = ("tokenizer.ggml.model", model.to_owned());
        return Err(GgufTokenizerError::Unknown { key, found, known: "gpt2 (byte-level BPE)" });
    }
    let cut = Cut::named(metadata.str("tokenizer.ggml.pre").unwrap_or("(none)"))?;
    let tokens = metadata.strings("tokenizer.ggml.tokens").ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
    let merges = metadata.strings("tokenizer.ggml.merges").ok_or_else(|| missing("tokenizer.ggml.merges"))?;

    let vocab: Vocab = (0u32..).zip(&tokens).map(|(id, token)| ((*token).to_owned(), id)).collect();
    let merges = merges.iter().filter_map(|merge| merge.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned()));
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges.collect::<Vec<_>>())
        .ignore_merges(cut.ignore_merges)
        .build()
        .map_err(GgufTokenizerError::Build)?;
    let mut tokenizer = Tokenizer::new(bpe);
    if cut.nfc {
        tokenizer.with_normalizer(Some(NFC)).map_err(GgufTokenizerError::Build)?;
    }
    tokenizer.with_pre_tokenizer(Some(cut.pre_tokenizer));
    tokenizer.with_decoder(Some(ByteLevel::new(true, true, true)));
    add_whole_tokens(&mut tokenizer, metadata, &tokens)?;
    if metadata.flag("tokenizer.ggml.add_bos_token") == Some(true) {
        add_bos(&mut tokenizer, metadata, &tokens)?;
    }
    Ok(tokenizer)
}

/// Tokens that are matched in the text before anything else: control tokens, which a decoder may skip, and the user's own.
fn add_whole_tokens(
    tokenizer: &mut Tokenizer,
    metadata: &Metadata<'_>,
    tokens: &[&str],
) -> Result<(), GgufTokenizerError> {
    const UNKNOWN: u64 = 2;
    const CONTROL: u64 = 3;
    const USER_DEFINED: u64 = 4;
    let types = metadata.unsigned_array("tokenizer.ggml.token_type").unwrap_or_default();
    let of_type = |wanted: &[u64], special: bool| -> Vec<AddedToken> {
        let chosen = tokens.iter().zip(&types).filter(|(_, kind)| wanted.contains(kind));
        chosen.map(|(token, _)| AddedToken::from(*token, special).normalized(false)).collect()
    };
    let special = of_type(&[UNKNOWN, CONTROL], true);
    tokenizer.add_special_tokens(special).map_err(GgufTokenizerError::Build)?;
    tokenizer.add_tokens(of_type(&[USER_DEFINED], false)).map_err(GgufTokenizerError::Build)?;
    Ok(())
}

/// Puts the beginning-of-text token in front when the caller asks for special tokens.
fn add_bos(tokenizer: &mut Tokenizer, metadata: &Metadata<'_>, tokens: &[&str]) -> Result<(), GgufTokenizerError> {
    let key = "tokenizer.ggml.bos_token_id";
    let id = metadata.id(key).ok_or(GgufTokenizerError::Missing { key })?;
    let bos = *tokens.get(id as usize).ok_or(GgufTokenizerError::Missing { key })?;
    let build = |error: String| GgufTokenizerError::Build(error.into());
    let processor = TemplateProcessing::builder()
        .try_single(vec![bos.to_owned(), "$A".to_owned()])
        .map_err(build)?
        .try_pair(vec![bos.to_owned(), "$A".to_owned(), "$B:1".to_owned()])
        .map_err(build)?
        .special_tokens(vec![(bos, id)])
        .build()
        .map_err(|error| build(error.to_string()))?;
    tokenizer.with_post_processor(Some(processor));
    Ok(())
}
