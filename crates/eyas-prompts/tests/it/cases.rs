//! Cases of the shared collection, by name.

use crate::kit::{Prepared, by_id, open_error, picture, read, read_with, roles, tiny_renderer};
use eyas_prompts::normalise::{SchemaName, SchemaOptions};
use eyas_prompts::prepare::{PrepareError, PrepareKey};
use eyas_prompts::source::{SourceOptions, Surrogates};
use eyas_testkit::shared_case;
use eyas_types::FingerprintInputs;
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn parse_01_unicode_line_separators_end_no_record() {
    let Some(case) = shared_case("PARSE-01") else { return };
    let expected = case.json("expected.json");
    let prepared = Prepared::new(&[case.path("jsonl")]);
    let report = prepared.run().unwrap();
    assert_eq!(json!(report.loaded), expected["records"]);
    assert_eq!(json!(report.rejected), expected["rejected"]);

    // Through prompts.jsonl and back: still one line a record, and the same characters.
    let prompts = prepared.prompts();
    let text = by_id(&prompts, "b").messages[0].content_str().unwrap();
    let codepoints: Vec<u32> = text.chars().map(u32::from).collect();
    assert_eq!(json!(codepoints), expected["user_text_codepoints_b"]);
}

#[test]
fn parse_02_lone_surrogate_is_rejected_or_repaired() {
    let Some(case) = shared_case("PARSE-02") else { return };
    let expected = case.json("expected.json");
    let mut prepared = Prepared::new(&[case.path("jsonl")]);
    let report = prepared.run().unwrap();
    assert_eq!(json!(report.loaded), expected["default"]["records"]);
    let rejected = prepared.rejected();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].source.row, 2);
    assert_eq!(rejected[0].reason, "lone_surrogate");
    assert!(rejected[0].detail.contains("lone surrogate"), "{}", rejected[0].detail);
    assert_eq!(by_id(&prepared.prompts(), "r1").messages[0].content, Some(expected["r1_text"].clone()));

    prepared.plan.source.surrogates = Surrogates::Repair;
    let report = prepared.run().unwrap();
    assert_eq!(json!(report.loaded), expected["repair_option"]["records"]);
    assert_eq!(report.repaired_by_kind, BTreeMap::from([("lone_surrogate_replaced".to_owned(), 1)]));
    let prompts = prepared.prompts();
    let r2 = by_id(&prompts, "r2");
    assert_eq!(r2.messages[0].content, Some(expected["repair_option"]["r2_text"].clone()));
    assert_eq!(r2.repairs, ["lone_surrogate_replaced"]);
    assert!(by_id(&prompts, "r1").repairs.is_empty());
    assert!(!prepared.plan.rejected_path().exists(), "nothing is rejected any more, so the old file is gone");
}

#[test]
fn parse_04_values_keep_their_type() {
    let Some(case) = shared_case("PARSE-04") else { return };
    let prepared = Prepared::new(&[case.path("jsonl")]);
    let report = prepared.run().unwrap();
    assert_eq!(report.loaded, 3);
    let prompts = prepared.prompts();
    let arguments = |id: &str| {
        let call = &by_id(&prompts, id).reference.as_ref().unwrap().tool_calls[0];
        call.function.arguments.to_string()
    };
    assert_eq!(arguments("s"), r#"{"time":"2025-08-01"}"#);
    assert_eq!(arguments("n"), r#"{"time":1690876800}"#);
    assert_eq!(arguments("e"), "{}");
}

#[test]
fn parse_05_array_wrapped_array_and_misnamed_file() {
    let Some(case) = shared_case("PARSE-05") else { return };
    let plain = SourceOptions::default();
    let (rows, end) = read(case.path("array.json"));
    assert_eq!(rows.iter().filter(|row| row.value.is_ok()).count(), 2);
    assert_eq!(end.broken, None);

    let with_field = SourceOptions { field: Some("data".into()), ..SourceOptions::default() };
    let (rows, _) = read_with(case.path("wrapped.json"), &with_field);
    assert_eq!(rows.iter().filter(|row| row.value.is_ok()).count(), 2);
    let error = open_error(case.path("wrapped.json"), &plain);
    assert!(error.ends_with("its keys are: `version`, `data`"), "{error}");

    let error = open_error(case.path("pretty.jsonl"), &plain);
    let expected = "line 1: the file is a single JSON array, not JSON lines; read it with format `json`";
    assert!(error.ends_with(expected), "{error}");
    assert!(matches!(Prepared::new(&[case.path("pretty.jsonl")]).run(), Err(PrepareError::Open(_))));
    let as_json = SourceOptions { format: Some(eyas_prompts::source::Format::Json), ..SourceOptions::default() };
    assert_eq!(read_with(case.path("pretty.jsonl"), &as_json).0.len(), 2);
}

#[test]
fn schema_01_leading_model_turns_are_dropped_and_marked() {
    let Some(case) = shared_case("SCHEMA-01") else { return };
    let prepared = Prepared::new(&[case.path("jsonl")]);
    let report = prepared.run().unwrap();
    assert_eq!((report.read, report.loaded, report.rejected), (3, 3, 0));
    assert_eq!(report.repaired_by_kind, BTreeMap::from([("leading_assistant_dropped".to_owned(), 1)]));
    assert_eq!(
        report.mapping.as_deref(),
        Some("`conversations` with `from`/`value`: gpt→assistant, human→user, system; ids from `id`")
    );
    let prompts = prepared.prompts();
    assert_eq!(roles(by_id(&prompts, "r0")), ["user", "assistant"]);
    assert_eq!(by_id(&prompts, "r0").messages[0].content_str(), Some("go on"));
    assert_eq!(by_id(&prompts, "r0").repairs, ["leading_assistant_dropped"]);
    assert_eq!(roles(by_id(&prompts, "r1")), ["user", "assistant"]);
    assert_eq!(roles(by_id(&prompts, "r2")), ["system", "user", "assistant"]);
}

#[test]
fn schema_02_each_bad_conversation_has_its_own_reason() {
    let Some(case) = shared_case("SCHEMA-02") else { return };
    let prepared = Prepared::new(&[case.path("jsonl")]);
    let report = prepared.run().unwrap();
    assert_eq!((report.read, report.loaded, report.rejected), (5, 1, 4));
    assert!(report.low_yield);
    assert_eq!(prepared.prompts()[0].sample_id, "good");
    let lines: Vec<String> =
        prepared.rejected().iter().map(|row| format!("{} {}: {}", row.source.row, row.reason, row.detail)).collect();
    assert_eq!(
        lines,
        [
            "1 empty_conversation: empty conversation: `conversations` has no turns; other fields: [id]",
            "2 null_conversation: `conversations` is null; other fields: [id]",
            "3 no_conversation_field: no conversation field: expected `conversations`, fields found: [id, text]",
            "4 no_user_turn: no user turn; roles found: [system]",
        ]
    );
}

#[test]
fn schema_04_function_call_and_observation_become_calls_and_results() {
    let Some(case) = shared_case("SCHEMA-04") else { return };
    let expected = case.json("expected.json");
    let prepared = Prepared::new(&[case.path("jsonl")]);
    prepared.run().unwrap();
    let prompt = &prepared.prompts()[0];
    assert_eq!(json!(roles(prompt)), expected["roles"]);
    let call = &prompt.messages[1].tool_calls[0].function;
    assert_eq!(json!({"name": call.name, "arguments": call.arguments}), expected["tool_call"]);
    assert_eq!(prompt.messages[1].content, None);
    assert_eq!(prompt.messages[2].content_str(), Some(r#"{"time": "12:00"}"#));
    assert_eq!(prompt.tools.as_ref().map(Vec::len), Some(1));
    assert!(prompt.repairs.is_empty());
}

#[test]
fn schema_07_text_is_read_as_such_only_when_asked_for() {
    let Some(case) = shared_case("SCHEMA-07") else { return };
    let mut prepared = Prepared::new(&[case.path("jsonl")]);
    let error = prepared.run().unwrap_err().to_string();
    assert!(error.contains("fields found: `id`, `text`; fields expected: `messages`, `conversations`"), "{error}");
    assert!(!prepared.plan.prompts_path().exists());

    prepared.plan.schema = SchemaOptions { schema: Some(SchemaName::Text), ..SchemaOptions::default() };
    prepared.run_with(&tiny_renderer(&case.common(""), "chatml.jinja")).unwrap();
    let prompts = prepared.prompts();
    let expected = case.json("expected.json");
    assert_eq!(prompts.len(), 2);
    for id in ["t1", "t2"] {
        assert_eq!(json!(by_id(&prompts, id).prompt_ids), expected["text_mode_ids"][id]);
    }
}

#[test]
fn tool_01_arguments_are_encoded_once() {
    let Some(case) = shared_case("TOOL-01") else { return };
    let prepared = Prepared::new(&[case.path("jsonl")]);
    prepared.run().unwrap();
    let prompts = prepared.prompts();
    let (text, object) = (by_id(&prompts, "str"), by_id(&prompts, "obj"));
    assert_eq!(text.reference, object.reference);
    assert_eq!(text.reference.as_ref().unwrap().tool_calls[0].function.arguments, json!({"city": "Oslo"}));
    assert_eq!(text.reference.as_ref().unwrap().tool_calls[0].id.as_deref(), Some("c"));
    assert_eq!(text.repairs, ["tools_missing"]);
}

#[test]
fn tool_07_calls_kept_as_text() {
    let Some(case) = shared_case("TOOL-07") else { return };
    let expected = case.json("expected.json");
    let prepared = Prepared::new(&[case.path("jsonl")]);
    prepared.run().unwrap();
    let prompts = prepared.prompts();
    for id in ["s", "e", "n"] {
        let calls = &by_id(&prompts, id).reference.as_ref().unwrap().tool_calls;
        let found: Vec<_> = calls
            .iter()
            .map(|call| json!({"name": call.function.name, "arguments": call.function.arguments}))
            .collect();
        assert_eq!(json!(found), expected[id], "{id}");
    }
}

#[test]
fn ux_02_a_filter_that_removes_everything_is_an_error() {
    let Some(case) = shared_case("UX-02") else { return };
    let expected = case.json("expected.json");
    let mut prepared = Prepared::new(&[case.path("jsonl")]);
    prepared.plan.filter.min_tokens = Some(10_000);
    let error = prepared.run_with(&tiny_renderer(&case.common(""), "chatml.jinja")).unwrap_err();
    assert_eq!(error.to_string(), "data set `set`: 0 of 5 rows kept: too_short 5 (longest 18 tokens, limit 10000)");
    let PrepareError::NothingKept { report } = error else { panic!("{error}") };
    assert_eq!(json!(report.loaded), expected["kept"]);
    assert_eq!(json!(report.rejected_by_reason), expected["dropped"]);
    assert!(report.low_yield);
    assert!(!prepared.plan.prompts_path().exists());
    assert_eq!(prepared.rejected().len(), 5);
}

#[test]
fn ux_05_no_records_says_what_the_file_holds() {
    let Some(case) = shared_case("UX-05") else { return };
    let error = Prepared::new(&[case.path("empty.jsonl"), case.path("blank.jsonl")]).run().unwrap_err().to_string();
    assert!(error.starts_with("no records in data set `set`: "), "{error}");
    assert!(error.contains("empty.jsonl` (0 bytes), ") && error.ends_with("blank.jsonl` (3 blank lines)"), "{error}");
}

#[test]
fn resume_03_identity_is_the_content_not_the_place() {
    let Some(case) = shared_case("RESUME-03") else { return };
    let renderer = tiny_renderer(&case.common(""), "chatml.jinja");
    let ids_by_text = |path: &str| {
        let prepared = Prepared::new(&[case.path(path)]);
        prepared.run_with(&renderer).unwrap();
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prompt in prepared.prompts() {
            let text = prompt.messages[0].content_str().unwrap().to_owned();
            found.entry(text).or_default().push(prompt.sample_id);
        }
        found.values_mut().for_each(|ids| ids.sort());
        found
    };
    let (v1, v2) = (ids_by_text("v1.jsonl"), ids_by_text("v2.jsonl"));
    assert_eq!(v1["A"], v2["A"]);
    assert_eq!(v1["B"], v2["B"]);
    assert_eq!(v1["B"].len(), 2, "two equal rows are two records");
    assert_ne!(v1["B"][0], v1["B"][1]);
    let done: Vec<&String> = v1.values().flatten().collect();
    let to_send: Vec<&String> = v2.values().flatten().filter(|id| !done.contains(id)).collect();
    assert_eq!(to_send, v2["N"].iter().collect::<Vec<_>>());

    // The key tells that the input changed, and a second look at the same input does not.
    let key = |path: &str, known: Option<&PrepareKey>| {
        let plan = Prepared::new(&[case.path(path)]).plan;
        PrepareKey::of(&plan, &FingerprintInputs::default(), known).unwrap()
    };
    let first = key("v1.jsonl", None);
    assert_eq!(key("v1.jsonl", Some(&first)).changes_since(&first), Vec::<String>::new());
    assert_eq!(key("v2.jsonl", None).changes_since(&first).len(), 2, "one file is new, one is gone");
}

#[test]
fn every_jsonl_of_the_collection_can_be_read() {
    let Some(shared) = eyas_testkit::shared_dir() else { return };
    let mut n_files = 0;
    for entry in std::fs::read_dir(shared.join("cases/inputs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Torn on purpose, or not what its name says.
        if !name.ends_with(".jsonl") || name.starts_with("PARSE") || name.starts_with("RESUME-01.raw") {
            continue;
        }
        let (rows, end) = read(&path);
        assert_eq!(end.broken, None, "{name}");
        assert!(rows.iter().all(|row| row.value.is_ok()), "{name}: {:?}", picture(&rows));
        n_files += 1;
    }
    assert!(n_files > 50, "{n_files}");
}
