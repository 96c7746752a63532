//! Data set files, row by row: JSON lines, JSON documents and Parquet; plain, gzip or zstd.
//!
//! The rule that everything here serves: **every row is either handed out with its exact values or reported by file, row and reason**,
//! and one bad row never stops a file. A row ends at byte 0x0A (JSON lines), where its element ends (JSON) or at the row (Parquet).
//!
//! What holds for values:
//! - Strings come out character for character. Half a surrogate pair has no character: the row is refused, or with
//!   [`Surrogates::Repair`] the half becomes U+FFFD and the row is marked [`Repair::LoneSurrogateReplaced`].
//! - Integers keep type and value in −2⁶³ … 2⁶⁴−1; outside of it the row is refused. `-0` is the integer 0, as in Python.
//! - Numbers with a fraction or an exponent are IEEE doubles, as in every JSON reader; they are written again in their shortest spelling
//!   (`1.10` as `1.1`, `1e5` as `100000.0`). A literal with more digits than a double holds is rounded and the row marked
//!   [`Repair::FloatRounded`]; one that leaves the range (`1e999`) or vanishes (`1e-999`) is refused, and so are `NaN` and `Infinity`.
//! - A key that occurs twice in one object is refused: readers differ in which value wins.
//! - More than [`MAX_DEPTH`] levels are refused, since the files eyas writes must be readable with the common limit of 128.
//! - Parquet: integers stay integers; 32-bit floats take the shortest spelling that gives them back; dates, times, decimals and raw bytes
//!   become strings. A `null` inside a struct cannot be told from an absent key, which column stores fill in, and is left out; a whole
//!   column that is `null` stays `null`.
//!
//! Memory is that of the longest row: JSON lines and arrays are streamed, plain or compressed.

mod columns;
mod document;
mod fault;
mod files;
mod head;
pub(crate) mod json;
mod lines;
mod open;
mod reader;

pub use fault::{BadRow, Repair, RowFault};
pub use files::{DataFile, DataFiles, list_data_files};
pub use json::MAX_DEPTH;
pub use open::OpenError;
pub(crate) use reader::kind_of;
pub use reader::{Compression, Format, Layout, RawRow, ReadEnd, RowReader, SourceOptions, Surrogates};
