//! The engine: who is answered how, whatever else goes on.

use crate::forward::open;
use crate::tiny::Spec;
use eyas_target::{Engine, EngineConfig, Event, Finish, Finished, LlamaModel, Request, Segment, SubmitError, argmax};
use eyas_types::SamplingParams;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};

fn model() -> Arc<LlamaModel> {
    static MODEL: OnceLock<Arc<LlamaModel>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| Arc::new(open(&Spec::llama()))))
}

fn engine(stop_ids: &[u32], config: EngineConfig) -> Engine {
    Engine::start(model(), stop_ids.to_vec(), &config).unwrap()
}

fn greedy(max_new_tokens: u32) -> SamplingParams {
    SamplingParams { max_new_tokens, temperature: 0.0, ..SamplingParams::default() }
}

/// What a request's sink saw.
struct Answer {
    ids: Vec<u32>,
    finished: Finished,
}

/// Submits and returns a way to wait for the answer.
fn ask(engine: &Engine, rid: &str, prompt: &[u32], sampling: &SamplingParams) -> Result<Receiver<Answer>, SubmitError> {
    let (sender, receiver) = channel();
    let mut ids = Vec::new();
    let sink = Box::new(move |event: Event<'_>| match event {
        Event::Tokens { ids: new } => ids.extend_from_slice(new),
        Event::Finished(finished) => sender.send(Answer { ids: std::mem::take(&mut ids), finished }).unwrap(),
    });
    let request = Request { rid: rid.to_owned(), input_ids: prompt.to_vec(), sampling: sampling.clone(), sink };
    engine.submit(request).map(|()| receiver)
}

fn answer(engine: &Engine, prompt: &[u32], sampling: &SamplingParams) -> Answer {
    ask(engine, "one", prompt, sampling).unwrap().recv().unwrap()
}

fn greedy_by_hand(prompt: &[u32], n: usize) -> Vec<u32> {
    let model = model();
    let mut ids = prompt.to_vec();
    for _ in 0..n {
        let hidden = model.forward(&mut [Segment { ids: &ids, kv: &mut model.new_kv() }], &[]).unwrap();
        let logits = model.logits(&model.final_norm(&hidden.last).unwrap()).unwrap();
        let row = logits.get(ids.len() - 1).unwrap().to_vec1::<f32>().unwrap();
        ids.push(argmax(&row).unwrap().0);
    }
    ids.split_off(prompt.len())
}

fn prompt(i: u32) -> Vec<u32> {
    (0..1 + i * 7 % 40).map(|t| (t * t + i * 5 + t) % 67).collect()
}

#[test]
fn greedy_answers_are_those_of_a_full_recompute_and_end_at_the_cap() {
    let engine = engine(&[], EngineConfig::default());
    let got = answer(&engine, &[5, 6, 7], &greedy(20));
    assert_eq!(got.ids, greedy_by_hand(&[5, 6, 7], 20));
    let Finished { finish, prompt_tokens, completion_tokens, n_retractions, .. } = got.finished;
    assert_eq!((finish, prompt_tokens, completion_tokens, n_retractions), (Finish::Length, 3, 20, 0));
}

#[test]
fn stop_tokens_end_an_answer_and_belong_to_it() {
    let ids = greedy_by_hand(&[5, 6, 7], 20);
    let first_at = |id: u32| ids.iter().position(|&other| other == id).unwrap();
    let stop = ids[9];
    let cut = first_at(stop) + 1;
    let check = |model_stops: &[u32], request_stops: &[u32], ignore_eos: bool, expect: &[u32], finish: Finish| {
        let engine = engine(model_stops, EngineConfig::default());
        let sampling = SamplingParams { stop_token_ids: request_stops.to_vec(), ignore_eos, ..greedy(20) };
        let got = answer(&engine, &[5, 6, 7], &sampling);
        assert_eq!((&*got.ids, got.finished.finish), (expect, finish));
    };
    check(&[stop], &[], false, &ids[..cut], Finish::Stop { matched: stop });
    check(&[], &[stop], false, &ids[..cut], Finish::Stop { matched: stop });
    check(&[stop], &[stop], true, &ids, Finish::Length);
}

#[test]
fn many_requests_get_the_answers_each_would_get_alone() {
    let sampling = |i: u32| SamplingParams {
        max_new_tokens: 5 + i % 11,
        temperature: if i.is_multiple_of(3) { 0.0 } else { 0.9 },
        top_p: if i % 3 == 1 { 0.8 } else { 1.0 },
        seed: Some(u64::from(i)),
        ..SamplingParams::default()
    };
    let small = EngineConfig { max_running: 1, ..EngineConfig::default() };
    let alone = engine(&[2, 3], small);
    let crowd = engine(&[2, 3], EngineConfig { max_running: 7, max_prefill_tokens: 16, ..EngineConfig::default() });
    let waiting: Vec<_> = (0..40).map(|i| ask(&crowd, &i.to_string(), &prompt(i), &sampling(i)).unwrap()).collect();
    for (i, waiting) in (0..).zip(waiting) {
        let (got, want) = (waiting.recv().unwrap(), answer(&alone, &prompt(i), &sampling(i)));
        assert_eq!(got.ids, want.ids, "request {i}");
        assert_eq!(got.finished.finish, want.finished.finish);
        assert_eq!(got.finished.completion_tokens as usize, got.ids.len());
    }
    let stats = crowd.stats();
    assert_eq!((stats.running, stats.waiting, stats.finished), (0, 0, 40));
    assert_eq!(stats.kv_tokens, 0);
}

#[test]
fn a_crowded_cache_sends_requests_back_and_loses_nothing() {
    let roomy = engine(&[], EngineConfig::default());
    // Room for a context of 64 and a bit: about two requests at a time, which then grow.
    let tight = EngineConfig { context_len: Some(64), max_total_tokens: Some(80), ..EngineConfig::default() };
    let crowded = engine(&[], tight);
    let sampling =
        SamplingParams { seed: Some(9), ..SamplingParams { max_new_tokens: 50, ..SamplingParams::default() } };
    let waiting: Vec<_> = (0..6).map(|i| ask(&crowded, &i.to_string(), &[i, 1, 2], &sampling).unwrap()).collect();
    let mut n_retractions = 0;
    for (i, waiting) in (0..).zip(waiting) {
        let got = waiting.recv().unwrap();
        n_retractions += got.finished.n_retractions;
        assert_eq!(got.ids, answer(&roomy, &[i, 1, 2], &sampling).ids);
    }
    assert!(n_retractions > 0);
    assert_eq!(crowded.stats().retractions, u64::from(n_retractions));
}

#[test]
fn a_request_without_a_seed_is_told_the_one_that_was_drawn() {
    let engine = engine(&[], EngineConfig::default());
    let sampling = SamplingParams { max_new_tokens: 30, ..SamplingParams::default() };
    let (first, second) = (answer(&engine, &[1], &sampling), answer(&engine, &[1], &sampling));
    assert_ne!(first.ids, second.ids);
    let again = SamplingParams { seed: Some(first.finished.seed), ..sampling };
    assert_eq!(answer(&engine, &[1], &again).ids, first.ids);
}

#[test]
fn aborts_end_the_running_and_the_waiting_with_what_they_have() {
    let engine = engine(&[], EngineConfig { max_running: 1, ..EngineConfig::default() });
    let (tokens_seen, first_token) = channel();
    let (ended, running_end) = channel();
    let sink = Box::new(move |event: Event<'_>| match event {
        Event::Tokens { .. } => tokens_seen.send(()).unwrap_or_default(),
        Event::Finished(finished) => ended.send(finished).unwrap(),
    });
    let request = Request { rid: "running".into(), input_ids: vec![1], sampling: greedy(250), sink };
    engine.submit(request).unwrap();
    first_token.recv().unwrap();
    let waiting = ask(&engine, "waiting", &[2], &greedy(5)).unwrap();
    let last = ask(&engine, "last", &[2], &greedy(5)).unwrap();
    engine.abort("nobody");
    engine.abort("waiting");
    let end = waiting.recv().unwrap();
    let by_caller = Finish::Abort { message: "the request was aborted".into() };
    assert_eq!((end.ids.len(), &end.finished.finish), (0, &by_caller));
    engine.abort("running");
    let end = running_end.recv().unwrap();
    assert_eq!(end.finish, by_caller);
    assert!(end.completion_tokens >= 1);
    assert_eq!(last.recv().unwrap().finished.finish, Finish::Length);

    let left: Vec<_> = (0..3).map(|i| ask(&engine, &i.to_string(), &[1], &greedy(250)).unwrap()).collect();
    engine.abort_all();
    for left in left {
        let message = "all requests were aborted".into();
        assert_eq!(left.recv().unwrap().finished.finish, Finish::Abort { message });
    }
    let dropped = ask(&engine, "dropped", &[1], &greedy(250)).unwrap();
    drop(engine);
    let message = "the engine is shutting down".into();
    assert_eq!(dropped.recv().unwrap().finished.finish, Finish::Abort { message });
}

#[test]
fn unusable_requests_are_refused_with_what_is_wrong() {
    let config = EngineConfig { max_running: 1, max_waiting: 1, context_len: Some(32), ..EngineConfig::default() };
    let engine = engine(&[], config);
    let check = |prompt: &[u32], sampling: SamplingParams, expect: &str| {
        assert_eq!(ask(&engine, "x", prompt, &sampling).err().unwrap().to_string(), expect);
    };
    check(&[], greedy(1), "`input_ids` is empty");
    check(&[0, 67], greedy(1), "token id 67 at position 1 is outside the vocabulary of 67");
    check(&[0; 32], greedy(1), "the prompt has 32 tokens, the context holds 32: no room for an answer");
    check(&[0; 30], greedy(3), "prompt (30 tokens) and max_new_tokens (3) make 33, the context holds 32");
    let hot = SamplingParams { temperature: -1.0, ..greedy(1) };
    check(&[0], hot, "temperature must be a finite number of at least 0, got -1");
    assert_eq!(engine.stats().finished, 0);

    // The sink holds the thread, so that the others stay where they are.
    let (go, held) = channel::<()>();
    let sink = Box::new(move |_: Event<'_>| held.recv().unwrap_or_default());
    engine.submit(Request { rid: "held".into(), input_ids: vec![1], sampling: greedy(2), sink }).unwrap();
    let waiting = ask(&engine, "waiting", &[1], &greedy(2)).unwrap();
    assert_eq!(ask(&engine, "held", &[1], &greedy(1)).err(), Some(SubmitError::DuplicateRid { rid: "held".into() }));
    assert_eq!(ask(&engine, "more", &[1], &greedy(1)).err(), Some(SubmitError::QueueFull { waiting: 1, limit: 1 }));
    drop(go);
    assert_eq!(waiting.recv().unwrap().finished.finish, Finish::Length);
    answer(&engine, &[1], &greedy(1));
}
