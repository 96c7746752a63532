//! Troubles of others, by the number of their case.

use crate::{kinds, look, look_at, used};
use eyas_inspect::{InspectPlan, Layout, VerdictLevel, inspect};

#[test]
fn stats_01_acceptance_length_is_pooled_and_says_so() {
    let pretty = r#"[
 {
  "id": "a",
  "completion_tokens": 10,
  "verify_steps": 5
 },
 {
  "id": "b",
  "completion_tokens": 300,
  "verify_steps": 60
 }
]"#;
    let sglang = r#"{"id":"a","meta_info":{"completion_tokens":10,"spec_verify_ct":5}}
{"id":"b","meta_info":{"completion_tokens":300,"spec_verify_ct":60}}
{"id":"no drafter","meta_info":{"completion_tokens":9}}
"#;
    for (name, content) in [("STATS-01.json", pretty), ("sglang.jsonl", sglang)] {
        let acceptance = look_at(name, content).acceptance.unwrap();
        assert!((acceptance.pooled - 310.0 / 65.0).abs() < 1e-12);
        assert!((acceptance.per_request_mean - 3.5).abs() < 1e-12);
        assert_eq!(acceptance.rows, 2);
    }
}

#[test]
fn stats_03_totals_are_sums_over_turns() {
    let rows = r#"{"id":"c","turn":0,"usage":{"prompt_tokens":12,"completion_tokens":5},"finish_reason":"stop"}
{"id":"c","turn":1,"usage":{"prompt_tokens":30,"completion_tokens":7},"finish_reason":"stop"}
"#;
    let inspection = look_at("STATS-03.raw_responses.jsonl", rows);
    let conversations = &inspection.conversations;
    assert_eq!((conversations.conversations, conversations.requests), (1, 2));
    assert_eq!((conversations.prompt_tokens, conversations.completion_tokens), (42, 12));
    assert_eq!(conversations.duplicate_ids, 0, "two turns are no duplicates");
    let by_turn = inspection.groups.iter().find(|grouping| grouping.by == "turn").unwrap();
    let sums: Vec<u64> = by_turn.groups.iter().map(|group| group.completion.sum).collect();
    assert_eq!(sums, [5, 7]);
}

#[test]
fn stats_05_discarded_tokens_are_generated_but_not_kept() {
    let wrapped = r#"{
 "wall_s": 10.0,
 "answers": [
  {
   "completion_tokens": 100,
   "kept": true
  },
  {
   "completion_tokens": 50,
   "kept": false,
   "why": "truncated"
  },
  {
   "completion_tokens": 50,
   "kept": true
  }
 ],
 "prompt_tokens": 400
}"#;
    let (_folder, path) = crate::file("STATS-05.json", wrapped);
    let mut plan = InspectPlan::new([path]);
    plan.wall_s = Some(10.0);
    let inspection = inspect(&plan).unwrap();
    crate::check_sums(&inspection);
    assert_eq!(inspection.files[0].layout, Layout::WrappedArray);
    let throughput = inspection.throughput.unwrap();
    assert_eq!((throughput.generated_per_s, throughput.kept_per_s, throughput.discarded_share), (20.0, 15.0, 0.25));
}

#[test]
fn stats_06_no_success_is_a_result_and_failures_stand_apart() {
    let failed: String =
        (0..5).map(|n| format!("{{\"id\":\"f{n}\",\"status\":\"failed\",\"cause\":\"HTTP 500\"}}\n")).collect();
    let inspection = look_at("STATS-06.all_failed.jsonl", failed);
    assert_eq!((inspection.lengths.completion.n, inspection.answers.failed), (0, 5));
    assert_eq!((inspection.lengths.completion.mean, inspection.lengths.completion.p99), (None, None));
    assert_eq!(
        (inspection.answers.failed_by_cause[0].name.as_str(), inspection.answers.failed_by_cause[0].count),
        ("HTTP 500", 5)
    );
    assert_eq!(inspection.verdict.level, VerdictLevel::Nothing);

    let mixed = r#"{"id":"a","status":"success","completion_tokens":10}
{"id":"b","status":"success","completion_tokens":20}
{"id":"c","status":"failed","cause":"timeout","completion_tokens":0}
"#;
    let inspection = look_at("STATS-06.mixed.jsonl", mixed);
    let stats = &inspection.lengths.completion;
    assert_eq!((stats.n, stats.mean, stats.median, stats.p99), (2, Some(15.0), Some(15.0), Some(19.9)));
    assert_eq!(inspection.answers.failed, 1);
}

#[test]
fn parse_01_only_a_newline_ends_a_record() {
    let rows = "{\"id\":\"a\",\"content\":\"one\"}\n{\"id\": \"b\", \"content\": \"x\u{2028}y\u{2029}z\u{85}w\\u000bv\"}\n{\"id\":\"c\",\"content\":\"three\"}\n";
    let inspection = look_at("PARSE-01.jsonl", rows);
    assert_eq!((inspection.rows.total, inspection.rows.parsed), (3, 3));
    assert_eq!(inspection.lengths.content_characters.unwrap().max, Some(9), "nine characters, unchanged");
}

#[test]
fn parse_02_a_lone_surrogate_is_named_and_the_rest_is_read() {
    let rows = r#"{"id":"r1","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"ok \ud83d\ude00"}]}
{"id":"r2","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"area 5 m\udcb2"}]}
{"id":"r3","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"plain"}]}
"#;
    let inspection = look_at("PARSE-02.jsonl", rows);
    assert_eq!((inspection.rows.total, inspection.rows.parsed), (3, 3));
    let remark = &inspection.remarks[0];
    assert_eq!((remark.class.as_str(), remark.count, remark.examples[0].line), ("lone_surrogate", 1, 2));
    assert_eq!(inspection.lengths.content_characters.unwrap().sum, 4 + 9 + 5);
}

#[test]
fn parse_04_types_may_change_from_row_to_row() {
    let rows = r#"{"id":"s","content":"","tool_calls":[{"type":"function","function":{"name":"f1","arguments":{"time":"2025-08-01"}}}],"finish_reason":"tool_calls","usage":{"completion_tokens":5}}
{"id":7,"content":null,"tool_calls":[{"type":"function","function":{"name":"f2","arguments":{"time":1690876800}}}],"finish_reason":{"type":"tool_calls"},"usage":{"completion_tokens":6.0}}
{"id":"e","content":["parts"],"tool_calls":null,"finish_reason":"stop","usage":null,"completion_tokens":"5"}
"#;
    let inspection = look_at("PARSE-04.jsonl", rows);
    assert_eq!((inspection.rows.parsed, inspection.answers.answers, inspection.answers.empty_content), (3, 3, 0));
    assert_eq!(inspection.lengths.completion.sum, 11);
    assert_eq!(
        used(&inspection, "finish_reason"),
        [("finish_reason".to_owned(), 2), ("finish_reason.type".to_owned(), 1)]
    );
}

#[test]
fn parse_05_arrays_are_read_as_such_and_never_as_bad_lines() {
    let array = r#"[{"id": "a", "content": "1"}, {"id": "b", "content": "2"}]"#;
    let pretty =
        "[\n {\n  \"id\": \"a\",\n  \"content\": \"1\"\n },\n {\n  \"id\": \"b\",\n  \"content\": \"2\"\n }\n]\n";
    let wrapped = "{\n \"version\": \"1.0\",\n \"data\": [\n  {\"id\": \"a\", \"content\": \"1\"},\n  {\"id\": \"b\", \"content\": \"2\"}\n ]\n}\n";
    for (name, content, layout) in [
        ("PARSE-05.array.json", array, Layout::JsonArray),
        ("PARSE-05.pretty.jsonl", pretty, Layout::JsonArray),
        ("PARSE-05.wrapped.json", wrapped, Layout::WrappedArray),
    ] {
        let inspection = look_at(name, content);
        assert_eq!(inspection.files[0].layout, layout, "{name}");
        assert_eq!((inspection.rows.total, inspection.rows.parsed, inspection.answers.answers), (2, 2, 2), "{name}");
    }
}

#[test]
fn reason_01_any_name_of_the_reasoning_field_is_read_once() {
    let rows = r#"{"id":"old","content":"A1","reasoning_content":"R1"}
{"id":"new","content":"A1","reasoning":"R1"}
{"id":"both","content":"A1","reasoning":"R1","reasoning_content":"R1"}
{"id":"none","content":"A1"}
"#;
    let inspection = look_at("REASON-01.jsonl", rows);
    let reasoning = &inspection.reasoning;
    assert_eq!((reasoning.captured, reasoning.absent), (3, 1));
    assert_eq!(inspection.lengths.reasoning_characters.as_ref().unwrap().sum, 6);
    assert_eq!(used(&inspection, "reasoning"), [("reasoning".to_owned(), 2), ("reasoning_content".to_owned(), 1)]);
    assert_eq!(kinds(&inspection), ["reasoning_missing", "no_token_counts"]);

    let differ = r#"{"id":"x","content":"A1","reasoning":"R1","reasoning_content":"R2"}"#;
    assert!(kinds(&look_at("differ.jsonl", differ)).contains(&"field_conflict"));
}

#[test]
fn reason_02_a_closing_tag_alone_is_reasoning_left_in_the_content() {
    let row = r#"{"id":"q","text":"2 and 2 is 4.\n</think>\n\n4","finish_reason":"stop"}"#;
    let inspection = look_at("REASON-02.jsonl", row);
    let reasoning = &inspection.reasoning;
    assert_eq!((reasoning.leaked, reasoning.leaked_closing_only, reasoning.unclosed), (1, 1, 0));
    assert_eq!(kinds(&inspection)[0], "reasoning_leaked");
}

#[test]
fn reason_05_channel_markup_in_the_content_is_unparsed() {
    let row = r#"{"id":"q","content":"<|channel|>analysis<|message|>add<|end|><|channel|>final<|message|>4","finish_reason":"stop"}"#;
    assert!(kinds(&look_at("REASON-05.jsonl", row)).contains(&"unparsed_markup"));
}

#[test]
fn trunc_01_a_cap_inside_the_reasoning_shows_as_truncated_and_empty() {
    let rows = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning":"step one, step"},"finish_reason":"length"}],"usage":{"prompt_tokens":6,"completion_tokens":32,"total_tokens":38}}
{"id":"y","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"fine","reasoning":"r"},"finish_reason":"stop"}],"usage":{"prompt_tokens":6,"completion_tokens":7,"total_tokens":13}}
"#;
    let inspection = look_at("TRUNC-01.jsonl", rows);
    let answers = &inspection.answers;
    assert_eq!((answers.answers, answers.finished, answers.truncated), (2, 1, 1));
    assert_eq!((answers.empty_content, answers.empty_content_truncated), (1, 1));
    assert_eq!(inspection.reasoning.truncated_in_reasoning, 1);
    assert_eq!((inspection.lengths.finished.sum, inspection.lengths.truncated.sum), (7, 32));
    assert_eq!(inspection.groups[0].groups[0].truncated, 1, "the truncated column");
}

#[test]
fn trunc_04_rows_of_no_use_are_told_apart() {
    let rows = r#"{"id":"ok","prompt_ids":[275,270],"output_ids":[121,111,276],"text":"yo","finish_reason":"stop"}
{"id":"cut","prompt_ids":[275,270],"output_ids":[121,111],"text":"yo","finish_reason":"length"}
{"id":"err","prompt_ids":[275,270],"error":"HTTP 500","finish_reason":null}
{"id":"empty","prompt_ids":[275,270],"output_ids":[276],"text":"","finish_reason":"stop"}
{"id":"useronly","conversations":[{"from":"human","value":"hi"}]}
"#;
    let inspection = look_at("TRUNC-04.raw_responses.jsonl", rows);
    let answers = &inspection.answers;
    assert_eq!((answers.finished, answers.truncated, answers.failed, answers.without_answer), (2, 1, 1, 1));
    assert_eq!((answers.empty_content, answers.empty_content_truncated), (1, 0));
    assert_eq!(answers.failed_by_cause[0].name, "HTTP 500");
}

#[test]
fn resume_01_a_torn_tail_is_in_progress() {
    let rows = r#"{"id":"a","status":"success","text":"yo","output_ids":[121,111,276],"finish_reason":"stop"}
{"id":"b","status":"success","text":"yo","output_ids":[121,111,276],"finish_reason":"stop"}
{"id": "c", "status": "success", "tex"#;
    let inspection = look_at("RESUME-01.raw_responses.jsonl", rows);
    assert_eq!((inspection.rows.total, inspection.rows.parsed, inspection.rows.in_progress), (3, 2, 1));
    assert_eq!(inspection.rows.malformed, 0);
}

#[test]
fn resume_07_mixed_settings_are_groups() {
    let rows = r#"{"sample_id":"a","fingerprint":"f1","content":"x","usage":{"completion_tokens":1}}
{"sample_id":"b","fingerprint":"f2","content":"x","usage":{"completion_tokens":1}}
"#;
    let inspection = look_at("RESUME-07.jsonl", rows);
    assert!(kinds(&inspection).contains(&"mixed_fingerprints"), "{:?}", kinds(&inspection));
}

#[test]
fn server_01_an_abort_is_no_answer() {
    let row = r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"queue full","status_code":503},"completion_tokens":0}}"#;
    let inspection = look_at("SERVER-01.jsonl", row);
    assert_eq!((inspection.answers.answers, inspection.answers.failed), (0, 1));
    assert_eq!(inspection.answers.failed_by_cause[0].name, "abort: queue full");
}

#[test]
fn ux_05_nothing_is_said_to_be_nothing() {
    for (content, total, blank) in [("", 0, 0), ("\n\n\n", 3, 3)] {
        let inspection = look_at("UX-05.jsonl", content);
        assert_eq!((inspection.rows.total, inspection.rows.blank), (total, blank));
        assert_eq!(inspection.verdict.level, VerdictLevel::Nothing);
    }
}

#[test]
fn ux_02_a_folder_without_answers_is_an_error_that_says_what_was_looked_for() {
    let folder = tempfile::TempDir::new().unwrap();
    let error = inspect(&InspectPlan::new([folder.path()])).unwrap_err().to_string();
    assert!(error.ends_with("holds no answer files: neither `prepared/*/raw_responses.jsonl` nor `*.jsonl`, `*.ndjson`, `*.json` (plain, .gz, .zst)"), "{error}");
}

#[test]
fn scale_06_the_same_id_in_two_files_is_a_duplicate_within_one_data_set() {
    let folder = tempfile::TempDir::new().unwrap();
    let shard = |name: &str, rows: &str| {
        let path = folder.path().join(name);
        eyas_testkit::write_file(&path, rows);
        path
    };
    let a = shard(
        "a.jsonl",
        "{\"id\":\"a\",\"dataset\":\"d\",\"text\":\"1\"}\n{\"id\":\"b\",\"dataset\":\"d\",\"text\":\"2\"}\n",
    );
    let b = shard(
        "b.jsonl",
        "{\"id\":\"b\",\"dataset\":\"d\",\"text\":\"2\"}\n{\"id\":\"c\",\"dataset\":\"d\",\"text\":\"3\"}\n",
    );
    let inspection = look(&[&a, &b]);
    assert_eq!((inspection.conversations.conversations, inspection.conversations.duplicate_ids), (3, 1));
}
