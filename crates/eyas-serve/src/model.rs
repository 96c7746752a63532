//! What the server says about the model it serves.

use crate::refusal::Refusal;
use crate::request::Job;

/// The served model in numbers and names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelInfo {
    pub(crate) model_path: String,
    pub(crate) served_model_name: String,
    pub(crate) tokenizer_path: Option<String>,
    pub(crate) model_type: String,
    pub(crate) architecture: String,
    pub(crate) engine: &'static str,
    pub(crate) version: String,
    pub(crate) dtype: String,
    pub(crate) vocab_size: u32,
    /// Tokens of prompt and answer together.
    pub(crate) context_length: u32,
    /// Tokens of KV cache over all requests.
    pub(crate) max_total_num_tokens: u64,
    pub(crate) max_running_requests: Option<usize>,
    pub(crate) max_queued_requests: Option<usize>,
    pub(crate) reasoning_parser: Option<String>,
    /// Whether the same `sampling_seed` gives the same answer.
    pub(crate) honours_seed: bool,
    pub(crate) weight_version: String,
}

impl ModelInfo {
    /// Longest prompt the scheduler takes, tokens.
    pub(crate) fn max_req_input_len(&self) -> u64 {
        self.max_req_len().saturating_sub(5)
    }

    fn max_req_len(&self) -> u64 {
        u64::from(self.context_length).min(self.max_total_num_tokens).saturating_sub(1)
    }

    /// The refusal of a prompt that no model can take: empty, or with an id it does not have.
    pub(crate) fn impossible(&self, job: &Job) -> Refusal {
        Refusal::bad_value(match job.out_of_vocabulary {
            Some(id) => format!("Token id {id} is out of vocabulary: the model has {} ids.", self.vocab_size),
            None => "input_ids cannot be empty.".to_owned(),
        })
    }

    /// The cap that holds for an answer to a prompt of `n_input` tokens: two refusals first, then SGLang's silent clip.
    pub(crate) fn cap(&self, n_input: usize, asked: Option<i64>) -> Result<u32, Refusal> {
        let context = u64::from(self.context_length);
        let n_input = n_input as u64;
        if n_input >= context {
            return Err(Refusal::bad_value(format!(
                "The input ({n_input} tokens) is longer than the model's context length ({context} tokens)."
            )));
        }
        let asked = asked.map(|n| u64::try_from(n).unwrap_or(0));
        if let Some(n_asked) = asked
            && n_input + n_asked > context
        {
            return Err(Refusal::bad_value(format!(
                "Requested token count exceeds the model's maximum context length of {context} tokens. You requested a \
                 total of {} tokens: {n_input} tokens from the input messages and {n_asked} tokens for the completion. \
                 Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
                n_input + n_asked
            )));
        }
        let max_input = self.max_req_input_len();
        if n_input > max_input {
            return Err(Refusal::bad_value(format!(
                "Input length ({n_input} tokens) exceeds the maximum allowed length ({max_input} tokens). Use a shorter \
                 input or enable --allow-auto-truncate."
            )));
        }
        let room = self.max_req_len().saturating_sub(n_input + 1);
        Ok(u32::try_from(asked.unwrap_or(room).min(room)).unwrap_or(u32::MAX))
    }
}
