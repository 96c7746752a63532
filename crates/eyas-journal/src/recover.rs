//! What the end of a journal looks like after a crash, and how it is set right before the next append.

use crate::atomic::write_atomic_in;
use crate::fs::Fs;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What opening had to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The torn tail that was cut off, if there was one.
    pub torn: Option<Torn>,
    /// The last record was whole but had no newline; it was added.
    pub completed_newline: bool,
    /// Length of the journal after recovery, bytes.
    pub len: u64,
}

/// A torn tail. Its bytes are in `side_file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// Where the last whole record ends.
    pub offset: u64,
    /// How many bytes followed it.
    pub n_bytes: u64,
    /// Where they were moved.
    pub side_file: PathBuf,
}

/// A tail could not be set right. Nothing was cut off unless its copy is safe.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// Reading the journal failed.
    #[error("cannot read the end of journal `{path}`")]
    Read {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The torn bytes could not be copied or cut.
    #[error(
        "journal `{path}` is torn at byte {offset}: {n_bytes} bytes follow the last whole record, and they cannot be moved aside"
    )]
    Move {
        /// The journal.
        path: PathBuf,
        /// Where the last whole record ends.
        offset: u64,
        /// How many bytes follow it.
        n_bytes: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Where the whole records end, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// End of the last whole record, its newline included when it has one.
    pub(crate) whole_end: u64,
    /// The last whole record has no newline.
    pub(crate) needs_newline: bool,
    /// Length of the file.
    pub(crate) len: u64,
}

/// Looks at the end of the file; writes nothing. `None` when there is no file.
pub(crate) fn inspect_tail(fs: &dyn Fs, path: &Path) -> io::Result<Option<Tail>> {
    let Some(len) = fs.len(path)? else { return Ok(None) };
    let mut window = 64 * 1024;
    loop {
        let start = len.saturating_sub(window);
        let mut bytes = Vec::new();
        fs.read_from(path, start)?.take(len - start).read_to_end(&mut bytes)?;
        if let Some(tail) = judge(&bytes, start, len) {
            return Ok(Some(tail));
        }
        window *= 4;
    }
}

/// Judges the last line of `bytes`, which begin at `start`. `None` when the line begins before `start`.
fn judge(bytes: &[u8], start: u64, len: u64) -> Option<Tail> {
    let at = |n: usize| start + n as u64;
    let solid = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    if solid == 0 {
        return (start == 0).then_some(Tail { whole_end: 0, needs_newline: false, len });
    }
    let has_newline = bytes[solid - 1] == b'\n';
    let line_end = if has_newline { solid - 1 } else { solid };
    let line_start = match memchr::memrchr(b'\n', &bytes[..line_end]) {
        Some(newline) => newline + 1,
        None if start == 0 => 0,
        None => return None,
    };
    let line = &bytes[line_start..line_end];
    let whole = is_record(line) || (has_newline && is_blank(line));
    Some(if whole {
        Tail { whole_end: at(solid), needs_newline: !has_newline, len }
    } else {
        Tail { whole_end: at(line_start), needs_newline: false, len }
    })
}

/// Sets the end of the journal right; touches nothing when nothing is wrong.
pub(crate) fn recover(fs: &dyn Fs, path: &Path) -> Result<Recovery, RecoverError> {
    let read = |source| RecoverError::Read { path: path.to_owned(), source };
    let Some(tail) = inspect_tail(fs, path).map_err(read)? else { return Ok(Recovery::default()) };
    let mut recovery = Recovery { torn: None, completed_newline: false, len: tail.whole_end };
    let n_bytes = tail.len - tail.whole_end;
    let moved = |source| RecoverError::Move { path: path.to_owned(), offset: tail.whole_end, n_bytes, source };
    if n_bytes > 0 {
        let mut bytes = Vec::new();
        fs.read_from(path, tail.whole_end).and_then(|file| file.take(n_bytes).read_to_end(&mut bytes)).map_err(read)?;
        let side_file = keep_aside(fs, path, tail.whole_end, &bytes).map_err(moved)?;
        fs.truncate(path, tail.whole_end).map_err(moved)?;
        recovery.torn = Some(Torn { offset: tail.whole_end, n_bytes, side_file });
    }
    if tail.needs_newline {
        let (mut file, _) = fs.open_append(path).map_err(moved)?;
        file.write_all(b"\n").and_then(|()| file.sync()).map_err(moved)?;
        recovery.completed_newline = true;
        recovery.len += 1;
    }
    Ok(recovery)
}

/// Copies torn bytes to `NAME.torn-OFFSET`, or to a numbered name beside it when that holds something else.
fn keep_aside(fs: &dyn Fs, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for n in 1_u32.. {
        let suffix = if n == 1 { String::new() } else { format!("-{n}") };
        let side_file = path.with_file_name(format!("{name}.torn-{offset}{suffix}"));
        match fs.len(&side_file)? {
            None => {
                write_atomic_in(fs, &side_file, bytes)?;
                return Ok(side_file);
            }
            // An earlier recovery was cut off between copying and cutting: the copy is already there.
            Some(len) if len == bytes.len() as u64 => {
                let mut there = Vec::new();
                fs.read_from(&side_file, 0)?.read_to_end(&mut there)?;
                if there == bytes {
                    return Ok(side_file);
                }
            }
            Some(_) => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for the torn bytes"))
}

/// Nothing but white space.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Whether the line is one whole JSON object.
pub(crate) fn is_record(line: &[u8]) -> bool {
    struct AnyObject;
    impl<'de> Visitor<'de> for AnyObject {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(())
        }
    }
    let mut json = serde_json::Deserializer::from_slice(line);
    std::str::from_utf8(line).is_ok() && json.deserialize_map(AnyObject).is_ok() && json.end().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealFs;

    /// `content`, recovered, leaves `kept`, and `torn` in a side file.
    #[track_caller]
    fn check(content: &[u8], kept: &[u8], torn: Option<&[u8]>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        eyas_testkit::write_file(&path, content);
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        let recovery = recover(&RealFs, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), kept);
        assert_eq!(recovery.len, kept.len() as u64);
        match (torn, &recovery.torn) {
            (Some(torn), Some(found)) => {
                assert_eq!(std::fs::read(&found.side_file).unwrap(), torn);
                assert_eq!(found.n_bytes, torn.len() as u64);
                assert_eq!(found.side_file, dir.path().join(format!("j.jsonl.torn-{}", found.offset)));
            }
            (None, None) => {}
            (expect, got) => panic!("expected torn {expect:?}, got {got:?}"),
        }
        if content == kept {
            assert_eq!(
                std::fs::metadata(&path).unwrap().modified().unwrap(),
                before,
                "an intact journal is not touched"
            );
        }
        assert_eq!(recover(&RealFs, &path).unwrap(), Recovery { len: kept.len() as u64, ..Recovery::default() });
    }

    #[test]
    fn tails() {
        check(b"", b"", None);
        check(b"{}\n{\"a\":1}\n", b"{}\n{\"a\":1}\n", None);
        check(b"{\"a\":1}\n{\"a\":", b"{\"a\":1}\n", Some(b"{\"a\":"));
        check(b"{\"a\":", b"", Some(b"{\"a\":"));
        check(b"{\"a\":1}\n{\"a\":2}", b"{\"a\":1}\n{\"a\":2}\n", None);
        check(b"{\"a\":1}\n\0\0\0", b"{\"a\":1}\n", Some(b"\0\0\0"));
        check(b"{\"a\":1}\n{\"a\":2}\0\0", b"{\"a\":1}\n{\"a\":2}\n", Some(b"\0\0"));
        check(b"{\"a\":1}\n{\"a\0\0", b"{\"a\":1}\n", Some(b"{\"a\0\0"));
        check(b"\0\0\0\0", b"", Some(b"\0\0\0\0"));
        check(b"{\"a\":1}\n\0\0{\"b\":2}\n", b"{\"a\":1}\n", Some(b"\0\0{\"b\":2}\n"));
        check(b"{\"a\":1}\n7\n", b"{\"a\":1}\n", Some(b"7\n"));
        check(b"{\"a\":1}\n\xff\xfe", b"{\"a\":1}\n", Some(b"\xff\xfe"));
        check(b"{\"a\":1}\n\n", b"{\"a\":1}\n\n", None);
    }

    #[test]
    fn a_last_line_longer_than_the_window_is_found_whole() {
        let line = format!("{{\"a\":\"{}\"}}\n", "x".repeat(400_000));
        check(line.as_bytes(), line.as_bytes(), None);
        let two = format!("{line}{}", &line[..line.len() - 9]);
        check(two.as_bytes(), line.as_bytes(), Some(&line.as_bytes()[..line.len() - 9]));
    }
}
