//! What several tests of the command share: running it, reading what it left, talking HTTP, listening in on a server.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in <root>/crates/eyas").to_owned()
}

/// The binary under test: `EYAS_BIN` where it is set (CI names the release build), else the one built with the tests.
pub(crate) fn eyas() -> Command {
    Command::new(std::env::var_os("EYAS_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_eyas").into()))
}

/// Runs `eyas` with `args` in `dir`.
pub(crate) fn run_in(dir: &Path, args: &[&str]) -> Output {
    eyas().args(args).current_dir(dir).output().expect("the binary runs")
}

/// Runs `eyas`, wants exit code `code`, and returns standard output.
#[track_caller]
pub(crate) fn run_ok(dir: &Path, args: &[&str], code: i32) -> String {
    let output = run_in(dir, args);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "eyas {args:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    stdout.into_owned()
}

/// The lines of a JSONL file.
#[track_caller]
pub(crate) fn jsonl(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Token ids of a JSON array.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("an array of ids").iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// The value of an environment variable, or `None` and a line that says what is skipped.
pub(crate) fn wanted(variable: &str, what: &str) -> Option<String> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        println!("skipped: {what}, because {variable} is not set (`.ci/interop` sets it)");
    }
    value
}

/// `POST`s a JSON document to `http://host:port/path` and returns the JSON answer.
#[track_caller]
pub(crate) fn post(url: &str, body: &Value) -> Value {
    let rest = url.strip_prefix("http://").expect("a plain http URL");
    let (host, path) = rest.split_once('/').expect("a URL with a path");
    let mut stream = TcpStream::connect(host).unwrap_or_else(|error| panic!("{url}: {error}"));
    let body = body.to_string();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{url}: {answer}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{url}: {error}: {body}"))
}

/// A proxy that hands bytes through unchanged and keeps what was said on each connection.
pub(crate) struct Tap {
    /// Base URL to use in the server's place.
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// Both directions of one connection.
#[derive(Default)]
struct Heard {
    asked: Vec<u8>,
    answered: Vec<u8>,
}

impl Tap {
    /// Listens on a free port and forwards to `upstream` (`http://host:port`).
    pub(crate) fn on(upstream: &str) -> Self {
        let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let all = heard.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&upstream).expect("the server is up");
                let index = {
                    let mut all = all.lock().unwrap();
                    all.push(Heard::default());
                    all.len() - 1
                };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (asked, answered) = (all.clone(), all.clone());
                std::thread::spawn(move || pass(from, to, |bytes| asked.lock().unwrap()[index].asked.extend(bytes)));
                std::thread::spawn(move || {
                    pass(server, client, |bytes| answered.lock().unwrap()[index].answered.extend(bytes))
                });
            }
        });
        Self { url, heard }
    }

    /// Every request with the answer it got, as JSON; those without a JSON body are left out.
    pub(crate) fn exchanges(&self) -> Vec<(Value, Value)> {
        let heard = self.heard.lock().unwrap();
        let pairs = heard.iter().flat_map(|heard| bodies(&heard.asked).into_iter().zip(bodies(&heard.answered)));
        pairs.filter_map(|(asked, answered)| Some((asked?, answered?))).collect()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut keep: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            break;
        }
        keep(&buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    to.shutdown(std::net::Shutdown::Write).ok();
}

/// Bodies of a stream of HTTP/1.1 messages, in order; one without `content-length` has none.
fn bodies(mut stream: &[u8]) -> Vec<Option<Value>> {
    let mut found = Vec::new();
    while let Some(end) = stream.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&stream[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().expect("a number"));
        let body = &stream[end + 4..];
        if body.len() < length {
            break;
        }
        found.push(serde_json::from_slice(&body[..length]).ok());
        stream = &body[length..];
    }
    found
}
