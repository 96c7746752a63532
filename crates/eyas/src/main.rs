//! The eyas command: recipe, commands, live views, exit codes.
//!
//! Exit codes: 0 done · 1 done with failures or findings · 2 usage or recipe · 3 input or journal unreadable · 4 server · 5 stopped by a
//! gate · 130 interrupted. Data goes to standard output, talk to standard error.

mod cli;
mod commands;
mod demo_data;
mod embedded;
mod error;
mod grade;
mod manifest;
mod progress;
mod recipe;
mod settled;
mod talk;
mod target_files;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;
use talk::Talk;

/// The embedded engine allocates and frees many small tensors; glibc gives them back to the system each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let talk = Talk::new(cli.quiet, cli.color);
    let ending = match &cli.command {
        Command::Demo(args) => commands::demo::command(args, talk),
        Command::Prepare(args) => commands::prepare::command(args, talk),
        Command::Generate(args) => commands::generate::command(args, talk),
        Command::Inspect(args) => commands::inspect::command(args, talk),
        Command::Run(args) => commands::run::command(args, talk),
        Command::Serve(args) => commands::serve::command(args, talk),
    };
    match ending {
        Ok(ending) => ending.exit_code(),
        Err(error) => {
            talk::say_always(&error.to_string());
            error.exit_code()
        }
    }
}
