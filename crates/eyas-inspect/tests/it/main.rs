//! Tests of whole inspections.
#![cfg(test)]

mod cases;
mod foreign;
mod generator;
mod law;
mod live;

use std::path::{Path, PathBuf};

use eyas_inspect::{InspectPlan, Inspection, inspect};
use tempfile::TempDir;

/// A folder with one file in it.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    eyas_testkit::write_file(&path, content);
    (folder, path)
}

/// Inspects files; the sums that must add up are checked every time.
pub(crate) fn look(paths: &[&Path]) -> Inspection {
    let inspection = inspect(&InspectPlan::new(paths.iter().map(|path| path.to_path_buf()))).unwrap();
    check_sums(&inspection);
    inspection
}

/// Inspects one file with this content.
pub(crate) fn look_at(name: &str, content: impl AsRef<[u8]>) -> Inspection {
    let (_folder, path) = file(name, content);
    look(&[&path])
}

/// Everything that is to add up does.
pub(crate) fn check_sums(inspection: &Inspection) {
    assert!(inspection.rows.adds_up(), "{:?}", inspection.rows);
    assert!(inspection.files.iter().all(|file| file.rows.adds_up()));
    assert_eq!(inspection.rows.total, inspection.files.iter().map(|file| file.rows.total).sum::<u64>());
    let answers = &inspection.answers;
    assert_eq!(inspection.rows.parsed, answers.answers + answers.failed + answers.without_answer);
    assert_eq!(answers.answers, answers.finished + answers.truncated);
    let reasoning = &inspection.reasoning;
    let by_reasoning = reasoning.captured + reasoning.empty + reasoning.null + reasoning.absent + reasoning.leaked;
    assert_eq!(answers.answers, by_reasoning);
    let by_reason: u64 = inspection.finish_reasons.iter().map(|reason| reason.count).sum();
    assert_eq!(answers.answers, by_reason);
    for grouping in &inspection.groups {
        let grouped: u64 = grouping.groups.iter().map(|group| group.answers).sum();
        assert!(grouped <= answers.answers && (grouping.by != "dataset" || grouped == answers.answers));
    }
    // The document can be read back (the last bit of a float may be lost on the way).
    let json = serde_json::to_string(inspection).unwrap();
    let read: Inspection = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&read.rows, &read.files, read.findings.len()),
        (&inspection.rows, &inspection.files, inspection.findings.len())
    );
}

/// Kinds of the findings, in order.
pub(crate) fn kinds(inspection: &Inspection) -> Vec<&str> {
    inspection.findings.iter().map(|finding| finding.kind.as_str()).collect()
}

/// Locations that a field was found at, with rows.
pub(crate) fn used(inspection: &Inspection, field: &str) -> Vec<(String, u64)> {
    let report = inspection.fields.iter().find(|report| report.field == field);
    report.map(|report| report.used.iter().map(|used| (used.path.clone(), used.rows)).collect()).unwrap_or_default()
}
