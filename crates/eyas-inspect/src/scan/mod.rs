//! One pass over the bytes of a file: validates every line as JSON, and notes where the values of known locations lie.
//!
//! There is no separate search for line ends: a raw newline cannot stand inside a JSON string, so the scan meets it as the end of the row,
//! and one met earlier means a torn line. Nothing recurses; nesting is a stack with a limit. Values are noted as spans and only looked at
//! by those who need them.

mod blocks;
mod captures;
mod fault;
mod row;
pub(crate) mod text;

pub(crate) use blocks::{BLOCK, Blocks, Portable, WithBlocks, with_best};
pub(crate) use captures::{Captured, Captures, Kind};
pub(crate) use fault::{Fault, Remark};
pub(crate) use row::{Outcome, Row, Scanner};

/// Bytes that must be readable behind a region that is scanned.
pub(crate) const PADDING: usize = 2 * BLOCK;

#[cfg(test)]
mod tests;
