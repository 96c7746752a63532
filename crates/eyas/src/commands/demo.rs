//! `eyas demo`: the whole pipeline on the bundled model and prompts.

use super::{inspect, run};
use crate::cli::DemoArgs;
use crate::commands::generate::GenerateOptions;
use crate::demo_data;
use crate::error::{CommandError, Ending};
use crate::grade::Grades;
use crate::settled::Settled;
use crate::talk::{Talk, duration, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// What `eyas demo --json` prints.
#[derive(Debug, Serialize)]
struct DemoDocument {
    /// `eyas.demo/1`.
    schema: &'static str,
    /// Time of all stages, seconds.
    wall_s: f64,
    /// Right answers.
    answers: Grades,
    /// The stages, as in `eyas run --json`.
    #[serde(flatten)]
    stages: Stages,
}

/// The documents of the stages.
#[derive(Debug, Serialize)]
struct Stages {
    run: String,
    prepare: super::prepare::PrepareDocument,
    generate: super::generate::GenerateDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    inspect: Option<eyas_inspect::Inspection>,
}

/// Runs the command.
pub(crate) fn command(args: &DemoArgs, talk: Talk) -> Result<Ending, CommandError> {
    let start = Instant::now();
    if args.fresh {
        remove_earlier(&args.run)?;
    }
    let mut recipe = demo_data::unpack(&args.run)?;
    recipe.run = Some(args.run.clone());
    let settled = Settled { recipe, run: args.run.clone() }.checked()?;
    let (document, ending) = run::execute(&settled, GenerateOptions::default(), talk)?;

    let journals: Vec<_> = settled
        .recipe
        .dataset
        .iter()
        .map(|dataset| (dataset.name(), settled.dataset_dir(&dataset.name()).join("raw_responses.jsonl")))
        .filter(|(_, path)| path.is_file())
        .collect();
    let answers = Grades::of(journals.iter().map(|(name, path)| (name.clone(), path.as_path())))?;
    let wall_s = start.elapsed().as_secs_f64();
    let ending = demo_ending(ending, &document);
    if args.json {
        let run::RunDocument { schema: _, run, prepare, generate, inspect } = document;
        let stages = Stages { run, prepare, generate, inspect };
        print_json(&DemoDocument { schema: "eyas.demo/1", wall_s, answers, stages }).map_err(CommandError::input)?;
        return Ok(ending);
    }
    let mut text = String::new();
    if let Some(inspection) = &document.inspect {
        text = eyas_report::terminal(inspection, &inspect::style(talk));
    }
    text.push_str(&closing(&answers, wall_s, &settled.run));
    print(&text).map_err(CommandError::input)?;
    Ok(ending)
}

/// The bundled target is small and errs now and then: what inspection finds about its answers is what the demo shows, not a failure of
/// it. Rows that were rejected and prompts that were given up are.
fn demo_ending(ending: Ending, document: &run::RunDocument) -> Ending {
    let whole = document.prepare.rejected == 0 && document.generate.failed == 0;
    if ending == Ending::Findings && whole { Ending::Done } else { ending }
}

fn closing(answers: &Grades, wall_s: f64, run: &Path) -> String {
    let mut text = String::from("\n");
    let percent = |right: u64, graded: u64| if graded == 0 { 0.0 } else { 100.0 * right as f64 / graded as f64 };
    let sets: Vec<_> =
        answers.datasets.iter().map(|set| format!("{} {:.1} %", set.name, percent(set.right, set.graded))).collect();
    let run = run.display();
    writeln!(
        text,
        "Right answers: {} of {} ({:.1} %): {}. All stages took {}.\n",
        answers.right,
        answers.graded,
        percent(answers.right, answers.graded),
        sets.join(", "),
        duration(wall_s)
    )
    .and_then(|()| {
        write!(
            text,
            "What to do next:\n\
             \x20 look at an answer      head -n 1 {run}/prepared/arithmetic/raw_responses.jsonl\n\
             \x20 see what was rejected  ls {run}/prepared/*/\n\
             \x20 inspect any answers    eyas inspect {run}   (or any JSONL of model answers)\n\
             \x20 your own target        write an eyas.toml as the README shows, then: eyas run eyas.toml\n"
        )
    })
    .ok();
    text
}

/// Removes an earlier demo; refuses a folder that is something else.
fn remove_earlier(run: &Path) -> Result<(), CommandError> {
    let is_demo = run.join("target/model.safetensors").is_file() && run.join("data").is_dir();
    if run.exists() && !is_demo && run.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CommandError::usage(anyhow::anyhow!(
            "`{}` is not an earlier demo; it is left alone",
            run.display()
        ))
        .hint("name another folder with --run"));
    }
    match std::fs::remove_dir_all(run) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CommandError::input(anyhow::Error::new(error).context(format!("cannot remove `{}`", run.display()))))
        }
        _ => Ok(()),
    }
}
