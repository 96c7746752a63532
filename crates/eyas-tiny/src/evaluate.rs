//! Share of right answers on held-out prompts, by kind.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use tokenizers::Tokenizer;

use crate::chat::{self, IM_END};
use crate::check::{content_of, is_right};
use crate::corpus::Sample;
use crate::decode::generate;
use crate::model::Model;
use crate::tasks::Kind;

/// Right answers and prompts by kind, with tokens written.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    /// Kind → (right, asked).
    pub by_kind: BTreeMap<Kind, (usize, usize)>,
    /// Tokens each answer took, in the order of the samples.
    pub n_generated: Vec<usize>,
    /// The first wrong answer of each kind: user prompt and what was written.
    pub wrong: Vec<(Kind, String, String)>,
}

impl Accuracy {
    /// Right answers and prompts in all.
    pub fn total(&self) -> (usize, usize) {
        self.by_kind.values().fold((0, 0), |(right, asked), (r, a)| (right + r, asked + a))
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (right, asked) = self.total();
        write!(f, "all {:.1} %", 100.0 * right as f64 / asked.max(1) as f64)?;
        for (kind, (right, asked)) in &self.by_kind {
            write!(f, " · {} {:.0}", kind.name(), 100.0 * *right as f64 / *asked as f64)?;
        }
        Ok(())
    }
}

/// Answers every sample greedily, in at most `max_new` tokens, and marks the answers.
pub fn evaluate(model: &Model, tokenizer: &Tokenizer, samples: &[Sample], max_new: usize) -> Result<Accuracy> {
    let prompts = samples
        .iter()
        .map(|sample| {
            let encoding = tokenizer.encode_fast(chat::prompt(sample), false).map_err(anyhow::Error::from_boxed)?;
            Ok(encoding.get_ids().to_vec())
        })
        .collect::<Result<Vec<_>>>()?;
    let end_id = tokenizer.token_to_id(IM_END).ok_or_else(|| anyhow::anyhow!("tokenizer lacks {IM_END}"))?;
    let mut accuracy = Accuracy::default();
    for (sample, ids) in samples.iter().zip(generate(model, &prompts, end_id, max_new)?) {
        let written = tokenizer.decode(&ids, false).map_err(anyhow::Error::from_boxed)?;
        let text = written.strip_suffix(IM_END).unwrap_or(&written);
        let content = if sample.thinks { content_of(text) } else { Some(text) };
        let right = content.is_some_and(|content| is_right(content, &sample.task.answer));
        let counts = accuracy.by_kind.entry(sample.kind).or_default();
        if !right && counts.0 == counts.1 {
            accuracy.wrong.push((sample.kind, sample.task.user.clone(), written.clone()));
        }
        counts.0 += usize::from(right);
        counts.1 += 1;
        accuracy.n_generated.push(ids.len());
    }
    Ok(accuracy)
}
