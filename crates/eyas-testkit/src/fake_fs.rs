//! A disk in memory that fails on demand and forgets what was not synced.

use eyas_journal::{Fs, FsFile, FsLock, FsSync, LockError};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file system in memory behind the journal's door. Clones share the disk.
///
/// Bytes survive [`FakeFs::crash`] when their file was synced after they were written; names survive when their folder was synced after
/// they were made or moved.
#[derive(Debug, Clone, Default)]
pub struct FakeFs {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    files: Vec<Content>,
    /// What a reader sees.
    names: BTreeMap<PathBuf, usize>,
    /// What is left after a power cut.
    durable_names: BTreeMap<PathBuf, usize>,
    locks: BTreeSet<PathBuf>,
    fail_syncs: bool,
    free_bytes: Option<usize>,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

impl FakeFs {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every fsync fails (or works again).
    pub fn fail_syncs(&self, fail: bool) {
        self.disk().fail_syncs = fail;
    }

    /// From now on only `n_bytes` more fit (`None`: endless). The write that does not fit is written in part, as a real one is.
    pub fn set_free_bytes(&self, n_bytes: Option<usize>) {
        self.disk().free_bytes = n_bytes;
    }

    /// The power goes and comes back: unsynced names are gone, and of a file's unsynced bytes only the first `keep_unsynced` are left.
    /// Locks are free. Open handles must not be used any more.
    pub fn crash(&self, keep_unsynced: usize) {
        let mut disk = self.disk();
        for file in &mut disk.files {
            if file.bytes.starts_with(&file.durable) {
                let kept = (file.durable.len() + keep_unsynced).min(file.bytes.len());
                file.bytes.truncate(kept);
            } else {
                file.bytes = file.durable.clone();
            }
            file.durable = file.bytes.clone();
        }
        disk.names = disk.durable_names.clone();
        disk.locks.clear();
        disk.fail_syncs = false;
        disk.free_bytes = None;
    }

    /// What a reader sees in the file.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let disk = self.disk();
        let &at = disk.names.get(path.as_ref())?;
        Some(disk.files[at].bytes.clone())
    }

    /// Puts a durable file there.
    pub fn put(&self, path: impl Into<PathBuf>, bytes: &[u8]) {
        let mut disk = self.disk();
        let path = path.into();
        disk.files.push(Content { bytes: bytes.to_vec(), durable: bytes.to_vec() });
        let at = disk.files.len() - 1;
        disk.names.insert(path.clone(), at);
        disk.durable_names.insert(path, at);
    }

    /// Every name a reader sees.
    pub fn names(&self) -> Vec<PathBuf> {
        self.disk().names.keys().cloned().collect()
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no `{}` on the fake disk", path.display()))
}

impl Fs for FakeFs {
    fn open_append(&self, path: &Path) -> io::Result<(Box<dyn FsFile>, bool)> {
        let mut disk = self.disk();
        let (at, created) = match disk.names.get(path) {
            Some(&at) => (at, false),
            None => {
                disk.files.push(Content::default());
                let at = disk.files.len() - 1;
                disk.names.insert(path.to_owned(), at);
                (at, true)
            }
        };
        Ok((Box::new(FakeFile { fs: self.clone(), at }), created))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut disk = self.disk();
        disk.files.push(Content::default());
        let at = disk.files.len() - 1;
        disk.names.insert(path.to_owned(), at);
        Ok(Box::new(FakeFile { fs: self.clone(), at }))
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read>> {
        let bytes = self.read(path).ok_or_else(|| missing(path))?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Box::new(Cursor::new(bytes[start..].to_vec())))
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(self.read(path).map(|bytes| bytes.len() as u64))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut disk = self.disk();
        let &at = disk.names.get(path).ok_or_else(|| missing(path))?;
        let file = &mut disk.files[at];
        file.bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        file.durable = file.bytes.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let at = disk.names.remove(from).ok_or_else(|| missing(from))?;
        disk.names.insert(to.to_owned(), at);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().names.remove(path).map(drop).ok_or_else(|| missing(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.fail_syncs {
            return Err(io::Error::other("the fake disk fails its fsync"));
        }
        let in_dir = |path: &PathBuf| path.parent().is_some_and(|parent| parent == dir);
        disk.durable_names.retain(|path, _| !in_dir(path));
        let synced: Vec<_> =
            disk.names.iter().filter(|(path, _)| in_dir(path)).map(|(path, &at)| (path.clone(), at)).collect();
        disk.durable_names.extend(synced);
        Ok(())
    }

    fn try_lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FsLock>, LockError> {
        if !self.disk().locks.insert(path.to_owned()) {
            return Err(LockError::Held(holder.to_owned()));
        }
        Ok(Box::new(FakeLock { fs: self.clone(), path: path.to_owned() }))
    }
}

struct FakeFile {
    fs: FakeFs,
    at: usize,
}

impl FsFile for FakeFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.fs.disk();
        let fits = disk.free_bytes.map_or(bytes.len(), |free| free.min(bytes.len()));
        if let Some(free) = &mut disk.free_bytes {
            *free -= fits;
        }
        disk.files[self.at].bytes.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the fake disk is full"));
        }
        Ok(())
    }

    fn syncer(&self) -> Box<dyn FsSync> {
        Box::new(Self { fs: self.fs.clone(), at: self.at })
    }
}

impl FsSync for FakeFile {
    fn sync(&self) -> io::Result<()> {
        let mut disk = self.fs.disk();
        if disk.fail_syncs {
            return Err(io::Error::other("the fake disk fails its fsync"));
        }
        let file = &mut disk.files[self.at];
        file.durable = file.bytes.clone();
        Ok(())
    }
}

struct FakeLock {
    fs: FakeFs,
    path: PathBuf,
}

impl FsLock for FakeLock {}

impl Drop for FakeLock {
    fn drop(&mut self) {
        self.fs.disk().locks.remove(&self.path);
    }
}
