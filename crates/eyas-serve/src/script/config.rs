//! The script file: how long answers are, how fast they come, what goes wrong.
//!
//! TOML or JSON, every key optional, unknown keys are errors. A sample that uses most of it:
//!
//! ```toml
//! seed = 7
//! context_length = 32768
//! max_running = 64                # answers at a time; the rest waits
//! max_queued = 256                # more than that: 503 "The request queue is full."
//!
//! [lengths]                       # tokens of an answer, reasoning and stop token included
//! law = "lognormal_mixture"       # default: the law of a real reasoning run (mean 1416, median about 600, cap 10240)
//!
//! [latency]
//! model = "per_answer"
//! ttft_ms = 40
//! itl_ms = 8
//! jitter = 0.2
//!
//! [reasoning]
//! pattern = "closes"
//! share = 0.7
//!
//! [[faults]]                      # 5 % of the prompts get a 503 on their first try
//! kind = "status_503"
//! retry_after_s = 1
//! when = { share = 0.05, attempts = 1 }
//!
//! [[faults]]                      # the 200th request kills the server, which is back after two seconds
//! kind = "die"
//! when = { requests = [200] }
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A script. `Script::default()` answers at once, without faults, with lengths by the law of a real reasoning run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Same seed and same prompt: same answer, whatever the order. Default 0.
    pub seed: u64,
    /// Name under which the model is served. Default `script`.
    pub served_model_name: String,
    /// Version that `/server_info` gives. Default `eyas-<version of eyas>`.
    pub version: Option<String>,
    /// Prompt and answer together, tokens. Default 131072.
    pub context_length: u32,
    /// Number of token ids. Default 100,000; with `tokenizer` the tokenizer's.
    pub vocab_size: u32,
    /// A `tokenizer.json`: answers are made of its whole-word tokens, so that text and ids agree, and `text` prompts and
    /// `when.text` use it. Default: none; ids get made-up words.
    pub tokenizer: Option<PathBuf>,
    /// Id that ends an answer. Default: the tokenizer's `<|im_end|>`, `<|eot_id|>`, `</s>` or `<|endoftext|>`, else the last id.
    pub stop_token_id: Option<u32>,
    /// How long answers are.
    pub lengths: Lengths,
    /// How long they take.
    pub latency: Latency,
    /// Answers generated at a time. Default: no limit. With `latency.model = "capacity"` a limit beside the KV budget.
    pub max_running: Option<usize>,
    /// Answers that may wait for their turn; above it a request is refused. Default: no limit.
    pub max_queued: Option<usize>,
    /// Status of that refusal: 503 as SGLang does (default), or 429.
    pub overflow_status: u16,
    /// `Retry-After` of that refusal, seconds. Default: none.
    pub overflow_retry_after_s: Option<f64>,
    /// Every wait is multiplied by this: 0.01 plays the script a hundred times faster. Default 1.
    pub time_scale: f64,
    /// Where answers think.
    pub reasoning: Reasoning,
    /// Tokens from one event of a stream to the next. Default 16. (A real SGLang sends each token; the events are cumulative, so their
    /// bytes grow with the square of the length.)
    pub stream_interval: u32,
    /// Whether a second try of a prompt gets another answer, as real sampling would give. Default false.
    pub vary_by_attempt: bool,
    /// What an id outside the vocabulary, or an empty row of a batch, does. Default `refuse`.
    pub out_of_vocabulary: OutOfVocabulary,
    /// After a death the server is back on the same port after this many milliseconds. Default: never.
    pub down_ms: Option<u64>,
    /// Idle connections are closed after this many milliseconds. Default: never. A real SGLang closes them after 5 s.
    pub keep_alive_ms: Option<u64>,
    /// What `/health` answers in place of 200.
    pub health: Option<Health>,
    /// Whether tries are counted by prompt (12 bytes a prompt and more); `when.attempts` needs it. Default true.
    pub count_prompts: bool,
    /// Answers given word for word; the first rule that matches wins.
    pub answers: Vec<AnswerRule>,
    /// Faults; the first rule that matches wins.
    pub faults: Vec<FaultRule>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            seed: 0,
            served_model_name: "script".to_owned(),
            version: None,
            context_length: 131_072,
            vocab_size: 100_000,
            tokenizer: None,
            stop_token_id: None,
            lengths: Lengths::default(),
            latency: Latency::None,
            max_running: None,
            max_queued: None,
            overflow_status: 503,
            overflow_retry_after_s: None,
            time_scale: 1.0,
            reasoning: Reasoning::default(),
            stream_interval: 16,
            vary_by_attempt: false,
            out_of_vocabulary: OutOfVocabulary::Refuse,
            down_ms: None,
            keep_alive_ms: None,
            health: None,
            count_prompts: true,
            answers: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// Law of the answers' natural lengths, tokens, the stop token included. `max_new_tokens` cuts what is longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "law", rename_all = "snake_case")]
pub enum Lengths {
    /// Every answer has this length.
    Fixed {
        /// Tokens, at least 1.
        tokens: u32,
    },
    /// Evenly between two lengths, both included.
    Uniform {
        /// Shortest, at least 1.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// A mixture of log-normal laws.
    LognormalMixture {
        /// Weights; they are normalised.
        #[serde(default = "default_weights")]
        weights: Vec<f64>,
        /// Means of the logarithm.
        #[serde(default = "default_mu")]
        mu: Vec<f64>,
        /// Standard deviations of the logarithm.
        #[serde(default = "default_sigma")]
        sigma: Vec<f64>,
        /// Draws above it are cut to it, tokens.
        #[serde(default = "default_cap")]
        cap: u32,
    },
    /// One of these, drawn evenly by prompt.
    List {
        /// Lengths, each at least 1.
        tokens: Vec<u32>,
    },
}

impl Default for Lengths {
    fn default() -> Self {
        Self::LognormalMixture {
            weights: default_weights(),
            mu: default_mu(),
            sigma: default_sigma(),
            cap: default_cap(),
        }
    }
}

fn default_weights() -> Vec<f64> {
    vec![0.5177, 0.1181, 0.3642]
}

fn default_mu() -> Vec<f64> {
    vec![4.716, 7.443, 7.918]
}

fn default_sigma() -> Vec<f64> {
    vec![0.969, 0.157, 0.477]
}

fn default_cap() -> u32 {
    10_240
}

/// How long an answer takes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "model", rename_all = "snake_case")]
pub enum Latency {
    /// No time at all.
    #[default]
    None,
    /// `ttft_ms + itl_ms × tokens`, whatever else goes on.
    PerAnswer {
        /// To the first token, milliseconds.
        #[serde(default)]
        ttft_ms: f64,
        /// From one token to the next, milliseconds.
        #[serde(default)]
        itl_ms: f64,
        /// Spread: the time is multiplied by a log-normal factor with this deviation. Default 0.
        #[serde(default)]
        jitter: f64,
    },
    /// A server with a KV cache, a queue and a throughput that saturates.
    Capacity(CapacityModel),
}

/// What a server of a given size can do. All running answers decode at the same pace, `throughput(n) / n`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityModel {
    /// KV cache, tokens over all running answers, prompts included. When it runs over, the newest answer is put back to the front of the queue
    /// (a retraction): its tokens stay, its place is lost. Default 200,000.
    pub kv_tokens: u64,
    /// An answer is admitted while this much room is left besides its prompt, tokens. Default 256.
    pub reserve_tokens: u64,
    /// Points (answers running, tokens per second over all), ascending; straight lines between them, from (0, 0), level behind the last.
    /// Default: 60 tok/s alone, 1,500 at 64, 2,200 at 256.
    pub throughput: Vec<(f64, f64)>,
    /// What a prompt token costs, in generated tokens. Default 0.02.
    pub prefill_cost: f64,
}

impl Default for CapacityModel {
    fn default() -> Self {
        Self {
            kv_tokens: 200_000,
            reserve_tokens: 256,
            throughput: vec![(1.0, 60.0), (8.0, 420.0), (32.0, 1_150.0), (64.0, 1_500.0), (256.0, 2_200.0)],
            prefill_cost: 0.02,
        }
    }
}

/// Where answers think.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reasoning {
    /// Default `closes`.
    pub pattern: Pattern,
    /// Share of an answer's tokens that is reasoning. Default 0.7.
    pub share: f64,
    /// Id of the opening marker. Default: the tokenizer's `<think>`, else the third last id.
    pub start_id: Option<u32>,
    /// Id of the closing marker. Default: the tokenizer's `</think>`, else the second last id.
    pub end_id: Option<u32>,
    /// Text of the opening marker. Default `<think>`.
    pub start_text: String,
    /// Text of the closing marker. Default `</think>`.
    pub end_text: String,
    /// Whether the markers are special tokens, which `skip_special_tokens` takes out of the text. Default false.
    pub markers_are_special: bool,
    /// Name of the server's reasoning parser. It splits the answers of the chat route; `/generate` never splits. Default: none.
    pub parser: Option<String>,
    /// Where the chat route puts the reasoning: `reasoning_content` (SGLang, default) or `reasoning`.
    pub field: String,
}

impl Default for Reasoning {
    fn default() -> Self {
        Self {
            pattern: Pattern::default(),
            share: 0.7,
            start_id: None,
            end_id: None,
            start_text: "<think>".to_owned(),
            end_text: "</think>".to_owned(),
            markers_are_special: false,
            parser: None,
            field: "reasoning_content".to_owned(),
        }
    }
}

/// How an answer goes about its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// The prompt left the block open: reasoning, closing marker, content.
    #[default]
    Closes,
    /// The model opens the block itself: opening marker, reasoning, closing marker, content.
    OpensAndCloses,
    /// As the last marker in the prompt ids says: open → `closes`, closed → `never_thinks`, no marker → `opens_and_closes`.
    FollowsPrompt,
    /// The block stays open to the end.
    NeverCloses,
    /// Content only.
    NeverThinks,
}

/// What an id outside the vocabulary does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutOfVocabulary {
    /// 400.
    #[default]
    Refuse,
    /// The server dies, as a real SGLang does.
    Die,
}

/// An answer of `/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// HTTP status.
    pub status: u16,
    /// Body.
    #[serde(default)]
    pub body: String,
}

/// An answer given word for word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRule {
    /// For which requests. Default: all.
    #[serde(default)]
    pub when: When,
    /// The ids, stop token included.
    pub output_ids: Vec<u32>,
    /// The text. Default: the ids decoded, the stop token left out.
    #[serde(default)]
    pub text: Option<String>,
    /// Time it takes, milliseconds, in place of the latency model. Default 0.
    #[serde(default)]
    pub delay_ms: u64,
}

/// A fault and when it strikes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// What goes wrong.
    pub kind: FaultKind,
    /// When. Default: always.
    #[serde(default)]
    pub when: When,
    /// At most this many times. Default: no limit.
    #[serde(default)]
    pub times: Option<u64>,
    /// `Retry-After` header of the status faults, seconds.
    #[serde(default)]
    pub retry_after_s: Option<f64>,
    /// Words of the error, for the status faults and `abort_200`.
    #[serde(default)]
    pub message: Option<String>,
    /// What `respond` sends.
    #[serde(default)]
    pub respond: Option<Respond>,
}

/// A whole response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// HTTP status. Default 200.
    #[serde(default = "status_ok")]
    pub status: u16,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body: a string is sent as it stands, anything else as JSON. Inside it the strings `"$rid"`, `"$prompt_tokens"`, `"$prompt_ids"`, `"$attempt"` and
    /// `"$n"` stand for the request's values.
    #[serde(default)]
    pub body: serde_json::Value,
}

fn status_ok() -> u16 {
    200
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// 400 with an error object.
    #[serde(rename = "status_400")]
    Status400,
    /// 429 with an error object.
    #[serde(rename = "status_429")]
    Status429,
    /// 500 with an error object.
    #[serde(rename = "status_500")]
    Status500,
    /// 503 in the flat shape of a full queue.
    #[serde(rename = "status_503")]
    Status503,
    /// The response of `respond`.
    Respond,
    /// TCP reset before the first byte of the answer.
    Reset,
    /// TCP reset after half of the answer.
    ResetMidBody,
    /// The request is read and never answered.
    Hang,
    /// Half of the answer, then silence.
    HangMidBody,
    /// 200 with JSON that is cut in the middle, the length right.
    MalformedJson,
    /// 200 whose `Content-Length` promises more than comes.
    CutBody,
    /// 200 without a body.
    EmptyBody,
    /// 200 with a byte inside the text that is not UTF-8.
    BadUtf8,
    /// A stream ends without finish reason and `[DONE]`; without streaming, an empty body.
    StreamEnds,
    /// 200 with finish reason `abort` and half of the output, as after an abort by an operator.
    #[serde(rename = "abort_200")]
    Abort200,
    /// 200 without `output_ids`.
    MissingOutputIds,
    /// `completion_tokens` is three too many.
    WrongCounts,
    /// The think block is never closed.
    NeverClosesReasoning,
    /// Finish reason `stop` with `"matched":"NaN happened"`: the engine's word for broken logits.
    NanStop,
    /// The answer carries another request's id.
    WrongRid,
    /// The server dies: all connections close, new ones are refused, for `down_ms` or for good.
    Die,
}

/// Which requests a rule is for: every condition given must hold. Without any it is for all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Every n-th request of the server (n, 2n, …).
    pub every: Option<u64>,
    /// These requests, counted over the server's life from 1.
    pub requests: Vec<u64>,
    /// This request and all later ones.
    pub requests_from: Option<u64>,
    /// The first so many tries of a prompt.
    pub attempts: Option<u32>,
    /// This try of a prompt, from 1, and all later ones.
    pub attempts_from: Option<u32>,
    /// This share of all tries, by a seeded coin thrown for each try.
    pub probability: Option<f64>,
    /// This share of the prompts, by a seeded coin thrown once for each prompt.
    pub share: Option<f64>,
    /// Prompts that hold these ids in a row.
    pub ids: Vec<u32>,
    /// Prompts whose text holds this; needs `tokenizer`, or a text prompt or messages.
    pub text: Option<String>,
    /// Requests to this path (`/generate`, `/v1/completions`, `/v1/chat/completions`).
    pub path: Option<String>,
}

/// A script that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not the TOML of a script.
    #[error("the script is not valid: {0}")]
    Toml(#[from] toml::de::Error),
    /// Not the JSON of a script.
    #[error("the script is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// A value that makes no sense.
    #[error("the script's `{key}` {problem}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The tokenizer cannot be loaded or has too few usable tokens.
    #[error("the script's tokenizer `{path}` cannot be used: {problem}")]
    Tokenizer {
        /// Where it lies.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Script {
    /// Reads a script: JSON when it starts with `{`, else TOML.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self =
            if text.trim_start().starts_with('{') { serde_json::from_str(text)? } else { toml::from_str(text)? };
        script.check()?;
        Ok(script)
    }

    pub(crate) fn check(&self) -> Result<(), ScriptError> {
        let bad = |key, problem: &str| Err(ScriptError::Value { key, problem: problem.to_owned() });
        match &self.lengths {
            Lengths::Fixed { tokens: 0 } => return bad("lengths.tokens", "must be at least 1"),
            Lengths::Uniform { min, max } if *min == 0 || min > max => {
                return bad("lengths.min", "must be at least 1 and at most `lengths.max`");
            }
            Lengths::List { tokens } if tokens.is_empty() || tokens.contains(&0) => {
                return bad("lengths.tokens", "must hold lengths of at least 1");
            }
            Lengths::LognormalMixture { weights, mu, sigma, cap } => {
                if weights.is_empty() || weights.len() != mu.len() || mu.len() != sigma.len() {
                    return bad("lengths", "needs as many weights as mu and sigma, and at least one");
                }
                if weights.iter().any(|w| *w < 0.0) || weights.iter().sum::<f64>() <= 0.0 {
                    return bad("lengths.weights", "must not be negative, nor all zero");
                }
                if *cap == 0 {
                    return bad("lengths.cap", "must be at least 1");
                }
            }
            _ => {}
        }
        if self.longest() > super::tape::MAX_TOKENS {
            return bad("lengths", "allows answers of more than 65,536 tokens, the longest a script can give");
        }
        if let Latency::Capacity(capacity) = &self.latency {
            let ascends = capacity.throughput.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if capacity.throughput.is_empty()
                || !ascends
                || capacity.throughput.iter().any(|(n, rate)| *n <= 0.0 || *rate <= 0.0)
            {
                return bad("latency.throughput", "must hold positive points with ascending numbers of answers");
            }
        }
        if !(self.time_scale >= 0.0 && self.time_scale.is_finite()) {
            return bad("time_scale", "must be a finite number of at least 0");
        }
        if !(0.0..=1.0).contains(&self.reasoning.share) {
            return bad("reasoning.share", "must be in [0, 1]");
        }
        if self.stream_interval == 0 {
            return bad("stream_interval", "must be at least 1");
        }
        if self.vocab_size < 16 || self.context_length < 16 {
            return bad("vocab_size", "and `context_length` must be at least 16");
        }
        if ![429, 503].contains(&self.overflow_status) {
            return bad("overflow_status", "must be 429 or 503");
        }
        for fault in &self.faults {
            if (fault.kind == FaultKind::Respond) != fault.respond.is_some() {
                return bad("faults.respond", "goes with `kind = \"respond\"`, and only with it");
            }
        }
        let conditions = self.faults.iter().map(|rule| &rule.when).chain(self.answers.iter().map(|rule| &rule.when));
        for when in conditions {
            if !self.count_prompts && (when.attempts.is_some() || when.attempts_from.is_some()) {
                return bad("count_prompts", "must be on for `when.attempts`");
            }
            if when.every == Some(0) {
                return bad("when.every", "must be at least 1");
            }
        }
        Ok(())
    }

    fn longest(&self) -> u32 {
        match &self.lengths {
            Lengths::Fixed { tokens } => *tokens,
            Lengths::Uniform { max, .. } => *max,
            Lengths::LognormalMixture { cap, .. } => *cap,
            Lengths::List { tokens } => tokens.iter().copied().max().unwrap_or(1),
        }
    }
}
