//! Answer files of other tools give the right figures without being told what they are.

use crate::{check_sums, kinds, look, look_at, used};
use eyas_inspect::{Compression, FieldPath, InspectPlan, Unit, inspect};
use std::{io::Write, sync::Arc};

fn owned(places: &[(&str, u64)]) -> Vec<(String, u64)> {
    places.iter().map(|(path, rows)| ((*path).to_owned(), *rows)).collect()
}

#[test]
fn openai_batch_output() {
    let rows = r#"{"id": "batch_req_1", "custom_id": "q1", "response": {"status_code": 200, "request_id": "r1", "body": {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Four.", "refusal": null}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 120, "total_tokens": 130, "completion_tokens_details": {"reasoning_tokens": 64}}}}, "error": null}
{"id": "batch_req_2", "custom_id": "q2", "response": {"status_code": 200, "request_id": "r2", "body": {"id": "chatcmpl-2", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fi", "refusal": null}, "finish_reason": "length"}], "usage": {"prompt_tokens": 12, "completion_tokens": 200, "total_tokens": 212}}}, "error": null}
{"id": "batch_req_3", "custom_id": "q3", "response": {"status_code": 429, "request_id": "r3", "body": {"error": {"message": "rate limit", "type": "limit"}}}, "error": null}
{"id": "batch_req_4", "custom_id": "q4", "response": null, "error": {"code": "batch_expired", "message": "This request could not be executed before the completion window expired."}}
"#;
    let inspection = look_at("batch_output.jsonl", rows);
    let answers = &inspection.answers;
    assert_eq!((answers.finished, answers.truncated, answers.failed), (1, 1, 2));
    assert_eq!((inspection.lengths.completion.n, inspection.lengths.completion.mean), (2, Some(160.0)));
    assert_eq!(used(&inspection, "completion_tokens"), owned(&[("response.body.usage.completion_tokens", 2)]));
    assert_eq!(used(&inspection, "content"), owned(&[("response.body.choices[0].message.content", 2)]));
    assert_eq!(used(&inspection, "id"), owned(&[("custom_id", 2)]));
    assert_eq!(inspection.lengths.prompt.as_ref().unwrap().sum, 22);
    assert_eq!(inspection.reasoning.counted_but_missing, 1);
    assert!(kinds(&inspection).contains(&"reasoning_lost"));
    let causes: Vec<&str> = answers.failed_by_cause.iter().map(|cause| cause.name.as_str()).collect();
    assert_eq!(causes, ["This request could not be executed before the completion window expired.", "rate limit"]);
}

#[test]
fn sglang_generate() {
    let rows = r#"{"text": " think\n</think>\n4", "output_ids": [5, 6, 7, 8], "meta_info": {"id": "a1", "finish_reason": {"type": "stop", "matched": 8}, "prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 0, "e2e_latency": 0.5}}
{"text": " more", "output_ids": [5, 6], "meta_info": {"id": "a2", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 0, "e2e_latency": 0.2}}
{"text": " bad", "output_ids": [5, 6, 7], "meta_info": {"id": "a3", "finish_reason": {"type": "stop", "matched": 7}, "prompt_tokens": 9, "completion_tokens": 5, "cached_tokens": 0, "e2e_latency": 0.2}}
"#;
    let inspection = look_at("sglang.jsonl", rows);
    assert_eq!(inspection.lengths.completion.sum, 9, "ids are the truth");
    assert_eq!(used(&inspection, "completion_tokens"), owned(&[("len(output_ids)", 3)]));
    let conflict = &inspection.fields[0].conflicts[0];
    assert_eq!((conflict.used.as_str(), conflict.other.as_str()), ("len(output_ids)", "meta_info.completion_tokens"));
    assert_eq!(
        (conflict.rows, conflict.examples[0].line, conflict.examples[0].excerpt.as_str()),
        (1, 3, "3 against 5")
    );
    assert_eq!(used(&inspection, "finish_reason"), owned(&[("meta_info.finish_reason.type", 3)]));
    assert_eq!((inspection.answers.truncated, inspection.reasoning.leaked), (1, 1));
}

#[test]
fn specforge_regenerated_conversations() {
    let rows = r#"{"id": "c1", "status": "success", "conversations": [{"role": "user", "content": "q", "reasoning_content": null}, {"role": "assistant", "content": "a long answer", "reasoning_content": "thoughts"}], "tools": null}
{"id": "c2", "status": "success", "conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one", "reasoning_content": "r"}, {"role": "user", "content": "again"}, {"role": "assistant", "content": "two", "reasoning_content": ""}], "tools": null}
"#;
    let inspection = look_at("specforge.jsonl", rows);
    assert_eq!((inspection.answers.answers, inspection.reasoning.captured, inspection.reasoning.empty), (2, 1, 1));
    assert_eq!(inspection.lengths.unit, Unit::Characters);
    assert_eq!(inspection.lengths.completion.sum, 13 + 8 + 3);
    assert_eq!(used(&inspection, "reasoning"), owned(&[("conversations[last].reasoning_content", 2)]));
    assert!(kinds(&inspection).contains(&"no_token_counts"), "said plainly");

    let (_folder, path) = crate::file("specforge.jsonl", rows);
    let mut plan = InspectPlan::new([path]);
    plan.count_tokens = Some(Arc::new(|text| text.split_whitespace().count() as u64));
    let counted = inspect(&plan).unwrap();
    check_sums(&counted);
    assert_eq!((counted.lengths.unit, counted.lengths.completion.sum), (Unit::CountedTokens, 3 + 1 + 1));
}

#[test]
fn speculators_pretokenised_rows() {
    let rows = r#"{"id": "c_gen0", "primary_id": "c", "input_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 0, 1, 1, 1], "text": "q a", "metadata": {"idx": 0, "finish_reason": "stop", "is_tool_call": false, "usage": {"prompt_tokens": 2, "completion_tokens": 3}, "endpoint": "http://s"}}
{"id": "c_gen1", "primary_id": "c", "input_ids": [1, 2, 3, 4, 5, 6, 7], "loss_mask": [0, 0, 0, 0, 0, 1, 1], "text": "q a q b", "metadata": {"idx": 0, "finish_reason": "length", "is_tool_call": false, "usage": {"prompt_tokens": 5, "completion_tokens": 2}, "endpoint": "http://s"}}
"#;
    let inspection = look_at("speculators.jsonl", rows);
    assert_eq!((inspection.lengths.completion.sum, inspection.answers.truncated), (5, 1));
    assert_eq!((inspection.conversations.conversations, inspection.conversations.requests), (1, 2));
    assert_eq!(used(&inspection, "completion_tokens"), owned(&[("sum(loss_mask)", 2)]));
    assert!(inspection.fields.iter().all(|field| field.conflicts.is_empty()));
}

#[test]
fn vllm_chat_completions_with_token_ids() {
    let rows = r#"{"id":"chatcmpl-a","object":"chat.completion","model":"m","prompt_token_ids":[1,2,3],"choices":[{"index":0,"message":{"role":"assistant","content":"x","reasoning":"y","tool_calls":[]},"finish_reason":"stop","stop_reason":null,"token_ids":[4,5,6]}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}
{"id":"chatcmpl-b","object":"chat.completion","model":"m","prompt_token_ids":[1,2],"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls","stop_reason":5,"token_ids":[4,5]}],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}
"#;
    let inspection = look_at("vllm.jsonl", rows);
    assert_eq!((inspection.lengths.completion.sum, inspection.lengths.prompt.as_ref().unwrap().sum), (5, 5));
    assert_eq!((inspection.answers.finished, inspection.answers.empty_content), (2, 0));
    let conflict = &inspection.fields[0].conflicts[0];
    assert_eq!((conflict.rows, conflict.off_by_one), (1, 1));
}

#[test]
fn sharegpt_curator_ollama_and_datatrove() {
    let rows = r#"{"id":"s","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"abc"}]}
{"response_message":"abcd","response_errors":null,"raw_response":{"choices":[{"message":{"content":"abcd","reasoning_content":"r"},"finish_reason":"stop"}],"usage":{"completion_tokens":7,"prompt_tokens":3}},"token_usage":{"input":3,"output":7,"total":10},"finish_reason":"stop"}
{"model":"m","message":{"role":"assistant","content":"hi","thinking":"hm"},"done_reason":"stop","done":true,"prompt_eval_count":5,"eval_count":9}
{"text":"the document","id":"d","metadata":{"rollout_results":[{"text":"answer","finish_reason":"stop","usage":{"prompt_tokens":4,"completion_tokens":2}}]}}
"#;
    let inspection = look_at("mixed.jsonl", rows);
    assert_eq!((inspection.answers.answers, inspection.reasoning.captured), (4, 2));
    assert_eq!((inspection.lengths.completion.n, inspection.lengths.completion.sum), (3, 18));
    assert_eq!(inspection.lengths.content_characters.as_ref().unwrap().sum, 3 + 4 + 2 + 6);
    assert_eq!(inspection.lengths.prompt.as_ref().unwrap().sum, 12);
}

#[test]
fn a_place_that_is_not_known_can_be_named() {
    let row = r#"{"key":"k","stats":{"n":[1,2,3]},"said":"hello","content":"the prompt"}"#;
    let (_folder, path) = crate::file("odd.jsonl", row);
    let mut plan = InspectPlan::new([path]);
    plan.fields =
        vec![FieldPath::parse("completion_tokens=len(stats.n)").unwrap(), FieldPath::parse("content=said").unwrap()];
    let inspection = inspect(&plan).unwrap();
    assert_eq!(inspection.lengths.completion.sum, 3);
    assert_eq!(inspection.lengths.content_characters.as_ref().unwrap().sum, 5);
}

#[test]
fn compressed_files_are_read_by_their_first_bytes() {
    let rows = "{\"id\":\"a\",\"content\":\"x\",\"usage\":{\"completion_tokens\":5}}\n".repeat(1000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(rows.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(rows.as_bytes(), 1).unwrap();
    for (bytes, compression) in [(&gzip, Compression::Gzip), (&zstd, Compression::Zstd)] {
        let two_members = [bytes.as_slice(), bytes.as_slice()].concat();
        let inspection = look_at("a.jsonl", two_members);
        assert_eq!(inspection.files[0].compression, compression);
        assert_eq!((inspection.rows.parsed, inspection.files[0].text_bytes), (2000, 2 * rows.len() as u64));

        let cut = look_at("cut.jsonl.gz", &bytes[..bytes.len() - 9]);
        assert!(kinds(&cut).iter().any(|kind| kind.starts_with("stream_")), "{:?}", kinds(&cut));
    }
}

#[test]
fn a_run_folder_is_read_by_data_set_with_what_was_given_up() {
    let run = tempfile::TempDir::new().unwrap();
    let write = |path: &str, content: &str| eyas_testkit::write_file(run.path().join(path), content);
    let row = |id: &str, tokens: u64| {
        format!(
            "{{\"schema\":\"eyas.response/1\",\"sample_id\":\"{id}\",\"reasoning\":\"r\",\"content\":\"c\",\"usage\":{{\"completion_tokens\":{tokens}}}}}\n"
        )
    };
    write("prepared/math/raw_responses.jsonl", &(row("a", 10) + &row("b", 30)));
    write("prepared/math/prompts.jsonl", "{\"sample_id\":\"a\"}\n");
    write(
        "prepared/math/failed.jsonl",
        "{\"schema\":\"eyas.failed/1\",\"sample_id\":\"z\",\"permanent\":true,\"attempts\":[{\"attempt\":1,\"class\":\"status_400\",\"message\":\"too long\"}]}\n",
    );
    write("prepared/code/raw_responses.jsonl", &row("a", 100));
    let inspection = look(&[run.path()]);
    let groups = &inspection.groups[0].groups;
    let by_name: Vec<(&str, u64, u64)> =
        groups.iter().map(|group| (group.name.as_str(), group.answers, group.completion.sum)).collect();
    assert_eq!(by_name, [("code", 1, 100), ("math", 2, 40)]);
    assert_eq!(inspection.answers.given_up_by_cause[0].name, "status_400");
    assert_eq!((inspection.answers.given_up, inspection.conversations.duplicate_ids), (1, 0));
}
