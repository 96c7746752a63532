//! One file as a stream of rows.

use super::columns::Columns;
use super::document::Document;
use super::fault::{BadRow, Repair, RowFault};
use super::json;
use super::lines::Lines;
use super::open::{self, OpenError};
use serde_json::{Map, Value};
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a file holds, once decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object a line.
    JsonLines,
    /// One JSON document: a list of rows, or an object with such a list in one of its fields.
    Json,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// All formats, by the word an option takes.
    pub const ALL: [Self; 3] = [Self::JsonLines, Self::Json, Self::Parquet];

    /// The word an option takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            Self::Json => "json",
            Self::Parquet => "parquet",
        }
    }

    /// The format an option's word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// gzip, of one or several members.
    Gzip,
    /// zstd, of one or several frames.
    Zstd,
}

/// What becomes of half a surrogate pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surrogates {
    /// The row is refused.
    #[default]
    Reject,
    /// It becomes U+FFFD, and the row is marked.
    Repair,
}

/// How files are read. The default settles everything from name and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceOptions {
    /// The format, where name and content should not decide.
    pub format: Option<Format>,
    /// The field of a JSON document's root object that holds the rows.
    pub field: Option<String>,
    /// What becomes of half a surrogate pair.
    pub surrogates: Surrogates,
    /// Longest row in bytes, decompressed; longer ones are reported and skipped without being held. Default 1 GiB.
    pub max_row_bytes: usize,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { format: None, field: None, surrogates: Surrogates::Reject, max_row_bytes: 1 << 30 }
    }
}

/// How a file turned out to be laid out. Displays as `JSON lines, gzip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Format.
    pub format: Format,
    /// Compression.
    pub compression: Compression,
    /// The field of the root object that holds the rows.
    pub field: Option<String>,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.format {
            Format::JsonLines => "JSON lines",
            Format::Json => "JSON list",
            Format::Parquet => "Parquet",
        })?;
        if let Some(field) = &self.field {
            write!(f, " in field `{field}`")?;
        }
        match self.compression {
            Compression::Plain => Ok(()),
            Compression::Gzip => f.write_str(", gzip"),
            Compression::Zstd => f.write_str(", zstd"),
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct RawRow {
    /// Line (JSON lines), element (JSON) or row (Parquet), from 1. Blank lines count as lines.
    pub row: u64,
    /// The row's object, keys in the order of the file, or why it is not taken.
    pub value: Result<Map<String, Value>, BadRow>,
    /// What was mended.
    pub repairs: Vec<Repair>,
}

/// What is known at the end of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadEnd {
    /// Rows handed out, good and bad.
    pub n_rows: u64,
    /// Lines with nothing but white space (JSON lines).
    pub n_blank_lines: u64,
    /// Byte order marks skipped.
    pub n_byte_order_marks: u64,
    /// Why the file could not be read to its end; the rows before are good.
    pub broken: Option<String>,
}

/// A file as a stream of rows.
pub struct RowReader {
    rows: Rows,
    layout: Layout,
    n_bytes: u64,
    n_bytes_read: Arc<AtomicU64>,
}

pub(super) enum Rows {
    Lines(Lines<Box<dyn BufRead>>),
    Document(Document<Box<dyn BufRead>>),
    Columns(Columns),
}

impl RowReader {
    /// Opens a file and settles its layout. What is wrong with the file as a whole is said here, before a row is read.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, OpenError> {
        open::open(path, options)
    }

    pub(super) fn new(rows: Rows, layout: Layout, n_bytes: u64, n_bytes_read: Arc<AtomicU64>) -> Self {
        Self { rows, layout, n_bytes, n_bytes_read }
    }

    /// The next row; `None` at the end of the file or where it breaks off ([`ReadEnd::broken`]).
    pub fn next_row(&mut self) -> Option<RawRow> {
        match &mut self.rows {
            Rows::Lines(lines) => lines.next_row(),
            Rows::Document(document) => document.next_row(),
            Rows::Columns(columns) => columns.next_row(),
        }
    }

    /// How the file is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Size of the file on disk, bytes.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Bytes taken off the disk so far, for progress; with Parquet the share of its rows.
    pub fn n_bytes_read(&self) -> u64 {
        match &self.rows {
            Rows::Columns(columns) => columns.share_of(self.n_bytes),
            Rows::Lines(_) | Rows::Document(_) => self.n_bytes_read.load(Ordering::Relaxed),
        }
    }

    /// Counts so far; final once [`RowReader::next_row`] has given `None`.
    pub fn end(&self) -> ReadEnd {
        match &self.rows {
            Rows::Lines(lines) => lines.end().clone(),
            Rows::Document(document) => document.end().clone(),
            Rows::Columns(columns) => columns.end().clone(),
        }
    }
}

impl Iterator for RowReader {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        self.next_row()
    }
}

/// The bytes of one JSON row as an object.
pub(super) fn parse_row(row: u64, bytes: &[u8], surrogates: Surrogates) -> RawRow {
    match parse_object(bytes, surrogates) {
        Ok((map, repairs)) => RawRow { row, value: Ok(map), repairs },
        Err(bad) => RawRow { row, value: Err(bad), repairs: Vec::new() },
    }
}

fn parse_object(bytes: &[u8], surrogates: Surrogates) -> Result<(Map<String, Value>, Vec<Repair>), BadRow> {
    if let Some(first) = memchr::memchr(0, bytes) {
        let n = memchr::memchr_iter(0, bytes).count();
        return Err(BadRow::new(
            RowFault::NulByte,
            format!(
                "{n} raw NUL bytes, the first at byte {first}; a crash while the file was written leaves such rows"
            ),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let byte = bytes.get(at).copied().unwrap_or_default();
        BadRow::new(RowFault::InvalidUtf8, format!("not UTF-8 at byte {at} (0x{byte:02x})"))
    })?;
    let parsed = json::parse(text, surrogates)?;
    match parsed.value {
        Value::Object(map) => Ok((map, parsed.repairs)),
        other => Err(BadRow::new(RowFault::NotAnObject, format!("expected an object, found {}", kind_of(&other)))),
    }
}

/// What a value is, in words.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
