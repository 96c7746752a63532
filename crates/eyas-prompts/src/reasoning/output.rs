//! An answer as the state machines see it: a row of units (tokens or bytes) in which markers can be found.

use super::Marker;
use crate::tokenizer::{Specials, Tokenizer};
use memchr::memmem;
use std::cell::OnceCell;
use std::ops::Range;

/// A generated answer, or the part of it before the stop token.
pub(super) trait Output {
    /// How many units it has.
    fn len(&self) -> usize;
    /// The text of some units, special tokens printed.
    fn text(&self, range: Range<usize>) -> String;
    /// Every place where the marker stands, in order, without overlaps.
    fn find(&self, marker: &Marker) -> Vec<Range<usize>>;

    /// Whether the units are white space and nothing else.
    fn is_blank(&self, range: Range<usize>) -> bool {
        self.text(range).trim().is_empty()
    }

    /// Where any of the markers stands, in order; of two at the same place the one named first.
    fn find_any(&self, markers: &[Marker]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = markers.iter().flat_map(|marker| self.find(marker)).collect();
        found.sort_by_key(|hit| hit.start);
        let mut end = 0;
        found.retain(|hit| {
            let keep = hit.start >= end;
            if keep {
                end = hit.end;
            }
            keep
        });
        found
    }
}

/// An answer as token ids.
pub(super) struct IdOutput<'a> {
    tokenizer: &'a Tokenizer,
    ids: &'a [u32],
    decoded: OnceCell<Decoded>,
}

/// All tokens' bytes, and the byte at which each begins.
struct Decoded {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl<'a> IdOutput<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, ids: &'a [u32]) -> Self {
        Self { tokenizer, ids, decoded: OnceCell::new() }
    }

    fn decoded(&self) -> &Decoded {
        self.decoded.get_or_init(|| {
            let mut decoded = Decoded { bytes: Vec::new(), starts: Vec::with_capacity(self.ids.len()) };
            for id in self.ids {
                decoded.starts.push(decoded.bytes.len());
                match self.tokenizer.token_bytes(*id) {
                    Some(bytes) => decoded.bytes.extend_from_slice(bytes),
                    None => decoded.bytes.extend(decode_lossy(self.tokenizer, &[*id]).into_bytes()),
                }
            }
            decoded
        })
    }
}

impl Output for IdOutput<'_> {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn text(&self, range: Range<usize>) -> String {
        decode_lossy(self.tokenizer, self.ids.get(range).unwrap_or_default())
    }

    fn find(&self, marker: &Marker) -> Vec<Range<usize>> {
        if let Some(marker) = marker.id {
            let places = self.ids.iter().enumerate().filter(|(_, id)| **id == marker);
            return places.map(|(n, _)| n..n + 1).collect();
        }
        // No single token: look in the bytes, and take whole tokens.
        let decoded = self.decoded();
        let hits = memmem::find_iter(&decoded.bytes, &marker.text);
        hits.map(|at| {
            let end = at + marker.text.len();
            decoded.starts.partition_point(|start| *start <= at) - 1
                ..decoded.starts.partition_point(|start| *start < end)
        })
        .collect()
    }
}

/// The text of ids; an id that no vocabulary has is shown as U+FFFD, since an answer must be kept whatever is in it.
fn decode_lossy(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    tokenizer.decode(ids, Specials::Keep).unwrap_or_else(|_| {
        let known = |id: &u32| tokenizer.token_of(*id).is_some();
        let mut text = String::new();
        for chunk in ids.chunk_by(|a, b| known(a) && known(b)) {
            match tokenizer.decode(chunk, Specials::Keep) {
                Ok(part) => text.push_str(&part),
                Err(_) => text.push('\u{fffd}'),
            }
        }
        text
    })
}

/// An answer as text; its units are bytes.
pub(super) struct TextOutput<'a>(pub(super) &'a str);

impl Output for TextOutput<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn text(&self, range: Range<usize>) -> String {
        self.0.get(range).unwrap_or_default().to_owned()
    }

    fn find(&self, marker: &Marker) -> Vec<Range<usize>> {
        self.0.match_indices(&marker.text).map(|(at, text)| at..at + text.len()).collect()
    }
}
