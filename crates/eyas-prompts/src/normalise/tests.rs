//! Rows of every shape and what becomes of them.

use super::{Conversation, ConversationBody, Mapping, SchemaName, SchemaOptions};
use crate::source::Surrogates;
use eyas_types::Message;
use serde_json::{Map, Value, json};

fn rows(rows: &Value) -> Vec<Map<String, Value>> {
    let rows = rows.as_array().expect("a list of rows");
    rows.iter().map(|row| row.as_object().expect("a row").clone()).collect()
}

fn mapping(sample: &Value, options: &SchemaOptions) -> Mapping {
    Mapping::detect(&rows(sample), options).unwrap_or_else(|error| panic!("{error}"))
}

fn conversation(mapping: &Mapping, row: &Value) -> Result<Conversation, String> {
    let row = row.as_object().expect("a row").clone();
    mapping.conversation(row, Surrogates::Reject, Vec::new()).map_err(|refusal| refusal.to_string())
}

fn turns(conversation: Conversation) -> Vec<Message> {
    match conversation.body {
        ConversationBody::Turns(turns) => turns,
        ConversationBody::Text(text) => panic!("text {text:?}"),
    }
}

/// A row alone in its data set: how it is read, and its turns as JSON.
fn check(row: &Value, description: &str, expect: &Value) {
    check_with(row, &SchemaOptions::default(), description, expect);
}

fn check_with(row: &Value, options: &SchemaOptions, description: &str, expect: &Value) {
    let mapping = mapping(&json!([row]), options);
    assert_eq!(mapping.describe(), description);
    let conversation = conversation(&mapping, row).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(&serde_json::to_value(turns(conversation)).expect("JSON"), expect);
}

/// A row with these turns is refused in these words.
fn check_refused(turns: &Value, expect: &str) {
    let good = json!({"messages": [{"role": "user", "content": "q"}]});
    let mapping = mapping(&json!([good]), &SchemaOptions::default());
    let refusal = conversation(&mapping, &json!({"messages": turns})).expect_err("refused");
    assert_eq!(refusal, expect);
}

#[test]
fn openai_messages() {
    check(
        &json!({"id": 5, "messages": [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "text", "text": "q"}], "weight": null, "x": 1},
            {"role": "assistant", "content": null, "reasoning": "r", "tool_calls": [
                {"index": 0, "id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2.50}"}}
            ]},
            {"role": "tool", "tool_call_id": "functions.f:0", "content": "t", "name": "f"},
            {"role": "assistant", "content": "a"}
        ]}),
        "`messages` with `role`/`content`: developer, user, assistant, tool; ids from `id`",
        &json!([
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "text", "text": "q"}], "weight": null, "x": 1},
            {"role": "assistant", "reasoning_content": "r", "tool_calls": [
                {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2.5}}}
            ]},
            {"role": "tool", "content": "t", "tool_call_id": "functions.f:0", "name": "f"},
            {"role": "assistant", "content": "a"}
        ]),
    );
}

#[test]
fn conversations_of_every_naming() {
    let expect = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
    check(
        &json!({"conversation": [{"speaker": "Human", "text": "q"}, {"speaker": "Bing", "text": "a"}], "lang": "en"}),
        "`conversation` with `speaker`/`text`: Human→user, Bing→assistant; ids made from the prompts; not used: `lang`",
        &expect,
    );
    check(
        &json!({"conversations": [{"role": "user", "content": "q"}, {"role": "model", "content": "a"}]}),
        "`conversations` with `role`/`content`: user, model→assistant; ids made from the prompts",
        &expect,
    );
    check(
        &json!({"conversations": "[{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"a\"}]"}),
        "`conversations` with `from`/`value`: human→user, gpt→assistant; ids made from the prompts",
        &expect,
    );
    let options = SchemaOptions {
        field: Some("log".into()),
        role_key: Some("who".into()),
        content_key: Some("said".into()),
        id_field: Some("nr".into()),
        ..SchemaOptions::default()
    };
    check_with(
        &json!({"nr": 1, "log": [{"who": "user", "said": "q"}, {"who": "bot", "said": "a"}], "messages": []}),
        &options,
        "`log` with `who`/`said`: user, bot→assistant; ids from `nr`; not used: `messages`",
        &expect,
    );
}

#[test]
fn prompts_and_instructions() {
    check(
        &json!({"question": "q", "answer": "a", "system": "s"}),
        "`question` as the user's turn, `answer` kept as the source's answer; system prompt from `system`; ids made from the prompts",
        &json!([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]),
    );
    check(
        &json!({"instruction": "i", "input": "x", "output": "o", "history": [["h", "g"]]}),
        "`instruction` and `input`, joined by an empty line, as the user's turn, `output` kept as the source's answer, \
         earlier turns from `history`; ids made from the prompts",
        &json!([
            {"role": "user", "content": "h"}, {"role": "assistant", "content": "g"},
            {"role": "user", "content": "i\n\nx"}, {"role": "assistant", "content": "o"}
        ]),
    );
    let prompt = json!([{"role": "user", "content": "q"}]);
    check(&json!({"prompt": "q"}), "`prompt` as the user's turn; ids made from the prompts", &prompt);
    check(
        &json!({"prompt": [{"role": "user", "content": "q"}], "prompt_id": "p"}),
        "`prompt` as the user's turn; ids from `prompt_id`",
        &prompt,
    );
    let two_turns = json!({"turns": ["q", "q2"]});
    check(&two_turns, "`turns` as the user's turn; ids made from the prompts", &prompt);
    let mapping = mapping(&json!([two_turns]), &SchemaOptions::default());
    let found = conversation(&mapping, &two_turns).expect("taken");
    assert_eq!(found.repairs, [crate::source::Repair::OnlyFirstTurnAsked]);
    for (row, expect) in [
        (json!({}), "no_prompt_field: no prompt field: expected `turns`, fields found: []"),
        (json!({"turns": null}), "null_prompt: `turns` is null"),
        (json!({"turns": " \n"}), "empty_prompt: `turns` is empty"),
        (json!({"turns": 7}), "prompt_not_text: `turns` is a number, expected text"),
        (json!({"turns": ["", "x"]}), "empty_prompt: the first text of `turns` is empty"),
        (json!({"turns": []}), "empty_conversation: empty conversation: `turns` has no turns; other fields: []"),
        (
            json!({"turns": [1]}),
            "prompt_not_text: `turns` is a list that begins with a number, expected texts or turns",
        ),
    ] {
        assert_eq!(conversation(&mapping, &row).expect_err("refused"), expect);
    }
}

#[test]
fn a_column_with_another_system_prompt_is_a_contradiction() {
    let row = |system: &str| json!({"system": system, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]});
    let mapping = mapping(&json!([row("s")]), &SchemaOptions::default());
    assert_eq!(turns(conversation(&mapping, &row("s")).expect("same")).len(), 2);
    assert_eq!(turns(conversation(&mapping, &row("")).expect("none")).len(), 2);
    let refusal = conversation(&mapping, &row("t")).expect_err("refused");
    assert_eq!(refusal, "two_system_prompts: `system` and the first turn are two different system prompts");
}

#[test]
fn refusals_name_the_turn_and_what_is_wrong() {
    check_refused(&json!(["hi"]), "turn_not_an_object: turn 1 is a string, expected an object");
    check_refused(
        &json!({"role": "user"}),
        "conversation_not_a_list: `messages` is an object, expected a list of turns",
    );
    check_refused(
        &json!("["),
        "conversation_not_a_list: `messages` is a string that is not JSON: malformed JSON at byte 1: expected a value, but the row ends",
    );
    check_refused(&json!([{"content": "q"}]), "no_role: turn 1 has no `role`; its keys are: [content]");
    check_refused(&json!([{"role": 1, "content": "q"}]), "no_role: `role` of turn 1 is a number, expected a role");
    check_refused(&json!([{"role": "user"}]), "no_content: turn 1 (user) has no `content`");
    check_refused(
        &json!([{"role": "user", "content": "q"}, {"role": "assistant"}, {"role": "user", "content": "r"}]),
        "no_content: turn 2 (assistant) has no `content`",
    );
    check_refused(
        &json!([{"role": "user", "content": 5}]),
        "content_not_text: `content` of turn 1 is a number, expected text or a list of parts",
    );
    check_refused(
        &json!([{"role": "user", "content": [5]}]),
        "content_not_text: `content` of turn 1 is a list with a number in it, expected text or a list of parts",
    );
    check_refused(
        &json!([{"role": "user", "content": "q", "name": 5}]),
        "malformed_turn: `name` of turn 1 is a number, expected text",
    );
    check_refused(
        &json!([{"role": "user", "content": "q", "tool_calls": [{"name": "f"}]}]),
        "malformed_turn: turn 1 (user) has tool calls; only the assistant can call",
    );
    check_refused(
        &json!([{"role": "tool", "content": "t"}, {"role": "user", "content": "q"}]),
        "first_turn_is_tool: first turn is the result of a tool, and nothing called it",
    );
    let refusal = conversation(
        &mapping(&json!([{"messages": [{"role": "user", "content": "q"}]}]), &SchemaOptions::default()),
        &json!({"messages": [{"role": "narrator", "content": "q"}]}),
    )
    .expect_err("refused");
    assert!(
        refusal.starts_with("unknown_role: unknown role `narrator` in turn 1; known roles: assistant, bard, "),
        "{refusal}"
    );
    for (calls, words) in [
        (
            json!("[{"),
            "turn 2: `tool_calls` is a string that is not JSON: malformed JSON at byte 2: expected a key in double quotes, but the row ends",
        ),
        (json!(7), "turn 2: `tool_calls` is a number, expected a list or its JSON text"),
        (json!([7]), "turn 2: a tool call is a number"),
        (json!([{"function": {}}]), "turn 2: a tool call does not name its function"),
        (json!([{"id": 7, "function": {"name": "f"}}]), "turn 2: the id of a tool call is a number"),
    ] {
        let turns =
            json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": calls}]);
        check_refused(&turns, &format!("malformed_tool_calls: {words}"));
    }
}

#[test]
fn arguments_are_decoded_once_and_only_to_objects() {
    let call = |arguments: Value| {
        let row = json!({"messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": arguments}]}
        ]});
        let mapping = mapping(&json!([row]), &SchemaOptions::default());
        turns(conversation(&mapping, &row).expect("taken"))[1].tool_calls[0].function.arguments.clone()
    };
    assert_eq!(call(json!("{\"a\": \"{\\\"b\\\": 1}\"}")), json!({"a": "{\"b\": 1}"}), "once");
    for kept in
        ["", "null", "[1]", "7", "{", "{\"a\": 1, \"a\": 2}", "{\"a\": 99999999999999999999}", "{\"a\": \"\\udcb2\"}"]
    {
        assert_eq!(call(json!(kept)), json!(kept));
    }
    assert_eq!(call(json!([1])), json!([1]));
    assert_eq!(call(Value::Null), json!({}));
}

#[test]
fn older_and_share_gpt_forms_of_calls() {
    let row = json!({"functions": "{\"name\": \"f\"}", "conversations": [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": "[{\"name\": \"f\", \"arguments\": \"{}\"}, {\"name\": \"g\", \"parameters\": {\"x\": 1}}]"},
        {"from": "observation", "value": "o"},
        {"from": "observation", "value": "p"},
        {"from": "gpt", "value": "", "function_call": {"name": "h", "arguments": {}}}
    ]});
    let mapping = mapping(&json!([row]), &SchemaOptions::default());
    assert_eq!(mapping.tools.as_deref(), Some("functions"));
    let found = conversation(&mapping, &row).expect("taken");
    assert_eq!(found.tools, Some(vec![json!({"name": "f"})]));
    assert!(found.repairs.is_empty());
    let turns = turns(found);
    let names: Vec<Vec<&str>> =
        turns.iter().map(|turn| turn.tool_calls.iter().map(|call| call.function.name.as_str()).collect()).collect();
    assert_eq!(names, [vec![], vec!["f", "g"], vec![], vec![], vec!["h"]]);

    for (tools, words) in [
        (json!("[1]"), "malformed_tools: `functions` holds a number, expected an object per tool"),
        (
            json!("{"),
            "malformed_tools: `functions` is a string that is not JSON: malformed JSON at byte 1: expected a key in double quotes, but the row ends",
        ),
        (json!(true), "malformed_tools: `functions` is true or false, expected a list or its JSON text"),
    ] {
        let mut bad = row.clone();
        bad["functions"] = tools;
        assert_eq!(conversation(&mapping, &bad).expect_err("refused"), words);
    }
    for none in [json!(null), json!(""), json!("null"), json!("[]"), json!([])] {
        let mut without = row.clone();
        without["functions"] = none;
        let found = conversation(&mapping, &without).expect("taken");
        assert_eq!((found.tools, found.repairs), (None, vec![crate::source::Repair::ToolsMissing]));
    }
}

#[test]
fn turns_of_one_role_in_a_row_stay_apart() {
    let row = json!({"messages": [
        {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}
    ]});
    let mapping = mapping(&json!([row]), &SchemaOptions::default());
    let (prompt, answer) = Conversation::split_last_answer(turns(conversation(&mapping, &row).expect("taken")));
    let said: Vec<_> = prompt.iter().filter_map(Message::content_str).collect();
    assert_eq!(said, ["a", "b", "c"]);
    assert_eq!(answer.as_ref().and_then(Message::content_str), Some("d"));
}

#[test]
fn the_field_that_fits_most_rows_is_taken() {
    let turn = json!([{"role": "user", "content": "q"}]);
    let sample =
        json!([{"messages": null, "chat": turn}, {"messages": [], "chat": turn, "prompt": "p"}, {"messages": turn}]);
    let found = mapping(&sample, &SchemaOptions::default());
    assert!(found.describe().starts_with("`chat` with `role`/`content`"), "{}", found.describe());
    assert!(found.describe().ends_with("not used: `messages`, `prompt`"), "{}", found.describe());
    let only_empty = mapping(&json!([{"conversations": []}, {"conversations": null}]), &SchemaOptions::default());
    assert!(only_empty.describe().starts_with("`conversations` with `from`/`value`;"), "{}", only_empty.describe());
}

#[test]
fn a_schema_that_was_asked_for_must_be_there() {
    let row = json!([{"id": 1, "body": "x"}]);
    let check = |options: &SchemaOptions, expect: &str| {
        let error = Mapping::detect(&rows(&row), options).expect_err("no schema").to_string();
        assert_eq!(
            error,
            format!(
                "no conversation or prompt in the first 1 rows; fields found: `id`, `body`; fields expected: {expect}"
            )
        );
    };
    check(&SchemaOptions { schema: Some(SchemaName::Text), ..SchemaOptions::default() }, "`text`");
    check(&SchemaOptions { field: Some("log".into()), ..SchemaOptions::default() }, "`log`");
    let text = SchemaOptions { schema: Some(SchemaName::Text), field: Some("body".into()), ..SchemaOptions::default() };
    let found = mapping(&row, &text);
    assert_eq!(found.describe(), "`body` as the whole prompt, no chat template; ids from `id`");
    let conversation = conversation(&found, &row[0]).expect("taken");
    assert_eq!((conversation.id.as_deref(), conversation.body), (Some("1"), ConversationBody::Text("x".into())));
}
