//! `/generate`: from a body to one answer, an array, or a stream.

use crate::app::App;
use crate::backend::Generation;
use crate::connection::ConnectionControl;
use crate::fault::{WireFault, reset_after_flush};
use crate::json::Json;
use crate::meters::add;
use crate::refusal::{Refusal, json_response};
use crate::registry::Ticket;
use crate::reply::{Moment, Rendered, write_answer};
use crate::request::{Job, Request};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use eyas_types::FinishReason;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, Stream};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// Handles one call.
pub(crate) async fn generate(app: Arc<App>, control: Arc<ConnectionControl>, body: Bytes) -> Response<Body> {
    let request = match Request::parse(&body, app.backend.model(), |text| app.backend.encode(text)) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    drop(body);
    let mut running = match start_all(&app, request.jobs, "/generate") {
        Ok(running) => running,
        Err(refusal) => return refusal.into_response(),
    };
    let fault = match take_fault(&mut running, &control, &app).await {
        Ok(fault) => fault,
        Err(response) => return *response,
    };
    if request.stream {
        let is_array = request.is_array;
        return stream_all(running, fault, control, |n| cumulative(is_array.then_some(n)));
    }
    deliver(whole(&mut running, request.is_array).await, fault, control)
}

/// The fault that will spoil the delivery; one that strikes at once answers in its own way.
pub(crate) async fn take_fault(
    running: &mut [Running],
    control: &ConnectionControl,
    app: &App,
) -> Result<Option<WireFault>, Box<Response<Body>>> {
    match running.iter_mut().find_map(|running| running.wire_fault.take()) {
        Some(fault) if fault.is_immediate() => {
            let response = fault.strike(control, &app.lifecycle).await;
            running.iter_mut().for_each(|running| running.is_done = true);
            Err(Box::new(response))
        }
        fault => Ok(fault),
    }
}

/// A whole body, or what a fault makes of it.
pub(crate) fn deliver(
    body: Result<Vec<u8>, Refusal>,
    fault: Option<WireFault>,
    control: Arc<ConnectionControl>,
) -> Response<Body> {
    match (body, fault) {
        (Err(refusal), _) => refusal.into_response(),
        (Ok(body), Some(fault)) => fault.spoil(body, control),
        (Ok(body), None) => json_response(StatusCode::OK, body),
    }
}

/// Events of `/generate`: each holds the whole answer so far; a batch's events carry their index.
fn cumulative(index: Option<usize>) -> EventWriter {
    Box::new(move |running, finish| sse_event(&running.render(finish, index).0))
}

/// One server-sent event.
pub(crate) fn sse_event(data: &[u8]) -> Vec<u8> {
    [b"data: ", data, b"\n\n"].concat()
}

/// Whether one token comes out of the model: the honest health check.
pub(crate) async fn one_token(app: &Arc<App>) -> bool {
    let body = br#"{"input_ids":[0],"sampling_params":{"max_new_tokens":1,"temperature":0}}"#;
    let Ok(request) = Request::parse(body, app.backend.model(), |_| Ok(Vec::new())) else { return false };
    let Ok(mut running) = start_all(app, request.jobs, "/health_generate") else { return false };
    whole(&mut running, false).await.is_ok()
}

/// Begins every job of a request; a refusal of one drops, and so aborts, the others.
pub(crate) fn start_all(app: &Arc<App>, jobs: Vec<Job>, path: &str) -> Result<Vec<Running>, Refusal> {
    jobs.into_iter().map(|job| Running::start(app, Arc::new(job), path)).collect()
}

async fn whole(running: &mut [Running], is_array: bool) -> Result<Vec<u8>, Refusal> {
    if let [one] = running
        && !is_array
    {
        let finish = one.finish().await?;
        return Ok(one.render(Some(&finish), None).0);
    }
    let finishes = join_all(running.iter_mut().map(Running::finish)).await;
    let mut out = Json::default();
    out.raw("[");
    for (n, (one, finish)) in running.iter().zip(finishes).enumerate() {
        out.raw(if n > 0 { "," } else { "" });
        one.render_into(&mut out, Some(&finish?), None);
    }
    out.raw("]");
    Ok(out.0)
}

/// One answer on its way, entered in the registry and the meters until it is dropped.
pub(crate) struct Running {
    app: Arc<App>,
    pub(crate) job: Arc<Job>,
    ticket: Ticket,
    pub(crate) generation: Generation,
    pub(crate) wire_fault: Option<WireFault>,
    received: Instant,
    is_done: bool,
}

impl Running {
    fn start(app: &Arc<App>, job: Arc<Job>, path: &str) -> Result<Self, Refusal> {
        let ticket = app
            .registry
            .enter(job.rid.clone())
            .map_err(|duplicate| Refusal::bad_value(format!("Duplicate request ID detected: {}", duplicate.0)))?;
        let started = app.backend.start(&job, path)?;
        app.meters.enter();
        Ok(Self {
            app: Arc::clone(app),
            job,
            ticket,
            generation: started.generation,
            wire_fault: started.wire_fault,
            received: Instant::now(),
            is_done: false,
        })
    }

    /// Waits for the end, its own or an abort.
    pub(crate) async fn finish(&mut self) -> Result<FinishReason, Refusal> {
        loop {
            if let Some(finish) = self.advance(true).await? {
                return Ok(finish);
            }
        }
    }

    /// Waits for the next step, or, with `whole`, for the end.
    pub(crate) async fn advance(&mut self, whole: bool) -> Result<Option<FinishReason>, Refusal> {
        let Self { generation, ticket, .. } = self;
        let step = tokio::select! {
            biased;
            // First, so that an abort of everything reaches the queue before the places it frees do.
            () = ticket.aborted() => None,
            step = generation.run(whole) => Some(step),
        };
        let finish = match step {
            Some(Ok(finish)) => finish,
            Some(Err(refusal)) => {
                self.is_done = true;
                return Err(refusal);
            }
            None => Some(self.generation.abort()),
        };
        if let Some(finish) = &finish {
            self.is_done = true;
            self.count(finish);
        }
        Ok(finish)
    }

    fn count(&self, finish: &FinishReason) {
        let meters = &self.app.meters;
        add(if finish.is_success() { &meters.n_answered } else { &meters.n_aborted }, 1);
        add(&meters.prompt_tokens, self.job.input_ids.len() as u64);
        add(&meters.generation_tokens, self.generation.n_tokens() as u64);
        add(&meters.cached_tokens, self.generation.meta().cached_tokens);
        meters.record_e2e(self.received.elapsed());
    }

    /// The answer so far as a body.
    pub(crate) fn render(&self, finish: Option<&FinishReason>, index: Option<usize>) -> Json {
        let mut out = Json::with_capacity(self.generation.n_tokens() * 14 + 512);
        self.render_into(&mut out, finish, index);
        out
    }

    fn render_into(&self, out: &mut Json, finish: Option<&FinishReason>, index: Option<usize>) {
        let moment = Moment { finish, elapsed: self.received.elapsed(), index };
        write_answer(out, &self.generation, &self.job, moment, &self.app.backend.model().weight_version);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.app.meters.leave();
        if !self.is_done {
            add(&self.app.meters.n_disconnected, 1);
        }
    }
}

type Event = Result<Bytes, Infallible>;

/// Writes the events for what is new in an answer; with the finish reason the last ones.
pub(crate) type EventWriter = Box<dyn FnMut(&Running, Option<&FinishReason>) -> Vec<u8> + Send>;

/// Server-sent events of all answers as they come, then `[DONE]`. `writer` makes the writer of the n-th answer.
pub(crate) fn stream_all(
    running: Vec<Running>,
    fault: Option<WireFault>,
    control: Arc<ConnectionControl>,
    writer: impl Fn(usize) -> EventWriter,
) -> Response<Body> {
    let ends_early = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&ends_early);
    let streams = running.into_iter().enumerate().map(|(n, one)| {
        let state = Streaming {
            running: one,
            writer: writer(n),
            // One fault spoils the call; it strikes in the first of its answers.
            fault: (n == 0).then(|| fault.clone()).flatten(),
            control: Arc::clone(&control),
            ends_early: Arc::clone(&ends_early),
            n_events: 0,
            is_over: false,
        };
        Box::pin(stream::unfold(state, Streaming::next))
    });
    let streams = stream::select_all(streams);
    let done =
        stream::once(async move { (!is_cut.load(Ordering::Relaxed)).then(|| Ok(Bytes::from("data: [DONE]\n\n"))) })
            .filter_map(|event| async { event });
    event_stream(streams.chain(done))
}

/// A response of server-sent events.
fn event_stream(events: impl Stream<Item = Event> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response
}

struct Streaming {
    running: Running,
    writer: EventWriter,
    fault: Option<WireFault>,
    control: Arc<ConnectionControl>,
    ends_early: Arc<AtomicBool>,
    n_events: u64,
    is_over: bool,
}

impl Streaming {
    async fn next(mut self) -> Option<(Event, Self)> {
        if self.is_over {
            return None;
        }
        let step = self.running.advance(false).await;
        if self.n_events == 0 {
            self.running.app.meters.record_ttft(self.running.received.elapsed());
        }
        let is_end = !matches!(step, Ok(None));
        // A fault strikes after the first event, or in place of the last one.
        if (self.n_events > 0 || is_end)
            && let Some(fault) = self.fault.take()
        {
            return self.spoil(fault).await;
        }
        self.n_events += 1;
        self.is_over = is_end;
        let event = match step {
            Ok(finish) => (self.writer)(&self.running, finish.as_ref()),
            Err(refusal) => sse_event(&refusal.body()),
        };
        Some((Ok(event.into()), self))
    }

    async fn spoil(mut self, fault: WireFault) -> Option<(Event, Self)> {
        self.is_over = true;
        match fault {
            WireFault::MalformedJson => Some((Ok(Bytes::from("data: {\"text\":\"cut\n\n")), self)),
            WireFault::BadUtf8 => Some((Ok(Bytes::from_static(b"data: {\"text\":\"\xff\"}\n\n")), self)),
            WireFault::ResetMidBody | WireFault::CutBody => {
                reset_after_flush(&self.control).await;
                None
            }
            WireFault::HangMidBody => pending().await,
            _ => {
                self.ends_early.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}
