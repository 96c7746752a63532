//! Inspects files and prints the report: `inspect PATH… [--json] [--ascii]`. For the bench; the command is `eyas inspect`.
#![expect(clippy::print_stdout, reason = "it prints the report")]

use eyas_inspect::{InspectPlan, inspect};
use eyas_report::{TerminalStyle, json, terminal};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (options, paths): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let has = |name: &str| options.iter().any(|option| option == name);
    let inspection = inspect(&InspectPlan::new(paths))?;
    if has("--json") {
        print!("{}", json(&inspection)?);
    } else {
        print!("{}", terminal(&inspection, &TerminalStyle { ascii: has("--ascii"), ..TerminalStyle::default() }));
    }
    Ok(())
}
