//! What preparing and generating need of the target, weights aside: tokenizer, chat template, reasoning format, limits, and the names and
//! hashes that go into the run's fingerprint.

use crate::error::CommandError;
use crate::recipe::{ReasoningMode, Recipe};
use eyas_prompts::reasoning::ReasoningFormat;
use eyas_prompts::template::{ChatTemplate, PinnedDate, PromptRenderer, PromptSettings};
use eyas_prompts::tokenizer::{SpecialTokens, Tokenizer};
use eyas_target::Target;
use eyas_types::FingerprintInputs;
use serde_json::{Map, Value, json};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The target without its weights.
pub(crate) struct TargetFiles {
    /// Text to ids and back.
    pub(crate) tokenizer: Tokenizer,
    /// How reasoning is marked.
    pub(crate) format: ReasoningFormat,
    /// What shapes the prompts, by name.
    pub(crate) inputs: FingerprintInputs,
    /// Ids below this exist.
    pub(crate) vocab_size: u32,
    /// Prompt and answer together, tokens, as the model's config says.
    pub(crate) context_len: Option<u32>,
    /// Arguments for the template: the recipe's, and the reasoning switch.
    pub(crate) template_kwargs: Map<String, Value>,
    template: ChatTemplate,
}

/// Names under which templates take the reasoning switch.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

impl TargetFiles {
    /// Reads the target's small files. `date` is what templates see as today.
    pub(crate) fn load(recipe: &Recipe, date: &str) -> Result<Self, CommandError> {
        let target = &recipe.target;
        let model = &target.model;
        let date: PinnedDate = date.parse().map_err(|error: eyas_prompts::template::BadDate| {
            CommandError::usage(anyhow::Error::new(error).context("target: template_date"))
        })?;
        let parts = if model.is_dir() {
            Parts::of_folder(recipe, date)?
        } else if model.is_file() {
            Parts::of_gguf(recipe, date)?
        } else {
            return Err(CommandError::usage(anyhow::anyhow!("the target `{}` does not exist", model.display()))
                .hint("`model` is a local folder (config.json, tokenizer.json, chat template) or a .gguf file"));
        };
        let Parts { tokenizer, tokenizer_hash, template, context_len, vocab_size } = parts;
        let format = match recipe.reasoning.format.as_str() {
            "auto" => ReasoningFormat::detect(&tokenizer, template.text()),
            name => ReasoningFormat::named(name, Some(&tokenizer))
                .map_err(|error| CommandError::usage(anyhow::Error::new(error).context("reasoning: format")))?,
        };
        let mut files = Self {
            vocab_size: vocab_size.unwrap_or_else(|| tokenizer.n_ids()),
            tokenizer,
            format,
            inputs: FingerprintInputs::default(),
            context_len,
            template_kwargs: target.template_kwargs.clone(),
            template,
        };
        files.check_kwargs(recipe)?;
        files.inputs.set("target.tokenizer", tokenizer_hash);
        let templates: String = files.template.texts().map(|(name, text)| format!("{name}\0{text}\0")).collect();
        files.inputs.set("target.chat_template", hash(templates.as_bytes()));
        files.inputs.set("target.template_kwargs", Value::Object(files.template_kwargs.clone()).to_string());
        if files.template.uses_date() {
            files.inputs.set("target.template_date", json!(recipe.target.template_date));
        }
        files.inputs.set("reasoning.format", files.format.name());
        Ok(files)
    }

    /// Arguments must have an effect, because a template ignores those it does not know; the reasoning switch is set where there is one.
    fn check_kwargs(&mut self, recipe: &Recipe) -> Result<(), CommandError> {
        let unusable = |error: eyas_prompts::template::TemplateError| {
            CommandError::usage(anyhow::Error::new(error).context("the target's chat template cannot be used"))
        };
        for (name, value) in &recipe.target.template_kwargs {
            if !self.template.kwarg_has_effect(name, value).map_err(unusable)? {
                return Err(CommandError::usage(anyhow::anyhow!(
                    "template argument `{name} = {value}` changes nothing: the template `{}` does not know it, or that is its default",
                    self.template.origin()
                ))
                .hint("leave it out of `template_kwargs`, or look up its name in the template"));
            }
        }
        let switch = match recipe.reasoning.mode {
            ReasoningMode::Auto => return Ok(()),
            ReasoningMode::On => true,
            ReasoningMode::Off => false,
        };
        for name in SWITCHES {
            let free = !self.template_kwargs.contains_key(name);
            if free && self.template.kwarg_has_effect(name, &Value::Bool(switch)).map_err(unusable)? {
                self.template_kwargs.insert(name.into(), Value::Bool(switch));
            }
        }
        Ok(())
    }

    /// The renderer of prompts, and the format's name with the reason for it.
    pub(crate) fn into_renderer(self) -> Result<PromptRenderer, CommandError> {
        let settings = PromptSettings { kwargs: self.template_kwargs, ..PromptSettings::default() };
        PromptRenderer::new(self.template, self.tokenizer, self.format, settings)
            .map_err(|error| CommandError::usage(anyhow::Error::new(error).context("target: template_kwargs")))
    }
}

/// What a folder and a GGUF file both come down to.
struct Parts {
    tokenizer: Tokenizer,
    tokenizer_hash: String,
    template: ChatTemplate,
    context_len: Option<u32>,
    vocab_size: Option<u32>,
}

impl Parts {
    fn of_folder(recipe: &Recipe, date: PinnedDate) -> Result<Self, CommandError> {
        let model = &recipe.target.model;
        let tokenizer_path = recipe.target.tokenizer.clone().unwrap_or_else(|| model.join("tokenizer.json"));
        let mut tokenizer = Tokenizer::load(model);
        if recipe.target.tokenizer.is_some() {
            let special = tokenizer.as_ref().ok().map(|tokenizer| tokenizer.special_tokens().clone());
            tokenizer = Tokenizer::from_file(&tokenizer_path)
                .map(|tokenizer| tokenizer.with_special_tokens(special.unwrap_or_default()));
        }
        let tokenizer = tokenizer.map_err(|error| {
            CommandError::usage(anyhow::Error::new(error).context("the target's tokenizer cannot be used")).hint(
                "eyas sends token ids, so it needs the model's `tokenizer.json` (set `tokenizer` if it lies elsewhere)",
            )
        })?;
        let bytes = std::fs::read(&tokenizer_path).unwrap_or_default();
        let template = template_of(recipe, tokenizer.special_tokens(), date, |special| {
            ChatTemplate::load(model, special, Some(date))
        })?;
        let config = read_json(&model.join("config.json"));
        let of_config = |name: &str| -> Option<u32> {
            let inner = config.get("text_config").unwrap_or(&Value::Null);
            let value = config.get(name).or_else(|| inner.get(name))?.as_u64()?;
            u32::try_from(value).ok()
        };
        Ok(Self {
            tokenizer_hash: hash(&bytes),
            tokenizer,
            template,
            context_len: of_config("max_position_embeddings"),
            vocab_size: of_config("vocab_size"),
        })
    }

    fn of_gguf(recipe: &Recipe, date: PinnedDate) -> Result<Self, CommandError> {
        let unusable = |error: &dyn std::fmt::Display| {
            CommandError::usage(anyhow::anyhow!(
                "the target `{}` cannot be used: {error}",
                recipe.target.model.display()
            ))
        };
        let target = Target::open(&recipe.target.model, recipe.embedded.weights.into())
            .map_err(|error| CommandError::usage(anyhow::Error::new(error).context("the target cannot be used")))?;
        let json = target.tokenizer.to_string(false).map_err(|error| unusable(&error))?;
        let special = SpecialTokens::new(target.special_tokens.clone());
        let tokenizer =
            Tokenizer::from_bytes(json.as_bytes()).map_err(|error| unusable(&error))?.with_special_tokens(special);
        let text = target.chat_template.clone();
        let template = template_of(recipe, tokenizer.special_tokens(), date, |special| {
            ChatTemplate::from_text(text.as_deref().unwrap_or_default(), "GGUF metadata", special, Some(date))
        })?;
        let config = target.model.config();
        Ok(Self {
            tokenizer_hash: hash(json.as_bytes()),
            tokenizer,
            template,
            context_len: u32::try_from(config.context_len).ok(),
            vocab_size: u32::try_from(config.vocab_size).ok(),
        })
    }
}

fn template_of(
    recipe: &Recipe,
    special: &SpecialTokens,
    date: PinnedDate,
    own: impl FnOnce(&SpecialTokens) -> Result<ChatTemplate, eyas_prompts::template::TemplateError>,
) -> Result<ChatTemplate, CommandError> {
    match &recipe.target.chat_template {
        Some(path) => ChatTemplate::from_file(path, special, Some(date)),
        None => own(special),
    }
    .map_err(|error| {
        CommandError::usage(anyhow::Error::new(error).context("the target's chat template cannot be used"))
            .hint("set `chat_template` under `[target]` to the file with the template that the model is served with")
    })
}

fn read_json(path: &Path) -> Value {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(Value::Null)
}

fn hash(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}
