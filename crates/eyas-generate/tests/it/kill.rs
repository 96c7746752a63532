//! kill -9 at 50 random moments of a run, each followed by a resume.

use crate::support::{answered_ids, numbered, plan, write_prompts};
use eyas_generate::{Cancel, ExitReason, Run};
use eyas_journal::{Owned, ScanOptions, scan};
use eyas_testkit::crash;
use eyas_testkit::mock::{MockServer, always_ok};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

const N_KILLS: u64 = 50;
const N_PROMPTS: usize = 2_000;
const SLOTS: u32 = 16;

#[derive(serde::Deserialize)]
struct Id {
    sample_id: String,
}

/// A run, in a process of its own; killed in the middle, most of the time.
fn child(argument: &str) {
    let (dir, url) = argument.split_once('\n').unwrap();
    let run = Run::open(plan(Path::new(dir), url, SLOTS)).unwrap();
    println!("RUNNING");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(run.execute(Cancel::new(), |_| {})).unwrap();
    assert_eq!(outcome.reason, ExitReason::Complete);
    println!("COMPLETE");
}

#[test]
fn killed_50_times_every_id_is_there_exactly_once() {
    const NAME: &str = "kill::killed_50_times_every_id_is_there_exactly_once";
    if let Some(argument) = crash::role("generate") {
        return child(&argument);
    }
    let server = MockServer::start(always_ok("an answer of some length, so that lines are not too short", 0.004));
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), &numbered(N_PROMPTS));
    let argument = format!("{}\n{}", dir.path().display(), server.url());
    let mut n_torn = 0;
    let mut n_cut_short = 0;
    for kill in 0..N_KILLS {
        let asked_before = server.asked();
        let mut child = crash::spawn(NAME, "generate", &argument);
        child.wait_for("RUNNING");
        // A spread of moments without a random source: 0 to 20 ms after the start of the run.
        std::thread::sleep(Duration::from_micros(kill * 7_919 % 20_000));
        let last_words = child.kill_hard();
        n_cut_short += u64::from(!last_words.iter().any(|line| line.contains("COMPLETE")));

        // What the next run will find: no torn line once it has opened, no id twice, and few that were asked in vain.
        let opened = Run::open(plan(dir.path(), &server.url(), SLOTS)).unwrap();
        n_torn += u64::from(opened.datasets()[0].recovery.torn.is_some());
        drop(opened);
        let mut on_disk = HashSet::new();
        let journal = dir.path().join("raw_responses.jsonl");
        let report = scan::<Owned<Id>>(journal, ScanOptions::default(), |_, id| {
            assert!(on_disk.insert(id.sample_id.clone()), "kill {kill}: `{}` is there twice", id.sample_id);
        });
        assert_eq!(report.unwrap().unfinished, None, "kill {kill}: a torn line is left");
        let in_vain = server.asked().into_iter().filter(|(key, n)| {
            let id = format!("p{}", &key.split("\n<").nth(1).unwrap()[..4]);
            *n > asked_before.get(key).copied().unwrap_or(0) && !on_disk.contains(&id)
        });
        let n_in_vain = in_vain.count();
        // What is with a server or not yet written never exceeds the slots; requests that the server read only after the kill add as many.
        assert!(n_in_vain <= 2 * SLOTS as usize, "kill {kill}: {n_in_vain} answers were lost");
    }
    assert!(n_cut_short >= N_KILLS / 2, "only {n_cut_short} of the kills came before the end");

    let mut last = crash::spawn(NAME, "generate", &argument);
    last.wait_for("COMPLETE");
    assert!(last.finish());
    let expected: Vec<_> = (0..N_PROMPTS).map(|n| format!("p{n:04}")).collect();
    assert_eq!(answered_ids(dir.path()), expected, "every id exactly once, no torn line");
    let n_asked: u64 = server.asked().values().sum();
    let n_twice = n_asked - N_PROMPTS as u64;
    println!("{n_cut_short} kills in mid-run, {n_torn} torn lines mended, {n_twice} of {N_PROMPTS} asked again");
    assert!(n_twice <= n_cut_short * u64::from(SLOTS), "{n_twice} asked again");
}
