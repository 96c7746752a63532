//! Which action a request gets, and what comes of it.

use super::http::Reply;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) struct Behaviour(Value);

/// A request for an answer.
pub(super) struct Asked {
    pub(super) n: u64,
    pub(super) attempt: u64,
    pub(super) path: String,
    pub(super) rid: Option<String>,
    pub(super) key: String,
    pub(super) ids: Vec<u64>,
    pub(super) in_flight: usize,
    pub(super) authorization: Option<String>,
}

pub(super) struct Played {
    pub(super) reply: Reply,
    pub(super) delay: Option<Duration>,
}

impl Behaviour {
    pub(super) fn new(behaviour: Value) -> Self {
        Self(behaviour)
    }

    pub(super) fn keep_alive(&self) -> Duration {
        Duration::from_secs_f64(self.0["keep_alive_s"].as_f64().unwrap_or(3_600.0))
    }

    pub(super) fn side_route(&self, path: &str) -> Reply {
        match path {
            "/health" | "/health_generate" => {
                let status = self.0["health"]["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                Reply::text(status.unwrap_or(200), self.0["health"]["body"].as_str().unwrap_or_default())
            }
            "/v1/models" => match &self.0["models"] {
                Value::Null => {
                    let models = json!({"object": "list", "data": [{"id": "tiny", "max_model_len": 4096}]});
                    Reply::json(200, Vec::new(), &models)
                }
                models => Reply::json(200, Vec::new(), models),
            },
            "/get_model_info" | "/get_server_info" => {
                let info = json!({"model_path": "tiny", "max_total_num_tokens": 100_000, "context_length": 4096});
                Reply::json(200, Vec::new(), &info)
            }
            _ => Reply::text(404, "not found"),
        }
    }

    pub(super) fn play(&self, asked: &Asked) -> Played {
        let action = self.pick(asked);
        let delay = action["delay_s"].as_f64().filter(|seconds| *seconds > 0.0).map(Duration::from_secs_f64);
        Played { reply: reply(&action, asked), delay }
    }

    fn pick(&self, asked: &Asked) -> Value {
        let Self(behaviour) = self;
        if let Some(key) = behaviour["require_auth"].as_str()
            && asked.authorization.as_deref() != Some(format!("Bearer {key}").as_str())
        {
            return json!({"type": "json", "status": 401, "body": {"error": "Unauthorized"}});
        }
        if let Some(max_running) = behaviour["max_running"].as_u64()
            && asked.in_flight as u64 > max_running + behaviour["max_queued"].as_u64().unwrap_or(0)
        {
            return match &behaviour["overflow"] {
                Value::Null => json!({"type": "json", "status": 503, "body": {"error": {"message": "queue full"}}}),
                overflow => overflow.clone(),
            };
        }
        let rules = behaviour["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        match rules.iter().find(|rule| matches(&rule["match"], asked)) {
            Some(rule) => rule["do"].clone(),
            None if behaviour["default"].is_null() => {
                json!({"type": "ok", "text": "ok", "output_ids": [111, 107, 276]})
            }
            None => behaviour["default"].clone(),
        }
    }
}

fn matches(rule: &Value, asked: &Asked) -> bool {
    let number = |name: &str| rule[name].as_u64();
    rule["contains"].as_str().is_none_or(|text| asked.key.contains(text))
        && rule["path"].as_str().is_none_or(|path| asked.path == path)
        && number("nth").is_none_or(|n| asked.n == n)
        && number("nth_from").is_none_or(|n| asked.n >= n)
        && number("attempt").is_none_or(|n| asked.attempt == n)
        && number("attempt_from").is_none_or(|n| asked.attempt >= n)
}

fn reply(action: &Value, asked: &Asked) -> Reply {
    let status = action["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    match action["type"].as_str().unwrap_or_default() {
        "ok" => Reply::json(200, Vec::new(), &shaped(action, asked)),
        "json" => {
            let headers = action["headers"].as_object().into_iter().flatten();
            let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let headers = headers.map(|(name, value)| (name.clone(), word(value))).collect();
            Reply::json(status, headers, &replaced(&action["body"], asked))
        }
        "text" => Reply::text(status, action["body"].as_str().unwrap_or_default()),
        "hang" => Reply::Hang,
        "die" => Reply::Die,
        "close" if action["when"] == "mid_body" => {
            Reply::Short { n_bytes: 4_096, body: b"{\"text\": \"half an ans".to_vec() }
        }
        "close" => Reply::Close,
        other => panic!("unknown action `{other}`"),
    }
}

/// An answer in the shape of the endpoint that was called.
fn shaped(action: &Value, asked: &Asked) -> Value {
    let text = action["text"].as_str().unwrap_or("ok");
    let finish = action["finish"].as_str().unwrap_or("stop");
    let ids: Vec<Value> = match action["output_ids"].as_array() {
        Some(ids) => ids.clone(),
        None => text.bytes().map(Value::from).chain((finish == "stop").then(|| json!(276))).collect(),
    };
    let (n_ids, n_prompt) = (ids.len(), if asked.ids.is_empty() { asked.key.chars().count() } else { asked.ids.len() });
    if asked.path == "/generate" {
        let mut reason = json!({ "type": finish });
        match finish {
            "stop" => reason["matched"] = ids.last().cloned().unwrap_or(Value::Null),
            "length" => reason["length"] = json!(n_ids),
            _ => {}
        }
        let rid = asked.rid.clone().unwrap_or_else(|| format!("r{}", asked.n));
        let meta = json!({"id": rid, "finish_reason": reason, "prompt_tokens": n_prompt, "completion_tokens": n_ids});
        return json!({"text": text, "output_ids": ids, "meta_info": meta});
    }
    let mut message = json!({"role": "assistant", "content": text});
    for (name, value) in action["message"].as_object().into_iter().flatten() {
        message[name] = value.clone();
    }
    json!({
        "id": format!("chatcmpl-{}", asked.n), "object": "chat.completion", "model": "tiny",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "token_ids": ids}],
        "usage": {"prompt_tokens": n_prompt, "completion_tokens": n_ids, "total_tokens": n_prompt + n_ids},
    })
}

fn replaced(body: &Value, asked: &Asked) -> Value {
    match body {
        Value::String(text) => match text.as_str() {
            "$rid" => json!(asked.rid.clone().unwrap_or_else(|| format!("r{}", asked.n))),
            "$n" => json!(asked.n),
            "$attempt" => json!(asked.attempt),
            "$prompt_ids" => json!(asked.ids),
            "$prompt_tokens" if asked.ids.is_empty() => json!(asked.key.chars().count()),
            "$prompt_tokens" => json!(asked.ids.len()),
            _ => body.clone(),
        },
        Value::Array(items) => items.iter().map(|item| replaced(item, asked)).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), replaced(value, asked))).collect(),
        other => other.clone(),
    }
}

/// Texts of token ids.
pub(super) struct TokenTexts;

/// The ids of the shared tiny tokenizer beyond the bytes.
const TINY: [(u64, &str); 16] = [
    (259, "hello"),
    (264, " world"),
    (265, "42"),
    (266, "\n\n"),
    (267, "  "),
    (270, "user"),
    (271, "ab"),
    (272, "abc"),
    (273, "<|bos|>"),
    (274, "<|endoftext|>"),
    (275, "<|im_start|>"),
    (276, "<|im_end|>"),
    (277, "<think>"),
    (278, "</think>"),
    (279, "<tool_call>"),
    (280, "</tool_call>"),
];

impl TokenTexts {
    pub(super) fn tiny() -> Self {
        Self
    }

    /// Text of the prompt in a request, and its ids where it came as ids.
    pub(super) fn key_of(&self, body: &Value) -> (String, Vec<u64>) {
        let ids = ["input_ids", "prompt", "prompt_token_ids"].iter().find_map(|name| body[name].as_array());
        if let Some(ids) = ids {
            let ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
            return (self.decode(&ids), ids);
        }
        if let Some(messages) = body.get("messages") {
            // With a blank after each comma and colon, as the cases' rules expect it.
            return (python_json(messages), Vec::new());
        }
        (body["text"].as_str().or_else(|| body["prompt"].as_str()).unwrap_or_default().to_owned(), Vec::new())
    }

    fn decode(&self, ids: &[u64]) -> String {
        let mut bytes = Vec::new();
        for id in ids {
            match u8::try_from(*id) {
                Ok(byte) => bytes.push(byte),
                Err(_) => {
                    let text = TINY.iter().find(|(tiny, _)| tiny == id).map_or("?", |(_, text)| text);
                    bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn python_json(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(python_json).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{}: {}", json!(name), python_json(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
