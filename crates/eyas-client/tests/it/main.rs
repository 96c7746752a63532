//! The client against a scripted server.
#![cfg(test)]

use eyas_client::{
    Answer, Ask, Connection, Endpoint, Engine, Protocol, RequestError, Retry, Sampling, Scope, health, probe,
};
use eyas_testkit::mock::{MockServer, always_ok};
use eyas_types::{FinishReason, Matched, Message, Role, SamplingParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

fn connection(server: &MockServer, protocol: Protocol) -> Connection {
    Connection::new(Arc::new(Endpoint::new(&server.url(), protocol).unwrap()))
}

async fn ask(connection: &mut Connection, rid: &str) -> Result<Answer, RequestError> {
    let sampling = Sampling::new(&SamplingParams::default());
    let messages = [Message::text(Role::User, "hi")];
    connection.ask(&Ask { rid, prompt_ids: &[104, 105], messages: &messages, tools: None, sampling: &sampling }).await
}

/// One answer of a server that plays `action`, on `/generate`.
async fn once(action: Value) -> Result<Answer, RequestError> {
    let server = MockServer::start(json!({ "default": action }));
    ask(&mut connection(&server, Protocol::SglangGenerate), "r1").await
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_both_dialects() {
    let server = MockServer::start(always_ok("yo", 0.0));
    let mut line = connection(&server, Protocol::SglangGenerate);
    for n in 0..20 {
        let answer = ask(&mut line, &format!("r{n}")).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.output_ids.as_deref()), ("yo", Some(&[121, 111, 276][..])));
        assert_eq!(answer.finish, FinishReason::Stop { matched: Some(Matched::Token(276)) });
        assert_eq!((answer.usage.prompt_tokens, answer.usage.completion_tokens), (2, 3));
    }
    assert_eq!((server.n_connections(), server.n_requests()), (1, 20));
    let logged = &server.log()[7];
    assert_eq!((logged.rid.as_deref(), logged.key.as_str()), (Some("r7"), "hi"));
    assert_eq!(logged.sampling["skip_special_tokens"], json!(false));

    let mut chat = connection(&server, Protocol::OpenaiChat);
    let answer = ask(&mut chat, "c").await.unwrap();
    assert_eq!((answer.text.as_str(), answer.output_ids.as_deref()), ("yo", Some(&[121, 111, 276][..])));
}

#[tokio::test]
async fn server_04_a_connection_closed_while_idle_costs_nothing() {
    let mut behaviour = always_ok("yo", 0.0);
    behaviour["keep_alive_s"] = json!(0.05);
    let server = MockServer::start(behaviour);
    let mut line = connection(&server, Protocol::SglangGenerate);
    ask(&mut line, "r1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    ask(&mut line, "r2").await.unwrap();
    assert_eq!((server.n_connections(), server.n_requests()), (2, 2), "seen before anything was sent");
}

#[tokio::test]
async fn server_04_a_connection_closed_under_the_request_is_stale_and_a_fresh_one_is_not() {
    let close = json!({"type": "close", "when": "before_headers"});
    let server = MockServer::start(json!({"rules": [{"match": {"nth_from": 2}, "do": close}]}));
    let mut line = connection(&server, Protocol::SglangGenerate);
    ask(&mut line, "r1").await.unwrap();
    let stale = ask(&mut line, "r2").await.unwrap_err();
    assert!(matches!(stale, RequestError::StaleReuse), "{stale:?}");
    assert_eq!(stale.retry(), Retry::Now);
    let reset = ask(&mut line, "r3").await.unwrap_err();
    assert!(matches!(reset, RequestError::Reset { .. }), "{reset:?}");
    assert_eq!(reset.retry(), Retry::Backoff);
}

#[tokio::test]
async fn errors_by_class() {
    let class = |result: Result<Answer, RequestError>| result.unwrap_err().class().into_owned();
    assert_eq!(class(once(json!({"type": "close", "when": "mid_body"})).await), "short_body");
    assert_eq!(class(once(json!({"type": "text", "status": 200, "body": "{\"text\": \"half"})).await), "bad_json");
    assert_eq!(class(once(json!({"type": "text", "status": 502, "body": "<html>"})).await), "status_502");
    let full = json!({"type": "json", "status": 503, "headers": {"Retry-After": "1.5"}, "body": {"error": {"message": "full"}}});
    let full = once(full).await.unwrap_err();
    assert_eq!(full.retry(), Retry::After(Duration::from_millis(1_500)));
    assert_eq!(full.to_string(), "status 503: full");
}

#[tokio::test]
async fn nobody_there_is_nobodys_prompt() {
    let server = MockServer::start(always_ok("yo", 0.0));
    let mut line = connection(&server, Protocol::SglangGenerate);
    server.die();
    // The port closes as soon as the accepting thread has woken up.
    let error = loop {
        match ask(&mut line, "r").await {
            Err(error @ RequestError::Connect { .. }) => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!((error.class().as_ref(), error.scope()), ("connect", Scope::Unreachable));
    assert!(!error.may_have_been_answered());
}

#[tokio::test]
async fn a_hung_request_ends_at_its_limit_and_the_next_one_works() {
    let server = MockServer::start(json!({"rules": [{"match": {"nth": 1}, "do": {"type": "hang"}}]}));
    let mut endpoint = Endpoint::new(&server.url(), Protocol::SglangGenerate).unwrap();
    endpoint.request_timeout = Some(Duration::from_millis(100));
    let mut line = Connection::new(Arc::new(endpoint));
    let error = ask(&mut line, "r1").await.unwrap_err();
    assert!(matches!(error, RequestError::Timeout { .. }), "{error:?}");
    line.abort("r1", LIMIT).await;
    assert_eq!(server.aborted(), ["r1"]);
    ask(&mut line, "r2").await.unwrap();
}

#[tokio::test]
async fn keys_and_headers_are_sent() {
    let server = MockServer::start(json!({"require_auth": "hush"}));
    let mut endpoint = Endpoint::new(&server.url(), Protocol::SglangGenerate).unwrap();
    let error = ask(&mut Connection::new(Arc::new(endpoint.clone())), "r").await.unwrap_err();
    assert_eq!(
        (error.class().as_ref(), error.scope(), error.retry()),
        ("status_401", Scope::Misconfigured, Retry::Never)
    );
    endpoint.set_api_key("hush").unwrap();
    ask(&mut Connection::new(Arc::new(endpoint)), "r").await.unwrap();
}

#[tokio::test]
async fn servers_tell_about_themselves() {
    let server = MockServer::start(json!({"health": {"status": 503, "body": "engine dead"}}));
    let endpoint = Arc::new(Endpoint::new(&server.url(), Protocol::SglangGenerate).unwrap());
    let info = probe(&endpoint, LIMIT).await.unwrap();
    assert_eq!((info.engine, info.model_path.as_deref(), info.context_len), (Engine::Sglang, Some("tiny"), Some(4096)));
    assert_eq!(health(&endpoint, LIMIT).await.unwrap_err().to_string(), "status 503: engine dead");
}
