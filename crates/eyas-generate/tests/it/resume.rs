//! What a second run makes of what the first one left.

use crate::support::{answered_ids, fingerprint, numbered, plan, responses, run, server, try_run, write_prompts};
use eyas_generate::{ExitReason, OnChange, OpenError, Run};
use eyas_testkit::mock::MockServer;
use serde_json::json;
use std::path::Path;

async fn first_run(dir: &Path, n_answers: u64) {
    write_prompts(dir, &numbered(4));
    let server = server(json!([]), "fine");
    let mut plan = plan(dir, &server.url(), 2);
    plan.stop_after = Some(n_answers);
    run(plan).await;
}

#[tokio::test]
async fn resume_07_other_settings_are_refused_by_name_before_anything_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    first_run(dir.path(), 2).await;
    let server = server(json!([]), "fine");
    let changed = |on_change| {
        let mut plan = plan(dir.path(), &server.url(), 2);
        plan.fingerprint.set("sampling.temperature", 0.6);
        plan.previous = Some(fingerprint());
        plan.on_change = on_change;
        plan
    };
    let error = try_run(changed(OnChange::Refuse)).await.unwrap_err();
    assert!(matches!(&error, OpenError::FingerprintChanged { n_answers: 2, .. }), "{error:?}");
    assert!(error.to_string().ends_with("sampling.temperature 1.0 -> 0.6"), "{error}");
    assert_eq!(server.n_requests(), 0);

    let (outcome, _) = run(changed(OnChange::Keep)).await;
    assert!(outcome.all_answered());
    assert_eq!(server.n_requests(), 2);
    let mut fingerprints: Vec<_> = responses(dir.path()).into_iter().map(|response| response.fingerprint).collect();
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 2, "each record says with which settings it was made");
}

#[tokio::test]
async fn redo_moves_the_old_answers_aside_and_asks_again() {
    let dir = tempfile::tempdir().unwrap();
    first_run(dir.path(), 2).await;
    let old = responses(dir.path());
    let server = server(json!([]), "better");
    let mut plan = plan(dir.path(), &server.url(), 2);
    plan.fingerprint.set("sampling.temperature", 0.6);
    plan.on_change = OnChange::Redo;
    let opened = Run::open(plan).unwrap();
    assert_eq!((opened.datasets()[0].n_set_aside, opened.pending()), (2, 4));
    opened.execute(eyas_generate::Cancel::new(), |_| {}).await.unwrap();
    assert_eq!(answered_ids(dir.path()), ["p0000", "p0001", "p0002", "p0003"]);
    assert!(responses(dir.path()).iter().all(|response| response.content == "better"));
    let aside = std::fs::read_to_string(dir.path().join("raw_responses.jsonl.old")).unwrap();
    assert_eq!(aside.lines().count(), old.len());
}

#[tokio::test]
async fn a_prompt_that_changed_under_its_id_is_refused_or_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    first_run(dir.path(), 4).await;
    let mut prompts = numbered(4);
    prompts[1].prompt_ids[6] = 66;
    write_prompts(dir.path(), &prompts);
    let server = server(json!([]), "fine");
    let error = try_run(plan(dir.path(), &server.url(), 2)).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::PromptsChanged { n_prompts: 1, sample_id, .. } if sample_id == "p0001"),
        "{error:?}"
    );

    let mut keep = plan(dir.path(), &server.url(), 2);
    keep.on_change = OnChange::Keep;
    assert_eq!(Run::open(keep).unwrap().pending(), 0);

    let mut redo = plan(dir.path(), &server.url(), 2);
    redo.on_change = OnChange::Redo;
    let (outcome, _) = run(redo).await;
    assert_eq!((outcome.reason, server.n_requests()), (ExitReason::Complete, 1));
    assert_eq!(answered_ids(dir.path()), ["p0000", "p0001", "p0002", "p0003"]);
}

#[tokio::test]
async fn resume_06_prompts_that_are_not_what_the_manifest_says_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(4));
    let open = |n_prompts| {
        let mut plan = plan(dir.path(), "http://127.0.0.1:1", 1);
        plan.datasets[0].n_prompts = Some(n_prompts);
        Run::open(plan)
    };
    assert_eq!(open(4).unwrap().pending(), 4);
    assert!(open(5).unwrap_err().to_string().ends_with("has 4 prompts, the manifest says 5"));

    let mut prompts = numbered(4);
    prompts[3].sample_id = "p0000".to_owned();
    write_prompts(dir.path(), &prompts);
    assert!(open(4).unwrap_err().to_string().ends_with("has two prompts with the id `p0000`"));
}

#[tokio::test]
async fn answers_to_unknown_prompts_are_counted_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    first_run(dir.path(), 4).await;
    write_prompts(dir.path(), &numbered(3));
    let opened = Run::open(plan(dir.path(), "http://127.0.0.1:1", 1)).unwrap();
    let state = &opened.datasets()[0];
    assert_eq!((state.total, state.answered, state.n_unknown, state.pending()), (3, 3, 1, 0));
    assert_eq!(responses(dir.path()).len(), 4);
}

#[tokio::test]
async fn two_runs_cannot_write_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(4));
    let _first = Run::open(plan(dir.path(), "http://127.0.0.1:1", 1)).unwrap();
    let error = Run::open(plan(dir.path(), "http://127.0.0.1:1", 1)).unwrap_err().to_string();
    assert!(error.ends_with(&format!("is being written by process {}", std::process::id())), "{error}");
}

#[tokio::test]
async fn a_second_run_never_touches_what_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    first_run(dir.path(), 4).await;
    let before = std::fs::read(dir.path().join("raw_responses.jsonl")).unwrap();
    let server = MockServer::start(json!({}));
    let (outcome, events) = run(plan(dir.path(), &server.url(), 2)).await;
    assert_eq!((outcome.reason, events.len(), server.n_connections()), (ExitReason::Complete, 0, 0));
    assert_eq!(std::fs::read(dir.path().join("raw_responses.jsonl")).unwrap(), before);
}
