//! Test helpers: crash harness, fake disk, scripted server, paths of shared cases, skipped-test lines. Not shipped.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test helper may fail its test"
)]

pub mod crash;
mod fake_fs;
pub mod mock;
mod shared;

pub use fake_fs::FakeFs;
pub use shared::{SharedCase, shared_case, shared_dir};

use std::path::Path;

/// Writes a test's input file, folders included.
#[track_caller]
pub fn write_file(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).expect("folder of a test file");
    }
    #[expect(clippy::disallowed_methods, reason = "this is the helper the rule points to")]
    std::fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
