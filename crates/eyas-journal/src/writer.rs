//! The writer: lock, recovery, append, group commit.

use crate::atomic::parent;
use crate::fs::{Fs, FsFile, FsLock, FsSync, LockError, RealFs};
use crate::recover::{RecoverError, Recovery, recover};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When written records are forced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FsyncPolicy {
    /// Every [`JournalWriter::commit`] syncs: an acknowledged record survives a power cut. The default; the batch shares the cost.
    #[default]
    EachBatch,
    /// At most one sync in this many milliseconds. Records are written at once and acknowledged by the next sync.
    Interval(u64),
    /// Never; acknowledged means written. Survives the death of the process, not of the machine.
    Never,
}

/// How a journal is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// When records are forced to the disk.
    pub fsync: FsyncPolicy,
    /// Take the lock beside the file. Leave it out only where another lock already keeps writers apart.
    pub lock: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { fsync: FsyncPolicy::EachBatch, lock: true }
    }
}

/// A journal could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another writer has it.
    #[error("journal `{path}` is being written by {}", if .holder.is_empty() { "another process" } else { .holder })]
    Locked {
        /// The journal.
        path: PathBuf,
        /// `process 4711`, or empty when the lock file does not say.
        holder: String,
    },
    /// The lock could not be asked for.
    #[error("cannot lock journal `{path}`")]
    Lock {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its end could not be set right.
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

/// A record was not written. The writer refuses everything after this.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The record does not serialise. Only this record is lost, the writer stays usable.
    #[error("a record for journal `{path}` does not serialise")]
    Serialise {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Opening, writing or syncing failed.
    #[error("cannot {action} journal `{path}`: records from number {first_unsafe} on are not safe")]
    Io {
        /// The journal.
        path: PathBuf,
        /// `open`, `write` or `sync`.
        action: &'static str,
        /// The first record number that is not acknowledged.
        first_unsafe: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An earlier write or sync failed.
    #[error("journal `{path}` is closed since an earlier write failed: {reason}")]
    Poisoned {
        /// The journal.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
}

/// A sync that has been begun and can run on any thread, while its writer goes on writing.
pub struct PendingSync {
    syncer: Box<dyn FsSync>,
    through: u64,
}

/// What a sync came to; goes back to its writer by [`JournalWriter::end_sync`].
#[derive(Debug)]
pub struct SyncResult {
    through: u64,
    result: io::Result<()>,
}

impl PendingSync {
    /// Blocks until the disk has it.
    pub fn run(self) -> SyncResult {
        SyncResult { through: self.through, result: self.syncer.sync() }
    }
}

/// The one writer of a journal. Records are numbered from 1 in the order of this writer's appends.
///
/// The file is opened for writing by the first commit that has something to write, so a run that finds nothing to do leaves no trace.
pub struct JournalWriter {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    fsync: FsyncPolicy,
    file: Option<Box<dyn FsFile>>,
    buffer: Vec<u8>,
    appended: u64,
    written: u64,
    synced: u64,
    syncing: bool,
    last_sync: Option<Instant>,
    poisoned: Option<String>,
    recovery: Recovery,
    _lock: Option<Box<dyn FsLock>>,
}

impl JournalWriter {
    /// Locks the journal and sets its end right; creates nothing but the lock file.
    pub fn open(path: impl Into<PathBuf>, options: JournalOptions) -> Result<Self, OpenError> {
        Self::open_in(Arc::new(RealFs), path, options)
    }

    /// [`JournalWriter::open`] through a given door to the disk.
    pub fn open_in(fs: Arc<dyn Fs>, path: impl Into<PathBuf>, options: JournalOptions) -> Result<Self, OpenError> {
        let path = path.into();
        let lock = if options.lock { Some(take_lock(&*fs, &path)?) } else { None };
        let recovery = recover(&*fs, &path)?;
        Ok(Self {
            path,
            fs,
            fsync: options.fsync,
            file: None,
            buffer: Vec::new(),
            appended: 0,
            written: 0,
            synced: 0,
            syncing: false,
            last_sync: None,
            poisoned: None,
            recovery,
            _lock: lock,
        })
    }

    /// What opening had to do.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record to the batch and returns its number. Nothing is on disk before [`JournalWriter::commit`].
    pub fn append(&mut self, record: &impl Serialize) -> Result<u64, AppendError> {
        self.refuse_if_poisoned()?;
        let start = self.buffer.len();
        if let Err(source) = serde_json::to_writer(&mut self.buffer, record) {
            self.buffer.truncate(start);
            return Err(AppendError::Serialise { path: self.path.clone(), source });
        }
        self.buffer.push(b'\n');
        self.appended += 1;
        Ok(self.appended)
    }

    /// Adds a record that is serialised already: one compact JSON object, without its newline.
    pub fn append_line(&mut self, line: &[u8]) -> Result<u64, AppendError> {
        self.refuse_if_poisoned()?;
        debug_assert!(crate::recover::is_record(line) && !line.contains(&b'\n'), "a line must be one JSON object");
        self.buffer.reserve(line.len() + 1);
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        self.appended += 1;
        Ok(self.appended)
    }

    /// Writes the batch and syncs it as the policy says; returns [`JournalWriter::acknowledged`].
    pub fn commit(&mut self) -> Result<u64, AppendError> {
        self.write_out()?;
        let due = self.sync_due_in().is_some_and(|rest| rest.is_zero());
        if due { self.sync() } else { Ok(self.acknowledged()) }
    }

    /// Writes the batch and syncs it, whatever the policy; returns [`JournalWriter::acknowledged`].
    pub fn sync(&mut self) -> Result<u64, AppendError> {
        self.write_out()?;
        if let Some(pending) = self.begin_sync() {
            self.end_sync(pending.run())?;
        }
        Ok(self.acknowledged())
    }

    /// A sync of everything written so far, to be run elsewhere. `None` when there is nothing to sync or a sync is under way.
    pub fn begin_sync(&mut self) -> Option<PendingSync> {
        if self.syncing || self.synced == self.written || self.poisoned.is_some() {
            return None;
        }
        let syncer = self.file.as_ref()?.syncer();
        self.syncing = true;
        Some(PendingSync { syncer, through: self.written })
    }

    /// Takes the result of a sync; returns [`JournalWriter::acknowledged`].
    pub fn end_sync(&mut self, synced: SyncResult) -> Result<u64, AppendError> {
        self.syncing = false;
        match synced.result {
            Ok(()) => {
                self.synced = self.synced.max(synced.through);
                self.last_sync = Some(Instant::now());
                Ok(self.acknowledged())
            }
            Err(source) => Err(self.poison("sync", source)),
        }
    }

    /// The number of the last record that is safe under the policy; all before it are safe too.
    pub fn acknowledged(&self) -> u64 {
        match self.fsync {
            FsyncPolicy::EachBatch | FsyncPolicy::Interval(_) => self.synced,
            FsyncPolicy::Never => self.written,
        }
    }

    /// How long until the policy wants a sync of what is not synced yet; `None` when all is, or under [`FsyncPolicy::Never`].
    pub fn sync_due_in(&self) -> Option<Duration> {
        if self.synced == self.appended {
            return None;
        }
        match self.fsync {
            FsyncPolicy::EachBatch => Some(Duration::ZERO),
            FsyncPolicy::Interval(ms) => {
                let interval = Duration::from_millis(ms);
                Some(self.last_sync.map_or(Duration::ZERO, |last| interval.saturating_sub(last.elapsed())))
            }
            FsyncPolicy::Never => None,
        }
    }

    /// Writes the batch without syncing it: it survives the death of the process.
    pub fn write_out(&mut self) -> Result<(), AppendError> {
        self.refuse_if_poisoned()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            match self.fs.open_append(&self.path) {
                Ok((file, created)) => {
                    self.file = Some(file);
                    // A new file is only there after a power cut when its folder knows it.
                    if created && self.fsync != FsyncPolicy::Never {
                        let synced = self.fs.sync_dir(parent(&self.path));
                        synced.map_err(|source| self.poison("open", source))?;
                    }
                }
                Err(source) => return Err(self.poison("open", source)),
            }
        }
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.buffer),
            None => Ok(()),
        };
        written.map_err(|source| self.poison("write", source))?;
        self.buffer.clear();
        self.written = self.appended;
        Ok(())
    }

    fn poison(&mut self, action: &'static str, source: io::Error) -> AppendError {
        self.poisoned = Some(format!("{action}: {source}"));
        AppendError::Io { path: self.path.clone(), action, first_unsafe: self.acknowledged() + 1, source }
    }

    fn refuse_if_poisoned(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(reason) => Err(AppendError::Poisoned { path: self.path.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalWriter")
            .field("path", &self.path)
            .field("fsync", &self.fsync)
            .field("appended", &self.appended)
            .field("written", &self.written)
            .field("synced", &self.synced)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

fn take_lock(fs: &dyn Fs, path: &Path) -> Result<Box<dyn FsLock>, OpenError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lock_path = path.with_file_name(format!("{name}.lock"));
    match fs.try_lock(&lock_path, &format!("process {}", std::process::id())) {
        Ok(lock) => Ok(lock),
        Err(LockError::Held(holder)) => Err(OpenError::Locked { path: path.to_owned(), holder }),
        Err(LockError::Io(source)) => Err(OpenError::Lock { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_acknowledges_and_creates_late() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        let mut writer = JournalWriter::open(&path, JournalOptions::default()).unwrap();
        assert!(!path.exists(), "opening creates nothing");
        assert_eq!(writer.commit().unwrap(), 0);
        assert!(!path.exists(), "an empty commit creates nothing");
        assert_eq!(writer.append(&json!({"n": 1})).unwrap(), 1);
        assert_eq!(writer.append_line(br#"{"n":2}"#).unwrap(), 2);
        assert_eq!(writer.acknowledged(), 0);
        assert_eq!(writer.commit().unwrap(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":2}\n");
    }

    #[test]
    fn an_interval_acknowledges_at_its_sync() {
        let dir = tempfile::tempdir().unwrap();
        let options = JournalOptions { fsync: FsyncPolicy::Interval(3_600_000), lock: true };
        let mut writer = JournalWriter::open(dir.path().join("j.jsonl"), options).unwrap();
        writer.append(&json!({"n": 1})).unwrap();
        assert_eq!(writer.commit().unwrap(), 1, "the first batch is synced at once");
        writer.append(&json!({"n": 2})).unwrap();
        assert_eq!(writer.commit().unwrap(), 1, "written, not yet synced");
        assert!(writer.sync_due_in().unwrap() > Duration::from_secs(3_000));
        assert_eq!(std::fs::read_to_string(writer.path()).unwrap().lines().count(), 2);
        assert_eq!(writer.sync().unwrap(), 2);
        assert_eq!(writer.sync_due_in(), None);
    }

    #[test]
    fn a_second_writer_is_told_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        let first = JournalWriter::open(&path, JournalOptions::default()).unwrap();
        let error = JournalWriter::open(&path, JournalOptions::default()).unwrap_err();
        let expect = format!("journal `{}` is being written by process {}", path.display(), std::process::id());
        assert_eq!(error.to_string(), expect);
        drop(first);
        JournalWriter::open(&path, JournalOptions::default()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_removed_under_the_writer_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = JournalWriter::open(dir.path().join("j.jsonl"), JournalOptions::default()).unwrap();
        writer.append(&json!({"n": 1})).unwrap();
        writer.commit().unwrap();
        std::fs::remove_file(writer.path()).unwrap();
        writer.append(&json!({"n": 2})).unwrap();
        writer.commit().unwrap_err();
        assert_eq!(writer.acknowledged(), 1);
        let again = writer.append(&json!({"n": 3})).unwrap_err().to_string();
        assert!(again.contains("is closed since an earlier write failed"), "{again}");
    }
}
