//! `eyas prepare`: data sets become prompts.

use crate::cli::StageArgs;
use crate::error::{CommandError, Ending};
use crate::manifest::Manifest;
use crate::recipe::DatasetRecipe;
use crate::settled::Settled;
use crate::talk::{Talk, print_json, thousands};
use crate::target_files::TargetFiles;
use eyas_prompts::normalise::{SchemaName, SchemaOptions};
use eyas_prompts::prepare::{
    Duplicates, PrepareError, PrepareEvent, PrepareKey, PreparePlan, PrepareReport, PromptFilter, prepare,
};
use eyas_prompts::source::{Format, OpenError, SourceOptions, Surrogates};
use eyas_prompts::template::PromptRenderer;
use eyas_types::FingerprintInputs;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "eyas.prepare/1";

/// What `eyas prepare --json` prints, and what the manifest keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PrepareDocument {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// Rows read, over all data sets.
    pub(crate) read: u64,
    /// Prompts written.
    pub(crate) loaded: u64,
    /// Rows not taken.
    pub(crate) rejected: u64,
    /// Reasoning markup of the target, and how it was found.
    pub(crate) reasoning_format: String,
    /// Prompts whose data spelt a control token of the target; it was kept as plain text.
    pub(crate) with_control_tokens: u64,
    /// Each data set.
    pub(crate) datasets: Vec<DatasetDocument>,
}

/// One data set of the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DatasetDocument {
    /// Whether the prompts were there already, made of the same rows with the same settings.
    pub(crate) unchanged: bool,
    /// What the prompts were made of.
    pub(crate) key: PrepareKey,
    /// What became of the rows.
    pub(crate) report: PrepareReport,
}

impl PrepareDocument {
    /// The document that a manifest holds.
    pub(crate) fn of_manifest(manifest: &Manifest) -> Option<Self> {
        serde_json::from_value(manifest.prepare.clone()?).ok()
    }

    fn dataset(&self, name: &str) -> Option<&DatasetDocument> {
        self.datasets.iter().find(|dataset| dataset.report.dataset == name)
    }

    /// 1 when rows were rejected or a file broke off, else 0.
    pub(crate) fn ending(&self) -> Ending {
        // Leaving out what lies behind `max_prompts` is what was asked for.
        let unasked = |dataset: &DatasetDocument| {
            let rejected = &dataset.report.rejected_by_reason;
            dataset.report.broken_files().next().is_some()
                || rejected.iter().any(|(reason, n)| reason != "over_max_prompts" && *n > 0)
        };
        if self.datasets.iter().any(unasked) { Ending::Findings } else { Ending::Done }
    }
}

/// Runs the command.
pub(crate) fn command(args: &StageArgs, talk: Talk) -> Result<Ending, CommandError> {
    let settled = Settled::from_args(&args.recipe)?;
    let document = execute(&settled, args.again, talk)?;
    if args.json {
        print_json(&document).map_err(CommandError::input)?;
    }
    talk.say(format!("next: eyas generate --run {}", settled.run.display()));
    Ok(document.ending())
}

/// Prepares every data set of the recipe and records it in the manifest.
pub(crate) fn execute(settled: &Settled, again: bool, talk: Talk) -> Result<PrepareDocument, CommandError> {
    let Settled { recipe, run } = settled;
    let mut manifest = Manifest::open(run, recipe)?;
    let files = TargetFiles::load(recipe, &manifest.template_date)?;
    let before = PrepareDocument::of_manifest(&manifest);
    let reasoning_format = format!("{} ({})", files.format.name(), files.format.why());
    talk.say(format!("reasoning format: {reasoning_format}"));
    let max_tokens = room_for_prompts(files.context_len, recipe.sampling.max_new_tokens)?;
    let inputs = files.inputs.clone();
    let renderer = files.into_renderer()?;

    let mut datasets = Vec::new();
    for dataset in &recipe.dataset {
        let plan = plan(settled, dataset, max_tokens)?;
        let earlier = before.as_ref().and_then(|before| before.dataset(&plan.dataset));
        let document = prepare_dataset(&plan, &renderer, &inputs, earlier, again, talk)?;
        datasets.push(document);
    }
    let sum = |pick: fn(&PrepareReport) -> u64| datasets.iter().map(|dataset| pick(&dataset.report)).sum::<u64>();
    let document = PrepareDocument {
        schema: SCHEMA.into(),
        read: sum(|report| report.read),
        loaded: sum(|report| report.loaded),
        rejected: sum(|report| report.rejected),
        reasoning_format,
        with_control_tokens: renderer.n_with_control_tokens(),
        datasets,
    };
    if document.with_control_tokens > 0 {
        talk.say(format!(
            "{} prompts spell control tokens of the target in their data; there they were kept as plain text",
            thousands(document.with_control_tokens)
        ));
    }
    manifest.prepare = serde_json::to_value(&document).ok();
    manifest.save(run)?;
    Ok(document)
}

/// What the target's context leaves for a prompt, tokens; `None` where the context is not known.
fn room_for_prompts(context_len: Option<u32>, max_new_tokens: u32) -> Result<Option<u32>, CommandError> {
    let Some(context_len) = context_len else { return Ok(None) };
    match context_len.checked_sub(max_new_tokens) {
        None | Some(0) => Err(CommandError::usage(anyhow::anyhow!(
            "max_new_tokens {max_new_tokens} leaves no room for a prompt: the target's context is {context_len} tokens"
        ))
        .hint("lower `max_new_tokens` under `[sampling]`, or give --max-new-tokens")),
        room => Ok(room),
    }
}

fn plan(settled: &Settled, dataset: &DatasetRecipe, max_tokens: Option<u32>) -> Result<PreparePlan, CommandError> {
    let name = dataset.name();
    let schema = match dataset.schema.as_deref() {
        None | Some("auto") => None,
        Some(word) => Some(SchemaName::from_word(word).ok_or_else(|| {
            let known = SchemaName::ALL.map(SchemaName::as_str).join("`, `");
            CommandError::usage(anyhow::anyhow!(
                "data set `{name}`: unknown schema `{word}`; known are `auto`, `{known}`"
            ))
        })?),
    };
    let format = match dataset.format.as_deref() {
        None | Some("auto") => None,
        Some(word) => Some(Format::from_word(word).ok_or_else(|| {
            CommandError::usage(anyhow::anyhow!(
                "data set `{name}`: unknown format `{word}`; known are `auto`, `jsonl`, `json`, `parquet`"
            ))
        })?),
    };
    Ok(PreparePlan {
        out_dir: settled.dataset_dir(&name),
        dataset: name,
        paths: vec![dataset.path.clone()],
        source: SourceOptions {
            format,
            field: dataset.records_field.clone(),
            surrogates: if dataset.repair_surrogates { Surrogates::Repair } else { Surrogates::Reject },
            ..SourceOptions::default()
        },
        schema: SchemaOptions { schema, field: dataset.field.clone(), ..SchemaOptions::default() },
        filter: PromptFilter {
            min_tokens: dataset.min_prompt_tokens,
            max_tokens: dataset.max_prompt_tokens.or(max_tokens),
            max_prompts: dataset.max_prompts,
        },
        duplicates: Duplicates::Keep,
        seed: settled.recipe.seed,
        n_threads: std::thread::available_parallelism().map_or(1, usize::from),
        low_yield_percent: 50,
    })
}

fn prepare_dataset(
    plan: &PreparePlan,
    renderer: &PromptRenderer,
    inputs: &FingerprintInputs,
    earlier: Option<&DatasetDocument>,
    again: bool,
    talk: Talk,
) -> Result<DatasetDocument, CommandError> {
    let name = &plan.dataset;
    let key =
        PrepareKey::of(plan, inputs, earlier.map(|earlier| &earlier.key)).map_err(|error| input_error(name, error))?;
    if let Some(earlier) = earlier.filter(|_| plan.prompts_path().is_file()) {
        let changes = key.changes_since(&earlier.key);
        if changes.is_empty() {
            talk.say(format!("{name}: already prepared, {} prompts", thousands(earlier.report.loaded)));
            return Ok(DatasetDocument { unchanged: true, ..earlier.clone() });
        }
        if !again && has_answers(&plan.out_dir) {
            return Err(CommandError::input(anyhow::anyhow!(
                "data set `{name}` has answers to prompts that were prepared differently: {}",
                changes.join("; ")
            ))
            .hint("use another run folder (--run), or prepare again with --again: answers to unchanged prompts stay, prompts that changed must be redone"));
        }
        talk.say(format!("{name}: preparing again: {}", changes.join("; ")));
    }
    let mut show = |event: &PrepareEvent<'_>| match event {
        PrepareEvent::File { path, layout } => talk.say(format!("{name}: reading {path} ({layout})")),
        PrepareEvent::Mapping { description } => talk.say(format!("{name}: {description}")),
        PrepareEvent::Progress { n_rows, n_rejected, n_bytes, n_bytes_total } => talk.say(format!(
            "{name}: {} rows read, {n_rejected} rejected, {} % of the bytes",
            thousands(*n_rows),
            (100 * n_bytes).checked_div(*n_bytes_total).unwrap_or(100)
        )),
        PrepareEvent::Writing { n_prompts } => talk.say(format!("{name}: writing {} prompts", thousands(*n_prompts))),
    };
    let report = prepare(plan, renderer, &mut show).map_err(|error| prepare_error(plan, error))?;
    show_report(&report, &plan.rejected_path(), talk);
    Ok(DatasetDocument { unchanged: false, key, report })
}

fn has_answers(dir: &Path) -> bool {
    std::fs::metadata(dir.join("raw_responses.jsonl")).is_ok_and(|metadata| metadata.len() > 0)
}

fn show_report(report: &PrepareReport, rejected: &Path, talk: Talk) {
    talk.say(format!("{}: {report}", report.dataset));
    if !report.repaired_by_kind.is_empty() {
        let kinds: Vec<_> = report.repaired_by_kind.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        talk.say(format!("{}: mended or noticed: {}", report.dataset, kinds.join(", ")));
    }
    for file in report.broken_files() {
        talk.warn(format!("{} could not be read to its end: {}", file.path, file.emptiness()));
    }
    for example in report.examples.iter().filter(|example| example.reason != "over_max_prompts").take(3) {
        talk.say(format!("  {}:{}: {}", example.source.file, example.source.row, example.detail));
    }
    if report.rejected > 0 {
        talk.say(format!("  every rejected row: {}", rejected.display()));
    }
    if report.low_yield {
        talk.warn(format!("only {:.1} % of the rows of `{}` were kept", report.kept_percent, report.dataset));
    }
}

fn input_error(dataset: &str, error: impl Into<anyhow::Error>) -> CommandError {
    CommandError::input(error.into().context(format!("data set `{dataset}`")))
}

fn prepare_error(plan: &PreparePlan, error: PrepareError) -> CommandError {
    let hint = match &error {
        PrepareError::Open(OpenError::NeedsField { .. } | OpenError::FieldMissing { .. }) => {
            "set `records_field` under `[[dataset]]` to the field that holds the rows"
        }
        PrepareError::Open(OpenError::ArrayNotLines { .. } | OpenError::ObjectNotLines { .. }) => {
            "set `format = \"json\"` under `[[dataset]]`, or give the file the ending .json"
        }
        PrepareError::NoSchema { .. } => {
            "set `schema` and `field` under `[[dataset]]`; for rows that are rendered already: `schema = \"text\"`"
        }
        PrepareError::NothingKept { .. } => {
            "loosen the limits under `[[dataset]]`, or mend the rows that rejected.jsonl lists"
        }
        _ => return input_error(&plan.dataset, error),
    };
    let error = match error {
        // These name the data set themselves.
        PrepareError::NoSchema { .. } | PrepareError::NothingKept { .. } => CommandError::input(error),
        error => input_error(&plan.dataset, error),
    };
    error.hint(hint)
}
