//! Scripts: lengths, reasoning, schedules, capacity.

use crate::client::{get, post, scripted};
use eyas_serve::{Script, ScriptBackend};
use insta::assert_snapshot;

async fn answer(script: &str, body: &str) -> serde_json::Value {
    let server = scripted(script).await;
    let reply = post(&server, "/generate", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

const TEN: &str = "vocab_size = 1000\nlengths = { law = \"fixed\", tokens = 10 }\n";
const OPEN: &str = r#"{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":null}}"#;

fn markers(answer: &serde_json::Value) -> Vec<(usize, u64)> {
    let ids = answer["output_ids"].as_array().expect("ids");
    let ids = ids.iter().map(|id| id.as_u64().expect("a number")).enumerate();
    ids.filter(|(_, id)| *id >= 997).collect()
}

#[tokio::test]
async fn reasoning_patterns() {
    let pattern = |name: &str| format!("{TEN}reasoning = {{ pattern = \"{name}\", share = 0.5 }}\n");
    let closes = answer(&pattern("closes"), OPEN).await;
    assert_eq!(markers(&closes), [(4, 998), (9, 999)], "reasoning, </think>, content, stop");
    assert_eq!(closes["text"].as_str().expect("text").matches("</think>").count(), 1);
    let opens = answer(&pattern("opens_and_closes"), OPEN).await;
    assert_eq!(markers(&opens), [(0, 997), (5, 998), (9, 999)]);
    assert!(opens["text"].as_str().expect("text").starts_with("<think> "));
    assert_eq!(markers(&answer(&pattern("never_closes"), OPEN).await), [(9, 999)]);
    assert_eq!(markers(&answer(&pattern("never_thinks"), OPEN).await), [(9, 999)]);

    let follows = pattern("follows_prompt");
    assert_eq!(markers(&answer(&follows, r#"{"input_ids":[1,997]}"#).await), [(4, 998), (9, 999)]);
    assert_eq!(markers(&answer(&follows, r#"{"input_ids":[1,997,998]}"#).await), [(9, 999)]);
    assert_eq!(markers(&answer(&follows, r#"{"input_ids":[1]}"#).await), [(0, 997), (5, 998), (9, 999)]);
}

#[tokio::test]
async fn a_cut_inside_the_reasoning_leaves_no_marker() {
    let cut = answer(TEN, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":3}}"#).await;
    assert_eq!(markers(&cut), []);
    assert_eq!(cut["meta_info"]["finish_reason"]["type"], "length");
    let at_the_cap = answer(TEN, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":10}}"#).await;
    assert_eq!(at_the_cap["meta_info"]["finish_reason"]["type"], "length", "the cap is looked at before the stop");
    let past = answer(TEN, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":30,"ignore_eos":true}}"#).await;
    assert_eq!(past["meta_info"]["completion_tokens"], 30);
}

#[tokio::test]
async fn the_same_prompt_has_the_same_answer_and_another_seed_another() {
    let one = answer("seed = 1\n", OPEN).await;
    assert_eq!(one["output_ids"], answer("seed = 1\n", OPEN).await["output_ids"]);
    assert_ne!(one["output_ids"], answer("seed = 2\n", OPEN).await["output_ids"]);
    let server = scripted("seed = 1\nvary_by_attempt = true\n").await;
    let first = post(&server, "/generate", OPEN).await.json();
    let second = post(&server, "/generate", OPEN).await.json();
    assert_ne!(first["output_ids"], second["output_ids"]);
}

#[tokio::test]
async fn ids_and_text_agree_when_there_is_a_tokenizer() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer.json");
    let script = format!("tokenizer = \"{path}\"\nlengths = {{ law = \"fixed\", tokens = 60 }}\n");
    let server = scripted(&script).await;
    let answer =
        post(&server, "/generate", r#"{"text":"hello world","sampling_params":{"skip_special_tokens":false}}"#)
            .await
            .json();
    let ids: Vec<u32> = serde_json::from_value(answer["output_ids"].clone()).expect("ids");
    let tokenizer = tokenizers::Tokenizer::from_file(path).expect("loads");
    assert_eq!(ids.last(), tokenizer.token_to_id("<|im_end|>").as_ref());
    let decoded = tokenizer.decode(&ids[..ids.len() - 1], false).expect("decodes");
    assert_eq!(answer["text"], decoded);
    assert!(decoded.contains("</think>"));
}

#[tokio::test]
async fn schedules() {
    let server = scripted("[[faults]]\nkind = \"status_500\"\nwhen = { every = 3 }\n").await;
    let mut statuses = Vec::new();
    for n in 1..=7 {
        statuses.push(post(&server, "/generate", &format!(r#"{{"input_ids":[{n}]}}"#)).await.status);
    }
    assert_eq!(statuses, [200, 200, 500, 200, 200, 500, 200]);

    let server = scripted("[[faults]]\nkind = \"status_500\"\ntimes = 1\nwhen = { ids = [7, 8] }\n").await;
    let mut statuses = Vec::new();
    for ids in ["7,9,8", "1,7,8,2", "1,7,8,2"] {
        statuses.push(post(&server, "/generate", &format!(r#"{{"input_ids":[{ids}]}}"#)).await.status);
    }
    assert_eq!(statuses, [200, 500, 200]);

    let server = scripted("[[faults]]\nkind = \"status_500\"\nwhen = { share = 0.25, attempts = 2 }\n").await;
    let mut n_failed = [0; 3];
    for failed in &mut n_failed {
        for n in 0..200 {
            let reply = post(
                &server,
                "/generate",
                &format!(r#"{{"input_ids":[{n}],"sampling_params":{{"max_new_tokens":1}}}}"#),
            )
            .await;
            *failed += u32::from(reply.status == 500);
        }
    }
    assert_eq!(n_failed[0], n_failed[1], "the same prompts");
    assert!((30..70).contains(&n_failed[0]), "about a quarter of 200, got {}", n_failed[0]);
    assert_eq!(n_failed[2], 0, "only the first two tries");
    let stats = server.script_stats().expect("a script");
    assert_eq!((stats.distinct_prompts, stats.max_tries(), stats.requests), (200, 3, 600));
}

#[tokio::test]
async fn health_can_be_scripted() {
    let server = scripted("health = { status = 503, body = \"engine dead\" }\n").await;
    let reply = get(&server, "/health").await;
    assert_eq!((reply.status, reply.text()), (503, "engine dead"));
}

/// 32 answers of 100 tokens each on a server that makes 1,000 tokens a second with 8 or more running.
#[tokio::test]
async fn capacity_model_takes_the_time_its_throughput_says() {
    let script = "time_scale = 0.1\nmax_running = 8\nlengths = { law = \"fixed\", tokens = 100 }\n\
        latency = { model = \"capacity\", kv_tokens = 100000, prefill_cost = 0.0, throughput = [[8, 1000.0]] }\n";
    let server = scripted(script).await;
    let began = std::time::Instant::now();
    let calls = (0..32).map(|n| {
        let body = format!(r#"{{"input_ids":[{n}]}}"#);
        let server = &server;
        async move { post(server, "/generate", &body).await.json() }
    });
    let answers = futures_util::future::join_all(calls).await;
    let took_s = began.elapsed().as_secs_f64() * 10.0;
    assert!(answers.iter().all(|answer| answer["meta_info"]["completion_tokens"] == 100));
    assert!((3.0..6.0).contains(&took_s), "3,200 tokens at 1,000 a second took {took_s} s of the model");
}

/// Room for about two and a half answers: some are put back, all are answered.
#[tokio::test]
async fn capacity_model_retracts_when_the_cache_runs_over() {
    let script = "time_scale = 0.02\nlengths = { law = \"fixed\", tokens = 400 }\n\
        latency = { model = \"capacity\", kv_tokens = 1000, reserve_tokens = 50, throughput = [[1, 500.0], [4, 1000.0]] }\n";
    let server = scripted(script).await;
    let calls = (0..6).map(|n| {
        let body = format!(r#"{{"input_ids":[{n}],"sampling_params":{{"max_new_tokens":900}}}}"#);
        let server = &server;
        async move { post(server, "/generate", &body).await.json() }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| answer["meta_info"]["completion_tokens"] == 400));
    let n_retractions: u64 = answers.iter().filter_map(|a| a["meta_info"]["num_retractions"].as_u64()).sum();
    assert!(n_retractions > 0);
    let load = get(&server, "/v1/loads").await.json();
    assert_eq!((&load["loads"][0]["num_running_reqs"], &load["loads"][0]["num_used_tokens"]), (&0.into(), &0.into()));
}

#[test]
fn scripts_that_make_no_sense_are_refused_by_name() {
    let problem = |text: &str| match Script::parse(text).map(ScriptBackend::new) {
        Err(error) | Ok(Err(error)) => error.to_string(),
        Ok(Ok(_)) => "it was taken".to_owned(),
    };
    assert!(problem("sede = 1\n").contains("unknown field `sede`, expected one of `seed`"));
    assert_snapshot!(problem("lengths = { law = \"fixed\", tokens = 0 }"), @"the script's `lengths.tokens` must be at least 1");
    assert_snapshot!(problem("[[faults]]\nkind = \"respond\""), @r#"the script's `faults.respond` goes with `kind = "respond"`, and only with it"#);
    assert!(
        problem("[[faults]]\nkind = \"explode\"").contains("unknown variant `explode`, expected one of `status_400`")
    );
    assert!(problem(r#"{"lengths":{"law":"fixed","tokens":5,"x":1}}"#).contains("unknown field `x`"));
}

/// The sample in the documentation of the file is a script.
#[test]
fn the_documented_sample_can_be_played() {
    let source = include_str!("../../src/script/config.rs");
    let (_, rest) = source.split_once("//! ```toml\n").expect("the sample begins");
    let (sample, _) = rest.split_once("//! ```\n").expect("the sample ends");
    let sample: Vec<&str> = sample.lines().map(|line| line.trim_start_matches("//!").trim_start()).collect();
    let script = Script::parse(&sample.join("\n")).expect("the sample is a script");
    assert_eq!(script.faults.len(), 2);
    ScriptBackend::new(script).expect("it can be played");
}
