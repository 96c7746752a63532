//! The journals of all data sets, written in batches and synced off the async threads.
//!
//! Writing is quick and makes a line survive the death of the process; syncing takes as long as the disk likes and makes it survive that of
//! the machine. So the two go on side by side, and only a synced line is acknowledged.

use eyas_journal::{AppendError, JournalWriter, PendingSync, SyncResult};
use std::collections::VecDeque;
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

/// All journals, and the tags of the lines that are not yet acknowledged.
pub(crate) struct Store<T> {
    journals: Vec<Journal<T>>,
}

struct Journal<T> {
    writer: JournalWriter,
    waiting: VecDeque<(u64, T)>,
}

/// Syncs to be run on another thread; [`Syncs::run`] blocks.
pub(crate) struct Syncs(Vec<(usize, PendingSync)>);

/// What they came to.
pub(crate) struct Synced(Vec<(usize, SyncResult)>);

/// Records that are safe now, in order per journal, and the first error. After an error nothing more will be written.
pub(crate) struct Acknowledged<T> {
    pub(crate) tags: Vec<T>,
    pub(crate) error: Option<AppendError>,
}

impl<T> Store<T> {
    pub(crate) fn new(files: Vec<Files>) -> Self {
        let writers = files.into_iter().flat_map(|files| [files.responses, files.failed]);
        Self { journals: writers.map(|writer| Journal { writer, waiting: VecDeque::new() }).collect() }
    }

    /// Writes `lines`; syncs nothing. Blocks, briefly.
    pub(crate) fn write(&mut self, lines: Vec<Line<T>>) -> Acknowledged<T> {
        let mut error = None;
        for line in lines {
            let journal = &mut self.journals[line.dataset * 2 + line.kind as usize];
            match journal.writer.append_line(&line.bytes) {
                Ok(number) => journal.waiting.push_back((number, line.tag)),
                Err(refused) => error = error.or(Some(refused)),
            }
        }
        for journal in &mut self.journals {
            if let Err(failed) = journal.writer.write_out() {
                error = error.or(Some(failed));
            }
        }
        self.acknowledge(error)
    }

    /// Begins a sync of every journal that wants one now, or of every one that needs one (`all`).
    pub(crate) fn begin_syncs(&mut self, all: bool) -> Option<Syncs> {
        let mut syncs = Vec::new();
        for (at, journal) in self.journals.iter_mut().enumerate() {
            let due = journal.writer.sync_due_in().is_some_and(|rest| all || rest.is_zero());
            if due && let Some(sync) = journal.writer.begin_sync() {
                syncs.push((at, sync));
            }
        }
        (!syncs.is_empty()).then_some(Syncs(syncs))
    }

    pub(crate) fn end_syncs(&mut self, synced: Synced) -> Acknowledged<T> {
        let mut error = None;
        for (at, result) in synced.0 {
            if let Err(failed) = self.journals[at].writer.end_sync(result) {
                error = error.or(Some(failed));
            }
        }
        self.acknowledge(error)
    }

    /// When the policy wants the next sync.
    pub(crate) fn sync_due_in(&self) -> Option<Duration> {
        self.journals.iter().filter_map(|journal| journal.writer.sync_due_in()).min()
    }

    fn acknowledge(&mut self, error: Option<AppendError>) -> Acknowledged<T> {
        let mut tags = Vec::new();
        for Journal { writer, waiting } in &mut self.journals {
            let acknowledged = writer.acknowledged();
            while waiting.front().is_some_and(|(number, _)| *number <= acknowledged) {
                tags.extend(waiting.pop_front().map(|(_, tag)| tag));
            }
        }
        Acknowledged { tags, error }
    }
}

impl Syncs {
    pub(crate) fn run(self) -> Synced {
        Synced(self.0.into_iter().map(|(at, sync)| (at, sync.run())).collect())
    }
}
