//! Taking records out of a journal without losing them.

use crate::atomic::{parent, temporary_beside};
use crate::fs::{Fs, FsFile};
use crate::scan::{LineError, for_each_line};
use std::io;
use std::path::Path;

/// What [`set_aside`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAside {
    /// Lines that stayed.
    pub n_kept: u64,
    /// Lines that were moved.
    pub n_moved: u64,
}

/// Moves every line for which `keep` says no to the end of `side_file`. The lines that stay keep their bytes and their order.
///
/// The moved lines are safe in the side file before the journal is replaced in one rename; a crash in between leaves them in both, and
/// the next call moves them again. Call it under the journal's lock, with no writer open.
pub fn set_aside(
    fs: &dyn Fs,
    path: &Path,
    side_file: &Path,
    mut keep: impl FnMut(&[u8]) -> bool,
) -> io::Result<SetAside> {
    let temporary = temporary_beside(path)?;
    let mut done = SetAside::default();
    let mut kept = Batched { file: fs.create(&temporary)?, buffer: Vec::new() };
    let mut moved = Batched { file: fs.open_append(side_file)?.0, buffer: Vec::new() };
    let read = for_each_line(fs, path, |_, line, _| {
        if keep(line) {
            done.n_kept += 1;
            kept.line(line)
        } else {
            done.n_moved += 1;
            moved.line(line)
        }
    });
    match read {
        Ok(()) => {}
        Err(LineError::Io(error) | LineError::Stop(error)) => return Err(error),
    }
    moved.finish()?;
    fs.sync_dir(parent(side_file))?;
    kept.finish()?;
    fs.rename(&temporary, path)?;
    fs.sync_dir(parent(path))?;
    Ok(done)
}

struct Batched {
    file: Box<dyn FsFile>,
    buffer: Vec<u8>,
}

impl Batched {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        if self.buffer.len() > 1 << 20 {
            self.file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealFs;

    #[test]
    fn lines_stay_or_move_and_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (path, side) = (dir.path().join("j.jsonl"), dir.path().join("j.jsonl.old"));
        eyas_testkit::write_file(&path, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
        let done = set_aside(&RealFs, &path, &side, |line| line != b"{\"n\":2}").unwrap();
        assert_eq!(done, SetAside { n_kept: 2, n_moved: 1 });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":3}\n");
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "{\"n\":2}\n");
    }
}
