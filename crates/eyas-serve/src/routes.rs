//! The routes. What they answer is described in the crate's documentation.

use crate::app::{App, unix_now};
use crate::connection::ConnectionControl;
use crate::generate;
use crate::openai;
use crate::refusal::{Refusal, json_response};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::{any, get as get_route, post};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// Largest body that is read, bytes: a batch of a few thousand long prompts.
const MAX_BODY_BYTES: usize = 256 << 20;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/generate", post(generate_route).put(generate_route))
        .route("/v1/completions", post(openai_completions))
        .route("/v1/chat/completions", post(openai_chat))
        .route("/abort_request", post(abort_request))
        .route("/health", get_route(health))
        .route("/health_generate", get_route(health_generate))
        .route("/ready", get_route(health))
        .route("/model_info", get_route(model_info))
        .route("/get_model_info", get_route(model_info))
        .route("/server_info", get_route(server_info))
        .route("/get_server_info", get_route(server_info))
        .route("/v1/models", get_route(models))
        .route("/v1/loads", get_route(loads))
        .route("/flush_cache", any(flush_cache))
        .route("/metrics", get_route(metrics))
        .route("/script/stats", get_route(script_stats))
        .fallback(|| async { detail(StatusCode::NOT_FOUND, "Not Found") })
        .method_not_allowed_fallback(|| async { detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed") })
        .with_state(app)
}

/// Serves one request of a connection: its control goes into the extensions, and the connection counts as busy meanwhile.
pub(crate) async fn serve(
    router: TowerToHyperService<Router>,
    control: Arc<ConnectionControl>,
    mut request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    control.set_busy(true);
    request.extensions_mut().insert(Arc::clone(&control));
    let response = hyper::service::Service::call(&router, request).await;
    control.set_busy(false);
    response
}

fn detail(status: StatusCode, words: &str) -> Response<Body> {
    json_response(status, json!({ "detail": words }).to_string())
}

fn ok_json(value: &Value) -> Response<Body> {
    json_response(StatusCode::OK, value.to_string())
}

async fn read_body(request: Request) -> Result<(Arc<ConnectionControl>, Bytes), Refusal> {
    let control = request.extensions().get::<Arc<ConnectionControl>>().cloned().unwrap_or_default();
    match to_bytes(request.into_body(), MAX_BODY_BYTES).await {
        Ok(body) => Ok((control, body)),
        Err(_) => Err(Refusal::object(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut or larger than 256 MiB")),
    }
}

async fn generate_route(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    match read_body(request).await {
        Ok((control, body)) => generate::generate(app, control, body).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn openai_completions(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    match read_body(request).await {
        Ok((control, body)) => openai::completions(app, control, body).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn openai_chat(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    match read_body(request).await {
        Ok((control, body)) => openai::chat(app, control, body).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(Deserialize)]
struct AbortRequest {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

async fn abort_request(State(app): State<Arc<App>>, body: Bytes) -> Response<Body> {
    match serde_json::from_slice::<AbortRequest>(&body) {
        Ok(abort) => {
            if abort.abort_all {
                app.registry.abort_all();
            } else if let Some(rid) = &abort.rid {
                app.registry.abort(rid);
            }
            Response::new(Body::empty())
        }
        Err(error) => Refusal::bad_body(&body, &error).into_response(),
    }
}

async fn health(State(app): State<Arc<App>>) -> Response<Body> {
    match app.backend.script().and_then(|script| script.health()) {
        Some((status, body)) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            response
        }
        None if app.backend.is_alive() => Response::new(Body::empty()),
        None => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

/// One token is really generated; with a script the same as `/health`.
async fn health_generate(State(app): State<Arc<App>>) -> Response<Body> {
    if app.backend.script().is_none() && !generate::one_token(&app).await {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    }
    health(State(app)).await
}

async fn model_info(State(app): State<Arc<App>>) -> Response<Body> {
    let model = app.backend.model();
    ok_json(&json!({
        "model_path": model.model_path,
        "served_model_name": model.served_model_name,
        "tokenizer_path": model.tokenizer_path,
        "is_generation": true,
        "preferred_sampling_params": null,
        "weight_version": model.weight_version,
        "load_format": "auto",
        "reasoning_parser": model.reasoning_parser,
        "tool_call_parser": null,
        "disaggregation_mode": "null",
        "has_image_understanding": false,
        "has_audio_understanding": false,
        "model_type": model.model_type,
        "architectures": [model.architecture],
    }))
}

async fn server_info(State(app): State<Arc<App>>) -> Response<Body> {
    let model = app.backend.model();
    let load = app.backend.load();
    let max_total = model.max_total_num_tokens;
    let max_input = model.max_req_input_len();
    ok_json(&json!({
        "model_path": model.model_path,
        "served_model_name": model.served_model_name,
        "tokenizer_path": model.tokenizer_path,
        "skip_tokenizer_init": model.tokenizer_path.is_none(),
        "context_length": model.context_length,
        "vocab_size": model.vocab_size,
        "dtype": model.dtype,
        "device": "cpu",
        "max_running_requests": model.max_running_requests,
        "max_queued_requests": model.max_queued_requests,
        "max_total_tokens": max_total,
        "max_total_num_tokens": max_total,
        "max_req_input_len": max_input,
        "reasoning_parser": model.reasoning_parser,
        "tool_call_parser": null,
        "incremental_streaming_output": false,
        "enable_deterministic_inference": model.honours_seed,
        "enable_metrics": true,
        "enable_return_hidden_states": false,
        "speculative_algorithm": null,
        "weight_version": model.weight_version,
        "scheduler_info": { "status": "ready", "max_total_num_tokens": max_total, "max_req_input_len": max_input },
        "internal_states": [{
            "last_gen_throughput": load.gen_throughput,
            "effective_max_running_requests_per_dp": model.max_running_requests,
        }],
        "frontend": "eyas",
        "engine": model.engine,
        "version": model.version,
        "uptime_s": app.started.elapsed().as_secs_f64(),
    }))
}

async fn models(State(app): State<Arc<App>>) -> Response<Body> {
    let model = app.backend.model();
    ok_json(&json!({
        "object": "list",
        "data": [{
            "id": model.served_model_name,
            "object": "model",
            "created": app.started_unix_s,
            "owned_by": "eyas",
            "root": model.model_path,
            "parent": null,
            "max_model_len": model.context_length,
        }],
    }))
}

async fn loads(State(app): State<Arc<App>>) -> Response<Body> {
    let model = app.backend.model();
    let load = app.backend.load();
    let usage = load.token_usage(model.max_total_num_tokens);
    ok_json(&json!({
        "timestamp": unix_now().as_secs_f64(),
        "version": model.version,
        "accelerator": "cpu",
        "num_accelerators": 0,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": load.n_running,
            "num_waiting_reqs": load.n_queued,
            "num_used_tokens": load.used_tokens,
            "num_total_tokens": load.used_tokens,
            "max_total_num_tokens": model.max_total_num_tokens,
            "max_running_requests": model.max_running_requests,
            "token_usage": usage,
            "gen_throughput": load.gen_throughput,
            "cache_hit_rate": 0.0,
            "utilization": usage,
            "queues": { "waiting": load.n_queued, "grammar": 0, "paused": 0, "retracted": 0 },
        }],
    }))
}

async fn flush_cache(State(app): State<Arc<App>>) -> Response<Body> {
    let is_idle = app.registry.len() == 0;
    let words = if is_idle { "Cache flushed." } else { "Flush cache failed." };
    let mut response = Response::new(Body::from(format!(
        "{words}\nPlease check backend logs for more details. (When there are running or waiting requests, the operation \
         will not be performed.)\n"
    )));
    *response.status_mut() = if is_idle { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    response
}

async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let mut response = Response::new(Body::from(app.meters.render(app.backend.model(), &app.backend.load())));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[derive(Deserialize)]
struct StatsQuery {
    /// Whether to list every prompt with its count.
    #[serde(default)]
    prompts: bool,
}

async fn script_stats(State(app): State<Arc<App>>, Query(query): Query<StatsQuery>) -> Response<Body> {
    match app.backend.script() {
        Some(script) => json_response(StatusCode::OK, script.stats(&app.meters, query.prompts).to_json()),
        None => detail(StatusCode::NOT_FOUND, "Not Found"),
    }
}
