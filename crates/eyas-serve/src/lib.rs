//! A small SGLang-compatible server: over the embedded target (`TargetBackend`; feature `target`, on by default), or over a script of lengths,
//! latencies and faults ([`ScriptBackend`]). It is the embedded default, and the test bench of everything that talks to a server.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use eyas_serve::{Script, ScriptBackend, Server, ServerConfig};
//! let script = Script::parse("lengths = { law = \"fixed\", tokens = 100 }")?;
//! let server = Server::start(ScriptBackend::new(script)?, ServerConfig::default()).await?;
//! println!("{}", server.url());
//! # Ok(())
//! # }
//! ```
//!
//! # The HTTP surface
//!
//! HTTP/1.1 with keep-alive, the shapes of SGLang 0.5.23.
//!
//! | route | what it does |
//! |---|---|
//! | `POST`, `PUT /generate` | one answer, an array (a list of prompts, or `n` > 1), or a stream |
//! | `POST /v1/completions` | `prompt` as text, ids, or lists of them; `return_token_ids` |
//! | `POST /v1/chat/completions` | scripts: messages and, with `reasoning.parser`, reasoning apart; a model: only with `input_ids` |
//! | `POST /abort_request` | `{"rid", "abort_all"}`; 200 with an empty body whatever it finds |
//! | `GET /health`, `/ready` | 200 while the engine works, else 503 |
//! | `GET /health_generate` | the same, proved by one generated token |
//! | `GET /model_info`, `/server_info` (and `/get_…`) | names, sizes; `version` is `eyas-…`, `engine` is `eyas-target` or `script` |
//! | `GET /v1/models`, `/v1/loads`, `/metrics` | as SGLang; metrics under the `sglang:` names that apply |
//! | any method `/flush_cache` | 200; 400 while requests are in flight |
//! | `GET /script/stats?prompts=true` | [`ScriptStats`]; 404 with a model |
//!
//! **`/generate`** takes `input_ids` (`[int]` or `[[int]]`) or `text`; `sampling_params` (one, or one for each prompt); `rid` (one, numbered
//! `rid_0`, `rid_1`, … for a batch, or a list); `stream`; `require_reasoning`; `return_prompt_token_ids`. Other top-level keys are ignored.
//! Sampling parameters have SGLang's names and defaults: **`max_new_tokens` is 128 when left out**, `null` means up to the context.
//!
//! The answer is `{"text", "output_ids", "meta_info": {"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", …}}`.
//! `output_ids` hold the stop token, or all tokens up to the one that completed a stop string; `text` is cut before the stop unless `no_stop_trim`,
//! and leaves special tokens out unless `skip_special_tokens` is false. `finish_reason` is `{"type":"stop","matched"}`, `{"type":"length","length"}` or
//! `{"type":"abort","message","status_code","err_type"}`; an abort comes with status 200 and what there is so far.
//!
//! A stream is `data: {…}` events, text and ids cumulative, the last with the finish reason, then `data: [DONE]`; a batch's events carry `index`.
//!
//! **Caps.** A prompt that fills the context, or prompt and `max_new_tokens` that together exceed it, are refused. A cap that just fits is then clipped to
//! `min(context, cache) − 1 − prompt − 1`, silently, as SGLang's scheduler does.
//!
//! **Errors** have three shapes, as there:
//!
//! | status | body | when |
//! |---|---|---|
//! | 400 | `{"error":{"message"}}` | values out of range, too long, empty, outside the vocabulary, a `rid` in use, not supported |
//! | 400 | `{"error":"…"}` | unknown sampling keys (the known ones are listed), wrong types |
//! | 400 | `{"object":"error","message","type":"Bad Request","param":null,"code":400}` | a body that is no JSON |
//! | 503 | `{"object":"error","message":"The request queue is full.",…}` | a full queue |
//! | 500 | `{"error":{"message"}}` | the engine failed |
//!
//! A client that closes its connection aborts its requests.
//!
//! **Differences from SGLang.** An id outside the vocabulary or an empty row of a batch is a 400 (there the server dies; a script can be told to). A
//! `sampling_seed` is honoured. Refused with a 400, because nothing here would honour them: log-probs, hidden states, input embeddings, `min_new_tokens`,
//! frequency and presence penalties, `logit_bias`, grammars, `stop_regex`, beams. There is no prefix cache (`cached_tokens` is 0), no LoRA, no sessions, no
//! pausing.

mod app;
mod backend;
mod connection;
mod fault;
mod generate;
mod json;
mod lifecycle;
mod meters;
mod model;
mod openai;
mod refusal;
mod registry;
mod reply;
mod request;
mod routes;
mod sampling;
pub mod script;
mod server;
#[cfg(feature = "target")]
mod target;
#[cfg(not(feature = "target"))]
#[path = "no_target.rs"]
mod target;

pub use backend::Backend;
pub use script::{Script, ScriptBackend, ScriptError, ScriptStats};
pub use server::{Server, ServerConfig, ServerHandle, StartError};
#[cfg(feature = "target")]
pub use target::{TargetBackend, TargetOptions};
