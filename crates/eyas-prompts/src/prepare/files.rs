//! Files that appear whole or not at all, and the place where prompts wait for their order.

use eyas_journal::{Fs, FsFile, RealFs};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A file being written beside its place. Dropped before [`NewFile::publish`], it leaves nothing behind.
pub(super) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Box<dyn FsFile>,
    buffer: Vec<u8>,
    published: bool,
}

impl NewFile {
    /// Begins `path`. A temporary file that a killed process left is overwritten: the name is fixed, since a run has one writer.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let temporary = with_suffix(path, ".tmp");
        let file = RealFs.create(&temporary)?;
        Ok(Self { path: path.to_owned(), temporary, file, buffer: Vec::new(), published: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Puts the file in its place: sync, rename, sync of the folder.
    pub(super) fn publish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.syncer().sync()?;
        RealFs.rename(&self.temporary, &self.path)?;
        self.published = true;
        match self.path.parent() {
            Some(folder) => RealFs.sync_dir(folder),
            None => Ok(()),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.published {
            // Nothing can be done about a failure here, and the next run overwrites the file.
            RealFs.remove(&self.temporary).unwrap_or_default();
        }
    }
}

/// Bytes put aside and read again by their place; removed at the end.
pub(super) struct Spill {
    path: PathBuf,
    out: BufWriter<File>,
    n_bytes: u64,
}

/// Where something lies in a [`Spill`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    offset: u64,
    n_bytes: usize,
}

impl Spill {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let path = with_suffix(path, ".spill");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Self { path, out: BufWriter::with_capacity(BUFFER_BYTES, file), n_bytes: 0 })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<Place> {
        self.out.write_all(bytes)?;
        let place = Place { offset: self.n_bytes, n_bytes: bytes.len() };
        self.n_bytes += bytes.len() as u64;
        Ok(place)
    }

    /// Reads a piece back into `bytes`, which is overwritten.
    pub(super) fn read(&mut self, place: Place, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.out.flush()?;
        bytes.resize(place.n_bytes, 0);
        let file = self.out.get_mut();
        file.seek(SeekFrom::Start(place.offset))?;
        file.read_exact(bytes)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // As above: the next run overwrites it.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
