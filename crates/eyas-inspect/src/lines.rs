//! From bytes as they come to counted rows: finds whole lines in a buffer, has them scanned, and keeps the unfinished rest for later.

use crate::{
    locations::Locations,
    plan::InspectPlan,
    scan::{Blocks, Fault, Outcome, PADDING, Portable, Remark, Row, Scanner, WithBlocks, with_best},
    tally::{Counter, RowAt, Tally},
};

/// Bytes asked of the source at once. Measured: smaller and larger reads cost more.
const READ: usize = 1 << 20;
/// The buffer goes back to its usual size when a line beyond this has passed.
const LARGE: usize = 4 << 20;
/// No plan holds longer lines: positions in a line are 32 bits.
pub(crate) const MAX_LINE: usize = 1 << 30;
/// Where a record may begin inside a bad line is tried at most so often.
const MAX_TRIES: usize = 8;

/// Scans the lines of one text. Bytes are put into [`LineScan::space`] and announced with [`LineScan::filled`].
pub(crate) struct LineScan<'p> {
    plan: &'p InspectPlan,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are in use: the unfinished line.
    used: usize,
    /// Position in the text of the first byte of the buffer.
    base: u64,
    /// The line that is being read is too long to be held; where it began.
    too_long_from: Option<u64>,
    rows: Rows<'p>,
}

/// What scans and counts.
struct Rows<'p> {
    scanner: Scanner<'p>,
    /// For a second look at lines that did not parse.
    second: Scanner<'p>,
    counter: Counter<'p>,
    /// Lines that have ended so far.
    n_lines: u64,
    /// `{` and the first key of the first good record, as it is spelled in this file.
    opening: Vec<u8>,
}

/// What a text came to.
pub(crate) struct Scanned {
    pub(crate) tally: Tally,
    /// All lines, the unfinished one included; counted apart from what became of them.
    pub(crate) n_lines: u64,
    pub(crate) text_bytes: u64,
    /// The last row was whole, and no newline followed it.
    pub(crate) no_final_newline: bool,
}

impl<'p> LineScan<'p> {
    pub(crate) fn new(plan: &'p InspectPlan, locations: &'p Locations, dataset: &'p str) -> Self {
        let rows = Rows {
            scanner: Scanner::new(locations),
            second: Scanner::new(locations),
            counter: Counter::new(plan, locations, dataset),
            n_lines: 0,
            opening: Vec::new(),
        };
        let buffer = vec![0; READ + READ / 4 + PADDING];
        Self { plan, buffer, used: 0, base: 0, too_long_from: None, rows }
    }

    /// Where the next bytes go.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let usable = self.buffer.len() - PADDING;
        if usable - self.used < READ / 8 {
            self.buffer.resize(2 * usable + PADDING, 0);
        }
        let to = (self.used + READ).min(self.buffer.len() - PADDING);
        &mut self.buffer[self.used..to]
    }

    /// `n` bytes have been put into the space.
    pub(crate) fn filled(&mut self, n: usize) {
        let from = self.used;
        self.used += n;
        let Some(last) = memchr::memrchr(b'\n', &self.buffer[from..self.used]) else {
            self.keep_unfinished();
            return;
        };
        let end = from + last + 1;
        let start = self.end_too_long_line(from);
        self.rows.lines(&self.buffer, start, end, self.base);
        self.buffer.copy_within(end..self.used, 0);
        self.used -= end;
        self.base += end as u64;
        if self.buffer.len() > LARGE && self.used < READ {
            self.buffer.truncate(READ + READ / 4 + PADDING);
            self.buffer.shrink_to_fit();
        }
    }

    fn keep_unfinished(&mut self) {
        if self.too_long_from.is_none() && self.used > self.plan.max_line_bytes.min(MAX_LINE) {
            self.too_long_from = Some(self.base);
        }
        if self.too_long_from.is_some() {
            self.base += self.used as u64;
            self.used = 0;
        }
    }

    /// Counts the too long line that ends in this buffer, if one does; returns where the next line begins.
    fn end_too_long_line(&mut self, from: usize) -> usize {
        let Some(byte) = self.too_long_from.take() else { return 0 };
        let newline = memchr::memchr(b'\n', &self.buffer[from..self.used]).map_or(self.used, |offset| from + offset);
        self.rows.n_lines += 1;
        let at = RowAt { region: &self.buffer, start: 0, line: self.rows.n_lines, byte };
        self.rows.counter.tally.malformed(Fault::TooLong, &at, 0, 0, 0);
        (newline + 1).min(self.used)
    }

    /// The text has ended (for now). What stands behind the last newline is a row if it is a whole one, else it is in progress.
    pub(crate) fn finish(mut self) -> Scanned {
        let text_bytes = self.base + self.used as u64;
        let mut no_final_newline = false;
        if self.too_long_from.is_some() {
            self.rows.n_lines += 1;
            self.rows.counter.tally.in_progress += 1;
        } else if self.used > 0 {
            let end = self.used + 1;
            self.buffer.resize(self.buffer.len().max(end + PADDING), 0);
            self.buffer[self.used] = b'\n';
            no_final_newline = self.rows.last_line(&self.buffer, end, self.base);
        }
        Scanned { tally: self.rows.counter.tally, n_lines: self.rows.n_lines, text_bytes, no_final_newline }
    }

    /// Remarks that the text begins with a byte order mark (already taken off).
    pub(crate) fn byte_order_mark(&mut self) {
        self.base += 3;
        let at = RowAt { region: &self.buffer, start: 0, line: 1, byte: 0 };
        self.rows.counter.tally.remark(Remark::ByteOrderMark, &at);
    }

    /// Counts one element of a JSON array, given whole in `buffer[..end]` with a newline at `end - 1` and [`PADDING`] bytes behind.
    pub(crate) fn element(&mut self, buffer: &[u8], end: usize, byte: u64) {
        self.rows.scanner.multiline = true;
        self.rows.second.multiline = true;
        self.rows.lines(buffer, 0, end, byte);
    }

    /// Counts an element that is too long to be held.
    pub(crate) fn too_long_element(&mut self, byte: u64) {
        self.rows.n_lines += 1;
        let at = RowAt { region: &[], start: 0, line: self.rows.n_lines, byte };
        self.rows.counter.tally.malformed(Fault::TooLong, &at, 0, 0, 0);
    }

    /// Counts an element that the end of the text cut.
    pub(crate) fn unfinished_element(&mut self) {
        self.rows.n_lines += 1;
        self.rows.counter.tally.in_progress += 1;
    }

    /// Notes that `n` bytes went by as elements of an array and between them.
    pub(crate) fn passed(&mut self, n: u64) {
        self.base += n;
        self.used = 0;
    }
}

struct Lines<'a, 'p> {
    rows: &'a mut Rows<'p>,
    region: &'a [u8],
    start: usize,
    end: usize,
    base: u64,
}

impl WithBlocks for Lines<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<B: Blocks>(self, blocks: B) {
        let Self { rows, region, start, end, base } = self;
        let mut at = start;
        while at < end {
            let row = rows.scanner.row(blocks, region, at, end);
            rows.count(region, at, base, &row);
            at = row.next;
        }
    }
}

impl Rows<'_> {
    fn lines(&mut self, region: &[u8], start: usize, end: usize, base: u64) {
        if start < end {
            with_best(Lines { rows: self, region, start, end, base });
        }
    }

    #[inline(never)]
    fn count(&mut self, region: &[u8], start: usize, base: u64, row: &Row) {
        self.n_lines += 1;
        let at = RowAt { region, start, line: self.n_lines, byte: base + start as u64 };
        if let Outcome::Malformed(fault, trouble) = row.outcome {
            self.malformed(fault, &at, trouble, row.next - 1);
            return;
        }
        if self.opening.is_empty() && row.outcome == Outcome::Parsed {
            self.opening = opening(&region[start..row.next]);
        }
        self.counter.row(&self.scanner, row, &at);
    }

    /// Counts a bad line, after a look for whole records inside it.
    #[cold]
    fn malformed(&mut self, fault: Fault, at: &RowAt<'_>, trouble: usize, line_end: usize) {
        let line = &at.region[at.start..line_end];
        let record = match fault {
            Fault::TooDeep | Fault::TooLong | Fault::NotAnObject => None,
            _ => self.record_inside(at.region, at.start, line_end),
        };
        // What is followed by something else is a whole record itself.
        let recoverable = u64::from(record.is_some()) + u64::from(fault == Fault::Trailing);
        let begins_as_record = line.first() == Some(&b'{');
        let fault = if record.is_some() && begins_as_record && fault != Fault::Nul { Fault::Fused } else { fault };
        self.counter.tally.malformed(fault, at, trouble, line_end, recoverable);
    }

    /// Where the last whole record that ends with the line begins, if it is not the line itself.
    fn record_inside(&mut self, region: &[u8], start: usize, line_end: usize) -> Option<usize> {
        let opening: &[u8] = if self.opening.is_empty() { b"{\"" } else { &self.opening };
        let candidates = memchr::memmem::rfind_iter(&region[start + 1..line_end], opening).take(MAX_TRIES);
        let second = &mut self.second;
        candidates
            .map(|offset| start + 1 + offset)
            .find(|candidate| second.row(Portable, region, *candidate, line_end + 1).outcome == Outcome::Parsed)
    }

    /// Counts what stands behind the last newline; returns whether it was a whole row.
    fn last_line(&mut self, region: &[u8], end: usize, base: u64) -> bool {
        let row = self.second.row(Portable, region, 0, end);
        if row.outcome == Outcome::Parsed || row.outcome == Outcome::Blank {
            self.lines(region, 0, end, base);
            return row.outcome == Outcome::Parsed;
        }
        self.n_lines += 1;
        self.counter.tally.in_progress += 1;
        false
    }
}

/// The start of a record up to the end of its first key.
fn opening(line: &[u8]) -> Vec<u8> {
    let mut quotes = memchr::memchr_iter(b'"', line);
    match (line.first(), quotes.next(), quotes.next()) {
        (Some(b'{'), Some(_), Some(second)) if second < 100 => line[..=second].to_vec(),
        _ => Vec::new(),
    }
}
