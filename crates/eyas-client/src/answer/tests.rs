use super::*;
use crate::ask::Sampling;
use eyas_types::SamplingParams;

fn parsed(protocol: Protocol, allow_text: bool, body: &str) -> Result<Answer, RequestError> {
    let mut endpoint = Endpoint::new("http://h", protocol).unwrap();
    endpoint.allow_text = allow_text;
    let sampling = Sampling::new(&SamplingParams::default());
    let ask = Ask { rid: "r1", prompt_ids: &[5, 6], messages: &[], tools: None, sampling: &sampling };
    parse(&endpoint, &ask, body.as_bytes())
}

fn generate_body(body: &str) -> Result<Answer, RequestError> {
    parsed(Protocol::SglangGenerate, false, body)
}

#[track_caller]
fn check_class(body: &str, class: &str) {
    assert_eq!(generate_body(body).unwrap_err().class(), class, "{body}");
}

#[test]
fn a_real_generate_answer() {
    // SGLang 0.5.23 on CPU, fields as it sends them.
    let answer = generate_body(
        r#"{"text":" is","output_ids":[314,260],"meta_info":{"id":"r1","finish_reason":{"type":"stop","matched":260},
            "prompt_tokens":2,"weight_version":"default","num_retractions":0,"reasoning_tokens":0,"completion_tokens":2,
            "weight_versions":["default"],"cached_tokens":1,"cached_tokens_details":null,"dp_rank":null,"e2e_latency":0.41,
            "response_sent_to_client_ts":1795000000.1}}"#,
    )
    .unwrap();
    assert_eq!(answer.output_ids.as_deref(), Some(&[314, 260][..]));
    assert_eq!(answer.finish, FinishReason::Stop { matched: Some(Matched::Token(260)) });
    assert_eq!(
        answer.usage,
        Usage { prompt_tokens: 2, completion_tokens: 2, cached_tokens: Some(1), reasoning_tokens: None }
    );
}

#[test]
fn an_old_or_sparse_generate_answer() {
    let answer =
        generate_body(r#"{"output_ids":[7],"meta_info":{"finish_reason":{"type":"length","length":1}}}"#).unwrap();
    assert_eq!((answer.text.as_str(), answer.usage.completion_tokens), ("", 1));
    let stop_string = r#"{"text":"a","output_ids":[7],"meta_info":{"finish_reason":{"type":"stop","matched":"."}}}"#;
    assert_eq!(
        generate_body(stop_string).unwrap().finish,
        FinishReason::Stop { matched: Some(Matched::Text(".".into())) }
    );
}

#[test]
fn no_proof_no_answer() {
    let finish = r#""finish_reason":{"type":"stop","matched":7}"#;
    check_class(&format!(r#"{{"text":"a","meta_info":{{{finish}}}}}"#), "no_ids");
    check_class(&format!(r#"{{"text":"","output_ids":[],"meta_info":{{{finish}}}}}"#), "no_tokens");
    check_class(&format!(r#"{{"text":"a","output_ids":[7],"meta_info":{{"id":"r2",{finish}}}}}"#), "rid_mismatch");
    check_class(
        &format!(r#"{{"text":"a","output_ids":[7],"meta_info":{{"prompt_tokens":1,{finish}}}}}"#),
        "prompt_tokens",
    );
    check_class(r#"{"text":"a","output_ids":[7],"meta_info":{"finish_reason":null}}"#, "unknown_finish");
    check_class(r#"{"text":"a","output_ids":[7],"meta_info":{"finish_reason":{"type":"error"}}}"#, "unknown_finish");
    check_class(r#"{"text":"a","output_ids":[7]}"#, "unknown_finish");
    check_class(
        r#"{"text":"a","output_ids":[7],"meta_info":{"finish_reason":{"type":"stop","matched":"NaN happened"}}}"#,
        "nan",
    );
    check_class(
        r#"{"text":"","output_ids":[0],"meta_info":{"finish_reason":{"type":"abort","message":"Aborted","status_code":null}}}"#,
        "abort",
    );
    check_class(r#"{"error":{"message":"nope"}}"#, "error_body");
    check_class(r#"{"text":"a","output_ids":[-1],"meta_info":{}}"#, "bad_json");
    check_class(r#"[{"text":"a"}]"#, "bad_json");
    check_class(r#"{"text":"half an ans"#, "bad_json");
    check_class(r#"{"text":"\udcb2","output_ids":[1]}"#, "bad_json");
}

#[test]
fn bytes_that_are_no_utf8_have_their_own_class() {
    let endpoint = Endpoint::new("http://h", Protocol::SglangGenerate).unwrap();
    let sampling = Sampling::new(&SamplingParams::default());
    let ask = Ask { rid: "r1", prompt_ids: &[5], messages: &[], tools: None, sampling: &sampling };
    let error = parse(&endpoint, &ask, b"{\"text\":\"a\xff\"}").unwrap_err();
    assert!(matches!(error, RequestError::BadUtf8 { valid_up_to: 10 }), "{error:?}");
}

#[test]
fn text_alone_is_taken_when_that_is_allowed() {
    let body = r#"{"text":"a","meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":12}}"#;
    let answer = parsed(Protocol::SglangGenerate, true, body).unwrap();
    assert_eq!((answer.output_ids, answer.usage.completion_tokens), (None, 12));
}

fn chat_message(message: &str, finish: &str) -> Result<Answer, RequestError> {
    let body = format!(
        r#"{{"id":"x","choices":[{{"index":0,"message":{message},"finish_reason":{finish}}}],
            "usage":{{"prompt_tokens":6,"completion_tokens":7,"total_tokens":13,"completion_tokens_details":{{"reasoning_tokens":3}}}}}}"#
    );
    parsed(Protocol::OpenaiChat, false, &body)
}

#[test]
fn reason_01_reasoning_under_either_name_or_both_is_taken_once() {
    for fields in [r#""reasoning":"R1""#, r#""reasoning_content":"R1""#, r#""reasoning":"R1","reasoning_content":"R1""#]
    {
        let answer = chat_message(&format!(r#"{{"role":"assistant","content":"A1",{fields}}}"#), "\"stop\"").unwrap();
        assert_eq!((answer.reasoning_text.as_deref(), answer.text.as_str()), (Some("R1"), "A1"));
        assert_eq!(answer.usage.reasoning_tokens, Some(3));
    }
    let none = chat_message(r#"{"role":"assistant","content":"A1","reasoning_content":null}"#, "\"stop\"").unwrap();
    assert_eq!(none.reasoning_text, None);
}

#[test]
fn trunc_01_content_null_is_empty() {
    let answer = chat_message(r#"{"content":null,"reasoning":"step one, step"}"#, "\"length\"").unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning_text.as_deref()), ("", Some("step one, step")));
    assert_eq!(answer.finish, FinishReason::Length { length: None });
}

#[test]
fn chat_calls_ids_and_unknown_endings() {
    let call = r#"{"content":null,"tool_calls":[{"id":"functions.calc:0","type":"function",
        "function":{"name":"calc","arguments":"{\"x\": 2}"}}]}"#;
    let answer = chat_message(call, "\"tool_calls\"").unwrap();
    assert_eq!(answer.tool_calls[0].function.arguments, serde_json::json!({"x": 2}));
    let cut = call.replace(r#"{\"x\": 2}"#, r#"{\"x\": "#);
    assert_eq!(
        chat_message(&cut, "\"length\"").unwrap().tool_calls[0].function.arguments,
        Value::String("{\"x\": ".into())
    );
    for finish in ["null", "\"content_filter\"", "\"error\""] {
        assert_eq!(chat_message(r#"{"content":"A"}"#, finish).unwrap_err().class(), "unknown_finish");
    }
    let ids =
        r#"{"choices":[{"message":{"content":"A"},"finish_reason":"stop","stop_reason":276,"token_ids":[65,276]}]}"#;
    let answer = parsed(Protocol::OpenaiChat, false, ids).unwrap();
    assert_eq!((answer.output_ids, answer.usage.completion_tokens), (Some(vec![65, 276]), 2));
}

#[test]
fn three_shapes_of_error_bodies_and_plain_text() {
    assert_eq!(error_message(br#"{"error":{"message":"too long","code":400}}"#), "too long");
    assert_eq!(error_message(br#"{"error":"unknown field `bogus`"}"#), "unknown field `bogus`");
    assert_eq!(
        error_message(br#"{"object":"error","message":"The request queue is full.","code":503}"#),
        "The request queue is full."
    );
    assert_eq!(error_message(b"<html>bad gateway</html>"), "<html>bad gateway</html>");
    assert!(error_message("é".repeat(1_000).as_bytes()).len() < 620);
}
