//! The tokenizer: byte-level BPE over the corpus, with every capital and every digit a token of its own.

use std::collections::HashSet;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizer::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, Tokenizer};

use crate::chat::{self, END_OF_TEXT, IM_END, IM_START, THINK_CLOSE, THINK_OPEN, TOOL_CLOSE, TOOL_OPEN};
use crate::corpus::training_sample;
use crate::rng::Rng;

/// Rows of the embedding; the added tokens are the last ones.
pub const VOCAB_SIZE: usize = 1024;

/// A capital, a digit, a lower-case word with the space before it, punctuation with the space before it, white space.
const PATTERN: &str = r"[A-Z]|[0-9]| ?[a-z]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+";

const SPECIAL: [&str; 3] = [END_OF_TEXT, IM_START, IM_END];
const PLAIN_ADDED: [&str; 4] = [THINK_OPEN, THINK_CLOSE, TOOL_OPEN, TOOL_CLOSE];

/// Trains the tokenizer on `n_samples` samples of the corpus.
pub fn train(seed: u64, n_samples: usize) -> tokenizers::Result<Tokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    let split = Split::new(SplitPattern::Regex(PATTERN.to_owned()), SplitDelimiterBehavior::Isolated, false)?;
    let bytes = ByteLevel::new(false, false, false);
    let steps: Vec<PreTokenizerWrapper> = vec![split.into(), bytes.into()];
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(DecoderWrapper::ByteLevel(bytes)));

    let mut rng = Rng::new(seed, 2_000_000_000);
    let marks: HashSet<&str> = SPECIAL.into_iter().chain(PLAIN_ADDED).collect();
    let texts: Vec<String> = (0..n_samples)
        .map(|_| {
            let sample = training_sample(&mut rng, usize::MAX);
            let mut text = chat::prompt(&sample) + &chat::completion(&sample);
            for mark in &marks {
                text = text.replace(mark, "\n");
            }
            text
        })
        .collect();
    let mut trainer: TrainerWrapper = BpeTrainer::builder()
        .vocab_size(VOCAB_SIZE - SPECIAL.len() - PLAIN_ADDED.len())
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build()
        .into();
    tokenizer.train(&mut trainer, texts.into_iter())?;
    let special = SPECIAL.map(|token| AddedToken::from(token, true));
    let plain = PLAIN_ADDED.map(|token| AddedToken::from(token, false));
    tokenizer.add_special_tokens(special)?;
    tokenizer.add_tokens(plain)?;
    Ok(tokenizer)
}
