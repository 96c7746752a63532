//! What goes into the engine and what comes out of it.

use eyas_types::SamplingParams;
use std::time::Duration;

/// Where a request's events go. Called on the engine's thread between two steps: hand over and return, a slow sink slows every request.
pub type Sink = Box<dyn FnMut(Event<'_>) + Send>;

/// One prompt to answer.
pub struct Request {
    /// The caller's name for it; unique among the requests that are not finished.
    pub rid: String,
    /// The prompt: at least one id, every id below the vocabulary size.
    pub input_ids: Vec<u32>,
    /// How tokens are drawn. `stop_token_ids` join the model's own end tokens; `ignore_eos` turns both off, as in SGLang.
    pub sampling: SamplingParams,
    /// Receives [`Event::Tokens`] any number of times, then [`Event::Finished`] once. Not called at all when the submission is refused.
    pub sink: Sink,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rid, input_ids, sampling, sink: _ } = self;
        f.debug_struct("Request")
            .field("rid", rid)
            .field("n_input_ids", &input_ids.len())
            .field("sampling", sampling)
            .finish_non_exhaustive()
    }
}

/// Something that happened to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// New tokens, in order, the stop token included. At present one a step.
    Tokens {
        /// The ids that are new since the last event.
        ids: &'a [u32],
    },
    /// The request is over; nothing follows, and its `rid` may be used again.
    Finished(Finished),
}

/// How a request ended, and its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated, the stop token included; the sum over all [`Event::Tokens`].
    pub completion_tokens: u32,
    /// The seed that was used: the request's, or the one the engine drew. Asking again with it repeats the answer.
    pub seed: u64,
    /// How often the request lost its place to others for want of cache space and was computed again.
    pub n_retractions: u32,
    /// From submission to the first step that worked on it; zero when there was none.
    pub queued: Duration,
    /// From submission to the end.
    pub elapsed: Duration,
}

/// Why a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// A stop token came up; it is the last of the ids.
    Stop {
        /// Its id.
        matched: u32,
    },
    /// `max_new_tokens` were generated.
    Length,
    /// It was given up: [`super::Engine::abort`], an engine shutting down, or a failed step.
    Abort {
        /// Why.
        message: String,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// There is nothing to continue.
    #[error("`input_ids` is empty")]
    EmptyPrompt,
    /// An id that the model has no embedding for.
    #[error("token id {id} at position {position} is outside the vocabulary of {vocab_size}")]
    TokenOutOfVocabulary {
        /// The id.
        id: u32,
        /// Its index in `input_ids`.
        position: usize,
        /// Ids must be below this.
        vocab_size: usize,
    },
    /// The prompt alone fills the context.
    #[error("the prompt has {prompt_tokens} tokens, the context holds {context_len}: no room for an answer")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens the context holds.
        context_len: usize,
    },
    /// The prompt and the longest allowed answer together do not fit.
    #[error(
        "prompt ({prompt_tokens} tokens) and max_new_tokens ({max_new_tokens}) make {total_tokens}, the context holds {context_len}"
    )]
    TotalTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// The cap that was asked for.
        max_new_tokens: usize,
        /// Their sum.
        total_tokens: usize,
        /// Tokens the context holds.
        context_len: usize,
    },
    /// A request of this name is waiting or running.
    #[error("a request named `{rid}` is already waiting or running")]
    DuplicateRid {
        /// The name.
        rid: String,
    },
    /// Too many requests wait.
    #[error("the request queue is full: {waiting} requests wait, the limit is {limit}")]
    QueueFull {
        /// Requests waiting.
        waiting: usize,
        /// [`super::EngineConfig::max_waiting`].
        limit: usize,
    },
    /// A sampling value is out of range.
    #[error("{problem}")]
    InvalidSampling {
        /// Which, and what it may be.
        problem: String,
    },
    /// The engine is shutting down.
    #[error("the engine has stopped")]
    Stopped,
}
