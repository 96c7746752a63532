//! The law of lengths: figures agree with numpy's, and every planted fault is found.

use std::{io::Write, process::Command};

use crate::{
    check_sums,
    generator::{Recipe, Rng, Truth, write},
};
use eyas_inspect::{InspectPlan, Inspection, LengthStats, inspect};

fn made(recipe: &Recipe) -> (tempfile::TempDir, Truth, Inspection) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("answers.jsonl");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let truth = write(recipe, &mut out).unwrap();
    out.flush().unwrap();
    let inspection = inspect(&InspectPlan::new([path])).unwrap();
    check_sums(&inspection);
    (folder, truth, inspection)
}

/// The figures as they are printed: one decimal.
fn printed(stats: &LengthStats) -> String {
    let figures = [stats.mean, stats.median, stats.stdev, stats.p90, stats.p95, stats.p99];
    let figures: Vec<String> = figures.into_iter().map(|figure| format!("{:.1}", figure.unwrap())).collect();
    format!("{} {} {}", stats.n, figures.join(" "), stats.max.unwrap())
}

/// numpy's figures of the same lengths, when Python with numpy is at hand. It is looked for as `python3`, or where `EYAS_NUMPY_PYTHON` says.
fn numpy(lengths: &[u32]) -> Option<String> {
    const PROGRAM: &str = "import sys, numpy as np\n\
        a = np.array(sys.stdin.read().split(), dtype=np.int64)\n\
        p = np.percentile(a, [90, 95, 99])\n\
        print(len(a), *(f'{x:.1f}' for x in (np.mean(a), np.median(a), np.std(a), *p)), a.max())";
    let python = std::env::var("EYAS_NUMPY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .ok()?;
    let text: Vec<String> = lengths.iter().map(u32::to_string).collect();
    // A Python without numpy leaves before it reads.
    drop(child.stdin.take()?.write_all(text.join(" ").as_bytes()));
    let output = child.wait_with_output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The reference line was made by numpy 2.4.6 from the lengths of `Rng::new(1)`, first 100,000 of them:
/// `np.mean(a), np.median(a), np.std(a), *np.percentile(a, [90, 95, 99])`, each printed with `:.1f`, and `a.max()`.
#[test]
fn figures_of_the_law_agree_with_numpy_to_the_digit_printed() {
    let mut rng = Rng::new(1);
    let lengths: Vec<u32> = (0..100_000).map(|_| rng.length()).collect();
    let rows: String = lengths.iter().map(|n| format!("{{\"usage\":{{\"completion_tokens\":{n}}}}}\n")).collect();
    let inspection = crate::look_at("law.jsonl", rows);
    let ours = printed(&inspection.lengths.completion);
    insta::assert_snapshot!(ours, @"100000 1430.7 708.0 1648.7 3684.0 4670.0 6897.0 10240");
    match numpy(&lengths) {
        Some(theirs) => assert_eq!(ours, theirs),
        None => println!("skipped: no python3 with numpy for the live comparison"),
    }
    // The law itself, as far as 100,000 draws tell; its distribution function is flat around the median.
    let stats = &inspection.lengths.completion;
    for (figure, target, tolerance) in [
        (stats.mean, 1416.0, 0.015),
        (stats.median, 646.0, 0.15),
        (stats.stdev, 1640.0, 0.01),
        (stats.p90, 3644.0, 0.015),
        (stats.p95, 4660.0, 0.015),
        (stats.p99, 6849.0, 0.015),
    ] {
        let figure = figure.unwrap();
        assert!((figure / target - 1.0).abs() < tolerance, "{figure} for {target}");
    }
}

#[test]
fn small_sets_agree_with_numpy_too() {
    let mut rng = Rng::new(7);
    for n in [1, 2, 3, 10, 101, 997] {
        let lengths: Vec<u32> = (0..n).map(|_| rng.length()).collect();
        let rows: String = lengths.iter().map(|n| format!("{{\"completion_tokens\":{n}}}\n")).collect();
        let ours = printed(&crate::look_at("law.jsonl", rows).lengths.completion);
        let Some(theirs) = numpy(&lengths) else {
            println!("skipped: no python3 with numpy");
            return;
        };
        assert_eq!(ours, theirs);
    }
}

fn count(inspection: &Inspection, class: &str) -> u64 {
    let classes = inspection.rows.malformed_by_class.iter().chain(&inspection.remarks);
    classes.filter(|known| known.class == class).map(|known| known.count).sum()
}

#[test]
fn every_planted_fault_is_found_exactly() {
    for (seed, ids) in [(1, false), (2, true)] {
        let (_folder, truth, inspection) = made(&Recipe { n_bytes: 40_000_000, seed, faults: true, ids });
        let rows = &inspection.rows;
        assert_eq!(
            (rows.total, rows.parsed, rows.blank, rows.in_progress),
            (truth.rows, truth.parsed, truth.blank, truth.in_progress)
        );
        for (class, n) in truth.malformed.iter().chain(&truth.remarks) {
            assert_eq!(count(&inspection, class), *n, "{class}");
        }
        assert_eq!(rows.malformed, truth.malformed.values().sum::<u64>());
        let recoverable: u64 = rows.malformed_by_class.iter().map(|class| class.recoverable).sum();
        assert_eq!(recoverable, truth.recoverable);
        let answers = &inspection.answers;
        assert_eq!(
            (answers.answers, answers.truncated, answers.failed),
            (truth.answers, truth.truncated, truth.failed)
        );
        assert_eq!((answers.empty_content, answers.repeated), (truth.empty_content, truth.repeated));
        assert!(truth.repeated > 0);
        let reasoning = &inspection.reasoning;
        assert_eq!(
            (reasoning.captured, reasoning.null, reasoning.empty, reasoning.absent, reasoning.leaked),
            (truth.captured, truth.reasoning_null, truth.reasoning_empty, truth.reasoning_absent, truth.leaked),
        );
        assert_eq!(inspection.conversations.duplicate_ids, truth.duplicate_ids);
        for (path, n) in &truth.by_location {
            let used = crate::used(&inspection, "completion_tokens");
            assert_eq!(used.iter().find(|(known, _)| known == path).unwrap().1, *n, "{path}");
        }
        let stats = &inspection.lengths.completion;
        assert_eq!(
            (stats.n, stats.sum),
            (truth.lengths.len() as u64, truth.lengths.iter().map(|n| u64::from(*n)).sum())
        );
        assert_eq!(inspection.files[0].text_bytes, truth.n_bytes);
    }
}

#[test]
fn a_homogeneous_file_has_no_change_and_a_shuffled_in_beginning_has() {
    let (_folder, _, inspection) = made(&Recipe { n_bytes: 8_000_000, seed: 3, faults: false, ids: false });
    assert!(inspection.drift.iter().all(|drift| drift.change_point.is_none()), "{:?}", crate::kinds(&inspection));

    let mut rng = Rng::new(4);
    // Short answers come back first: the shortest hundred of the first thousand stand in front.
    let mut lengths: Vec<u32> = (0..1000).map(|_| rng.length()).collect();
    lengths.sort_unstable();
    let first: Vec<u32> = lengths.drain(..100).collect();
    let rest = (0..2000).map(|_| rng.length());
    let rows: String = first.into_iter().chain(rest).map(|n| format!("{{\"completion_tokens\":{n}}}\n")).collect();
    let inspection = crate::look_at("early.jsonl", rows);
    let change = inspection.drift.iter().find(|drift| drift.series == "length").unwrap().change_point.clone().unwrap();
    assert_eq!(change.n_before, 100);
    let finding = inspection.findings.iter().find(|finding| finding.kind == "drift_length").unwrap();
    assert!(finding.message.starts_with("the first 100 answers average"), "{}", finding.message);
    assert!(finding.message.ends_with("the file is not homogeneous"), "{}", finding.message);
}
