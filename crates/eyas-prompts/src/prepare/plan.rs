//! What is to be prepared, checked and complete.

use crate::normalise::{Refusal, SchemaOptions};
use crate::source::SourceOptions;
use std::path::PathBuf;

/// One data set and how it becomes prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparePlan {
    /// Name of the data set, written into every record.
    pub dataset: String,
    /// Files and folders, as the recipe names them.
    pub paths: Vec<PathBuf>,
    /// How files are read.
    pub source: SourceOptions,
    /// How rows are mapped.
    pub schema: SchemaOptions,
    /// Which prompts are kept.
    pub filter: PromptFilter,
    /// What becomes of equal prompts.
    pub duplicates: Duplicates,
    /// Seed of the shuffle.
    pub seed: u64,
    /// Folder of `prompts.jsonl` and `rejected.jsonl`; made when it is not there.
    pub out_dir: PathBuf,
    /// Threads that render. At least 1 is used.
    pub n_threads: usize,
    /// Share of the rows, before `max_prompts`, below which [`PrepareReport::low_yield`](super::PrepareReport::low_yield) is set. Usual: 0.5.
    pub low_yield_percent: u8,
}

/// Which prompts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromptFilter {
    /// Fewest tokens of a prompt.
    pub min_tokens: Option<u32>,
    /// Most tokens of a prompt.
    pub max_tokens: Option<u32>,
    /// Most prompts: the first ones of the shuffle.
    pub max_prompts: Option<u64>,
}

/// What becomes of equal prompts (same ids after rendering).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// All are kept; they are counted.
    #[default]
    Keep,
    /// The first one read is kept, the others are rejected as `duplicate`.
    Drop,
}

impl PreparePlan {
    /// Where the prompts go.
    pub fn prompts_path(&self) -> PathBuf {
        self.out_dir.join("prompts.jsonl")
    }

    /// Where rows that are not taken go. No file when there is none.
    pub fn rejected_path(&self) -> PathBuf {
        self.out_dir.join("rejected.jsonl")
    }
}

/// Why a good row is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Fewer tokens than [`PromptFilter::min_tokens`].
    TooShort,
    /// More tokens than [`PromptFilter::max_tokens`].
    TooLong,
    /// Behind the first [`PromptFilter::max_prompts`] of the shuffle.
    OverMaxPrompts,
    /// Equal to a prompt read before, with [`Duplicates::Drop`].
    Duplicate,
}

impl DropReason {
    /// The word that stands in `rejected.jsonl` and in counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::OverMaxPrompts => "over_max_prompts",
            Self::Duplicate => "duplicate",
        }
    }

    pub(super) fn refusal(self, detail: String) -> Refusal {
        Refusal { reason: self.as_str(), detail }
    }
}
