//! What is asked, as bytes.

use crate::endpoint::{Endpoint, Protocol};
use bytes::Bytes;
use eyas_types::{Message, SamplingParams};
use serde::Serialize;
use serde_json::{Map, Value};

/// One prompt to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Unique name of this try; SGLang echoes it.
    pub rid: &'a str,
    /// The prompt as ids, for the dialects that take ids.
    pub prompt_ids: &'a [u32],
    /// The prompt as turns, for the dialects that take turns.
    pub messages: &'a [Message],
    /// Tool schemas, for the dialects that take turns.
    pub tools: Option<&'a [Value]>,
    /// How to draw.
    pub sampling: &'a Sampling,
}

/// [`SamplingParams`] written out once for every dialect: all keys explicit, so that no server default is used silently.
#[derive(Debug, Clone)]
pub struct Sampling {
    sglang: String,
    openai: String,
}

#[derive(Serialize)]
struct Sglang<'a> {
    max_new_tokens: u32,
    temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    repetition_penalty: f32,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    stop_token_ids: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_seed: Option<u64>,
    ignore_eos: bool,
    skip_special_tokens: bool,
    spaces_between_special_tokens: bool,
}

#[derive(Serialize)]
struct Openai<'a> {
    max_tokens: u32,
    temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    repetition_penalty: f32,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    stop_token_ids: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    n: u32,
    stream: bool,
}

impl Sampling {
    /// Writes the parameters out.
    pub fn new(params: &SamplingParams) -> Self {
        let SamplingParams {
            max_new_tokens,
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            seed,
            ignore_eos,
            ..
        } = *params;
        let sglang = Sglang {
            max_new_tokens,
            temperature,
            top_p,
            top_k,
            min_p,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty,
            stop_token_ids: &params.stop_token_ids,
            sampling_seed: seed,
            ignore_eos,
            // Markers must be in the text as they are in the ids, and no space may be put between them.
            skip_special_tokens: false,
            spaces_between_special_tokens: false,
        };
        let openai = Openai {
            max_tokens: max_new_tokens,
            temperature,
            top_p,
            top_k,
            min_p,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty,
            stop_token_ids: &params.stop_token_ids,
            seed,
            ignore_eos,
            n: 1,
            stream: false,
        };
        Self { sglang: json(&sglang), openai: json(&openai) }
    }
}

#[expect(clippy::expect_used, reason = "numbers, booleans and strings always serialise")]
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values serialise")
}

/// The request's body in the endpoint's dialect.
pub(crate) fn body(endpoint: &Endpoint, ask: &Ask<'_>) -> Bytes {
    let mut out = Vec::with_capacity(512 + ask.prompt_ids.len() * 7);
    match endpoint.protocol() {
        Protocol::SglangGenerate => {
            out.extend_from_slice(b"{\"rid\":");
            push_json(&mut out, ask.rid);
            out.extend_from_slice(b",\"input_ids\":");
            push_ids(&mut out, ask.prompt_ids);
            out.extend_from_slice(b",\"sampling_params\":");
            out.extend_from_slice(ask.sampling.sglang.as_bytes());
            out.extend_from_slice(b",\"stream\":false");
        }
        Protocol::OpenaiChat => {
            out.extend_from_slice(b"{\"model\":");
            push_json(&mut out, &endpoint.model);
            out.extend_from_slice(b",\"messages\":");
            push_messages(&mut out, ask.messages);
            if let Some(tools) = ask.tools {
                out.extend_from_slice(b",\"tools\":");
                push_json(&mut out, tools);
            }
            out.push(b',');
            let fields = &ask.sampling.openai;
            out.extend_from_slice(&fields.as_bytes()[1..fields.len() - 1]);
        }
    }
    push_fields(&mut out, &endpoint.extra_body);
    out.push(b'}');
    Bytes::from(out)
}

fn push_fields(out: &mut Vec<u8>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        out.push(b',');
        push_json(out, name);
        out.push(b':');
        push_json(out, value);
    }
}

#[expect(clippy::expect_used, reason = "writing JSON values into memory cannot fail")]
fn push_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("JSON values serialise into memory");
}

fn push_ids(out: &mut Vec<u8>, ids: &[u32]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'[');
    for (n, &id) in ids.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(digits.format(id).as_bytes());
    }
    out.push(b']');
}

/// Turns as OpenAI has them: the arguments of a call are a JSON *string* there.
fn push_messages(out: &mut Vec<u8>, messages: &[Message]) {
    out.push(b'[');
    for (n, message) in messages.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        if message.tool_calls.is_empty() {
            push_json(out, message);
            continue;
        }
        let mut message = message.clone();
        for (n, call) in message.tool_calls.iter_mut().enumerate() {
            if !call.function.arguments.is_string() {
                call.function.arguments = Value::String(call.function.arguments.to_string());
            }
            // The dialect asks for both; a source may have neither.
            call.kind.get_or_insert_with(|| "function".to_owned());
            call.id.get_or_insert_with(|| format!("call_{n}"));
        }
        push_json(out, &message);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::Role;
    use serde_json::json;

    fn written(endpoint: &Endpoint, messages: &[Message]) -> Value {
        let sampling = Sampling::new(&SamplingParams { temperature: 0.7, seed: Some(9), ..SamplingParams::default() });
        let ask = Ask { rid: "r\"1", prompt_ids: &[1, 4093, 198], messages, tools: None, sampling: &sampling };
        serde_json::from_slice(&body(endpoint, &ask)).unwrap()
    }

    #[test]
    fn generate_sends_ids_and_every_sampling_key() {
        let endpoint = Endpoint::new("http://h", Protocol::SglangGenerate).unwrap();
        assert_eq!(
            written(&endpoint, &[]),
            json!({
                "rid": "r\"1",
                "input_ids": [1, 4093, 198],
                "sampling_params": {
                    "max_new_tokens": 2048, "temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
                    "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "sampling_seed": 9,
                    "ignore_eos": false, "skip_special_tokens": false, "spaces_between_special_tokens": false,
                },
                "stream": false,
            })
        );
    }

    #[test]
    fn chat_sends_turns_with_arguments_as_strings_and_extra_fields() {
        let mut endpoint = Endpoint::new("http://h", Protocol::OpenaiChat).unwrap();
        endpoint.extra_body.insert("return_token_ids".into(), json!(true));
        let call: Message = serde_json::from_value(json!({
            "role": "assistant",
            "tool_calls": [{"function": {"name": "calc", "arguments": {"x": 2}}}],
        }))
        .unwrap();
        let body = written(&endpoint, &[Message::text(Role::User, "2+2"), call]);
        assert_eq!(body["messages"][0], json!({"role": "user", "content": "2+2"}));
        let call = &body["messages"][1]["tool_calls"][0];
        assert_eq!(
            call,
            &json!({"id": "call_0", "type": "function", "function": {"name": "calc", "arguments": "{\"x\":2}"}})
        );
        assert_eq!((&body["max_tokens"], &body["stream"], &body["seed"]), (&json!(2048), &json!(false), &json!(9)));
        assert_eq!(body["return_token_ids"], json!(true));
    }
}
