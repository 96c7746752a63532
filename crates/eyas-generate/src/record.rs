//! From an answer to a line of `raw_responses.jsonl`.

use crate::split::{SplitInput, SplitOutput, Splitter};
use eyas_client::{Answer, Protocol};
use eyas_prompts::reasoning::ReasoningMode;
use eyas_types::{
    Failed, FailedAttempt, FinishReason, Flag, Message, Prompt, Response, Role, Schema, Status, ThinkState,
};
use std::sync::Arc;

/// What all records of a run have in common.
pub(crate) struct Recorder {
    pub(crate) splitter: Arc<dyn Splitter>,
    pub(crate) reasoning: ReasoningMode,
    pub(crate) fingerprint: String,
}

/// An answer as a line, and what the dispatcher needs to know of it.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) line: Vec<u8>,
    pub(crate) sample_id: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Reasoning is expected of this answer.
    pub(crate) expects_reasoning: bool,
    /// It has reasoning, and that was closed or cut by the cap: an answer that ends by itself inside the think block of its prompt is that
    /// of a model that knows nothing of the block.
    pub(crate) has_reasoning: bool,
    pub(crate) truncated: bool,
    /// Whole, with content, and without markup of an unknown format in it.
    pub(crate) usable: bool,
}

impl Recorder {
    /// Takes the answer apart and writes the record out.
    pub(crate) fn record(
        &self,
        prompt: Prompt,
        answer: Answer,
        protocol: Protocol,
        endpoint: &str,
        attempt: u32,
    ) -> Landed {
        let expect = match (self.reasoning, prompt.think) {
            (ReasoningMode::Auto, ThinkState::Open) => ReasoningMode::Expected,
            (mode, _) => mode,
        };
        let split = self.split(&answer, prompt.think, expect, protocol);
        let response = response(prompt, answer, split, self.fingerprint.clone(), endpoint, attempt);
        let is = |flag: Flag| response.flags.contains(&flag);
        let truncated = response.status == Status::Truncated;
        Landed {
            line: json_line(&response, response.content.len() + response.reasoning.len()),
            prompt_tokens: response.usage.prompt_tokens,
            completion_tokens: response.usage.completion_tokens,
            expects_reasoning: expect == ReasoningMode::Expected,
            has_reasoning: !response.reasoning.trim().is_empty() && !is(Flag::UnclosedReasoning),
            truncated,
            usable: !truncated && !is(Flag::EmptyContent) && !is(Flag::UnparsedMarkup),
            sample_id: response.sample_id,
        }
    }

    fn split(&self, answer: &Answer, think: ThinkState, expect: ReasoningMode, protocol: Protocol) -> SplitOutput {
        let input = SplitInput {
            think,
            expect,
            output_ids: answer.output_ids.as_deref(),
            text: &answer.text,
            finish: &answer.finish,
        };
        match (&answer.output_ids, &answer.reasoning_text) {
            (Some(_), _) => self.splitter.split(&input),
            (None, Some(reasoning)) => self.split_by_server(input, reasoning),
            (None, None) => {
                let split = self.splitter.split(&input);
                // A chat server with a parser takes the end marker away. Without a marker, an answer that ended by itself is what the
                // server says it is: content.
                if protocol == Protocol::OpenaiChat && split.flags.contains(&Flag::UnclosedReasoning) {
                    return self.splitter.split(&SplitInput { think: ThinkState::Undecided, ..input });
                }
                split
            }
        }
    }

    /// The server has taken the reasoning out already. What may be left in the content (calls, foreign markup) is still looked for.
    fn split_by_server(&self, input: SplitInput<'_>, reasoning: &str) -> SplitOutput {
        let content = SplitInput { think: ThinkState::Undecided, expect: ReasoningMode::Auto, ..input };
        let mut split = self.splitter.split(&content);
        if split.reasoning.is_empty() {
            split.reasoning = reasoning.to_owned();
        } else {
            split.reasoning = format!("{reasoning}\n{}", split.reasoning);
            split.flags.push(Flag::ExtraThink);
        }
        if input.expect == ReasoningMode::Off || input.think == ThinkState::Closed {
            split.flags.push(Flag::UnexpectedReasoning);
        }
        let cut = matches!(input.finish, FinishReason::Length { .. });
        if cut && split.content.is_empty() && split.tool_calls.is_empty() {
            split.flags.push(Flag::TruncatedInReasoning);
        }
        split
    }
}

fn response(
    prompt: Prompt,
    answer: Answer,
    split: SplitOutput,
    fingerprint: String,
    endpoint: &str,
    attempt: u32,
) -> Response {
    let mut flags = split.flags;
    let mut usage = answer.usage;
    match &answer.output_ids {
        Some(ids) => {
            if usage.completion_tokens != ids.len() as u64 {
                flags.push(Flag::UsageMismatch);
            }
            usage.reasoning_tokens = split.spans.map(|spans| u64::from(spans.reasoning.len()));
        }
        None => flags.push(Flag::NoIds),
    }
    let tool_calls = if split.tool_calls.is_empty() { answer.tool_calls } else { split.tool_calls };
    if !tool_calls.is_empty() {
        flags.retain(|flag| *flag != Flag::EmptyContent);
    }
    flags.sort_unstable();
    flags.dedup();
    Response {
        schema: Schema::RESPONSE,
        sample_id: prompt.sample_id,
        dataset: prompt.dataset,
        turn: turn_of(&prompt.messages),
        messages: prompt.messages,
        tools: prompt.tools,
        reasoning: split.reasoning,
        content: split.content,
        tool_calls,
        finish_reason: answer.finish.as_str().to_owned(),
        status: if matches!(answer.finish, FinishReason::Length { .. }) { Status::Truncated } else { Status::Complete },
        finish: answer.finish,
        usage,
        prompt_ids: prompt.prompt_ids,
        output_ids: answer.output_ids,
        spans: split.spans,
        think: prompt.think,
        flags,
        fingerprint,
        endpoint: endpoint.to_owned(),
        attempt,
        timing: answer.timing,
        reference: prompt.reference,
    }
}

/// A prompt given up, as a line of `failed.jsonl`.
pub(crate) fn failed_line(prompt: Prompt, fingerprint: &str, permanent: bool, attempts: Vec<FailedAttempt>) -> Vec<u8> {
    let failed = Failed {
        schema: Schema::FAILED,
        turn: turn_of(&prompt.messages),
        sample_id: prompt.sample_id,
        dataset: prompt.dataset,
        fingerprint: fingerprint.to_owned(),
        permanent,
        attempts,
    };
    json_line(&failed, 0)
}

/// Which assistant turn is generated, from 0.
fn turn_of(messages: &[Message]) -> u32 {
    let n_answers = messages.iter().filter(|message| message.role == Role::Assistant).count();
    u32::try_from(n_answers).unwrap_or(u32::MAX)
}

#[expect(clippy::expect_used, reason = "records are made of strings, numbers and JSON values")]
fn json_line(record: &impl serde::Serialize, n_text_bytes: usize) -> Vec<u8> {
    let mut line = Vec::with_capacity(n_text_bytes * 3 + 2_048);
    serde_json::to_writer(&mut line, record).expect("records serialise into memory");
    line
}
