//! Output: data on stdout, talk on stderr.

use crate::cli::Color;
use std::io::{IsTerminal, Write};

/// How much is said, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    quiet: bool,
    terminal: bool,
    color: bool,
}

impl Talk {
    /// As the flags and the terminal say.
    pub(crate) fn new(quiet: bool, color: Color) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match color {
            Color::Auto => std::io::stdout().is_terminal() && !plain,
            Color::Always => true,
            Color::Never => false,
        };
        Self { quiet, terminal, color }
    }

    /// Whether bars can be drawn.
    pub(crate) fn bars(self) -> bool {
        self.terminal && !self.quiet
    }

    /// Whether standard output may be coloured.
    pub(crate) fn color(self) -> bool {
        self.color
    }

    /// A line of talk.
    pub(crate) fn say(self, line: impl AsRef<str>) {
        if !self.quiet {
            say_always(line.as_ref());
        }
    }

    /// A line that is said even when quiet: something is wrong.
    pub(crate) fn warn(self, line: impl AsRef<str>) {
        say_always(&format!("warning: {}", line.as_ref()));
    }
}

/// A line on stderr. Nobody can be told when stderr itself is gone.
pub(crate) fn say_always(line: &str) {
    writeln!(std::io::stderr(), "{line}").ok();
}

/// Prints to stdout. A reader that went away (a closed pipe) is no error: it has what it wanted.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints one JSON document to stdout.
pub(crate) fn print_json(document: &impl serde::Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    print(&text)
}

/// `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `4.2 s`, `3 min 20 s`, `5 h 07 min`.
pub(crate) fn duration(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "durations of runs are far below 2^63 s"
    )]
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(duration(4.23), "4.2 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(18_420.0), "5 h 07 min");
    }
}
