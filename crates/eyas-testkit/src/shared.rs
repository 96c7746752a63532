//! The cases that lie beside the repository, where they are there.

use std::path::{Path, PathBuf};

/// The folder `shared` beside the repository root; `EYAS_SHARED` names another. `None`, with a line that says so, when it is not there.
pub fn shared_dir() -> Option<PathBuf> {
    let dir = match std::env::var_os("EYAS_SHARED") {
        Some(dir) => PathBuf::from(dir),
        // crates/eyas-testkit → crates → repository root → beside it
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    if dir.is_dir() {
        return Some(dir);
    }
    println!("skipped: no shared cases at {} (EYAS_SHARED names another place)", dir.display());
    None
}

/// The input files of a case: every `cases/inputs/ID.*`, asked for by its ending. `None`, with a line that says so, when there are none.
///
/// ```no_run
/// let Some(case) = eyas_testkit::shared_case("RESUME-01") else { return };
/// let prompts = case.text("jsonl");
/// ```
pub fn shared_case(id: &str) -> Option<SharedCase> {
    let shared = shared_dir()?;
    let inputs = shared.join("cases/inputs");
    let prefix = format!("{id}.");
    let found = std::fs::read_dir(&inputs)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    if !found {
        println!("skipped: case {id} is not in {}", inputs.display());
        return None;
    }
    Some(SharedCase { inputs, common: shared.join("cases/common"), id: id.to_owned() })
}

/// One case.
#[derive(Debug, Clone)]
pub struct SharedCase {
    inputs: PathBuf,
    common: PathBuf,
    id: String,
}

impl SharedCase {
    /// Path of `ID.ENDING`.
    pub fn path(&self, ending: &str) -> PathBuf {
        self.inputs.join(format!("{}.{ending}", self.id))
    }

    /// Path of a file of the kit that all cases share (`tiny_tok/tokenizer.json`).
    pub fn common(&self, path: &str) -> PathBuf {
        self.common.join(path)
    }

    /// `ID.ENDING` as text.
    #[track_caller]
    pub fn text(&self, ending: &str) -> String {
        let path = self.path(ending);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// `ID.ENDING` as JSON.
    #[track_caller]
    pub fn json(&self, ending: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(ending)).unwrap_or_else(|error| panic!("{}.{ending}: {error}", self.id))
    }

    /// `ID.ENDING`, one JSON value a line.
    #[track_caller]
    pub fn json_lines(&self, ending: &str) -> Vec<serde_json::Value> {
        self.text(ending)
            .split('\n')
            .filter(|line| !line.trim().is_empty())
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}.{ending}: {error}", self.id)))
            .collect()
    }
}
