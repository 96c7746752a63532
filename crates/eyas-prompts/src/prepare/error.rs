//! Why a data set was not prepared.

use super::report::PrepareReport;
use crate::normalise::NoSchema;
use crate::source::OpenError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a data set was not prepared. Nothing was put in the place of earlier prompts.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A file cannot be read at all.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No conversation or prompt in the rows.
    #[error("data set `{dataset}`: {source}")]
    NoSchema {
        /// Data set name.
        dataset: String,
        /// Fields found and expected.
        source: NoSchema,
    },
    /// No row in any file.
    #[error("no records in data set `{dataset}`: {}", files.join(", "))]
    NothingRead {
        /// Data set name.
        dataset: String,
        /// Each file and what it holds: "`a.jsonl` (0 bytes)".
        files: Vec<String>,
    },
    /// Rows, and none of them is taken.
    #[error("data set `{}`: 0 of {} rows kept: {}", report.dataset, report.read, report.reasons().join(", "))]
    NothingKept {
        /// What became of the rows.
        report: Box<PrepareReport>,
    },
    /// Output cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

pub(super) fn write_error(path: &Path, source: io::Error) -> PrepareError {
    PrepareError::Write { path: path.to_owned(), source }
}
