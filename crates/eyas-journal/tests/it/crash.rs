//! kill -9 at a random moment: each acknowledged record is there, once.

use eyas_journal::{FsyncPolicy, JournalOptions, JournalWriter, Owned, ScanOptions, scan};
use eyas_testkit::crash;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const ROUNDS: u64 = 30;

fn next_number(path: &Path) -> u64 {
    let mut last = 0;
    scan::<Owned<Value>>(path, ScanOptions::default(), |_, record| last = record["n"].as_u64().unwrap()).unwrap();
    last + 1
}

/// Appends numbered records for ever and prints each number once it is acknowledged.
fn child(path: &str) {
    let options = JournalOptions { fsync: FsyncPolicy::EachBatch, lock: true };
    let mut writer = JournalWriter::open(path, options).unwrap();
    let first = next_number(Path::new(path));
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "START").unwrap();
    for batch in 0.. {
        for n in 0..3 {
            // Some records are longer than a page, so that a kill can fall inside a write.
            let filler = "x".repeat(if n == 1 { 9_000 } else { 20 });
            writer.append(&json!({"n": first + batch * 3 + n, "filler": filler})).unwrap();
        }
        let acknowledged = writer.commit().unwrap();
        writeln!(stdout, "ACK {}", first + acknowledged - 1).unwrap();
    }
}

#[test]
fn each_acknowledged_record_is_there_exactly_once_after_kill_9() {
    if let Some(path) = crash::role("append") {
        return child(&path);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.jsonl");
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut child = crash::spawn(
            "crash::each_acknowledged_record_is_there_exactly_once_after_kill_9",
            "append",
            path.to_str().unwrap(),
        );
        child.wait_for("START");
        // A spread of moments without a random source: 0.0 to 7.6 ms after the start.
        std::thread::sleep(Duration::from_micros(round * 7_919 % 7_600));
        for line in child.kill_hard() {
            if let Some(n) = line.strip_prefix("ACK ").and_then(|n| n.parse().ok()) {
                acknowledged = n;
            }
        }
        // Recovery is the next writer's first act.
        JournalWriter::open(&path, JournalOptions::default()).unwrap();
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        let report = scan::<Owned<Value>>(&path, ScanOptions::default(), |_, record| {
            *seen.entry(record["n"].as_u64().unwrap()).or_default() += 1;
        })
        .unwrap();
        assert_eq!(report.unfinished, None);
        assert!(seen.values().all(|&count| count == 1), "round {round}: a record is there twice");
        let n_records = seen.len() as u64;
        assert!(seen.keys().copied().eq(1..=n_records), "round {round}: a gap");
        assert!(n_records >= acknowledged, "round {round}: {n_records} records, {acknowledged} acknowledged");
    }
    assert!(acknowledged > 0, "no round got as far as an acknowledgement");
}
