//! Runs on a simulated clock, with a simulated server behind the transport's door.

use crate::support::{failures, numbered, plan, responses, write_prompts};
use eyas_client::{Answer, Ask, RequestError};
use eyas_generate::{BoxFuture, Cancel, DatasetCounts, Event, ExitReason, Line, Run, Transport};
use eyas_types::{FinishReason, Matched, Timing, Usage};
use proptest::prelude::*;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// What a simulated server does with a prompt (its text, how often it was asked before): after how long, and what.
type Script = dyn Fn(usize, u32) -> (Duration, Result<(), RequestError>) + Send + Sync;

#[derive(Clone)]
struct Simulated {
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<(usize, Instant)>>>,
    healthy: bool,
}

impl Simulated {
    fn new(script: impl Fn(usize, u32) -> (Duration, Result<(), RequestError>) + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), asked: Arc::default(), healthy: false }
    }

    /// When the prompt with this number was asked.
    fn times(&self, n: usize) -> Vec<Instant> {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| *asked == n).map(|(_, at)| *at).collect()
    }
}

impl Transport for Simulated {
    fn line(&self, _: usize) -> Box<dyn Line> {
        Box::new(self.clone())
    }

    fn health(&self, _: usize) -> BoxFuture<'static, Result<(), RequestError>> {
        let healthy = self.healthy;
        Box::pin(async move { if healthy { Ok(()) } else { Err(refused()) } })
    }
}

impl Line for Simulated {
    fn ask<'a>(&'a mut self, ask: Ask<'a>) -> BoxFuture<'a, Result<Answer, RequestError>> {
        Box::pin(async move {
            let text: String = ask.prompt_ids.iter().filter_map(|&id| char::from_u32(id)).collect();
            let n: usize = text.split_once('<').unwrap().1[..4].parse().unwrap();
            let before = self.times(n).len();
            self.asked.lock().unwrap().push((n, Instant::now()));
            let (after, result) = (self.script)(n, u32::try_from(before).unwrap());
            tokio::time::sleep(after).await;
            result.map(|()| Answer {
                text: "x".to_owned(),
                reasoning_text: None,
                tool_calls: Vec::new(),
                output_ids: Some(vec![120, 276]),
                finish: FinishReason::Stop { matched: Some(Matched::Token(276)) },
                usage: Usage { prompt_tokens: ask.prompt_ids.len() as u64, completion_tokens: 2, ..Usage::default() },
                timing: Timing::default(),
            })
        })
    }

    fn abort<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

fn refused() -> RequestError {
    RequestError::Connect { url: "http://h".into(), source: io::Error::from(io::ErrorKind::ConnectionRefused) }
}

fn oops(retry_after: Option<u64>) -> RequestError {
    let status = if retry_after.is_some() { 503 } else { 500 };
    RequestError::Status { status, message: "oops".into(), retry_after: retry_after.map(Duration::from_secs) }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_retry_waits_on_the_timer_and_not_in_the_slot() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(11));
    let simulated = Simulated::new(|n, before| (SECOND, if n == 0 && before < 3 { Err(oops(None)) } else { Ok(()) }));
    let mut plan = plan(dir.path(), "http://h", 1);
    plan.retries = eyas_generate::Retries { base_pause: 4 * SECOND, max_pause: 60 * SECOND, ..Default::default() };
    let started = Instant::now();
    let run = Run::open(plan).unwrap();
    let outcome = run.execute_on(Arc::new(simulated.clone()), Cancel::new(), |_| {}).await.unwrap();
    assert!(outcome.all_answered());
    // Ten other prompts of a second each fill the only slot while the first one waits.
    let others_done = simulated.times(10)[0] - started;
    assert!(others_done < 14 * SECOND, "{others_done:?}");
    let times = simulated.times(0);
    for (n, pair) in times.windows(2).enumerate() {
        let pause = pair[1] - pair[0] - SECOND;
        let full = 4 * SECOND * (1 << n);
        assert!(pause >= full / 2 && pause <= full + 2 * SECOND, "pause {n}: {pause:?}");
    }
    assert_eq!(responses(dir.path()).iter().find(|response| response.sample_id == "p0000").unwrap().attempt, 4);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_obeyed() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(3));
    let simulated =
        Simulated::new(|n, before| (SECOND, if n == 1 && before == 0 { Err(oops(Some(90))) } else { Ok(()) }));
    let run = Run::open(plan(dir.path(), "http://h", 2)).unwrap();
    let outcome = run.execute_on(Arc::new(simulated.clone()), Cancel::new(), |_| {}).await.unwrap();
    assert!(outcome.all_answered());
    let times = simulated.times(1);
    assert!(times[1] - times[0] >= 91 * SECOND, "{:?}", times[1] - times[0]);
    assert!(responses(dir.path()).iter().all(|response| response.attempt == 1), "a refusal is no try");
}

#[tokio::test(start_paused = true)]
async fn servers_gone_for_too_long_end_the_run_with_everything_pending() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(20));
    let simulated = Simulated::new(|_, _| (Duration::ZERO, Err(refused())));
    let run = Run::open(plan(dir.path(), "http://h", 4)).unwrap();
    let started = Instant::now();
    let mut n_progress = 0;
    let outcome = run
        .execute_on(Arc::new(simulated.clone()), Cancel::new(), |event| {
            n_progress += u64::from(matches!(event, Event::Progress(_)));
        })
        .await
        .unwrap();
    assert!(matches!(outcome.reason, ExitReason::ServerDown { .. }), "{:?}", outcome.reason);
    let took = started.elapsed();
    assert!(took >= 120 * SECOND && took < 122 * SECOND, "{took:?}");
    assert!(n_progress >= 115, "{n_progress} lines in two minutes of silence");
    assert_eq!(outcome.snapshot.sum(DatasetCounts::pending), 20);
    assert_eq!(outcome.snapshot.n_requests, 0);
    assert!(failures(dir.path()).is_empty());
    assert!(simulated.asked.lock().unwrap().len() <= 4, "nobody knocks at a closed door but the prober");
}

#[tokio::test(start_paused = true)]
async fn an_abort_does_not_wait_for_what_is_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(20));
    let simulated = Simulated::new(|n, _| (if n < 5 { SECOND } else { 10_000 * SECOND }, Ok(())));
    let run = Run::open(plan(dir.path(), "http://h", 4)).unwrap();
    let cancel = Cancel::new();
    let started = Instant::now();
    let outcome = run
        .execute_on(Arc::new(simulated), cancel.clone(), |event| {
            if let Event::Progress(snapshot) = event
                && snapshot.elapsed >= 30 * SECOND
            {
                cancel.press();
            }
        })
        .await
        .unwrap();
    assert_eq!(outcome.reason, ExitReason::Interrupted { aborted: true });
    assert!(started.elapsed() < 33 * SECOND);
    assert_eq!((responses(dir.path()).len(), outcome.snapshot.sum(DatasetCounts::pending)), (5, 15));
}

/// The faults that a prompt may meet, in the order of its tries.
fn fault(kind: u8) -> RequestError {
    match kind {
        0 => oops(None),
        1 => RequestError::Reset { message: "gone".into() },
        2 => RequestError::Abort { message: "Aborted".into(), status_code: None },
        3 => oops(Some(3)),
        4 => refused(),
        _ => RequestError::Status { status: 400, message: "too long".into(), retry_after: None },
    }
}

const PERMANENT: u8 = 5;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_faults_every_prompt_ends_in_exactly_one_state(
        faults in prop::collection::vec(prop::collection::vec(0_u8..=PERMANENT, 0..4), 1..40),
        slots in 1_u32..9,
        interrupt_after_s in prop::option::of(0_u64..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let n_prompts = faults.len();
        write_prompts(dir.path(), &numbered(n_prompts));
        let fails: Vec<bool> = faults.iter().map(|faults| faults.contains(&PERMANENT)).collect();
        let script = move |n: usize, before: u32| {
            let fault_now = faults[n].get(before as usize).map(|kind| fault(*kind));
            (Duration::from_millis(100 + 37 * n as u64 % 900), fault_now.map_or(Ok(()), Err))
        };
        let simulated = Simulated { healthy: true, ..Simulated::new(script) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();

        // A run that may be interrupted, and one that is not.
        for interrupt in [interrupt_after_s, None] {
            let cancel = Cancel::new();
            let run = Run::open(plan(dir.path(), "http://h", slots)).unwrap();
            let done_before = n_prompts as u64 - run.pending();
            let outcome = runtime.block_on(run.execute_on(Arc::new(simulated.clone()), cancel.clone(), |event| {
                if let (Event::Progress(snapshot), Some(after)) = (event, interrupt)
                    && snapshot.elapsed.as_secs() >= after
                {
                    cancel.drain();
                }
            })).unwrap();
            let counts = &outcome.snapshot.datasets[0];
            prop_assert_eq!(done_before, counts.answered_before + counts.failed_before);
            prop_assert_eq!(counts.total, counts.done() + counts.pending());
            prop_assert_eq!(responses(dir.path()).len() as u64, counts.answered_before + counts.answered);
            prop_assert_eq!(failures(dir.path()).len() as u64, counts.failed_before + counts.failed);
            prop_assert!(outcome.reason == ExitReason::Complete || counts.pending() > 0, "{:?}", outcome.reason);
        }
        let mut states = vec![0; n_prompts];
        for response in responses(dir.path()) {
            states[response.sample_id[1..].parse::<usize>().unwrap()] += 1;
        }
        for failed in failures(dir.path()) {
            states[failed.sample_id[1..].parse::<usize>().unwrap()] += 100;
        }
        let expected: Vec<i32> = fails.iter().map(|fails| if *fails { 100 } else { 1 }).collect();
        prop_assert_eq!(states, expected);
    }
}
