//! A scripted server on loopback: plays the `.server.json` rules of the shared cases, in this process, with a thread for each connection.
//!
//! A behaviour is `{"default": ACTION, "rules": [{"match": {…}, "do": ACTION}], …}`; the first matching rule wins, all keys of a match must
//! hold: `contains` (in the prompt text; ids are decoded), `nth`, `nth_from` (number of the request in the whole run, from 1), `attempt`,
//! `attempt_from` (number of the request for the same prompt), `path`. Further keys: `keep_alive_s`, `max_running`, `max_queued`,
//! `overflow`, `health`, `models`, `require_auth`.
//!
//! Actions: `ok` (`text`, `output_ids`, `finish`, `delay_s`), `json` (`status`, `headers`, `body`, `delay_s`), `text` (`status`, `body`),
//! `hang`, `close` (`when`: `before_headers` or `mid_body`), `die`. The strings `$rid`, `$prompt_tokens`, `$prompt_ids`, `$n`, `$attempt` in
//! a body are replaced.

mod http;
mod rules;

use http::{Reply, Request};
use rules::{Asked, Behaviour, Played, TokenTexts};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A running server. Dropping it stops it.
pub struct MockServer {
    port: u16,
    shared: Arc<Shared>,
}

/// One request for an answer, as the server saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// Number, from 1.
    pub n: u64,
    /// Since the server was started.
    pub at: Duration,
    /// Path.
    pub path: String,
    /// Prompt text.
    pub key: String,
    /// Number of the request for this prompt text, from 1.
    pub attempt: u64,
    /// Requests in flight, this one included.
    pub in_flight: usize,
    /// The client's name for it.
    pub rid: Option<String>,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// `sampling_params`.
    pub sampling: Value,
}

struct Shared {
    behaviour: Behaviour,
    texts: TokenTexts,
    started: Instant,
    dead: AtomicBool,
    in_flight: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Vec<Logged>,
    attempts: HashMap<String, u64>,
    aborted: Vec<String>,
    streams: Vec<TcpStream>,
    n_connections: usize,
}

impl MockServer {
    /// Starts on a free port; ids from 0 to 255 are bytes, and the few others of the shared tiny tokenizer are known.
    pub fn start(behaviour: Value) -> Self {
        Self::start_on(0, behaviour)
    }

    /// Starts on a given port (0: a free one), such as that of a server that has died.
    #[track_caller]
    pub fn start_on(port: u16, behaviour: Value) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port on loopback");
        let port = listener.local_addr().expect("address of the listener").port();
        let shared = Arc::new(Shared {
            behaviour: Behaviour::new(behaviour),
            texts: TokenTexts::tiny(),
            started: Instant::now(),
            dead: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            state: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Every request for an answer so far.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.state().log.clone()
    }

    /// How many requests for an answer came.
    pub fn n_requests(&self) -> usize {
        self.shared.state().log.len()
    }

    /// How often each prompt text was asked.
    pub fn asked(&self) -> HashMap<String, u64> {
        self.shared.state().attempts.clone()
    }

    /// Request ids named at `/abort_request`.
    pub fn aborted(&self) -> Vec<String> {
        self.shared.state().aborted.clone()
    }

    /// Connections accepted so far.
    pub fn n_connections(&self) -> usize {
        self.shared.state().n_connections
    }

    /// Most requests in flight at a time.
    pub fn peak_in_flight(&self) -> usize {
        self.shared.state().log.iter().map(|logged| logged.in_flight).max().unwrap_or(0)
    }

    /// Closes the port and every connection.
    pub fn die(&self) {
        self.shared.die(self.port);
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn die(&self, port: u16) {
        if self.dead.swap(true, Ordering::SeqCst) {
            return;
        }
        for stream in self.state().streams.drain(..) {
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
        // Wakes the accepting thread, which then drops the listener.
        TcpStream::connect(("127.0.0.1", port)).map(drop).unwrap_or_default();
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_dead() {
            return;
        }
        let Ok(stream) = stream else { continue };
        {
            let mut state = shared.state();
            state.n_connections += 1;
            state.streams.extend(stream.try_clone());
        }
        let shared = Arc::clone(shared);
        let serve = move || serve(stream, &shared);
        std::thread::Builder::new().stack_size(256 * 1024).spawn(serve).map(drop).unwrap_or_default();
    }
}

/// Serves one connection until either side closes it.
fn serve(stream: TcpStream, shared: &Shared) {
    let keep_alive = shared.behaviour.keep_alive();
    let Ok(mut connection) = http::Connection::new(stream, keep_alive) else { return };
    talk(&mut connection, shared);
    // Another handle of the socket is kept for `die`: dropping this one would not close it.
    connection.close();
}

fn talk(connection: &mut http::Connection, shared: &Shared) {
    while let Some(request) = connection.read_request() {
        if shared.is_dead() {
            return;
        }
        let reply =
            if request.method == "GET" { shared.behaviour.side_route(&request.path) } else { answer(&request, shared) };
        match reply {
            Reply::Hang => return connection.wait_for_close(),
            Reply::Close => return,
            Reply::Die => return shared.die(connection.local_port()),
            reply => {
                if shared.is_dead() || !connection.write(&reply) {
                    return;
                }
            }
        }
    }
}

fn answer(request: &Request, shared: &Shared) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    if request.path == "/abort_request" {
        shared.state().aborted.extend(body["rid"].as_str().map(str::to_owned));
        return Reply::text(200, "");
    }
    let (key, ids) = shared.texts.key_of(&body);
    let in_flight = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    let asked = {
        let mut state = shared.state();
        let attempt = state.attempts.entry(key.clone()).or_default();
        *attempt += 1;
        let asked = Asked {
            n: state.log.len() as u64 + 1,
            attempt: state.attempts[&key],
            path: request.path.clone(),
            rid: body["rid"].as_str().map(str::to_owned),
            key,
            ids,
            in_flight,
            authorization: request.authorization.clone(),
        };
        state.log.push(Logged {
            n: asked.n,
            at: shared.started.elapsed(),
            path: asked.path.clone(),
            key: asked.key.clone(),
            attempt: asked.attempt,
            in_flight,
            rid: asked.rid.clone(),
            authorization: request.authorization.clone(),
            sampling: body["sampling_params"].clone(),
        });
        asked
    };
    let Played { reply, delay } = shared.behaviour.play(&asked);
    if let Some(delay) = delay {
        std::thread::sleep(delay);
    }
    shared.in_flight.fetch_sub(1, Ordering::SeqCst);
    reply
}

/// A behaviour in which every prompt is answered with `text` after `delay_s` seconds.
pub fn always_ok(text: &str, delay_s: f64) -> Value {
    json!({ "default": { "type": "ok", "text": text, "delay_s": delay_s } })
}
