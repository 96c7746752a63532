//! The document of an inspection, `eyas.inspect/1`: everything that is shown anywhere about answer files is a field of it.
//!
//! Counts are exact unless a field says otherwise. Shares are in [0, 1]. A statistic that does not exist (the mean of nothing) is `null`,
//! never 0. Fields are only added within version 1; a reader ignores what it does not know.

use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "eyas.inspect/1";

/// What was found in one set of answer files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The files that were read, in the order of reading.
    pub files: Vec<FileReport>,
    /// Lines by what became of them, over all files.
    pub rows: RowCounts,
    /// Things noticed on rows that were nevertheless read.
    pub remarks: Vec<ClassCount>,
    /// Rows that hold an answer, and those that do not.
    pub answers: AnswerCounts,
    /// Where each field was found.
    pub fields: Vec<FieldReport>,
    /// How long the answers are.
    pub lengths: Lengths,
    /// Why the answers ended, most frequent first. Rows without a reason are counted under `(none)`.
    pub finish_reasons: Vec<NamedCount>,
    /// Whether the reasoning is there.
    pub reasoning: ReasoningReport,
    /// How the answers change along each file.
    pub drift: Vec<DriftReport>,
    /// The same figures by group: data set first, then other ways to cut that occur in the rows.
    pub groups: Vec<Grouping>,
    /// Conversations and requests.
    pub conversations: ConversationCounts,
    /// Acceptance length of speculative decoding, where the rows carry verify counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<AcceptanceReport>,
    /// Generated and kept tokens per second, where rows say when they were made or a wall time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<ThroughputReport>,
    /// What is wrong or odd, worst first.
    pub findings: Vec<Finding>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// One file as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileReport {
    /// Path as given, or as found below a folder that was given.
    pub path: String,
    /// Data set the file stands for where its rows do not say: the folder name in a run folder, else the file's stem.
    pub dataset: String,
    /// How the file is laid out.
    pub layout: Layout,
    /// How the file is compressed.
    pub compression: Compression,
    /// Bytes on disk that were read; what a writer appended after the look began is not among them.
    pub bytes: u64,
    /// Bytes after decompression; equal to `bytes` for a plain file.
    pub text_bytes: u64,
    /// Lines by what became of them.
    pub rows: RowCounts,
    /// What happened to the file while it was read.
    pub events: Vec<FileEvent>,
}

/// How rows are laid out in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One JSON object a line.
    JsonLines,
    /// One JSON array that holds all rows. Line numbers are then element numbers.
    JsonArray,
    /// One JSON object with the rows in an array under one of its keys. Line numbers are then element numbers.
    WrappedArray,
}

/// How a file is compressed, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one member or several.
    Gzip,
    /// zstd, one frame or several.
    Zstd,
}

/// What happened to a file while it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum FileEvent {
    /// A writer appended to it; the new bytes were left for the next look.
    Grew {
        /// How many bytes.
        by_bytes: u64,
    },
    /// It became shorter, and was read again from its start.
    Shrank,
    /// Another file took its name, or its beginning changed, and it was read again from its start.
    Replaced,
    /// It kept changing under every try; the figures are of the last one.
    Unsettled {
        /// How often it was read.
        tries: u32,
    },
    /// The compressed stream ends before its end mark: cut, or still being written.
    CompressedStreamCut,
    /// The compressed stream is damaged; nothing behind this point was read.
    CompressedStreamDamaged {
        /// Offset in the decompressed text up to which it was read.
        at_text_byte: u64,
        /// What the decompressor said.
        message: String,
    },
    /// It ends without a newline behind a whole last row; the row was counted.
    NoFinalNewline,
    /// It is no text that JSON can be read from.
    NotText {
        /// What it looks like (`UTF-16`, `Parquet`, …).
        looks_like: String,
    },
}

/// Lines by what became of them: `total = parsed + malformed + blank + in_progress`, always.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RowCounts {
    /// All lines (elements of a JSON array).
    pub total: u64,
    /// Read as a record.
    pub parsed: u64,
    /// Not readable; the classes are in `malformed_by_class` and add up to this.
    pub malformed: u64,
    /// Nothing but white space.
    pub blank: u64,
    /// An unfinished last line: somebody is still writing it, or was stopped.
    pub in_progress: u64,
    /// Why lines were not readable, most frequent first.
    pub malformed_by_class: Vec<ClassCount>,
}

impl RowCounts {
    /// Whether the parts add up to the whole.
    pub fn adds_up(&self) -> bool {
        self.total == self.parsed + self.malformed + self.blank + self.in_progress
            && self.malformed == self.malformed_by_class.iter().map(|class| class.count).sum::<u64>()
    }
}

/// A class with its count and the first places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// Short name (`torn`, `invalid_utf8`, …).
    pub class: String,
    /// What it means, for a person.
    pub meaning: String,
    /// How many rows.
    pub count: u64,
    /// Whole records that could be had back out of these rows (the second half of a fused line).
    #[serde(default)]
    pub recoverable: u64,
    /// The first few places.
    pub examples: Vec<Place>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Index into [`Inspection::files`].
    pub file: usize,
    /// Line (element of a JSON array), from 1.
    pub line: u64,
    /// Byte in the (decompressed) text where the line begins, from 0.
    pub byte: u64,
    /// Byte in the (decompressed) text where the trouble is, where there is one place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_byte: Option<u64>,
    /// What stands there, shortened, control characters escaped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

/// Parsed rows by whether they hold an answer: `parsed = answers + failed + without_answer`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AnswerCounts {
    /// Rows with an answer: text, reasoning, tool calls, ids or a token count. The population of every length statistic.
    pub answers: u64,
    /// Of `answers`: ended by themselves (`stop`, `tool_calls`) or give no reason.
    pub finished: u64,
    /// Of `answers`: cut by a token cap (`finish_reason` `length`, or a status that says so). Their lengths are lower bounds.
    pub truncated: u64,
    /// Rows that say that the request failed, or was aborted.
    pub failed: u64,
    /// Why they failed, most frequent first.
    pub failed_by_cause: Vec<NamedCount>,
    /// Rows without any answer and without an error: prompts, conversations that end with the user's turn.
    pub without_answer: u64,
    /// Of `answers`: neither text nor tool calls in the content.
    pub empty_content: u64,
    /// Of `empty_content`: the cap fell inside the reasoning.
    pub empty_content_truncated: u64,
    /// Of `answers`: reasoning and content, 200 characters or more together, repeat those of an earlier answer word for word.
    #[serde(default)]
    pub repeated: u64,
    /// Whether `repeated` is estimated from a sample, because there are too many answers to hold.
    #[serde(default)]
    pub repeated_estimated: bool,
    /// Given up by a run, from the `failed.jsonl` beside the answers: not rows of the files above.
    pub given_up: u64,
    /// Why they were given up, most frequent first.
    pub given_up_by_cause: Vec<NamedCount>,
}

/// A name with a count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedCount {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Of the population that the containing field names.
    pub share: f64,
}

/// Where one field was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldReport {
    /// The field (`completion_tokens`, `reasoning`, …).
    pub field: String,
    /// Locations that were used, most rows first.
    pub used: Vec<LocationCount>,
    /// Rows (of the answers; for `id` and the like of the parsed rows) where no known location holds it.
    pub absent: u64,
    /// Two locations of one row that do not agree.
    pub conflicts: Vec<Conflict>,
}

/// A location and how many rows it served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocationCount {
    /// Path in the row (`usage.completion_tokens`, `len(output_ids)`).
    pub path: String,
    /// Rows in which it won.
    pub rows: u64,
}

/// Two locations that hold different values in the same row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The location that was used.
    pub used: String,
    /// The one that disagrees.
    pub other: String,
    /// Rows in which they disagree.
    pub rows: u64,
    /// Rows in which they differ by exactly one, as they do when one of them leaves out the stop token.
    pub off_by_one: u64,
    /// The first few places; the excerpt names both values.
    pub examples: Vec<Place>,
}

/// What lengths are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Tokens, as the rows count them or as their ids are many.
    Tokens,
    /// Tokens, counted by the tokenizer that was given.
    CountedTokens,
    /// Unicode code points of the text: the rows hold no counts and no tokenizer was given.
    Characters,
}

/// Lengths of answers and of their parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Unit of `completion`, and why.
    pub unit: Unit,
    /// Whole answers, reasoning and content together.
    pub completion: LengthStats,
    /// Answers that ended by themselves.
    pub finished: LengthStats,
    /// Answers that a cap cut: lower bounds of what they would have become.
    pub truncated: LengthStats,
    /// Prompts, where the rows count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<LengthStats>,
    /// Reasoning in tokens, where spans or usage tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<LengthStats>,
    /// Content in tokens, where spans or usage tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<LengthStats>,
    /// Reasoning in characters, of the answers that have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_characters: Option<LengthStats>,
    /// Content in characters, of the answers that have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_characters: Option<LengthStats>,
}

/// Statistics of one set of lengths. Exact: from counts of every value, not from a sketch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LengthStats {
    /// What is measured, of which rows.
    pub population: String,
    /// Unit of every figure below but `n` and the counts.
    pub unit: Unit,
    /// How many lengths.
    pub n: u64,
    /// Sum.
    pub sum: u64,
    /// Sum / n.
    pub mean: Option<f64>,
    /// 95 % confidence interval of the mean: mean ± 1.96 · sample standard deviation / √n. `None` below two lengths.
    pub mean_ci95: Option<[f64; 2]>,
    /// Standard deviation of the population: divided by n, numpy's default (`ddof=0`).
    pub stdev: Option<f64>,
    /// Standard deviation estimated from a sample: divided by n − 1 (`ddof=1`).
    pub stdev_sample: Option<f64>,
    /// Population skewness, m₃ / m₂^1.5.
    pub skew: Option<f64>,
    /// Smallest.
    pub min: Option<u64>,
    /// 50th percentile. Percentiles interpolate linearly between the two nearest ranks, as `numpy.percentile` does by default.
    pub median: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<u64>,
    /// Counts at and above the thresholds.
    pub at_least: Vec<ThresholdCount>,
    /// How much the longest ones weigh.
    pub longest: Vec<LongestShare>,
    /// Counts over bins of about equal width on a logarithmic axis.
    pub histogram: Vec<Bin>,
}

/// How many are at least so long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdCount {
    /// The threshold.
    pub at_least: u64,
    /// How many reach it.
    pub count: u64,
    /// Of all.
    pub share: f64,
}

/// How much of the sum the longest ones hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongestShare {
    /// Share of the lengths that is meant, in (0, 1).
    pub of_answers: f64,
    /// How many that are, rounded up.
    pub count: u64,
    /// Share of the sum that they hold.
    pub of_sum: f64,
}

/// A bin `from..to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Smallest length in it.
    pub from: u64,
    /// One past the largest length in it.
    pub to: u64,
    /// How many.
    pub count: u64,
}

/// Whether the reasoning is there. Counts are of the answers: `answers = captured + empty + null + absent + leaked`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReasoningReport {
    /// Answers with reasoning as text in a field of its own, or as a span of the ids.
    pub captured: u64,
    /// `captured` / answers.
    pub capture_rate: Option<f64>,
    /// The field is there and empty.
    pub empty: u64,
    /// The field is there and `null`.
    pub null: u64,
    /// No known field.
    pub absent: u64,
    /// No field of its own, but think markers or channel markup in the content: no parser split it.
    pub leaked: u64,
    /// Of `leaked`: only the closing marker is there (the prompt opened the block).
    pub leaked_closing_only: u64,
    /// Think markers in the content although the reasoning has a field of its own.
    pub leaked_beside_captured: u64,
    /// A think block that is opened in the content and never closed, or flagged so.
    pub unclosed: u64,
    /// The cap fell inside the reasoning.
    pub truncated_in_reasoning: u64,
    /// The server counted reasoning tokens, and there is no reasoning: it was generated and thrown away.
    pub counted_but_missing: u64,
}

/// How answers change along one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriftReport {
    /// Index into [`Inspection::files`].
    pub file: usize,
    /// What changes: `length`, `reasoning_captured`, `truncated`.
    pub series: String,
    /// Mean of the first rows against the mean of all, for growing numbers of first rows.
    pub first_n: Vec<FirstN>,
    /// Means over consecutive windows of equal size (the last one may be shorter).
    pub windows: Vec<Window>,
    /// Where the file is best cut in two, when the two parts differ beyond chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_point: Option<ChangePoint>,
}

/// Mean of the first `n` answers of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstN {
    /// How many answers.
    pub n: u64,
    /// Their mean.
    pub mean: f64,
    /// Their mean / the mean of all; `None` when that is zero.
    pub of_whole: Option<f64>,
}

/// Consecutive answers of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// First answer, from 1.
    pub first: u64,
    /// How many.
    pub n: u64,
    /// Their mean.
    pub mean: f64,
}

/// A cut that leaves two parts which differ beyond chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangePoint {
    /// Answers before the cut.
    pub n_before: u64,
    /// Answers after it.
    pub n_after: u64,
    /// Mean before.
    pub mean_before: f64,
    /// Mean after.
    pub mean_after: f64,
    /// Difference of the means in standard errors, as they would be if both parts were of one kind. A change is named from 5 upward, because
    /// the best of many cuts is shown.
    pub z: f64,
}

/// One way to cut the answers into groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    /// What the groups are (`dataset`, `finish_reason`, `turn`, `fingerprint`, `endpoint`, `file`).
    pub by: String,
    /// The groups, in order of their names.
    pub groups: Vec<GroupReport>,
    /// Answers in groups beyond the number that is kept apart; they are together in the group `(other)`.
    pub folded: u64,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its name; `(none)` where rows do not say.
    pub name: String,
    /// Answers in it.
    pub answers: u64,
    /// Failed rows in it.
    pub failed: u64,
    /// Answers that a cap cut.
    pub truncated: u64,
    /// Answers without content.
    pub empty_content: u64,
    /// Answers with reasoning.
    pub reasoning_captured: u64,
    /// Their lengths.
    pub completion: LengthStats,
}

/// Conversations and the requests that made them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConversationCounts {
    /// Distinct ids; rows without an id count as one each.
    pub conversations: u64,
    /// Answers: one request each, so that a conversation of two turns is two requests.
    pub requests: u64,
    /// Sum of prompt tokens over all requests: what the servers processed.
    pub prompt_tokens: u64,
    /// Sum of completion tokens over all requests, whatever was asked.
    pub completion_tokens: u64,
    /// Rows whose id and turn have been seen before.
    pub duplicate_ids: u64,
    /// Whether ids were counted on a sample because there are too many to hold; the counts are then estimates.
    pub estimated: bool,
}

/// Acceptance length of speculative decoding: tokens per verify step, the bonus token included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceReport {
    /// Rows that carry both counts.
    pub rows: u64,
    /// Sum of completion tokens.
    pub completion_tokens: u64,
    /// Sum of verify steps.
    pub verify_steps: u64,
    /// `completion_tokens / verify_steps`: pooled over all steps. The one to compare drafters by.
    pub pooled: f64,
    /// Mean of the rows' own ratios; each answer weighs the same, however long.
    pub per_request_mean: f64,
}

/// Tokens per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputReport {
    /// Seconds that the work took, and where that is from.
    pub wall_s: f64,
    /// Where the seconds are from.
    pub wall_from: String,
    /// Generated tokens, discarded ones included, per second. Prompt tokens are never among them.
    pub generated_per_s: f64,
    /// Tokens of kept answers per second.
    pub kept_per_s: f64,
    /// Share of the generated tokens that is discarded.
    pub discarded_share: f64,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data is lost or wrong: do not train on it as it is.
    Error,
    /// Probably not what was meant.
    Warning,
    /// Worth knowing.
    Notice,
}

impl Severity {
    /// The word that is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

/// Something wrong or odd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Short name, stable (`reasoning_missing`, `malformed_rows`, …).
    pub kind: String,
    /// How bad.
    pub severity: Severity,
    /// How many rows.
    pub count: u64,
    /// `count` / the population named in `message`, where that makes sense.
    pub share: Option<f64>,
    /// What was found, one sentence.
    pub message: String,
    /// What to do about it, one sentence; may be empty.
    pub advice: String,
    /// The first few places.
    pub examples: Vec<Place>,
}

/// Whether the answers can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictLevel {
    /// Nothing of note.
    Clean,
    /// Usable, with findings of severity notice or warning.
    Findings,
    /// At least one finding of severity error.
    Damaged,
    /// No answer at all.
    Nothing,
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// In one word.
    pub level: VerdictLevel,
    /// What to do next, one sentence.
    pub action: String,
}
