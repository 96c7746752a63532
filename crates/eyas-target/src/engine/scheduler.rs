//! The engine's thread: who is answered in the next step, and what becomes of the step's tokens.

use super::stats::SharedStats;
use super::{Event, Finish, Finished, Limits, LiveRequests, Request, Sink};
use crate::kv::KvCache;
use crate::linear::with_values;
use crate::llama::{ForwardError, LlamaModel, Segment};
use crate::sampler::{NotFinite, Sampler};
use candle_core::{Device, Tensor};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Free cache tokens for each running request without which no further one is let in: room to go on for a while before anyone must step back.
const HEADROOM_TOKENS: usize = 16;

/// What the callers ask of the thread.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Box<Admitted>),
    Abort(String),
    AbortAll,
    Stop,
}

/// A request that was found usable.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) request: Request,
    pub(crate) seed: u64,
    pub(crate) submitted: Instant,
}

pub(crate) struct Scheduler {
    model: Arc<LlamaModel>,
    stop_ids: Vec<u32>,
    limits: Limits,
    live: Arc<LiveRequests>,
    stats: Arc<SharedStats>,
    waiting: VecDeque<Answer>,
    /// In the order of admission: the last one is the first to step back.
    running: Vec<Answer>,
}

/// A request on its way.
struct Answer {
    rid: String,
    sink: Sink,
    /// Prompt, then what was drawn.
    ids: Vec<u32>,
    n_prompt: usize,
    max_new_tokens: usize,
    /// Ids that end it.
    stop_ids: Vec<u32>,
    kv: KvCache,
    sampler: Sampler,
    seed: u64,
    n_retractions: u32,
    submitted: Instant,
    queued: Option<Duration>,
}

impl Answer {
    fn new(admitted: Admitted, model_stop_ids: &[u32], kv: KvCache) -> Self {
        let Admitted { request: Request { rid, input_ids, sampling, sink }, seed, submitted } = admitted;
        let stop_ids = match sampling.ignore_eos {
            true => Vec::new(),
            false => sampling.stop_token_ids.iter().chain(model_stop_ids).copied().collect(),
        };
        Self {
            rid,
            sink,
            n_prompt: input_ids.len(),
            ids: input_ids,
            max_new_tokens: sampling.max_new_tokens as usize,
            stop_ids,
            kv,
            sampler: Sampler::new(&sampling, seed),
            seed,
            n_retractions: 0,
            submitted,
            queued: None,
        }
    }

    fn n_new(&self) -> usize {
        self.ids.len() - self.n_prompt
    }

    /// Tokens that the cache does not hold yet.
    fn n_pending(&self) -> usize {
        self.ids.len() - self.kv.len()
    }

    /// Takes in a drawn token and says whether it was the last.
    fn push(&mut self, id: u32) -> Option<Finish> {
        self.ids.push(id);
        (self.sink)(Event::Tokens { ids: &[id] });
        if self.stop_ids.contains(&id) {
            Some(Finish::Stop { matched: id })
        } else {
            (self.n_new() >= self.max_new_tokens).then_some(Finish::Length)
        }
    }
}

impl Scheduler {
    pub(crate) fn new(
        model: Arc<LlamaModel>,
        stop_ids: Vec<u32>,
        limits: Limits,
        live: Arc<LiveRequests>,
        stats: Arc<SharedStats>,
    ) -> Self {
        Self { model, stop_ids, limits, live, stats, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Works until told to stop or until all handles are gone.
    pub(crate) fn run(mut self, inbox: &Receiver<Command>) {
        while self.take_commands(inbox).is_continue() {
            self.admit();
            self.retract();
            self.step();
            self.publish();
        }
        self.abort_where("the engine is shutting down", |_| true);
        self.publish();
    }

    /// Takes what lies in the inbox; waits for something when there is nothing to do.
    fn take_commands(&mut self, inbox: &Receiver<Command>) -> ControlFlow<()> {
        loop {
            let idle = self.running.is_empty() && self.waiting.is_empty();
            let command = if idle {
                self.publish();
                let command = inbox.recv().map_err(|_| TryRecvError::Disconnected);
                self.stats.restart_window();
                command
            } else {
                inbox.try_recv()
            };
            match command {
                Ok(Command::Submit(admitted)) => {
                    let kv = self.model.new_kv();
                    self.waiting.push_back(Answer::new(*admitted, &self.stop_ids, kv));
                }
                Ok(Command::Abort(rid)) => self.abort_where("the request was aborted", |answer| answer.rid == rid),
                Ok(Command::AbortAll) => self.abort_where("all requests were aborted", |_| true),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
            }
        }
    }

    /// Lets waiting requests in while there are places and cache space.
    fn admit(&mut self) {
        while self.running.len() < self.limits.max_running {
            let Some(next) = self.waiting.front() else { return };
            let headroom = HEADROOM_TOKENS * (self.running.len() + 1);
            let fits = self.n_committed() + next.ids.len() + headroom <= self.limits.max_total_tokens;
            if !(fits || self.running.is_empty()) {
                return;
            }
            if let Some(mut answer) = self.waiting.pop_front() {
                answer.queued.get_or_insert_with(|| answer.submitted.elapsed());
                self.running.push(answer);
            }
        }
    }

    /// Cache tokens the running requests take once all their tokens are computed.
    fn n_committed(&self) -> usize {
        self.running.iter().map(|answer| answer.ids.len()).sum()
    }

    /// Sends the youngest back to the queue until the next step has room. One alone always has: its whole length was checked.
    fn retract(&mut self) {
        while self.running.len() > 1 && self.n_committed() > self.limits.max_total_tokens {
            if let Some(mut answer) = self.running.pop() {
                answer.kv.truncate(0);
                answer.n_retractions += 1;
                self.waiting.push_front(answer);
                self.stats.update(|stats| stats.retractions += 1);
            }
        }
    }

    /// One step of the model, and what follows from its tokens.
    fn step(&mut self) {
        let takes = self.plan();
        if takes.iter().all(|&take| take == 0) {
            return;
        }
        match self.forward(&takes) {
            Ok(drawn) => {
                let n_prompt: usize = takes.iter().sum::<usize>() - drawn.len();
                self.deliver(drawn);
                self.stats.update(|stats| {
                    stats.steps += 1;
                    stats.prompt_tokens += n_prompt as u64;
                });
            }
            Err(error) => {
                let message = chain(&error);
                self.abort_where(&message, |answer| answer.queued.is_some() && answer.n_pending() > 0);
            }
        }
    }

    /// How many tokens of each running request go into the step: the one drawn last, or a piece of the prompt, the oldest first.
    fn plan(&self) -> Vec<usize> {
        let mut left = self.limits.max_prefill_tokens;
        let take = |answer: &Answer| match answer.n_pending() {
            1 => 1,
            pending => {
                let piece = pending.min(left);
                left -= piece;
                piece
            }
        };
        self.running.iter().map(take).collect()
    }

    /// Runs the step and draws a token for each request that is now computed to its end: (index in `running`, token).
    fn forward(&mut self, takes: &[usize]) -> Result<Vec<(usize, Drawn)>, ForwardError> {
        let mut segments = Vec::new();
        let mut row = 0;
        let (mut rows, mut complete) = (Vec::new(), Vec::new());
        for (idx, (answer, &take)) in self.running.iter_mut().zip(takes).enumerate().filter(|(_, (_, take))| **take > 0)
        {
            let from = answer.kv.len();
            row += take;
            if from + take == answer.ids.len() {
                rows.push(saturating_u32(row - 1));
                complete.push(idx);
            }
            segments.push(Segment { ids: &answer.ids[from..from + take], kv: &mut answer.kv });
        }
        let hidden = self.model.forward(&mut segments, &[])?;
        if complete.is_empty() {
            return Ok(Vec::new());
        }
        let rows = Tensor::from_vec(rows, complete.len(), &Device::Cpu)?;
        let normed = self.model.final_norm(&hidden.last.index_select(&rows, 0)?)?;
        let logits = self.model.logits(&normed)?;
        let vocab_size = self.limits.vocab_size;
        let draw = |logits: &[f32]| {
            let rows = complete.iter().zip(logits.chunks_exact(vocab_size));
            rows.map(|(&idx, logits)| (idx, self.running[idx].sampler.draw(logits))).collect()
        };
        Ok(with_values(&logits, draw)?)
    }

    /// Hands the tokens to their requests and ends those that are done.
    fn deliver(&mut self, drawn: Vec<(usize, Drawn)>) {
        let mut n_generated = 0;
        // From the back, so that taking a request out leaves the indices before it.
        for (idx, drawn) in drawn.into_iter().rev() {
            let finish = match drawn {
                Ok(id) => {
                    n_generated += 1;
                    self.running[idx].push(id)
                }
                Err(not_finite) => Some(Finish::Abort { message: not_finite.to_string() }),
            };
            if let Some(finish) = finish {
                let answer = self.running.remove(idx);
                self.finish(answer, finish);
            }
        }
        self.stats.update(|stats| stats.generated_tokens += n_generated);
    }

    /// Gives up the requests that `is_meant` picks, waiting and running.
    fn abort_where(&mut self, message: &str, is_meant: impl Fn(&Answer) -> bool) {
        let mut meant: Vec<Answer> = self.running.extract_if(.., |answer| is_meant(answer)).collect();
        let (waiting, kept) = self.waiting.drain(..).partition(|answer| is_meant(answer));
        self.waiting = kept;
        meant.extend::<VecDeque<_>>(waiting);
        for answer in meant {
            self.finish(answer, Finish::Abort { message: message.to_owned() });
        }
    }

    /// The last event of a request. Its name is free from here on, its cache goes back to the pool.
    fn finish(&mut self, mut answer: Answer, finish: Finish) {
        let is_abort = matches!(finish, Finish::Abort { .. });
        let finished = Finished {
            finish,
            prompt_tokens: saturating_u32(answer.n_prompt),
            completion_tokens: saturating_u32(answer.n_new()),
            seed: answer.seed,
            n_retractions: answer.n_retractions,
            queued: answer.queued.unwrap_or_default(),
            elapsed: answer.submitted.elapsed(),
        };
        self.live.lock().remove(&answer.rid);
        self.stats.update(|stats| *(if is_abort { &mut stats.aborted } else { &mut stats.finished }) += 1);
        (answer.sink)(Event::Finished(finished));
    }

    fn publish(&self) {
        let kv_tokens = self.running.iter().map(|answer| answer.kv.len()).sum();
        self.stats.update(|stats| {
            stats.running = self.running.len();
            stats.kv_tokens = kv_tokens;
        });
        self.stats.roll_window();
    }
}

type Drawn = Result<u32, NotFinite>;

fn saturating_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// An error with what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
