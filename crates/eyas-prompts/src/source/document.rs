//! A JSON document as a stream of rows: a list at the root, or in one field of the root object. Elements are cut out by their brackets
//! and parsed one by one, so that a bad element costs one row and a large file no memory.

use super::fault::{BadRow, RowFault};
use super::json;
use super::reader::{RawRow, ReadEnd, SourceOptions, Surrogates, kind_of, parse_row};
use serde_json::Value;
use std::io::{BufRead, ErrorKind};

pub(super) struct Document<R> {
    bytes: Bytes<R>,
    max_row_bytes: usize,
    surrogates: Surrogates,
    place: Place,
    end: ReadEnd,
}

/// Where the reader stands.
#[derive(PartialEq, Eq)]
enum Place {
    /// Behind the opening bracket of the list of rows.
    BeforeFirst,
    /// Behind an element.
    BehindElement,
    /// Nothing more comes.
    Done,
}

/// What stands at the root, when it is not a list of rows that can be read.
#[derive(Debug)]
pub(super) enum RootProblem {
    /// An object and no field is named.
    NeedsField(Vec<String>),
    /// An object without the named field.
    FieldMissing(Vec<String>),
    /// The named field holds no list.
    FieldNotAList(String),
    /// A field is named and the root is a list.
    FieldOfAList,
    /// Neither list nor object.
    NotAContainer(String),
    /// It breaks off or is not JSON before the rows begin.
    Broken(String),
}

impl<R: BufRead> Document<R> {
    /// Moves to the first row.
    pub(super) fn open(input: R, options: &SourceOptions) -> Result<Self, RootProblem> {
        let mut bytes = Bytes { input };
        let mut end = ReadEnd::default();
        let broken = |cut: Cut| RootProblem::Broken(cut.to_string());
        if bytes.take_byte_order_mark().map_err(broken)? {
            end.n_byte_order_marks = 1;
        }
        match (bytes.next_visible().map_err(broken)?, &options.field) {
            (Some(b'['), None) => bytes.skip(1),
            (Some(b'['), Some(_)) => return Err(RootProblem::FieldOfAList),
            (Some(b'{'), field) => {
                bytes.skip(1);
                find_field(&mut bytes, field.as_deref())?;
            }
            (None, _) => return Ok(Self::new(bytes, options, Place::Done, end)),
            (Some(_), _) => {
                let mut value = Vec::new();
                bytes.value(&mut value, 1 << 20).map_err(broken)?;
                return Err(RootProblem::NotAContainer(what_it_is(&value)));
            }
        }
        Ok(Self::new(bytes, options, Place::BeforeFirst, end))
    }

    fn new(bytes: Bytes<R>, options: &SourceOptions, place: Place, end: ReadEnd) -> Self {
        Self { bytes, max_row_bytes: options.max_row_bytes, surrogates: options.surrogates, place, end }
    }

    pub(super) fn end(&self) -> &ReadEnd {
        &self.end
    }

    pub(super) fn next_row(&mut self) -> Option<RawRow> {
        if self.place == Place::Done {
            return None;
        }
        match self.move_to_element() {
            Ok(true) => {}
            Ok(false) => {
                self.place = Place::Done;
                return None;
            }
            Err(cut) => {
                self.place = Place::Done;
                self.end.broken = Some(format!("{cut}, behind element {}", self.end.n_rows));
                return None;
            }
        }
        self.place = Place::BehindElement;
        self.end.n_rows += 1;
        let row = self.end.n_rows;
        let mut element = Vec::new();
        let bad = match self.bytes.value(&mut element, self.max_row_bytes) {
            Ok(n_bytes) if n_bytes > self.max_row_bytes => {
                let limit = self.max_row_bytes;
                BadRow::new(RowFault::RowTooLarge, format!("the row has {n_bytes} bytes, the limit is {limit}"))
            }
            Ok(_) => return Some(parse_row(row, &element, self.surrogates)),
            Err(cut) => {
                self.place = Place::Done;
                self.end.broken = Some(format!("{cut}, inside element {row}"));
                BadRow::new(RowFault::TornRow, format!("the file breaks off inside the row: {cut}"))
            }
        };
        Some(RawRow { row, value: Err(bad), repairs: Vec::new() })
    }

    /// Moves to the first byte of the next element; `false` at the end of the list.
    fn move_to_element(&mut self) -> Result<bool, Cut> {
        let mut next = self.bytes.expect_visible()?;
        if next == b']' {
            self.bytes.skip(1);
            self.check_rest()?;
            return Ok(false);
        }
        if self.place == Place::BehindElement {
            if next != b',' {
                return Err(Cut::unexpected("`,` or `]`", next));
            }
            self.bytes.skip(1);
            next = self.bytes.expect_visible()?;
        }
        if matches!(next, b',' | b']' | b'}' | b':') {
            return Err(Cut::unexpected("an element", next));
        }
        Ok(true)
    }

    /// Nothing that looks like rows may follow the list.
    fn check_rest(&mut self) -> Result<(), Cut> {
        match self.bytes.next_visible()? {
            // The root object goes on or ends; its other fields hold no rows.
            None | Some(b',' | b'}') => Ok(()),
            Some(found) => Err(Cut::unexpected("the end of the file behind the list", found)),
        }
    }
}

/// Moves behind the `[` of the named field, or says what is there instead.
fn find_field<R: BufRead>(bytes: &mut Bytes<R>, field: Option<&str>) -> Result<(), RootProblem> {
    let broken = |cut: Cut| RootProblem::Broken(cut.to_string());
    let mut keys = Vec::new();
    loop {
        if bytes.expect_visible().map_err(broken)? == b'}' {
            break;
        }
        let mut key = Vec::new();
        bytes.value(&mut key, 1 << 20).map_err(broken)?;
        let parsed = std::str::from_utf8(&key).ok().and_then(|text| json::parse(text, Surrogates::Repair).ok());
        let Some(Value::String(key)) = parsed.map(|parsed| parsed.value) else {
            return Err(RootProblem::Broken("expected a key in the root object".to_owned()));
        };
        let colon = bytes.expect_visible().map_err(broken)?;
        if colon != b':' {
            return Err(broken(Cut::unexpected("`:`", colon)));
        }
        bytes.skip(1);
        let first = bytes.expect_visible().map_err(broken)?;
        if Some(key.as_str()) == field {
            if first == b'[' {
                bytes.skip(1);
                return Ok(());
            }
            let mut value = Vec::new();
            bytes.value(&mut value, 1 << 20).map_err(broken)?;
            return Err(RootProblem::FieldNotAList(what_it_is(&value)));
        }
        keys.push(key);
        bytes.value(&mut Vec::new(), 0).map_err(broken)?;
        match bytes.expect_visible().map_err(broken)? {
            b',' => bytes.skip(1),
            b'}' => break,
            found => return Err(broken(Cut::unexpected("`,` or `}`", found))),
        }
    }
    Err(if field.is_some() { RootProblem::FieldMissing(keys) } else { RootProblem::NeedsField(keys) })
}

fn what_it_is(value: &[u8]) -> String {
    let parsed = std::str::from_utf8(value).ok().and_then(|text| json::parse(text, Surrogates::Repair).ok());
    match parsed {
        Some(parsed) => kind_of(&parsed.value).to_owned(),
        None if value.first() == Some(&b'{') => "an object".to_owned(),
        None => format!("{:?}", String::from_utf8_lossy(&value[..value.len().min(20)])),
    }
}

/// Why the document cannot be followed further.
#[derive(Debug)]
enum Cut {
    /// The file ends.
    End,
    /// The stream fails.
    Stream(String),
    /// Something that does not belong there.
    Unexpected { expected: &'static str, found: u8 },
}

impl Cut {
    fn unexpected(expected: &'static str, found: u8) -> Self {
        Self::Unexpected { expected, found }
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::End => f.write_str("the file ends before the list is closed"),
            Self::Stream(error) => f.write_str(error),
            Self::Unexpected { expected, found } => {
                write!(f, "expected {expected}, found `{}`", found.escape_ascii())
            }
        }
    }
}

/// Bytes with a look ahead of one.
struct Bytes<R> {
    input: R,
}

impl<R: BufRead> Bytes<R> {
    fn chunk(&mut self) -> Result<&[u8], Cut> {
        loop {
            match self.input.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Cut::Stream(error.to_string())),
            }
        }
        // Buffered by the call above; asked again because a borrow cannot leave a loop.
        self.input.fill_buf().map_err(|error| Cut::Stream(error.to_string()))
    }

    fn skip(&mut self, n_bytes: usize) {
        self.input.consume(n_bytes);
    }

    /// The next byte that is no white space; it is not taken.
    fn next_visible(&mut self) -> Result<Option<u8>, Cut> {
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let blank = chunk.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let found = chunk.get(blank).copied();
            self.skip(blank);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn expect_visible(&mut self) -> Result<u8, Cut> {
        self.next_visible()?.ok_or(Cut::End)
    }

    fn take_byte_order_mark(&mut self) -> Result<bool, Cut> {
        // A first chunk shorter than the mark can only be a tiny file.
        let found = self.chunk()?.starts_with(b"\xef\xbb\xbf");
        if found {
            self.skip(3);
        }
        Ok(found)
    }

    /// Takes the value that begins at the next byte. Keeps its bytes in `out` as long as they are at most `keep_bytes`; returns how many
    /// there were.
    fn value(&mut self, out: &mut Vec<u8>, keep_bytes: usize) -> Result<usize, Cut> {
        let mut shape = ValueShape::default();
        let mut n_bytes = 0;
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                // A number or word may end with the file; anything else is cut.
                return if shape.is_bare() { Ok(n_bytes) } else { Err(Cut::End) };
            }
            let end = shape.find_end(chunk);
            let take = end.unwrap_or(chunk.len());
            n_bytes += take;
            if n_bytes <= keep_bytes {
                out.extend_from_slice(&chunk[..take]);
            } else if !out.is_empty() {
                *out = Vec::new();
            }
            self.skip(take);
            if end.is_some() {
                return Ok(n_bytes);
            }
        }
    }
}

/// Follows the outline of a JSON value: brackets, strings, escapes.
#[derive(Default)]
pub(super) struct ValueShape {
    started: bool,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ValueShape {
    /// Whether the value is a number or word so far, or not begun.
    fn is_bare(&self) -> bool {
        self.started && self.depth == 0 && !self.in_string
    }

    /// Where in the chunk the value ends (one past its last byte); `None` when it goes on.
    pub(super) fn find_end(&mut self, chunk: &[u8]) -> Option<usize> {
        for (at, byte) in chunk.iter().enumerate() {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                } else if *byte == b'\\' {
                    self.escaped = true;
                } else if *byte == b'"' {
                    self.in_string = false;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                continue;
            }
            match byte {
                // A bare value ends before what cannot belong to it.
                b',' | b']' | b'}' | b':' | b'[' | b'{' | b'"' | b' ' | b'\t' | b'\n' | b'\r'
                    if self.started && self.depth == 0 =>
                {
                    return Some(at);
                }
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
            self.started = true;
        }
        None
    }
}
