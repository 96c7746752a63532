//! `/generate` and its neighbours: one test for each row of what a real SGLang 0.5.23 was seen to do.

use crate::client::{Reply, call, get, open, post, scripted};
use eyas_serve::ServerHandle;
use insta::assert_snapshot;
use std::fmt::Write;
use std::time::Duration;

/// Short answers of known ids: the words spell the ids.
const SMALL: &str = r#"
context_length = 512
vocab_size = 1000
[[answers]]
output_ids = [314, 260, 998, 500, 999]
[reasoning]
pattern = "never_thinks"
"#;

async fn check(body: &str, status: u16, expect: impl FnOnce(&Reply)) {
    let server = scripted(SMALL).await;
    let reply = post(&server, "/generate", body).await;
    assert_eq!(reply.status, status, "{}", String::from_utf8_lossy(&reply.body));
    expect(&reply);
}

/// Takes out what differs from run to run.
fn settled(reply: &Reply) -> String {
    let mut text = reply.text().to_owned();
    for key in ["\"e2e_latency\":", "\"response_sent_to_client_ts\":"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(key).map(|at| from + at + key.len()) {
            let len = text[at..].find([',', '}']).expect("a number ends");
            text.replace_range(at..at + len, "T");
            from = at;
        }
    }
    text
}

#[tokio::test]
async fn ids_in_ids_out_with_the_callers_rid() {
    check(
        r#"{"input_ids":[1,409,198],"sampling_params":{"max_new_tokens":4,"temperature":0},"rid":"my-rid-1"}"#,
        200,
        |reply| {
            assert_snapshot!(settled(reply), @r#"{"text":" vida dada</think> tado","output_ids":[314,260,998,500],"meta_info":{"id":"my-rid-1","finish_reason":{"type":"length","length":4},"prompt_tokens":3,"weight_version":"default","num_retractions":0,"reasoning_tokens":0,"completion_tokens":4,"cached_tokens":0,"weight_versions":[{"version":"default","start":0,"end":4}],"cached_tokens_details":null,"dp_rank":null,"e2e_latency":T,"response_sent_to_client_ts":T}}"#);
            assert_eq!(reply.header("content-type"), Some("application/json"));
        },
    )
    .await;
}

#[tokio::test]
async fn output_ids_keep_the_stop_token_and_text_drops_it() {
    check(r#"{"input_ids":[1]}"#, 200, |reply| {
        let answer = reply.json();
        assert_eq!(answer["output_ids"], serde_json::json!([314, 260, 998, 500, 999]));
        assert_eq!(answer["text"], " vida dada</think> tado");
        assert_eq!(answer["meta_info"]["finish_reason"], serde_json::json!({"type": "stop", "matched": 999}));
        assert_eq!(answer["meta_info"]["completion_tokens"], 5);
        assert_eq!(answer["meta_info"]["id"].as_str().map(str::len), Some(32));
    })
    .await;
}

#[tokio::test]
async fn stop_token_ids_end_the_answer_and_stay_in_the_ids() {
    check(r#"{"input_ids":[1],"sampling_params":{"stop_token_ids":[260]}}"#, 200, |reply| {
        let answer = reply.json();
        assert_eq!(answer["output_ids"], serde_json::json!([314, 260]));
        assert_eq!(answer["text"], " vida");
        assert_eq!(answer["meta_info"]["finish_reason"], serde_json::json!({"type": "stop", "matched": 260}));
    })
    .await;
}

#[tokio::test]
async fn stop_strings_cut_the_text_and_keep_their_token() {
    check(r#"{"input_ids":[1],"sampling_params":{"stop":["da<"]}}"#, 200, |reply| {
        let answer = reply.json();
        assert_eq!(answer["output_ids"], serde_json::json!([314, 260, 998]));
        assert_eq!(answer["text"], " vida da");
        assert_eq!(answer["meta_info"]["finish_reason"], serde_json::json!({"type": "stop", "matched": "da<"}));
    })
    .await;
}

#[tokio::test]
async fn a_batch_comes_back_in_its_order_with_its_rids_and_parameters() {
    let server = scripted("seed = 1\n").await;
    let body = r#"{"input_ids":[[1,2],[3],[4,5,6]],"rid":["a","b","c"],"sampling_params":[{"max_new_tokens":2},{"max_new_tokens":3},{"max_new_tokens":1}]}"#;
    let batch = post(&server, "/generate", body).await.json();
    let rows: Vec<_> = batch.as_array().expect("an array").iter().map(|row| &row["meta_info"]).collect();
    let seen: Vec<_> =
        rows.iter().map(|meta| (&meta["id"], &meta["prompt_tokens"], &meta["completion_tokens"])).collect();
    assert_eq!(
        format!("{seen:?}"),
        r#"[(String("a"), Number(2), Number(2)), (String("b"), Number(1), Number(3)), (String("c"), Number(3), Number(1))]"#
    );

    let alone = post(&server, "/generate", r#"{"input_ids":[3],"sampling_params":{"max_new_tokens":3}}"#).await.json();
    assert_eq!(alone["output_ids"], batch[1]["output_ids"], "the same prompt has the same answer");
}

#[tokio::test]
async fn one_rid_for_a_batch_is_numbered() {
    check(r#"{"input_ids":[[1],[2]],"rid":"r"}"#, 200, |reply| {
        let ids: Vec<_> =
            reply.json().as_array().expect("an array").iter().map(|row| row["meta_info"]["id"].clone()).collect();
        assert_eq!(ids, ["r_0", "r_1"]);
    })
    .await;
}

#[tokio::test]
async fn n_gives_an_array_with_fresh_ids() {
    let server = scripted("seed = 1\n").await;
    let body = r#"{"input_ids":[1],"rid":"r","sampling_params":{"n":2,"max_new_tokens":8}}"#;
    let both = post(&server, "/generate", body).await.json();
    assert_eq!(both.as_array().map(Vec::len), Some(2));
    assert_ne!(both[0]["output_ids"], both[1]["output_ids"]);
    assert_ne!(both[0]["meta_info"]["id"], both[1]["meta_info"]["id"]);
}

#[tokio::test]
async fn put_is_taken_too_and_unknown_top_level_keys_are_ignored() {
    let server = scripted(SMALL).await;
    let reply =
        call(server.addr(), "PUT", "/generate", r#"{"input_ids":[1],"no_such_key":{"a":[1]}}"#).await.expect("answers");
    assert_eq!(reply.status, 200);
}

/// Every refusal in one picture: status and body.
#[tokio::test]
async fn refusals_in_sglangs_words_and_shapes() {
    let long = format!(r#"{{"input_ids":[{}]}}"#, vec!["1"; 600].join(","));
    let bodies = [
        ("too long", long.as_str()),
        ("too many tokens", r#"{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":100000}}"#),
        ("temperature", r#"{"input_ids":[1],"sampling_params":{"temperature":-1}}"#),
        ("top_p", r#"{"input_ids":[1],"sampling_params":{"top_p":0}}"#),
        ("top_k", r#"{"input_ids":[1],"sampling_params":{"top_k":0}}"#),
        ("unsupported", r#"{"input_ids":[1],"sampling_params":{"regex":"a+"}}"#),
        ("nothing", r#"{"sampling_params":{}}"#),
        ("empty", r#"{"input_ids":[]}"#),
        ("empty row", r#"{"input_ids":[[1],[]]}"#),
        ("vocabulary", r#"{"input_ids":[1,999999]}"#),
        ("negative", r#"{"input_ids":[-1]}"#),
        ("type", r#"{"input_ids":["a"]}"#),
        ("sampling type", r#"{"input_ids":[1],"sampling_params":{"temperature":"hot"}}"#),
        ("twice", r#"{"input_ids":[[1],[2]],"rid":["z","z"]}"#),
        ("logprob", r#"{"input_ids":[1],"return_logprob":true}"#),
        ("hidden", r#"{"input_ids":[1],"return_hidden_states":true}"#),
        ("cut", r#"{"input_ids":[1]"#),
        ("no object", "7"),
    ];
    let server = scripted(SMALL).await;
    let mut picture = String::new();
    for (name, body) in bodies {
        let reply = post(&server, "/generate", body).await;
        writeln!(picture, "{name}: {} {}", reply.status, reply.text()).expect("memory takes it");
    }
    assert_snapshot!(picture, @r#"
    too long: 400 {"error":{"message":"The input (600 tokens) is longer than the model's context length (512 tokens)."}}
    too many tokens: 400 {"error":{"message":"Requested token count exceeds the model's maximum context length of 512 tokens. You requested a total of 100003 tokens: 3 tokens from the input messages and 100000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit."}}
    temperature: 400 {"error":{"message":"temperature must be a non-negative finite number, got -1."}}
    top_p: 400 {"error":{"message":"top_p must be in (0, 1], got 0."}}
    top_k: 400 {"error":{"message":"top_k must be -1 (disable) or at least 1, got 0."}}
    unsupported: 400 {"error":{"message":"regex is not supported by this server."}}
    nothing: 400 {"error":{"message":"Either text, input_ids or input_embeds should be provided."}}
    empty: 400 {"error":{"message":"input_ids cannot be empty."}}
    empty row: 400 {"error":{"message":"input_ids cannot be empty."}}
    vocabulary: 400 {"error":{"message":"Token id 999999 is out of vocabulary: the model has 1000 ids."}}
    negative: 400 {"error":{"message":"Token id -1 is out of vocabulary: the model has 1000 ids."}}
    type: 400 {"error":"input_ids: invalid type: string \"a\", expected i64"}
    sampling type: 400 {"error":"invalid type: string \"hot\", expected f64"}
    twice: 400 {"error":{"message":"Duplicate request IDs detected within the request: ['z']"}}
    logprob: 400 {"error":{"message":"return_logprob is not supported by this server."}}
    hidden: 400 {"error":{"message":"The server is not configured to return hidden states."}}
    cut: 400 {"object":"error","message":"1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 16), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'EOF while parsing an object'}}","type":"Bad Request","param":null,"code":400}
    no object: 400 {"error":"invalid type: integer `7`, expected an object"}
    "#);
}

#[tokio::test]
async fn unknown_sampling_keys_are_named_with_the_known_ones() {
    check(r#"{"input_ids":[1],"sampling_params":{"bogus":1}}"#, 400, |reply| {
        let error = reply.json()["error"].as_str().expect("a string, not an object").to_owned();
        assert!(error.starts_with("unknown field `bogus`, expected one of `max_new_tokens`, "), "{error}");
        assert!(!error.contains("at line"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn max_new_tokens_is_128_when_left_out_and_open_when_null() {
    let server = scripted("lengths = { law = \"fixed\", tokens = 400 }\n").await;
    let left_out = post(&server, "/generate", r#"{"input_ids":[1]}"#).await.json();
    assert_eq!(left_out["meta_info"]["finish_reason"], serde_json::json!({"type": "length", "length": 128}));
    let open =
        post(&server, "/generate", r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":null}}"#).await.json();
    assert_eq!(open["meta_info"]["completion_tokens"], 400);
    assert_eq!(open["meta_info"]["finish_reason"]["type"], "stop");
}

#[tokio::test]
async fn a_cap_that_just_fits_the_context_is_clipped_silently() {
    let server = scripted("context_length = 512\nlengths = { law = \"fixed\", tokens = 600 }\n").await;
    let body = r#"{"input_ids":[1,2],"sampling_params":{"max_new_tokens":510}}"#;
    let answer = post(&server, "/generate", body).await.json();
    assert_eq!(answer["meta_info"]["finish_reason"], serde_json::json!({"type": "length", "length": 508}));
}

#[tokio::test]
async fn a_stream_is_cumulative_and_ends_as_the_whole_answer_does() {
    let server = scripted("stream_interval = 3\nlengths = { law = \"fixed\", tokens = 10 }\n").await;
    let whole = post(&server, "/generate", r#"{"input_ids":[5,6]}"#).await.json();
    let reply = post(&server, "/generate", r#"{"input_ids":[5,6],"stream":true,"rid":"s"}"#).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let mut events = reply.events();
    assert_eq!(events.pop(), Some("[DONE]"));
    let events: Vec<serde_json::Value> = events.iter().map(|e| serde_json::from_str(e).expect("JSON")).collect();
    let counts: Vec<_> = events.iter().map(|e| e["output_ids"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(counts, [3, 6, 9, 10]);
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event["meta_info"]["completion_tokens"], counts[n], "counts are cumulative");
        let text = event["text"].as_str().expect("text");
        assert!(whole["text"].as_str().expect("text").starts_with(text), "text is cumulative");
        assert_eq!(event["meta_info"]["finish_reason"].is_null(), n + 1 < events.len());
    }
    let last = events.last().expect("events");
    assert_eq!((&last["text"], &last["output_ids"]), (&whole["text"], &whole["output_ids"]));
}

#[tokio::test]
async fn a_batch_stream_carries_the_index() {
    let server = scripted("stream_interval = 4\nlengths = { law = \"fixed\", tokens = 8 }\n").await;
    let reply = post(&server, "/generate", r#"{"input_ids":[[5],[6]],"stream":true}"#).await;
    let events = reply.events();
    let mut seen: Vec<(u64, u64)> = events[..events.len() - 1]
        .iter()
        .map(|e| serde_json::from_str::<serde_json::Value>(e).expect("JSON"))
        .map(|e| (e["index"].as_u64().expect("index"), e["meta_info"]["completion_tokens"].as_u64().expect("count")))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 4), (0, 8), (1, 4), (1, 8)]);
}

/// Slow answers: 50 ms a token.
const SLOW: &str =
    "lengths = { law = \"fixed\", tokens = 100 }\nlatency = { model = \"per_answer\", itl_ms = 50 }\nmax_running = 1\n";

async fn until(server: &ServerHandle, what: impl Fn(&eyas_serve::ScriptStats) -> bool) {
    for _ in 0..500 {
        if what(&server.script_stats().expect("a script")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never came: {:?}", server.script_stats());
}

#[tokio::test]
async fn an_abort_ends_the_request_with_200_and_what_there_is() {
    let server = scripted(SLOW).await;
    let running = post(&server, "/generate", r#"{"input_ids":[1],"rid":"one"}"#);
    let aborting = async {
        until(&server, |stats| stats.in_flight == 1).await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        assert_eq!(post(&server, "/abort_request", r#"{"rid":"no-such"}"#).await.status, 200);
        let reply = post(&server, "/abort_request", r#"{"rid":"one"}"#).await;
        assert_eq!((reply.status, reply.body.len()), (200, 0));
    };
    let (reply, ()) = tokio::join!(running, aborting);
    assert_eq!(reply.status, 200);
    let answer = reply.json();
    let reason = serde_json::json!({"type": "abort", "message": "Aborted", "status_code": null, "err_type": null});
    assert_eq!(answer["meta_info"]["finish_reason"], reason);
    let n = answer["output_ids"].as_array().map_or(0, Vec::len);
    assert!((1..100).contains(&n), "partial output, got {n} tokens");
    assert_eq!(answer["meta_info"]["completion_tokens"], n);
}

#[tokio::test]
async fn abort_all_reaches_the_queue_too() {
    let server = scripted(SLOW).await;
    let first = post(&server, "/generate", r#"{"input_ids":[1],"rid":"one"}"#);
    let second = async {
        until(&server, |stats| stats.in_flight == 1).await;
        post(&server, "/generate", r#"{"input_ids":[2],"rid":"two"}"#).await
    };
    let aborting = async {
        until(&server, |stats| stats.in_flight == 2).await;
        post(&server, "/abort_request", r#"{"rid":"","abort_all":true}"#).await
    };
    let (first, second, _) = tokio::join!(first, second, aborting);
    assert_eq!(first.json()["meta_info"]["finish_reason"]["message"], "Aborted");
    assert_eq!(second.json()["meta_info"]["finish_reason"]["message"], "Abort in waiting queue");
    assert_eq!(second.json()["output_ids"], serde_json::json!([]));
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_request_and_frees_its_place() {
    let server = scripted(SLOW).await;
    for body in [r#"{"input_ids":[1],"rid":"one"}"#, r#"{"input_ids":[1],"rid":"one","stream":true}"#] {
        let before = server.script_stats().expect("a script").disconnected;
        let stream = open(server.addr(), "POST", "/generate", body).await.expect("connects");
        until(&server, |stats| stats.in_flight == 1).await;
        drop(stream);
        until(&server, |stats| stats.in_flight == 0 && stats.disconnected == before + 1).await;
    }
}

#[tokio::test]
async fn a_rid_in_flight_is_refused_a_second_time() {
    let server = scripted(SLOW).await;
    let stream = open(server.addr(), "POST", "/generate", r#"{"input_ids":[1],"rid":"one"}"#).await.expect("connects");
    until(&server, |stats| stats.in_flight == 1).await;
    let reply = post(&server, "/generate", r#"{"input_ids":[1],"rid":"one"}"#).await;
    assert_eq!((reply.status, reply.text()), (400, r#"{"error":{"message":"Duplicate request ID detected: one"}}"#));
    drop(stream);
}

#[tokio::test]
async fn a_full_queue_is_a_503_in_the_flat_shape() {
    let server = scripted(&format!("{SLOW}max_queued = 1\n")).await;
    let mut held = Vec::new();
    for n in 1..=2 {
        held.push(
            open(server.addr(), "POST", "/generate", &format!(r#"{{"input_ids":[{n}]}}"#)).await.expect("connects"),
        );
        until(&server, |stats| stats.in_flight == n).await;
    }
    let reply = post(&server, "/generate", r#"{"input_ids":[3]}"#).await;
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.text(),
        r#"{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}"#
    );
    let loads = get(&server, "/v1/loads").await.json();
    assert_eq!(
        (&loads["loads"][0]["num_running_reqs"], &loads["loads"][0]["num_waiting_reqs"]),
        (&1.into(), &1.into())
    );
    assert_eq!(get(&server, "/flush_cache").await.status, 400, "requests are running");
}

#[tokio::test]
async fn side_endpoints() {
    let server = scripted("served_model_name = \"m\"\ncontext_length = 512\nmax_running = 8\n").await;
    for path in ["/health", "/health_generate", "/ready", "/flush_cache"] {
        assert_eq!(get(&server, path).await.status, 200, "{path}");
    }
    let info = get(&server, "/server_info").await.json();
    assert_eq!(info["version"], format!("eyas-{}", env!("CARGO_PKG_VERSION")));
    assert_eq!((&info["context_length"], &info["max_total_num_tokens"]), (&512.into(), &4096.into()));
    assert_eq!((&info["max_req_input_len"], &info["engine"]), (&506.into(), &"script".into()));
    assert_eq!(get(&server, "/get_model_info").await.json()["served_model_name"], "m");
    assert_eq!(get(&server, "/v1/models").await.json()["data"][0]["max_model_len"], 512);
    let missing = get(&server, "/no/such").await;
    assert_eq!((missing.status, missing.text()), (404, r#"{"detail":"Not Found"}"#));
    assert_eq!(get(&server, "/generate").await.status, 405);

    post(&server, "/generate", r#"{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":4}}"#).await;
    let metrics = get(&server, "/metrics").await;
    for line in [
        "sglang:num_running_reqs{model_name=\"m\"} 0",
        "sglang:prompt_tokens_total{model_name=\"m\"} 3",
        "sglang:generation_tokens_total{model_name=\"m\"} 4",
        "sglang:e2e_request_latency_seconds_count{model_name=\"m\"} 1",
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line} is not in\n{}", metrics.text());
    }
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = scripted(SMALL).await;
    let mut stream = tokio::net::TcpStream::connect(server.addr()).await.expect("connects");
    let body = r#"{"input_ids":[1]}"#;
    let request = format!("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.expect("sends");
        let mut buffer = vec![0; 4096];
        let n = stream.read(&mut buffer).await.expect("reads");
        assert!(String::from_utf8_lossy(&buffer[..n]).starts_with("HTTP/1.1 200 OK"), "keep-alive");
    }
    server.shutdown().await;
    assert_eq!(stream.read(&mut [0; 1]).await.expect("an orderly close"), 0);
}
