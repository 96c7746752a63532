//! Reasoning formats, and the splitter that takes an answer apart on token ids.
//!
//! # What decides
//! Whether the answer begins inside the reasoning is read off the *prompt ids* ([`ReasoningFormat::think_state`]), never guessed from a
//! model name or from the answer's text. Markers are matched as token ids where the vocabulary has them as one token; a model that merely
//! spells `<think>` in ordinary tokens has written text, not a marker. Markers that are no token (`Here is my thought process:`) are looked
//! for in the decoded bytes and the tokens they touch become the marker.
//!
//! # Tags (`<think>` … `</think>` and kin)
//! 1. Prompt open: everything up to the first end marker is reasoning. Prompt closed: everything is content. Undecided: leading white space
//!    is held; a start marker opens reasoning, anything else is content, unless an end marker turns up later with no start before it: then
//!    all before it is reasoning and [`Flag::MissingStart`] is set.
//! 2. A start marker right at the beginning of an open or undecided answer is the start marker, white space before it included.
//! 3. The start of a tool call ends reasoning when no end marker follows it; it stays in the content.
//! 4. No end at all: all is reasoning, [`Flag::TruncatedInReasoning`] when the cap (or an abort) ended the answer,
//!    [`Flag::UnclosedReasoning`] when it ended by itself.
//! 5. Start markers in the content are not re-opened ([`Flag::ExtraThink`]).
//!
//! # Channels (harmony, gpt-oss)
//! An answer is a list of messages, each with a header that names a channel and perhaps a recipient. The five parts of
//! [`Spans`] hold it so: `start_marker` is the header of the leading `analysis` message, `reasoning` reaches to the end of the last message
//! of the leading run of `analysis` messages (headers between them included), `end_marker` is all markup from there to the first body that
//! is shown, `content` is the rest (from the header on when a tool call comes first), `stop` the stop token. The *texts* are exact:
//! `reasoning` is the analysis bodies, `content` the bodies of `final` and of `commentary` without a recipient, `tool_calls` the messages
//! with a recipient. An `analysis` message after the leading run counts in the text and sets [`Flag::ExtraThink`].
//!
//! # Text
//! The spans are exact and cover the answer. The texts are for reading: **line breaks at either end of the reasoning, and at the start of a
//! content that follows reasoning, are left out; nothing else is.** With ids, the raw text is what the spans decode to; without ids
//! ([`ReasoningFormat::split_text`]) the five byte ranges of [`TextSplit::parts`] give it back.

mod builtin;
mod channels;
mod detect;
mod output;
mod split;
mod tags;
mod tool_calls;

pub use detect::{UnknownFormat, known_formats};
pub use split::{ReasoningMode, Split, TextSplit};

#[cfg(doc)]
use eyas_types::{Flag, Spans};

use crate::tokenizer::Tokenizer;
use eyas_types::ThinkState;

/// How a target marks its reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningFormat {
    name: &'static str,
    why: String,
    scheme: Scheme,
    tools: Vec<Marker>,
    /// Texts of end tokens that servers may leave at the end of a text.
    stop_texts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scheme {
    None,
    Tags(TagMarkers),
    Channels(channels::ChannelMarkers),
}

/// Markers of a format that brackets its reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TagMarkers {
    start: Vec<Marker>,
    /// Longer ones first.
    end: Vec<Marker>,
    /// Tags around the whole content, which are not part of its text.
    wrap: Option<(&'static str, &'static str)>,
}

/// A marker: always a text, and the id where the vocabulary has it as one added token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker {
    text: String,
    id: Option<u32>,
}

impl Marker {
    fn new(text: &str, tokenizer: Option<&Tokenizer>) -> Self {
        let id = tokenizer.and_then(|tokenizer| tokenizer.id_of(text));
        Self { text: text.to_owned(), id }
    }
}

impl ReasoningFormat {
    /// The format's name, as `detect` prints it and [`ReasoningFormat::named`] takes it.
    pub fn name(&self) -> &str {
        self.name
    }

    /// Why it was chosen, as a sentence for a person.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether the format marks reasoning at all.
    pub fn is_none(&self) -> bool {
        self.scheme == Scheme::None
    }

    /// The texts of its markers (starts, ends), for looking at answers without ids and for keeping them out of data.
    pub fn marker_texts(&self) -> Vec<&str> {
        match &self.scheme {
            Scheme::None => Vec::new(),
            Scheme::Tags(tags) => tags.start.iter().chain(&tags.end).map(|marker| marker.text.as_str()).collect(),
            Scheme::Channels(channels) => channels.texts(),
        }
    }

    /// The texts that open a tool call in this vocabulary.
    pub fn tool_texts(&self) -> Vec<&str> {
        self.tools.iter().map(|marker| marker.text.as_str()).collect()
    }

    /// Whether the prompt leaves the think block open.
    ///
    /// The last marker in the prompt decides, if it belongs to the generation prompt: a marker that is followed by another control token
    /// (the end of a turn, the header of the next) stands in the history or in a system text, and says nothing about the turn to come.
    pub fn think_state(&self, tokenizer: &Tokenizer, prompt_ids: &[u32]) -> ThinkState {
        match &self.scheme {
            Scheme::None => ThinkState::Undecided,
            Scheme::Tags(tags) => tags::think_state(tags, tokenizer, prompt_ids),
            Scheme::Channels(markers) => channels::think_state(markers, tokenizer, prompt_ids),
        }
    }
}

#[cfg(test)]
mod tests;
