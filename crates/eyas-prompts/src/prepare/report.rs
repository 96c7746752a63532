//! What became of a data set.

use eyas_types::{Rejected, ThinkState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What became of a data set. Always `read == loaded + rejected`, over all and for each file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareReport {
    /// Always `eyas.prepare/1`.
    pub schema: String,
    /// Data set name.
    pub dataset: String,
    /// How rows were read, in words; `None` when no row could be read at all.
    pub mapping: Option<String>,
    /// Rows read, good and bad.
    pub read: u64,
    /// Prompts written.
    pub loaded: u64,
    /// Rows not taken; each is a line of `rejected.jsonl`.
    pub rejected: u64,
    /// Rows not taken, by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// Prompts written in which something was mended or noticed, by kind.
    pub repaired_by_kind: BTreeMap<String, u64>,
    /// File by file, in the order of reading.
    pub files: Vec<FileReport>,
    /// What lies in the folders and was not read, because its name is not that of a data file.
    pub passed_over: Vec<String>,
    /// Lengths of the prompts written, tokens.
    pub prompt_tokens: Option<LengthReport>,
    /// Lengths of the prompts rejected as `too_short`, tokens, and the limit.
    pub too_short: Option<LengthReport>,
    /// Lengths of the prompts rejected as `too_long`, tokens, and the limit.
    pub too_long: Option<LengthReport>,
    /// State of the think block over the prompts written.
    pub think: ThinkReport,
    /// Ids and duplicates.
    pub ids: IdReport,
    /// Prompts written plus those left out only for `max_prompts`, as a share of the rows read, percent.
    pub kept_percent: f64,
    /// Whether that share is below the plan's limit. Worth a warning in the last lines.
    pub low_yield: bool,
    /// The first rows rejected for each reason, three of each at most.
    pub examples: Vec<Rejected>,
    /// Seed of the shuffle.
    pub seed: u64,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileReport {
    /// Path as the recipe names it.
    pub path: String,
    /// Layout in words (`JSON lines, gzip`).
    pub layout: String,
    /// Size on disk, bytes.
    pub n_bytes: u64,
    /// Rows read.
    pub read: u64,
    /// Prompts written.
    pub loaded: u64,
    /// Rows not taken.
    pub rejected: u64,
    /// Blank lines; they are not rows.
    pub blank_lines: u64,
    /// Byte order marks skipped.
    pub byte_order_marks: u64,
    /// Why the file could not be read to its end. The rows before are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

impl FileReport {
    /// What a file without rows holds: "0 bytes", "3 blank lines".
    pub fn emptiness(&self) -> String {
        match (self.blank_lines, &self.broken) {
            (_, Some(why)) => why.clone(),
            (0, None) if self.n_bytes == 0 => "0 bytes".to_owned(),
            (0, None) => format!("{} bytes without a row", self.n_bytes),
            (1, None) => "1 blank line".to_owned(),
            (n, None) => format!("{n} blank lines"),
        }
    }
}

/// Lengths in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LengthReport {
    /// How many.
    pub n: u64,
    /// Shortest.
    pub shortest: u32,
    /// Longest.
    pub longest: u32,
    /// Sum.
    pub total: u64,
    /// Plain mean over all of them.
    pub mean: f64,
    /// The limit they were held against, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// State of the think block at the end of the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThinkReport {
    /// The prompt opens it.
    pub open: u64,
    /// The prompt closes it: thinking is off.
    pub closed: u64,
    /// The prompt has no marker.
    pub undecided: u64,
}

impl ThinkReport {
    pub(super) fn add(&mut self, think: ThinkState) {
        match think {
            ThinkState::Open => self.open += 1,
            ThinkState::Closed => self.closed += 1,
            ThinkState::Undecided => self.undecided += 1,
        }
    }
}

/// Ids and duplicates, over the prompts that passed the filters (before `max_prompts`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IdReport {
    /// The field of the row that holds the id; `None` when ids are made from the prompts.
    pub field: Option<String>,
    /// Rows without an id of their own, named by their prompt.
    pub made: u64,
    /// Prompts equal to an earlier one; kept or dropped as the plan says.
    pub equal_prompts: u64,
    /// Rows whose id an equal prompt had already: `#2`, `#3` …
    pub repeated: u64,
    /// Rows whose id other prompts have too: named by id and content.
    pub conflicting: u64,
}

impl PrepareReport {
    /// Name and version of this document.
    pub const SCHEMA: &'static str = "eyas.prepare/1";

    /// Whether `read = loaded + rejected` holds, over all and for each file.
    pub fn adds_up(&self) -> bool {
        let sum = |pick: fn(&FileReport) -> u64| self.files.iter().map(pick).sum::<u64>();
        self.read == self.loaded + self.rejected
            && self.rejected == self.rejected_by_reason.values().sum::<u64>()
            && self.files.iter().all(|file| file.read == file.loaded + file.rejected)
            && (self.read, self.loaded) == (sum(|file| file.read), sum(|file| file.loaded))
    }

    /// The files that could not be read to their end. Rows may be missing although none was rejected.
    pub fn broken_files(&self) -> impl Iterator<Item = &FileReport> {
        self.files.iter().filter(|file| file.broken.is_some())
    }

    /// Reasons and counts, most frequent first, with the figures that explain a filter: "too_short 5 (longest 18 tokens, limit 10000)".
    pub fn reasons(&self) -> Vec<String> {
        let mut counts: Vec<_> = self.rejected_by_reason.iter().collect();
        counts.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let told = |reason: &str, n: u64| match (reason, &self.too_short, &self.too_long) {
            ("too_short", Some(LengthReport { longest, limit: Some(limit), .. }), _) => {
                format!("too_short {n} (longest {longest} tokens, limit {limit})")
            }
            ("too_long", _, Some(LengthReport { shortest, longest, limit: Some(limit), .. })) => {
                format!("too_long {n} ({shortest} to {longest} tokens, limit {limit})")
            }
            _ => format!("{reason} {n}"),
        };
        counts.into_iter().map(|(reason, n)| told(reason, *n)).collect()
    }
}

/// One line: "read 5 = loaded 0 + rejected 5: too_short 5 (longest 18 tokens, limit 10000)".
impl fmt::Display for PrepareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read {} = loaded {} + rejected {}", self.read, self.loaded, self.rejected)?;
        if self.rejected > 0 {
            write!(f, ": {}", self.reasons().join(", "))?;
        }
        Ok(())
    }
}
