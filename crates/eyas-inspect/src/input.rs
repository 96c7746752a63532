//! From the paths that were given to the files that are read.

use std::path::{Path, PathBuf};

use crate::inspect::InspectError;

/// A file of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    /// Data set of rows that do not name theirs.
    pub(crate) dataset: String,
}

/// What is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    pub(crate) files: Vec<InputFile>,
    /// `failed.jsonl` files of runs.
    pub(crate) failed: Vec<PathBuf>,
}

/// Names of files in a run folder that hold no answers.
const NO_ANSWERS: [&str; 3] = ["prompts.jsonl", "rejected.jsonl", "failed.jsonl"];
const RESPONSES: &str = "raw_responses.jsonl";

/// Finds the files below `paths`. Files keep the order in which they are given, those of a folder are sorted by name.
pub(crate) fn resolve(paths: &[PathBuf]) -> Result<Inputs, InspectError> {
    let mut inputs = Inputs::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|source| InspectError::Open { path: path.clone(), source })?;
        if !metadata.is_dir() {
            inputs.files.push(InputFile { path: path.clone(), dataset: dataset_of(path) });
            continue;
        }
        let n_before = inputs.files.len();
        folder(path, &mut inputs)?;
        if inputs.files.len() == n_before {
            return Err(InspectError::NoAnswerFiles { path: path.clone() });
        }
    }
    if inputs.files.is_empty() {
        return Err(InspectError::NoPaths);
    }
    Ok(inputs)
}

fn folder(path: &Path, inputs: &mut Inputs) -> Result<(), InspectError> {
    let prepared = path.join("prepared");
    if prepared.is_dir() {
        for dataset in entries(&prepared)? {
            responses_of(&dataset, inputs)?;
        }
        return Ok(());
    }
    if responses_of(path, inputs)? {
        return Ok(());
    }
    let entries = entries(path)?;
    for entry in &entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if entry.is_file() && is_rows(&name) && !NO_ANSWERS.iter().any(|known| name.starts_with(known)) {
            inputs.files.push(InputFile { path: entry.clone(), dataset: dataset_of(entry) });
        }
    }
    if inputs.files.is_empty() {
        for dataset in entries.iter().filter(|entry| entry.is_dir()) {
            responses_of(dataset, inputs)?;
        }
    }
    Ok(())
}

/// Adds the responses of one data set's folder; returns whether there are any.
fn responses_of(folder: &Path, inputs: &mut Inputs) -> Result<bool, InspectError> {
    if !folder.is_dir() {
        return Ok(false);
    }
    let mut any = false;
    for entry in entries(folder)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if entry.is_file()
            && (name == RESPONSES || name.strip_prefix(RESPONSES).is_some_and(|end| matches!(end, ".gz" | ".zst")))
        {
            inputs.files.push(InputFile { path: entry.clone(), dataset: dataset_of(&entry) });
            any = true;
        }
        if name == "failed.jsonl" {
            inputs.failed.push(entry.clone());
        }
    }
    Ok(any)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, InspectError> {
    let open = |source| InspectError::Open { path: folder.to_path_buf(), source };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(open)? {
        entries.push(entry.map_err(open)?.path());
    }
    entries.sort();
    Ok(entries)
}

fn is_rows(name: &str) -> bool {
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
    [".jsonl", ".ndjson", ".json", ".jsonlines"].iter().any(|end| name.ends_with(end))
}

/// The folder of a run's responses, else the file's stem.
fn dataset_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = match name.strip_prefix(RESPONSES) {
        Some(_) => path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy(),
        None => name.split('.').find(|part| !part.is_empty()).unwrap_or_default().to_owned().into(),
    };
    if stem.is_empty() { "(none)".to_owned() } else { stem.into_owned() }
}
