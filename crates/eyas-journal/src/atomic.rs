//! Files that are either the old one or the new one, whatever happens.

use crate::fs::{Fs, RealFs};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces `path` by `bytes`: temporary file in the same folder, fsync, rename, fsync of the folder. Readers see the old content or the
/// new, never a part; so does everybody after a power cut.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    write_atomic_in(&RealFs, path.as_ref(), bytes)
}

/// [`write_atomic`] through a given door to the disk.
pub fn write_atomic_in(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path)?;
    let written = fs.create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync()
    });
    if let Err(error) = written.and_then(|()| fs.rename(&temporary, path)) {
        // The first error is the one to tell; a temporary file that stays behind is harmless.
        fs.remove(&temporary).unwrap_or_default();
        return Err(error);
    }
    fs.sync_dir(parent(path))
}

/// The folder a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// A name in the same folder that no other writer uses.
pub(crate) fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` names no file", path.display())))?;
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    Ok(parent(path).join(format!(".{}.tmp-{}-{n}", name.to_string_lossy(), std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_and_leaves_no_temporary_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifest.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        write_atomic(dir.path().join("no/such/folder"), b"x").unwrap_err();
    }
}
