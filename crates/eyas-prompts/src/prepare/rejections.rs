//! Rows that are not taken.

use super::error::{PrepareError, write_error};
use super::files::NewFile;
use super::plan::PreparePlan;
use super::record::line_of;
use crate::normalise::Refusal;
use crate::source::DataFiles;
use eyas_types::{Rejected, Schema, Source};
use std::collections::BTreeMap;
use std::io;

/// Rejected rows shown for each reason.
const EXAMPLES: u64 = 3;

/// Lines of `rejected.jsonl`, with counts.
pub(super) struct Rejections<'a> {
    dataset: &'a str,
    /// Names of the files, by index.
    pub(super) names: Vec<String>,
    out: NewFile,
    pub(super) n_by_file: Vec<u64>,
    pub(super) by_reason: BTreeMap<String, u64>,
    pub(super) examples: Vec<Rejected>,
}

impl<'a> Rejections<'a> {
    pub(super) fn begin(plan: &'a PreparePlan, files: &DataFiles) -> Result<Self, PrepareError> {
        let path = plan.rejected_path();
        Ok(Self {
            dataset: &plan.dataset,
            names: files.files.iter().map(|file| file.name.clone()).collect(),
            out: NewFile::create(&path).map_err(|source| write_error(&path, source))?,
            n_by_file: vec![0; files.files.len()],
            by_reason: BTreeMap::new(),
            examples: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, file_idx: usize, row: u64, refusal: Refusal) -> Result<(), PrepareError> {
        let rejected = Rejected {
            schema: Schema::REJECTED,
            dataset: self.dataset.to_owned(),
            source: Source { file: self.names[file_idx].clone(), row },
            reason: refusal.reason.to_owned(),
            detail: refusal.detail,
        };
        self.out.write_line(&line_of(&rejected)).map_err(|source| write_error(self.out.path(), source))?;
        self.n_by_file[file_idx] += 1;
        let n = self.by_reason.entry(rejected.reason.clone()).or_default();
        *n += 1;
        if *n <= EXAMPLES {
            self.examples.push(rejected);
        }
        Ok(())
    }

    pub(super) fn n(&self) -> u64 {
        self.n_by_file.iter().sum()
    }

    /// Puts the file in its place; without any rejected row there is no file.
    pub(super) fn publish(self) -> Result<(), PrepareError> {
        let path = self.out.path().to_owned();
        let done = if self.n() > 0 {
            self.out.publish()
        } else {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        done.map_err(|source| write_error(&path, source))
    }
}
