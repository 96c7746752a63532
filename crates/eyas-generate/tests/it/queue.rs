//! One queue over all data sets.

use crate::support::{plan, prompt, run, write_prompts};
use eyas_generate::{DatasetPlan, GeneratePlan};
use eyas_testkit::mock::{MockServer, always_ok};
use eyas_types::{Prompt, ThinkState};
use std::path::Path;

fn named(set: &str, n: usize) -> Vec<Prompt> {
    let one = |n| Prompt {
        dataset: set.to_owned(),
        ..prompt(&format!("{set}-{n}"), &format!("[{set}] {n}"), ThinkState::Undecided)
    };
    (0..n).map(one).collect()
}

fn over(dir: &Path, url: &str, sets: &[(&str, usize)]) -> GeneratePlan {
    let mut plan = plan(dir, url, 1);
    plan.datasets.clear();
    for (set, n) in sets {
        write_prompts(&dir.join(set), &named(set, *n));
        plan.datasets.push(DatasetPlan::in_dir(*set, dir.join(set)));
    }
    plan
}

/// Names of the sets in the order in which the server was asked; one slot, so that this is the order of the queue.
async fn order(seed: u64, weight_of_small: f64) -> Vec<String> {
    let server = MockServer::start(always_ok("fine", 0.0));
    let dir = tempfile::tempdir().unwrap();
    let mut plan = over(dir.path(), &server.url(), &[("big", 160), ("small", 40)]);
    plan.seed = seed;
    plan.datasets[1].weight = weight_of_small;
    let (outcome, _) = run(plan).await;
    assert!(outcome.all_answered());
    let set = |key: &str| key.split(['[', ']']).nth(1).unwrap().to_owned();
    server.log().iter().map(|logged| set(&logged.key)).collect()
}

fn n_small(order: &[String]) -> usize {
    order.iter().filter(|set| *set == "small").count()
}

#[tokio::test]
async fn any_moment_holds_a_fair_share_of_every_set() {
    let order = order(7, 1.0).await;
    for upto in [20, 50, 100, 150, 200] {
        let expected = upto / 5;
        assert!(n_small(&order[..upto]).abs_diff(expected) <= 1, "{} of the first {upto}", n_small(&order[..upto]));
    }
}

#[tokio::test]
async fn a_weight_lets_a_set_run_ahead_and_a_seed_gives_the_same_order() {
    let fast = order(7, 2.0).await;
    assert!(n_small(&fast[..60]).abs_diff(20) <= 1, "{}", n_small(&fast[..60]));
    assert_eq!(order(7, 2.0).await, fast);
}

#[tokio::test]
async fn slots_are_refilled_at_once_and_connections_are_as_many_as_slots() {
    let server = MockServer::start(always_ok("fine", 0.1));
    let dir = tempfile::tempdir().unwrap();
    let mut plan = over(dir.path(), &server.url(), &[("one", 30), ("two", 20), ("three", 3)]);
    plan.endpoints[0].slots = 16;
    let (outcome, _) = run(plan).await;
    assert!(outcome.all_answered());
    assert_eq!((server.n_connections(), server.peak_in_flight()), (16, 16));
}

#[tokio::test]
async fn two_servers_share_the_work() {
    let servers = [MockServer::start(always_ok("fine", 0.01)), MockServer::start(always_ok("fine", 0.01))];
    let dir = tempfile::tempdir().unwrap();
    let mut plan = over(dir.path(), &servers[0].url(), &[("one", 100)]);
    plan.endpoints = servers
        .iter()
        .zip([6, 2])
        .map(|(server, slots)| crate::support::plan(dir.path(), &server.url(), slots).endpoints.remove(0))
        .collect();
    let (outcome, _) = run(plan).await;
    assert!(outcome.all_answered());
    let [first, second] = servers.map(|server| server.n_requests());
    assert_eq!(first + second, 100);
    assert!(first > second && second >= 10, "{first} and {second}");
    assert_eq!(outcome.snapshot.endpoints.iter().map(|endpoint| endpoint.answered).sum::<u64>(), 100);
}
