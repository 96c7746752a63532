//! The model behind the server: requests go to the engine's thread, tokens come back through a shared buffer, text is made here.

use crate::backend::{Backend, Generation, Kind, Load, Started};
use crate::json::Json;
use crate::model::ModelInfo;
use crate::refusal::Refusal;
use crate::registry::lock;
use crate::reply::{Meta, Rendered};
use crate::request::{Job, new_rid};
use axum::http::StatusCode;
use eyas_target::{Engine, EngineConfig, Event, Finish, Request, SubmitError, Target};
use eyas_types::{FinishReason, Matched, SamplingParams};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokenizers::Tokenizer;
use tokio::sync::Notify;

/// How a target is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetOptions {
    /// Limits of the engine.
    pub engine: EngineConfig,
    /// Where the model lies; shown in `/model_info`.
    pub model_path: String,
    /// Name under which it is served. Default: the last part of `model_path`.
    pub served_model_name: Option<String>,
}

/// A loaded target with its engine running.
pub struct TargetBackend {
    engine: Arc<Engine>,
    tokenizer: Arc<Tokenizer>,
    model: ModelInfo,
    is_stopped: Arc<AtomicBool>,
}

impl std::fmt::Debug for TargetBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetBackend").field("model", &self.model).finish_non_exhaustive()
    }
}

impl From<TargetBackend> for Backend {
    fn from(target: TargetBackend) -> Self {
        Self(Kind::Target(Box::new(target)))
    }
}

impl TargetBackend {
    /// Starts the engine's thread.
    pub fn start(target: Target, options: &TargetOptions) -> std::io::Result<Self> {
        let config = target.model.config().clone();
        let identity = target.identity;
        let engine = Engine::start(Arc::new(target.model), target.eos_token_ids, &options.engine)?;
        let stats = engine.stats();
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let last_part = options.model_path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let model = ModelInfo {
            model_path: options.model_path.clone(),
            served_model_name: options.served_model_name.clone().unwrap_or_else(|| last_part.to_owned()),
            tokenizer_path: target.tokenizer_json.map(|path| path.display().to_string()),
            model_type: config.architecture.model_type().to_owned(),
            architecture: identity.architecture,
            engine: "eyas-target",
            version: format!("eyas-{}", env!("CARGO_PKG_VERSION")),
            dtype: identity.weight_mode,
            vocab_size: small(stats.vocab_size),
            context_length: small(stats.context_len),
            max_total_num_tokens: stats.max_total_tokens as u64,
            max_running_requests: Some(stats.max_running),
            max_queued_requests: (options.engine.max_waiting < usize::MAX).then_some(options.engine.max_waiting),
            reasoning_parser: None,
            honours_seed: true,
            weight_version: "default".to_owned(),
        };
        Ok(Self { engine: Arc::new(engine), tokenizer: Arc::new(target.tokenizer), model, is_stopped: Arc::default() })
    }

    pub(crate) fn model(&self) -> &ModelInfo {
        &self.model
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn load(&self) -> Load {
        let stats = self.engine.stats();
        Load {
            n_running: stats.running,
            n_queued: stats.waiting,
            used_tokens: stats.kv_tokens as u64,
            gen_throughput: if stats.running == 0 { 0.0 } else { stats.gen_throughput },
            n_retractions: stats.retractions,
        }
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        match self.tokenizer.encode(text, true) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(Refusal::bad_value(format!("the text cannot be tokenized: {error}"))),
        }
    }

    pub(crate) fn start_job(&self, job: &Job) -> Result<Started, Refusal> {
        if job.out_of_vocabulary.is_some() || job.input_ids.is_empty() {
            return Err(self.model.impossible(job));
        }
        let shared = Arc::new(Shared::default());
        // A name of its own: the caller may use its rid again while the engine still clears up after a client that left.
        let rid = new_rid();
        if job.max_new_tokens == 0 {
            lock(&shared.state).end = Some(End { finish: Finish::Length, n_retractions: 0 });
        } else {
            let request = Request {
                rid: rid.clone(),
                input_ids: job.input_ids.clone(),
                sampling: sampling(job),
                sink: sink(Arc::clone(&shared), Arc::clone(&self.is_stopped)),
            };
            if let Err(error) = self.engine.submit(request) {
                return Err(self.refusal(error));
            }
        }
        let generation = TargetGeneration {
            engine: Arc::clone(&self.engine),
            rid,
            shared,
            text: Text::new(Arc::clone(&self.tokenizer), job),
            finish: None,
            n_retractions: 0,
            max_new_tokens: job.max_new_tokens,
            stop: job.sampling.stop.clone(),
            no_stop_trim: job.sampling.no_stop_trim,
        };
        Ok(Started { generation: Generation::Target(Box::new(generation)), wire_fault: None })
    }

    fn refusal(&self, error: SubmitError) -> Refusal {
        match error {
            SubmitError::QueueFull { .. } => Refusal::queue_full(),
            SubmitError::Stopped => {
                self.is_stopped.store(true, Ordering::Relaxed);
                Refusal::object(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            // Checked before in the server's own words; the engine has the last one.
            _ => Refusal::bad_value(error.to_string()),
        }
    }
}

fn sampling(job: &Job) -> SamplingParams {
    #[expect(clippy::cast_possible_truncation, reason = "the engine samples in f32")]
    let single = |value: f64| value as f32;
    let asked = &job.sampling;
    // Answers to one prompt differ, with a seed too.
    let seed = asked.sampling_seed.map(|seed| seed.cast_unsigned().wrapping_add(u64::from(job.nth)));
    SamplingParams {
        max_new_tokens: job.max_new_tokens,
        temperature: single(asked.temperature),
        top_p: single(asked.top_p),
        top_k: i32::try_from(asked.top_k).unwrap_or(i32::MAX),
        min_p: single(asked.min_p),
        repetition_penalty: single(asked.repetition_penalty),
        stop_token_ids: asked.stop_token_ids.clone(),
        seed,
        ignore_eos: asked.ignore_eos,
    }
}

/// What the engine's thread leaves for the request's task.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Arrived>,
    changed: Notify,
    /// Whether the task wants to hear of every step, or only of the end.
    wants_steps: AtomicBool,
}

#[derive(Debug, Default)]
struct Arrived {
    ids: Vec<u32>,
    end: Option<End>,
}

#[derive(Debug)]
struct End {
    finish: Finish,
    n_retractions: u32,
}

/// The engine's way to a request. When the engine drops it before the end, the request ends too.
struct SinkGuard {
    shared: Arc<Shared>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for SinkGuard {
    fn drop(&mut self) {
        let mut arrived = lock(&self.shared.state);
        if arrived.end.is_none() {
            arrived.end =
                Some(End { finish: Finish::Abort { message: "the engine has stopped".to_owned() }, n_retractions: 0 });
            self.is_stopped.store(true, Ordering::Relaxed);
            self.shared.changed.notify_one();
        }
    }
}

fn sink(shared: Arc<Shared>, is_stopped: Arc<AtomicBool>) -> eyas_target::Sink {
    let guard = SinkGuard { shared, is_stopped };
    Box::new(move |event| {
        let shared = &guard.shared;
        match event {
            Event::Tokens { ids } => {
                lock(&shared.state).ids.extend_from_slice(ids);
                if shared.wants_steps.load(Ordering::Relaxed) {
                    shared.changed.notify_one();
                }
            }
            Event::Finished(finished) => {
                let n_retractions = finished.n_retractions;
                lock(&shared.state).end = Some(End { finish: finished.finish, n_retractions });
                shared.changed.notify_one();
            }
        }
    })
}

/// One answer of the model under way. Dropping it before the end aborts it.
pub(crate) struct TargetGeneration {
    engine: Arc<Engine>,
    /// The engine's name for it.
    rid: String,
    shared: Arc<Shared>,
    text: Text,
    finish: Option<FinishReason>,
    n_retractions: u64,
    max_new_tokens: u32,
    stop: Vec<String>,
    no_stop_trim: bool,
}

impl TargetGeneration {
    /// See [`Generation::run`].
    pub(crate) async fn run(&mut self, whole: bool) -> Result<Option<FinishReason>, Refusal> {
        self.shared.wants_steps.store(!whole || !self.stop.is_empty(), Ordering::Relaxed);
        loop {
            let (ids, end) = {
                let mut arrived = lock(&self.shared.state);
                (std::mem::take(&mut arrived.ids), arrived.end.take())
            };
            if self.take_in(&ids) {
                self.engine.abort(&self.rid);
                return Ok(self.finish.clone());
            }
            if let Some(end) = end {
                return self.end(end).map(Some);
            }
            if !whole && !ids.is_empty() {
                if self.stop.is_empty() {
                    self.text.step();
                }
                return Ok(None);
            }
            self.shared.changed.notified().await;
        }
    }

    /// Adds new ids; `true` when a stop string has come up, which ends the answer with the token that completed it.
    fn take_in(&mut self, ids: &[u32]) -> bool {
        if self.stop.is_empty() {
            self.text.ids.extend_from_slice(ids);
            return false;
        }
        for id in ids {
            let n_before = self.text.settled.len();
            self.text.ids.push(*id);
            self.text.step();
            if let Some((at, which)) = self.text.find(&self.stop, n_before) {
                let stop = &self.stop[which];
                let end = if self.no_stop_trim { at + stop.len() } else { at };
                self.text.last = Some(self.text.settled[..end].to_owned());
                self.finish = Some(FinishReason::Stop { matched: Some(Matched::Text(stop.clone())) });
                return true;
            }
        }
        false
    }

    fn end(&mut self, end: End) -> Result<FinishReason, Refusal> {
        self.n_retractions = u64::from(end.n_retractions);
        let finish = match end.finish {
            Finish::Stop { matched } => FinishReason::Stop { matched: Some(Matched::Token(matched)) },
            Finish::Length => FinishReason::Length { length: Some(u64::from(self.max_new_tokens)) },
            Finish::Abort { message } => {
                self.finish = Some(FinishReason::Abort { message: message.clone(), status_code: Some(500) });
                return Err(Refusal::object(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
        };
        let has_stop = matches!(finish, FinishReason::Stop { .. });
        self.text.end(has_stop && !self.no_stop_trim);
        self.finish = Some(finish.clone());
        Ok(finish)
    }

    /// See [`Generation::abort`].
    pub(crate) fn abort(&mut self) -> FinishReason {
        let ids = std::mem::take(&mut lock(&self.shared.state).ids);
        if !self.take_in(&ids) {
            self.text.end(false);
        }
        self.engine.abort(&self.rid);
        let message = if self.text.ids.is_empty() { "Abort in waiting queue" } else { "Aborted" };
        let finish = FinishReason::Abort { message: message.to_owned(), status_code: None };
        self.finish = Some(finish.clone());
        finish
    }

    pub(crate) fn text(&self) -> String {
        self.text.shown()
    }

    pub(crate) fn ids(&self) -> &[u32] {
        &self.text.ids
    }
}

impl Drop for TargetGeneration {
    fn drop(&mut self) {
        if self.finish.is_none() {
            self.engine.abort(&self.rid);
        }
    }
}

impl Rendered for TargetGeneration {
    fn write_output(&self, out: &mut Json) {
        out.raw("\"text\":").value(&self.text.shown());
        out.raw(",\"output_ids\":[").ids(&self.text.ids).raw("]");
    }

    fn n_tokens(&self) -> usize {
        self.text.ids.len()
    }

    fn meta(&self) -> Meta {
        Meta { num_retractions: self.n_retractions, ..Meta::default() }
    }
}

/// Ids and the text they make.
struct Text {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    ids: Vec<u32>,
    /// Text that no later token changes: of `ids[..read]`.
    settled: String,
    /// Text behind it that ends in the middle of a character.
    tail: String,
    /// Ids from here on are decoded again, so that a token sees the one before it.
    prefix: usize,
    read: usize,
    /// The text of the ended answer.
    last: Option<String>,
}

impl Text {
    fn new(tokenizer: Arc<Tokenizer>, job: &Job) -> Self {
        Self {
            tokenizer,
            skip_special: job.sampling.skip_special_tokens,
            ids: Vec::new(),
            settled: String::new(),
            tail: String::new(),
            prefix: 0,
            read: 0,
            last: None,
        }
    }

    fn decode(&self, ids: &[u32]) -> String {
        // Every id is below the vocabulary size; one the tokenizer does not know has no text.
        self.tokenizer.decode(ids, self.skip_special).unwrap_or_default()
    }

    /// Takes the ids that are new into the text.
    fn step(&mut self) {
        let before = self.decode(&self.ids[self.prefix..self.read]);
        let after = self.decode(&self.ids[self.prefix..]);
        let new = after.strip_prefix(before.as_str()).unwrap_or_default();
        if new.ends_with('\u{fffd}') {
            new.clone_into(&mut self.tail);
            return;
        }
        self.settled.push_str(new);
        self.tail.clear();
        (self.prefix, self.read) = (self.read, self.ids.len());
    }

    /// Where the first stop string begins that ends behind `from`.
    fn find(&self, stops: &[String], from: usize) -> Option<(usize, usize)> {
        let hits = stops.iter().enumerate().filter_map(|(n, stop)| {
            let mut start = from.saturating_sub(stop.len());
            while !self.settled.is_char_boundary(start) {
                start -= 1;
            }
            Some((start + self.settled[start..].find(stop.as_str())?, n))
        });
        hits.min()
    }

    /// Fixes the text: all ids at once, the last left out when it is a stop token.
    fn end(&mut self, drops_last: bool) {
        let n = self.ids.len() - usize::from(drops_last && !self.ids.is_empty());
        self.last = Some(self.decode(&self.ids[..n]));
    }

    fn shown(&self) -> String {
        self.last.clone().unwrap_or_else(|| format!("{}{}", self.settled, self.tail))
    }
}
