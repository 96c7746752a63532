//! What is done already: read from the output itself at every start, never from a count or a cache.
//!
//! A prompt is known by its `sample_id` and by the hash of the ids that are sent. The order of `prompts.jsonl` does not matter, nor does
//! the place of a line in the journal.

use crate::plan::{DatasetPlan, GeneratePlan, OnChange};
use crate::store::Files;
use eyas_journal::{
    JournalOptions, JournalWriter, Position, Recovery, ScanError, ScanOptions, ScanReport, SetAside, scan, set_aside,
};
use eyas_types::Fingerprint;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What was found on disk for one data set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatasetState {
    /// Name.
    pub name: String,
    /// Prompts in `prompts.jsonl`.
    pub total: u64,
    /// Answered already.
    pub answered: u64,
    /// Given up already, and not to be asked again.
    pub failed: u64,
    /// Tokens generated in the answers so far.
    pub completion_tokens: u64,
    /// Of `answered`: made with other settings or for another wording of the prompt, and kept ([`OnChange::Keep`]).
    pub n_kept_foreign: u64,
    /// Answers that were moved to `raw_responses.jsonl.old` ([`OnChange::Redo`]).
    pub n_set_aside: u64,
    /// Answers whose ids are not in `prompts.jsonl`: kept where they are, counted nowhere.
    pub n_unknown: u64,
    /// Lines whose id was answered further up: counted once.
    pub n_duplicates: u64,
    /// What opening the journal had to mend.
    pub recovery: Recovery,
    /// The same for `failed.jsonl`.
    pub failed_recovery: Recovery,
}

impl DatasetState {
    /// Prompts still to be asked.
    pub fn pending(&self) -> u64 {
        self.total - self.answered - self.failed
    }
}

/// A run cannot start. Nothing was asked.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No data set, no endpoint, or no slot.
    #[error("the plan has no {what}")]
    Nothing {
        /// `data set`, `endpoint`, `slot`.
        what: &'static str,
    },
    /// A journal is locked or cannot be mended.
    #[error(transparent)]
    Journal(#[from] eyas_journal::OpenError),
    /// A journal or `prompts.jsonl` cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// `prompts.jsonl` is missing or cannot be opened.
    #[error("cannot open the prompts of data set `{dataset}` at `{path}`")]
    Prompts {
        /// Data set.
        dataset: String,
        /// File.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `prompts.jsonl` ends in the middle of a line.
    #[error("`{path}` ends in an unfinished line at byte {offset}: prepare the data set again")]
    PromptsUnfinished {
        /// File.
        path: PathBuf,
        /// Where the line begins.
        offset: u64,
    },
    /// `prompts.jsonl` is not what the manifest says.
    #[error("`{path}` has {found} prompts, the manifest says {expected}")]
    PromptCount {
        /// File.
        path: PathBuf,
        /// On disk.
        found: u64,
        /// In the manifest.
        expected: u64,
    },
    /// Two prompts have one id.
    #[error("`{path}` has two prompts with the id `{sample_id}`")]
    DuplicateId {
        /// File.
        path: PathBuf,
        /// The id.
        sample_id: String,
    },
    /// Answers on disk were made with other settings.
    #[error("{n_answers} answers in `{path}` were made with other settings: {}", Differences(.differences))]
    FingerprintChanged {
        /// The journal.
        path: PathBuf,
        /// Answers with another fingerprint.
        n_answers: u64,
        /// What changed: name, value then, value now. Empty when the settings of then are not known.
        differences: Vec<(String, Value, Value)>,
    },
    /// Prompts are worded differently from when they were answered.
    #[error(
        "{n_prompts} prompts of data set `{dataset}` have changed since they were answered (the first: `{sample_id}`)"
    )]
    PromptsChanged {
        /// Data set.
        dataset: String,
        /// How many.
        n_prompts: u64,
        /// One of them.
        sample_id: String,
    },
    /// Answers could not be set aside.
    #[error("cannot set answers in `{path}` aside")]
    SetAside {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

struct Differences<'a>(&'a [(String, Value, Value)]);

impl fmt::Display for Differences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("which is not known, the manifest of that run is missing");
        }
        for (n, (name, then, now)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {then} -> {now}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A data set, opened: its state, its writers, and which rows of `prompts.jsonl` are pending.
pub(crate) struct Opened {
    pub(crate) state: DatasetState,
    pub(crate) pending: Pending,
    pub(crate) files: Files,
}

/// One bit for every row of `prompts.jsonl`.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    words: Vec<u64>,
    n_rows: u64,
}

impl Pending {
    fn push(&mut self, pending: bool) {
        let bit = self.n_rows % 64;
        if bit == 0 {
            self.words.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= u64::from(pending) << bit;
        }
        self.n_rows += 1;
    }

    pub(crate) fn get(&self, row: u64) -> bool {
        let word = usize::try_from(row / 64).ok().and_then(|at| self.words.get(at));
        word.is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    pub(crate) fn n_rows(&self) -> u64 {
        self.n_rows
    }
}

/// What is read of a line of `raw_responses.jsonl`.
#[derive(Deserialize)]
struct AnswerHead<'a> {
    #[serde(borrow)]
    sample_id: Cow<'a, str>,
    #[serde(borrow)]
    fingerprint: Cow<'a, str>,
    #[serde(borrow)]
    prompt_ids: &'a RawValue,
    #[serde(default)]
    usage: UsageHead,
}

#[derive(Deserialize, Default)]
struct UsageHead {
    #[serde(default)]
    completion_tokens: u64,
}

/// What is read of a line of `failed.jsonl`.
#[derive(Deserialize)]
struct FailedHead<'a> {
    #[serde(borrow)]
    sample_id: Cow<'a, str>,
    #[serde(borrow)]
    fingerprint: Cow<'a, str>,
    permanent: bool,
}

/// What is read of a line of `prompts.jsonl`.
#[derive(Deserialize)]
struct PromptHead<'a> {
    #[serde(borrow)]
    sample_id: Cow<'a, str>,
    #[serde(borrow)]
    prompt_ids: &'a RawValue,
}

macro_rules! record {
    ($name:ident, $view:ident) => {
        struct $name;
        impl eyas_journal::Record for $name {
            type Borrowed<'a> = $view<'a>;
        }
    };
}
record!(AnswerHeads, AnswerHead);
record!(FailedHeads, FailedHead);
record!(PromptHeads, PromptHead);

/// What the journal says about one id.
struct Done {
    prompt_hash: u64,
    foreign: bool,
    completion_tokens: u64,
}

fn key(sample_id: &str) -> u64 {
    xxh3_64(sample_id.as_bytes())
}

/// Hash of an array of ids as it stands in a line. White space does not count.
fn prompt_hash(raw: &RawValue) -> u64 {
    let text = raw.get();
    if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        let compact: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        return xxh3_64(&compact);
    }
    xxh3_64(text.as_bytes())
}

/// Locks, mends, reads. Writes nothing unless something is torn or [`OnChange::Redo`] has something to move.
pub(crate) fn open_dataset(plan: &GeneratePlan, dataset: &DatasetPlan) -> Result<Opened, OpenError> {
    // The lock of the answers guards the failures as well.
    let responses = JournalWriter::open(&dataset.responses, JournalOptions { fsync: plan.fsync, lock: true })?;
    let failed = JournalWriter::open(&dataset.failed, JournalOptions { fsync: plan.fsync, lock: false })?;
    let mut state = DatasetState {
        name: dataset.name.clone(),
        recovery: responses.recovery().clone(),
        failed_recovery: failed.recovery().clone(),
        ..DatasetState::default()
    };
    let fingerprint = plan.fingerprint.fingerprint();
    let mut done = read_answers(plan, dataset, &fingerprint, &mut state)?;
    let given_up = read_failed(plan, dataset, &fingerprint)?;
    let pending = match match_prompts(dataset, &done, &given_up, &mut state)? {
        Matched { pending, changed: None } => pending,
        Matched { changed: Some((n_prompts, sample_id, keys)), pending } => match plan.on_change {
            OnChange::Refuse => {
                return Err(OpenError::PromptsChanged { dataset: dataset.name.clone(), n_prompts, sample_id });
            }
            OnChange::Keep => {
                state.n_kept_foreign += n_prompts;
                pending
            }
            OnChange::Redo => {
                state.n_set_aside += move_aside(dataset, |head| !keys.contains(&key(&head.sample_id)))?.n_moved;
                done.retain(|key, _| !keys.contains(key));
                match_prompts(dataset, &done, &given_up, &mut state)?.pending
            }
        },
    };
    let files = Files { responses, failed };
    Ok(Opened { state, pending, files })
}

fn read_answers(
    plan: &GeneratePlan,
    dataset: &DatasetPlan,
    fingerprint: &Fingerprint,
    state: &mut DatasetState,
) -> Result<HashMap<u64, Done>, OpenError> {
    let mut done: HashMap<u64, Done> = HashMap::new();
    let mut n_foreign = 0;
    let each = |_: Position, head: AnswerHead<'_>| {
        let foreign = head.fingerprint != fingerprint.as_str();
        n_foreign += u64::from(foreign);
        if foreign && plan.on_change == OnChange::Redo {
            return;
        }
        let new = Done {
            prompt_hash: prompt_hash(head.prompt_ids),
            foreign,
            completion_tokens: head.usage.completion_tokens,
        };
        if done.insert(key(&head.sample_id), new).is_some() {
            state.n_duplicates += 1;
        }
    };
    scan::<AnswerHeads>(&dataset.responses, ScanOptions::default(), each)?;
    if n_foreign > 0 {
        match plan.on_change {
            OnChange::Refuse => {
                let differences = plan.previous.iter().flat_map(|previous| previous.differences(&plan.fingerprint));
                return Err(OpenError::FingerprintChanged {
                    path: dataset.responses.clone(),
                    n_answers: n_foreign,
                    differences: differences.map(|(name, then, now)| (name.to_owned(), then, now)).collect(),
                });
            }
            OnChange::Keep => {}
            OnChange::Redo => {
                state.n_set_aside = move_aside(dataset, |head| head.fingerprint == fingerprint.as_str())?.n_moved;
            }
        }
    }
    Ok(done)
}

fn move_aside(dataset: &DatasetPlan, keep: impl Fn(&AnswerHead<'_>) -> bool) -> Result<SetAside, OpenError> {
    let path = &dataset.responses;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let side_file = path.with_file_name(format!("{name}.old"));
    let keep = |line: &[u8]| serde_json::from_slice::<AnswerHead<'_>>(line).is_ok_and(|head| keep(&head));
    set_aside(&eyas_journal::RealFs, path, &side_file, keep)
        .map_err(|source| OpenError::SetAside { path: path.clone(), source })
}

/// Ids that are not to be asked again.
fn read_failed(
    plan: &GeneratePlan,
    dataset: &DatasetPlan,
    fingerprint: &Fingerprint,
) -> Result<HashSet<u64>, OpenError> {
    let mut given_up = HashSet::new();
    if plan.retry_failed {
        return Ok(given_up);
    }
    scan::<FailedHeads>(&dataset.failed, ScanOptions::default(), |_, head| {
        // A failure under other settings says nothing about these.
        if head.permanent && head.fingerprint == fingerprint.as_str() {
            given_up.insert(key(&head.sample_id));
        }
    })?;
    Ok(given_up)
}

struct Matched {
    pending: Pending,
    /// How many prompts have changed, the first of them, all of them.
    changed: Option<(u64, String, HashSet<u64>)>,
}

fn match_prompts(
    dataset: &DatasetPlan,
    done: &HashMap<u64, Done>,
    given_up: &HashSet<u64>,
    state: &mut DatasetState,
) -> Result<Matched, OpenError> {
    let path = &dataset.prompts;
    std::fs::File::open(path).map_err(|source| OpenError::Prompts {
        dataset: dataset.name.clone(),
        path: path.clone(),
        source,
    })?;
    let mut pending = Pending::default();
    let mut seen = HashSet::new();
    let mut twice = None;
    let mut changed: Option<(u64, String, HashSet<u64>)> = None;
    let (mut answered, mut failed, mut n_kept_foreign, mut completion_tokens) = (0, 0, 0, 0);
    let report = scan::<PromptHeads>(path, ScanOptions::default(), |_, head| {
        let key = key(&head.sample_id);
        if !seen.insert(key) {
            twice.get_or_insert_with(|| head.sample_id.clone().into_owned());
        }
        match done.get(&key) {
            Some(done) => {
                answered += 1;
                n_kept_foreign += u64::from(done.foreign);
                completion_tokens += done.completion_tokens;
                if done.prompt_hash != prompt_hash(head.prompt_ids) && !done.foreign {
                    let (n, _, keys) =
                        changed.get_or_insert_with(|| (0, head.sample_id.clone().into_owned(), HashSet::new()));
                    *n += 1;
                    keys.insert(key);
                }
                pending.push(false);
            }
            None if given_up.contains(&key) => {
                failed += 1;
                pending.push(false);
            }
            None => pending.push(true),
        }
    })?;
    check_prompts(dataset, path, &report, twice)?;
    state.total = report.n_records;
    state.answered = answered;
    state.failed = failed;
    state.completion_tokens = completion_tokens;
    state.n_kept_foreign = n_kept_foreign;
    state.n_unknown = done.len() as u64 - done.keys().filter(|key| seen.contains(key)).count() as u64;
    Ok(Matched { pending, changed })
}

fn check_prompts(
    dataset: &DatasetPlan,
    path: &Path,
    report: &ScanReport,
    twice: Option<String>,
) -> Result<(), OpenError> {
    let path = || path.to_owned();
    if let Some(position) = report.unfinished {
        return Err(OpenError::PromptsUnfinished { path: path(), offset: position.offset });
    }
    if let Some(expected) = dataset.n_prompts
        && expected != report.n_records
    {
        return Err(OpenError::PromptCount { path: path(), found: report.n_records, expected });
    }
    match twice {
        Some(sample_id) => Err(OpenError::DuplicateId { path: path(), sample_id }),
        None => Ok(()),
    }
}
