//! The chat template against the renderer the model is trained with.

use eyas_tiny::chat::{self, python_json};
use eyas_tiny::corpus::{held_out, training_sample};
use eyas_tiny::rng::Rng;
use eyas_tiny::tasks::Kind;
use minijinja::{Environment, ErrorKind};
use serde_json::{Value, json};

fn render(context: &Value) -> String {
    let mut environment = Environment::new();
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", |value: minijinja::Value| {
        let value = serde_json::to_value(value)
            .map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, e.to_string()))?;
        Ok::<_, minijinja::Error>(minijinja::Value::from_safe_string(python_json(&value)))
    });
    environment.add_template("chat", chat::TEMPLATE).unwrap();
    environment.get_template("chat").unwrap().render(minijinja::value::Serde(context)).unwrap()
}

#[test]
fn the_template_renders_the_prompts_of_training() {
    let mut rng = Rng::new(9, 0);
    let samples: Vec<_> = (0..2000).map(|_| training_sample(&mut rng, usize::MAX)).collect();
    assert!(samples.iter().any(|s| s.kind == Kind::Tool && s.system.is_some()), "one tool sample has a system prompt");
    assert!(samples.iter().any(|s| !s.thinks), "one sample does not think");
    for sample in samples {
        let mut messages = vec![json!({"role": "user", "content": sample.task.user})];
        if let Some(system) = &sample.system {
            messages.insert(0, json!({"role": "system", "content": system}));
        }
        let mut context = json!({"messages": messages, "add_generation_prompt": true});
        if !sample.task.tools.is_empty() {
            context["tools"] = json!(sample.task.tools);
        }
        if !sample.thinks {
            context["enable_thinking"] = json!(false);
        }
        assert_eq!(render(&context), chat::prompt(&sample));
    }
}

#[test]
fn a_finished_turn_renders_as_it_was_trained() {
    for sample in held_out(5, 2) {
        let mut assistant = json!({"role": "assistant", "content": "", "reasoning_content": sample.task.thinking});
        match &sample.task.answer {
            eyas_tiny::tasks::Answer::Text(text) => assistant["content"] = json!(text),
            eyas_tiny::tasks::Answer::ToolCall { name, arguments } => {
                assistant["tool_calls"] =
                    json!([{"type": "function", "function": {"name": name, "arguments": arguments}}]);
            }
        }
        let mut context = json!({"messages": [{"role": "user", "content": sample.task.user}, assistant]});
        if !sample.task.tools.is_empty() {
            context["tools"] = json!(sample.task.tools);
        }
        assert_eq!(render(&context), chat::prompt(&sample) + &chat::completion(&sample) + "\n");
    }
}

#[test]
fn reasoning_of_earlier_turns_is_dropped() {
    let rendered = render(&json!({"add_generation_prompt": true, "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1", "reasoning_content": "secret"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "<think>\nhidden\n</think>\n\n2"},
        {"role": "user", "content": "three"},
        {"role": "tool", "content": "42"},
    ]}));
    assert_eq!(
        rendered,
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n\
         <|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n\
         <|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n<think>\n"
    );
}
