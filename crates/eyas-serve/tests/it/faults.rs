//! Every fault kind as a client sees it.

use crate::client::{Reply, call, get, post, scripted};
use std::io::ErrorKind;
use std::time::Duration;

const BODY: &str = r#"{"input_ids":[1,2,3],"rid":"r"}"#;
const STREAM: &str = r#"{"input_ids":[1,2,3],"rid":"r","stream":true}"#;

/// Strikes the first try with a fault; the second must be clean.
async fn check(kind: &str, extra: &str, body: &str, expect: impl FnOnce(&Reply)) {
    let script = format!(
        "lengths = {{ law = \"fixed\", tokens = 40 }}\n[[faults]]\nkind = \"{kind}\"\nwhen = {{ attempts = 1 }}\n{extra}\n"
    );
    let server = scripted(&script).await;
    let reply = post(&server, "/generate", body).await;
    expect(&reply);
    let clean = post(&server, "/generate", BODY).await;
    assert_eq!(clean.status, 200, "{kind}: the second try is clean");
    assert_eq!(clean.json()["output_ids"].as_array().map(Vec::len), Some(40));
    let stats = get(&server, "/script/stats?prompts=true").await.json();
    assert_eq!(stats["faults"][kind], 1, "{stats}");
    assert_eq!(stats["prompts"].as_object().and_then(|p| p.values().next()).and_then(|n| n.as_u64()), Some(2));
}

#[tokio::test]
async fn statuses() {
    check("status_500", "message = \"boom\"", BODY, |reply| {
        assert_eq!((reply.status, reply.text()), (500, r#"{"error":{"message":"boom"}}"#));
    })
    .await;
    check("status_503", "retry_after_s = 2.0", BODY, |reply| {
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
        assert_eq!(reply.json()["object"], "error");
    })
    .await;
    check("status_429", "retry_after_s = 0.5", BODY, |reply| {
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("0.5")));
    })
    .await;
    check("status_400", "", BODY, |reply| assert_eq!(reply.status, 400)).await;
}

#[tokio::test]
async fn respond_fills_in_the_request() {
    let extra = "respond = { status = 502, headers = { x-who = \"lb\" }, body = { id = \"$rid\", n = \"$prompt_tokens\", ids = \"$prompt_ids\" } }";
    check("respond", extra, BODY, |reply| {
        assert_eq!((reply.status, reply.header("x-who")), (502, Some("lb")));
        assert_eq!(reply.text(), r#"{"id":"r","ids":[1,2,3],"n":3}"#);
    })
    .await;
}

#[tokio::test]
async fn cut_connections() {
    check("reset", "", BODY, |reply| {
        assert_eq!((reply.status, reply.body.len(), reply.end), (0, 0, Err(ErrorKind::ConnectionReset)));
    })
    .await;
    let is_half = |reply: &Reply| {
        assert_eq!(reply.status, 200, "{reply:?}");
        let promised: usize = reply.header("content-length").and_then(|n| n.parse().ok()).expect("a length");
        assert_eq!(reply.body.len(), promised / 2);
    };
    check("reset_mid_body", "", BODY, |reply| {
        is_half(reply);
        assert_eq!(reply.end, Err(ErrorKind::ConnectionReset));
    })
    .await;
    check("cut_body", "", BODY, |reply| {
        is_half(reply);
        assert_eq!(reply.end, Ok(()));
    })
    .await;
}

#[tokio::test]
async fn spoilt_bodies() {
    check("malformed_json", "", BODY, |reply| {
        assert_eq!((reply.status, reply.header("content-length")), (200, Some(reply.body.len().to_string().as_str())));
        assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_err());
    })
    .await;
    check("empty_body", "", BODY, |reply| assert_eq!((reply.status, reply.body.len()), (200, 0))).await;
    check("bad_utf8", "", BODY, |reply| {
        assert_eq!(reply.status, 200);
        assert!(std::str::from_utf8(&reply.body).is_err());
    })
    .await;
}

#[tokio::test]
async fn answers_that_lie() {
    check("abort_200", "", BODY, |reply| {
        let answer = reply.json();
        assert_eq!((reply.status, &answer["meta_info"]["finish_reason"]["type"]), (200, &"abort".into()));
        assert_eq!(answer["output_ids"].as_array().map(Vec::len), Some(20));
    })
    .await;
    check("missing_output_ids", "", BODY, |reply| {
        let answer = reply.json();
        assert!(answer.get("output_ids").is_none());
        assert_eq!(answer["meta_info"]["completion_tokens"], 40);
    })
    .await;
    check("wrong_counts", "", BODY, |reply| {
        let answer = reply.json();
        assert_eq!(
            (answer["output_ids"].as_array().map(Vec::len), &answer["meta_info"]["completion_tokens"]),
            (Some(40), &43.into())
        );
    })
    .await;
    check("nan_stop", "", BODY, |reply| {
        let reason = serde_json::json!({"type": "stop", "matched": "NaN happened"});
        assert_eq!(reply.json()["meta_info"]["finish_reason"], reason);
    })
    .await;
    check("wrong_rid", "", BODY, |reply| assert_eq!(reply.json()["meta_info"]["id"], "other-r")).await;
    check("never_closes_reasoning", "", BODY, |reply| {
        let answer = reply.json();
        assert!(!answer["text"].as_str().expect("text").contains("</think>"));
        assert!(!answer["output_ids"].as_array().expect("ids").contains(&99_998.into()));
        assert_eq!(answer["meta_info"]["finish_reason"]["type"], "stop");
    })
    .await;
}

#[tokio::test]
async fn streams_that_break() {
    check("stream_ends", "", STREAM, |reply| {
        let events = reply.events();
        assert_eq!((events.len(), reply.end), (1, Ok(())), "an event, then a clean end");
        assert!(!events.contains(&"[DONE]"));
    })
    .await;
    check("reset_mid_body", "", STREAM, |reply| {
        assert_eq!((reply.events().len(), reply.end), (1, Err(ErrorKind::ConnectionReset)));
    })
    .await;
}

#[tokio::test]
async fn hangs_last_until_the_client_leaves() {
    for (kind, n_expected) in [("hang", 0), ("hang_mid_body", 1)] {
        let server = scripted(&format!("[[faults]]\nkind = \"{kind}\"\n")).await;
        let call = tokio::time::timeout(Duration::from_millis(150), async {
            use tokio::io::AsyncReadExt;
            let mut stream = crate::client::open(server.addr(), "POST", "/generate", BODY).await.expect("connects");
            let mut n_seen = 0;
            let mut buffer = [0; 1024];
            loop {
                n_seen += stream.read(&mut buffer).await.expect("reads");
                assert!(n_expected > 0 && n_seen > 0, "{kind}: nothing comes");
            }
        });
        assert!(call.await.is_err(), "{kind} never ends");
        for _ in 0..200 {
            if server.script_stats().expect("a script").in_flight == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.script_stats().expect("a script").in_flight, 0, "{kind}: it ends with its client");
    }
}

#[tokio::test]
async fn a_death_closes_everything_and_may_come_back() {
    let server = scripted("down_ms = 200\n[[faults]]\nkind = \"die\"\nwhen = { requests = [1] }\n").await;
    let dying = post(&server, "/generate", BODY).await;
    assert_eq!((dying.status, dying.body.len()), (0, 0), "the connection closes without an answer");
    let refused = call(server.addr(), "GET", "/health", "").await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(post(&server, "/generate", BODY).await.status, 200);
}

#[tokio::test]
async fn an_id_outside_the_vocabulary_kills_when_the_script_says_so() {
    for body in [r#"{"input_ids":[999999]}"#, r#"{"input_ids":[[]]}"#] {
        let server = scripted("out_of_vocabulary = \"die\"\n").await;
        assert_eq!(post(&server, "/generate", body).await.status, 0);
        tokio::time::timeout(Duration::from_secs(5), server.died()).await.expect("it is dead for good");
        assert!(call(server.addr(), "GET", "/health", "").await.is_err());
        server.shutdown().await;
    }
}
