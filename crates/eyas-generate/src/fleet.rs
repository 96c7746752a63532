//! The servers: which are up, how full they are, which slot comes next.

use crate::event::EndpointStatus;
use crate::plan::Patience;
use crate::slot::Job;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// All servers and all slots.
pub(crate) struct Fleet {
    endpoints: Vec<EndpointState>,
    slots: Vec<SlotState>,
    patience: Patience,
}

struct SlotState {
    endpoint: usize,
    inbox: mpsc::Sender<Job>,
    /// The data set it is working for, and the number of the request on its server.
    busy: Option<(usize, u64)>,
}

/// A request that has come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    pub(crate) endpoint: usize,
    /// Its number on that server.
    number: u64,
}

struct EndpointState {
    url: String,
    n_slots: usize,
    idle: Vec<usize>,
    in_flight: usize,
    /// How many requests it takes at a time: all slots, until it turns one away.
    limit: f64,
    health: Health,
    n_assigned: u64,
    consecutive_failures: u32,
    /// The earliest request among them: an answer to an older one does not end the row.
    row_began_at: u64,
    answered: u64,
    errors: u64,
}

enum Health {
    Up,
    Down(Down),
    /// It turns every prompt away.
    Out(String),
}

struct Down {
    since: Instant,
    next_probe: Instant,
    pause: Duration,
    probing: bool,
    /// A look has shown that it is really gone, and that was said.
    announced: bool,
    message: String,
}

/// Why nobody can be asked.
pub(crate) enum AllGone {
    /// Servers that may come back; since when none was there.
    Down { since: Instant, url: String, message: String },
    /// Servers that turn every prompt away.
    Out { url: String, message: String },
}

impl Fleet {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { endpoints: Vec::new(), slots: Vec::new(), patience }
    }

    pub(crate) fn add_endpoint(&mut self, url: &str) -> usize {
        self.endpoints.push(EndpointState {
            url: url.to_owned(),
            n_slots: 0,
            idle: Vec::new(),
            in_flight: 0,
            limit: 0.0,
            health: Health::Up,
            n_assigned: 0,
            consecutive_failures: 0,
            row_began_at: 0,
            answered: 0,
            errors: 0,
        });
        self.endpoints.len() - 1
    }

    pub(crate) fn add_slot(&mut self, endpoint: usize, inbox: mpsc::Sender<Job>) {
        self.slots.push(SlotState { endpoint, inbox, busy: None });
        let state = &mut self.endpoints[endpoint];
        state.n_slots += 1;
        state.limit += 1.0;
        state.idle.push(self.slots.len() - 1);
    }

    pub(crate) fn n_slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn url(&self, endpoint: usize) -> &str {
        &self.endpoints[endpoint].url
    }

    /// A slot that can take a job now: on the server with the largest free share.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let free = |state: &EndpointState| {
            let room = matches!(state.health, Health::Up) && !state.idle.is_empty();
            #[expect(clippy::cast_precision_loss, reason = "counts of slots")]
            let share = (state.limit.floor() - state.in_flight as f64) / state.n_slots as f64;
            (room && share > 0.0).then_some(share)
        };
        let best = self
            .endpoints
            .iter()
            .filter_map(|state| free(state).map(|share| (share, state)))
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.and_then(|(_, state)| state.idle.last().copied())
    }

    /// Gives the job to a slot that [`Fleet::free_slot`] named.
    pub(crate) fn assign(&mut self, slot: usize, job: Job) -> Result<(), Job> {
        let SlotState { endpoint, inbox, busy } = &mut self.slots[slot];
        let dataset = job.dataset;
        inbox.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job) => job,
        })?;
        let state = &mut self.endpoints[*endpoint];
        state.n_assigned += 1;
        *busy = Some((dataset, state.n_assigned));
        if let Some(at) = state.idle.iter().rposition(|&idle| idle == slot) {
            state.idle.swap_remove(at);
        }
        state.in_flight += 1;
        Ok(())
    }

    /// The slot is free again.
    pub(crate) fn release(&mut self, slot: usize) -> Released {
        let endpoint = self.slots[slot].endpoint;
        let mut number = 0;
        if let Some((_, busy_with)) = self.slots[slot].busy.take() {
            number = busy_with;
            let state = &mut self.endpoints[endpoint];
            state.in_flight -= 1;
            state.idle.push(slot);
        }
        Released { endpoint, number }
    }

    /// Data sets of everything that is in flight.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().filter_map(|slot| slot.busy.map(|(dataset, _)| dataset))
    }

    pub(crate) fn n_in_flight(&self) -> usize {
        self.endpoints.iter().map(|state| state.in_flight).sum()
    }

    pub(crate) fn answered(&mut self, request: Released) {
        let state = &mut self.endpoints[request.endpoint];
        state.answered += 1;
        if request.number > state.row_began_at {
            state.consecutive_failures = 0;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of slots")]
        let n_slots = state.n_slots as f64;
        state.limit = (state.limit + 1.0 / state.limit).min(n_slots);
    }

    /// The server was full: it gets no more at a time than it is working on now.
    pub(crate) fn refused(&mut self, endpoint: usize) {
        let state = &mut self.endpoints[endpoint];
        state.errors += 1;
        #[expect(clippy::cast_precision_loss, reason = "counts of slots")]
        let working = state.in_flight as f64;
        state.limit = state.limit.min(working).max(1.0);
    }

    /// A try failed there. After too many in a row the server is looked at before it is asked again.
    pub(crate) fn failed(&mut self, request: Released, now: Instant, message: &str) {
        let limit = self.patience.max_consecutive_failures;
        let endpoint = request.endpoint;
        let state = &mut self.endpoints[endpoint];
        state.errors += 1;
        let first = state.consecutive_failures == 0;
        state.row_began_at = if first { request.number } else { state.row_began_at.min(request.number) };
        state.consecutive_failures += 1;
        if state.consecutive_failures >= limit && matches!(state.health, Health::Up) {
            let n = state.consecutive_failures;
            self.put_aside(endpoint, now, format!("{n} failed tries in a row, the last: {message}"), now);
        }
    }

    /// A try failed there for a reason of its own.
    pub(crate) fn note_error(&mut self, endpoint: usize) {
        self.endpoints[endpoint].errors += 1;
    }

    /// No connection came about.
    pub(crate) fn unreachable(&mut self, endpoint: usize, now: Instant, message: String) {
        self.endpoints[endpoint].errors += 1;
        if matches!(self.endpoints[endpoint].health, Health::Up) {
            let probe = now + self.patience.probe_pause;
            self.put_aside(endpoint, now, message, probe);
        }
    }

    /// It turns every prompt away.
    pub(crate) fn misconfigured(&mut self, endpoint: usize, message: String) {
        self.endpoints[endpoint].errors += 1;
        self.endpoints[endpoint].health = Health::Out(message);
    }

    fn put_aside(&mut self, endpoint: usize, now: Instant, message: String, next_probe: Instant) {
        let pause = self.patience.probe_pause;
        self.endpoints[endpoint].health =
            Health::Down(Down { since: now, next_probe, pause, probing: false, announced: false, message });
    }

    /// Servers to be looked at now; each is named once until [`Fleet::probed`].
    pub(crate) fn due_probes(&mut self, now: Instant) -> Vec<usize> {
        let mut due = Vec::new();
        for (endpoint, state) in self.endpoints.iter_mut().enumerate() {
            if let Health::Down(down) = &mut state.health
                && !down.probing
                && down.next_probe <= now
            {
                down.probing = true;
                due.push(endpoint);
            }
        }
        due
    }

    pub(crate) fn next_probe(&self) -> Option<Instant> {
        let waiting = self.endpoints.iter().filter_map(|state| match &state.health {
            Health::Down(down) if !down.probing => Some(down.next_probe),
            _ => None,
        });
        waiting.min()
    }

    /// What a look showed: `Some(how long it was gone)` when it is back.
    pub(crate) fn probed(&mut self, endpoint: usize, now: Instant, result: Result<(), String>) -> Option<Duration> {
        let max_pause = self.patience.probe_pause * 20;
        let state = &mut self.endpoints[endpoint];
        let Health::Down(down) = &mut state.health else { return None };
        match result {
            Ok(()) => {
                let down_for = now - down.since;
                let announced = down.announced;
                state.health = Health::Up;
                state.consecutive_failures = 0;
                announced.then_some(down_for)
            }
            Err(message) => {
                down.probing = false;
                down.pause = (down.pause * 2).min(max_pause);
                down.next_probe = now + down.pause;
                down.message = message;
                None
            }
        }
    }

    /// Servers whose absence is certain and has not been said yet.
    pub(crate) fn announce(&mut self) -> Vec<(String, String)> {
        let mut news = Vec::new();
        for state in &mut self.endpoints {
            if let Health::Down(down) = &mut state.health
                && !down.announced
                && !down.probing
            {
                down.announced = true;
                news.push((state.url.clone(), down.message.clone()));
            }
        }
        news
    }

    /// Whether nobody can be asked, and why.
    pub(crate) fn all_gone(&self) -> Option<AllGone> {
        let mut gone: Option<AllGone> = None;
        for state in &self.endpoints {
            match &state.health {
                Health::Up => return None,
                Health::Down(down) => {
                    let later = match &gone {
                        Some(AllGone::Down { since, .. }) => down.since > *since,
                        _ => true,
                    };
                    if later {
                        gone = Some(AllGone::Down {
                            since: down.since,
                            url: state.url.clone(),
                            message: down.message.clone(),
                        });
                    }
                }
                Health::Out(message) => {
                    gone.get_or_insert_with(|| AllGone::Out { url: state.url.clone(), message: message.clone() });
                }
            }
        }
        gone
    }

    pub(crate) fn status(&self) -> Vec<EndpointStatus> {
        let status = |state: &EndpointState| EndpointStatus {
            url: state.url.clone(),
            up: matches!(state.health, Health::Up),
            slots: state.n_slots,
            in_flight: state.in_flight,
            answered: state.answered,
            errors: state.errors,
        };
        self.endpoints.iter().map(status).collect()
    }
}
