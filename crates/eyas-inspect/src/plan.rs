//! What to inspect and how, checked, with nothing left to default.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::locations::{Field, PathError};

/// Counts the tokens of a text; see [`InspectPlan::count_tokens`].
pub type CountTokens = Arc<dyn Fn(&str) -> u64 + Send + Sync>;

/// What to inspect and how.
///
/// ```no_run
/// let plan = eyas_inspect::InspectPlan::new(["answers.jsonl"]);
/// let inspection = eyas_inspect::inspect(&plan)?;
/// println!("{} answers", inspection.answers.answers);
/// # Ok::<(), eyas_inspect::InspectError>(())
/// ```
#[derive(Clone)]
pub struct InspectPlan {
    /// Files, run folders (`prepared/*/raw_responses.jsonl` below them is read), or folders of answer files.
    pub paths: Vec<PathBuf>,
    /// Lengths to count answers from, ascending. Default 1,024, 2,048, 4,096 and so on up to 131,072.
    pub thresholds: Vec<u64>,
    /// Places kept for each class and finding. Default 5.
    pub n_examples: usize,
    /// Whether the target reasons. `None` (default): it does when any answer holds reasoning, and when none does, that is said.
    pub expect_reasoning: Option<bool>,
    /// Longest line that is held in memory, bytes. Longer lines are counted as `too_long` and not parsed. Default 64 MiB, at most 1 GiB.
    pub max_line_bytes: usize,
    /// Lines from this length on are remarked as `huge_line`, bytes. Default 8 MiB.
    pub huge_line_bytes: usize,
    /// Counts tokens of rows that hold no count and no ids; without it such rows are measured in characters where no row has a count.
    pub count_tokens: Option<CountTokens>,
    /// Locations that go before the known ones.
    pub fields: Vec<FieldPath>,
    /// How long the work took, seconds, for tokens per second. `None`: from the rows' own timing, where they have one.
    pub wall_s: Option<f64>,
}

/// A location for a field, as `--field name=path` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    /// Which field.
    pub field: Field,
    /// Where: keys joined by dots, `[0]` for the first element, `[last]` for the last assistant message; `len(…)` for the number of elements.
    pub path: String,
}

impl FieldPath {
    /// Reads `name=path`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let (name, path) = text.split_once('=').ok_or_else(|| PathError::NoEquals { text: text.to_owned() })?;
        let field = Field::from_name(name.trim())?;
        let path = path.trim();
        crate::locations::check_path(path)?;
        Ok(Self { field, path: path.to_owned() })
    }
}

impl InspectPlan {
    /// The defaults over `paths`.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            thresholds: (10..18).map(|bits| 1 << bits).collect(),
            n_examples: 5,
            expect_reasoning: None,
            max_line_bytes: 64 << 20,
            huge_line_bytes: 8 << 20,
            count_tokens: None,
            fields: Vec::new(),
            wall_s: None,
        }
    }
}

impl fmt::Debug for InspectPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InspectPlan")
            .field("paths", &self.paths)
            .field("thresholds", &self.thresholds)
            .field("n_examples", &self.n_examples)
            .field("expect_reasoning", &self.expect_reasoning)
            .field("max_line_bytes", &self.max_line_bytes)
            .field("huge_line_bytes", &self.huge_line_bytes)
            .field("count_tokens", &self.count_tokens.is_some())
            .field("fields", &self.fields)
            .field("wall_s", &self.wall_s)
            .finish()
    }
}
