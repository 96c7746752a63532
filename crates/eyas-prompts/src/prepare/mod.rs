//! From data set files to `prompts.jsonl` and `rejected.jsonl`.
//!
//! [`prepare`] reads all files of a data set, maps its rows, renders them, filters by length, and writes the prompts in the order of a
//! seeded shuffle. Every row read is either a line of `prompts.jsonl` or a line of `rejected.jsonl`: read = loaded + rejected.
//!
//! **Order.** A prompt's place is settled by `xxh3_64(seed, data set, sample id)` alone, smallest first. So it does not depend on the order
//! of the source, a prefix of the file is a fair sample, and rows that are added do not change the order of the others.
//!
//! **Sample ids.** A row's own id, where it has one; else `h<hash>-<n>`, where the hash (16 hexadecimal digits) is that of the prompt ids
//! and n counts equal prompts from 0. When rows share an id, equal prompts become `id`, `id#2`, `id#3` …; if prompts under one id differ,
//! each is named by its content, `id#<hash>`, so that no answer can ever be taken for that of another prompt, however the source is
//! reordered or grows. (Where ids themselves have `#` in them, the mark is one `#` longer than any run of them.)
//!
//! **Files.** Both files appear whole or not at all: they are written beside their place, synced and renamed, `rejected.jsonl` first. When
//! no prompt is left, `prompts.jsonl` does not appear, and what was there stays. Rendered prompts wait in `prompts.jsonl.spill` in the
//! output folder until the order is known, so memory is some 300 bytes a prompt (0.3 GB a million); the folder needs room for the prompts
//! twice.

mod error;
mod files;
mod ids;
mod key;
mod lengths;
mod plan;
mod record;
mod rejections;
mod report;
mod run;

pub use error::PrepareError;
pub use key::{FileKey, PrepareKey};
pub use plan::{DropReason, Duplicates, PreparePlan, PromptFilter};
pub use report::{FileReport, IdReport, LengthReport, PrepareReport, ThinkReport};
pub use run::{PrepareEvent, prepare};
