//! Whole reports, as they are printed.
#![cfg(test)]

use eyas_inspect::{InspectPlan, inspect};
use eyas_report::{TerminalStyle, json, terminal};

/// The report of one file with this name and content; the folder it lies in is left out.
fn report(name: &str, content: &str, style: &TerminalStyle) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join(name);
    eyas_testkit::write_file(&path, content);
    let look = || {
        let mut inspection = inspect(&InspectPlan::new([&path])).unwrap();
        // The folder would be another on each machine, and lines would break elsewhere.
        inspection.files[0].path = name.to_owned();
        inspection
    };
    let inspection = look();
    let text = terminal(&inspection, style);
    assert_eq!(text, terminal(&look(), style), "same bytes for the same input");
    assert!(json(&inspection).unwrap().starts_with("{\n  \"schema\": \"eyas.inspect/1\",\n"));
    text
}

/// A small run with everything that goes wrong: short answers first, reasoning missing at the start, a cut answer, damage, a failure.
fn troubled() -> String {
    let row = |n: u64| {
        let tokens = if n < 100 { 150 + n * 7 % 100 } else { 800 + n * 37 % 2400 };
        let reasoning = if n < 60 { "" } else { "so" };
        let dataset = if n.is_multiple_of(3) { "math" } else { "code" };
        let finish = if n % 50 == 49 { "length" } else { "stop" };
        format!(
            "{{\"sample_id\":\"s{n}\",\"dataset\":\"{dataset}\",\"reasoning\":\"{reasoning}\",\"content\":\"yes\",\"finish_reason\":\"{finish}\",\"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":{tokens}}}}}\n"
        )
    };
    let mut rows: String = (0..300).map(row).collect();
    rows += "{\"sample_id\":\"s300\",\"content\":\"caught in the mid\n";
    rows += "{\"sample_id\":\"s301\",\"status\":\"failed\",\"cause\":\"HTTP 500\"}\n\n";
    rows + "{\"sample_id\":\"s302\",\"cont"
}

#[test]
fn a_troubled_run_on_one_screen() {
    let text = report("answers.jsonl", &troubled(), &TerminalStyle::default());
    insta::assert_snapshot!(text, @r#"
    file       answers.jsonl  44.2 kB
    rows       304 = 301 parsed + 1 malformed + 1 blank + 1 in progress
               malformed: torn 1
    answers    300 = 294 finished + 6 truncated; failed 1 (HTTP 500 1)
    fields     in all 300 answers: completion_tokens at usage.completion_tokens · prompt_tokens at
               usage.prompt_tokens · reasoning · content · finish_reason · id at sample_id · dataset

    tokens                   n     mean   median    stdev      P90      P95      P99    max
    answers                300  1,400.8  1,409.5  1,016.8  2,815.7  2,999.4  3,146.3  3,183
      finished             294  1,402.3  1,409.5  1,017.5  2,830.4  3,007.4  3,147.9  3,183
      cut by the cap         6  1,331.3  1,238.0    975.7  2,538.0  2,675.5  2,785.5  2,813
    prompts                300     20.0     20.0      0.0     20.0     20.0     20.0     20
    reasoning, characters  240      2.0      2.0      0.0      2.0      2.0      2.0      2
    content, characters    300      3.0      3.0      0.0      3.0      3.0      3.0      3
               mean ± 115.3 (95 %) = sum 420,250 / 300 answers with a token count, cut ones included;
               stdev of the population (ddof 0); percentiles linear between ranks, as numpy

    150–200  ████████████████████████████████████████████▎                                  50   16.7 %
    200–300  ████████████████████████████████████████████▎                                  50   16.7 %
    300–500                                                                                  0    0.0 %
    500–700                                                                                  0    0.0 %
     700–1k  ██████████████▏                                                                16    5.3 %
    1k–1.5k  ████████████████████████████████████▎                                          41   13.7 %
    1.5k–2k  ████████████████████████████████████▎                                          41   13.7 %
      2k–3k  █████████████████████████████████████████████████████████████████████████████  87   29.0 %
      3k–5k  █████████████▎                                                                 15    5.0 %
    long       ≥1Ki 182 (60.7 %) · ≥2Ki 98 (32.7 %)
    weight     of all tokens the longest answers hold: 1 % 2.3 % · 5 % 11.1 % · 10 % 21.5 %
    finish     stop 294 (98.0 %) · length 6 (2.0 %)
    reasoning  captured in 240 of 300 answers (80.0 %) · empty 60
    first n    mean of the first 50 195.5 (0.14x) · 100 199.5 (0.14x) · 200 1,165.5 (0.83x)

    data set  answers  failed  truncated  empty  reasoning     mean   median      P90    max
    answers         0       1          0      0      0.0 %      n/a      n/a      n/a    n/a
    code          200       0          4      0     80.0 %  1,407.5  1,425.5  2,811.7  3,183
    math          100       0          2      0     80.0 %  1,387.6  1,391.0  2,815.7  3,173

    error      0.0 % of the first 60 answers have reasoning, 100.0 % of the other 240
    error      1 unreadable row: the line ends before its record does
               first at answers.jsonl:301 (byte 44114): _id":"s300","content":"caught in the mid
    warning    the first 100 answers average 200 tokens, the other 200 2,002: the file is not
               homogeneous
    warning    60 answers without reasoning (20.0 %): empty 60
               first at answers.jsonl:1 (byte 0)
    warning    1 request failed (0.3 %); most often: HTTP 500
    notice     6 answers cut by the token cap (2.0 %)
               first at answers.jsonl:50 (byte 7046)
    notice     1 row in progress: the last line is not finished

    next       settings changed on the way: the parts do not belong in one file
               (drift_reasoning_captured)
    "#);
}

#[test]
fn plain_ascii_and_narrow() {
    let text = report("answers.jsonl", &troubled(), &TerminalStyle { width: 72, ascii: true, color: false });
    assert!(text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let bars: Vec<&str> = text.lines().filter(|line| line.contains('#')).collect();
    insta::assert_snapshot!(bars.join("\n"), @r#"
    150-200  #############################                      50   16.7 %
    200-300  #############################                      50   16.7 %
     700-1k  ##########                                         16    5.3 %
    1k-1.5k  ########################                           41   13.7 %
    1.5k-2k  ########################                           41   13.7 %
      2k-3k  #################################################  87   29.0 %
      3k-5k  #########                                          15    5.0 %
    "#);
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
    insta::assert_snapshot!(text, @r#"
    file       batch_output.jsonl  948 B
    rows       4 = 4 parsed + 0 malformed + 0 blank + 0 in progress
    answers    4 = 4 finished + 0 truncated
    fields     in all 4 answers: completion_tokens at response.body.usage.completion_tokens ·
               prompt_tokens at response.body.usage.prompt_tokens · reasoning at
               response.body.choices[0].message.reasoning_content · content at
               response.body.choices[0].message.content · finish_reason at
               response.body.choices[0].finish_reason · id at custom_id

    tokens                 n   mean  median  stdev    P90    P95    P99  max
    answers                4  101.5   101.5    1.1  102.7  102.8  103.0  103
    prompts                4   10.0    10.0    0.0   10.0   10.0   10.0   10
    reasoning, characters  4    3.0     3.0    0.0    3.0    3.0    3.0    3
    content, characters    4    5.0     5.0    0.0    5.0    5.0    5.0    5
               mean ± 1.3 (95 %) = sum 406 / 4 answers with a token count, cut ones included; stdev of
               the population (ddof 0); percentiles linear between ranks, as numpy

    100–150  ██████████████████████████████████████████████████████████████████████████████  4  100.0 %
    weight     of all tokens the longest answers hold: 1 % 25.4 % · 5 % 25.4 % · 10 % 25.4 %
    finish     stop 4 (100.0 %)
    reasoning  captured in 4 of 4 answers (100.0 %)

    next       nothing to mend: ready for training
    "#);
}

#[test]
fn nothing_but_failures() {
    let rows: String =
        (0..5).map(|n| format!("{{\"id\":\"f{n}\",\"status\":\"failed\",\"cause\":\"HTTP 500\"}}\n")).collect();
    let text = report("STATS-06.all_failed.jsonl", &rows, &TerminalStyle::default());
    insta::assert_snapshot!(text, @r#"
    file       STATS-06.all_failed.jsonl  245 B
    rows       5 = 5 parsed + 0 malformed + 0 blank + 0 in progress
    answers    0 = 0 finished + 0 truncated; failed 5 (HTTP 500 5)

    error      5 requests failed (100 %); most often: HTTP 500

    next       no answers in 5 rows: ask again for these prompts; they are in no statistic
    "#);
}

#[test]
fn an_empty_file() {
    let text = report("empty.jsonl", "", &TerminalStyle::default());
    insta::assert_snapshot!(text, @r#"
    file       empty.jsonl  0 B
    rows       0 = 0 parsed + 0 malformed + 0 blank + 0 in progress
    answers    0 = 0 finished + 0 truncated

    next       no rows at all: is this the right file?
    "#);
}
