//! Reading a journal from end to end, fast, with borrowed records; safe on a file that is being written.

use crate::fs::{Fs, RealFs};
use crate::recover::{is_blank, is_record};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// What is read of each line. A view that borrows from the line and names only the fields it needs is the fast way:
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Head<'a> {
///     sample_id: std::borrow::Cow<'a, str>,
/// }
/// struct Heads;
/// impl eyas_journal::Record for Heads {
///     type Borrowed<'a> = Head<'a>;
/// }
/// ```
pub trait Record {
    /// The view of one line.
    type Borrowed<'a>: Deserialize<'a>;
}

/// Reads each line as an owned `T`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owned<T>(PhantomData<T>);

impl<T: DeserializeOwned> Record for Owned<T> {
    type Borrowed<'a> = T;
}

/// What to do with a malformed line that is not the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMalformed {
    /// Stop with an error that names file, line and offset.
    #[default]
    Refuse,
    /// Leave it out, count it, report it. The file itself is not changed.
    SetAside,
}

/// How to scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanOptions {
    /// What to do with a malformed line that is not the last.
    pub on_malformed: OnMalformed,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, the newline not included.
    pub n_bytes: usize,
}

/// A line that is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Where it stands.
    pub position: Position,
    /// What is wrong with it.
    pub message: String,
}

/// What a scan saw. `lines read = n_records + n_malformed`; blank lines are not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanReport {
    /// Whole records handed out.
    pub n_records: u64,
    /// Malformed lines left out ([`OnMalformed::SetAside`]).
    pub n_malformed: u64,
    /// The first of them, at most 20.
    pub malformed: Vec<Malformed>,
    /// An unfinished last line: torn by a crash, or just being written.
    pub unfinished: Option<Position>,
    /// Bytes read.
    pub n_bytes: u64,
}

/// A scan stopped.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Reading failed.
    #[error("cannot read journal `{path}`")]
    Read {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line in the middle is no record.
    #[error("journal `{path}` line {} (byte {}) is no record: {}", .malformed.position.line, .malformed.position.offset, .malformed.message)]
    Malformed {
        /// The journal.
        path: PathBuf,
        /// The line.
        malformed: Malformed,
    },
}

/// Calls `each` with every whole record, in file order. A missing file has no records. Nothing is written, no lock is taken.
pub fn scan<R: Record>(
    path: impl AsRef<Path>,
    options: ScanOptions,
    each: impl FnMut(Position, R::Borrowed<'_>),
) -> Result<ScanReport, ScanError> {
    scan_in::<R>(&RealFs, path.as_ref(), options, each)
}

/// [`scan`] through a given door to the disk.
pub fn scan_in<R: Record>(
    fs: &dyn Fs,
    path: &Path,
    options: ScanOptions,
    mut each: impl FnMut(Position, R::Borrowed<'_>),
) -> Result<ScanReport, ScanError> {
    let mut report = ScanReport::default();
    // A malformed line is only judged when the next one shows that it is not the last.
    let mut doubtful: Option<Malformed> = None;
    let read = for_each_line(fs, path, |position, line, has_newline| {
        if let Some(malformed) = doubtful.take() {
            set_aside_or_refuse(path, options, malformed, &mut report)?;
        }
        report.n_bytes = position.offset + position.n_bytes as u64 + u64::from(has_newline);
        if is_blank(line) {
            return Ok(());
        }
        match serde_json::from_slice::<R::Borrowed<'_>>(line) {
            Ok(record) => {
                report.n_records += 1;
                each(position, record);
            }
            // An object without the expected fields is not torn: it is another kind of record.
            Err(error) if has_newline && is_record(line) => {
                set_aside_or_refuse(path, options, Malformed { position, message: error.to_string() }, &mut report)?;
            }
            Err(error) => doubtful = Some(Malformed { position, message: error.to_string() }),
        }
        Ok(())
    });
    report.unfinished = doubtful.map(|malformed| malformed.position);
    match read {
        Ok(()) => Ok(report),
        Err(LineError::Io(source)) => Err(ScanError::Read { path: path.to_owned(), source }),
        Err(LineError::Stop(error)) => Err(error),
    }
}

fn set_aside_or_refuse(
    path: &Path,
    options: ScanOptions,
    malformed: Malformed,
    report: &mut ScanReport,
) -> Result<(), ScanError> {
    match options.on_malformed {
        OnMalformed::Refuse => Err(ScanError::Malformed { path: path.to_owned(), malformed }),
        OnMalformed::SetAside => {
            report.n_malformed += 1;
            if report.malformed.len() < 20 {
                report.malformed.push(malformed);
            }
            Ok(())
        }
    }
}

/// Why reading lines stopped.
pub(crate) enum LineError<E> {
    /// The file could not be read.
    Io(io::Error),
    /// The callback said so.
    Stop(E),
}

/// Calls `each(position, line, has_newline)` for every line. A missing file has none.
pub(crate) fn for_each_line<E>(
    fs: &dyn Fs,
    path: &Path,
    mut each: impl FnMut(Position, &[u8], bool) -> Result<(), E>,
) -> Result<(), LineError<E>> {
    let mut file = match fs.read_from(path, 0) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LineError::Io(error)),
    };
    let mut buffer = vec![0_u8; 256 * 1024];
    let (mut start, mut end, mut searched) = (0, 0, 0);
    let mut position = Position { line: 1, offset: 0, n_bytes: 0 };
    loop {
        if let Some(newline) = memchr::memchr(b'\n', &buffer[searched..end]) {
            let line_end = searched + newline;
            position.n_bytes = line_end - start;
            each(position, &buffer[start..line_end], true).map_err(LineError::Stop)?;
            position.line += 1;
            position.offset += position.n_bytes as u64 + 1;
            start = line_end + 1;
            searched = start;
            continue;
        }
        searched = end;
        if start > 0 {
            buffer.copy_within(start..end, 0);
            end -= start;
            searched -= start;
            start = 0;
        }
        if end == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        match file.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(n) => end += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(LineError::Io(error)),
        }
    }
    if start < end {
        position.n_bytes = end - start;
        each(position, &buffer[start..end], false).map_err(LineError::Stop)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    struct Heads;
    impl Record for Heads {
        type Borrowed<'a> = Head<'a>;
    }

    fn ids(content: &[u8], on_malformed: OnMalformed) -> (Vec<String>, Result<ScanReport, ScanError>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        eyas_testkit::write_file(&path, content);
        let mut ids = Vec::new();
        let report = scan::<Heads>(&path, ScanOptions { on_malformed }, |_, head| ids.push(head.id.into_owned()));
        (ids, report)
    }

    #[test]
    fn a_missing_file_is_empty() {
        let report = scan::<Heads>("/nonexistent/j.jsonl", ScanOptions::default(), |_, _| {}).unwrap();
        assert_eq!(report, ScanReport::default());
    }

    #[test]
    fn parse_01_unicode_line_separators_do_not_end_a_record() {
        let (ids, report) =
            ids("{\"id\":\"a\u{2028}\u{2029}\u{85}\"}\n{\"id\":\"b\\u000b\"}\n".as_bytes(), OnMalformed::Refuse);
        assert_eq!(ids, ["a\u{2028}\u{2029}\u{85}", "b\u{b}"]);
        assert_eq!(report.unwrap().n_records, 2);
    }

    #[test]
    fn an_unfinished_last_line_is_reported_and_not_an_error() {
        let (ids, report) = ids(b"{\"id\":\"a\"}\n\n{\"id\":\"b\"}\n{\"id\":\"c", OnMalformed::Refuse);
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(report.unwrap().unfinished, Some(Position { line: 4, offset: 23, n_bytes: 8 }));
    }

    #[test]
    fn a_malformed_line_in_the_middle_is_refused_or_counted() {
        let content = b"{\"id\":\"a\"}\n{\"id\":\"b\n{\"other\":1}\n{\"id\":\"c\"}\n";
        let (seen, report) = ids(content, OnMalformed::Refuse);
        assert_eq!(seen, ["a"]);
        let message = report.unwrap_err().to_string();
        assert!(message.contains("line 2 (byte 11) is no record"), "{message}");

        let (seen, report) = ids(content, OnMalformed::SetAside);
        let report = report.unwrap();
        assert_eq!(seen, ["a", "c"]);
        assert_eq!((report.n_records, report.n_malformed), (2, 2));
        assert_eq!(report.malformed[1].position.line, 3);
    }

    #[test]
    fn lines_longer_than_the_buffer() {
        let long = "x".repeat(600_000);
        let content = format!("{{\"id\":\"{long}\"}}\n{{\"id\":\"b\"}}\n");
        let (ids, _) = ids(content.as_bytes(), OnMalformed::Refuse);
        assert_eq!(ids, [long.as_str(), "b"]);
    }
}
