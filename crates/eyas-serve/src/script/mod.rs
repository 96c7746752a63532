//! Script mode: a server without a model, for tests, for benches, and for trying eyas out.
//!
//! The same prompt gets the same answer, whatever the order and the number of tries. `GET /script/stats` says what was asked.
//! [`Script`] describes the file.

mod answer;
mod capacity;
mod config;
mod draw;
mod rules;
mod stats;
mod tape;

pub(crate) use answer::ScriptGeneration;
pub use config::{
    AnswerRule, CapacityModel, FaultKind, FaultRule, Health, Latency, Lengths, OutOfVocabulary, Pattern, Reasoning,
    Respond, Script, ScriptError, When,
};
pub use stats::ScriptStats;

use crate::backend::{Generation, Load, Started};
use crate::fault::WireFault;
use crate::meters::{Meters, get};
use crate::model::ModelInfo;
use crate::refusal::Refusal;
use crate::registry::lock;
use crate::request::Job;
use answer::{Outline, Pace};
use axum::http::StatusCode;
use capacity::Capacity;
use draw::Draw;
use rules::Seen;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tape::{Tape, made_up_word};
use tokenizers::Tokenizer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The name of a prompt in [`ScriptStats::prompts`]: xxh3-64 of its ids as little-endian bytes.
pub fn prompt_hash(input_ids: &[u32]) -> u64 {
    let mut bytes = Vec::with_capacity(input_ids.len() * 4);
    for id in input_ids {
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// What answers are made from.
pub(crate) struct Cast {
    pub(crate) script: Script,
    tape: Tape,
    tokenizer: Option<Tokenizer>,
    stop_id: u32,
    start_id: u32,
    end_id: u32,
}

impl Cast {
    /// Id and text of a reasoning marker.
    fn marker(&self, is_start: bool) -> (u32, &str) {
        if is_start {
            (self.start_id, &self.script.reasoning.start_text)
        } else {
            (self.end_id, &self.script.reasoning.end_text)
        }
    }

    fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        if let Some(tokenizer) = &self.tokenizer
            && let Ok(text) = tokenizer.decode(ids, skip_special)
        {
            return text;
        }
        ids.iter()
            .map(|id| match *id {
                id if id == self.start_id => self.script.reasoning.start_text.clone(),
                id if id == self.end_id => self.script.reasoning.end_text.clone(),
                id if id == self.stop_id && skip_special => String::new(),
                id => made_up_word(id),
            })
            .collect()
    }
}

/// A script, ready to be served.
pub struct ScriptBackend {
    cast: Arc<Cast>,
    model: ModelInfo,
    capacity: Option<Arc<Capacity>>,
    places: Arc<Places>,
    n_requests: AtomicU64,
    n_overflowed: AtomicU64,
    tries: Mutex<HashMap<u64, u32>>,
    struck: Mutex<BTreeMap<FaultKind, u64>>,
    struck_by_rule: Vec<AtomicU64>,
}

impl std::fmt::Debug for ScriptBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptBackend").field("script", &self.cast.script).finish_non_exhaustive()
    }
}

impl ScriptBackend {
    /// Checks the script and writes its tape.
    pub fn new(mut script: Script) -> Result<Self, ScriptError> {
        script.check()?;
        let tokenizer = script.tokenizer.as_deref().map(load_tokenizer).transpose()?;
        if let Some(tokenizer) = &tokenizer {
            script.vocab_size = u32::try_from(tokenizer.get_vocab_size(true)).unwrap_or(u32::MAX);
        }
        let named = |name: &str| tokenizer.as_ref().and_then(|tokenizer| tokenizer.token_to_id(name));
        let last = script.vocab_size - 1;
        let stop_names = ["<|im_end|>", "<|eot_id|>", "</s>", "<|endoftext|>"];
        let stop_id = script.stop_token_id.or_else(|| stop_names.into_iter().find_map(named)).unwrap_or(last);
        let reasoning = &script.reasoning;
        let end_id = reasoning.end_id.or_else(|| named(&reasoning.end_text)).unwrap_or(last - 1);
        let start_id = reasoning.start_id.or_else(|| named(&reasoning.start_text)).unwrap_or(last - 2);
        let words = match (&tokenizer, &script.tokenizer) {
            (Some(tokenizer), Some(path)) => words_of(tokenizer, path, &[stop_id, start_id, end_id])?,
            _ => (0..script.vocab_size)
                .filter(|id| ![stop_id, start_id, end_id].contains(id))
                .map(|id| (id, made_up_word(id)))
                .collect(),
        };
        let capacity = match &script.latency {
            Latency::Capacity(model) => {
                Some(Arc::new(Capacity::new(model.clone(), script.max_running, script.max_queued, script.time_scale)))
            }
            _ => None,
        };
        Ok(Self {
            model: model_info(&script),
            capacity,
            places: Arc::new(Places::new(script.max_running, script.max_queued)),
            n_requests: AtomicU64::new(0),
            n_overflowed: AtomicU64::new(0),
            tries: Mutex::default(),
            struck: Mutex::default(),
            struck_by_rule: script.faults.iter().map(|_| AtomicU64::new(0)).collect(),
            cast: Arc::new(Cast { tape: Tape::new(script.seed, &words), script, tokenizer, stop_id, start_id, end_id }),
        })
    }

    pub(crate) fn model(&self) -> &ModelInfo {
        &self.model
    }

    pub(crate) fn script(&self) -> &Script {
        &self.cast.script
    }

    pub(crate) fn keep_alive(&self) -> Option<Duration> {
        self.script().keep_alive_ms.map(Duration::from_millis)
    }

    pub(crate) fn down(&self) -> Option<Duration> {
        self.script().down_ms.map(Duration::from_millis)
    }

    pub(crate) fn health(&self) -> Option<(u16, String)> {
        self.script().health.as_ref().map(|health| (health.status, health.body.clone()))
    }

    pub(crate) fn driver(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        Some(Arc::clone(self.capacity.as_ref()?).drive())
    }

    /// Ids of a text: the tokenizer's, or one made-up id for each word.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        if let Some(tokenizer) = &self.cast.tokenizer
            && let Ok(encoding) = tokenizer.encode(text, true)
        {
            return encoding.get_ids().to_vec();
        }
        text.split_whitespace()
            .map(|word| Draw::new(0, xxhash_rust::xxh3::xxh3_64(word.as_bytes()), 3).below(self.model.vocab_size - 3))
            .collect()
    }

    pub(crate) fn load(&self) -> Load {
        match &self.capacity {
            Some(capacity) => capacity.load(),
            None => Load {
                n_running: self.places.n_running.load(Ordering::Relaxed),
                n_queued: self.places.n_waiting.load(Ordering::Relaxed),
                ..Load::default()
            },
        }
    }

    /// What was counted.
    pub(crate) fn stats(&self, meters: &Meters, with_prompts: bool) -> ScriptStats {
        let by_prompt = lock(&self.tries);
        let mut tries = BTreeMap::new();
        for n in by_prompt.values() {
            *tries.entry(*n).or_default() += 1;
        }
        ScriptStats {
            schema: "eyas.script_stats/1",
            requests: get(&self.n_requests),
            answered: get(&meters.n_answered),
            aborted: get(&meters.n_aborted),
            disconnected: get(&meters.n_disconnected),
            in_flight: get(&meters.in_flight),
            max_in_flight: get(&meters.max_in_flight),
            overflowed: get(&self.n_overflowed),
            prompt_tokens: get(&meters.prompt_tokens),
            completion_tokens: get(&meters.generation_tokens),
            faults: lock(&self.struck).clone(),
            distinct_prompts: by_prompt.len() as u64,
            tries,
            prompts: with_prompts.then(|| by_prompt.iter().map(|(hash, n)| (format!("{hash:016x}"), *n)).collect()),
        }
    }

    /// Begins an answer, or the fault in its place.
    pub(crate) fn start(&self, job: &Arc<Job>, path: &str) -> Result<Started, Refusal> {
        let n = self.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
        let hash = prompt_hash(&job.input_ids);
        let attempt = if self.script().count_prompts {
            let mut tries = lock(&self.tries);
            let count = tries.entry(hash).or_default();
            *count += 1;
            *count
        } else {
            1
        };
        if job.out_of_vocabulary.is_some() || job.input_ids.is_empty() {
            return self.start_impossible(job);
        }
        let needs_text = |when: &When| when.text.is_some();
        let needs_text = self.script().faults.iter().any(|rule| needs_text(&rule.when))
            || self.script().answers.iter().any(|rule| needs_text(&rule.when));
        let decoded = match (&job.text, needs_text) {
            (None, true) if self.cast.tokenizer.is_some() => Some(self.cast.decode(&job.input_ids, false)),
            _ => None,
        };
        let seen = Seen {
            seed: self.script().seed,
            n,
            attempt,
            hash,
            rid: &job.rid,
            input_ids: &job.input_ids,
            text: job.text.as_deref().or(decoded.as_deref()),
            path,
        };
        let fault = self.fault_for(&seen);
        let wire_fault = fault.and_then(|rule| rule.wire_fault(&seen));
        if let Some(fault) = wire_fault.clone().filter(WireFault::is_immediate) {
            return Ok(self.nothing_but(job, fault));
        }
        let (outline, delay) = self.outline(job, &seen, fault.map(|rule| rule.kind));
        let fault = fault.map(|rule| (rule.kind, rule.message.clone()));
        let generation =
            ScriptGeneration::new(&self.cast, job, outline, fault, |n_total| self.pace(job, &seen, n_total, delay))?;
        Ok(Started { generation: Generation::Script(Box::new(generation)), wire_fault })
    }

    /// An id outside the vocabulary or an empty prompt.
    fn start_impossible(&self, job: &Arc<Job>) -> Result<Started, Refusal> {
        match self.script().out_of_vocabulary {
            OutOfVocabulary::Die => {
                *lock(&self.struck).entry(FaultKind::Die).or_default() += 1;
                Ok(self.nothing_but(job, WireFault::Die))
            }
            OutOfVocabulary::Refuse => Err(self.model.impossible(job)),
        }
    }

    fn nothing_but(&self, job: &Arc<Job>, fault: WireFault) -> Started {
        let outline = Outline { pieces: Vec::new(), text: None, matched: None };
        let instant = |_| Ok::<_, std::convert::Infallible>(Pace::Instant);
        let Ok(generation) = ScriptGeneration::new(&self.cast, job, outline, None, instant);
        Started { generation: Generation::Script(Box::new(generation)), wire_fault: Some(fault) }
    }

    /// The first rule that matches and has times left.
    fn fault_for(&self, seen: &Seen<'_>) -> Option<&FaultRule> {
        let (_, rule) = self.script().faults.iter().enumerate().find(|(n, rule)| {
            rule.when.matches(seen, *n)
                && self.struck_by_rule[*n]
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |struck| {
                        rule.times.is_none_or(|times| struck < times).then_some(struck + 1)
                    })
                    .is_ok()
        })?;
        *lock(&self.struck).entry(rule.kind).or_default() += 1;
        Some(rule)
    }

    fn outline(&self, job: &Job, seen: &Seen<'_>, fault: Option<FaultKind>) -> (Outline, Option<Duration>) {
        let given = self.script().answers.iter().enumerate().find(|(n, rule)| rule.when.matches(seen, 10_000 + n));
        if let Some((_, rule)) = given {
            let outline = Outline::given(&self.cast, job, &rule.output_ids, rule.text.as_deref());
            return (outline, Some(Duration::from_millis(rule.delay_ms)));
        }
        let pattern = match self.script().reasoning.pattern {
            _ if fault == Some(FaultKind::NeverClosesReasoning) => Pattern::NeverCloses,
            Pattern::FollowsPrompt => self.pattern_of(seen.input_ids),
            pattern => pattern,
        };
        let mut key = seen.hash ^ u64::from(job.nth).rotate_left(32);
        if self.script().vary_by_attempt {
            key ^= u64::from(seen.attempt).rotate_left(48);
        }
        (Outline::draw(&self.cast, job, key, pattern), None)
    }

    /// The last marker in the prompt decides.
    fn pattern_of(&self, input_ids: &[u32]) -> Pattern {
        let markers = [self.cast.start_id, self.cast.end_id];
        match input_ids.iter().rev().find(|id| markers.contains(id)) {
            None => Pattern::OpensAndCloses,
            Some(id) if *id == self.cast.start_id => Pattern::Closes,
            Some(_) => Pattern::NeverThinks,
        }
    }

    fn pace(&self, job: &Job, seen: &Seen<'_>, n_total: usize, delay: Option<Duration>) -> Result<Pace, Refusal> {
        let script = self.script();
        let scaled = |ms: f64| Duration::from_secs_f64((ms * script.time_scale / 1e3).clamp(0.0, 1e9));
        let full = || {
            self.n_overflowed.fetch_add(1, Ordering::Relaxed);
            match script.overflow_status {
                429 => Refusal::object(StatusCode::TOO_MANY_REQUESTS, "Too many requests."),
                _ => Refusal::queue_full(),
            }
            .retry_after(script.overflow_retry_after_s)
        };
        let timed = |ttft, itl| {
            let place = self.places.take().ok_or_else(full)?;
            Ok(Pace::Timed { place, begun: None, ttft, itl })
        };
        match (&script.latency, delay) {
            (_, Some(delay)) => timed(scaled(delay.as_secs_f64() * 1e3), Duration::ZERO),
            (Latency::None, None) if script.max_running.is_none() => Ok(Pace::Instant),
            (Latency::None, None) => timed(Duration::ZERO, Duration::ZERO),
            (Latency::PerAnswer { ttft_ms, itl_ms, jitter }, None) => {
                let key = seen.hash ^ u64::from(seen.attempt).rotate_left(40);
                let factor = (jitter * Draw::new(script.seed, key, 2).normal()).exp();
                timed(scaled(ttft_ms * factor), scaled(itl_ms * factor))
            }
            (Latency::Capacity(_), None) => match &self.capacity {
                Some(capacity) => {
                    capacity.submit(job.input_ids.len(), n_total).map(Pace::Capacity).map_err(|capacity::Full| full())
                }
                None => Ok(Pace::Instant),
            },
        }
    }
}

/// Places for answers at a time, and a queue before them.
#[derive(Debug)]
struct Places {
    limit: Option<Arc<Semaphore>>,
    max_queued: usize,
    n_running: AtomicUsize,
    n_waiting: AtomicUsize,
}

impl Places {
    fn new(max_running: Option<usize>, max_queued: Option<usize>) -> Self {
        Self {
            limit: max_running.map(|n| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)))),
            max_queued: max_queued.unwrap_or(usize::MAX),
            n_running: AtomicUsize::new(0),
            n_waiting: AtomicUsize::new(0),
        }
    }

    /// A place, at once or in the queue; `None` when the queue is full.
    fn take(self: &Arc<Self>) -> Option<Place> {
        let permit = match &self.limit {
            None => Some(None),
            Some(limit) => Arc::clone(limit).try_acquire_owned().ok().map(Some),
        };
        let is_running = permit.is_some();
        if is_running {
            self.n_running.fetch_add(1, Ordering::Relaxed);
        } else if self.n_waiting.fetch_add(1, Ordering::Relaxed) >= self.max_queued {
            self.n_waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Place { places: Arc::clone(self), is_running, permit: permit.flatten() })
    }
}

/// A place among the running, or in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    is_running: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Waits for the turn.
    async fn begin(&mut self) {
        if self.is_running {
            return;
        }
        if let Some(limit) = &self.places.limit {
            // The semaphore is never closed; were it, there would be no limit to wait for.
            self.permit = Arc::clone(limit).acquire_owned().await.ok();
        }
        self.is_running = true;
        self.places.n_waiting.fetch_sub(1, Ordering::Relaxed);
        self.places.n_running.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let counter = if self.is_running { &self.places.n_running } else { &self.places.n_waiting };
        counter.fetch_sub(1, Ordering::Relaxed);
        self.permit.take();
    }
}

fn model_info(script: &Script) -> ModelInfo {
    let max_total_num_tokens = match &script.latency {
        Latency::Capacity(model) => model.kv_tokens,
        _ => u64::from(script.context_length) * script.max_running.unwrap_or(256) as u64,
    };
    ModelInfo {
        model_path: script.served_model_name.clone(),
        served_model_name: script.served_model_name.clone(),
        tokenizer_path: script.tokenizer.as_ref().map(|path| path.display().to_string()),
        model_type: "script".to_owned(),
        architecture: "EyasScript".to_owned(),
        engine: "script",
        version: script.version.clone().unwrap_or_else(|| format!("eyas-{}", env!("CARGO_PKG_VERSION"))),
        dtype: "none".to_owned(),
        vocab_size: script.vocab_size,
        context_length: script.context_length,
        max_total_num_tokens,
        max_running_requests: script.max_running,
        max_queued_requests: script.max_queued,
        reasoning_parser: script.reasoning.parser.clone(),
        honours_seed: true,
        weight_version: "default".to_owned(),
    }
}

fn load_tokenizer(path: &Path) -> Result<Tokenizer, ScriptError> {
    Tokenizer::from_file(path)
        .map_err(|error| ScriptError::Tokenizer { path: path.to_owned(), problem: error.to_string() })
}

/// Tokens that are a blank and letters: decoded one by one they give the same text as together. With too few of them, letters alone.
fn words_of(tokenizer: &Tokenizer, path: &Path, markers: &[u32]) -> Result<Vec<(u32, String)>, ScriptError> {
    let n_ids = u32::try_from(tokenizer.get_vocab_size(true)).unwrap_or(u32::MAX);
    let words = |needs_blank: bool| -> Vec<(u32, String)> {
        (0..n_ids)
            .filter(|id| !markers.contains(id))
            .filter_map(|id| Some((id, tokenizer.decode(&[id], true).ok()?)))
            .filter(|(_, text)| {
                let letters = text.strip_prefix(' ').unwrap_or(if needs_blank { "" } else { text });
                !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
            })
            .collect()
    };
    let mut found = words(true);
    if found.len() < 64 {
        found = words(false);
    }
    if found.is_empty() {
        let problem = "no token decodes to plain letters".to_owned();
        return Err(ScriptError::Tokenizer { path: path.to_owned(), problem });
    }
    Ok(found)
}
