//! Prompts, plans and what is left on disk.

use eyas_generate::{
    Cancel, DatasetPlan, Endpoint, EndpointPlan, Event, FormatSplitter, GeneratePlan, OpenError, Outcome, Protocol,
    Retries, Run, SplitInput, SplitOutput, Splitter,
};
use eyas_prompts::reasoning::ReasoningFormat;
use eyas_prompts::tokenizer::Tokenizer;
use eyas_testkit::mock::MockServer;
use eyas_types::{
    Failed, FingerprintInputs, FinishReason, Message, Prompt, Response, Role, SamplingParams, Schema, Source, Span,
    Spans, ThinkState,
};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A prompt as ChatML in the ids of the tiny tokenizer, where an id below 256 is a byte.
pub(crate) fn prompt(id: &str, text: &str, think: ThinkState) -> Prompt {
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let mut prompt_ids = vec![275];
    prompt_ids.extend(bytes(&format!("user\n{text}")));
    prompt_ids.extend([276, 10, 275]);
    prompt_ids.extend(bytes("assistant\n"));
    match think {
        ThinkState::Open => prompt_ids.extend([277, 10]),
        ThinkState::Closed => prompt_ids.extend([277, 266, 278, 266]),
        ThinkState::Undecided => {}
    }
    Prompt {
        schema: Schema::PROMPT,
        sample_id: id.to_owned(),
        dataset: "set".to_owned(),
        source: Source { file: "test".to_owned(), row: 1 },
        messages: vec![Message::text(Role::User, text)],
        tools: None,
        prompt_ids,
        think,
        reference: None,
        repairs: Vec::new(),
    }
}

/// The rows of a case's `.jsonl`.
pub(crate) fn case_prompts(rows: &[Value], think: ThinkState) -> Vec<Prompt> {
    let text = |row: &Value| row["messages"][0]["content"].as_str().unwrap().to_owned();
    rows.iter().map(|row| prompt(row["id"].as_str().unwrap(), &text(row), think)).collect()
}

/// `n` numbered prompts.
pub(crate) fn numbered(n: usize) -> Vec<Prompt> {
    (0..n).map(|n| prompt(&format!("p{n:04}"), &format!("<{n:04}>"), ThinkState::Undecided)).collect()
}

pub(crate) fn write_prompts(dir: &Path, prompts: &[Prompt]) {
    let lines: Vec<String> = prompts.iter().map(|prompt| serde_json::to_string(prompt).unwrap() + "\n").collect();
    eyas_testkit::write_file(dir.join("prompts.jsonl"), lines.concat());
}

/// Settings that everything in these tests shares.
pub(crate) fn fingerprint() -> FingerprintInputs {
    let mut inputs = FingerprintInputs::default();
    inputs.set("target", "tiny");
    inputs.set("sampling.temperature", 1.0);
    inputs
}

/// A plan over one data set in `dir` and one server, with short pauses.
pub(crate) fn plan(dir: &Path, url: &str, slots: u32) -> GeneratePlan {
    plan_for(dir, url, slots, Protocol::SglangGenerate, |_| {})
}

pub(crate) fn plan_for(
    dir: &Path,
    url: &str,
    slots: u32,
    protocol: Protocol,
    set: impl FnOnce(&mut Endpoint),
) -> GeneratePlan {
    let mut endpoint = Endpoint::new(url, protocol).unwrap();
    set(&mut endpoint);
    let mut plan = GeneratePlan::new(SamplingParams::default(), Arc::new(ByteSplitter), fingerprint());
    plan.datasets.push(DatasetPlan::in_dir("set", dir));
    plan.endpoints.push(EndpointPlan { endpoint: Arc::new(endpoint), slots });
    plan.retries =
        Retries { base_pause: Duration::from_millis(5), max_pause: Duration::from_millis(40), ..Retries::default() };
    plan
}

/// Opens and executes; the events as text.
pub(crate) async fn run(plan: GeneratePlan) -> (Outcome, Vec<String>) {
    try_run(plan).await.unwrap()
}

pub(crate) async fn try_run(plan: GeneratePlan) -> Result<(Outcome, Vec<String>), OpenError> {
    let mut events = Vec::new();
    let outcome = Run::open(plan)?.execute(Cancel::new(), |event| events.push(words(&event))).await?;
    Ok((outcome, events))
}

/// An event in a line.
pub(crate) fn words(event: &Event<'_>) -> String {
    match event {
        Event::Answered { sample_id, .. } => format!("answered {sample_id}"),
        Event::Failed { sample_id, class, permanent, .. } => format!("failed {sample_id} {class} {permanent}"),
        Event::Retrying { sample_id, class, attempt, .. } => format!("retrying {sample_id} {class} {attempt}"),
        Event::EndpointDown { .. } => "down".to_owned(),
        Event::EndpointUp { .. } => "up".to_owned(),
        Event::Warning(warning) => format!("warning: {warning}"),
        Event::Draining { in_flight } => format!("draining {in_flight}"),
        Event::Started(_) => "started".to_owned(),
        Event::Progress(_) => "progress".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn responses(dir: &Path) -> Vec<Response> {
    lines(&dir.join("raw_responses.jsonl"))
}

pub(crate) fn failures(dir: &Path) -> Vec<Failed> {
    lines(&dir.join("failed.jsonl"))
}

fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "{} has a torn end", path.display());
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Ids of all answers, sorted.
pub(crate) fn answered_ids(dir: &Path) -> Vec<String> {
    let mut ids: Vec<_> = responses(dir).into_iter().map(|response| response.sample_id).collect();
    ids.sort();
    ids
}

/// The splitter of the tiny tokenizer and the named format.
pub(crate) fn tiny_splitter(case: &eyas_testkit::SharedCase, format: &str) -> Arc<dyn Splitter> {
    let tokenizer = Tokenizer::from_file(&case.common("tiny_tok/tokenizer.json")).unwrap();
    let format = ReasoningFormat::named(format, Some(&tokenizer)).unwrap();
    Arc::new(FormatSplitter::new(format, Arc::new(tokenizer)))
}

/// Ids below 256 are bytes; all of it is content.
pub(crate) struct ByteSplitter;

impl Splitter for ByteSplitter {
    fn split(&self, input: &SplitInput<'_>) -> SplitOutput {
        let Some(ids) = input.output_ids else {
            return SplitOutput { content: input.text.to_owned(), ..SplitOutput::default() };
        };
        let n_stop = usize::from(matches!(input.finish, FinishReason::Stop { .. }) && ids.last() >= Some(&256));
        let at = |n: usize| u32::try_from(n).unwrap();
        let body = &ids[..ids.len() - n_stop];
        let bytes: Vec<u8> = body.iter().map(|&id| u8::try_from(id).unwrap_or(b'?')).collect();
        let spans = Spans {
            content: Span::new(0, at(body.len())),
            stop: Span::new(at(body.len()), at(ids.len())),
            ..Spans::default()
        };
        SplitOutput {
            spans: Some(spans),
            content: String::from_utf8_lossy(&bytes).into_owned(),
            ..SplitOutput::default()
        }
    }
}

/// A server that answers everything with `text`, rules first.
pub(crate) fn server(rules: Value, text: &str) -> MockServer {
    MockServer::start(serde_json::json!({"rules": rules, "default": {"type": "ok", "text": text}}))
}
