//! Taking answers apart.

use eyas_prompts::reasoning::{ReasoningFormat, ReasoningMode};
use eyas_prompts::tokenizer::Tokenizer;
use eyas_types::{FinishReason, Flag, Spans, ThinkState, ToolCall};
use std::sync::Arc;

/// Finds reasoning and content in an answer. Called from several slots at once.
pub trait Splitter: Send + Sync {
    /// Takes one answer apart: on ids where there are ids, else as text.
    fn split(&self, input: &SplitInput<'_>) -> SplitOutput;
}

/// One answer to take apart.
#[derive(Debug, Clone, Copy)]
pub struct SplitInput<'a> {
    /// State of the think block at the end of the prompt.
    pub think: ThinkState,
    /// Whether reasoning is expected here.
    pub expect: ReasoningMode,
    /// All ids, the stop token included.
    pub output_ids: Option<&'a [u32]>,
    /// The server's text: the truth where there are no ids, a hint where there are.
    pub text: &'a str,
    /// Why the answer ended.
    pub finish: &'a FinishReason,
}

/// An answer taken apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SplitOutput {
    /// The parts of the ids; `None` exactly when there are no ids.
    pub spans: Option<Spans>,
    /// Reasoning as text.
    pub reasoning: String,
    /// The answer as text.
    pub content: String,
    /// Calls, where the markup is parsed.
    pub tool_calls: Vec<ToolCall>,
    /// What was noticed.
    pub flags: Vec<Flag>,
}

/// The splitter of a target: its reasoning format and its tokenizer.
#[derive(Clone)]
pub struct FormatSplitter {
    format: ReasoningFormat,
    tokenizer: Arc<Tokenizer>,
}

impl FormatSplitter {
    /// Splits by `format`, decoding with `tokenizer`.
    pub fn new(format: ReasoningFormat, tokenizer: Arc<Tokenizer>) -> Self {
        Self { format, tokenizer }
    }
}

impl Splitter for FormatSplitter {
    fn split(&self, input: &SplitInput<'_>) -> SplitOutput {
        match input.output_ids {
            Some(ids) => {
                let split = self.format.split(&self.tokenizer, input.think, input.expect, ids, input.finish);
                SplitOutput {
                    spans: Some(split.spans),
                    reasoning: split.reasoning,
                    content: split.content,
                    tool_calls: split.tool_calls,
                    flags: split.flags,
                }
            }
            None => {
                let split = self.format.split_text(input.think, input.expect, input.text, input.finish);
                SplitOutput {
                    spans: None,
                    reasoning: split.reasoning,
                    content: split.content,
                    tool_calls: split.tool_calls,
                    flags: split.flags,
                }
            }
        }
    }
}
