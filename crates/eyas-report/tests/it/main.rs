//! Whole reports, as they are printed.
#![cfg(test)]

use eyas_inspect::{InspectPlan, inspect};
use eyas_report::{TerminalStyle, json, terminal};

/// The report of one file with this name and content; the folder it lies in is left out.
fn report(name: &str, content: &str, style: &TerminalStyle) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join(name);
    eyas_testkit::write_file(&path, content);
    let inspection = inspect(&InspectPlan::new([&path])).unwrap();
    let text = terminal(&inspection, style);
    assert_eq!(text, terminal(&inspect(&InspectPlan::new([&path])).unwrap(), style), "same bytes for the same input");
    assert!(json(&inspection).unwrap().starts_with("{\n  \"schema\": \"eyas.inspect/1\",\n"));
    text.replace(&format!("{}/", folder.path().display()), "")
}

/// A small run with everything that goes wrong: short answers first, reasoning missing at the start, a cut answer, damage, a failure.
fn troubled() -> String {
    let mut rows = String::new();
    for n in 0..300_u64 {
        let tokens = if n < 100 { 150 + n * 7 % 100 } else { 800 + n * 37 % 2400 };
        let reasoning = if n < 60 { "" } else { "so" };
        let dataset = if n % 3 == 0 { "math" } else { "code" };
        let finish = if n % 50 == 49 { "length" } else { "stop" };
        rows += &format!(
            "{{\"sample_id\":\"s{n}\",\"dataset\":\"{dataset}\",\"reasoning\":\"{reasoning}\",\"content\":\"yes\",\"finish_reason\":\"{finish}\",\"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":{tokens}}}}}\n"
        );
    }
    rows += "{\"sample_id\":\"s300\",\"content\":\"caught in the mid\n";
    rows += "{\"sample_id\":\"s301\",\"status\":\"failed\",\"cause\":\"HTTP 500\"}\n\n";
    rows + "{\"sample_id\":\"s302\",\"cont"
}

#[test]
fn a_troubled_run_on_one_screen() {
    let text = report("answers.jsonl", &troubled(), &TerminalStyle::default());
    insta::assert_snapshot!(text, @"");
}

#[test]
fn plain_ascii_and_narrow() {
    let text = report("answers.jsonl", &troubled(), &TerminalStyle { width: 72, ascii: true, color: false });
    assert!(text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let bars: Vec<&str> = text.lines().filter(|line| line.contains('#')).collect();
    insta::assert_snapshot!(bars.join("\n"), @"");
}

#[test]
fn colour_only_paints_words_that_are_there_anyway() {
    let plain = report("a.jsonl", &troubled(), &TerminalStyle::default());
    let painted = report("a.jsonl", &troubled(), &TerminalStyle { color: true, ..TerminalStyle::default() });
    let stripped =
        painted.replace("\u{1b}[31m", "").replace("\u{1b}[33m", "").replace("\u{1b}[36m", "").replace("\u{1b}[0m", "");
    assert_ne!(plain, painted);
    assert_eq!(plain, stripped);
}

#[test]
fn a_clean_file_of_another_tool() {
    let row = |n: u64| {
        format!(
            "{{\"custom_id\":\"q{n}\",\"response\":{{\"status_code\":200,\"body\":{{\"choices\":[{{\"message\":{{\"role\":\"assistant\",\"content\":\"Four.\",\"reasoning_content\":\"2+2\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":{}}}}}}},\"error\":null}}\n",
            100 + n
        )
    };
    let text = report("batch_output.jsonl", &(0..4).map(row).collect::<String>(), &TerminalStyle::default());
    insta::assert_snapshot!(text, @"");
}

#[test]
fn nothing_but_failures() {
    let rows: String =
        (0..5).map(|n| format!("{{\"id\":\"f{n}\",\"status\":\"failed\",\"cause\":\"HTTP 500\"}}\n")).collect();
    let text = report("STATS-06.all_failed.jsonl", &rows, &TerminalStyle::default());
    insta::assert_snapshot!(text, @"");
}

#[test]
fn an_empty_file() {
    let text = report("empty.jsonl", "", &TerminalStyle::default());
    insta::assert_snapshot!(text, @"");
}
