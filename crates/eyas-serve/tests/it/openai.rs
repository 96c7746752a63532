//! `/v1/completions` and `/v1/chat/completions` of a script.

use crate::client::{post, scripted};
use serde_json::{Value, json};

const SCRIPT: &str = "vocab_size = 1000\nstream_interval = 4\nlengths = { law = \"fixed\", tokens = 12 }\n";
const PARSER: &str = "reasoning = { share = 0.5, parser = \"qwen3\" }\n";
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"what is two and two?"}]}"#;

async fn chat(script: &str, body: &str) -> Value {
    let server = scripted(script).await;
    let reply = post(&server, "/v1/chat/completions", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn without_a_parser_the_reasoning_stays_in_the_content() {
    let answer = chat(SCRIPT, CHAT).await;
    let message = &answer["choices"][0]["message"];
    assert!(message["content"].as_str().expect("text").contains("</think>"));
    assert!(message["reasoning_content"].is_null());
    assert_eq!((&answer["model"], &answer["choices"][0]["finish_reason"]), (&json!("m"), &json!("stop")));
    assert_eq!(answer["usage"]["completion_tokens"], 12);
}

#[tokio::test]
async fn with_a_parser_it_is_split_and_the_field_can_be_named() {
    let whole = chat(SCRIPT, CHAT).await["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let whole_with_share = chat(&format!("{SCRIPT}reasoning = {{ share = 0.5 }}\n"), CHAT).await;
    let text = whole_with_share["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    assert_ne!(whole, text, "the share moves the marker");
    let (reasoning, content) = text.split_once("</think>").expect("a marker");

    let answer = chat(&format!("{SCRIPT}{PARSER}"), CHAT).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!(reasoning), &json!(content)));

    let named = format!("{SCRIPT}reasoning = {{ share = 0.5, parser = \"qwen3\", field = \"reasoning\" }}\n");
    assert_eq!(chat(&named, CHAT).await["choices"][0]["message"]["reasoning"], reasoning);

    let cut = chat(&format!("{SCRIPT}{PARSER}"), &CHAT.replace("\"model\"", "\"max_tokens\":3,\"model\"")).await;
    let message = &cut["choices"][0]["message"];
    assert_eq!((&message["content"], &cut["choices"][0]["finish_reason"]), (&json!(""), &json!("length")));
    assert!(message["reasoning_content"].is_string(), "all of it is reasoning");
}

#[tokio::test]
async fn deltas_add_up_to_the_whole() {
    let script = format!("{SCRIPT}{PARSER}");
    let whole = chat(&script, CHAT).await;
    let server = scripted(&script).await;
    let body = CHAT.replace("\"model\"", r#""stream":true,"stream_options":{"include_usage":true},"model""#);
    let reply = post(&server, "/v1/chat/completions", &body).await;
    let mut events = reply.events();
    assert_eq!(events.pop(), Some("[DONE]"));
    let mut events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    assert_eq!(events.pop().expect("a usage event")["usage"]["completion_tokens"], 12);
    let joined = |field: &str| -> String {
        events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
    };
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], joined("content"));
    assert_eq!(message["reasoning_content"], joined("reasoning_content"));
    assert_eq!(events.last().expect("events")["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn completions_take_ids_and_give_them_back() {
    let server = scripted(SCRIPT).await;
    let native = post(&server, "/generate", r#"{"input_ids":[7,8]}"#).await.json();
    let body = r#"{"prompt":[7,8],"max_tokens":100,"return_token_ids":true}"#;
    let answer = post(&server, "/v1/completions", body).await.json();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["token_ids"], &choice["text"]), (&native["output_ids"], &native["text"]));
    assert_eq!((&choice["prompt_token_ids"], &choice["matched_stop"]), (&json!([7, 8]), &json!(999)));
    let default = post(&server, "/v1/completions", r#"{"prompt":[[7,8],[9]]}"#).await.json();
    assert_eq!(default["choices"].as_array().map(Vec::len), Some(2));
    let refused = post(&server, "/v1/completions", r#"{"prompt":[7],"echo":true}"#).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn faults_strike_here_too() {
    let script =
        "[[faults]]\nkind = \"status_500\"\nwhen = { path = \"/v1/chat/completions\", text = \"two and two\" }\n";
    let server = scripted(script).await;
    assert_eq!(post(&server, "/v1/chat/completions", CHAT).await.status, 500);
    assert_eq!(post(&server, "/v1/chat/completions", &CHAT.replace("two", "six")).await.status, 200);
    assert_eq!(post(&server, "/generate", r#"{"input_ids":[1]}"#).await.status, 200);
}
