//! The two entries, on ids and on text, and what both do around the state machines: the stop token, texts, flags.

use super::output::{IdOutput, Output, TextOutput};
use super::{ReasoningFormat, Scheme, builtin, channels, tags, tool_calls};
use crate::tokenizer::Tokenizer;
use eyas_types::{FinishReason, Flag, Matched, Span, Spans, ThinkState, ToolCall};
use std::ops::Range;

/// What a run says about reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasoningMode {
    /// The target reasons: an answer without reasoning is flagged [`Flag::ReasoningMissing`].
    Expected,
    /// Thinking was switched off: reasoning, or a marker, is flagged [`Flag::UnexpectedReasoning`].
    Off,
    /// Nothing is expected; only a prompt that closes the think block makes reasoning unexpected.
    Auto,
}

/// An answer taken apart on ids.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The parts; they cover the ids given, always.
    pub spans: Spans,
    /// Reasoning as text (see the module for what is trimmed).
    pub reasoning: String,
    /// The answer as text.
    pub content: String,
    /// Calls, where the markup is one that eyas parses. The content keeps its markup, except for channels.
    pub tool_calls: Vec<ToolCall>,
    /// What was noticed; sorted, without repeats.
    pub flags: Vec<Flag>,
}

/// An answer taken apart as text, for servers that give no ids.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSplit {
    /// Byte ranges of start marker, reasoning, end marker, content, stop; they cover the text.
    pub parts: [Range<usize>; 5],
    /// Reasoning as text.
    pub reasoning: String,
    /// The answer as text.
    pub content: String,
    /// Calls, as in [`Split::tool_calls`].
    pub tool_calls: Vec<ToolCall>,
    /// What was noticed; sorted, without repeats.
    pub flags: Vec<Flag>,
}

/// What a state machine found, in units of its output.
pub(super) struct Cut {
    /// Ends of start marker, reasoning, end marker; the content reaches to `len`.
    ends: [usize; 3],
    len: usize,
    /// Bodies whose texts make up the reasoning and the content, when they are not simply the spans.
    pub(super) bodies: Option<Bodies>,
    pub(super) flags: Vec<Flag>,
    pub(super) tool_calls: Vec<ToolCall>,
    /// Whether any reasoning marker stands in the answer.
    pub(super) markers_seen: bool,
}

/// The messages of a channel format by what they are for.
#[derive(Default)]
pub(super) struct Bodies {
    pub(super) reasoning: Vec<Range<usize>>,
    pub(super) content: Vec<Range<usize>>,
}

impl Cut {
    /// All of it is content.
    pub(super) fn all_content(len: usize) -> Self {
        Self { ends: [0; 3], len, bodies: None, flags: Vec::new(), tool_calls: Vec::new(), markers_seen: false }
    }

    pub(super) fn set(&mut self, reasoning_start: usize, reasoning_end: usize, content_start: usize) {
        self.ends = [reasoning_start, reasoning_end, content_start];
    }

    pub(super) fn content_start(&self) -> usize {
        self.ends[2]
    }

    fn reasoning(&self) -> Range<usize> {
        self.ends[0]..self.ends[1]
    }
}

/// Texts, calls and flags of an answer, whatever its units.
struct Reading {
    reasoning: String,
    content: String,
    tool_calls: Vec<ToolCall>,
    flags: Vec<Flag>,
}

impl ReasoningFormat {
    /// Takes an answer apart on ids.
    ///
    /// `think` is the state of the prompt, `output_ids` all ids that came back, the stop token included. Exactly one trailing stop is set
    /// apart: the id (or ids) that the finish reason says matched, or, where the server does not say what matched (vLLM on its plain end
    /// token), a last id that is one of the target's end ids or flagged special.
    pub fn split(
        &self,
        tokenizer: &Tokenizer,
        think: ThinkState,
        expect: ReasoningMode,
        output_ids: &[u32],
        finish: &FinishReason,
    ) -> Split {
        let n_stop = self.n_stop_ids(tokenizer, output_ids, finish);
        let body = &output_ids[..output_ids.len() - n_stop];
        let output = IdOutput::new(tokenizer, body);
        let cut = self.cut(&output, think, finish);
        let reading = self.read(&output, &cut, think, expect, finish);

        let at = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let [start, reasoning, end] = cut.ends;
        let spans = Spans {
            start_marker: Span::new(0, at(start)),
            reasoning: Span::new(at(start), at(reasoning)),
            end_marker: Span::new(at(reasoning), at(end)),
            content: Span::new(at(end), at(body.len())),
            stop: Span::new(at(body.len()), at(output_ids.len())),
        };
        debug_assert!(spans.covers(output_ids.len()), "{spans:?} does not cover {} ids", output_ids.len());
        let Reading { reasoning, content, tool_calls, flags } = reading;
        Split { spans, reasoning, content, tool_calls, flags }
    }

    /// Takes an answer apart as text, by the same rules, for servers that give no ids. A trailing end token that the server left in the text
    /// is the stop part.
    pub fn split_text(&self, think: ThinkState, expect: ReasoningMode, text: &str, finish: &FinishReason) -> TextSplit {
        let body_len = text.len() - self.stop_text(text, finish).map_or(0, str::len);
        let output = TextOutput(&text[..body_len]);
        let cut = self.cut(&output, think, finish);
        let Reading { reasoning, content, tool_calls, flags } = self.read(&output, &cut, think, expect, finish);
        let [start, end_of_reasoning, end] = cut.ends;
        let parts = [0..start, start..end_of_reasoning, end_of_reasoning..end, end..body_len, body_len..text.len()];
        TextSplit { parts, reasoning, content, tool_calls, flags }
    }

    fn n_stop_ids(&self, tokenizer: &Tokenizer, output_ids: &[u32], finish: &FinishReason) -> usize {
        match finish {
            FinishReason::Stop { matched: Some(Matched::Token(id)) } => usize::from(output_ids.last() == Some(id)),
            FinishReason::Stop { matched: Some(Matched::Tokens(ids)) } if output_ids.ends_with(ids) => ids.len(),
            FinishReason::Stop { matched: None } | FinishReason::ToolCalls => {
                let is_end = |id: &u32| {
                    tokenizer.eos_ids().contains(id) || (tokenizer.is_special(*id) && !self.is_marker_id(*id))
                };
                usize::from(output_ids.last().is_some_and(is_end))
            }
            _ => 0,
        }
    }

    fn stop_text<'t>(&'t self, text: &str, finish: &FinishReason) -> Option<&'t str> {
        if !finish.is_success() || matches!(finish, FinishReason::Length { .. }) {
            return None;
        }
        let channel_stops = match &self.scheme {
            Scheme::Channels(_) => channels::STOP_TEXTS,
            _ => &[],
        };
        let known = self.stop_texts.iter().map(String::as_str).chain(channel_stops.iter().copied());
        known.filter(|stop| !stop.is_empty()).find(|stop| text.ends_with(stop))
    }

    fn is_marker_id(&self, id: u32) -> bool {
        match &self.scheme {
            Scheme::Tags(tags) => tags.start.iter().chain(&tags.end).any(|marker| marker.id == Some(id)),
            // `<|end|>`, `<|return|>` and `<|call|>` end an answer.
            Scheme::Channels(_) | Scheme::None => false,
        }
    }

    fn cut(&self, output: &impl Output, think: ThinkState, finish: &FinishReason) -> Cut {
        let ended_by_itself = matches!(finish, FinishReason::Stop { .. } | FinishReason::ToolCalls);
        match &self.scheme {
            Scheme::None => Cut::all_content(output.len()),
            Scheme::Tags(markers) => tags::cut(markers, &self.tools, output, think, ended_by_itself),
            Scheme::Channels(markers) => channels::cut(markers, output, think, ended_by_itself),
        }
    }

    fn read(
        &self,
        output: &impl Output,
        cut: &Cut,
        think: ThinkState,
        expect: ReasoningMode,
        finish: &FinishReason,
    ) -> Reading {
        let content_range = cut.content_start()..cut.len;
        let (reasoning, content) = match &cut.bodies {
            Some(bodies) => (join(output, &bodies.reasoning), join(output, &bodies.content)),
            None => (output.text(cut.reasoning()), output.text(content_range)),
        };
        let reasoning = reasoning.trim_matches(LINE_BREAKS).to_owned();
        let mut content = content;
        if cut.content_start() > 0 {
            content.drain(..content.len() - content.trim_start_matches(LINE_BREAKS).len());
        }
        let unparsed = self.has_unparsed_markup(&content);
        if let Scheme::Tags(super::TagMarkers { wrap: Some(wrap), .. }) = &self.scheme {
            unwrap_content(&mut content, *wrap);
        }

        let mut flags = cut.flags.clone();
        let mut tool_calls = cut.tool_calls.clone();
        if cut.bodies.is_none() {
            let found = tool_calls::parse(&content, matches!(finish, FinishReason::Length { .. }));
            tool_calls = found.calls;
            flags.extend(found.flags);
        }
        if unparsed {
            flags.push(Flag::UnparsedMarkup);
        }
        let has_reasoning = !reasoning.trim().is_empty();
        if expect == ReasoningMode::Expected && !has_reasoning && !flags.contains(&Flag::TruncatedInReasoning) {
            flags.push(Flag::ReasoningMissing);
        }
        let off = expect == ReasoningMode::Off || think == ThinkState::Closed;
        if off && (has_reasoning || cut.markers_seen) {
            flags.push(Flag::UnexpectedReasoning);
        }
        if content.trim().is_empty() && tool_calls.is_empty() {
            flags.push(Flag::EmptyContent);
        }
        flags.sort_unstable();
        flags.dedup();
        Reading { reasoning, content, tool_calls, flags }
    }

    /// Whether markup of another format, or markup of channels that was not parsed, is left in a content.
    fn has_unparsed_markup(&self, content: &str) -> bool {
        let own = match &self.scheme {
            Scheme::Channels(_) => Vec::new(),
            _ => self.marker_texts(),
        };
        let foreign: Vec<&str> = builtin::all_markup().filter(|markup| !own.contains(markup)).collect();
        // Markup begins with `<`, `[` or `◁`, which are rare: one pass finds the places worth a look.
        let mut places = memchr::memchr3_iter(b'<', b'[', "◁".as_bytes()[0], content.as_bytes());
        places.any(|at| foreign.iter().any(|markup| content.as_bytes()[at..].starts_with(markup.as_bytes())))
    }
}

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

fn join(output: &impl Output, bodies: &[Range<usize>]) -> String {
    bodies.iter().map(|body| output.text(body.clone())).collect::<Vec<_>>().join("\n")
}

/// Takes `<answer>` and `</answer>` off, with the line breaks inside them.
fn unwrap_content(content: &mut String, (open, close): (&str, &str)) {
    let mut inner = content.trim();
    let opened = inner.strip_prefix(open);
    inner = opened.unwrap_or(inner);
    let closed = inner.strip_suffix(close);
    if opened.is_some() || closed.is_some() {
        *content = closed.unwrap_or(inner).trim_matches(LINE_BREAKS).to_owned();
    }
}
