//! Faults by schedule: nothing lost, nothing twice, nothing asked more often than it must be.

use crate::support::{answered_ids, failures, numbered, plan, plan_for, prompt, responses, run, server, write_prompts};
use eyas_generate::{Cancel, DatasetCounts, ExitReason, Protocol, Run};
use eyas_testkit::mock::{MockServer, always_ok};
use eyas_types::ThinkState;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A rule for the first try of the prompt with this number.
fn first_try(n: usize, action: &Value) -> Value {
    json!({"match": {"contains": format!("<{n:04}>"), "attempt": 1}, "do": action})
}

fn generate_body(finish: &Value, extra: &[(&str, Value)]) -> Value {
    let mut body = json!({"text": "x", "output_ids": [120, 276], "meta_info": {"id": "$rid", "finish_reason": finish,
        "prompt_tokens": "$prompt_tokens", "completion_tokens": 2}});
    for (name, value) in extra {
        match name.strip_prefix("meta.") {
            Some(name) => body["meta_info"][name] = value.clone(),
            None => body[*name] = value.clone(),
        }
    }
    json!({"type": "json", "status": 200, "body": body})
}

#[tokio::test]
async fn every_transient_fault_on_a_first_try_is_made_good() {
    let stop = json!({"type": "stop", "matched": 276});
    let faults = [
        ("status_500", json!({"type": "json", "status": 500, "body": {"error": {"message": "oops"}}})),
        (
            "status_503",
            json!({"type": "json", "status": 503, "headers": {"Retry-After": "0.05"}, "body": {"message": "full"}}),
        ),
        ("status_429", json!({"type": "text", "status": 429, "body": "slow down"})),
        ("status_502", json!({"type": "text", "status": 502, "body": "<html>bad gateway"})),
        ("reset", json!({"type": "close", "when": "before_headers"})),
        ("timeout", json!({"type": "hang"})),
        ("bad_json", json!({"type": "text", "status": 200, "body": "{\"text\": \"half"})),
        ("short_body", json!({"type": "close", "when": "mid_body"})),
        ("abort", generate_body(&json!({"type": "abort", "message": "Aborted"}), &[])),
        ("no_ids", generate_body(&stop, &[("output_ids", Value::Null)])),
        ("no_tokens", generate_body(&stop, &[("output_ids", json!([]))])),
        ("rid_mismatch", generate_body(&stop, &[("meta.id", json!("somebody else"))])),
        ("nan", generate_body(&json!({"type": "stop", "matched": "NaN happened"}), &[])),
        ("unknown_finish", generate_body(&Value::Null, &[])),
        ("error_body", json!({"type": "json", "status": 200, "body": {"error": {"message": "worker lost"}}})),
    ];
    const N: usize = 300;
    let rules: Vec<Value> = faults
        .iter()
        .enumerate()
        .flat_map(|(kind, (_, action))| {
            // Every kind hits three prompts.
            (0..3).map(move |n| first_try(kind * 19 + n * 5, action))
        })
        .collect();
    let n_faults = rules.len() as u64;
    let server = server(json!(rules), "fine");
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(N));
    let mut plan = plan_for(dir.path(), &server.url(), 16, Protocol::SglangGenerate, |endpoint| {
        endpoint.request_timeout = Some(Duration::from_secs(3));
    });
    plan.patience.max_consecutive_failures = 1_000;
    let (outcome, _) = run(plan).await;

    assert_eq!(outcome.reason, ExitReason::Complete);
    assert!(outcome.all_answered());
    let ids = answered_ids(dir.path());
    assert_eq!(ids, (0..N).map(|n| format!("p{n:04}")).collect::<Vec<_>>(), "none lost, none twice");
    let snapshot = &outcome.snapshot;
    let n_errors: u64 = snapshot.errors.values().sum();
    assert_eq!(n_errors + snapshot.n_stale_retries, n_faults, "{:?}", snapshot.errors);
    for (class, _) in &faults {
        let seen = snapshot.errors.get(*class).copied().unwrap_or(0);
        // A close before the headers is a stale connection when the connection was used before.
        let stale = if *class == "reset" { snapshot.n_stale_retries } else { 0 };
        assert_eq!(seen + stale, 3, "{class}: {:?}", snapshot.errors);
    }
    assert_eq!(server.n_requests() as u64, N as u64 + n_faults, "each prompt is asked again once per fault");
    assert_eq!(snapshot.n_requests, server.n_requests() as u64);
    assert_eq!(snapshot.n_refused, 6);
    assert!(!server.aborted().is_empty(), "a request that may still be running is called off");
    assert!(responses(dir.path()).iter().all(|response| response.content == "fine" && response.attempt <= 2));
}

#[tokio::test]
async fn tries_run_out_and_the_next_run_asks_again() {
    let server =
        server(json!([{"match": {"contains": "<0001>"}, "do": {"type": "text", "status": 500, "body": "no"}}]), "fine");
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(3));
    let mut once = plan(dir.path(), &server.url(), 2);
    once.retries.max_attempts = 3;
    let (outcome, _) = run(once).await;
    assert_eq!((outcome.reason.clone(), outcome.all_answered()), (ExitReason::Complete, false));
    let failed = &failures(dir.path())[0];
    assert!(!failed.permanent);
    let tries: Vec<_> = failed.attempts.iter().map(|attempt| (attempt.attempt, attempt.class.as_str())).collect();
    assert_eq!(tries, [(1, "status_500"), (2, "status_500"), (3, "status_500")]);
    assert_eq!(outcome.snapshot.failures, BTreeMap::from([("status_500".to_owned(), 1)]));
    assert_eq!(server.asked().values().max(), Some(&3));

    let mut again = plan(dir.path(), &server.url(), 2);
    again.retries.max_attempts = 1;
    let opened = Run::open(again).unwrap();
    assert_eq!((opened.datasets()[0].failed, opened.pending()), (0, 1));
    opened.execute(Cancel::new(), |_| {}).await.unwrap();
    assert_eq!(failures(dir.path()).len(), 2);
}

#[tokio::test]
async fn prompts_that_kill_a_server_are_never_sent() {
    let server = server(json!([]), "fine");
    let dir = tempfile::tempdir().unwrap();
    let mut prompts = numbered(3);
    prompts[0].prompt_ids.push(281);
    prompts[1].prompt_ids.clear();
    write_prompts(dir.path(), &prompts);
    let mut plan = plan(dir.path(), &server.url(), 2);
    plan.vocab_size = Some(281);
    let (outcome, _) = run(plan).await;
    assert_eq!((outcome.reason, server.n_requests()), (ExitReason::Complete, 1));
    let mut failed: Vec<_> =
        failures(dir.path()).into_iter().map(|failed| (failed.attempts[0].class.clone(), failed.permanent)).collect();
    failed.sort();
    assert_eq!(failed, [("empty_prompt".to_owned(), true), ("out_of_vocabulary".to_owned(), true)]);
}

#[tokio::test]
async fn a_server_that_is_gone_stops_the_run_and_fails_no_prompt() {
    let server = MockServer::start(
        json!({"rules": [{"match": {"nth": 6}, "do": {"type": "die"}}], "default": {"type": "ok", "text": "fine"}}),
    );
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(50));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.patience.server_down_after = Duration::from_millis(300);
    plan.patience.probe_pause = Duration::from_millis(20);
    let (outcome, events) = run(plan).await;
    assert!(matches!(outcome.reason, ExitReason::ServerDown { .. }), "{:?}", outcome.reason);
    assert!(events.contains(&"down".to_owned()));
    let counts = &outcome.snapshot.datasets[0];
    assert_eq!((counts.failed, counts.answered + counts.pending()), (0, 50));
    assert!(failures(dir.path()).is_empty());
    assert_eq!(responses(dir.path()).len() as u64, counts.answered);

    let healthy = MockServer::start(always_ok("fine", 0.0));
    let (outcome, _) = run(crate::support::plan(dir.path(), &healthy.url(), 4)).await;
    assert_eq!(healthy.n_requests() as u64, 50 - counts.answered);
    assert!(outcome.all_answered());
}

#[tokio::test]
async fn a_server_that_comes_back_is_taken_back() {
    let server = MockServer::start(
        json!({"rules": [{"match": {"nth": 6}, "do": {"type": "die"}}], "default": {"type": "ok", "text": "fine"}}),
    );
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(50));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.patience.probe_pause = Duration::from_millis(10);
    let port = server.port();
    let mut second = None;
    let mut ups = 0;
    let outcome = Run::open(plan)
        .unwrap()
        .execute(Cancel::new(), |event| match event {
            eyas_generate::Event::EndpointDown { .. } => {
                second = Some(MockServer::start_on(port, always_ok("fine", 0.0)))
            }
            eyas_generate::Event::EndpointUp { .. } => ups += 1,
            _ => {}
        })
        .await
        .unwrap();
    assert!(outcome.all_answered(), "{:?}", outcome.reason);
    assert!(ups >= 1);
    assert_eq!(answered_ids(dir.path()).len(), 50);
}

#[tokio::test]
async fn server_08_a_dead_engine_behind_a_live_port_does_not_use_up_the_prompts() {
    let oops = json!({"type": "json", "status": 500, "body": {"error": {"message": "the engine core has stopped"}}});
    let server = MockServer::start(json!({"health": {"status": 503, "body": "engine dead"},
        "rules": [{"match": {"nth_from": 6}, "do": oops}], "default": {"type": "ok", "text": "fine"}}));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(50));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.patience.max_consecutive_failures = 8;
    plan.patience.server_down_after = Duration::from_millis(200);
    plan.patience.probe_pause = Duration::from_millis(20);
    let (outcome, _) = run(plan).await;
    assert!(matches!(outcome.reason, ExitReason::ServerDown { .. }), "{:?}", outcome.reason);
    let counts = &outcome.snapshot.datasets[0];
    assert_eq!((counts.answered, counts.failed, counts.pending()), (5, 0, 45));
    assert!(server.n_requests() <= 5 + 8 + 4, "{} requests", server.n_requests());
}

#[tokio::test]
async fn a_server_that_turns_everybody_away_stops_the_run_with_everything_pending() {
    let server = MockServer::start(json!({"require_auth": "hush"}));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(50));
    let (outcome, _) = run(plan(dir.path(), &server.url(), 4)).await;
    assert!(
        matches!(&outcome.reason, ExitReason::Misconfigured { message, .. } if message == "status 401: Unauthorized")
    );
    assert_eq!(outcome.snapshot.sum(DatasetCounts::pending), 50);
    assert!(server.n_requests() <= 4);
}

#[tokio::test]
async fn a_full_server_is_given_what_it_takes() {
    let overflow = json!({"type": "json", "status": 429, "headers": {"Retry-After": "0.1"}, "body": {"error": {"message": "too many"}}});
    let server = MockServer::start(
        json!({"max_running": 4, "overflow": overflow, "default": {"type": "ok", "text": "fine", "delay_s": 0.03}}),
    );
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(40));
    let mut plan = plan(dir.path(), &server.url(), 16);
    plan.retries.max_attempts = 1;
    let (outcome, _) = run(plan).await;
    assert!(outcome.all_answered(), "refusals are no tries");
    assert!(server.n_requests() < 200, "{} requests for 40 prompts", server.n_requests());
}

#[tokio::test]
async fn a_journal_that_is_removed_stops_the_run_and_counts_only_what_was_safe() {
    let server = MockServer::start(always_ok("fine", 0.005));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(500));
    let path = dir.path().join("raw_responses.jsonl");
    let mut n_answered = 0;
    let outcome = Run::open(plan(dir.path(), &server.url(), 4))
        .unwrap()
        .execute(Cancel::new(), |event| {
            if matches!(event, eyas_generate::Event::Answered { .. }) {
                n_answered += 1;
                if n_answered == 20 {
                    std::fs::remove_file(&path).unwrap();
                }
            }
        })
        .await
        .unwrap();
    assert!(
        matches!(&outcome.reason, ExitReason::Journal { message } if message.contains("removed")),
        "{:?}",
        outcome.reason
    );
    assert_eq!(outcome.snapshot.sum(|dataset| dataset.answered), n_answered);
    assert!(outcome.snapshot.sum(DatasetCounts::pending) > 400);
}

#[tokio::test]
async fn one_bad_prompt_does_not_stop_the_others() {
    let bad = json!({"type": "json", "status": 400, "body": {"error": {"message": "The input (9000 tokens) is longer than the model's context length (4096 tokens)."}}});
    let server = server(json!([{"match": {"contains": "bad"}, "do": bad}]), "fine");
    let dir = tempfile::tempdir().unwrap();
    let mut prompts = numbered(30);
    prompts.insert(3, prompt("bad", "bad", ThinkState::Undecided));
    write_prompts(dir.path(), &prompts);
    let (outcome, _) = run(plan(dir.path(), &server.url(), 4)).await;
    assert_eq!((answered_ids(dir.path()).len(), failures(dir.path()).len(), server.n_requests()), (30, 1, 31));
    assert_eq!(outcome.reason, ExitReason::Complete);
}
