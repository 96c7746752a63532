use super::*;
use crate::normalise::{ConversationBody, Mapping, SchemaOptions};
use crate::reasoning::ReasoningFormat;
use crate::source::Surrogates;
use crate::tokenizer::Tokenizer;
use crate::{RenderError, Rendered, Renderer};
use eyas_testkit::{shared_case, shared_dir, write_file};
use eyas_types::{Message, Role, ThinkState};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;

/// Golden renders that are not met, with the reason: they were made by jinja2 without transformers' sandbox.
const KNOWN_DIFFERENCES: &[(&str, &str, &str)] = &[
    ("kimi/Kimi-K2-Instruct.jinja", "tool_suffix|default", "`list.append`, which transformers refuses"),
    ("kimi/Kimi-K2-Thinking.jinja", "tool_suffix|default", "`list.append`, which transformers refuses"),
];

/// Every render of every template in the fixtures, against jinja2 3.1.6.
#[test]
fn golden_renders_equal_those_of_jinja2() {
    let Some(shared) = shared_dir() else { return };
    let fixtures = shared.join("fixtures");
    let golden: Value = serde_json::from_slice(&std::fs::read(fixtures.join("golden_renders.json")).unwrap()).unwrap();
    let (mut n_equal, mut n_absent, mut failures) = (0, 0, Vec::new());
    let mut differences = BTreeSet::new();
    for (file, renders) in golden["renders"].as_object().unwrap() {
        let renders = renders.as_object().unwrap();
        let path = fixtures.join(file);
        if !path.is_file() {
            n_absent += renders.len();
            continue;
        }
        let special = SpecialTokens::new([("bos_token", "<BOS>"), ("eos_token", "<EOS>")]);
        let template = ChatTemplate::from_file(&path, &special, Some("2026-01-01".parse().unwrap())).unwrap();
        for (key, expected) in renders {
            let got = golden_render(&template, &golden["scenarios"], key);
            let equal = match (expected.as_str(), &got) {
                (Some(expected), Ok(got)) => expected == got,
                (None, Err(_)) => true,
                _ => false,
            };
            if KNOWN_DIFFERENCES.iter().any(|(f, k, _)| f == file && k == key) {
                assert!(!equal, "{file} {key} is equal now: take it out of the table");
                differences.insert((file, key));
            } else if equal {
                n_equal += 1;
            } else {
                failures.push(format!("{file} {key}\n  expected {expected}\n  got      {got:?}"));
            }
        }
    }
    println!("{n_equal} equal, {} known differences, {n_absent} whose template is not at hand", differences.len());
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), n_equal + failures.len(), failures.join("\n"));
    assert_eq!(differences.len(), KNOWN_DIFFERENCES.len(), "every difference in the table was met");
}

fn golden_render(template: &ChatTemplate, scenarios: &Value, key: &str) -> Result<String, TemplateError> {
    let (scenario, kwarg) = key.split_once('|').unwrap();
    let scenario = &scenarios[scenario];
    let mut kwargs = Map::new();
    if let Some((name, value)) = kwarg.split_once('=') {
        kwargs.insert(name.to_owned(), json!(value == "true"));
    }
    let input = RenderInput {
        messages: scenario["messages"].as_array().unwrap(),
        tools: scenario["tools"].as_array().map(Vec::as_slice),
        add_generation_prompt: scenario["add_generation_prompt"].as_bool().unwrap_or(true),
        kwargs: &kwargs,
    };
    // The golden renders' `strftime_now` gives this date whatever the format.
    Ok(template.render(&input)?.replace("January 01, 2026", "2026-01-01"))
}

/// Snippets that jinja2 renders and eyas does not, or not so.
const SNIPPET_DIFFERENCES: &[(&str, &str)] = &[
    ("% ('a', 3)", "strings are not formatted with `%`; refused on loading"),
    ("\"%s\" % d", "the same"),
    ("varargs", "macros take no further arguments; refused on loading"),
    (r"\N{BULLET}", "named characters; refused on loading"),
    ("d.items() | tojson", "views of dicts print as lists, where Python refuses"),
    ("range(3) }}", "a range prints as a list"),
    ("{{ d.items }}", "a method that is not called is undefined"),
    ("is callable", "refused on loading"),
    ("wordcount", "refused on loading"),
    ("center(9)", "refused on loading"),
    ("xmlattr", "refused on loading"),
    ("encode", "refused on loading"),
];

/// One line of template after the other, against jinja2: `tests/jinja2.py` makes `tests/jinja2.json`.
#[test]
fn snippets_equal_those_of_jinja2() {
    let reference: Value = serde_json::from_str(include_str!("tests/jinja2.json")).unwrap();
    let mut kwargs = reference["context"].as_object().unwrap().clone();
    kwargs.remove("messages");
    kwargs.remove("tools");
    let mut failures = Vec::new();
    for pair in reference["snippets"].as_array().unwrap() {
        let snippet = pair[0].as_str().unwrap();
        let got = plain(snippet).and_then(|template| render_with(&template, &[], &kwargs));
        let equal = match (pair[1].as_str(), &got) {
            (Some(expected), Ok(got)) => expected == got,
            (None, Err(_)) => true,
            _ => false,
        };
        let known = SNIPPET_DIFFERENCES.iter().any(|(part, _)| snippet.contains(part));
        if equal == known {
            failures.push(format!("{snippet}\n  expected {}\n  got      {got:?}", pair[1]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn plain(text: &str) -> Result<ChatTemplate, TemplateError> {
    ChatTemplate::from_text("t.jinja", text, &SpecialTokens::default(), None)
}

fn render_with(
    template: &ChatTemplate,
    messages: &[Value],
    kwargs: &Map<String, Value>,
) -> Result<String, TemplateError> {
    template.render(&RenderInput { messages, tools: None, add_generation_prompt: true, kwargs })
}

/// What is wrong with a template, when it is loaded or when it is rendered.
#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = match plain(text) {
        Ok(template) => format!("render: {}", render_with(&template, &[], &Map::new()).unwrap_err()),
        Err(e) => format!("load: {e}"),
    };
    assert_eq!(error, expected);
}

#[test]
fn errors_name_construct_and_line() {
    check_error("a\n{% nosuch %}", "load: t.jinja, line 2: syntax error: unknown statement nosuch");
    check_error("a\n\n{{ x | urlize }}", "load: t.jinja, line 3: filter `urlize` is not supported");
    check_error("{% if x is callable %}{% endif %}", "load: t.jinja, line 1: test `callable` is not supported");
    check_error("{{ x.encode('a') }}", "load: t.jinja, line 1: method `encode` is not supported");
    check_error("{{ '%s' % x }}", "load: t.jinja, line 1: formatting a string with operator `%` is not supported");
    check_error("{% generation %}x", "load: t.jinja, line 1: `generation` is never closed");
    check_error("x\n{% endgeneration %}", "load: t.jinja, line 2: `endgeneration` without `generation`");
    check_error(
        "{{ raise_exception('no system role') }}",
        "render: the chat template refuses the conversation: no system role",
    );
    check_error("\n{{ x.y }}", "render: t.jinja, line 2: undefined value");
    check_error(
        "{{ strftime_now('%Y') }}",
        "render: t.jinja, line 1: invalid operation: the template asks for the date, and none was pinned",
    );
    check_error(
        "{{ [].append(1) }}",
        "render: t.jinja, line 1: invalid operation: `.append()` would change its sequence; transformers refuses it",
    );
    // A string or a comment that looks like one of these is none.
    assert!(plain("{{ '{% generation %}' }}{# | urlize #}{% raw %}{{ x | urlize }}{% endraw %}").is_ok());
}

#[test]
fn endless_templates_run_out_of_fuel() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}";
    assert!(render_with(&plain(endless).unwrap(), &[], &Map::new()).is_err());
    let recursive = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
    assert!(render_with(&plain(recursive).unwrap(), &[], &Map::new()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No text makes loading or rendering panic.
    #[test]
    fn any_text_is_a_template_or_an_error(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{%", "%}", "{#", "#}", "-", "+", "'", "\"", "\\", "\\x", "\\u00e9", "\\ud83d", "é", "\n", " generation ", " endgeneration ",
            " raw ", " endraw ", " if ", " else ", " endif ", " for ", " in ", " endfor ", "x", "1", "[", "]", "(", ")", "{", "}", "|", "tojson", ".",
            "split", "(none)", " is ", " not ", "%", "~", "messages", ":", ",", "=", " set ", "range(9)",
        ]), 0..24),
    ) {
        if let Ok(template) = plain(&pieces.concat()) {
            render_with(&template, &[json!({"role": "user", "content": "hi"})], &Map::new()).ok();
        }
    }
}

#[test]
fn templates_are_found_where_models_keep_them() {
    let dir = tempfile::tempdir().unwrap();
    let load = || ChatTemplate::load(dir.path(), &SpecialTokens::default(), None);
    let render = |tools: Option<&[Value]>| {
        let input = RenderInput { messages: &[], tools, add_generation_prompt: false, kwargs: &Map::new() };
        load().unwrap().render(&input).unwrap()
    };
    assert!(matches!(load(), Err(TemplateError::NotFound { .. })));
    write_file(dir.path().join("tokenizer_config.json"), r#"{"bos_token": "<s>"}"#);
    assert!(matches!(load(), Err(TemplateError::NotFound { .. })));

    let named =
        json!({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]});
    write_file(dir.path().join("tokenizer_config.json"), named.to_string());
    let tools = [json!({"type": "function"})];
    assert_eq!(
        (render(None), render(Some(&tools)), render(Some(&[]))),
        ("plain".into(), "tools".into(), "plain".into())
    );

    write_file(dir.path().join("chat_template.json"), r#"{"chat_template": "json file"}"#);
    assert_eq!(render(None), "json file");
    write_file(dir.path().join("chat_template.jinja"), "jinja file\n");
    write_file(dir.path().join("additional_chat_templates/tool_use.jinja"), "further");
    assert_eq!(
        (render(None), render(Some(&tools))),
        ("jinja file".into(), "further".into()),
        "one line break is dropped"
    );
}

#[test]
fn an_argument_without_effect_is_noticed() {
    let template = plain("{% if enable_thinking is defined and enable_thinking is false %}off{% endif %}").unwrap();
    assert!(template.kwarg_has_effect("enable_thinking", &json!(false)).unwrap());
    assert!(!template.kwarg_has_effect("enable_thinking", &json!("false")).unwrap(), "only a real false counts");
    assert!(!template.kwarg_has_effect("thinking", &json!(false)).unwrap());
}

/// The rows of a case, normalised as `prepare` does.
fn conversations(rows: Vec<Value>) -> Vec<(Vec<Message>, Option<Vec<Value>>)> {
    let rows: Vec<Map<String, Value>> = rows.into_iter().map(|row| row.as_object().unwrap().clone()).collect();
    let mapping = Mapping::detect(&rows, &SchemaOptions::default()).unwrap();
    let conversation = |row| {
        let conversation = mapping.conversation(row, Surrogates::Reject, Vec::new()).unwrap();
        let ConversationBody::Turns(turns) = conversation.body else { panic!("turns expected") };
        (turns, conversation.tools)
    };
    rows.into_iter().map(conversation).collect()
}

fn to_json(messages: &[Message]) -> Vec<Value> {
    messages.iter().map(|message| serde_json::to_value(message).unwrap()).collect()
}

fn renderer(tokenizer: Tokenizer, template: &Path, settings: PromptSettings) -> PromptRenderer {
    let template = ChatTemplate::from_file(template, tokenizer.special_tokens(), None).unwrap();
    let format = ReasoningFormat::detect(&tokenizer, template.text());
    PromptRenderer::new(template, tokenizer, format, settings).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// TMPL-01: the generation block prints nothing and gives the assistant's spans.
#[test]
fn tmpl_01_generation_blocks() {
    let Some(case) = shared_case("TMPL-01") else { return };
    let template = ChatTemplate::from_file(&case.path("jinja"), &SpecialTokens::default(), None).unwrap();
    let messages = case.json("json").as_array().unwrap().clone();
    let input = RenderInput { messages: &messages, tools: None, add_generation_prompt: false, kwargs: &Map::new() };
    let expected = case.json("expected.json");
    let (text, spans) = template.render_with_spans(&input).unwrap();
    assert_eq!(json!(text), expected["text"]);
    assert_eq!(template.render(&input).unwrap(), text);
    let spans: Vec<[usize; 2]> = spans.into_iter().map(|span| [span.start, span.end]).collect();
    assert_eq!(json!(spans), expected["assistant_char_spans"], "the case is ASCII: bytes are characters");
}

/// TMPL-02 and TMPL-08: Python's methods; a strict template gets the whole list.
#[test]
fn tmpl_02_and_tmpl_08_whole_conversations() {
    for id in ["TMPL-02", "TMPL-08"] {
        let Some(case) = shared_case(id) else { return };
        let template = ChatTemplate::from_file(&case.path("jinja"), &SpecialTokens::default(), None).unwrap();
        let messages = case.json("json").as_array().unwrap().clone();
        let input = RenderInput { messages: &messages, tools: None, add_generation_prompt: false, kwargs: &Map::new() };
        assert_eq!(json!(template.render(&input).unwrap()), case.json("expected.json")["text"], "{id}");
    }
}

/// TMPL-08: the boundaries come from prefixes that end in an assistant prompt.
#[test]
fn tmpl_08_prefixes_end_in_an_assistant_prompt() {
    let Some(case) = shared_case("TMPL-08") else { return };
    let template = ChatTemplate::from_file(&case.path("jinja"), &SpecialTokens::default(), None).unwrap();
    let messages = case.json("json").as_array().unwrap().clone();
    let prefix = |n: usize| render_with(&template, &messages[..n], &Map::new()).unwrap();
    let starts = [prefix(2).len(), prefix(4).len()];
    let spans = case.json("expected.json")["assistant_char_spans"].clone();
    assert_eq!(json!(starts), json!([spans[0][0], spans[1][0]]));
    let alone = render_with(&template, &messages[..1], &Map::new()).unwrap_err();
    assert!(matches!(alone, TemplateError::Refused { message } if message == "No user message in messages."));
}

/// TMPL-04: content `null` and content absent are the empty text.
#[test]
fn tmpl_04_null_content() {
    let Some(case) = shared_case("TMPL-04") else { return };
    let template = ChatTemplate::from_file(&case.path("jinja"), &SpecialTokens::default(), None).unwrap();
    let expected = case.json("expected.json");
    let with_null = case.json("json").as_array().unwrap().clone();
    let mut absent = with_null.clone();
    absent[1].as_object_mut().unwrap().remove("content");
    let parsed: Vec<Message> = serde_json::from_value(json!(with_null)).unwrap();
    for messages in [with_null, absent, to_json(&parsed)] {
        let input = RenderInput { messages: &messages, tools: None, add_generation_prompt: false, kwargs: &Map::new() };
        let text = template.render(&input).unwrap();
        assert_eq!(json!(text), expected["text"]);
        for word in expected["forbidden"].as_array().unwrap() {
            assert!(!text.contains(word.as_str().unwrap()));
        }
    }
}

/// TMPL-05: a content of text parts becomes one text; a part that is no text refuses the row.
#[test]
fn tmpl_05_content_in_parts() {
    let Some(case) = shared_case("TMPL-05") else { return };
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let renderer = renderer(tokenizer, &case.path("jinja"), PromptSettings::default());
    let rendered: Vec<Result<Rendered, RenderError>> =
        conversations(case.json_lines("jsonl")).iter().map(|(messages, _)| renderer.render(messages, None)).collect();
    let [one, two, img] = <[_; 3]>::try_from(rendered).unwrap();
    let (one, two, img) = (one.unwrap().text, two.unwrap().text, img.unwrap_err());
    assert_eq!(one.matches("capital of France").count(), 1);
    assert!(two.contains(&format!("first{TEXT_PART_SEPARATOR}second")));
    for word in ["{", "[{", "type"] {
        assert!(!one.contains(word) && !two.contains(word));
    }
    assert_eq!(img.class, "content_not_text");
    assert_eq!(img.detail, "message 0 has a part of type `image_url`; only text can be rendered");
}

/// SPECTOK-01: one BOS, from the template; the tokenizer's own is never added.
#[test]
fn spectok_01_one_bos() {
    let Some(case) = shared_case("SPECTOK-01") else { return };
    let expected = case.json("expected.json");
    for file in ["tokenizer.json", "tokenizer_autobos.json"] {
        let special = SpecialTokens::new([("bos_token", "<|bos|>")]);
        let tokenizer =
            || Tokenizer::from_file(&case.common("tiny_tok").join(file)).unwrap().with_special_tokens(special.clone());
        let (messages, _) = conversations(case.json_lines("jsonl")).remove(0);
        let rendered =
            renderer(tokenizer(), &case.path("jinja"), PromptSettings::default()).render(&messages, None).unwrap();
        assert_eq!(json!(rendered.text), expected["text"]);
        assert_eq!(rendered.prompt_ids, ids(&expected["ids"]), "{file}");
        let chatml = renderer(tokenizer(), &case.common("templates/chatml.jinja"), PromptSettings::default());
        let rendered = chatml.render(&messages, None).unwrap();
        assert_eq!(rendered.prompt_ids, ids(&expected["chatml_template_with_autobos_ids"]), "{file}");
    }
}

/// SPECTOK-02: control tokens spelt in data are plain text, or refuse the row; as transformers does only when asked.
#[test]
fn spectok_02_control_tokens_in_data() {
    let Some(case) = shared_case("SPECTOK-02") else { return };
    let expected = case.json("expected.json");
    let (messages, _) = conversations(case.json_lines("jsonl")).remove(0);
    let render = |control_tokens| {
        let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
        let settings = PromptSettings { control_tokens, ..PromptSettings::default() };
        let renderer = renderer(tokenizer, &case.common("templates/chatml.jinja"), settings);
        let rendered = renderer.render(&messages, None);
        assert_eq!(renderer.n_with_control_tokens(), 1);
        rendered
    };
    let escaped = render(ControlTokens::default()).unwrap();
    assert_eq!(escaped.prompt_ids, ids(&expected["escape_ids"]));
    assert!(escaped.text.contains("stop at <|im_end|> then <think>"), "the text has no trace of the sentinel");
    let refused = render(ControlTokens::Reject).unwrap_err();
    assert_eq!(refused.class, "control_token_in_data");
    assert_eq!(refused.detail, "message 0 spells the control token `<|im_end|>` at byte 8");
    assert_eq!(render(ControlTokens::Parse).unwrap().prompt_ids, ids(&expected["faulty_ids_for_comparison"]));
}

/// SPECTOK-02, neighbours: other fields, and markup that is the model's own.
#[test]
fn spectok_02_neighbours() {
    let Some(case) = shared_case("SPECTOK-02") else { return };
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let renderer = renderer(tokenizer, &case.common("templates/think.jinja"), PromptSettings::default());
    let count = |messages: &[Message], id: u32| {
        let ids = renderer.render(messages, None).unwrap().prompt_ids;
        ids.iter().filter(|n| **n == id).count()
    };
    let user = Message::text(Role::User, "hi");
    assert_eq!(count(&[Message::text(Role::System, "say <|im_end|>"), user.clone()], 276), 2);
    assert_eq!(count(&[user.clone(), Message::text(Role::Assistant, "a<|im_end|>b"), user.clone()], 276), 3);
    // In the assistant's turn a think tag is the model's own.
    assert_eq!(count(&[user.clone(), Message::text(Role::Assistant, "a</think>b"), user.clone()], 278), 1);
    assert_eq!(
        count(&[user.clone(), Message::text(Role::Assistant, "b"), Message::text(Role::User, "</think>")], 278),
        0
    );

    // A template that takes the data's spelling for markup would give another text: the row is refused.
    let steered = plain("{{ 'A' if '<|im_end|>' in messages[0].content else 'B' }}").unwrap();
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let format = ReasoningFormat::named("think", Some(&tokenizer)).unwrap();
    let renderer = PromptRenderer::new(steered, tokenizer, format, PromptSettings::default()).unwrap();
    let refused = renderer.render(&[Message::text(Role::User, "<|im_end|>")], None).unwrap_err();
    assert_eq!(refused.class, "control_token_in_data");
}

/// REASON-07: the run's mode reaches the template, and the state of the think block is read off the prompt.
#[test]
fn reason_07_prompt_texts() {
    let Some(case) = shared_case("REASON-07") else { return };
    let expected = case.json("expected.json");
    let (messages, _) = conversations(case.json_lines("jsonl")).remove(0);
    let disabled = Map::from_iter([("enable_thinking".to_owned(), json!(false))]);
    for (run, kwargs, think) in [
        ("keep", Map::new(), ThinkState::Open),
        ("drop", Map::new(), ThinkState::Open),
        ("disabled", disabled, ThinkState::Closed),
    ] {
        let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
        let settings = PromptSettings { kwargs, ..PromptSettings::default() };
        let renderer = renderer(tokenizer, &case.common("templates/think.jinja"), settings);
        assert_eq!(renderer.kwargs_without_effect().unwrap(), Vec::<&str>::new());
        let rendered = renderer.render(&messages, None).unwrap();
        assert_eq!((json!(rendered.text), rendered.think), (expected[run].clone(), think), "{run}");
    }
    let settings = PromptSettings { kwargs: Map::from_iter([("tools".to_owned(), json!([]))]), ..Default::default() };
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let format = ReasoningFormat::named("none", Some(&tokenizer)).unwrap();
    let error = PromptRenderer::new(plain("x").unwrap(), tokenizer, format, settings).unwrap_err();
    assert_eq!(error.to_string(), "template argument `tools` is given by eyas itself and cannot be set");
}

/// REASON-02: the prompt's ids are those of the case.
#[test]
fn reason_02_prompt_ids() {
    let Some(case) = shared_case("REASON-02") else { return };
    let expected = ids(&case.json("expected.json")["input_ids"]);
    let (messages, _) = conversations(case.json_lines("jsonl")).remove(0);
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let rendered = renderer(tokenizer, &case.common("templates/think.jinja"), PromptSettings::default())
        .render(&messages, None)
        .unwrap();
    assert!(expected.starts_with(&rendered.prompt_ids));
    assert_eq!(rendered.think, ThinkState::Open);
}

/// TOOL-01: arguments as text or as an object, encoded once by either template.
#[test]
fn tool_01_arguments_once_encoded() {
    let Some(case) = shared_case("TOOL-01") else { return };
    for style in ["tojson", "items"] {
        let template =
            ChatTemplate::from_file(&case.path(&format!("{style}.jinja")), &SpecialTokens::default(), None).unwrap();
        for (messages, _) in conversations(case.json_lines("jsonl")) {
            let messages = to_json(&messages);
            let input =
                RenderInput { messages: &messages, tools: None, add_generation_prompt: false, kwargs: &Map::new() };
            assert_eq!(json!(template.render(&input).unwrap()), case.json("expected.json")[style]);
        }
    }
}

/// TOOL-03: schemas reach the prompt, whether the row has them as a list or as text.
#[test]
fn tool_03_schemas_in_the_prompt() {
    let Some(case) = shared_case("TOOL-03") else { return };
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let renderer = renderer(tokenizer, &case.path("jinja"), PromptSettings::default());
    let rows = conversations(case.json_lines("jsonl"));
    for ((messages, tools), id) in rows.iter().zip(["list", "str", "none"]) {
        let text = renderer.render(messages, tools.as_deref()).unwrap().text;
        assert_eq!(json!(text), case.json("expected.json")[id], "{id}");
    }
}

/// TOOL-04: call ids stay byte for byte.
#[test]
fn tool_04_ids_byte_for_byte() {
    let Some(case) = shared_case("TOOL-04") else { return };
    let tokenizer = Tokenizer::load(&case.common("tiny_tok")).unwrap();
    let renderer = renderer(tokenizer, &case.path("jinja"), PromptSettings::default());
    let (messages, tools) = conversations(case.json_lines("jsonl")).remove(0);
    let text = renderer.render(&messages, tools.as_deref()).unwrap().text;
    assert_eq!(json!(text), case.json("expected.json")["prompt"]);
}
