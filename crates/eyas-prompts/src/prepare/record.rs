//! Records as lines.

use eyas_types::Schema;

#[expect(
    clippy::expect_used,
    reason = "records have string keys and finite numbers only, and memory cannot fail to be written"
)]
pub(super) fn line_of(record: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record is always JSON")
}

/// Puts the sample id, known only after all rows are read, into a prompt that was written with an empty one. `schema` and `sample_id` are
/// the first two fields of the record.
#[expect(clippy::expect_used, reason = "the line was written by `line_of` from a `Prompt` with an empty sample id")]
pub(super) fn with_sample_id(line: &[u8], sample_id: &str) -> Vec<u8> {
    let head = format!("{{\"schema\":\"{}\",\"sample_id\":", Schema::PROMPT);
    let rest = line.strip_prefix(head.as_bytes()).and_then(|rest| rest.strip_prefix(b"\"\"")).expect("own line");
    [head.as_bytes(), &line_of(&sample_id), rest].concat()
}
