//! The same surface with a model behind it: a random Llama of a few kilobytes, written to a folder and opened as any other.

use crate::client::{Reply, get, open, post};
use eyas_serve::{Server, ServerConfig, ServerHandle, TargetBackend, TargetOptions};
use eyas_target::{EngineConfig, Target, WeightMode};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const VOCAB: usize = 67;

/// `max_position_embeddings` long enough for an answer that takes seconds.
const CONTEXT: usize = 20_000;

fn write_model(folder: &Path) {
    let (hidden, inner, head_dim, n_heads, n_kv, n_layers) = (32, 48, 8, 4, 2, 2);
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": n_layers, "num_attention_heads": n_heads, "num_key_value_heads": n_kv, "head_dim": head_dim,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "hidden_act": "silu", "eos_token_id": 2,
    });
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
        ("lm_head.weight".to_owned(), vec![VOCAB, hidden]),
    ];
    for n in 0..n_layers {
        for (part, rows, columns) in [
            ("self_attn.q_proj", n_heads * head_dim, hidden),
            ("self_attn.k_proj", n_kv * head_dim, hidden),
            ("self_attn.v_proj", n_kv * head_dim, hidden),
            ("self_attn.o_proj", hidden, n_heads * head_dim),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ] {
            tensors.push((format!("model.layers.{n}.{part}.weight"), vec![rows, columns]));
        }
        for part in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push((format!("model.layers.{n}.{part}.weight"), vec![hidden]));
        }
    }
    write(&folder.join("config.json"), config.to_string().as_bytes());
    write(&folder.join("model.safetensors"), &safetensors(&tensors));
    let vocab: serde_json::Map<String, Value> = (0..VOCAB).map(|id| (format!("t{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
    });
    write(&folder.join("tokenizer.json"), tokenizer.to_string().as_bytes());
}

/// Random f32 tensors: matrices around 0, norms 1.
fn safetensors(tensors: &[(String, Vec<usize>)]) -> Vec<u8> {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let from = data.len();
        let scale = 2.0 / (*shape.last().expect("a shape") as f32).sqrt();
        for _ in 0..shape.iter().product::<usize>() {
            let value: f32 = if shape.len() == 1 { 1.0 } else { random() * scale };
            data.extend_from_slice(&value.to_le_bytes());
        }
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [from, data.len()]}));
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn write(path: &Path, bytes: &[u8]) {
    File::create(path).and_then(|mut file| file.write_all(bytes)).expect("the temporary folder takes files");
}

async fn server(engine: EngineConfig) -> ServerHandle {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_model(folder.path());
    let target = Target::open(folder.path(), WeightMode::F32).expect("the model opens");
    let options = TargetOptions { engine, model_path: "/models/tiny/".to_owned(), served_model_name: None };
    let backend = TargetBackend::start(target, &options).expect("a thread starts");
    Server::start(backend, ServerConfig::default()).await.expect("a loopback port is free")
}

async fn answer(server: &ServerHandle, body: Value) -> Value {
    let reply = post(server, "/generate", &body.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn greedy(input_ids: Value, max_new_tokens: u32) -> Value {
    json!({"input_ids": input_ids, "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": true}})
}

fn words(ids: &Value) -> String {
    let ids = ids.as_array().expect("ids").iter();
    ids.map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greedy_ids_are_the_same_alone_in_a_batch_and_in_a_stream() {
    let server = server(EngineConfig::default()).await;
    let alone = answer(&server, greedy(json!([5, 6, 7]), 24)).await;
    assert_eq!(alone["output_ids"].as_array().map(Vec::len), Some(24));
    assert_eq!(alone["text"], words(&alone["output_ids"]));
    assert_eq!(alone["meta_info"]["finish_reason"], json!({"type": "length", "length": 24}));
    assert_eq!(
        (&alone["meta_info"]["prompt_tokens"], &alone["meta_info"]["completion_tokens"]),
        (&json!(3), &json!(24))
    );

    let batch = answer(&server, greedy(json!([[1], [5, 6, 7], [9, 9]]), 24)).await;
    assert_eq!(batch[1]["output_ids"], alone["output_ids"]);

    let mut body = greedy(json!([5, 6, 7]), 24);
    body["stream"] = json!(true);
    let reply = post(&server, "/generate", &body.to_string()).await;
    let mut events = reply.events();
    assert_eq!(events.pop(), Some("[DONE]"));
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let last = events.last().expect("events");
    assert_eq!((&last["output_ids"], &last["text"]), (&alone["output_ids"], &alone["text"]));
    for event in &events {
        assert_eq!(event["text"], words(&event["output_ids"]), "text and ids are of the same moment");
        assert_eq!(
            event["output_ids"].as_array().map(|ids| ids.len().into()),
            Some(event["meta_info"]["completion_tokens"].clone())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_by_token_and_by_text() {
    let server = server(EngineConfig::default()).await;
    let whole = answer(&server, greedy(json!([5, 6, 7]), 12)).await;
    let ids: Vec<u32> = serde_json::from_value(whole["output_ids"].clone()).expect("ids");
    let stop = ids[5];
    let at = ids.iter().position(|id| *id == stop).expect("it is there");

    let mut body = greedy(json!([5, 6, 7]), 12);
    body["sampling_params"]["ignore_eos"] = json!(false);
    body["sampling_params"]["stop_token_ids"] = json!([stop]);
    let by_token = answer(&server, body.clone()).await;
    assert_eq!(by_token["output_ids"], json!(ids[..=at]), "the stop token stays in the ids");
    assert_eq!(by_token["text"], words(&json!(ids[..at])), "and leaves the text");
    assert_eq!(by_token["meta_info"]["finish_reason"], json!({"type": "stop", "matched": stop}));
    body["sampling_params"]["no_stop_trim"] = json!(true);
    assert_eq!(answer(&server, body).await["text"], words(&json!(ids[..=at])));

    let mut body = greedy(json!([5, 6, 7]), 12);
    let word = format!("t{} t{}", ids[2], ids[3]);
    body["sampling_params"]["stop"] = json!(word);
    let by_text = answer(&server, body).await;
    // The same words may come up sooner.
    let n = (1..=12).find(|n| words(&json!(ids[..*n])).contains(&word)).expect("they are there");
    let text = words(&json!(ids[..n]));
    assert_eq!(by_text["output_ids"], json!(ids[..n]));
    assert_eq!(by_text["text"], text[..text.find(&word).expect("they are there")]);
    assert_eq!(by_text["meta_info"]["finish_reason"], json!({"type": "stop", "matched": word}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_model_can_take_is_a_400_and_the_server_lives_on() {
    let server = server(EngineConfig::default()).await;
    for (body, words) in [
        (json!({"input_ids": [VOCAB]}), "Token id 67 is out of vocabulary"),
        (json!({"input_ids": [[]]}), "input_ids cannot be empty."),
        (json!({"input_ids": vec![1; CONTEXT]}), "is longer than the model's context length (20000 tokens)."),
        (json!({"input_ids": [1], "sampling_params": {"max_new_tokens": CONTEXT}}), "Requested token count exceeds"),
        (json!({"input_ids": [1], "sampling_params": {"min_new_tokens": 2}}), "min_new_tokens is not supported"),
    ] {
        let reply = post(&server, "/generate", &body.to_string()).await;
        let message = reply.json()["error"]["message"].as_str().map(str::to_owned).unwrap_or_default();
        assert_eq!(reply.status, 400);
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(get(&server, "/health_generate").await.status, 200);
    let nothing = answer(&server, greedy(json!([1]), 0)).await;
    assert_eq!((&nothing["output_ids"], &nothing["text"]), (&json!([]), &json!("")));
    let from_text = answer(&server, json!({"text": "t5 t6", "sampling_params": {"max_new_tokens": 1}})).await;
    assert_eq!(from_text["meta_info"]["prompt_tokens"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_repeats_an_answer_and_n_answers_differ() {
    let server = server(EngineConfig::default()).await;
    let body = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 16, "sampling_seed": 3, "n": 2, "ignore_eos": true}});
    let (first, second) = (answer(&server, body.clone()).await, answer(&server, body).await);
    assert_eq!(first[0]["output_ids"], second[0]["output_ids"]);
    assert_eq!(first[1]["output_ids"], second[1]["output_ids"]);
    assert_ne!(first[0]["output_ids"], first[1]["output_ids"]);
}

async fn n_running(server: &ServerHandle) -> u64 {
    let loads = get(server, "/v1/loads").await.json();
    loads["loads"][0]["num_running_reqs"].as_u64().expect("a number")
        + loads["loads"][0]["num_waiting_reqs"].as_u64().expect("a number")
}

async fn until_running(server: &ServerHandle, n: u64) {
    for _ in 0..1000 {
        if n_running(server).await == n {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("there were never {n} running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborts_and_clients_that_leave_free_the_engine() {
    let server = server(EngineConfig { max_running: 1, ..EngineConfig::default() }).await;
    let mut long = greedy(json!([1]), 19_000);
    long["rid"] = json!("long");
    let text = long.to_string();
    let aborting = async {
        until_running(&server, 1).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        post(&server, "/abort_request", r#"{"rid":"long"}"#).await
    };
    let (reply, _): (Reply, Reply) = tokio::join!(post(&server, "/generate", &text), aborting);
    let aborted = reply.json();
    assert_eq!((reply.status, &aborted["meta_info"]["finish_reason"]["type"]), (200, &json!("abort")));
    assert_eq!(aborted["text"], words(&aborted["output_ids"]), "the partial answer is there");
    until_running(&server, 0).await;

    for is_stream in [false, true] {
        long["stream"] = json!(is_stream);
        let stream = open(server.addr(), "POST", "/generate", &long.to_string()).await.expect("connects");
        until_running(&server, 1).await;
        drop(stream);
        until_running(&server, 0).await;
    }
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_engine_queue_is_a_503() {
    let server = server(EngineConfig { max_running: 1, max_waiting: 1, ..EngineConfig::default() }).await;
    let long = greedy(json!([1]), 19_000).to_string();
    let mut held = Vec::new();
    for n in 1..=2 {
        held.push(open(server.addr(), "POST", "/generate", &long).await.expect("connects"));
        until_running(&server, n).await;
    }
    let reply = post(&server, "/generate", &long).await;
    assert_eq!((reply.status, &reply.json()["message"]), (503, &json!("The request queue is full.")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_what_it_serves() {
    let server = server(EngineConfig::default()).await;
    let info = get(&server, "/server_info").await.json();
    assert_eq!((&info["engine"], &info["context_length"]), (&json!("eyas-target"), &json!(CONTEXT)));
    assert_eq!(info["version"], format!("eyas-{}", env!("CARGO_PKG_VERSION")));
    let model = get(&server, "/model_info").await.json();
    assert_eq!((&model["served_model_name"], &model["architectures"]), (&json!("tiny"), &json!(["LlamaForCausalLM"])));
    assert!(server.script_stats().is_none());
    assert_eq!(get(&server, "/script/stats").await.status, 404);

    let body =
        r#"{"model":"m","prompt":[5,6,7],"max_tokens":4,"temperature":0,"return_token_ids":true,"ignore_eos":true}"#;
    let completion = post(&server, "/v1/completions", body).await.json();
    let ids = answer(&server, greedy(json!([5, 6, 7]), 4)).await["output_ids"].clone();
    assert_eq!((&completion["choices"][0]["token_ids"], &completion["usage"]["completion_tokens"]), (&ids, &json!(4)));
}
