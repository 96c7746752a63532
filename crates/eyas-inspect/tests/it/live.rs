//! Files that change while they are looked at.

use std::{
    io::{Seek, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{check_sums, file, look};
use eyas_inspect::{FileEvent, InspectPlan, inspect};

/// Tells the writer to stop, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const ROW: &str = "{\"id\":\"a\",\"content\":\"some words\",\"usage\":{\"completion_tokens\":5}}\n";

#[test]
fn appending_at_full_speed_never_gives_a_wrong_count() {
    let (_folder, path) = file("growing.jsonl", ROW.repeat(10));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            // At full speed, but not for ever: a look reads the file from its start.
            for _ in 0..50_000 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Rows in halves, so that a look falls between them.
                let (a, b) = ROW.as_bytes().split_at(20);
                out.write_all(a).unwrap();
                out.write_all(b).unwrap();
            }
        });
        let _stop = StopOnDrop(&stop);
        let mut before = 10;
        for _ in 0..25 {
            let inspection = look(&[&path]);
            let rows = &inspection.rows;
            assert_eq!(rows.malformed, 0, "{:?}", rows.malformed_by_class);
            assert!(rows.parsed >= before && rows.in_progress <= 1);
            assert_eq!(inspection.lengths.completion.sum, 5 * rows.parsed);
            before = rows.parsed;
        }
    });
}

#[test]
fn cutting_and_replacing_is_noticed_and_never_counted_wrong() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("rotated.jsonl");
    eyas_testkit::write_file(&path, ROW.repeat(20_000));
    let stop = AtomicBool::new(false);
    let mut noticed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let content = ROW.repeat(if n % 2 == 0 { 20_000 } else { 100 });
                if n % 3 == 0 {
                    let beside = folder.path().join("new");
                    eyas_testkit::write_file(&beside, content);
                    std::fs::rename(&beside, &path).unwrap();
                } else {
                    let mut out = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    out.set_len(0).unwrap();
                    out.rewind().unwrap();
                    out.write_all(content.as_bytes()).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..40 {
            let inspection = inspect(&InspectPlan::new([&path])).unwrap();
            check_sums(&inspection);
            assert_eq!(inspection.rows.malformed, 0);
            assert_eq!(inspection.lengths.completion.sum, 5 * inspection.rows.parsed);
            let events = &inspection.files[0].events;
            noticed += usize::from(events.iter().any(|event| matches!(event, FileEvent::Shrank | FileEvent::Replaced)));
        }
    });
    println!("noticed {noticed} of 40");
}

#[test]
fn marks_and_other_formats_are_no_change_of_the_file() {
    let marked = |rows: &str| [b"\xef\xbb\xbf", rows.as_bytes()].concat();
    for (content, n_rows) in [(marked(ROW), 1), (marked(&format!("[{},{}]", ROW.trim(), ROW.trim())), 2)] {
        let (_folder, path) = file("marked.json", &content);
        let inspection = look(&[&path]);
        assert_eq!((inspection.rows.parsed, inspection.files[0].text_bytes), (n_rows, content.len() as u64));
        assert!(inspection.files[0].events.is_empty() || inspection.files[0].events == [FileEvent::NoFinalNewline]);
        assert_eq!(inspection.remarks[0].class, "byte_order_mark");
    }
    for (content, name) in [(b"\xff\xfe{\0\"\0".to_vec(), "UTF-16"), (b"PAR1....PAR1".to_vec(), "Parquet")] {
        let (_folder, path) = file("other.jsonl", content);
        assert_eq!(look(&[&path]).files[0].events, [FileEvent::NotText { looks_like: name.to_owned() }]);
    }
}
