//! What a command can end in, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// Kind of failure; picks the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// Flags or recipe cannot be used: 2.
    Usage,
    /// An input or a journal cannot be read, or a run folder belongs to other settings: 3.
    Input,
    /// Servers cannot be reached or do not answer as they must: 4.
    Server,
}

/// A failed command: what happened and where (the source's chain), and what to do.
#[derive(Debug)]
pub(crate) struct CommandError {
    /// Picks the exit code.
    pub(crate) kind: ErrorKind,
    source: anyhow::Error,
    hints: Vec<String>,
}

/// How a command that ran ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All done: 0.
    Done,
    /// Done, with failures or findings: 1.
    Findings,
    /// Stopped because a file cannot be written or read: 3.
    Unwritable,
    /// Stopped by a server that stays away: 4.
    ServerDown,
    /// Stopped by a budget or gate: 5.
    Stopped,
    /// Interrupted: 130.
    Interrupted,
}

impl CommandError {
    /// An error without hints.
    pub(crate) fn new(kind: ErrorKind, source: impl Into<anyhow::Error>) -> Self {
        Self { kind, source: source.into(), hints: Vec::new() }
    }

    /// Unusable flags or recipe.
    pub(crate) fn usage(source: impl Into<anyhow::Error>) -> Self {
        Self::new(ErrorKind::Usage, source)
    }

    /// Unusable input.
    pub(crate) fn input(source: impl Into<anyhow::Error>) -> Self {
        Self::new(ErrorKind::Input, source)
    }

    /// Adds something the user can do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Input => 3,
            ErrorKind::Server => 4,
        })
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {:#}", self.source)?;
        for hint in &self.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl Ending {
    /// The exit code.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Findings => 1,
            Self::Unwritable => 3,
            Self::ServerDown => 4,
            Self::Stopped => 5,
            Self::Interrupted => 130,
        })
    }

    /// The worse of two stages' endings.
    #[must_use]
    pub(crate) fn and(self, later: Self) -> Self {
        if later == Self::Done { self } else { later }
    }
}
