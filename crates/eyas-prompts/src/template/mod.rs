//! The target's own chat template, rendered in the way transformers does.
//!
//! * **Environment.** `trim_blocks`, `lstrip_blocks`, loop controls, one trailing newline of the template dropped, no escaping. Undefined
//!   values print nothing, and an attribute of an undefined value is an error, as in jinja2.
//! * **What a template is given.** `messages`, `tools` and `documents` (`none` when there are none), `add_generation_prompt`, the special tokens
//!   (`bos_token`, …) and the run's own arguments (`enable_thinking`, …). A key that a message does not have is absent; a missing or `null`
//!   `content` is the empty string, as serving engines make it. Neither `null` nor undefined becomes text.
//! * **Functions and filters.** `raise_exception`; `strftime_now`, which gives the date that was pinned, or is an error when none was;
//!   `tojson` as `json.dumps(ensure_ascii=False)` prints it, with its keyword arguments; Python's string, list and dict methods.
//!   Methods that would change a list or dict are refused, as transformers' sandbox does.
//! * **`{% generation %}`** prints nothing, and [`ChatTemplate::render_with_spans`] says what stood in it.
//! * **Failing early.** A template that does not parse, or that uses a jinja2 filter, test or Python method which this build does not have,
//!   fails when it is loaded, with the construct and its line. There is no fall-back template.

mod environment;
mod generator;
mod prompt_renderer;
mod python;
mod rewrite;
mod source;
mod strftime;
mod tojson;

pub use prompt_renderer::{ControlTokens, PromptRenderer, PromptRendererError, PromptSettings, TEXT_PART_SEPARATOR};
pub use strftime::{BadDate, PinnedDate};

use crate::tokenizer::SpecialTokens;
use minijinja::Environment;
use minijinja::value::{Serde, Value as JinjaValue};
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A chat template, parsed and checked.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Name and text of every template; the first is the default one.
    templates: Vec<(String, String)>,
    origin: String,
    special: SpecialTokens,
}

/// What one rendering is given.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// Messages as JSON objects, in OpenAI's shape.
    pub messages: &'a [Value],
    /// Tool schemas; none is not the same as an empty list.
    pub tools: Option<&'a [Value]>,
    /// Whether the header of the assistant's next turn is written.
    pub add_generation_prompt: bool,
    /// The run's own arguments; a template ignores those it does not know ([`ChatTemplate::kwarg_has_effect`]).
    pub kwargs: &'a Map<String, Value>,
}

/// Why a template could not be loaded, or did not render.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A file is missing or unreadable.
    #[error("cannot read `{path}`")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A configuration file is not JSON, or its `chat_template` is neither a string nor a list of named templates.
    #[error("`{path}` holds no usable chat template: {message}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no template.
    #[error("`{model_dir}` has no chat template: looked for {}", source::LOOKED_FOR)]
    NotFound {
        /// Where it was looked for.
        model_dir: PathBuf,
    },
    /// It has several templates, none of which is called `default`.
    #[error("{origin} has no template named `default`; it has {names}")]
    NoDefault {
        /// Which template file.
        origin: String,
        /// Their names.
        names: String,
    },
    /// It does not parse.
    #[error("{origin}, line {line}: {message}")]
    Syntax {
        /// Which template.
        origin: String,
        /// Line of the template, from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// It uses something that jinja2 has and this build has not.
    #[error("{origin}, line {line}: {construct} is not supported")]
    Unsupported {
        /// Which template.
        origin: String,
        /// Line of the template, from 1.
        line: usize,
        /// The construct (`filter `urlize``).
        construct: String,
    },
    /// The template refused the conversation (`raise_exception`).
    #[error("the chat template refuses the conversation: {message}")]
    Refused {
        /// The template's words.
        message: String,
    },
    /// Rendering failed.
    #[error("{origin}, line {line}: {message}")]
    Failed {
        /// Which template.
        origin: String,
        /// Line of the template, from 1; 0 where it is not known.
        line: usize,
        /// What failed.
        message: String,
    },
}

/// Marks generated stretches while spans are wanted. Noncharacters: no text of a data set has them legitimately.
const GENERATION_MARKS: [char; 2] = ['\u{fdd2}', '\u{fdd3}'];

impl ChatTemplate {
    /// Finds and loads the template of a model folder. `date` is what `strftime_now` shall give.
    pub fn load(model_dir: &Path, special: &SpecialTokens, date: Option<PinnedDate>) -> Result<Self, TemplateError> {
        Self::from_source(source::find(model_dir)?, special, date)
    }

    /// Loads one file: a template, or a JSON file that holds one (`chat_template.json`, `tokenizer_config.json`).
    pub fn from_file(path: &Path, special: &SpecialTokens, date: Option<PinnedDate>) -> Result<Self, TemplateError> {
        Self::from_source(source::read(path)?, special, date)
    }

    /// Takes a template's text. `origin` names it in messages.
    pub fn from_text(
        origin: &str,
        text: &str,
        special: &SpecialTokens,
        date: Option<PinnedDate>,
    ) -> Result<Self, TemplateError> {
        let templates = vec![(source::DEFAULT.to_owned(), text.to_owned())];
        Self::from_source(source::TemplateSource { origin: origin.to_owned(), templates }, special, date)
    }

    fn from_source(
        source: source::TemplateSource,
        special: &SpecialTokens,
        date: Option<PinnedDate>,
    ) -> Result<Self, TemplateError> {
        let source::TemplateSource { origin, templates } = source;
        let mut environment = environment::new(date);
        for (name, text) in rewrite::mark_templates() {
            environment.add_template_owned(name, text).map_err(|e| TemplateError::Syntax {
                origin: name.to_owned(),
                line: 0,
                message: environment::describe(&e),
            })?;
        }
        for (name, text) in &templates {
            let origin = if name == source::DEFAULT { origin.clone() } else { format!("{origin} (`{name}`)") };
            let rewritten = rewrite::rewrite(&origin, text)?;
            environment.add_template_owned(name.clone(), rewritten).map_err(|e| TemplateError::Syntax {
                origin,
                line: e.line().unwrap_or(0),
                message: environment::describe(&e),
            })?;
        }
        Ok(Self { environment, templates, origin, special: special.clone() })
    }

    /// Where it came from, for messages and the manifest.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The default template's text as it was read; what a fingerprint is made of.
    pub fn text(&self) -> &str {
        self.templates.first().map_or("", |(_, text)| text)
    }

    /// All templates' texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Whether any of its templates asks for the date.
    pub fn uses_date(&self) -> bool {
        self.templates.iter().any(|(_, text)| text.contains("strftime_now"))
    }

    /// Renders a conversation.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        self.run(input, None)
    }

    /// Renders a conversation and says which byte ranges of the text stood in `{% generation %}` blocks.
    pub fn render_with_spans(&self, input: &RenderInput<'_>) -> Result<(String, Vec<Range<usize>>), TemplateError> {
        let marked = self.run(input, Some(GENERATION_MARKS))?;
        let mut text = String::with_capacity(marked.len());
        let mut spans = Vec::new();
        let mut start = 0;
        for c in marked.chars() {
            if c == GENERATION_MARKS[0] {
                start = text.len();
            } else if c == GENERATION_MARKS[1] {
                spans.push(start..text.len());
            } else {
                text.push(c);
            }
        }
        Ok((text, spans))
    }

    /// Whether an argument changes the prompt of a plain question, with or without a system text: an argument that a template does not know
    /// is ignored without a word. An error when the template refuses every such question, with and without the argument.
    pub fn kwarg_has_effect(&self, name: &str, value: &Value) -> Result<bool, TemplateError> {
        let message = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
        let plain = [message("user", "Hello")];
        let with_system = [message("system", "Be brief."), message("user", "Hello")];
        let kwargs = Map::from_iter([(name.to_owned(), value.clone())]);
        let render = |messages: &[Value], kwargs: &Map<String, Value>| {
            self.render(&RenderInput { messages, tools: None, add_generation_prompt: true, kwargs })
        };
        let mut refusal = None;
        let mut compared = false;
        for messages in [plain.as_slice(), with_system.as_slice()] {
            match (render(messages, &Map::new()), render(messages, &kwargs)) {
                (Err(e), Err(_)) => refusal = Some(e),
                (Ok(without), Ok(with)) if without == with => compared = true,
                // Another text, or refused in one of the two only.
                _ => return Ok(true),
            }
        }
        match refusal {
            Some(e) if !compared => Err(e),
            _ => Ok(false),
        }
    }

    fn run(&self, input: &RenderInput<'_>, marks: Option<[char; 2]>) -> Result<String, TemplateError> {
        let name = self.choose(input.tools.is_some_and(|tools| !tools.is_empty()))?;
        let template = self.environment.get_template(name).map_err(|e| self.failed(&e))?;
        let mut context: Vec<(String, JinjaValue)> =
            self.special.iter().map(|(name, text)| (name.to_owned(), JinjaValue::from(text))).collect();
        context.extend(input.kwargs.iter().map(|(name, value)| (name.clone(), JinjaValue::from(Serde(value)))));
        let messages: Vec<Value> = input.messages.iter().map(without_nulls).collect();
        context.push(("messages".to_owned(), JinjaValue::from(Serde(&messages))));
        context.push(("tools".to_owned(), JinjaValue::from(Serde(input.tools))));
        if !input.kwargs.contains_key("documents") {
            context.push(("documents".to_owned(), JinjaValue::from(())));
        }
        context.push(("add_generation_prompt".to_owned(), JinjaValue::from(input.add_generation_prompt)));
        if let Some([open, close]) = marks {
            context.push((rewrite::GENERATION_OPEN.to_owned(), JinjaValue::from(open)));
            context.push((rewrite::GENERATION_CLOSE.to_owned(), JinjaValue::from(close)));
        }
        template.render(JinjaValue::from_pairs(context)).map_err(|e| self.failed(&e))
    }

    /// `tool_use` when there is one and tools are given, else `default`, else the only one.
    fn choose(&self, with_tools: bool) -> Result<&str, TemplateError> {
        let named = |wanted: &str| self.templates.iter().map(|(name, _)| name.as_str()).find(|name| *name == wanted);
        let tool_use = if with_tools { named("tool_use") } else { None };
        match (tool_use.or_else(|| named(source::DEFAULT)), self.templates.as_slice()) {
            (Some(name), _) => Ok(name),
            (None, [(only, _)]) => Ok(only),
            (None, templates) => Err(TemplateError::NoDefault {
                origin: self.origin.clone(),
                names: templates.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    fn failed(&self, e: &minijinja::Error) -> TemplateError {
        match environment::refusal(e) {
            Some(message) => TemplateError::Refused { message },
            None => TemplateError::Failed {
                origin: self.origin.clone(),
                line: e.line().unwrap_or(0),
                message: environment::describe(e),
            },
        }
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A message without keys that hold `null`; a message without content has the empty one.
fn without_nulls(message: &Value) -> Value {
    let Value::Object(message) = message else { return message.clone() };
    let mut message = message.clone();
    message.retain(|_, value| !value.is_null());
    message.entry("content").or_insert_with(|| Value::String(String::new()));
    Value::Object(message)
}

#[cfg(test)]
mod tests;
