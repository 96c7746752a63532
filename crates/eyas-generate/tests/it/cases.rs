//! The shared cases, by name. They are skipped with a line when the cases are not there.

use crate::support::{
    answered_ids, case_prompts, failures, plan, plan_for, prompt, responses, run, tiny_splitter, words, write_prompts,
};
use eyas_generate::{Cancel, DatasetCounts, Event, ExitReason, GeneratePlan, Protocol, ReasoningMode, Run};
use eyas_testkit::mock::MockServer;
use eyas_testkit::{shared_case, write_file};
use eyas_types::{Flag, Response, Status, ThinkState};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn chat_plan(dir: &Path, server: &MockServer) -> GeneratePlan {
    plan_for(dir, &server.url(), 4, Protocol::OpenaiChat, |_| {})
}

fn of<'a>(responses: &'a [Response], id: &str) -> &'a Response {
    responses.iter().find(|response| response.sample_id == id).unwrap_or_else(|| panic!("no answer to `{id}`"))
}

#[tokio::test]
async fn parse_01_unicode_line_separators_survive_the_journal_and_the_resume() {
    let Some(case) = shared_case("PARSE-01") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let server = MockServer::start(json!({"default": {"type": "ok", "text": "x\u{2028}\u{2029}\u{85}\u{b}y"}}));
    run(plan(dir.path(), &server.url(), 2)).await;

    let text = std::fs::read_to_string(dir.path().join("raw_responses.jsonl")).unwrap();
    assert_eq!(text.matches('\n').count(), 3);
    let responses = responses(dir.path());
    let codepoints: Vec<u32> = of(&responses, "b").messages[0].content_str().unwrap().chars().map(u32::from).collect();
    assert_eq!(json!(codepoints), case.json("expected.json")["user_text_codepoints_b"]);
    assert!(responses.iter().all(|response| response.content == "x\u{2028}\u{2029}\u{85}\u{b}y"));

    let again = Run::open(plan(dir.path(), &server.url(), 2)).unwrap();
    assert_eq!((again.datasets()[0].answered, again.pending()), (3, 0));
}

#[tokio::test]
async fn resume_01_nothing_is_appended_behind_a_torn_tail() {
    let Some(case) = shared_case("RESUME-01") else { return };
    let prompts = case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided);

    // The case's journal in this tool's layout: whole records a and b, a torn c.
    let made = tempfile::tempdir().unwrap();
    write_prompts(made.path(), &prompts[..3]);
    let yo = MockServer::start(json!({"default": {"type": "ok", "text": "yo"}}));
    run(plan(made.path(), &yo.url(), 1)).await;
    let whole = std::fs::read_to_string(made.path().join("raw_responses.jsonl")).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let whole_bytes = lines[0].len() + lines[1].len();

    // Killed at any byte of the third record.
    for cut in (1..lines[2].len() - 1).step_by(37) {
        let dir = tempfile::tempdir().unwrap();
        write_prompts(dir.path(), &prompts);
        write_file(dir.path().join("raw_responses.jsonl"), &whole[..whole_bytes + cut]);
        let server = MockServer::start(case.json("server.json"));

        let opened = Run::open(plan(dir.path(), &server.url(), 2)).unwrap();
        let torn = opened.datasets()[0].recovery.torn.clone().unwrap();
        assert_eq!((torn.offset, torn.n_bytes), (whole_bytes as u64, cut as u64));
        assert_eq!(std::fs::read_to_string(&torn.side_file).unwrap(), lines[2][..cut]);
        let outcome = opened.execute(Cancel::new(), |_| {}).await.unwrap();

        assert_eq!(outcome.reason, ExitReason::Complete);
        assert_eq!(json!(server.n_requests()), case.json("expected.json")["requests"]);
        assert_eq!(json!(answered_ids(dir.path())), case.json("expected.json")["final_ids"]);
    }
}

#[tokio::test]
async fn resume_03_identity_is_what_is_sent_not_the_position() {
    let Some(case) = shared_case("RESUME-03") else { return };
    let expected = case.json("expected.json");
    let dir = tempfile::tempdir().unwrap();
    // Rows without an id are named by a hash of what is sent and an occurrence counter, as `prepare` does.
    let prompts = |version: &str| {
        let mut seen = Vec::new();
        let rows = case.json_lines(version);
        let named = rows.iter().map(|row| {
            let text = row["messages"][0]["content"].as_str().unwrap().to_owned();
            let n_before = seen.iter().filter(|earlier| **earlier == text).count();
            seen.push(text.clone());
            prompt(&format!("h-{text}-{n_before}"), &text, ThinkState::Undecided)
        });
        named.collect::<Vec<_>>()
    };
    let mut n_before = 0;
    for (version, n_requests) in [("v1.jsonl", &expected["run1_requests"]), ("v2.jsonl", &expected["run2_requests"])] {
        write_prompts(dir.path(), &prompts(version));
        let server = MockServer::start(case.json("server.json"));
        let (outcome, _) = run(plan(dir.path(), &server.url(), 2)).await;
        assert_eq!((json!(server.n_requests()), outcome.reason), (n_requests.clone(), ExitReason::Complete));
        n_before = responses(dir.path()).len();
    }
    assert_eq!(json!(n_before), expected["records"]);
    for response in responses(dir.path()) {
        let asked = response.messages[0].content_str().unwrap();
        assert_eq!(json!(response.content), expected["pairs"][asked]);
    }
}

#[tokio::test]
async fn resume_04_the_done_set_is_read_from_the_output_at_every_start() {
    let Some(case) = shared_case("RESUME-04") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let journal = dir.path().join("raw_responses.jsonl");
    let mut n_requests = Vec::new();
    let mut before = None;
    for run_number in 1..=3 {
        let server = MockServer::start(case.json("server.json"));
        let mut plan = plan(dir.path(), &server.url(), 4);
        plan.stop_after = (run_number == 1).then_some(2);
        let opened = Run::open(plan).unwrap();
        if run_number == 3 {
            let state = &opened.datasets()[0];
            assert_eq!((state.answered, state.total, opened.pending()), (4, 4, 0), "already complete 4 of 4");
        }
        let outcome = opened.execute(Cancel::new(), |_| {}).await.unwrap();
        let expected = if run_number == 1 { ExitReason::StopAfter } else { ExitReason::Complete };
        assert_eq!(outcome.reason, expected);
        n_requests.push(server.n_requests());
        let metadata = std::fs::metadata(&journal).unwrap();
        let now = Some((metadata.len(), metadata.modified().unwrap()));
        assert_eq!(run_number == 3, before == now, "run {run_number}");
        before = now;
    }
    assert_eq!(json!(n_requests), case.json("expected.json")["requests_per_run"]);
    assert!(!dir.path().join("failed.jsonl").exists());
}

#[tokio::test]
async fn reason_01_reasoning_under_any_name_is_kept_once_and_its_absence_is_flagged() {
    let Some(case) = shared_case("REASON-01") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let server = MockServer::start(case.json("server.json"));
    let mut plan = chat_plan(dir.path(), &server);
    plan.splitter = tiny_splitter(&case, "think");
    plan.reasoning = ReasoningMode::Expected;
    let (outcome, _) = run(plan).await;
    let responses = responses(dir.path());
    for (id, expected) in case.json("expected.json").as_object().unwrap() {
        let response = of(&responses, id);
        assert_eq!(json!([response.reasoning, response.content]), json!([expected[0], expected[1]]), "{id}");
        let missing = response.flags.contains(&Flag::ReasoningMissing);
        assert_eq!(missing, expected[2] == "reasoning_missing", "{id}");
    }
    assert_eq!((outcome.snapshot.capture.n_answers, outcome.snapshot.capture.n_with_reasoning), (4, 3));
}

#[tokio::test]
async fn reason_01_a_target_that_never_reasons_is_said_at_once_and_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &crate::support::numbered(400));
    let server = MockServer::start(json!({"default": {"type": "ok", "text": "A1"}}));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.reasoning = ReasoningMode::Expected;
    plan.progress_interval = Duration::from_secs(3_600);
    let (outcome, events) = run(plan).await;
    let warnings: Vec<_> = events.iter().enumerate().filter(|(_, event)| event.starts_with("warning")).collect();
    assert!(warnings[0].1.starts_with("warning: none of the first 5 answers has any reasoning"), "{}", warnings[0].1);
    assert!(warnings[0].0 <= 6, "said after the fifth answer, not later");
    assert_eq!(warnings[1].1, "warning: only 0 of 50 answers have reasoning");
    assert!(matches!(outcome.reason, ExitReason::Gate(_)), "{:?}", outcome.reason);
    let n_answered = outcome.snapshot.sum(|dataset| dataset.answered);
    assert!((50..100).contains(&n_answered), "{n_answered}");
    assert_eq!(responses(dir.path()).len() as u64, n_answered, "what was in flight is kept");
    assert_eq!(outcome.snapshot.sum(DatasetCounts::pending), 400 - n_answered);
}

#[tokio::test]
async fn reason_02_the_prompt_says_that_the_answer_begins_inside_the_reasoning() {
    let Some(case) = shared_case("REASON-02") else { return };
    let expected = case.json("expected.json");
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Open));
    let server = MockServer::start(case.json("server.json"));
    let mut plan = plan(dir.path(), &server.url(), 1);
    plan.splitter = tiny_splitter(&case, "think");
    let (outcome, _) = run(plan).await;
    let response = &responses(dir.path())[0];
    assert_eq!(
        (json!(response.reasoning), json!(response.content)),
        (expected["reasoning"].clone(), expected["content"].clone())
    );
    let (spans, ids) = (response.spans.unwrap(), response.output_ids.clone().unwrap());
    assert!(spans.covers(ids.len()));
    assert_eq!(spans.end_marker.of(&ids), Some(&[278][..]), "closed");
    assert_eq!(response.usage.reasoning_tokens, Some(u64::from(spans.reasoning.len())));
    assert_eq!(response.flags, []);
    // The exact ids: the training row of the case ends in them.
    let row: Vec<u32> = serde_json::from_value(expected["input_ids"].clone()).unwrap();
    assert!(row.ends_with(&ids));
    assert_eq!(outcome.snapshot.capture.rate(), Some(1.0), "an open think block makes reasoning expected");
}

#[tokio::test]
async fn reason_05_channel_markup_is_taken_apart_or_flagged() {
    let Some(case) = shared_case("REASON-05") else { return };
    let prompts = case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided);
    for format in ["channels", "think"] {
        let dir = tempfile::tempdir().unwrap();
        write_prompts(dir.path(), &prompts);
        let server = MockServer::start(case.json("server.json"));
        // The case's server gives no ids.
        let mut plan =
            plan_for(dir.path(), &server.url(), 2, Protocol::SglangGenerate, |endpoint| endpoint.allow_text = true);
        plan.splitter = tiny_splitter(&case, format);
        run(plan).await;
        let responses = responses(dir.path());
        let (a, b) = (of(&responses, "a"), of(&responses, "b"));
        assert!(a.flags.contains(&Flag::NoIds) && a.spans.is_none() && a.output_ids.is_none());
        if format == "channels" {
            assert_eq!((a.reasoning.as_str(), a.content.as_str()), ("add", "4"));
            assert_eq!((b.reasoning.as_str(), b.content.as_str()), ("use calc", ""));
            assert_eq!(
                (b.tool_calls[0].function.name.as_str(), &b.tool_calls[0].function.arguments),
                ("calc", &json!({"x": 2}))
            );
        } else {
            assert!(a.flags.contains(&Flag::UnparsedMarkup) && b.flags.contains(&Flag::UnparsedMarkup));
        }
    }
}

#[tokio::test]
async fn reason_07_thinking_off_flags_reasoning_and_another_mode_is_another_run() {
    let Some(case) = shared_case("REASON-07") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Closed));
    let server = MockServer::start(json!({"default": {"type": "ok", "output_ids": [277, 120, 278, 121, 276]}}));
    let off = |mode: &str| {
        let mut plan = plan(dir.path(), &server.url(), 1);
        plan.splitter = tiny_splitter(&case, "think");
        plan.reasoning = ReasoningMode::Off;
        plan.fingerprint.set("reasoning", mode);
        plan
    };
    let (outcome, _) = run(off("off")).await;
    assert_eq!(outcome.reason, ExitReason::Complete);
    assert!(responses(dir.path())[0].flags.contains(&Flag::UnexpectedReasoning));

    let mut other = off("keep");
    other.previous = Some(off("off").fingerprint);
    let error = Run::open(other).unwrap_err().to_string();
    assert!(error.ends_with(r#"were made with other settings: reasoning "off" -> "keep""#), "{error}");
}

#[tokio::test]
async fn trunc_01_a_cut_inside_the_reasoning_is_kept_once_and_marked() {
    let Some(case) = shared_case("TRUNC-01") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let server = MockServer::start(case.json("server.json"));
    let mut plan = chat_plan(dir.path(), &server);
    plan.splitter = tiny_splitter(&case, "think");
    plan.sampling.max_new_tokens = 32;
    let (outcome, _) = run(plan).await;
    assert_eq!(server.n_requests(), 2, "no retry for being long");
    let responses = responses(dir.path());
    let cut = of(&responses, "cut");
    assert_eq!((cut.status, cut.reasoning.as_str(), cut.content.as_str()), (Status::Truncated, "step one, step", ""));
    assert_eq!(cut.usage.completion_tokens, 32);
    assert!(cut.flags.contains(&Flag::TruncatedInReasoning), "{:?}", cut.flags);
    assert_eq!(of(&responses, "ok").status, Status::Complete);
    assert_eq!(outcome.snapshot.datasets[0].truncated, 1);
}

#[tokio::test]
async fn trunc_02_cut_reasoning_is_never_the_answer_whatever_field_it_comes_in() {
    let Some(case) = shared_case("TRUNC-02") else { return };
    let expected = case.json("expected.json");
    for protocol in [Protocol::SglangGenerate, Protocol::OpenaiChat] {
        let dir = tempfile::tempdir().unwrap();
        write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Open));
        let server = MockServer::start(case.json("server.json"));
        let mut plan = plan_for(dir.path(), &server.url(), 1, protocol, |_| {});
        plan.splitter = tiny_splitter(&case, "think");
        run(plan).await;
        let response = &responses(dir.path())[0];
        let got = json!({"reasoning": response.reasoning, "content": response.content, "status": response.status});
        assert_eq!(got, expected, "{protocol:?}");
        assert!(response.flags.contains(&Flag::TruncatedInReasoning));
    }
}

#[tokio::test]
async fn server_01_an_abort_with_status_200_is_a_failure_sent_once() {
    let Some(case) = shared_case("SERVER-01") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let server = MockServer::start(case.json("server.json"));
    let (outcome, _) = run(plan(dir.path(), &server.url(), 2)).await;
    assert_eq!(outcome.reason, ExitReason::Complete);
    assert_eq!(answered_ids(dir.path()), ["ok"]);
    let failed = &failures(dir.path())[0];
    assert_eq!((failed.sample_id.as_str(), failed.permanent, failed.attempts.len()), ("long", true, 1));
    assert_eq!(failed.attempts[0].class, "abort");
    assert!(failed.attempts[0].message.contains("input of 9000 tokens is over the limit of 4095"));
    assert_eq!(server.n_requests(), 2);

    // A resume does not ask again; being told to, it does.
    let (_, events) = run(plan(dir.path(), &server.url(), 2)).await;
    assert_eq!((server.n_requests(), events.len()), (2, 0));
    let mut again = plan(dir.path(), &server.url(), 2);
    again.retry_failed = true;
    run(again).await;
    assert_eq!(server.n_requests(), 3);
}

#[tokio::test]
async fn server_04_a_stale_connection_costs_no_try_and_no_record() {
    let Some(case) = shared_case("SERVER-04") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    // The pause of the second wave: its first prompts are turned away until every connection has been idle for longer than the
    // server keeps it. One connection is closed under its request.
    let mut behaviour = case.json("server.json");
    behaviour["keep_alive_s"] = json!(0.2);
    let pause = json!({"type": "json", "status": 503, "headers": {"Retry-After": "0.6"}, "body": {"error": "later"}});
    let rules = behaviour["rules"].as_array_mut().unwrap();
    rules[0]["do"]["delay_s"] = json!(0.05);
    rules.push(json!({"match": {"contains": "b0", "attempt": 1}, "do": pause}));
    rules.push(json!({"match": {"contains": "b1", "attempt": 1}, "do": pause}));
    rules.push(json!({"match": {"contains": "b2", "attempt": 1}, "do": {"type": "close", "when": "before_headers"}}));
    let server = MockServer::start(behaviour);
    let mut plan = plan(dir.path(), &server.url(), 8);
    plan.retries.max_attempts = 1;
    let (outcome, _) = run(plan).await;
    let expected = case.json("expected.json");
    let snapshot = &outcome.snapshot;
    assert_eq!(json!(snapshot.datasets[0].answered), expected["success"]);
    assert_eq!(json!(snapshot.datasets[0].failed), expected["failed"]);
    let mut ids = answered_ids(dir.path());
    ids.dedup();
    assert_eq!(ids.len(), 16, "no duplicates");
    assert!(snapshot.n_stale_retries >= 1, "and it is counted");
    assert_eq!((snapshot.n_refused, snapshot.n_retries), (2, 0));
}

#[tokio::test]
async fn ux_01_progress_comes_also_while_nothing_finishes() {
    let Some(case) = shared_case("UX-01") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &case_prompts(&case.json_lines("jsonl"), ThinkState::Undecided));
    let server = MockServer::start(case.json("server.json"));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.progress_interval = Duration::from_millis(20);
    let cancel = Cancel::new();
    let (mut n_progress, mut events) = (0, Vec::new());
    let started = std::time::Instant::now();
    let outcome = Run::open(plan)
        .unwrap()
        .execute(cancel.clone(), |event| {
            if let Event::Progress(snapshot) = &event
                && (snapshot.in_flight == 4 || n_progress > 0)
            {
                n_progress += 1;
                let dataset = &snapshot.datasets[0];
                assert_eq!((dataset.total, dataset.done(), snapshot.in_flight, dataset.in_flight), (20, 0, 4, 4));
                assert!(!snapshot.elapsed.is_zero());
                if n_progress == 10 || n_progress == 15 {
                    cancel.press();
                }
            }
            events.push(words(&event));
        })
        .await
        .unwrap();
    assert_eq!(events[0], "started");
    assert!(events.contains(&"draining 4".to_owned()));
    assert_eq!(outcome.reason, ExitReason::Interrupted { aborted: true });
    assert_eq!(outcome.snapshot.sum(DatasetCounts::pending), 20);
    assert!(started.elapsed() < Duration::from_secs(5), "the second press does not wait for the server");
}
