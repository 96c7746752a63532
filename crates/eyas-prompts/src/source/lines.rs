//! JSON lines: a row ends at byte 0x0A and nowhere else, whatever separators Unicode knows.

use super::fault::{BadRow, RowFault};
use super::reader::{RawRow, ReadEnd, SourceOptions, Surrogates, parse_row};
use std::io::{BufRead, ErrorKind};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    n_lines: u64,
    max_row_bytes: usize,
    surrogates: Surrogates,
    end: ReadEnd,
    done: bool,
}

/// How a line ended.
enum LineEnd {
    /// With a line feed, or with the file.
    Whole,
    /// Past the limit; its bytes were skipped.
    TooLarge(u64),
    /// There is no further line.
    EndOfFile,
    /// The stream failed inside it.
    Broken(String),
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R, options: &SourceOptions) -> Self {
        Self {
            input,
            line: Vec::new(),
            n_lines: 0,
            max_row_bytes: options.max_row_bytes,
            surrogates: options.surrogates,
            end: ReadEnd::default(),
            done: false,
        }
    }

    pub(super) fn end(&self) -> &ReadEnd {
        &self.end
    }

    pub(super) fn next_row(&mut self) -> Option<RawRow> {
        loop {
            if self.done {
                return None;
            }
            let line_end = self.read_line();
            let bad = match line_end {
                LineEnd::EndOfFile => {
                    self.done = true;
                    return None;
                }
                LineEnd::Whole => None,
                LineEnd::TooLarge(n_bytes) => {
                    let limit = self.max_row_bytes;
                    Some(BadRow::new(
                        RowFault::RowTooLarge,
                        format!("the row has {n_bytes} bytes, the limit is {limit}"),
                    ))
                }
                LineEnd::Broken(why) => {
                    self.done = true;
                    let n_bytes = self.line.len();
                    self.end.broken = Some(format!("{why}, after line {}", self.n_lines));
                    if n_bytes == 0 {
                        return None;
                    }
                    Some(BadRow::new(
                        RowFault::TornRow,
                        format!("the file breaks off {n_bytes} bytes into the row: {why}"),
                    ))
                }
            };
            self.n_lines += 1;
            let bytes = self.without_byte_order_mark();
            if bad.is_none() && bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
                self.end.n_blank_lines += 1;
                continue;
            }
            self.end.n_rows += 1;
            return Some(match bad {
                Some(bad) => RawRow { row: self.n_lines, value: Err(bad), repairs: Vec::new() },
                None => parse_row(self.n_lines, &self.line, self.surrogates),
            });
        }
    }

    /// Cuts a byte order mark off the line: the one in front of a file, and those that joining files leaves at later lines.
    fn without_byte_order_mark(&mut self) -> &[u8] {
        if self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
            self.end.n_byte_order_marks += 1;
        }
        &self.line
    }

    fn read_line(&mut self) -> LineEnd {
        self.line.clear();
        let mut n_skipped: u64 = 0;
        let mut is_empty = true;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return LineEnd::Broken(error.to_string()),
            };
            let at_end = chunk.is_empty();
            let newline = memchr::memchr(b'\n', chunk);
            let take = newline.unwrap_or(chunk.len());
            if n_skipped > 0 {
                n_skipped += take as u64;
            } else if self.line.len() + take > self.max_row_bytes {
                n_skipped = (self.line.len() + take) as u64;
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(&chunk[..take]);
            }
            is_empty &= at_end;
            self.input.consume(take + usize::from(newline.is_some()));
            if newline.is_none() && !at_end {
                continue;
            }
            return match n_skipped {
                0 if is_empty => LineEnd::EndOfFile,
                0 => LineEnd::Whole,
                n_bytes => LineEnd::TooLarge(n_bytes),
            };
        }
    }
}
