//! Rows that are elements of one JSON array: cuts the text into elements, which are then scanned like lines.
//!
//! Only strings and nesting are tracked here; whether an element is JSON is for the scan to say.

use crate::{document::Layout, lines::LineScan, scan::PADDING};

/// Keys under which files keep their rows when the root is an object.
const WRAPPERS: [&str; 12] = [
    "data",
    "rows",
    "answers",
    "responses",
    "results",
    "records",
    "samples",
    "examples",
    "items",
    "outputs",
    "completions",
    "instances",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the `[` of the array.
    Before,
    /// Inside, between elements.
    Between,
    /// Inside an element.
    Element,
    /// Behind the `]`.
    Behind,
}

/// Cuts one array into elements.
pub(crate) struct ArraySplit {
    state: State,
    layout: Layout,
    depth: usize,
    in_string: bool,
    escape: bool,
    element: Vec<u8>,
    element_byte: u64,
    n_bytes: u64,
    max_bytes: usize,
    /// In a wrapping object: the key that was read last at its top level.
    key: Vec<u8>,
}

impl ArraySplit {
    pub(crate) fn new(layout: Layout, max_bytes: usize) -> Self {
        Self {
            state: State::Before,
            layout,
            depth: 0,
            in_string: false,
            escape: false,
            element: Vec::new(),
            element_byte: 0,
            n_bytes: 0,
            max_bytes,
            key: Vec::new(),
        }
    }

    /// Takes the next bytes of the text; whole elements go to `rows`.
    pub(crate) fn push(&mut self, bytes: &[u8], rows: &mut LineScan<'_>) {
        for byte in bytes {
            match self.state {
                State::Before => self.before(*byte),
                State::Between => self.between(*byte),
                State::Element => self.inside(*byte, rows),
                State::Behind => {}
            }
            self.n_bytes += 1;
        }
    }

    /// The text has ended.
    pub(crate) fn finish(&mut self, rows: &mut LineScan<'_>) {
        if self.state == State::Element {
            rows.unfinished_element();
        }
        rows.passed(self.n_bytes);
    }

    fn before(&mut self, byte: u8) {
        if self.in_string {
            self.string(byte);
            if self.in_string && self.depth == 1 {
                self.key.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.key.clear();
                }
            }
            b'[' if self.begins_here() => self.state = State::Between,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn begins_here(&self) -> bool {
        match self.layout {
            Layout::WrappedArray => self.depth == 1 && WRAPPERS.iter().any(|name| name.as_bytes() == self.key),
            _ => self.depth == 0,
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
            b']' => self.state = State::Behind,
            _ => {
                self.state = State::Element;
                self.element_byte = self.n_bytes;
                self.depth = 0;
                self.element.clear();
                self.element.push(byte);
                match byte {
                    b'{' | b'[' => self.depth = 1,
                    b'"' => self.in_string = true,
                    _ => {}
                }
            }
        }
    }

    fn inside(&mut self, byte: u8, rows: &mut LineScan<'_>) {
        if self.in_string {
            self.string(byte);
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b',' if self.depth == 0 => return self.end_element(State::Between, rows),
                b']' if self.depth == 0 => return self.end_element(State::Behind, rows),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        if self.element.len() <= self.max_bytes {
            self.element.push(byte);
        }
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if self.escape => self.escape = false,
            b'\\' => self.escape = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn end_element(&mut self, next: State, rows: &mut LineScan<'_>) {
        self.state = next;
        if self.element.len() > self.max_bytes {
            rows.too_long_element(self.element_byte);
            return;
        }
        self.element.push(b'\n');
        let end = self.element.len();
        self.element.resize(end + PADDING, 0);
        rows.element(&self.element, end, self.element_byte);
    }
}

/// How the rows of a text are laid out, by its beginning (without byte order mark).
pub(crate) fn layout_of(beginning: &[u8]) -> Layout {
    let text = beginning.trim_ascii_start();
    let newline = memchr::memchr(b'\n', text);
    let (line, rest) = newline.map_or((text, &[][..]), |at| text.split_at(at));
    let is_json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    match text.first() {
        // Rows that are arrays, one a line, are JSON lines (of the wrong kind).
        Some(b'[') if !rest.trim_ascii().is_empty() && is_json(line) => Layout::JsonLines,
        Some(b'[') => Layout::JsonArray,
        Some(b'{') if spread_out(line, rest) => Layout::WrappedArray,
        _ => Layout::JsonLines,
    }
}

/// Whether an object that begins with `line` goes on over the next lines, as pretty printers write it, and keeps its rows under a known key.
fn spread_out(line: &[u8], rest: &[u8]) -> bool {
    let cut_between_tokens = matches!(line.trim_ascii_end().last(), Some(b'{' | b',' | b'[' | b':'));
    let goes_on = rest.trim_ascii_start().first() == Some(&b'"') || line.trim_ascii_end().last() == Some(&b'[');
    let named = |name: &str| {
        memchr::memmem::find(line, format!("\"{name}\"").as_bytes()).is_some()
            || memchr::memmem::find(&rest[..rest.len().min(1 << 16)], format!("\"{name}\"").as_bytes()).is_some()
    };
    cut_between_tokens && goes_on && WRAPPERS.iter().any(|name| named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_told_apart_by_their_beginning() {
        for (text, layout) in [
            ("{\"id\":1}\n{\"id\":2}\n", Layout::JsonLines),
            ("{\"id\":1,\n{\"id\":2}\n", Layout::JsonLines),
            ("[{\"id\":1},{\"id\":2}]", Layout::JsonArray),
            ("[{\"id\":1},{\"id\":2}]\n", Layout::JsonArray),
            ("[\n {\n  \"id\":1}]", Layout::JsonArray),
            ("[1]\n[2]\n", Layout::JsonLines),
            ("{\n \"wall_s\": 1,\n \"answers\": [\n", Layout::WrappedArray),
            ("", Layout::JsonLines),
        ] {
            assert_eq!(layout_of(text.as_bytes()), layout, "{text}");
        }
    }
}
