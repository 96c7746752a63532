//! A server of limited size, played event by event: a KV budget, a queue, and a throughput that bends.
//!
//! All running answers decode at the same pace, so one number says how far each of them is: the tokens an answer would have made had it run from the
//! start (`served`). An answer admitted at `served = a` that wants `n` tokens ends at `served = a + n`; the next event is the smallest such value, or the
//! one at which the KV cache runs over. Everything between events is arithmetic.

use super::config::CapacityModel;
use crate::backend::Load;
use crate::registry::lock;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// The server's size and what goes on in it.
#[derive(Debug)]
pub(crate) struct Capacity {
    model: CapacityModel,
    max_running: usize,
    max_queued: usize,
    /// Real seconds for one second of the model.
    time_scale: f64,
    origin: Instant,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Model time of the last update, seconds.
    now_s: f64,
    served: f64,
    next_id: u64,
    /// (`served` at the end as bits, id): positive floats sort like their bits.
    running: BTreeSet<(u64, u64)>,
    queue: VecDeque<u64>,
    jobs: HashMap<u64, CapacityJob>,
    /// Over the running ones: tokens held at admission.
    held: f64,
    /// Over the running ones: `served` at which their decoding begins.
    begins: f64,
    n_retractions: u64,
}

#[derive(Debug)]
struct CapacityJob {
    n_prompt: f64,
    n_total: f64,
    /// Tokens made before a retraction.
    done: f64,
    /// `served` at which decoding begins; only while running.
    begin: f64,
    place: Place,
    n_retractions: u64,
    changed: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Queued,
    Running { ends: u64 },
    Finished,
}

/// The queue is full.
#[derive(Debug)]
pub(crate) struct Full;

impl Capacity {
    pub(crate) fn new(
        model: CapacityModel,
        max_running: Option<usize>,
        max_queued: Option<usize>,
        time_scale: f64,
    ) -> Self {
        Self {
            model,
            max_running: max_running.unwrap_or(usize::MAX),
            max_queued: max_queued.unwrap_or(usize::MAX),
            time_scale: time_scale.max(1e-6),
            origin: Instant::now(),
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Queues an answer of `n_total` tokens.
    pub(crate) fn submit(self: &Arc<Self>, n_prompt: usize, n_total: usize) -> Result<CapacityTicket, Full> {
        let mut state = lock(&self.state);
        self.advance(&mut state);
        let id = state.next_id;
        state.next_id += 1;
        let changed = Arc::new(Notify::new());
        state.jobs.insert(
            id,
            CapacityJob {
                n_prompt: n_prompt as f64,
                n_total: n_total as f64,
                done: 0.0,
                begin: 0.0,
                place: Place::Queued,
                n_retractions: 0,
                changed: Arc::clone(&changed),
            },
        );
        state.queue.push_back(id);
        self.admit(&mut state);
        if state.queue.len() > self.max_queued {
            state.queue.pop_back();
            state.jobs.remove(&id);
            return Err(Full);
        }
        drop(state);
        self.wake.notify_one();
        Ok(CapacityTicket { capacity: Arc::clone(self), id, changed })
    }

    /// Wakes the waiting at each event. Runs as long as the server.
    pub(crate) async fn drive(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = lock(&self.state);
                self.advance(&mut state);
                self.next_event(&state).map(|event| event.at_s)
            };
            match next {
                Some(at_s) => {
                    let at = self.origin + Duration::from_secs_f64((at_s * self.time_scale).clamp(0.0, 1e9));
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.wake.notified() => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    pub(crate) fn load(&self) -> Load {
        let mut state = lock(&self.state);
        self.advance(&mut state);
        let n_running = state.running.len();
        Load {
            n_running,
            n_queued: state.queue.len(),
            used_tokens: u64::from(super::draw::to_u32(state.used_tokens())),
            gen_throughput: self.throughput(n_running),
            n_retractions: state.n_retractions,
        }
    }

    /// Tokens per second with `n` answers running.
    fn throughput(&self, n: usize) -> f64 {
        let n = n as f64;
        let mut from = (0.0, 0.0);
        for point in &self.model.throughput {
            if n <= point.0 {
                return from.1 + (point.1 - from.1) * (n - from.0) / (point.0 - from.0);
            }
            from = *point;
        }
        from.1
    }

    /// Brings the state up to now, event by event.
    fn advance(&self, state: &mut State) {
        let now_s = self.origin.elapsed().as_secs_f64() / self.time_scale;
        while let Some(event) = self.next_event(state) {
            if event.at_s > now_s {
                let pace = self.throughput(state.running.len()) / state.running.len() as f64;
                state.served += pace * (now_s - state.now_s).max(0.0);
                break;
            }
            state.now_s = event.at_s;
            state.served = event.served;
            match event.ends {
                Some(key) => state.finish(key),
                None => state.retract_newest(),
            }
            self.admit(state);
        }
        state.now_s = now_s;
    }

    fn next_event(&self, state: &State) -> Option<Event> {
        let (ends, id) = *state.running.first()?;
        let n = state.running.len();
        let pace = self.throughput(n) / n as f64;
        let end = f64::from_bits(ends);
        // One answer alone always fits: the request was checked against the cache.
        let overflow =
            if n > 1 { (self.model.kv_tokens as f64 - state.held + state.begins) / n as f64 } else { f64::INFINITY };
        let served = end.min(overflow).max(state.served);
        let at_s = state.now_s + (served - state.served) / pace;
        Some(Event { at_s, served, ends: (end <= overflow).then_some((ends, id)) })
    }

    fn admit(&self, state: &mut State) {
        while let Some(id) = state.queue.front().copied() {
            let Some(job) = state.jobs.get(&id) else {
                state.queue.pop_front();
                continue;
            };
            let needs = job.n_prompt + job.done;
            let fits = state.used_tokens() + needs + self.model.reserve_tokens as f64 <= self.model.kv_tokens as f64;
            if !state.running.is_empty() && (!fits || state.running.len() >= self.max_running) {
                return;
            }
            state.queue.pop_front();
            state.start(id, self.model.prefill_cost);
        }
    }
}

struct Event {
    at_s: f64,
    served: f64,
    /// The answer that ends; `None` when the cache runs over.
    ends: Option<(u64, u64)>,
}

impl State {
    fn used_tokens(&self) -> f64 {
        (self.held + self.running.len() as f64 * self.served - self.begins).max(0.0)
    }

    fn start(&mut self, id: u64, prefill_cost: f64) {
        let served = self.served;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let held = job.n_prompt + job.done;
        job.begin = served + held * prefill_cost;
        let ends = (job.begin + job.n_total - job.done).to_bits();
        job.place = Place::Running { ends };
        self.held += held;
        self.begins += job.begin;
        self.running.insert((ends, id));
    }

    /// Takes a running job out; its progress goes into `done`.
    fn leave(&mut self, key: (u64, u64)) {
        if !self.running.remove(&key) {
            return;
        }
        if let Some(job) = self.jobs.get_mut(&key.1) {
            self.held -= job.n_prompt + job.done;
            self.begins -= job.begin;
            job.done = (job.done + (self.served - job.begin).max(0.0)).min(job.n_total);
            job.place = Place::Queued;
        }
        if self.running.is_empty() {
            // Nothing runs: start again from zero, before rounding adds up.
            (self.served, self.held, self.begins) = (0.0, 0.0, 0.0);
        }
    }

    fn finish(&mut self, key: (u64, u64)) {
        self.leave(key);
        if let Some(job) = self.jobs.get_mut(&key.1) {
            job.done = job.n_total;
            job.place = Place::Finished;
            job.changed.notify_one();
        }
    }

    fn retract_newest(&mut self) {
        let Some(key) = self.running.iter().max_by_key(|(_, id)| *id).copied() else { return };
        self.leave(key);
        self.n_retractions += 1;
        if let Some(job) = self.jobs.get_mut(&key.1) {
            job.done = job.done.floor();
            job.n_retractions += 1;
        }
        self.queue.push_front(key.1);
    }
}

/// One answer in the model. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct CapacityTicket {
    capacity: Arc<Capacity>,
    id: u64,
    changed: Arc<Notify>,
}

impl CapacityTicket {
    /// Tokens made so far, whether that is all, and whether it is still waiting for its first turn.
    pub(crate) fn progress(&self) -> (usize, bool, bool) {
        let mut state = lock(&self.capacity.state);
        self.capacity.advance(&mut state);
        let served = state.served;
        let Some(job) = state.jobs.get(&self.id) else { return (0, true, false) };
        let made = match job.place {
            Place::Running { .. } => (job.done + (served - job.begin).max(0.0)).min(job.n_total),
            Place::Queued | Place::Finished => job.done,
        };
        let is_fresh = job.place == Place::Queued && job.n_retractions == 0;
        (super::draw::to_u32(made.floor()) as usize, job.place == Place::Finished, is_fresh)
    }

    /// Waits for `n_tokens`, or, with `whole`, for the end. Returns the tokens made.
    pub(crate) async fn reach(&self, n_tokens: usize, whole: bool) -> usize {
        loop {
            let (made, is_finished, _) = self.progress();
            if is_finished || (!whole && made >= n_tokens) {
                return made;
            }
            if whole {
                self.changed.notified().await;
            } else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep(Duration::from_millis(20).mul_f64(self.capacity.time_scale.min(1.0)).max(Duration::from_millis(1))) => {}
                }
            }
        }
    }

    pub(crate) fn n_retractions(&self) -> u64 {
        lock(&self.capacity.state).jobs.get(&self.id).map_or(0, |job| job.n_retractions)
    }
}

impl Drop for CapacityTicket {
    fn drop(&mut self) {
        let mut state = lock(&self.capacity.state);
        self.capacity.advance(&mut state);
        let place = state.jobs.get(&self.id).map(|job| job.place);
        match place {
            Some(Place::Running { ends }) => state.leave((ends, self.id)),
            Some(Place::Queued) => state.queue.retain(|id| *id != self.id),
            _ => {}
        }
        state.jobs.remove(&self.id);
        self.capacity.admit(&mut state);
        drop(state);
        self.capacity.wake.notify_one();
    }
}
