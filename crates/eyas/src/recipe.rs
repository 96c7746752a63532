//! The recipe (`eyas.toml`): its one definition, how it is read, and what flags may override.
//!
//! Paths in a recipe are relative to the recipe's own folder. Unknown keys are errors that name the nearest known one. The recipe as
//! given is copied into the run folder; the settled one (all defaults filled in) lies in `manifest.json`.

use crate::error::{CommandError, ErrorKind};
use eyas_types::SamplingParams;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A whole recipe. Every key has a default except `dataset` and, for real servers, `generate.endpoints`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Recipe {
    /// Run folder; `--run` overrides. Default: `runs/<recipe name>` beside the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<PathBuf>,
    /// Seed of everything that is drawn: the shuffle of the prompts, sampling where the engine takes a seed. Default 0.
    pub(crate) seed: u64,
    /// The model that answers.
    pub(crate) target: TargetRecipe,
    /// How reasoning is found and whether it is wanted.
    pub(crate) reasoning: ReasoningRecipe,
    /// Where prompts come from; at least one.
    pub(crate) dataset: Vec<DatasetRecipe>,
    /// How answers are drawn; every value is sent, server defaults are never used.
    pub(crate) sampling: SamplingParams,
    /// Who answers, and how hard they are driven.
    pub(crate) generate: GenerateRecipe,
    /// The embedded engine, where `generate.engine = "embedded"`.
    pub(crate) embedded: EmbeddedRecipe,
    /// What is watched while answers come in.
    pub(crate) gates: GatesRecipe,
    /// What `eyas inspect` reports.
    pub(crate) inspect: InspectRecipe,
}

/// The served model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TargetRecipe {
    /// Model folder (`config.json`, `tokenizer.json`, `chat_template.jinja` or `tokenizer_config.json`; weights only for the embedded
    /// engine), or a `.gguf` file.
    pub(crate) model: PathBuf,
    /// `tokenizer.json`, when it lies elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Chat template file, when it is not the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Arguments handed to the chat template (`enable_thinking`, `thinking`, `reasoning_effort`, …). One that changes nothing is an error.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) template_kwargs: Map<String, Value>,
    /// The date a template sees through `strftime_now`, `YYYY-MM-DD`; recorded, so that a resumed run renders the same prompts. Default: the day the run folder was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template_date: Option<String>,
}

/// Reasoning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReasoningRecipe {
    /// `auto` (expected when the prompts open a think block), `on` (answers without reasoning are flagged and gated) or `off` (answers
    /// with reasoning are flagged). `off` and `on` also set the template's own switch where it has one. Default `auto`.
    pub(crate) mode: ReasoningMode,
    /// Markup: `auto` finds it from the tokenizer and the template; or a name such as `think`, `channels`, `mistral`. Default `auto`.
    pub(crate) format: String,
}

impl Default for ReasoningRecipe {
    fn default() -> Self {
        Self { mode: ReasoningMode::Auto, format: "auto".into() }
    }
}

/// Whether reasoning is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReasoningMode {
    /// As the prompt ids say.
    Auto,
    /// Wanted.
    On,
    /// Not wanted.
    Off,
}

/// One data set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DatasetRecipe {
    /// Name; also the folder under `prepared/`. Default: the file's name without extensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// A file or a folder of files: JSONL, JSON or Parquet, plain, `.gz` or `.zst`.
    pub(crate) path: PathBuf,
    /// How files are read: `auto`, `jsonl`, `json` or `parquet`. Default `auto`: by name and content, and said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<String>,
    /// Shape of the rows: `auto`, `messages`, `conversations`, `prompt`, `instruction`, `text`. Default `auto`: found from the rows and said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<String>,
    /// Field that holds the rows of a wrapped JSON document (`{"data": [...]}`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) records_field: Option<String>,
    /// Field that holds the conversation or prompt, when it has an unusual name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// Replace half surrogate escapes by U+FFFD (marked as repaired) where they would otherwise reject the row. Default false.
    pub(crate) repair_surrogates: bool,
    /// Take at most this many prompts, a prefix of the seeded shuffle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_prompts: Option<u64>,
    /// Reject prompts of fewer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_prompt_tokens: Option<u32>,
    /// Reject prompts of more tokens. Default: what the target's context leaves after `sampling.max_new_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_prompt_tokens: Option<u32>,
}

/// Generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GenerateRecipe {
    /// `embedded` starts a server over the target inside this process; `server` uses `endpoints`. Default: `server` when endpoints are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<Engine>,
    /// Base URLs, `http://host:port`.
    pub(crate) endpoints: Vec<String>,
    /// What the endpoints speak: `sglang` (`/generate` with ids) or `openai` (`/v1/chat/completions` with text; needs `allow_text`). Default `sglang`.
    pub(crate) protocol: Protocol,
    /// Model name for OpenAI-style servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) served_model: Option<String>,
    /// Take answers that come without token ids. They are marked `no_ids` and cannot become exact training records. Default false.
    pub(crate) allow_text: bool,
    /// Requests in flight, over all endpoints. Default 64.
    pub(crate) concurrency: u32,
    /// Tries per prompt before it goes to `failed.jsonl`. Default 5.
    pub(crate) max_attempts: u32,
    /// Longest wait for one answer, seconds. Default 3600.
    pub(crate) timeout_s: u64,
    /// How often answers are forced to disk, milliseconds: an answer counts as done only after that. Default 200.
    pub(crate) sync_ms: u64,
    /// How long all endpoints may refuse connections before the run stops (all prompts stay pending), seconds. Default 120.
    pub(crate) server_down_s: u64,
}

impl Default for GenerateRecipe {
    fn default() -> Self {
        Self {
            engine: None,
            endpoints: Vec::new(),
            protocol: Protocol::Sglang,
            served_model: None,
            allow_text: false,
            concurrency: 64,
            max_attempts: 5,
            timeout_s: 3600,
            sync_ms: 200,
            server_down_s: 120,
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// A server over the target, inside this process.
    Embedded,
    /// Servers that run elsewhere.
    Server,
}

/// Wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// SGLang's native `/generate`: ids in, ids out.
    Sglang,
    /// `/v1/chat/completions`: messages in, text out.
    Openai,
}

/// The embedded engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EmbeddedRecipe {
    /// Sequences decoded together. Default 32.
    pub(crate) max_running: u32,
    /// Longest prompt plus answer, tokens. Default: what the model's config says, at most 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_len: Option<u32>,
    /// How weights are held: `f32` (exact), `bf16`, `q8_0` or `native` (a GGUF's own blocks). Default `f32`.
    pub(crate) weights: Weights,
}

impl Default for EmbeddedRecipe {
    fn default() -> Self {
        Self { max_running: 32, context_len: None, weights: Weights::F32 }
    }
}

/// How the embedded engine holds weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Weights {
    /// Widened to f32.
    F32,
    /// Rounded to bf16.
    Bf16,
    /// Quantized to 8 bits.
    Q8_0,
    /// As stored.
    Native,
}

impl From<Weights> for eyas_target::WeightMode {
    fn from(weights: Weights) -> Self {
        match weights {
            Weights::F32 => Self::F32,
            Weights::Bf16 => Self::Bf16,
            Weights::Q8_0 => Self::Q8_0,
            Weights::Native => Self::Native,
        }
    }
}

/// Gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GatesRecipe {
    /// Smallest share of answers with reasoning that a reasoning run may show in its first `reasoning_window` answers. Default 0.5.
    pub(crate) min_reasoning_capture: f64,
    /// How many answers the capture rate is first judged on. Default 50.
    pub(crate) reasoning_window: u32,
    /// What happens below it: `stop` or `warn`. Default `stop`.
    pub(crate) action: GateAction,
}

impl Default for GatesRecipe {
    fn default() -> Self {
        Self { min_reasoning_capture: 0.5, reasoning_window: 50, action: GateAction::Stop }
    }
}

/// What a tripped gate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GateAction {
    /// Drain and stop; the run can be resumed.
    Stop,
    /// Say so and go on.
    Warn,
}

/// Inspection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct InspectRecipe {
    /// Token counts above which answers are counted. Default 1024, 2048, 4096, 8192.
    pub(crate) thresholds: Vec<u64>,
}

impl Default for InspectRecipe {
    fn default() -> Self {
        Self { thresholds: vec![1024, 2048, 4096, 8192] }
    }
}

impl Recipe {
    /// Reads a recipe and makes its paths relative to where the process stands.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            CommandError::new(ErrorKind::Usage, anyhow::anyhow!("cannot read recipe `{}`: {error}", path.display()))
        })?;
        let mut recipe = Self::parse(&text).map_err(|problem| {
            let error = CommandError::new(
                ErrorKind::Usage,
                anyhow::anyhow!("recipe `{}` cannot be used: {}", path.display(), problem.message.trim_end()),
            );
            match problem.nearest {
                Some(nearest) => error.hint(format!("did you mean `{nearest}`?")),
                None => error,
            }
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        recipe.resolve(base);
        if recipe.run.is_none() {
            let name = path.file_stem().filter(|stem| *stem != "eyas").unwrap_or("run".as_ref());
            recipe.run = Some(base.join("runs").join(name));
        }
        Ok(recipe)
    }

    /// Parses the text of a recipe; nothing is resolved.
    pub(crate) fn parse(text: &str) -> Result<Self, RecipeProblem> {
        toml::from_str(text)
            .map_err(|error| RecipeProblem { nearest: nearest_known(error.message()), message: error.to_string() })
    }

    fn resolve(&mut self, base: &Path) {
        let join = |path: &mut PathBuf| {
            if path.is_relative() && !path.as_os_str().is_empty() {
                *path = base.join(&*path);
            }
        };
        self.run.iter_mut().for_each(join);
        join(&mut self.target.model);
        self.target.tokenizer.iter_mut().for_each(join);
        self.target.chat_template.iter_mut().for_each(join);
        self.dataset.iter_mut().for_each(|dataset| join(&mut dataset.path));
    }

    /// Who answers, after the default is filled in.
    pub(crate) fn engine(&self) -> Engine {
        self.generate.engine.unwrap_or(if self.generate.endpoints.is_empty() {
            Engine::Embedded
        } else {
            Engine::Server
        })
    }
}

impl DatasetRecipe {
    /// The given name, or the file's name up to its first dot.
    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| {
            let file = self.path.file_name().unwrap_or_default().to_string_lossy();
            file.split('.').find(|part| !part.is_empty()).unwrap_or("dataset").to_owned()
        })
    }
}

/// Why a recipe does not parse.
#[derive(Debug)]
pub(crate) struct RecipeProblem {
    /// The parser's message, with line and column.
    pub(crate) message: String,
    /// The known key nearest to an unknown one.
    pub(crate) nearest: Option<String>,
}

/// serde's message for an unknown key lists the known ones in back-ticks: pick the nearest.
fn nearest_known(message: &str) -> Option<String> {
    let names = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut names = names.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    names
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(unknown.len()) / 2)
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_name_the_nearest_known_one() {
        let check = |text: &str, nearest: Option<&str>| {
            let problem = Recipe::parse(text).expect_err("an unknown key is an error");
            assert_eq!(problem.nearest.as_deref(), nearest, "{}", problem.message);
        };
        check("[generate]\nconcurency = 3", Some("concurrency"));
        check("[sampling]\ntemprature = 0.0", Some("temperature"));
        check("[[dataset]]\npth = 'x'", Some("path"));
        check("[generate]\nengine = 'embeded'", Some("embedded"));
        check("zzzzzzzzzzzzzzzzz = 1", None);
    }

    #[test]
    fn a_settled_recipe_reads_back_as_itself() {
        let recipe =
            Recipe::parse("seed = 7\n[target]\nmodel = 'm'\n[[dataset]]\npath = 'a.jsonl.gz'\n[sampling]\ntop_k = 20")
                .unwrap();
        assert_eq!(recipe.dataset[0].name(), "a");
        let settled = toml::to_string(&recipe).unwrap();
        assert_eq!(Recipe::parse(&settled).unwrap(), recipe);
    }

    #[test]
    fn the_reference_describes_every_key() {
        let reference = include_str!("../../../docs/recipe.md");
        for table in [
            "",
            "[target]",
            "[reasoning]",
            "[[dataset]]",
            "[sampling]",
            "[generate]",
            "[embedded]",
            "[gates]",
            "[inspect]",
        ] {
            let problem = Recipe::parse(&format!("{table}\nzzz = 1")).expect_err("an unknown key is an error");
            let (_, known) = problem.message.split_once("expected").expect("the message lists the known keys");
            for key in known.split('`').skip(1).step_by(2) {
                let told = reference.contains(&format!("`{key}`")) || reference.contains(&format!("[{key}]"));
                assert!(told || ["run", "seed"].contains(&key), "docs/recipe.md does not describe `{key}` of {table}");
            }
        }
    }
}
