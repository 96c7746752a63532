//! The journals of all data sets, written in batches off the async threads.

use eyas_journal::{AppendError, JournalWriter};
use std::time::Duration;

/// The writers of one data set.
pub(crate) struct Files {
    pub(crate) responses: JournalWriter,
    pub(crate) failed: JournalWriter,
}

/// Which of a data set's journals a line goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Answer,
    Failure,
}

/// A record on its way to disk. `T` is what the dispatcher wants back when it is there.
pub(crate) struct Line<T> {
    pub(crate) dataset: usize,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) tag: T,
}

/// All journals, and the tags of the lines that are written but not yet acknowledged.
pub(crate) struct Store<T> {
    files: Vec<Files>,
    waiting: Vec<[std::collections::VecDeque<(u64, T)>; 2]>,
}

/// What a batch came to.
pub(crate) struct Batch<T> {
    /// Records that are safe now, in order per journal.
    pub(crate) acknowledged: Vec<T>,
    /// When to call again although nothing new came.
    pub(crate) sync_due_in: Option<Duration>,
    /// The first error. Nothing more will be written.
    pub(crate) error: Option<AppendError>,
}

impl<T> Store<T> {
    pub(crate) fn new(files: Vec<Files>) -> Self {
        let waiting = files.iter().map(|_| Default::default()).collect();
        Self { files, waiting }
    }

    /// Writes `lines` and syncs as the policy says; with `sync` in any case. Blocks.
    pub(crate) fn write(&mut self, lines: Vec<Line<T>>, sync: bool) -> Batch<T> {
        let mut batch = Batch { acknowledged: Vec::new(), sync_due_in: None, error: None };
        for line in lines {
            match self.writer(line.dataset, line.kind).append_line(&line.bytes) {
                Ok(number) => self.waiting[line.dataset][line.kind as usize].push_back((number, line.tag)),
                Err(error) => {
                    batch.error.get_or_insert(error);
                }
            }
        }
        for dataset in 0..self.files.len() {
            for kind in [Kind::Answer, Kind::Failure] {
                if self.waiting[dataset][kind as usize].is_empty() {
                    continue;
                }
                let writer = self.writer(dataset, kind);
                let committed = if sync { writer.sync() } else { writer.commit() };
                let acknowledged = writer.acknowledged();
                if let Err(error) = committed {
                    batch.error.get_or_insert(error);
                } else if let Some(due) = writer.sync_due_in() {
                    batch.sync_due_in = Some(batch.sync_due_in.map_or(due, |earlier| earlier.min(due)));
                }
                let waiting = &mut self.waiting[dataset][kind as usize];
                while waiting.front().is_some_and(|(number, _)| *number <= acknowledged) {
                    batch.acknowledged.extend(waiting.pop_front().map(|(_, tag)| tag));
                }
            }
        }
        batch
    }

    fn writer(&mut self, dataset: usize, kind: Kind) -> &mut JournalWriter {
        let files = &mut self.files[dataset];
        match kind {
            Kind::Answer => &mut files.responses,
            Kind::Failure => &mut files.failed,
        }
    }
}
