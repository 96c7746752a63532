//! What inspect found, as terminal text and JSON. Same bytes for the same input.
//!
//! Everything shown is a field of [`eyas_inspect::Inspection`]; nothing is computed here but shares for display.

mod histogram;
mod numbers;
mod terminal;

use eyas_inspect::Inspection;

pub use terminal::{TerminalStyle, terminal};

/// The document as pretty JSON with a newline at its end; `schema` is its first key.
pub fn json(inspection: &Inspection) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(inspection)?;
    text.push('\n');
    Ok(text)
}
