//! From a conversation to prompt ids: the one thing that preparing prompts needs of a target.

use eyas_types::{Message, ThinkState};
use serde_json::Value;
use std::error::Error;
use std::fmt;

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The prompt as token ids, exactly as they are sent, the generation prompt included.
    pub prompt_ids: Vec<u32>,
    /// State of the think block at the end of `prompt_ids`.
    pub think: ThinkState,
    /// The text the ids were made from; for reading, never sent.
    pub text: String,
}

/// Turns conversations into prompt ids. Same input, same ids: preparing a data set twice must give the same sample ids.
pub trait Renderer: Sync {
    /// Renders `messages` followed by the generation prompt.
    fn render(&self, messages: &[Message], tools: Option<&[Value]>) -> Result<Rendered, RenderError>;

    /// Tokenizes text that is a whole prompt already (no template, no special tokens added).
    fn render_text(&self, text: &str) -> Result<Rendered, RenderError>;
}

/// What a template or tokenizer refused. One row is lost by it, never the run.
#[derive(Debug)]
pub struct RenderError {
    /// Short machine-readable class, used as the reason of the rejected row (`template_refused`, `tokenizer_failed`, …).
    pub class: &'static str,
    /// What happened, for a person.
    pub detail: String,
    /// The error below it.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for RenderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
