//! The beginning of a text file, by which JSON lines and JSON documents are told apart.

use super::document::ValueShape;
use super::open::OpenError;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

/// How many bytes are looked at, at most.
const HEAD_BYTES: usize = 4 << 20;

/// The beginning of a text file: at least its first line that is not blank and a byte of what follows, if that fits.
pub(super) struct Head {
    bytes: Vec<u8>,
    /// The error that reading ran into.
    failed: Option<io::Error>,
    /// Whether `bytes` is the whole file.
    is_all: bool,
    /// Where the first line that is not blank begins and ends (its line feed not included).
    first_line: (usize, usize),
    /// Which line that is, from 1.
    first_line_number: u64,
    /// The first visible byte behind that line.
    next_visible: Option<u8>,
}

impl Head {
    pub(super) fn read(input: &mut dyn BufRead) -> Self {
        let mut head = Self {
            bytes: Vec::new(),
            failed: None,
            is_all: false,
            first_line: (0, 0),
            first_line_number: 1,
            next_visible: None,
        };
        while head.bytes.len() < HEAD_BYTES {
            match input.fill_buf() {
                Ok([]) => {
                    head.is_all = true;
                    break;
                }
                Ok(chunk) => {
                    let n_bytes = chunk.len();
                    head.bytes.extend_from_slice(chunk);
                    input.consume(n_bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    head.failed = Some(error);
                    break;
                }
            }
            head.locate_lines();
            if head.next_visible.is_some() {
                break;
            }
        }
        head.locate_lines();
        head
    }

    fn locate_lines(&mut self) {
        let skip = if self.bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let visible = |from: usize| self.bytes[from..].iter().position(|byte| !byte.is_ascii_whitespace());
        let Some(start) = visible(skip).map(|at| skip + at) else { return };
        let end = memchr::memchr(b'\n', &self.bytes[start..]).map_or(self.bytes.len(), |at| start + at);
        let next_visible = visible(end).and_then(|at| self.bytes.get(end + at).copied());
        self.first_line_number = memchr::memchr_iter(b'\n', &self.bytes[..start]).count() as u64 + 1;
        self.first_line = (start, end);
        self.next_visible = next_visible;
    }

    pub(super) fn check_text(&self, path: &Path) -> Result<(), OpenError> {
        if matches!(self.bytes.get(..2), Some([0xff, 0xfe] | [0xfe, 0xff])) {
            return Err(OpenError::Utf16 { path: path.to_owned() });
        }
        match &self.failed {
            Some(error) if self.bytes.is_empty() => Err(OpenError::BadCompression {
                path: path.to_owned(),
                source: io::Error::new(error.kind(), error.to_string()),
            }),
            _ => Ok(()),
        }
    }

    fn first_line(&self) -> &[u8] {
        self.bytes.get(self.first_line.0..self.first_line.1).unwrap_or_default()
    }

    pub(super) fn first_visible(&self) -> Option<u8> {
        self.first_line().first().copied()
    }

    /// Whether the first line is one whole value in outline, with nothing behind it on the line.
    fn first_line_is_whole(&self) -> bool {
        let line = self.first_line().trim_ascii_end();
        ValueShape::default().find_end(line) == Some(line.len())
    }

    /// Whether the file is a single whole line.
    pub(super) fn is_single_line(&self) -> bool {
        self.first_line_is_whole() && self.next_visible.is_none()
    }

    /// Whether objects follow each other line by line.
    pub(super) fn looks_like_lines(&self) -> bool {
        self.first_visible() == Some(b'{')
            && (self.next_visible == Some(b'{') || (self.first_line_is_whole() && self.next_visible.is_some()))
    }

    /// Refuses documents that carry the name of JSON lines.
    pub(super) fn check_lines(&self, path: &Path) -> Result<(), OpenError> {
        let line = self.first_line_number;
        let path = || path.to_owned();
        match self.first_visible() {
            Some(b'[') if !self.first_line_is_whole() || self.next_visible.is_none() => {
                Err(OpenError::ArrayNotLines { path: path(), line })
            }
            Some(b'{') if self.next_visible.is_some_and(|byte| byte != b'{') && !self.first_line_is_whole() => {
                let last = self.first_line().trim_ascii_end().last().copied();
                match last {
                    Some(b'{' | b'[' | b',' | b':') => Err(OpenError::ObjectNotLines { path: path(), line }),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The head again, then the error it ran into or the rest of the file.
pub(super) struct Replay {
    head: Vec<u8>,
    at: usize,
    failed: Option<io::Error>,
    is_all: bool,
    rest: Box<dyn BufRead>,
}

impl Replay {
    pub(super) fn new(head: Head, rest: Box<dyn BufRead>) -> Self {
        Self { head: head.bytes, at: 0, failed: head.failed, is_all: head.is_all, rest }
    }
}

impl Read for Replay {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.fill_buf()?.read(out)?;
        self.consume(n_bytes);
        Ok(n_bytes)
    }
}

impl BufRead for Replay {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at < self.head.len() {
            return Ok(&self.head[self.at..]);
        }
        if let Some(error) = &self.failed {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        if self.is_all {
            return Ok(&[]);
        }
        self.rest.fill_buf()
    }

    fn consume(&mut self, n_bytes: usize) {
        if self.at < self.head.len() {
            self.at += n_bytes;
            if self.at >= self.head.len() {
                // Up to 4 MiB that are not needed again.
                self.head = Vec::new();
                self.at = 0;
            }
        } else {
            self.rest.consume(n_bytes);
        }
    }
}
