//! The one door to the disk, so that tests can stand in for it: drop unsynced bytes, fail an fsync, fill up, lose a rename.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// What the journal needs of a file system.
pub trait Fs: Send + Sync {
    /// Opens for appending; creates the file when it is not there. The flag says whether it was created.
    fn open_append(&self, path: &Path) -> io::Result<(Box<dyn FsFile>, bool)>;
    /// Creates or empties a file for writing.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Opens for reading from `offset`.
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read>>;
    /// Length in bytes; `None` when there is no such file.
    fn len(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Cuts the file to `len` bytes and syncs it.
    fn truncate(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Renames over whatever `to` is.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations and renames in `dir` survive a power cut.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock behind `path` (created when missing), writing `holder` into it.
    fn try_lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FsLock>, LockError>;
}

/// A file opened for writing.
pub trait FsFile: Send {
    /// Writes all bytes at the end. After an error an unknown part of them is in the file.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Something that syncs this file from another thread while more is written.
    fn syncer(&self) -> Box<dyn FsSync>;
    /// [`FsSync::sync`], here and now.
    fn sync(&self) -> io::Result<()> {
        self.syncer().sync()
    }
}

/// Syncs a file that somebody else is writing.
pub trait FsSync: Send {
    /// Returns once everything written before the call is on the disk. Fails when the file has been removed meanwhile: its bytes would
    /// go with it.
    fn sync(&self) -> io::Result<()>;
}

/// A held lock; dropping it lets go.
pub trait FsLock: Send {}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Somebody has it; what stands in the lock file (a process id, when eyas wrote it).
    Held(String),
    /// The lock file cannot be opened, or the file system has no locks.
    Io(io::Error),
}

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl Fs for RealFs {
    fn open_append(&self, path: &Path) -> io::Result<(Box<dyn FsFile>, bool)> {
        match OpenOptions::new().append(true).open(path) {
            Ok(file) => Ok((RealFile::boxed(file), false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = OpenOptions::new().append(true).create(true).open(path)?;
                Ok((RealFile::boxed(file), true))
            }
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(RealFile::boxed(File::create(path)?))
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read>> {
        let mut file = File::open(path)?;
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Box::new(file))
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Only Unix lets a directory be opened and synced; elsewhere a rename is as durable as the file system makes it.
        if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
    }

    fn try_lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FsLock>, LockError> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(LockError::Io)?;
                file.write_all(holder.as_bytes()).map_err(LockError::Io)?;
                Ok(Box::new(RealLock { file }))
            }
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The holder's name is a courtesy of the message; without it the lock is just as held.
                if file.read_to_string(&mut text).is_err() {
                    text.clear();
                }
                Err(LockError::Held(text.trim().to_owned()))
            }
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }
}

struct RealFile(Arc<File>);

impl RealFile {
    fn boxed(file: File) -> Box<dyn FsFile> {
        Box::new(Self(Arc::new(file)))
    }
}

impl FsFile for RealFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.0).write_all(bytes)
    }

    fn syncer(&self) -> Box<dyn FsSync> {
        Box::new(RealSync(Arc::clone(&self.0)))
    }
}

struct RealSync(Arc<File>);

impl FsSync for RealSync {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()?;
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&self.0.metadata()?) == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was being written"));
        }
        Ok(())
    }
}

struct RealLock {
    file: File,
}

impl FsLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being started at this moment has a copy of the handle until it is running.
        self.file.unlock().unwrap_or_default();
    }
}
