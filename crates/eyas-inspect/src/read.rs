//! Reads one file, plain or compressed, to its end as it was when the look began, and notices what happens to it meanwhile.

use std::{
    fs::{File, Metadata},
    io::{BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use crate::{
    array::{ArraySplit, layout_of},
    document::{Compression, FileEvent, Layout},
    input::InputFile,
    inspect::InspectError,
    lines::{LineScan, Scanned},
    locations::Locations,
    plan::InspectPlan,
};

/// A file that changes under the look is read again, at most so often.
const MAX_TRIES: u32 = 3;
/// Bytes at the beginning and before the end that are compared after the look, to notice that a file was written anew.
const PROBE: usize = 64;

/// What one file came to.
pub(crate) struct FileRead {
    pub(crate) scanned: Scanned,
    pub(crate) layout: Layout,
    pub(crate) compression: Compression,
    pub(crate) bytes: u64,
    pub(crate) events: Vec<FileEvent>,
}

/// Reads `input`, again from its start when it shrank or was replaced meanwhile.
pub(crate) fn read_file(
    plan: &InspectPlan,
    locations: &Locations,
    input: &InputFile,
) -> Result<FileRead, InspectError> {
    let mut earlier = Vec::new();
    let mut tries = 1;
    loop {
        let (mut read, change) = read_once(plan, locations, input)?;
        match change {
            Change::None => {}
            Change::Grew(by_bytes) => read.events.push(FileEvent::Grew { by_bytes }),
            Change::Shrank | Change::Replaced => {
                let event = if matches!(change, Change::Shrank) { FileEvent::Shrank } else { FileEvent::Replaced };
                if !earlier.contains(&event) {
                    earlier.push(event);
                }
                if tries < MAX_TRIES {
                    tries += 1;
                    continue;
                }
                earlier.push(FileEvent::Unsettled { tries });
            }
        }
        earlier.append(&mut read.events);
        read.events = earlier;
        return Ok(read);
    }
}

enum Change {
    None,
    Grew(u64),
    Shrank,
    Replaced,
}

fn read_once(plan: &InspectPlan, locations: &Locations, input: &InputFile) -> Result<(FileRead, Change), InspectError> {
    let path = &input.path;
    let open = |source| InspectError::Open { path: path.clone(), source };
    let mut file = File::open(path).map_err(open)?;
    let metadata = file.metadata().map_err(open)?;
    let before = Snapshot::take(&mut file, &metadata).map_err(open)?;
    let compression = compression_of(&before.head);
    let mut events = Vec::new();
    let n_bytes = if metadata.is_file() { metadata.len() } else { u64::MAX };
    let mut stream: Box<dyn Read> = match compression {
        Compression::None => Box::new((&mut file).take(n_bytes)),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new((&mut file).take(n_bytes)))),
        Compression::Zstd => Box::new(zstd::Decoder::new((&mut file).take(n_bytes)).map_err(open)?),
    };
    let mut rows = LineScan::new(plan, locations, &input.dataset);
    let layout = match not_text(&before.head) {
        Some(looks_like) => {
            events.push(FileEvent::NotText { looks_like: looks_like.to_owned() });
            Layout::JsonLines
        }
        None => match pump(plan, &mut *stream, &mut rows) {
            Pumped::All(layout) => layout,
            Pumped::Until(layout, at_text_byte, source) => {
                if compression == Compression::None {
                    return Err(InspectError::Read { path: path.clone(), at_byte: at_text_byte, source });
                }
                events.push(match source.kind() {
                    std::io::ErrorKind::UnexpectedEof => FileEvent::CompressedStreamCut,
                    _ => FileEvent::CompressedStreamDamaged { at_text_byte, message: source.to_string() },
                });
                layout
            }
        },
    };
    drop(stream);
    let scanned = rows.finish();
    if scanned.no_final_newline {
        events.push(FileEvent::NoFinalNewline);
    }
    let was_read = compression == Compression::None && not_text(&before.head).is_none();
    let change = before.compare(path, &metadata, was_read.then_some(scanned.text_bytes));
    let bytes = if metadata.is_file() { metadata.len() } else { scanned.text_bytes };
    Ok((FileRead { scanned, layout, compression, bytes, events }, change))
}

enum Pumped {
    All(Layout),
    /// Reading failed at this byte of the text.
    Until(Layout, u64, std::io::Error),
}

/// Moves everything from `stream` into `rows`.
fn pump(plan: &InspectPlan, stream: &mut dyn Read, rows: &mut LineScan<'_>) -> Pumped {
    let mut n_text_bytes = 0;
    let mut next = |space: &mut [u8]| loop {
        match stream.read(space) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    };
    // The beginning decides on the layout, so it is collected before anything is scanned.
    let mut beginning = 0;
    let mut failed = None;
    {
        let space = rows.space();
        while beginning < space.len() {
            match next(&mut space[beginning..]) {
                Ok(0) => break,
                Ok(n) => beginning += n,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
    }
    let marked = rows.space()[..beginning].starts_with(b"\xef\xbb\xbf");
    if marked {
        rows.space().copy_within(3..beginning, 0);
        beginning -= 3;
        rows.byte_order_mark();
    }
    let layout = layout_of(&rows.space()[..beginning]);
    let mut split =
        (layout != Layout::JsonLines).then(|| ArraySplit::new(layout, plan.max_line_bytes.min(crate::lines::MAX_LINE)));
    let mut chunk = Vec::new();
    let mut n = beginning;
    loop {
        n_text_bytes += n as u64;
        match &mut split {
            None => rows.filled(n),
            Some(split) => {
                chunk.clear();
                chunk.extend_from_slice(&rows.space()[..n]);
                split.push(&chunk, rows);
            }
        }
        if failed.is_some() {
            break;
        }
        match next(rows.space()) {
            Ok(0) => break,
            Ok(read) => n = read,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if let Some(split) = &mut split {
        split.finish(rows);
    }
    match failed {
        None => Pumped::All(layout),
        Some(error) => Pumped::Until(layout, n_text_bytes, error),
    }
}

/// What a file looked like when the look began.
struct Snapshot {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Snapshot {
    fn take(file: &mut File, metadata: &Metadata) -> std::io::Result<Self> {
        if !metadata.is_file() {
            return Ok(Self { head: Vec::new(), tail: Vec::new() });
        }
        let head = probe(file, 0)?;
        let tail = probe(file, metadata.len().saturating_sub(PROBE as u64))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { head, tail })
    }

    /// What has changed since. `n_read`: bytes that were read of a plain file.
    fn compare(&self, path: &Path, before: &Metadata, n_read: Option<u64>) -> Change {
        if !before.is_file() {
            return Change::None;
        }
        let Ok(mut file) = File::open(path) else { return Change::Replaced };
        let Ok(after) = file.metadata() else { return Change::Replaced };
        if !same_file(before, &after) {
            return Change::Replaced;
        }
        if after.len() < before.len() || n_read.is_some_and(|n| n < before.len()) {
            return Change::Shrank;
        }
        let tail_at = before.len().saturating_sub(PROBE as u64);
        let again = (probe(&mut file, 0), probe(&mut file, tail_at));
        let (Ok(head), Ok(mut tail)) = again else { return Change::Replaced };
        tail.truncate(self.tail.len());
        if !head.starts_with(&self.head) || tail != self.tail {
            return Change::Replaced;
        }
        match after.len() - before.len() {
            0 => Change::None,
            by_bytes => Change::Grew(by_bytes),
        }
    }
}

fn probe(file: &mut File, at: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(PROBE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(unix)]
fn same_file(before: &Metadata, after: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (before.dev(), before.ino()) == (after.dev(), after.ino())
}

#[cfg(not(unix))]
fn same_file(_before: &Metadata, _after: &Metadata) -> bool {
    true
}

fn compression_of(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

/// What a file that is no JSON text looks like.
fn not_text(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        [b'P', b'A', b'R', b'1', ..] => Some("Parquet"),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some("Arrow"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        _ => None,
    }
}
