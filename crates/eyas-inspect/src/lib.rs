//! Scan JSONL of model answers: find the fields, count, and describe. Prints nothing.
//!
//! [`inspect`] reads what an [`InspectPlan`] names and returns an [`Inspection`], the one document from which everything is shown. A file is
//! read once, block by block: `lines` cuts the blocks at newlines, `scan` validates each line and notes where the values of known
//! `locations` lie, `answer` decides which location wins, and `tally` counts. Nothing is held but counts, so memory does not grow with
//! the file. Bad rows are classed and counted: `total = parsed + malformed + blank + in progress`, always.

mod answer;
mod array;
mod document;
mod drift;
mod findings;
mod ids;
mod input;
mod inspect;
mod lengths;
mod lines;
mod locations;
mod plan;
mod read;
mod scan;
mod tally;

pub use document::*;
pub use inspect::{InspectError, inspect};
pub use locations::{Field, PathError};
pub use plan::{CountTokens, FieldPath, InspectPlan};
