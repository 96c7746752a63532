//! Template, tokenizer, reasoning format and the run's arguments in one: conversations to prompt ids.

use super::{ChatTemplate, RenderInput, TemplateError};
use crate::reasoning::ReasoningFormat;
use crate::tokenizer::{EncodeError, Tokenizer};
use crate::{RenderError, Rendered, Renderer};
use eyas_types::Message;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens when data spells a control token (`stop at <|im_end|>`), which would end a turn in the middle of a message.
///
/// Control tokens are the special tokens, the reasoning and tool markers, and every added token that the chat template writes or that is
/// spelt `<|…|>`. In assistant turns the reasoning and tool markers are the model's own markup and stay what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ControlTokens {
    /// The data's spelling is encoded as plain text; everything else gives the same ids as ever.
    #[default]
    Escape,
    /// The row is refused, naming the token and where it stands.
    Reject,
    /// It becomes the control token, as with transformers' `apply_chat_template`; counted.
    Parse,
}

/// How a run renders its prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptSettings {
    /// Arguments for the template (`enable_thinking`, `thinking`, `reasoning_effort`, `documents`, …).
    pub kwargs: Map<String, Value>,
    /// What is done about control tokens in data.
    pub control_tokens: ControlTokens,
}

/// Why a renderer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PromptRendererError {
    /// An argument has a name that eyas itself fills.
    #[error("template argument `{name}` is given by eyas itself and cannot be set")]
    ReservedKwarg {
        /// The name.
        name: String,
    },
}

/// What joins the text parts of a message whose content is a list: many templates take a string only, and the others print the parts one
/// after the other. vLLM joins them so, too.
pub const TEXT_PART_SEPARATOR: &str = "\n";

/// Names that a run cannot set.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Turns conversations into prompt ids: [`Renderer`] for a real target.
#[derive(Debug)]
pub struct PromptRenderer {
    template: ChatTemplate,
    tokenizer: Tokenizer,
    format: ReasoningFormat,
    settings: PromptSettings,
    /// Control tokens; a second list for assistant turns, in which the model's own markup is allowed.
    control: ControlSet,
    control_in_assistant: ControlSet,
    n_with_control_tokens: AtomicU64,
}

/// A control token spelt in data.
struct Spelt {
    token: String,
    /// Which message, from 0; `None` for the tool schemas.
    message: Option<usize>,
    /// Byte in the string.
    offset: usize,
}

impl PromptRenderer {
    /// Puts the parts together. `format`: what [`ReasoningFormat::detect`] says, or what the user named.
    pub fn new(
        template: ChatTemplate,
        tokenizer: Tokenizer,
        format: ReasoningFormat,
        settings: PromptSettings,
    ) -> Result<Self, PromptRendererError> {
        if let Some(name) = RESERVED.into_iter().find(|name| settings.kwargs.contains_key(*name)) {
            return Err(PromptRendererError::ReservedKwarg { name: name.to_owned() });
        }
        let own_markup: BTreeSet<&str> = format.marker_texts().into_iter().chain(format.tool_texts()).collect();
        let is_control = |content: &str, special: bool| {
            let spelt_as_control = ["<|", "<｜"].iter().any(|open| content.starts_with(open));
            let in_template = || template.texts().any(|(_, text)| text.contains(content));
            special || spelt_as_control || own_markup.contains(content) || in_template()
        };
        let control: Vec<String> = tokenizer
            .added_tokens()
            .values()
            .filter(|token| !token.content.trim().is_empty() && is_control(&token.content, token.special))
            .map(|token| token.content.clone())
            .collect();
        let allowed = |token: &str| own_markup.contains(token) || token.contains("tool");
        let control_in_assistant: Vec<String> = control.iter().filter(|token| !allowed(token)).cloned().collect();
        Ok(Self {
            template,
            tokenizer,
            format,
            settings,
            control: ControlSet::new(control),
            control_in_assistant: ControlSet::new(control_in_assistant),
            n_with_control_tokens: AtomicU64::new(0),
        })
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The reasoning format.
    pub fn format(&self) -> &ReasoningFormat {
        &self.format
    }

    /// The settings.
    pub fn settings(&self) -> &PromptSettings {
        &self.settings
    }

    /// How many conversations so far spelt a control token in their data.
    pub fn n_with_control_tokens(&self) -> u64 {
        self.n_with_control_tokens.load(Ordering::Relaxed)
    }

    /// Names of the run's template arguments that change nothing: the template does not know them, or their value is its default.
    pub fn kwargs_without_effect(&self) -> Result<Vec<&str>, TemplateError> {
        let mut without = Vec::new();
        for (name, value) in &self.settings.kwargs {
            if !self.template.kwarg_has_effect(name, value)? {
                without.push(name.as_str());
            }
        }
        Ok(without)
    }

    fn text(&self, messages: &[Value], tools: Option<&[Value]>) -> Result<String, RenderError> {
        let input = RenderInput { messages, tools, add_generation_prompt: true, kwargs: &self.settings.kwargs };
        self.template.render(&input).map_err(|e| {
            let class = if matches!(e, TemplateError::Refused { .. }) { "template_refused" } else { "template_failed" };
            error(class, e.to_string(), Some(Box::new(e)))
        })
    }

    fn rendered(&self, text: String, prompt_ids: Vec<u32>) -> Result<Rendered, RenderError> {
        if prompt_ids.is_empty() {
            return Err(error("empty_prompt", "the prompt renders to nothing".to_owned(), None));
        }
        let think = self.format.think_state(&self.tokenizer, &prompt_ids);
        Ok(Rendered { prompt_ids, think, text })
    }

    /// Encodes with the control tokens of the data kept plain. The conversation is rendered a second time with a sentinel inside each of
    /// them, so that their places are known whatever the template does to the text around them.
    fn encode_escaped(
        &self,
        mut messages: Vec<Value>,
        tools: Option<&[Value]>,
        text: &str,
        first: &Spelt,
    ) -> Result<Vec<u32>, RenderError> {
        let Some(sentinel) = ('\u{fdd0}'..='\u{fdef}').find(|c| !text.contains(*c)) else {
            let detail = "the data holds every noncharacter that could mark control tokens".to_owned();
            return Err(error("control_token_in_data", detail, None));
        };
        for message in &mut messages {
            let control = self.control_for(message);
            edit_strings(message, &mut |string| control.mark(string, sentinel));
        }
        let mut marked_tools = tools.map(<[Value]>::to_vec);
        for tool in marked_tools.iter_mut().flatten() {
            edit_strings(tool, &mut |string| self.control.mark(string, sentinel));
        }
        let marked = self.text(&messages, marked_tools.as_deref())?;
        if marked.replace(sentinel, "") != text {
            let detail = format!("{first}, and the chat template treats it as markup; it cannot be kept as plain text");
            return Err(error("control_token_in_data", detail, None));
        }
        self.tokenizer.encode_escaped(&marked, sentinel).map_err(tokenizer_failed)
    }

    fn control_for(&self, message: &Value) -> &ControlSet {
        let is_assistant = message.get("role").and_then(Value::as_str) == Some("assistant");
        if is_assistant { &self.control_in_assistant } else { &self.control }
    }

    /// The first control token that the data spells.
    fn first_spelt(&self, messages: &[Value], tools: Option<&[Value]>) -> Option<Spelt> {
        let in_messages = messages.iter().enumerate().map(|(n, message)| (message, self.control_for(message), Some(n)));
        let in_tools = tools.unwrap_or_default().iter().map(|tool| (tool, &self.control, None));
        in_messages.chain(in_tools).find_map(|(value, control, message)| {
            let (offset, token) = first_in_strings(value, control)?;
            Some(Spelt { token: token.to_owned(), message, offset })
        })
    }
}

impl Renderer for PromptRenderer {
    fn render(&self, messages: &[Message], tools: Option<&[Value]>) -> Result<Rendered, RenderError> {
        let messages: Result<Vec<Value>, _> = messages.iter().map(serde_json::to_value).collect();
        let mut messages = messages.map_err(|e| error("template_failed", e.to_string(), Some(Box::new(e))))?;
        for (n, message) in messages.iter_mut().enumerate() {
            join_text_parts(message).map_err(|kind| {
                let detail = format!("message {n} has a part of type `{kind}`; only text can be rendered");
                error("content_not_text", detail, None)
            })?;
        }
        let spelt = self.first_spelt(&messages, tools);
        if spelt.is_some() {
            self.n_with_control_tokens.fetch_add(1, Ordering::Relaxed);
        }
        if let (ControlTokens::Reject, Some(spelt)) = (self.settings.control_tokens, &spelt) {
            return Err(error("control_token_in_data", spelt.to_string(), None));
        }
        let text = self.text(&messages, tools)?;
        let ids = match (self.settings.control_tokens, &spelt) {
            (ControlTokens::Escape, Some(spelt)) => self.encode_escaped(messages, tools, &text, spelt)?,
            _ => self.tokenizer.encode(&text).map_err(tokenizer_failed)?,
        };
        self.rendered(text, ids)
    }

    /// The text is a prompt of the user's own making: control tokens in it are meant.
    fn render_text(&self, text: &str) -> Result<Rendered, RenderError> {
        let ids = self.tokenizer.encode(text).map_err(tokenizer_failed)?;
        self.rendered(text.to_owned(), ids)
    }
}

impl std::fmt::Display for Spelt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { token, message, offset } = self;
        match message {
            Some(message) => write!(f, "message {message} spells the control token `{token}` at byte {offset}"),
            None => write!(f, "a tool schema spells the control token `{token}` at byte {offset}"),
        }
    }
}

/// Makes one text of a content that is a list of text parts. The error is the type of a part that is no text. A list with `thinking` parts,
/// which some templates take, stays as it is.
fn join_text_parts(message: &mut Value) -> Result<(), String> {
    let Some(Value::Array(parts)) = message.get("content") else { return Ok(()) };
    let kind = |part: &Value| part.get("type").and_then(Value::as_str).unwrap_or("text").to_owned();
    if parts.iter().any(|part| kind(part) == "thinking") {
        return Ok(());
    }
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        match part.as_str().or_else(|| part.get("text")?.as_str()) {
            Some(text) => texts.push(text),
            None => return Err(kind(part)),
        }
    }
    let text = texts.join(TEXT_PART_SEPARATOR);
    if let Some(content) = message.get_mut("content") {
        *content = Value::String(text);
    }
    Ok(())
}

fn error(class: &'static str, detail: String, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> RenderError {
    RenderError { class, detail, source }
}

fn tokenizer_failed(e: EncodeError) -> RenderError {
    error("tokenizer_failed", e.to_string(), Some(Box::new(e)))
}

/// Control tokens to look for in data.
#[derive(Debug)]
struct ControlSet {
    tokens: Vec<String>,
    /// They begin with few different characters, which are rare in prose.
    firsts: BTreeSet<char>,
}

impl ControlSet {
    fn new(tokens: Vec<String>) -> Self {
        let firsts = tokens.iter().filter_map(|token| token.chars().next()).collect();
        Self { tokens, firsts }
    }

    /// Where any of them is spelt, overlaps included.
    fn occurrences<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        let places = text.char_indices().filter(|(_, c)| self.firsts.contains(c));
        places.flat_map(move |(at, _)| {
            let here = self.tokens.iter().filter(move |token| text[at..].starts_with(token.as_str()));
            here.map(move |token| (at, token.as_str()))
        })
    }

    /// Puts the sentinel behind the first character of every spelling.
    fn mark(&self, text: &mut String, sentinel: char) {
        let mut places: Vec<usize> = self.occurrences(text).map(|(at, _)| at).collect();
        places.dedup();
        for at in places.into_iter().rev() {
            let width = text[at..].chars().next().map_or(0, char::len_utf8);
            text.insert(at + width, sentinel);
        }
    }
}

fn first_in_strings<'a>(value: &'a Value, control: &'a ControlSet) -> Option<(usize, &'a str)> {
    match value {
        Value::String(string) => control.occurrences(string).next(),
        Value::Array(items) => items.iter().find_map(|item| first_in_strings(item, control)),
        Value::Object(fields) => fields.values().find_map(|value| first_in_strings(value, control)),
        _ => None,
    }
}

fn edit_strings(value: &mut Value, edit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(string) => edit(string),
        Value::Array(items) => items.iter_mut().for_each(|item| edit_strings(item, edit)),
        Value::Object(fields) => fields.values_mut().for_each(|value| edit_strings(value, edit)),
        _ => {}
    }
}
