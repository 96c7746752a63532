//! `/v1/completions` and `/v1/chat/completions`, as far as a batch client uses them.
//!
//! Both are put into the shape of a `/generate` request and go the same way; only the bodies of the answers differ.

use crate::app::{App, unix_now};
use crate::backend::Generation;
use crate::connection::ConnectionControl;
use crate::generate::{EventWriter, Running, deliver, sse_event, start_all, stream_all, take_fault};
use crate::refusal::{Refusal, without_position};
use crate::reply::Rendered;
use crate::request::{Request, new_rid};
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use eyas_types::{FinishReason, Matched};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What both routes understand; the rest is ignored, as SGLang does.
#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "an object")]
struct Wire {
    model: Option<String>,
    prompt: Option<Value>,
    messages: Option<Vec<Value>>,
    input_ids: Option<Value>,
    rid: Option<Value>,
    stream: bool,
    stream_options: Option<StreamOptions>,
    return_token_ids: bool,
    separate_reasoning: Option<bool>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    seed: Option<i64>,
    logprobs: Option<Value>,
    echo: bool,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: bool,
}

/// Sampling keys that go through under their own names.
const SAMPLING_KEYS: [&str; 13] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "n",
    "ignore_eos",
    "skip_special_tokens",
    "no_stop_trim",
];

/// The side of an answer that all its bodies share.
#[derive(Debug, Clone)]
struct Shape {
    is_chat: bool,
    id: String,
    created: u64,
    model: String,
    return_token_ids: bool,
    separate_reasoning: bool,
    include_usage: bool,
    /// Key of the reasoning in messages.
    reasoning_field: String,
}

pub(crate) async fn completions(app: Arc<App>, control: Arc<ConnectionControl>, body: Bytes) -> Response<Body> {
    serve(app, control, body, false).await
}

pub(crate) async fn chat(app: Arc<App>, control: Arc<ConnectionControl>, body: Bytes) -> Response<Body> {
    serve(app, control, body, true).await
}

async fn serve(app: Arc<App>, control: Arc<ConnectionControl>, body: Bytes, is_chat: bool) -> Response<Body> {
    let (shape, request) = match read(&app, &body, is_chat) {
        Ok(read) => read,
        Err(refusal) => return refusal.into_response(),
    };
    let path = if is_chat { "/v1/chat/completions" } else { "/v1/completions" };
    let mut running = match start_all(&app, request.jobs, path) {
        Ok(running) => running,
        Err(refusal) => return refusal.into_response(),
    };
    let fault = match take_fault(&mut running, &control, &app).await {
        Ok(fault) => fault,
        Err(response) => return *response,
    };
    if request.stream {
        return stream_all(running, fault, control, |n| shape.event_writer(n));
    }
    let body = whole(&shape, &mut running).await;
    deliver(body, fault, control)
}

fn read(app: &App, body: &[u8], is_chat: bool) -> Result<(Shape, Request), Refusal> {
    let wire: Wire = serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Refusal::bad_value(without_position(&error)),
        _ => Refusal::bad_body(body, &error),
    })?;
    if wire.echo || wire.logprobs.as_ref().is_some_and(|value| !value.is_null() && *value != false) {
        return Err(Refusal::bad_value("echo and logprobs are not supported by this server."));
    }
    let mut text = None;
    let mut ask = Map::new();
    if is_chat {
        let messages = wire.messages.as_deref().unwrap_or_default();
        if messages.is_empty() && wire.input_ids.is_none() {
            return Err(Refusal::bad_value("messages cannot be empty."));
        }
        match wire.input_ids {
            Some(ids) => ask.insert("input_ids".to_owned(), ids),
            None if app.backend.script().is_none() => {
                return Err(Refusal::bad_value("This server applies no chat template: send input_ids."));
            }
            None => ask.insert("text".to_owned(), as_text(messages).into()),
        };
        text = Some(as_text(messages));
    } else {
        let prompt = wire.prompt.ok_or_else(|| Refusal::bad_value("prompt is missing."))?;
        let first = prompt.get(0).unwrap_or(&Value::Null);
        let is_text = prompt.is_string() || first.is_string();
        ask.insert(if is_text { "text" } else { "input_ids" }.to_owned(), prompt);
    }
    let mut sampling = Map::new();
    for key in SAMPLING_KEYS {
        if let Some(value) = wire.rest.get(key).filter(|value| !value.is_null()) {
            sampling.insert(key.to_owned(), value.clone());
        }
    }
    // Chat answers go to the end of the context by default, completions to 16 tokens.
    let max_tokens = wire.max_completion_tokens.or(wire.max_tokens).or((!is_chat).then_some(16));
    sampling.insert("max_new_tokens".to_owned(), max_tokens.into());
    sampling.insert("sampling_seed".to_owned(), wire.seed.into());
    ask.insert("sampling_params".to_owned(), sampling.into());
    ask.insert("stream".to_owned(), wire.stream.into());
    let id = wire.rid.as_ref().and_then(Value::as_str).map_or_else(new_rid, str::to_owned);
    if let Some(rid) = wire.rid {
        ask.insert("rid".to_owned(), rid);
    }
    let ask = Value::Object(ask).to_string();
    let mut request = Request::parse(ask.as_bytes(), app.backend.model(), |text| app.backend.encode(text))?;
    if let Some(text) = text {
        request.jobs.iter_mut().for_each(|job| job.text = Some(text.clone()));
    }
    let shape = Shape {
        is_chat,
        id,
        created: unix_now().as_secs(),
        // SGLang answers under whatever name it was asked for.
        model: wire.model.unwrap_or_else(|| app.backend.model().served_model_name.clone()),
        return_token_ids: wire.return_token_ids,
        separate_reasoning: wire.separate_reasoning.unwrap_or(true),
        include_usage: wire.stream_options.is_some_and(|options| options.include_usage),
        reasoning_field: app
            .backend
            .script()
            .map_or_else(|| "reasoning_content".to_owned(), |script| script.script().reasoning.field.clone()),
    };
    Ok((shape, request))
}

/// Messages as plain text, for a script to make ids of.
fn as_text(messages: &[Value]) -> String {
    let mut text = String::new();
    for message in messages {
        text.push_str(message["role"].as_str().unwrap_or_default());
        text.push('\n');
        match &message["content"] {
            Value::String(content) => text.push_str(content),
            Value::Null => {}
            other => text.push_str(&other.to_string()),
        }
        text.push('\n');
    }
    text
}

async fn whole(shape: &Shape, running: &mut [Running]) -> Result<Vec<u8>, Refusal> {
    let finishes = join_all(running.iter_mut().map(Running::finish)).await;
    let mut choices = Vec::new();
    for (n, (one, finish)) in running.iter().zip(finishes).enumerate() {
        choices.push(shape.choice(n, one, &finish?));
    }
    let mut body = shape.envelope(if shape.is_chat { "chat.completion" } else { "text_completion" }, choices);
    body.insert("usage".to_owned(), usage(running.iter()));
    Ok(Value::Object(body).to_string().into_bytes())
}

fn usage<'a>(running: impl Iterator<Item = &'a Running>) -> Value {
    let (mut n_prompt, mut n_completion, mut n_reasoning) = (0, 0, 0);
    for one in running {
        let meta = one.generation.meta();
        n_prompt += one.job.input_ids.len() as u64;
        n_completion += one.generation.n_tokens() as u64 + meta.miscount;
        n_reasoning += meta.reasoning_tokens;
    }
    json!({
        "prompt_tokens": n_prompt,
        "total_tokens": n_prompt + n_completion,
        "completion_tokens": n_completion,
        "prompt_tokens_details": null,
        "reasoning_tokens": n_reasoning,
        "completion_tokens_details": null,
    })
}

impl Shape {
    fn envelope(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("id".to_owned(), self.id.clone().into());
        body.insert("object".to_owned(), object.into());
        body.insert("created".to_owned(), self.created.into());
        body.insert("model".to_owned(), self.model.clone().into());
        body.insert("choices".to_owned(), choices.into());
        body
    }

    /// Reasoning and content of the text so far.
    fn texts(&self, generation: &Generation) -> (Option<String>, String) {
        if self.is_chat && self.separate_reasoning { generation.split_text() } else { (None, generation.text()) }
    }

    fn choice(&self, index: usize, one: &Running, finish: &FinishReason) -> Value {
        let (reasoning, content) = self.texts(&one.generation);
        let mut choice = Map::new();
        choice.insert("index".to_owned(), index.into());
        if self.is_chat {
            let mut message = Map::new();
            message.insert("role".to_owned(), "assistant".into());
            message.insert("content".to_owned(), content.into());
            message.insert(self.reasoning_field.clone(), reasoning.filter(|text| !text.is_empty()).into());
            choice.insert("message".to_owned(), message.into());
        } else {
            choice.insert("text".to_owned(), content.into());
        }
        choice.insert("logprobs".to_owned(), Value::Null);
        choice.insert("finish_reason".to_owned(), finish.as_str().into());
        choice.insert("matched_stop".to_owned(), matched(finish));
        if self.return_token_ids {
            let key = if self.is_chat { "response_token_ids" } else { "token_ids" };
            choice.insert(key.to_owned(), one.generation.ids().into());
            choice.insert("prompt_token_ids".to_owned(), one.job.input_ids.clone().into());
        }
        choice.into()
    }

    /// Deltas, as OpenAI-style clients read them.
    fn event_writer(&self, index: usize) -> EventWriter {
        let shape = self.clone();
        let (mut n_reasoning, mut n_content, mut n_ids) = (0, 0, 0);
        Box::new(move |one, finish| {
            let (reasoning, content) = shape.texts(&one.generation);
            let reasoning = reasoning.unwrap_or_default();
            let mut delta = Map::new();
            if n_ids == 0 && shape.is_chat {
                delta.insert("role".to_owned(), "assistant".into());
            }
            if shape.is_chat && reasoning.len() > n_reasoning {
                delta.insert(shape.reasoning_field.clone(), new_text(&reasoning, n_reasoning).into());
            }
            let new_content = new_text(&content, n_content);
            let ids = one.generation.ids();
            let mut choice = Map::new();
            choice.insert("index".to_owned(), index.into());
            if shape.is_chat {
                if !new_content.is_empty() {
                    delta.insert("content".to_owned(), new_content.into());
                }
                choice.insert("delta".to_owned(), delta.into());
            } else {
                choice.insert("text".to_owned(), new_content.into());
            }
            choice.insert("logprobs".to_owned(), Value::Null);
            choice.insert("finish_reason".to_owned(), finish.map(FinishReason::as_str).into());
            choice.insert("matched_stop".to_owned(), finish.map_or(Value::Null, matched));
            if shape.return_token_ids && !shape.is_chat {
                choice.insert("token_ids".to_owned(), ids.get(n_ids..).unwrap_or_default().into());
            }
            (n_reasoning, n_content, n_ids) = (reasoning.len(), content.len(), ids.len());
            let object = if shape.is_chat { "chat.completion.chunk" } else { "text_completion" };
            let mut events =
                sse_event(Value::Object(shape.envelope(object, vec![choice.into()])).to_string().as_bytes());
            if finish.is_some() && shape.include_usage {
                let mut last = shape.envelope(object, Vec::new());
                last.insert("usage".to_owned(), usage(std::iter::once(one)));
                events.extend_from_slice(&sse_event(Value::Object(last).to_string().as_bytes()));
            }
            events
        })
    }
}

/// What has come since; a stop string may have taken text back, then nothing.
fn new_text(text: &str, n_sent: usize) -> &str {
    text.get(n_sent..).unwrap_or_default()
}

fn matched(finish: &FinishReason) -> Value {
    match finish {
        FinishReason::Stop { matched: Some(Matched::Token(id)) } => (*id).into(),
        FinishReason::Stop { matched: Some(Matched::Text(text)) } => text.as_str().into(),
        FinishReason::Stop { matched: Some(Matched::Tokens(ids)) } => ids.clone().into(),
        _ => Value::Null,
    }
}
