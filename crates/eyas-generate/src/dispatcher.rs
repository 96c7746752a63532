//! The one owner of a run's state: it admits, counts, retries, keeps and stops. Nobody else does.

mod rates;

use crate::cancel::{Cancel, Level};
use crate::event::{DatasetCounts, Event, Snapshot, Warning};
use crate::fleet::{AllGone, Fleet, Released};
use crate::gate::{Verdict, Watch};
use crate::outcome::{ExitReason, Outcome};
use crate::plan::GeneratePlan;
use crate::record::{Landed, Recorder, failed_line};
use crate::resume::Opened;
use crate::retry::{Backoff, Timers};
use crate::slot::{Job, Report, Slot};
use crate::source::{Fed, FeedError, Feeder};
use crate::store::{Acknowledged, Kind, Line, Store, Synced};
use crate::transport::Transport;
use eyas_client::{RequestError, Retry, Sampling, Scope};
use eyas_types::FailedAttempt;
use rates::Rates;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

type Listener<'e> = &'e mut (dyn FnMut(Event<'_>) + Send);

/// Reports taken from the channel in one go.
const REPORTS_AT_ONCE: usize = 64;

/// Answers every pending prompt, or says why not.
pub(crate) async fn execute(
    plan: GeneratePlan,
    opened: Vec<Opened>,
    transport: Arc<dyn Transport>,
    cancel: Cancel,
    on_event: Listener<'_>,
) -> Outcome {
    let datasets: Vec<_> = opened.iter().map(|opened| DatasetCounts::opened(&opened.state)).collect();
    let snapshot = Snapshot { datasets, ..Snapshot::default() };
    if snapshot.sum(DatasetCounts::pending) == 0 {
        return Outcome { reason: ExitReason::Complete, snapshot };
    }
    let mut pending = Vec::new();
    let mut files = Vec::new();
    for opened in opened {
        pending.push((opened.pending, opened.state.pending()));
        files.push(opened.files);
    }
    let feeder = match Feeder::new(&plan, pending) {
        Ok(feeder) => feeder,
        Err(error) => return Outcome { reason: ExitReason::Prompts { message: error.to_string() }, snapshot },
    };
    let (dispatcher, work) = Dispatcher::start(plan, feeder, Store::new(files), transport, snapshot, on_event);
    dispatcher.run(work, cancel.listen()).await
}

/// What the dispatcher wants to know again when a line is on disk.
enum Tag {
    Answer { dataset: usize, landed: Landed },
    Failure { dataset: usize, sample_id: String, class: String, message: String, permanent: bool },
}

type Feeding = (Feeder, Result<Vec<Fed>, FeedError>);
type Writing = (Store<Tag>, Acknowledged<Tag>);

/// The other ends: tasks and channels.
struct Work {
    reports: mpsc::Receiver<Report>,
    slots: JoinSet<()>,
    feeding: Option<JoinHandle<Feeding>>,
    writing: Option<JoinHandle<Writing>>,
    syncing: Option<JoinHandle<Synced>>,
    probes: JoinSet<(usize, Result<(), RequestError>)>,
}

/// Something that ended a wait.
enum Wake {
    Cancel(Level),
    Reports,
    Fed(Feeder, Result<Vec<Fed>, FeedError>),
    Written(Store<Tag>, Acknowledged<Tag>),
    Synced(Synced),
    Probed(usize, Result<(), RequestError>),
    Time,
}

struct Dispatcher<'e> {
    plan: GeneratePlan,
    on_event: Listener<'e>,
    transport: Arc<dyn Transport>,
    recorder: Arc<Recorder>,
    fleet: Fleet,
    backoff: Backoff,
    watch: Watch,
    rates: Rates,
    started: Instant,
    next_tick: Instant,
    snapshot: Snapshot,

    /// `None` while it reads.
    feeder: Option<Feeder>,
    exhausted: bool,
    /// Never asked yet.
    fresh: VecDeque<Job>,
    /// Asked before, or turned back by a server that is gone; they go first.
    returned: VecDeque<Job>,
    timers: Timers,
    /// Fresh prompts admitted and not given up.
    n_admitted: u64,
    n_given_up: u64,

    /// `None` while it writes.
    store: Option<Store<Tag>>,
    batch: Vec<Line<Tag>>,
    /// Lines of the batch and of the write under way: a kill would take them.
    n_unwritten: usize,
    n_unacknowledged: usize,
    /// A sync that ended while the store was away writing.
    synced: Option<Synced>,
    sync_at: Option<Instant>,

    /// Set: nothing more is admitted.
    stop: Option<ExitReason>,
    /// Nothing more is waited for, either.
    abort: bool,
}

impl<'e> Dispatcher<'e> {
    fn start(
        plan: GeneratePlan,
        feeder: Feeder,
        store: Store<Tag>,
        transport: Arc<dyn Transport>,
        snapshot: Snapshot,
        on_event: Listener<'e>,
    ) -> (Self, Work) {
        let recorder = Arc::new(Recorder {
            splitter: Arc::clone(&plan.splitter),
            reasoning: plan.reasoning,
            fingerprint: plan.fingerprint.fingerprint().as_str().to_owned(),
        });
        let now = Instant::now();
        let mut dispatcher = Self {
            fleet: Fleet::new(plan.patience),
            backoff: Backoff::new(plan.retries, plan.seed),
            watch: Watch::new(plan.gates),
            rates: Rates::new(now),
            started: now,
            next_tick: now + plan.progress_interval,
            on_event,
            transport,
            recorder,
            snapshot,
            feeder: Some(feeder),
            exhausted: false,
            fresh: VecDeque::new(),
            returned: VecDeque::new(),
            timers: Timers::default(),
            n_admitted: 0,
            n_given_up: 0,
            store: Some(store),
            batch: Vec::new(),
            n_unwritten: 0,
            n_unacknowledged: 0,
            synced: None,
            sync_at: None,
            stop: None,
            abort: false,
            plan,
        };
        let work = dispatcher.start_slots();
        (dispatcher, work)
    }

    fn start_slots(&mut self) -> Work {
        let n_slots: usize = self.plan.endpoints.iter().map(|endpoint| endpoint.slots as usize).sum();
        // Never full: a slot has at most one report out.
        let (reports_in, reports) = mpsc::channel(n_slots.max(1));
        let sampling = Arc::new(Sampling::new(&self.plan.sampling));
        let run_tag: Arc<str> = run_tag().into();
        let mut slots = JoinSet::new();
        for endpoint in &self.plan.endpoints {
            let url: Arc<str> = endpoint.endpoint.base_url().into();
            let at = self.fleet.add_endpoint(&url);
            for _ in 0..endpoint.slots {
                let (inbox_in, inbox) = mpsc::channel(1);
                let slot = Slot {
                    number: self.fleet.n_slots(),
                    line: self.transport.line(at),
                    protocol: endpoint.endpoint.protocol(),
                    url: Arc::clone(&url),
                    sampling: Arc::clone(&sampling),
                    recorder: Arc::clone(&self.recorder),
                    run_tag: Arc::clone(&run_tag),
                    inbox,
                    reports: reports_in.clone(),
                };
                self.fleet.add_slot(at, inbox_in);
                slots.spawn(slot.work());
            }
        }
        Work { reports, slots, feeding: None, writing: None, syncing: None, probes: JoinSet::new() }
    }

    async fn run(mut self, mut work: Work, mut cancel: watch::Receiver<Level>) -> Outcome {
        let mut reports = Vec::with_capacity(REPORTS_AT_ONCE);
        self.refresh();
        (self.on_event)(Event::Started(&self.snapshot));
        // It may have been pressed before anybody listened.
        let level = *cancel.borrow_and_update();
        self.cancelled(level);
        loop {
            let now = Instant::now();
            self.tick(now);
            self.turn_due_retries(now);
            self.look_at_servers(now, &mut work);
            self.write(&mut work);
            self.sync(&mut work);
            self.admit();
            self.read_ahead(&mut work);
            if self.is_finished(&work) {
                break;
            }
            match self.wait(&mut work, &mut cancel, &mut reports).await {
                Wake::Cancel(level) => self.cancelled(level),
                Wake::Reports => reports.drain(..).for_each(|report| self.reported(report)),
                Wake::Fed(feeder, fed) => self.fed(feeder, fed),
                Wake::Written(store, acknowledged) => self.written(store, acknowledged),
                Wake::Synced(synced) => self.synced = Some(synced),
                Wake::Probed(endpoint, result) => self.probed(endpoint, result),
                Wake::Time => {}
            }
            if self.abort && !work.slots.is_empty() {
                self.give_up_in_flight(&mut work);
            }
        }
        self.refresh();
        let reason = match self.stop.take() {
            // Pressed when the last answers were on their way: there is nothing to resume.
            Some(ExitReason::Interrupted { .. }) if self.end_of_work() == ExitReason::Complete => ExitReason::Complete,
            Some(reason) => reason,
            None => self.end_of_work(),
        };
        Outcome { reason, snapshot: self.snapshot }
    }

    // ------------------------------------------------------------------------------------------ waiting

    async fn wait(&mut self, work: &mut Work, cancel: &mut watch::Receiver<Level>, reports: &mut Vec<Report>) -> Wake {
        let deadline = self.next_deadline();
        tokio::select! {
            biased;
            changed = cancel.changed() => match changed {
                Ok(()) => Wake::Cancel(*cancel.borrow_and_update()),
                // Every handle is gone: nobody will cancel any more, and nobody should make this branch spin.
                Err(_) => Wake::Cancel(Level::Run),
            },
            (store, acknowledged) = joined(&mut work.writing) => Wake::Written(store, acknowledged),
            synced = joined(&mut work.syncing) => Wake::Synced(synced),
            (feeder, fed) = joined(&mut work.feeding) => Wake::Fed(feeder, fed),
            Some(probed) = work.probes.join_next() => match probed {
                Ok((endpoint, result)) => Wake::Probed(endpoint, result),
                Err(error) => rethrow(error),
            },
            Some(ended) = work.slots.join_next() => match ended {
                // A slot ends only with its inbox, which lives here; so it has panicked.
                Ok(()) => Wake::Time,
                Err(error) => rethrow(error),
            },
            // Last but one: answers may come without a break, and the rest must not wait for one.
            _ = work.reports.recv_many(reports, REPORTS_AT_ONCE), if !work.slots.is_empty() => Wake::Reports,
            () = tokio::time::sleep_until(deadline) => Wake::Time,
        }
    }

    fn next_deadline(&self) -> Instant {
        let server_down = match self.fleet.all_gone() {
            Some(AllGone::Down { since, .. }) if self.stop.is_none() => {
                Some(since + self.plan.patience.server_down_after)
            }
            _ => None,
        };
        let retry = self.stop.is_none().then(|| self.timers.next_due()).flatten();
        let probe = self.stop.is_none().then(|| self.fleet.next_probe()).flatten();
        let others = [retry, probe, server_down, self.sync_at];
        others.into_iter().flatten().fold(self.next_tick, Instant::min)
    }

    fn is_finished(&self, work: &Work) -> bool {
        if self.fleet.n_in_flight() > 0 || self.store.is_none() || work.syncing.is_some() || self.n_unacknowledged > 0 {
            return false;
        }
        if self.stop.is_some() {
            return true;
        }
        let queue_is_empty = self.returned.is_empty() && self.timers.len() == 0;
        let nothing_fresh = self.fresh.is_empty() && self.exhausted && work.feeding.is_none();
        queue_is_empty && (nothing_fresh || self.admits_no_more())
    }

    /// Why it ended when nothing stopped it.
    fn end_of_work(&self) -> ExitReason {
        if self.snapshot.sum(DatasetCounts::pending) == 0 { ExitReason::Complete } else { ExitReason::StopAfter }
    }

    // ------------------------------------------------------------------------------------------ admitting

    fn turn_due_retries(&mut self, now: Instant) {
        while let Some(job) = self.timers.pop_due(now) {
            self.returned.push_back(job);
        }
    }

    /// Whether [`GeneratePlan::stop_after`] holds back what was never asked.
    fn admits_no_more(&self) -> bool {
        self.plan.stop_after.is_some_and(|limit| self.n_admitted >= limit)
    }

    fn admit(&mut self) {
        // A disk that cannot keep up holds the servers back, not the memory.
        let max_unacknowledged = 1_024.max(4 * self.fleet.n_slots());
        // An answer keeps its slot until it is written: so a kill loses at most as many answers as there are slots.
        while self.stop.is_none()
            && self.n_unacknowledged < max_unacknowledged
            && self.fleet.n_in_flight() + self.n_unwritten < self.fleet.n_slots()
        {
            let Some(slot) = self.fleet.free_slot() else { break };
            let job = match self.returned.pop_front() {
                Some(job) => job,
                None if self.admits_no_more() => break,
                None => match self.fresh.pop_front() {
                    Some(job) => {
                        self.n_admitted += 1;
                        job
                    }
                    None => break,
                },
            };
            self.snapshot.n_retries += u64::from(!job.attempts.is_empty());
            self.snapshot.n_asked_twice += u64::from(job.maybe_answered);
            if let Err(job) = self.fleet.assign(slot, job) {
                // The slot is gone, which its task will say; the job stays first.
                self.returned.push_front(job);
                break;
            }
        }
    }

    fn read_ahead(&mut self, work: &mut Work) {
        if self.exhausted || self.stop.is_some() || self.admits_no_more() || self.fresh.len() > self.fleet.n_slots() {
            return;
        }
        if let Some(mut feeder) = self.feeder.take() {
            let n = 64.max(2 * self.fleet.n_slots());
            work.feeding = Some(tokio::task::spawn_blocking(move || {
                let fed = feeder.chunk(n);
                (feeder, fed)
            }));
        }
    }

    fn fed(&mut self, feeder: Feeder, fed: Result<Vec<Fed>, FeedError>) {
        self.exhausted = feeder.is_exhausted();
        self.feeder = Some(feeder);
        match fed {
            Ok(fed) => {
                for fed in fed {
                    match fed {
                        Fed::Job(job) => self.fresh.push_back(job),
                        Fed::Refused { mut job, class, message } => {
                            let endpoint = String::new();
                            job.attempts.push(FailedAttempt { attempt: 0, endpoint, class: class.to_owned(), message });
                            self.n_admitted += 1;
                            self.fail(job, true);
                        }
                    }
                }
            }
            Err(error) => self.stop_with(ExitReason::Prompts { message: error.to_string() }),
        }
    }

    // ------------------------------------------------------------------------------------------ reports

    fn reported(&mut self, report: Report) {
        let Report { slot, dataset, n_stale, result } = report;
        let request = self.fleet.release(slot);
        self.snapshot.n_stale_retries += n_stale;
        self.snapshot.n_requests += n_stale;
        match result {
            Ok(landed) => {
                self.snapshot.n_requests += 1;
                self.fleet.answered(request);
                self.keep(dataset, landed);
            }
            Err(failed) => {
                let (job, error) = *failed;
                self.snapshot.n_requests += u64::from(error.scope() != Scope::Unreachable);
                self.not_answered(request, job, &error);
            }
        }
    }

    fn keep(&mut self, dataset: usize, mut landed: Landed) {
        if landed.expects_reasoning {
            self.snapshot.capture.n_answers += 1;
            self.snapshot.capture.n_with_reasoning += u64::from(landed.has_reasoning);
        }
        let verdict = self.watch.answered(self.snapshot.capture, landed.usable);
        let bytes = std::mem::take(&mut landed.line);
        self.put(Line { dataset, kind: Kind::Answer, bytes, tag: Tag::Answer { dataset, landed } });
        if let Some(verdict) = verdict {
            self.judged(verdict);
        }
    }

    fn not_answered(&mut self, request: Released, mut job: Job, error: &RequestError) {
        let (now, endpoint) = (Instant::now(), request.endpoint);
        *self.snapshot.errors.entry(error.class().into_owned()).or_default() += 1;
        match error.scope() {
            // Nothing was sent, or nothing can be: the prompt has not had its try.
            Scope::Unreachable => {
                self.fleet.unreachable(endpoint, now, error.to_string());
                self.returned.push_back(job);
                return;
            }
            Scope::Misconfigured => {
                self.fleet.misconfigured(endpoint, error.to_string());
                self.returned.push_back(job);
                return;
            }
            Scope::Request => {}
        }
        job.maybe_answered = error.may_have_been_answered();
        let asked_to_wait = match error.retry() {
            Retry::Busy => Some(None),
            Retry::After(wait) => Some(Some(wait)),
            _ => None,
        };
        if let Some(wait) = asked_to_wait
            && job.n_refused < self.plan.retries.max_refusals
        {
            job.n_refused += 1;
            self.snapshot.n_refused += 1;
            self.fleet.refused(endpoint);
            let pause = self.backoff.refusal(job.n_refused, wait);
            self.retry_after(now, pause, job, error);
            return;
        }
        job.attempts.push(FailedAttempt {
            attempt: job.attempt(),
            endpoint: self.fleet.url(endpoint).to_owned(),
            class: error.class().into_owned(),
            message: error.to_string(),
        });
        if error.retry() == Retry::Never {
            self.fleet.note_error(endpoint);
            self.fail(job, true);
            return;
        }
        self.fleet.failed(request, now, &error.to_string());
        let n_attempts = u32::try_from(job.attempts.len()).unwrap_or(u32::MAX);
        if n_attempts >= self.plan.retries.max_attempts {
            self.fail(job, false);
        } else {
            let pause = self.backoff.pause(n_attempts);
            self.retry_after(now, pause, job, error);
        }
    }

    fn retry_after(&mut self, now: Instant, pause: Duration, job: Job, error: &RequestError) {
        (self.on_event)(Event::Retrying {
            dataset: job.dataset,
            sample_id: &job.prompt.sample_id,
            class: &error.class(),
            message: &error.to_string(),
            attempt: u32::try_from(job.attempts.len()).unwrap_or(u32::MAX),
            pause,
        });
        self.timers.push(now + pause, job);
    }

    /// Gives the prompt up; it counts as failed once its line is on disk.
    fn fail(&mut self, job: Job, permanent: bool) {
        let Job { dataset, prompt, attempts, .. } = job;
        let (class, message) =
            attempts.last().map_or_else(Default::default, |last| (last.class.clone(), last.message.clone()));
        let tag = Tag::Failure { dataset, sample_id: prompt.sample_id.clone(), class, message, permanent };
        let bytes = failed_line(*prompt, &self.recorder.fingerprint, permanent, attempts);
        self.n_admitted -= 1;
        self.n_given_up += 1;
        self.put(Line { dataset, kind: Kind::Failure, bytes, tag });
        if let Some(verdict) = self.watch.failed() {
            self.judged(verdict);
        }
        if let Some(limit) = self.plan.gates.max_failures
            && self.n_given_up > limit
        {
            self.stop_with(ExitReason::TooManyFailures { n_failed: self.n_given_up, limit });
        }
    }

    // ------------------------------------------------------------------------------------------ keeping

    fn put(&mut self, line: Line<Tag>) {
        self.n_unwritten += 1;
        self.n_unacknowledged += 1;
        self.batch.push(line);
    }

    fn write(&mut self, work: &mut Work) {
        if self.batch.is_empty() {
            return;
        }
        if let Some(mut store) = self.store.take() {
            let lines = std::mem::take(&mut self.batch);
            work.writing = Some(tokio::task::spawn_blocking(move || {
                let acknowledged = store.write(lines);
                (store, acknowledged)
            }));
        }
    }

    fn written(&mut self, store: Store<Tag>, acknowledged: Acknowledged<Tag>) {
        self.store = Some(store);
        self.n_unwritten = self.batch.len();
        self.acknowledged(acknowledged);
    }

    /// Takes the result of a sync, and begins the next one when it is due.
    fn sync(&mut self, work: &mut Work) {
        let Some(mut store) = self.store.take() else { return };
        if let Some(synced) = self.synced.take() {
            let acknowledged = store.end_syncs(synced);
            self.acknowledged(acknowledged);
        }
        if work.syncing.is_none() && self.n_unacknowledged > 0 {
            // Nothing more will come that could share a later sync.
            let last = self.fleet.n_in_flight() == 0 && (self.stop.is_some() || self.timers.len() == 0);
            work.syncing = store.begin_syncs(last).map(|syncs| tokio::task::spawn_blocking(move || syncs.run()));
            let due = if work.syncing.is_none() { store.sync_due_in() } else { None };
            self.sync_at = due.map(|due| Instant::now() + due);
        }
        self.store = Some(store);
    }

    fn acknowledged(&mut self, Acknowledged { tags, error }: Acknowledged<Tag>) {
        // After a failed journal the others may still have something to say.
        self.n_unacknowledged = self.n_unacknowledged.saturating_sub(tags.len());
        for tag in tags {
            match tag {
                Tag::Answer { dataset, landed } => self.count_answer(dataset, &landed),
                Tag::Failure { dataset, sample_id, class, message, permanent } => {
                    self.count_failure(dataset, &sample_id, &class, &message, permanent);
                }
            }
        }
        if let Some(error) = error {
            // What is not acknowledged is pending. Answers that are still to come could not be kept.
            self.forget_unacknowledged();
            self.stop = Some(ExitReason::Journal { message: with_causes(&error) });
            self.abort = true;
        }
    }

    fn forget_unacknowledged(&mut self) {
        self.batch.clear();
        self.n_unwritten = 0;
        self.n_unacknowledged = 0;
        self.sync_at = None;
    }

    fn count_answer(&mut self, dataset: usize, landed: &Landed) {
        let counts = &mut self.snapshot.datasets[dataset];
        counts.answered += 1;
        counts.truncated += u64::from(landed.truncated);
        counts.with_reasoning += u64::from(landed.has_reasoning);
        counts.prompt_tokens += landed.prompt_tokens;
        counts.completion_tokens += landed.completion_tokens;
        self.rates.answered(landed.completion_tokens);
        (self.on_event)(Event::Answered {
            dataset,
            sample_id: &landed.sample_id,
            completion_tokens: landed.completion_tokens,
            has_reasoning: landed.has_reasoning,
            truncated: landed.truncated,
        });
    }

    fn count_failure(&mut self, dataset: usize, sample_id: &str, class: &str, message: &str, permanent: bool) {
        self.snapshot.datasets[dataset].failed += 1;
        *self.snapshot.failures.entry(class.to_owned()).or_default() += 1;
        (self.on_event)(Event::Failed { dataset, sample_id, class, message, permanent });
    }

    fn judged(&mut self, verdict: Verdict) {
        let (Verdict::Warn(warning) | Verdict::Stop(warning)) = &verdict;
        (self.on_event)(Event::Warning(warning));
        if let Verdict::Stop(warning) = verdict {
            self.stop_for(warning);
        }
    }

    // ------------------------------------------------------------------------------------------ servers

    fn look_at_servers(&mut self, now: Instant, work: &mut Work) {
        if self.stop.is_some() {
            return;
        }
        for endpoint in self.fleet.due_probes(now) {
            let health = self.transport.health(endpoint);
            work.probes.spawn(async move { (endpoint, health.await) });
        }
        for (url, message) in self.fleet.announce() {
            (self.on_event)(Event::EndpointDown { url: &url, message: &message });
        }
        match self.fleet.all_gone() {
            Some(AllGone::Down { since, url, message }) if now - since >= self.plan.patience.server_down_after => {
                self.stop_with(ExitReason::ServerDown { down_for: now - since, url, message });
                self.abort = true;
            }
            Some(AllGone::Out { url, message }) => self.stop_with(ExitReason::Misconfigured { url, message }),
            _ => {}
        }
    }

    fn probed(&mut self, endpoint: usize, result: Result<(), RequestError>) {
        let result = result.map_err(|error| error.to_string());
        if let Some(down_for) = self.fleet.probed(endpoint, Instant::now(), result) {
            let url = self.fleet.url(endpoint).to_owned();
            (self.on_event)(Event::EndpointUp { url: &url, down_for });
        }
    }

    // ------------------------------------------------------------------------------------------ stopping

    fn cancelled(&mut self, level: Level) {
        match level {
            Level::Run => {}
            Level::Drain => self.stop_with(ExitReason::Interrupted { aborted: false }),
            Level::Abort => {
                self.stop = Some(ExitReason::Interrupted { aborted: true });
                self.abort = true;
            }
        }
    }

    fn stop_for(&mut self, warning: Warning) {
        self.stop_with(ExitReason::Gate(warning));
    }

    /// Admits nothing more. The first reason is the one that is told.
    fn stop_with(&mut self, reason: ExitReason) {
        if self.stop.is_none() {
            self.stop = Some(reason);
            (self.on_event)(Event::Draining { in_flight: self.fleet.n_in_flight() });
        }
    }

    /// What is in flight becomes pending again; answers that are there already are kept.
    fn give_up_in_flight(&mut self, work: &mut Work) {
        while let Ok(report) = work.reports.try_recv() {
            self.reported(report);
        }
        // Dropped, not awaited: a closed connection tells the server to stop.
        work.slots = JoinSet::new();
        for slot in 0..self.fleet.n_slots() {
            self.fleet.release(slot);
        }
        if matches!(self.stop, Some(ExitReason::Journal { .. })) {
            self.forget_unacknowledged();
        }
    }

    // ------------------------------------------------------------------------------------------ telling

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + self.plan.progress_interval;
        self.rates.tick(now);
        self.refresh();
        (self.on_event)(Event::Progress(&self.snapshot));
    }

    fn refresh(&mut self) {
        let (answers_per_s, tokens_per_s) = self.rates.per_second(Instant::now());
        let snapshot = &mut self.snapshot;
        snapshot.elapsed = self.started.elapsed();
        snapshot.in_flight = self.fleet.n_in_flight();
        snapshot.waiting = self.timers.len() + self.returned.len();
        snapshot.unacknowledged = self.n_unacknowledged;
        snapshot.endpoints = self.fleet.status();
        snapshot.answers_per_s = answers_per_s;
        snapshot.tokens_per_s = tokens_per_s;
        snapshot.datasets.iter_mut().for_each(|dataset| dataset.in_flight = 0);
        for dataset in self.fleet.in_flight() {
            snapshot.datasets[dataset].in_flight += 1;
        }
    }
}

/// The result of a blocking step; waits for ever when none is under way.
async fn joined<T>(handle: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = handle else { return std::future::pending().await };
    let result = running.await;
    *handle = None;
    match result {
        Ok(value) => value,
        Err(error) => rethrow(error),
    }
}

/// A panic in a task is a bug of ours: it goes on up, after everything acknowledged is on disk.
fn rethrow<T>(error: tokio::task::JoinError) -> T {
    std::panic::resume_unwind(error.into_panic())
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Eight or more digits that no other run shares in practice.
fn run_tag() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("eyas{:x}{:x}", std::process::id(), since.as_millis())
}
