//! Disks that forget, fill up or fail.

use eyas_journal::{
    AppendError, Fs, FsyncPolicy, JournalOptions, JournalWriter, Owned, ScanOptions, scan_in, write_atomic_in,
};
use eyas_testkit::FakeFs;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "run/j.jsonl";

fn open(fs: &FakeFs, fsync: FsyncPolicy) -> JournalWriter {
    JournalWriter::open_in(Arc::new(fs.clone()), PATH, JournalOptions { fsync, lock: true }).unwrap()
}

fn numbers(fs: &FakeFs) -> Vec<u64> {
    let mut numbers = Vec::new();
    scan_in::<Owned<Value>>(fs, Path::new(PATH), ScanOptions::default(), |_, record| {
        numbers.push(record["n"].as_u64().unwrap());
    })
    .unwrap();
    numbers
}

#[test]
fn what_is_acknowledged_survives_a_power_cut_at_any_unsynced_byte() {
    for keep_unsynced in 0..60 {
        let fs = FakeFs::new();
        let mut writer = open(&fs, FsyncPolicy::Interval(3_600_000));
        for n in 1..=3_u64 {
            writer.append(&json!({"n": n})).unwrap();
        }
        assert_eq!(writer.commit().unwrap(), 3, "the first batch is synced");
        for n in 4..=7_u64 {
            writer.append(&json!({"n": n})).unwrap();
            assert_eq!(writer.commit().unwrap(), 3, "written only");
        }
        fs.crash(keep_unsynced);
        drop(writer);
        let mut writer = open(&fs, FsyncPolicy::EachBatch);
        let left = numbers(&fs);
        assert!(left.len() >= 3 && left.len() <= 7, "{left:?}");
        assert_eq!(left, (1..=left.len() as u64).collect::<Vec<_>>());
        writer.append(&json!({"n": 99})).unwrap();
        writer.commit().unwrap();
        assert_eq!(numbers(&fs).last(), Some(&99));
    }
}

#[test]
fn without_fsync_a_power_cut_takes_what_was_acknowledged() {
    let fs = FakeFs::new();
    let mut writer = open(&fs, FsyncPolicy::Never);
    writer.append(&json!({"n": 1})).unwrap();
    assert_eq!(writer.commit().unwrap(), 1);
    fs.crash(0);
    assert_eq!(fs.read(PATH), None, "this is what the policy says, and why it is not the default");
}

#[test]
fn a_failed_fsync_poisons_the_writer_and_is_not_tried_again() {
    let fs = FakeFs::new();
    let mut writer = open(&fs, FsyncPolicy::EachBatch);
    writer.append(&json!({"n": 1})).unwrap();
    writer.commit().unwrap();
    fs.fail_syncs(true);
    writer.append(&json!({"n": 2})).unwrap();
    let error = writer.commit().unwrap_err();
    assert!(matches!(&error, AppendError::Io { action: "sync", first_unsafe: 2, .. }), "{error:?}");
    fs.fail_syncs(false);
    assert!(matches!(writer.commit(), Err(AppendError::Poisoned { .. })));
    assert!(matches!(writer.append(&json!({"n": 3})), Err(AppendError::Poisoned { .. })));
    assert_eq!(writer.acknowledged(), 1);
}

#[test]
fn records_are_written_while_an_earlier_batch_is_synced() {
    let fs = FakeFs::new();
    let mut writer = open(&fs, FsyncPolicy::EachBatch);
    writer.append(&json!({"n": 1})).unwrap();
    writer.write_out().unwrap();
    let pending = writer.begin_sync().unwrap();
    writer.append(&json!({"n": 2})).unwrap();
    writer.write_out().unwrap();
    assert!(writer.begin_sync().is_none(), "one sync at a time");
    assert_eq!(writer.end_sync(pending.run()).unwrap(), 1, "the second was written after the sync had begun");
    assert_eq!(numbers(&fs), [1, 2]);
    assert_eq!(writer.commit().unwrap(), 2);
    assert!(writer.begin_sync().is_none());
}

#[test]
fn a_full_disk_loses_nothing_acknowledged_and_the_next_run_goes_on() {
    let line = b"{\"n\":1}\n".len();
    for free in 0..3 * line {
        let fs = FakeFs::new();
        let mut writer = open(&fs, FsyncPolicy::EachBatch);
        fs.set_free_bytes(Some(free));
        let mut n = 0;
        let error = loop {
            n += 1;
            writer.append(&json!({"n": n})).unwrap();
            match writer.commit() {
                Ok(acknowledged) => assert_eq!(acknowledged, n),
                Err(error) => break error,
            }
        };
        let acknowledged = writer.acknowledged();
        assert_eq!(acknowledged, (free / line) as u64);
        assert!(error.to_string().contains("cannot write journal"), "{error}");
        drop(writer);
        fs.set_free_bytes(None);
        let mut writer = open(&fs, FsyncPolicy::EachBatch);
        for n in numbers(&fs).len() as u64 + 1..=5 {
            writer.append(&json!({"n": n})).unwrap();
        }
        writer.commit().unwrap();
        assert_eq!(numbers(&fs), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn an_atomic_file_is_the_old_one_or_the_new_one() {
    let path = Path::new("run/manifest.json");
    let fs = FakeFs::new();
    fs.put(path, b"old");
    write_atomic_in(&fs, path, b"new").unwrap();
    fs.crash(0);
    assert_eq!(fs.read(path).unwrap(), b"new", "the rename is synced before the call returns");

    fs.set_free_bytes(Some(1));
    write_atomic_in(&fs, path, b"newer").unwrap_err();
    assert_eq!(fs.read(path).unwrap(), b"new");
    assert_eq!(fs.names(), [path], "the half-written temporary is gone");

    // A rename whose folder was not synced is lost, and the old file is still there.
    fs.set_free_bytes(None);
    fs.create(Path::new("run/t")).unwrap().write_all(b"newest").unwrap();
    fs.rename(Path::new("run/t"), path).unwrap();
    fs.crash(0);
    assert_eq!(fs.read(path).unwrap(), b"new");
}
