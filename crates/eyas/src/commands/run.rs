//! `eyas run`: prepare, generate and inspect in one go, each taking up where it stopped.

use super::{generate, inspect, prepare};
use crate::cli::GenerateArgs;
use crate::error::{CommandError, Ending};
use crate::settled::Settled;
use crate::talk::{Talk, print, print_json};
use eyas_inspect::Inspection;
use serde::Serialize;

/// What `eyas run --json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct RunDocument {
    /// `eyas.run/1`.
    pub(crate) schema: &'static str,
    /// Run folder.
    pub(crate) run: String,
    /// The document of `eyas prepare`.
    pub(crate) prepare: prepare::PrepareDocument,
    /// The document of `eyas generate`.
    pub(crate) generate: generate::GenerateDocument,
    /// The document of `eyas inspect`; absent when generation answered nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inspect: Option<Inspection>,
}

/// Runs the command.
pub(crate) fn command(args: &GenerateArgs, talk: Talk) -> Result<Ending, CommandError> {
    let settled = Settled::from_generate_args(args)?;
    let (document, ending) = execute(&settled, generate::GenerateOptions::of(args), talk)?;
    if args.json {
        print_json(&document).map_err(CommandError::input)?;
    } else if let Some(inspection) = &document.inspect {
        print(&eyas_report::terminal(inspection, &inspect::style(talk))).map_err(CommandError::input)?;
    }
    Ok(ending)
}

/// All stages. A stage that stops early ends the run with its own ending; what was answered until then is inspected all the same.
pub(crate) fn execute(
    settled: &Settled,
    options: generate::GenerateOptions,
    talk: Talk,
) -> Result<(RunDocument, Ending), CommandError> {
    let prepared = prepare::execute(settled, false, talk)?;
    let (generated, ending) = generate::execute(settled, options, talk)?;
    let inspection = match generated.answered {
        0 => None,
        _ => {
            let wall_s = (generated.answered == generated.answered_now).then_some(generated.wall_s);
            Some(inspect::execute(&settled.run, &settled.recipe.inspect.thresholds, wall_s)?)
        }
    };
    let mut ending = prepared.ending().and(ending);
    if ending == Ending::Done {
        ending = inspection.as_ref().map_or(Ending::Done, inspect::ending);
    }
    let document = RunDocument {
        schema: "eyas.run/1",
        run: settled.run.display().to_string(),
        prepare: prepared,
        generate: generated,
        inspect: inspection,
    };
    Ok((document, ending))
}
