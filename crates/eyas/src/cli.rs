//! What can be typed: clap structs only. Each command turns its struct into a checked plan before it does anything.

use crate::recipe::{Engine, GateAction, Protocol, ReasoningMode, Weights};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Raises EAGLE-3 drafters: prepares prompts, has the target answer them, and shows what came back.
///
/// Start with `eyas demo`: it runs every stage on a small bundled model and data set in under two minutes.
#[derive(Debug, Parser)]
#[command(name = "eyas", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print only errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// When to colour and draw bars.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands, in the order in which a run uses them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The whole pipeline on a bundled model and 600 bundled prompts, in under two minutes.
    Demo(DemoArgs),
    /// Read data sets, render the target's chat template, write prompts.
    #[command(
        after_help = "Example: eyas prepare eyas.toml\n         eyas prepare --model models/qwen3 --data chats.jsonl.gz --run runs/r1"
    )]
    Prepare(StageArgs),
    /// Have the target answer every prompt; takes up where it stopped.
    #[command(
        after_help = "Example: eyas generate eyas.toml\n         eyas generate --run runs/r1 --endpoint http://127.0.0.1:30000 --concurrency 256"
    )]
    Generate(GenerateArgs),
    /// Describe answers: a run folder, or any JSONL of model answers.
    #[command(after_help = "Example: eyas inspect runs/r1\n         eyas inspect answers.jsonl more.jsonl.gz --json")]
    Inspect(InspectArgs),
    /// Prepare, generate and inspect in one go.
    #[command(after_help = "Example: eyas run eyas.toml")]
    Run(GenerateArgs),
    /// Serve the target, or a script of lengths and faults, with SGLang's `/generate`.
    #[command(
        after_help = "Example: eyas serve --model models/eyas-tiny --port 30000\n         eyas serve --script slow.toml"
    )]
    Serve(ServeArgs),
}

/// `eyas demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the run; an earlier demo in it is taken up.
    #[arg(long, default_value = "runs/demo")]
    pub(crate) run: PathBuf,
    /// Start anew: remove an earlier demo in the folder first.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print one JSON document with the counts of every stage.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the recipe and the run folder are, and what overrides the recipe.
#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    /// Recipe. Default: `eyas.toml` of the run folder, then of this folder.
    pub(crate) recipe: Option<PathBuf>,
    /// Run folder.
    #[arg(long)]
    pub(crate) run: Option<PathBuf>,
    /// Model folder or GGUF file of the target.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) model: Option<PathBuf>,
    /// A data set, as `PATH` or `NAME=PATH`; may be repeated. Replaces the recipe's data sets.
    #[arg(long, value_name = "[NAME=]PATH", help_heading = "Override the recipe")]
    pub(crate) data: Vec<String>,
    /// Take at most this many prompts of each data set.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) max_prompts: Option<u64>,
    /// Seed of the shuffle and of sampling.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) seed: Option<u64>,
    /// Whether reasoning is wanted.
    #[arg(long, value_enum, help_heading = "Override the recipe")]
    pub(crate) reasoning: Option<ReasoningMode>,
    /// Cap on generated tokens.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) max_new_tokens: Option<u32>,
    /// Softmax temperature; 0 is greedy.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) temperature: Option<f32>,
    /// Nucleus, in (0, 1].
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) top_p: Option<f32>,
    /// Keep the k likeliest tokens; -1 keeps all.
    #[arg(long, allow_negative_numbers = true, help_heading = "Override the recipe")]
    pub(crate) top_k: Option<i32>,
}

/// `eyas prepare`.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Prepare again although prompts of other settings or sources are there; answers to prompts that changed must then be redone.
    #[arg(long)]
    pub(crate) again: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eyas generate` and `eyas run`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Who answers.
    #[arg(long, value_enum, help_heading = "Override the recipe")]
    pub(crate) engine: Option<Engine>,
    /// Base URL of a server; may be repeated. Replaces the recipe's endpoints.
    #[arg(long, value_name = "URL", help_heading = "Override the recipe")]
    pub(crate) endpoint: Vec<String>,
    /// What the endpoints speak.
    #[arg(long, value_enum, help_heading = "Override the recipe")]
    pub(crate) protocol: Option<Protocol>,
    /// Requests in flight.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) concurrency: Option<u32>,
    /// Tries per prompt.
    #[arg(long, help_heading = "Override the recipe")]
    pub(crate) max_attempts: Option<u32>,
    /// What a gate does when it trips.
    #[arg(long, value_enum, help_heading = "Override the recipe")]
    pub(crate) on_gate: Option<GateAction>,
    /// Ask again for the prompts in `failed.jsonl`.
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// Go on although settings that shape answers changed: old answers stay beside the new ones, told apart by fingerprint.
    #[arg(long, conflicts_with = "redo_changed")]
    pub(crate) keep_changed: bool,
    /// Go on although settings that shape answers changed: answers of other settings are set aside and asked again.
    #[arg(long)]
    pub(crate) redo_changed: bool,
    /// Stop after this many new answers (drained, resumable).
    #[arg(long, value_name = "N")]
    pub(crate) stop_after: Option<u64>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eyas inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Run folders, or files of answers: JSONL, plain, `.gz` or `.zst`.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Token counts above which answers are counted.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) thresholds: Vec<u64>,
    /// `tokenizer.json` to count tokens with where the rows carry no counts.
    #[arg(long)]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eyas serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Model folder or GGUF file.
    #[arg(long, required_unless_present = "script", conflicts_with = "script")]
    pub(crate) model: Option<PathBuf>,
    /// Script of lengths, latencies and faults (TOML); no model is needed.
    #[arg(long)]
    pub(crate) script: Option<PathBuf>,
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 30000)]
    pub(crate) port: u16,
    /// Sequences decoded together.
    #[arg(long, default_value_t = 32)]
    pub(crate) max_running: u32,
    /// Longest prompt plus answer, tokens.
    #[arg(long)]
    pub(crate) context_len: Option<u32>,
    /// How weights are held.
    #[arg(long, value_enum, default_value_t = Weights::F32)]
    pub(crate) weights: Weights,
}
