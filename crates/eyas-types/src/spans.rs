//! Which part of `output_ids` is what.

use serde::{Deserialize, Serialize};

/// A half-open range `start..end` of token positions in `output_ids`, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Span {
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
}

impl Span {
    /// `start..end`; an inverted range is a bug of the caller.
    pub fn new(start: u32, end: u32) -> Self {
        debug_assert!(start <= end, "inverted span {start}..{end}");
        Self { start, end }
    }

    /// Number of tokens.
    pub fn len(self) -> u32 {
        self.end - self.start
    }

    /// Whether the span covers no token.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The ids it covers. `None` when the span reaches outside `ids`.
    pub fn of(self, ids: &[u32]) -> Option<&[u32]> {
        ids.get(self.start as usize..self.end as usize)
    }
}

/// The parts of one answer, in the order in which they stand in `output_ids`; together they cover it without gap or overlap.
///
/// `start_marker ++ reasoning ++ end_marker ++ content ++ stop == output_ids`, always ([`Spans::covers`]). A part that is not there is an
/// empty span at the place where it would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spans {
    /// The marker that opens reasoning, when the model wrote it itself (with white space before it); empty when the prompt opened it.
    pub start_marker: Span,
    /// Reasoning, markers not included.
    pub reasoning: Span,
    /// The marker that closes reasoning.
    pub end_marker: Span,
    /// The answer, tool calls included.
    pub content: Span,
    /// The stop token, when the answer ended with one.
    pub stop: Span,
}

impl Spans {
    /// The five parts in order.
    pub fn parts(&self) -> [Span; 5] {
        [self.start_marker, self.reasoning, self.end_marker, self.content, self.stop]
    }

    /// Whether the parts join without gap or overlap and cover `n_output_ids` tokens.
    pub fn covers(&self, n_output_ids: usize) -> bool {
        let mut at = 0;
        for part in self.parts() {
            if part.start != at || part.end < part.start {
                return false;
            }
            at = part.end;
        }
        at as usize == n_output_ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_must_join_and_cover() {
        let spans = Spans {
            start_marker: Span::new(0, 0),
            reasoning: Span::new(0, 3),
            end_marker: Span::new(3, 4),
            content: Span::new(4, 6),
            stop: Span::new(6, 7),
        };
        assert!(spans.covers(7));
        assert!(!spans.covers(8), "a token outside all parts");
        assert!(!Spans { content: Span::new(5, 6), ..spans }.covers(7), "a gap");
        assert!(!Spans { content: Span::new(3, 6), ..spans }.covers(7), "an overlap");
    }
}
