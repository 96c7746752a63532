//! Ways to end: drained, aborted, stopped by a gate.

use crate::support::{failures, numbered, plan, responses, run, server, write_prompts};
use eyas_generate::{Cancel, DatasetCounts, Event, ExitReason, FsyncPolicy, Run};
use eyas_testkit::mock::{MockServer, always_ok};
use serde_json::json;

#[tokio::test]
async fn the_first_press_drains_and_a_resume_does_the_rest() {
    let server = MockServer::start(always_ok("fine", 0.01));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(200));
    let cancel = Cancel::new();
    let mut n_answered = 0;
    let outcome = Run::open(plan(dir.path(), &server.url(), 4))
        .unwrap()
        .execute(cancel.clone(), |event| {
            if matches!(event, Event::Answered { .. }) {
                n_answered += 1;
                if n_answered == 10 {
                    cancel.press();
                }
            }
        })
        .await
        .unwrap();
    assert_eq!(outcome.reason, ExitReason::Interrupted { aborted: false });
    assert_eq!(server.n_requests() as u64, n_answered, "all that was asked is kept");
    assert_eq!(responses(dir.path()).len() as u64, n_answered);
    assert_eq!(outcome.snapshot.sum(DatasetCounts::pending), 200 - n_answered);

    let (outcome, _) = run(plan(dir.path(), &server.url(), 4)).await;
    assert!(outcome.all_answered());
    assert_eq!(server.n_requests(), 200, "nothing was asked twice");
}

#[tokio::test]
async fn pressed_before_the_start_nothing_is_asked() {
    let server = MockServer::start(always_ok("fine", 0.0));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(5));
    let cancel = Cancel::new();
    cancel.drain();
    let outcome = Run::open(plan(dir.path(), &server.url(), 2)).unwrap().execute(cancel, |_| {}).await.unwrap();
    assert_eq!((outcome.reason, server.n_requests()), (ExitReason::Interrupted { aborted: false }, 0));
}

#[tokio::test]
async fn more_failures_than_allowed_stop_the_run() {
    let server =
        server(json!([{"match": {"nth_from": 3}, "do": {"type": "text", "status": 400, "body": "no"}}]), "fine");
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(100));
    let mut plan = plan(dir.path(), &server.url(), 1);
    plan.gates.max_failures = Some(5);
    let (outcome, _) = run(plan).await;
    assert!(matches!(outcome.reason, ExitReason::TooManyFailures { limit: 5, .. }), "{:?}", outcome.reason);
    assert!((6..20).contains(&failures(dir.path()).len()));
}

#[tokio::test]
async fn ux_05_two_hundred_empty_answers_stop_the_run() {
    let server = MockServer::start(json!({"default": {"type": "ok", "text": "", "output_ids": [276]}}));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(600));
    let mut plan = plan(dir.path(), &server.url(), 4);
    // The byte splitter of these tests sets no flags; the real one does.
    let case = eyas_testkit::shared_case("REASON-02");
    let Some(case) = case else { return };
    plan.splitter = crate::support::tiny_splitter(&case, "think");
    let (outcome, _) = run(plan).await;
    assert!(matches!(outcome.reason, ExitReason::Gate(_)), "{:?}", outcome.reason);
    assert!((200..300).contains(&responses(dir.path()).len()));
}

#[tokio::test]
async fn under_an_interval_everything_is_acknowledged_before_the_run_ends() {
    let server = MockServer::start(always_ok("fine", 0.0));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(100));
    let mut plan = plan(dir.path(), &server.url(), 4);
    plan.fsync = FsyncPolicy::Interval(60_000);
    let started = std::time::Instant::now();
    let (outcome, events) = run(plan).await;
    assert!(outcome.all_answered());
    assert_eq!(events.iter().filter(|event| event.starts_with("answered")).count(), 100);
    assert!(started.elapsed().as_secs() < 30, "the end of a run does not wait for the interval");
}
