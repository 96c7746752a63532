//! The scan of one row.

#![expect(clippy::cast_possible_truncation, reason = "positions in a region: lines are held up to 1 GiB")]

use super::{
    BLOCK, Blocks, Captured, Captures, Fault, Kind, PADDING, Remark,
    text::{hex4, unescape_into},
};
use crate::locations::{Elements, Field, Locations, NOWHERE, NodeId, ROOT};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 1024;

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Parsed,
    Blank,
    /// Not readable; the position in the region where it was noticed.
    Malformed(Fault, usize),
}

/// A line that was scanned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) outcome: Outcome,
    /// [`Remark`] bits.
    pub(crate) remarks: u8,
    /// Where the next line begins in the region.
    pub(crate) next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    /// The container's own node.
    node: NodeId,
    object: bool,
    /// Elements or members so far.
    n: u32,
    start: u32,
    /// Where the keys of this object begin in the list of keys.
    keys_from: u32,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    hash: u64,
    start: u32,
    len: u32,
    escaped: bool,
}

#[derive(Default)]
struct Stretch {
    /// Position of the closing quote.
    end: usize,
    escaped: bool,
    unicode_escaped: bool,
    ascii_escaped: bool,
    lone_surrogate: bool,
    /// Code points.
    size: u32,
}

type Stop = (Fault, usize);

/// Scans rows; holds what is reused from row to row.
#[derive(Debug)]
pub(crate) struct Scanner<'l> {
    locations: &'l Locations,
    frames: Vec<Frame>,
    keys: Vec<Key>,
    remarks: u8,
    /// Newlines between tokens are white space: rows are elements of an array, one a region.
    pub(crate) multiline: bool,
    pub(crate) captures: Captures,
}

impl<'l> Scanner<'l> {
    pub(crate) fn new(locations: &'l Locations) -> Self {
        Self {
            locations,
            frames: Vec::new(),
            keys: Vec::new(),
            remarks: 0,
            multiline: false,
            captures: Captures::new(locations.slots.len()),
        }
    }

    /// Scans the row that begins at `start`. `region[..end]` ends with a newline and is followed by [`PADDING`] readable bytes.
    #[inline(always)]
    pub(crate) fn row<B: Blocks>(&mut self, blocks: B, region: &[u8], start: usize, end: usize) -> Row {
        debug_assert!(region.len() >= end + PADDING && region[end - 1] == b'\n', "unpadded region");
        self.captures.clear();
        self.frames.clear();
        self.keys.clear();
        self.remarks = 0;
        let (outcome, next) = match self.value(blocks, region, start, end) {
            Ok(last) => {
                if last > start && region[last - 1] == b'\r' {
                    self.remarks |= Remark::CarriageReturn.bit();
                }
                (Outcome::Parsed, last + 1)
            }
            Err((fault, at)) => {
                let line_end = if self.multiline { end - 1 } else { line_end(region, at, end) };
                (self.classify(region, start, line_end, fault, at), line_end + 1)
            }
        };
        Row { outcome, remarks: self.remarks, next }
    }

    /// A closer look at a line that did not parse.
    #[cold]
    fn classify(&mut self, region: &[u8], start: usize, line_end: usize, fault: Fault, at: usize) -> Outcome {
        let line = &region[start..line_end];
        if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.remarks = 0;
            return Outcome::Blank;
        }
        let fault = match fault {
            Fault::NotAnObject if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() => Fault::Syntax,
            // The first byte that is neither JSON nor UTF-8 decides what is said.
            Fault::Syntax | Fault::Trailing | Fault::Torn if line.first() == Some(&0) => Fault::Nul,
            Fault::Syntax | Fault::Trailing if region[at] == 0 => Fault::Nul,
            Fault::Syntax if region[at] >= 0x80 && std::str::from_utf8(line).is_err() => Fault::InvalidUtf8,
            fault => fault,
        };
        self.remarks = 0;
        Outcome::Malformed(fault, at)
    }

    /// Reads one value and the white space behind it up to the newline; returns the newline's position.
    #[inline(always)]
    fn value<B: Blocks>(&mut self, blocks: B, region: &[u8], start: usize, end: usize) -> Result<usize, Stop> {
        let locations = self.locations;
        let mut node = ROOT;
        let mut at = self.space(region, start, end)?;
        if region[at] != b'{' {
            return Err(self.not_an_object(region, at));
        }
        loop {
            // A value begins at `at`.
            let here = &locations.nodes[usize::from(node)];
            let wanted = !here.value_slots.is_empty();
            match region[at] {
                b'"' => {
                    let text = self.string(blocks, region, at + 1, wanted)?;
                    if text.lone_surrogate {
                        self.remarks |= Remark::LoneSurrogate.bit();
                    }
                    if wanted {
                        self.capture(
                            node,
                            Captured {
                                kind: Kind::String,
                                start: at as u32 + 1,
                                end: text.end as u32,
                                size: text.size,
                                escaped: text.escaped,
                                unicode_escaped: text.unicode_escaped,
                                ascii_escaped: text.ascii_escaped,
                            },
                        );
                    }
                    at = text.end + 1;
                }
                b'{' => {
                    self.open(node, true, at)?;
                    at = self.space(region, at + 1, end)?;
                    if region[at] != b'}' {
                        (node, at) = self.key(blocks, node, region, at, end)?;
                        continue;
                    }
                }
                b'[' => {
                    let array_start = at;
                    let integers =
                        if region[at + 1].is_ascii_digit() { integer_array(blocks, region, at + 1) } else { None };
                    if let Some((n, close)) = integers {
                        self.capture_array(node, array_start, close + 1, n);
                        at = close + 1;
                    } else {
                        self.open(node, false, at)?;
                        at = self.space(region, at + 1, end)?;
                        if region[at] != b']' {
                            node = self.element(node, 0);
                            continue;
                        }
                    }
                }
                byte => {
                    let (kind, after) = self.scalar(region, at, byte)?;
                    if wanted {
                        let (start, end) = (at as u32, after as u32);
                        self.capture(node, Captured { kind, start, end, size: 0, ..Captured::NOTHING });
                    }
                    at = after;
                }
            }
            // A value has ended before `at`, or an empty container is to be closed at `at`.
            loop {
                let Some(frame) = self.frames.last_mut() else {
                    return self.row_end(region, at, end);
                };
                at = if region[at] > b' ' { at } else { skip_space(region, at, end, self.multiline)? };
                match (region[at], frame.object) {
                    (b',', true) => {
                        let container = frame.node;
                        at = self.space(region, at + 1, end)?;
                        (node, at) = self.key(blocks, container, region, at, end)?;
                        break;
                    }
                    (b',', false) => {
                        frame.n += 1;
                        let (container, n) = (frame.node, frame.n);
                        at = self.space(region, at + 1, end)?;
                        node = self.element(container, n);
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.close(region, at);
                        at += 1;
                    }
                    _ => return Err((Fault::Syntax, at)),
                }
            }
        }
    }

    #[cold]
    fn not_an_object(&self, region: &[u8], at: usize) -> Stop {
        match region[at] {
            b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => (Fault::NotAnObject, at),
            _ => (Fault::Syntax, at),
        }
    }

    #[inline(always)]
    fn space(&self, region: &[u8], at: usize, end: usize) -> Result<usize, Stop> {
        if region[at] > b' ' { Ok(at) } else { skip_space(region, at, end, self.multiline) }
    }

    #[inline(always)]
    fn open(&mut self, node: NodeId, object: bool, at: usize) -> Result<(), Stop> {
        if self.frames.len() == MAX_DEPTH {
            return Err((Fault::TooDeep, at));
        }
        let keys_from = self.keys.len() as u32;
        self.frames.push(Frame { node, object, n: 0, start: at as u32, keys_from });
        Ok(())
    }

    /// The node of element `n` of the array at `container`.
    #[inline(always)]
    fn element(&mut self, container: NodeId, n: u32) -> NodeId {
        if container == NOWHERE {
            return NOWHERE;
        }
        match self.locations.nodes[usize::from(container)].elements {
            Elements::First(node) if n == 0 => node,
            Elements::Messages(node) => {
                self.captures.begin_message();
                node
            }
            _ => NOWHERE,
        }
    }

    /// Reads the key at `at` of an object at `container`, the colon and the space around it.
    #[inline(always)]
    fn key<B: Blocks>(
        &mut self,
        blocks: B,
        container: NodeId,
        region: &[u8],
        at: usize,
        end: usize,
    ) -> Result<(NodeId, usize), Stop> {
        if region[at] != b'"' {
            return Err((Fault::Syntax, at));
        }
        let text = self.string(blocks, region, at + 1, false)?;
        let bytes = &region[at + 1..text.end];
        let key = Key { hash: 0, start: at as u32 + 1, len: bytes.len() as u32, escaped: text.escaped };
        let node = if text.escaped {
            self.escaped_key(container, bytes, key)
        } else {
            self.keys.push(Key { hash: key_hash(bytes), ..key });
            if container == NOWHERE { NOWHERE } else { self.locations.child(container, bytes) }
        };
        if text.lone_surrogate {
            self.remarks |= Remark::LoneSurrogate.bit();
        }
        let colon = self.space(region, text.end + 1, end)?;
        if region[colon] != b':' {
            return Err((Fault::Syntax, colon));
        }
        Ok((node, self.space(region, colon + 1, end)?))
    }

    #[cold]
    fn escaped_key(&mut self, container: NodeId, raw: &[u8], key: Key) -> NodeId {
        let mut plain = Vec::new();
        unescape_into(raw, &mut plain);
        self.keys.push(Key { hash: key_hash(&plain), ..key });
        if container == NOWHERE { NOWHERE } else { self.locations.child(container, &plain) }
    }

    #[inline(always)]
    fn close(&mut self, region: &[u8], at: usize) {
        let Some(frame) = self.frames.pop() else { return };
        if frame.object {
            self.close_object(region, frame);
        }
        if frame.node != NOWHERE {
            self.close_known(region, frame, at);
        } else if !frame.object {
            return;
        }
        self.end_of_message(region);
    }

    /// When the container that just closed was a message of a conversation, says whose it was.
    #[inline(always)]
    fn end_of_message(&mut self, region: &[u8]) {
        let Some(outer) = self.frames.last() else { return };
        if outer.object || outer.node == NOWHERE {
            return;
        }
        if let Elements::Messages(_) = self.locations.nodes[usize::from(outer.node)].elements {
            let assistant = self.captures.message().iter().any(|(slot, value)| {
                self.locations.slots[usize::from(*slot)].field == Field::Role
                    && value.kind == Kind::String
                    && matches!(value.of(region), b"assistant" | b"gpt" | b"model" | b"chatgpt" | b"bot" | b"ai")
            });
            self.captures.end_message(assistant);
        }
    }

    #[inline(always)]
    fn close_object(&mut self, region: &[u8], frame: Frame) {
        let from = frame.keys_from as usize;
        let keys = &mut self.keys[from..];
        let twice = if keys.len() <= 24 {
            let mut twice = false;
            for (n, key) in keys.iter().enumerate() {
                twice |= keys[..n].iter().any(|other| other.hash == key.hash && same_key(region, *other, *key));
            }
            twice
        } else {
            keys.sort_unstable_by_key(|key| key.hash);
            keys.windows(2).any(|pair| pair[0].hash == pair[1].hash && same_key(region, pair[0], pair[1]))
        };
        if twice {
            self.remarks |= Remark::DuplicateKey.bit();
        }
        self.keys.truncate(from);
    }

    /// Notes a container that a location may end at.
    #[inline]
    fn close_known(&mut self, region: &[u8], frame: Frame, at: usize) {
        let node = &self.locations.nodes[usize::from(frame.node)];
        if let (false, Elements::Messages(_)) = (frame.object, node.elements) {
            self.captures.end_messages();
        }
        if frame.object {
            if !node.value_slots.is_empty() {
                let (start, end) = (frame.start, at as u32 + 1);
                let kind = Kind::Object;
                self.capture(frame.node, Captured { kind, start, end, size: 0, ..Captured::NOTHING });
            }
        } else {
            let empty = region[frame.start as usize + 1..at].iter().all(u8::is_ascii_whitespace);
            self.capture_array(frame.node, frame.start as usize, at + 1, if empty { 0 } else { frame.n + 1 });
        }
    }

    #[inline(always)]
    fn capture_array(&mut self, node: NodeId, start: usize, end: usize, n: u32) {
        let here = &self.locations.nodes[usize::from(node)];
        if here.value_slots.is_empty() && here.array_slots.is_empty() {
            return;
        }
        let (start, end) = (start as u32, end as u32);
        let value = Captured { kind: Kind::Array, start, end, size: n, ..Captured::NOTHING };
        for slot in here.value_slots.iter().chain(&here.array_slots) {
            let location = &self.locations.slots[usize::from(*slot)];
            self.captures.set(*slot, location.in_message, value);
        }
    }

    #[inline(always)]
    fn capture(&mut self, node: NodeId, value: Captured) {
        for slot in &self.locations.nodes[usize::from(node)].value_slots {
            self.captures.set(*slot, self.locations.slots[usize::from(*slot)].in_message, value);
        }
    }

    /// Behind the row's value only white space may follow.
    #[inline(always)]
    fn row_end(&self, region: &[u8], at: usize, end: usize) -> Result<usize, Stop> {
        let mut at = at;
        while matches!(region[at], b' ' | b'\t' | b'\r') || (region[at] == b'\n' && self.multiline && at + 1 < end) {
            at += 1;
        }
        if region[at] == b'\n' { Ok(at) } else { Err((Fault::Trailing, at)) }
    }

    /// Reads a string whose first byte is at `start`. `sized`: count its code points.
    #[inline(always)]
    fn string<B: Blocks>(&self, blocks: B, region: &[u8], start: usize, sized: bool) -> Result<Stretch, Stop> {
        let mut text = Stretch { end: start, ..Stretch::default() };
        let mut at = start;
        // Bytes that escapes take beyond the one code point each stands for.
        let mut beyond = 0;
        let mut high = None;
        'block: loop {
            let Some(block) = region[at..].first_chunk::<BLOCK>() else { return Err((Fault::Torn, region.len() - 1)) };
            let masks = blocks.string(block);
            let mut stop = masks.stop;
            loop {
                let before_stop = if stop == 0 { u64::MAX } else { (stop & stop.wrapping_neg()) - 1 };
                if masks.high & before_stop != 0 {
                    let (first, _) = high.unwrap_or((at + masks.high.trailing_zeros() as usize, 0));
                    high = Some((first, at + BLOCK - (masks.high & before_stop).leading_zeros() as usize));
                }
                if stop == 0 {
                    at += BLOCK;
                    continue 'block;
                }
                let offset = stop.trailing_zeros() as usize;
                let here = at + offset;
                let escape_len = match region[here] {
                    b'"' => {
                        text.end = here;
                        break 'block;
                    }
                    b'\\' => {
                        text.escaped = true;
                        match region[here + 1] {
                            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                                beyond += 1;
                                2
                            }
                            b'u' => {
                                let (len, lone, ascii) = unicode_escape(region, here)?;
                                text.unicode_escaped = true;
                                text.lone_surrogate |= lone;
                                text.ascii_escaped |= ascii;
                                beyond += len - 1;
                                len
                            }
                            _ => return Err(bad_escape(region, here)),
                        }
                    }
                    control => return Err(control_character(control, here)),
                };
                let after = offset + escape_len;
                if after >= BLOCK {
                    at += after;
                    continue 'block;
                }
                stop &= u64::MAX << after;
            }
        }
        let mut continuation = 0;
        if let Some((from, to)) = high {
            let stretch = &region[from..to];
            if std::str::from_utf8(stretch).is_err() {
                return Err(not_utf8(stretch, from));
            }
            if sized {
                continuation = stretch.iter().filter(|byte| **byte & 0xc0 == 0x80).count();
            }
        }
        text.size = (text.end - start - beyond - continuation) as u32;
        Ok(text)
    }

    /// Reads a number or a word.
    #[inline(always)]
    fn scalar(&mut self, region: &[u8], at: usize, byte: u8) -> Result<(Kind, usize), Stop> {
        let word = |word: &[u8], kind| {
            if region[at..].starts_with(word) { Ok((kind, at + word.len())) } else { Err(word_stop(region, at, word)) }
        };
        match byte {
            b'0'..=b'9' => Ok((Kind::Number, number(region, at)?)),
            b't' => word(b"true", Kind::Bool(true)),
            b'f' => word(b"false", Kind::Bool(false)),
            b'n' => word(b"null", Kind::Null),
            b'-' if region[at + 1] != b'I' => Ok((Kind::Number, number(region, at)?)),
            b'-' | b'N' | b'I' => {
                let text: &[u8] = match byte {
                    b'-' => b"-Infinity",
                    b'N' => b"NaN",
                    _ => b"Infinity",
                };
                let read = word(text, Kind::Null)?;
                self.remarks |= Remark::NotANumber.bit();
                Ok(read)
            }
            b'\n' => Err((Fault::Torn, at)),
            _ => Err((Fault::Syntax, at)),
        }
    }
}

/// Position of the newline that ends the line in which `at` lies.
fn line_end(region: &[u8], at: usize, end: usize) -> usize {
    let at = at.min(end - 1);
    memchr::memchr(b'\n', &region[at..end]).map_or(end - 1, |offset| at + offset)
}

#[inline(never)]
fn skip_space(region: &[u8], at: usize, end: usize, multiline: bool) -> Result<usize, Stop> {
    let mut at = at;
    loop {
        match region[at] {
            b' ' | b'\t' | b'\r' => at += 1,
            b'\n' if multiline && at + 1 < end => at += 1,
            b'\n' => return Err((Fault::Torn, at)),
            _ => return Ok(at),
        }
    }
}

/// Length of the escape (or pair of escapes) at `at`, whether it is half a pair, and whether it stands for printable ASCII.
#[inline]
fn unicode_escape(region: &[u8], at: usize) -> Result<(usize, bool, bool), Stop> {
    let Some(value) = hex4(&region[at + 2..]) else { return Err(bad_escape(region, at)) };
    Ok(match value {
        0xd800..=0xdbff => {
            let low = if region[at + 6..].starts_with(b"\\u") { hex4(&region[at + 8..]) } else { None };
            if matches!(low, Some(0xdc00..=0xdfff)) { (12, false, false) } else { (6, true, false) }
        }
        0xdc00..=0xdfff => (6, true, false),
        _ => (6, false, matches!(value, 0x20..=0x7e)),
    })
}

/// An escape that does not end because the line does is a torn line.
#[cold]
fn bad_escape(region: &[u8], at: usize) -> Stop {
    let escape = &region[at + 1..at + 6];
    match escape.iter().position(|byte| *byte == b'\n') {
        Some(0) => (Fault::Torn, at + 1),
        Some(n) if escape[0] == b'u' && escape[1..n].iter().all(u8::is_ascii_hexdigit) => (Fault::Torn, at + 1 + n),
        _ => (Fault::BadEscape, at),
    }
}

#[cold]
fn control_character(control: u8, at: usize) -> Stop {
    match control {
        b'\n' => (Fault::Torn, at),
        0 => (Fault::Nul, at),
        _ => (Fault::ControlCharacter, at),
    }
}

#[cold]
fn not_utf8(stretch: &[u8], from: usize) -> Stop {
    let at = std::str::from_utf8(stretch).err().map_or(0, |error| error.valid_up_to());
    (Fault::InvalidUtf8, from + at)
}

/// A word that is cut by the end of the line is a torn line.
#[cold]
fn word_stop(region: &[u8], at: usize, word: &[u8]) -> Stop {
    let same = region[at..].iter().zip(word).take_while(|(here, there)| here == there).count();
    if region[at + same] == b'\n' { (Fault::Torn, at + same) } else { (Fault::Syntax, at + same) }
}

/// Reads a number that begins at `at`; returns the position behind it.
#[inline(always)]
fn number(region: &[u8], at: usize) -> Result<usize, Stop> {
    let mut at = at + usize::from(region[at] == b'-');
    let stop = |at: usize| if region[at] == b'\n' { (Fault::Torn, at) } else { (Fault::Syntax, at) };
    let digits = |mut at: usize| {
        if !region[at].is_ascii_digit() {
            return Err(stop(at));
        }
        while region[at].is_ascii_digit() {
            at += 1;
        }
        Ok(at)
    };
    at = if region[at] == b'0' { at + 1 } else { digits(at)? };
    if region[at] == b'.' {
        at = digits(at + 1)?;
    }
    if matches!(region[at], b'e' | b'E') {
        at += 1;
        at = digits(at + usize::from(matches!(region[at], b'+' | b'-')))?;
    }
    Ok(at)
}

/// Number of elements and position of the `]` of an array of plain integers whose first digit is at `start`; `None` when anything else
/// stands in it, for the general path to look at.
#[inline(always)]
fn integer_array<B: Blocks>(blocks: B, region: &[u8], start: usize) -> Option<(u32, usize)> {
    let mut at = start;
    let mut n = 1;
    // Whether the byte before the block is a digit, a comma, a number that so far is `0`.
    let (mut digit, mut comma, mut zero) = (0, 0, 0);
    loop {
        let masks = blocks.integers(region.get(at..)?.first_chunk::<BLOCK>()?);
        let other = !(masks.digit | masks.comma | masks.space);
        let n_bytes = other.trailing_zeros() as usize;
        let within = if n_bytes == BLOCK { u64::MAX } else { (1 << n_bytes) - 1 };
        let (digits, commas, spaces) = (masks.digit & within, masks.comma & within, masks.space & within);
        let after_digit = digits << 1 | digit;
        let first_digits = digits & !after_digit;
        let lone_zeros = masks.zero & first_digits;
        let bad = commas & !after_digit | spaces & !(commas << 1 | comma) | digits & (lone_zeros << 1 | zero);
        if bad != 0 {
            return None;
        }
        n += commas.count_ones();
        if n_bytes < BLOCK {
            let ends_in_digit = if n_bytes == 0 { digit } else { digits >> (n_bytes - 1) & 1 };
            return (region[at + n_bytes] == b']' && ends_in_digit == 1).then_some((n, at + n_bytes));
        }
        (digit, comma, zero) = (digits >> 63, commas >> 63, lone_zeros >> 63);
        at += BLOCK;
    }
}

#[inline(always)]
fn key_hash(key: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = key.len() as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(MIX).rotate_left(29);
    }
    let mut last = 0;
    for byte in rest {
        last = last << 8 | u64::from(*byte);
    }
    (hash ^ last).wrapping_mul(MIX)
}

#[cold]
fn same_key(region: &[u8], a: Key, b: Key) -> bool {
    let raw = |key: Key| &region[key.start as usize..(key.start + key.len) as usize];
    if !a.escaped && !b.escaped {
        return raw(a) == raw(b);
    }
    let plain = |key: Key| {
        let mut text = Vec::new();
        unescape_into(raw(key), &mut text);
        text
    };
    plain(a) == plain(b)
}
