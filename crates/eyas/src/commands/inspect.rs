//! `eyas inspect`: describe answers, of a run or of anyone.

use crate::cli::InspectArgs;
use crate::error::{CommandError, Ending};
use crate::talk::{Talk, print};
use eyas_inspect::{InspectPlan, Inspection, VerdictLevel, inspect};
use eyas_prompts::tokenizer::Tokenizer;
use eyas_report::TerminalStyle;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs the command.
pub(crate) fn command(args: &InspectArgs, talk: Talk) -> Result<Ending, CommandError> {
    let mut plan = InspectPlan::new(&args.paths);
    if !args.thresholds.is_empty() {
        plan.thresholds.clone_from(&args.thresholds);
        plan.thresholds.sort_unstable();
    }
    if let Some(path) = &args.tokenizer {
        let tokenizer = Tokenizer::from_file(path).map_err(|error| CommandError::usage(anyhow::Error::new(error)))?;
        plan.count_tokens = Some(Arc::new(move |text| tokenizer.encode(text).map_or(0, |ids| ids.len() as u64)));
    }
    let inspection = look(&plan)?;
    if args.json {
        print(&eyas_report::json(&inspection).map_err(CommandError::input)?)
    } else {
        print(&eyas_report::terminal(&inspection, &style(talk)))
    }
    .map_err(CommandError::input)?;
    Ok(ending(&inspection))
}

/// Inspects a run folder and leaves the report in it.
pub(crate) fn execute(run: &Path, thresholds: &[u64], wall_s: Option<f64>) -> Result<Inspection, CommandError> {
    let mut plan = InspectPlan::new([run.to_owned()]);
    plan.thresholds = thresholds.to_vec();
    plan.wall_s = wall_s.filter(|wall_s| *wall_s > 0.0);
    let inspection = look(&plan)?;
    let json = eyas_report::json(&inspection).map_err(CommandError::input)?;
    let text = eyas_report::terminal(&inspection, &TerminalStyle::default());
    let dir = run.join("inspect");
    for (name, content) in [("report.json", json), ("report.txt", text)] {
        let path = dir.join(name);
        std::fs::create_dir_all(&dir)
            .map_err(anyhow::Error::new)
            .and_then(|()| eyas_journal::write_atomic(&path, content.as_bytes()).map_err(anyhow::Error::new))
            .map_err(|error| CommandError::input(error.context(format!("cannot write `{}`", path.display()))))?;
    }
    Ok(inspection)
}

/// How reports are drawn on this terminal.
pub(crate) fn style(talk: Talk) -> TerminalStyle {
    TerminalStyle { color: talk.color(), ..TerminalStyle::default() }
}

/// 1 when there is no answer or a finding of severity error, else 0.
pub(crate) fn ending(inspection: &Inspection) -> Ending {
    match inspection.verdict.level {
        VerdictLevel::Clean | VerdictLevel::Findings => Ending::Done,
        VerdictLevel::Damaged | VerdictLevel::Nothing => Ending::Findings,
    }
}

fn look(plan: &InspectPlan) -> Result<Inspection, CommandError> {
    let missing: Vec<&PathBuf> = plan.paths.iter().filter(|path| !path.exists()).collect();
    if let [missing, ..] = missing[..] {
        return Err(CommandError::usage(anyhow::anyhow!("there is no `{}`", missing.display())));
    }
    inspect(plan).map_err(|error| CommandError::input(anyhow::Error::new(error)))
}
