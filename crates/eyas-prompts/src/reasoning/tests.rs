use super::*;
use crate::tokenizer::SpecialTokens;
use eyas_testkit::{shared_case, shared_dir};
use eyas_types::{FinishReason, Flag, Matched, Span};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

/// A byte-level tokenizer made here: ids 0–255 are the bytes, then the tokens named, of which the first `n_special` are special.
pub(crate) fn byte_tokenizer(added: &[&str], n_special: usize) -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    let mut next = 0x100;
    for byte in 0..=255_u32 {
        let printable = (0x21..=0x7e).contains(&byte) || (0xa1..=0xac).contains(&byte) || (0xae..=0xff).contains(&byte);
        let code = if printable {
            byte
        } else {
            next += 1;
            next - 1
        };
        vocab.insert(char::from_u32(code).unwrap().to_string(), json!(byte));
    }
    let added: Vec<_> = added
        .iter()
        .enumerate()
        .map(|(n, content)| {
            json!({"id": 256 + n, "content": content, "special": n < n_special, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let tokenizer = json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": byte_level,
        "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": false}});
    Tokenizer::from_bytes(tokenizer.to_string().as_bytes()).unwrap()
}

fn think_tokenizer() -> Tokenizer {
    byte_tokenizer(&["<|im_end|>", "<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>"], 2)
        .with_special_tokens(SpecialTokens::new([("eos_token", "<|im_end|>")]))
}

const STOP: FinishReason = FinishReason::Stop { matched: None };
const LENGTH: FinishReason = FinishReason::Length { length: None };

/// Splits `text` on ids and as text, and shows both in one line: the parts between bars, then texts and flags.
#[track_caller]
fn check(format: &str, think: ThinkState, expect: ReasoningMode, text: &str, finish: &FinishReason, expected: &str) {
    let added = [
        "<|im_end|>",
        "<|return|>",
        "<|call|>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|end|>",
        "<|constrain|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "[THINK]",
        "[/THINK]",
        "<|open|>",
        "<|close|>",
        "<|sep|>",
        "<|channel>",
        "<channel|>",
    ];
    let tokenizer = byte_tokenizer(&added, 8).with_special_tokens(SpecialTokens::new([("eos_token", "<|im_end|>")]));
    let format = ReasoningFormat::named(format, Some(&tokenizer)).unwrap();
    let ids = tokenizer.encode(text).unwrap();
    let split = format.split(&tokenizer, think, expect, &ids, finish);
    assert!(split.spans.covers(ids.len()), "{:?}", split.spans);
    let raw: Vec<String> =
        split.spans.parts().iter().map(|part| output_text(&tokenizer, part.of(&ids).unwrap())).collect();
    assert_eq!(raw.concat(), text, "the raw pieces give back the text");
    let calls: Vec<String> =
        split.tool_calls.iter().map(|call| format!("{}{}", call.function.name, call.function.arguments)).collect();
    let shown =
        format!("{} R:{:?} C:{:?} T:{calls:?} {:?}", raw.join("|"), split.reasoning, split.content, split.flags);
    assert_eq!(shown, expected);

    let by_text = format.split_text(think, expect, text, finish);
    let parts: Vec<&str> = by_text.parts.iter().map(|part| &text[part.clone()]).collect();
    assert_eq!(parts, raw, "text and ids are cut in the same places");
    assert_eq!((by_text.reasoning, by_text.content), (split.reasoning, split.content));
    assert_eq!((by_text.tool_calls, by_text.flags), (split.tool_calls, split.flags));
}

fn output_text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    tokenizer.decode(ids, crate::tokenizer::Specials::Keep).unwrap()
}

use ReasoningMode::{Auto, Expected, Off};
use ThinkState::{Closed, Open, Undecided};

#[test]
fn an_open_prompt_begins_in_the_reasoning() {
    check(
        "think",
        Open,
        Expected,
        "why\n</think>\n\nyes<|im_end|>",
        &STOP,
        r#"|why
|</think>|

yes|<|im_end|> R:"why" C:"yes" T:[] []"#,
    );
    check(
        "think",
        Open,
        Auto,
        "no end",
        &LENGTH,
        r#"|no end||| R:"no end" C:"" T:[] [TruncatedInReasoning, EmptyContent]"#,
    );
    check(
        "think",
        Open,
        Auto,
        "no end<|im_end|>",
        &STOP,
        r#"|no end|||<|im_end|> R:"no end" C:"" T:[] [UnclosedReasoning, EmptyContent]"#,
    );
    let aborted = FinishReason::Abort { message: "gone".into(), status_code: None };
    check(
        "think",
        Open,
        Auto,
        "no end",
        &aborted,
        r#"|no end||| R:"no end" C:"" T:[] [TruncatedInReasoning, EmptyContent]"#,
    );
    // A model that repeats the marker of the prompt.
    check("think", Open, Auto, "<think>a</think>b", &STOP, r#"<think>|a|</think>|b| R:"a" C:"b" T:[] []"#);
    check("think", Open, Expected, "\n</think>b", &STOP, "|\n|</think>|b| R:\"\" C:\"b\" T:[] [ReasoningMissing]");
}

#[test]
fn an_undecided_prompt_leaves_it_to_the_answer() {
    check(
        "think",
        Undecided,
        Expected,
        "\n<think>a</think>b",
        &STOP,
        "\n<think>|a|</think>|b| R:\"a\" C:\"b\" T:[] []",
    );
    check("think", Undecided, Expected, "b", &STOP, r#"|||b| R:"" C:"b" T:[] [ReasoningMissing]"#);
    check("think", Undecided, Auto, "\n b\n", &STOP, "|||\n b\n| R:\"\" C:\"\\n b\\n\" T:[] []");
    check("think", Undecided, Auto, "a</think>b", &STOP, r#"|a|</think>|b| R:"a" C:"b" T:[] [MissingStart]"#);
    check(
        "think",
        Undecided,
        Auto,
        "x<think>a</think>b",
        &STOP,
        r#"|||x<think>a</think>b| R:"" C:"x<think>a</think>b" T:[] [ExtraThink]"#,
    );
    check("think", Undecided, Auto, "", &LENGTH, r#"|||| R:"" C:"" T:[] [EmptyContent]"#);
}

#[test]
fn a_closed_prompt_or_thinking_switched_off_makes_reasoning_unexpected() {
    check("think", Closed, Auto, "b", &STOP, r#"|||b| R:"" C:"b" T:[] []"#);
    check(
        "think",
        Closed,
        Auto,
        "a</think>b",
        &STOP,
        r#"|||a</think>b| R:"" C:"a</think>b" T:[] [UnexpectedReasoning]"#,
    );
    check(
        "think",
        Undecided,
        Off,
        "<think>a</think>b",
        &STOP,
        r#"<think>|a|</think>|b| R:"a" C:"b" T:[] [UnexpectedReasoning]"#,
    );
    check("think", Closed, Off, "b", &STOP, r#"|||b| R:"" C:"b" T:[] []"#);
}

#[test]
fn a_second_start_is_not_re_opened() {
    check(
        "think",
        Open,
        Auto,
        "a</think>b<think>c</think>d",
        &STOP,
        r#"|a|</think>|b<think>c</think>d| R:"a" C:"b<think>c</think>d" T:[] [ExtraThink]"#,
    );
}

#[test]
fn a_tool_call_ends_the_reasoning_when_no_marker_does() {
    check(
        "think",
        Open,
        Auto,
        r#"a<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>"#,
        &STOP,
        r#"|a||<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>| R:"a" C:"<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>" T:["f{\"x\":1}"] []"#,
    );
    check(
        "think",
        Open,
        Auto,
        "hm <tool_call> or not</think>b",
        &STOP,
        r#"|hm <tool_call> or not|</think>|b| R:"hm <tool_call> or not" C:"b" T:[] []"#,
    );
    let kimi = "a<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\":1}<|tool_call_end|><|tool_calls_section_end|>";
    let tokenizer = think_tokenizer();
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    let call = &format.split_text(Closed, Auto, kimi, &STOP).tool_calls[0];
    assert_eq!((call.id.as_deref(), call.function.name.as_str()), (Some("functions.f:0"), "f"));
}

#[test]
fn calls_that_are_cut_or_broken_are_no_calls() {
    check(
        "none",
        Undecided,
        Auto,
        r#"<tool_call>{"name":"f","argu"#,
        &LENGTH,
        r#"|||<tool_call>{"name":"f","argu| R:"" C:"<tool_call>{\"name\":\"f\",\"argu" T:[] [TruncatedToolCall]"#,
    );
    check(
        "none",
        Undecided,
        Auto,
        r#"<tool_call>{"name":"f",}</tool_call>"#,
        &STOP,
        r#"|||<tool_call>{"name":"f",}</tool_call>| R:"" C:"<tool_call>{\"name\":\"f\",}</tool_call>" T:[] [MalformedToolCall]"#,
    );
}

#[test]
fn channels_become_reasoning_content_and_calls() {
    check(
        "channels",
        Undecided,
        Expected,
        "<|channel|>analysis<|message|>add<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
        &STOP,
        r#"<|channel|>analysis<|message|>|add|<|end|><|start|>assistant<|channel|>final<|message|>|4|<|return|> R:"add" C:"4" T:[] []"#,
    );
    check(
        "channels",
        Undecided,
        Auto,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
         <|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f \
         <|constrain|>json<|message|>{\"x\":1}<|call|>",
        &STOP,
        "<|channel|>analysis<|message|>|a<|end|><|start|>assistant<|channel|>analysis<|message|>b|<|end|><|start|>assistant<|channel|>commentary<|message|>|\
         I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":1}|<|call|> \
         R:\"a\\nb\" C:\"I look.\" T:[\"f{\\\"x\\\":1}\"] []",
    );
    check(
        "channels",
        Undecided,
        Auto,
        "<|channel|>analysis<|message|>so lo",
        &LENGTH,
        r#"<|channel|>analysis<|message|>|so lo||| R:"so lo" C:"" T:[] [TruncatedInReasoning, EmptyContent]"#,
    );
    check(
        "channels",
        Undecided,
        Auto,
        "<|channel|>final<|message|>4",
        &LENGTH,
        r#"||<|channel|>final<|message|>|4| R:"" C:"4" T:[] []"#,
    );
    check(
        "channels",
        Open,
        Auto,
        "add<|end|><|start|>assistant<|channel|>final<|message|>4",
        &STOP,
        r#"|add|<|end|><|start|>assistant<|channel|>final<|message|>|4| R:"add" C:"4" T:[] []"#,
    );
    check(
        "channels",
        Undecided,
        Auto,
        " to=functions.f<|channel|>commentary<|message|>{\"x\":",
        &LENGTH,
        r#"||| to=functions.f<|channel|>commentary<|message|>{"x":| R:"" C:"" T:[] [EmptyContent, TruncatedToolCall]"#,
    );
    check("channels", Undecided, Auto, "plain words", &STOP, r#"|||plain words| R:"" C:"plain words" T:[] []"#);
}

#[test]
fn markers_of_other_formats() {
    check("mistral", Undecided, Auto, "[THINK]a[/THINK]b", &STOP, r#"[THINK]|a|[/THINK]|b| R:"a" C:"b" T:[] []"#);
    check(
        "gemma4",
        Undecided,
        Auto,
        "<|channel>thought\na<channel|>b",
        &STOP,
        "<|channel>thought|\na|<channel|>|b| R:\"a\" C:\"b\" T:[] []",
    );
    check(
        "granite",
        Undecided,
        Auto,
        "Here is my thought process: a Here is my response: b",
        &STOP,
        r#"Here is my thought process:| a |Here is my response:| b| R:" a " C:" b" T:[] []"#,
    );
    check(
        "kimi_k3",
        Open,
        Auto,
        "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>",
        &STOP,
        r#"|a|<|close|>think<|sep|><|open|>response<|sep|>|b<|close|>response<|sep|>| R:"a" C:"b" T:[] []"#,
    );
    check(
        "think_answer",
        Open,
        Auto,
        "a</think>\n<answer>\nb\n</answer>",
        &STOP,
        "|a|</think>|\n<answer>\nb\n</answer>| R:\"a\" C:\"b\" T:[] []",
    );
}

#[test]
fn foreign_markup_is_flagged() {
    check(
        "think",
        Undecided,
        Auto,
        "<|channel|>final<|message|>4",
        &STOP,
        r#"|||<|channel|>final<|message|>4| R:"" C:"<|channel|>final<|message|>4" T:[] [UnparsedMarkup]"#,
    );
    check(
        "none",
        Undecided,
        Auto,
        "<think>a</think>b",
        &STOP,
        r#"|||<think>a</think>b| R:"" C:"<think>a</think>b" T:[] [UnparsedMarkup]"#,
    );
}

#[test]
fn exactly_one_stop_is_set_apart() {
    let tokenizer = think_tokenizer();
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    let stop_of =
        |ids: &[u32], finish: FinishReason| format.split(&tokenizer, Closed, Auto, ids, &finish).spans.stop.len();
    let matched = |matched| FinishReason::Stop { matched: Some(matched) };
    assert_eq!(stop_of(&[121, 256, 256], matched(Matched::Token(256))), 1);
    assert_eq!(stop_of(&[121, 256], matched(Matched::Token(257))), 0);
    assert_eq!(stop_of(&[121, 256], matched(Matched::Text("x".into()))), 0);
    assert_eq!(stop_of(&[121, 120, 256], matched(Matched::Tokens(vec![120, 256]))), 2);
    assert_eq!(stop_of(&[121, 256], STOP), 1);
    assert_eq!(stop_of(&[121, 120], STOP), 0);
    assert_eq!(stop_of(&[121, 256], LENGTH), 0);
    assert_eq!(stop_of(&[], STOP), 0);
}

#[test]
fn the_last_marker_of_the_generation_prompt_decides() {
    let tokenizer = think_tokenizer();
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    let state = |text: &str| format.think_state(&tokenizer, &tokenizer.encode(text).unwrap());
    assert_eq!(state("<|im_start|>user\nhi<|im_end|><|im_start|>assistant\n<think>\n"), Open);
    assert_eq!(state("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Closed);
    assert_eq!(state("<|im_start|>assistant\n<think>\nLet me begin"), Open, "a prefilled thought");
    assert_eq!(state("<|im_start|>assistant\n"), Undecided);
    // The history's markers say nothing about the next turn.
    assert_eq!(state("<|im_start|>assistant\n<think></think>A<|im_end|><|im_start|>assistant\n"), Undecided);
    assert_eq!(state("<|im_start|>system\nThink in <think><|im_end|><|im_start|>assistant\n"), Undecided);

    let added = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"];
    let harmony = byte_tokenizer(&added, 6);
    let format = ReasoningFormat::named("channels", Some(&harmony)).unwrap();
    let state = |text: &str| format.think_state(&harmony, &harmony.encode(text).unwrap());
    let history = "<|start|>assistant<|channel|>final<|message|>4<|end|>";
    assert_eq!(state(&format!("{history}<|start|>assistant")), Undecided);
    assert_eq!(state(&format!("{history}<|start|>assistant<|channel|>analysis<|message|>")), Open);
    assert_eq!(state(&format!("{history}<|start|>assistant<|channel|>final<|message|>")), Closed);
}

/// Everything in a prompt that is spelt like a control token.
fn control_spellings(prompts: &[&str]) -> Vec<String> {
    let mut spellings = std::collections::BTreeSet::from(["]~b]".to_owned(), "[e~[".to_owned()]);
    for prompt in prompts {
        for (open, close) in [('<', '>'), ('[', ']')] {
            for (at, _) in prompt.match_indices(open) {
                let inner = prompt[at + 1..].split([close, open, ' ', '\n']).next().unwrap();
                if !inner.is_empty() && inner.len() < 40 && prompt[at + 1 + inner.len()..].starts_with(close) {
                    spellings.insert(format!("{open}{inner}{close}"));
                }
            }
        }
    }
    spellings.into_iter().collect()
}

/// The prompts of every template in the fixtures: open when they end in a start marker, closed when they end in an end marker, whatever
/// stands in system texts and histories.
#[test]
fn states_of_the_prompts_of_all_families() {
    let Some(shared) = shared_dir() else { return };
    let golden: Value =
        serde_json::from_slice(&std::fs::read(shared.join("fixtures/golden_renders.json")).unwrap()).unwrap();
    let formats = [
        ("Kimi-K3", "kimi_k3"),
        ("gpt_oss", "channels"),
        ("gemma4", "gemma4"),
        ("mistral", "mistral"),
        ("seed_oss", "seed"),
        ("MiniMax-M3", "minimax_m3"),
        ("hunyuan", "hunyuan_hy3"),
        ("granite-3.3", "granite"),
        ("Apriel", "apriel"),
    ];
    let (mut n_open, mut n_closed, mut n_undecided) = (0, 0, 0);
    for (file, renders) in golden["renders"].as_object().unwrap() {
        let renders: Vec<(&String, &str)> =
            renders.as_object().unwrap().iter().filter_map(|(key, text)| Some((key, text.as_str()?))).collect();
        let spellings = control_spellings(&renders.iter().map(|(_, text)| *text).collect::<Vec<_>>());
        let tokenizer = byte_tokenizer(&spellings.iter().map(String::as_str).collect::<Vec<_>>(), 0);
        let name = formats.iter().find(|(part, _)| file.contains(part)).map_or("think", |(_, name)| name);
        let format = ReasoningFormat::named(name, Some(&tokenizer)).unwrap();
        let (starts, ends): (Vec<&str>, Vec<&str>) = match &format.scheme {
            Scheme::Tags(tags) => (
                tags.start.iter().map(|m| m.text.as_str()).collect(),
                tags.end.iter().map(|m| m.text.as_str()).collect(),
            ),
            _ => (Vec::new(), Vec::new()),
        };
        for (key, text) in renders.into_iter().filter(|(key, _)| !key.starts_with("full_no_genprompt")) {
            let tail = text.trim_end();
            let (expected, count) = if starts.iter().any(|start| tail.ends_with(start)) {
                (Open, &mut n_open)
            } else if ends.iter().any(|end| tail.ends_with(end)) {
                (Closed, &mut n_closed)
            } else {
                (Undecided, &mut n_undecided)
            };
            *count += 1;
            let state = format.think_state(&tokenizer, &tokenizer.encode(text).unwrap());
            assert_eq!(state, expected, "{file} {key}: …{}", text.chars().rev().take(80).collect::<String>());
        }
    }
    println!("{n_open} open, {n_closed} closed, {n_undecided} undecided");
    assert!(n_open > 0 && n_closed > 0 && n_undecided > 0);
}

#[test]
fn detection_says_why() {
    let plain = byte_tokenizer(&["<|im_end|>"], 1);
    let check = |tokenizer: &Tokenizer, template: &str, name: &str, why: &str| {
        let format = ReasoningFormat::detect(tokenizer, template);
        assert_eq!((format.name(), format.why()), (name, why));
    };
    check(
        &think_tokenizer(),
        "{{ '<think>' }}",
        "think",
        "`<think>` and `</think>` stand in the chat template and in the vocabulary (ids 258 and 259)",
    );
    check(
        &think_tokenizer(),
        "no markers",
        "think",
        "`<think>` and `</think>` stand in the vocabulary (ids 258 and 259), though not in the chat template",
    );
    check(&plain, "{{ '<think>' }}", "think", "`<think>` and `</think>` stand in the chat template, as plain text");
    check(
        &think_tokenizer(),
        "[THINK]",
        "mistral",
        "`[THINK]` and `[/THINK]` stand in the chat template, as plain text",
    );
    check(&plain, "", "none", "neither the vocabulary nor the chat template holds a known reasoning marker");
    check(
        &byte_tokenizer(&["<|channel|>", "<|message|>"], 2),
        "",
        "channels",
        "`<|channel|>` and `<|message|>` stand in the vocabulary (ids 256 and 257), though not in the chat template",
    );
    let error = ReasoningFormat::named("thinky", None).unwrap_err().to_string();
    assert_eq!(error, format!("unknown reasoning format `thinky`; this build knows {}", known_formats().join(", ")));
}

fn tiny_tokenizer(model_dir: &Path) -> Tokenizer {
    Tokenizer::load(model_dir).unwrap()
}

/// REASON-02: the prompt opened the block, the answer holds the closing tag alone.
#[test]
fn reason_02_only_the_closing_tag() {
    let Some(case) = shared_case("REASON-02") else { return };
    let (server, expected) = (case.json("server.json"), case.json("expected.json"));
    let tokenizer = tiny_tokenizer(&case.common("tiny_tok"));
    let template = std::fs::read_to_string(case.common("templates/think.jinja")).unwrap();
    let format = ReasoningFormat::detect(&tokenizer, &template);
    let ids: Vec<u32> = serde_json::from_value(server["default"]["output_ids"].clone()).unwrap();
    let input_ids: Vec<u32> = serde_json::from_value(expected["input_ids"].clone()).unwrap();
    let prompt_ids = &input_ids[..input_ids.len() - ids.len()];

    let think = format.think_state(&tokenizer, prompt_ids);
    assert_eq!(think, Open);
    let finish = FinishReason::Stop { matched: Some(Matched::Token(276)) };
    let split = format.split(&tokenizer, think, Expected, &ids, &finish);
    assert_eq!(json!(split.reasoning), expected["reasoning"]);
    assert_eq!(json!(split.content), expected["content"]);
    assert_eq!(split.flags, []);
    let spans = split.spans;
    assert_eq!((spans.start_marker, spans.end_marker), (Span::new(0, 0), Span::new(14, 15)), "reasoning_closed");
    let raw: Vec<u32> = spans.parts().iter().flat_map(|part| part.of(&ids).unwrap().to_vec()).collect();
    assert_eq!(raw, ids);

    let text = server["default"]["text"].as_str().unwrap();
    let by_text = format.split_text(think, Expected, text, &STOP);
    assert_eq!((by_text.reasoning, by_text.content), (split.reasoning, split.content));
    assert_eq!(by_text.parts.iter().map(|part| &text[part.clone()]).collect::<String>(), text);
}

/// REASON-05: channel markup, parsed when the format is configured and flagged when it is not.
#[test]
fn reason_05_channels() {
    let Some(case) = shared_case("REASON-05") else { return };
    let (server, expected) = (case.json("server.json"), case.json("expected.json"));
    let answers = [("a", &server["default"]["body"]), ("b", &server["rules"][0]["do"]["body"])];
    for (id, answer) in answers {
        let text = answer["text"].as_str().unwrap();
        let channels = ReasoningFormat::named("channels", None).unwrap();
        let split = channels.split_text(Undecided, Auto, text, &STOP);
        assert_eq!(json!(split.reasoning), expected[id]["reasoning"]);
        assert_eq!(json!(split.content), expected[id]["content"]);
        assert!(!split.content.contains("<|") && !split.reasoning.contains("<|"));
        assert_eq!(split.flags, []);
        let call = split.tool_calls.first().map(|call| json!(call.function));
        assert_eq!(call.as_ref(), expected[id].get("tool_call"));

        let tokenizer = tiny_tokenizer(&case.common("tiny_tok"));
        let unconfigured = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
        assert_eq!(unconfigured.split_text(Undecided, Auto, text, &STOP).flags, [Flag::UnparsedMarkup]);
        // The same on ids, where the vocabulary has no channel tokens and the markup is plain text.
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(unconfigured.split(&tokenizer, Undecided, Auto, &ids, &STOP).flags, [Flag::UnparsedMarkup]);
        let configured = ReasoningFormat::named("channels", Some(&tokenizer)).unwrap();
        let by_ids = configured.split(&tokenizer, Undecided, Auto, &ids, &STOP);
        assert!(by_ids.spans.covers(ids.len()));
        assert_eq!((by_ids.reasoning, by_ids.tool_calls), (split.reasoning, split.tool_calls));
    }
}

/// TRUNC-02: a cut thought is not an answer, in ids or in text, whatever field the server used.
#[test]
fn trunc_02_cut_reasoning_is_not_the_answer() {
    let Some(case) = shared_case("TRUNC-02") else { return };
    let (server, expected) = (case.json("server.json"), case.json("expected.json"));
    let tokenizer = tiny_tokenizer(&case.common("tiny_tok"));
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    let ids: Vec<u32> = serde_json::from_value(server["default"]["output_ids"].clone()).unwrap();
    let split = format.split(&tokenizer, Open, Auto, &ids, &LENGTH);
    let chat = server["rules"][0]["do"]["body"]["choices"][0]["message"]["content"].as_str().unwrap();
    let by_text = format.split_text(Open, Auto, chat, &LENGTH);
    for (reasoning, content, flags) in
        [(split.reasoning, split.content, split.flags), (by_text.reasoning, by_text.content, by_text.flags)]
    {
        assert_eq!((json!(reasoning), json!(content)), (expected["reasoning"].clone(), expected["content"].clone()));
        assert_eq!(flags, [Flag::TruncatedInReasoning, Flag::EmptyContent]);
    }
}

/// REASON-07: in a run with thinking off, a marker or reasoning in the answer is flagged.
#[test]
fn reason_07_thinking_off_and_yet_a_marker() {
    let Some(case) = shared_case("REASON-07") else { return };
    let tokenizer = tiny_tokenizer(&case.common("tiny_tok"));
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    for ids in [vec![277, 97, 278, 98], vec![98, 278], vec![277]] {
        for think in [Closed, Undecided] {
            let split = format.split(&tokenizer, think, Off, &ids, &LENGTH);
            assert!(split.flags.contains(&Flag::UnexpectedReasoning), "{ids:?}: {:?}", split.flags);
        }
    }
}

/// SPECTOK-05: the terminator is in the ids and not in the content.
#[test]
fn spectok_05_the_terminator_is_not_content() {
    let Some(case) = shared_case("SPECTOK-05") else { return };
    let (server, expected) = (case.json("server.json"), case.json("expected.json"));
    let tokenizer = tiny_tokenizer(&case.common("tiny_tok"));
    let format = ReasoningFormat::named("none", Some(&tokenizer)).unwrap();
    let ids: Vec<u32> = serde_json::from_value(server["default"]["output_ids"].clone()).unwrap();
    for finish in [STOP, FinishReason::Stop { matched: Some(Matched::Token(276)) }] {
        let split = format.split(&tokenizer, Undecided, Auto, &ids, &finish);
        assert_eq!(json!(split.content), expected["content"]);
        assert_eq!(split.spans.stop, Span::new(2, 3));
    }
    let text = server["default"]["text"].as_str().unwrap();
    assert_eq!(json!(format.split_text(Undecided, Auto, text, &STOP).content), expected["content"]);
}

fn finishes() -> impl Strategy<Value = FinishReason> {
    prop_oneof![
        Just(STOP),
        Just(LENGTH),
        Just(FinishReason::ToolCalls),
        (0..400_u32).prop_map(|id| FinishReason::Stop { matched: Some(Matched::Token(id)) }),
        Just(FinishReason::Abort { message: String::new(), status_code: None }),
    ]
}

proptest! {
    /// Whatever comes back, ids outside the vocabulary included, the five parts cover it.
    #[test]
    fn spans_cover_any_answer(
        ids in prop::collection::vec(prop_oneof![0..270_u32, 256..290_u32], 0..60),
        finish in finishes(),
        format in prop::sample::select(known_formats()),
        think in prop::sample::select(vec![Open, Closed, Undecided]),
        expect in prop::sample::select(vec![Expected, Off, Auto]),
    ) {
        let added = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>", "<think>", "</think>", "<tool_call>",
            "[THINK]", "[/THINK]", "<|channel>", "<channel|>", "assistant", "analysis", "final", " to=functions.f"];
        let tokenizer = byte_tokenizer(&added, 6);
        let format = ReasoningFormat::named(format, Some(&tokenizer)).unwrap();
        let split = format.split(&tokenizer, think, expect, &ids, &finish);
        prop_assert!(split.spans.covers(ids.len()), "{:?}", split.spans);
        format.think_state(&tokenizer, &ids);

        let text = output_text_lossy(&tokenizer, &ids);
        let by_text = format.split_text(think, expect, &text, &finish);
        let parts: String = by_text.parts.iter().map(|part| &text[part.clone()]).collect();
        prop_assert_eq!(parts, text);
    }
}

fn output_text_lossy(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let known: Vec<u32> = ids.iter().copied().filter(|id| *id < tokenizer.n_ids()).collect();
    output_text(tokenizer, &known)
}
