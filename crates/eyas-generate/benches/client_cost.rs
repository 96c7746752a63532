//! What one answer costs the client in CPU time, journal included: `cargo bench -p eyas-generate`.
//!
//! 64 requests in flight against a server in a process of its own that answers at once: 1,400 tokens, about 18 KB. Beside it a bare
//! hyper client that only drains the bodies: the floor that kernel and HTTP set. Every row is a process of its own; CPU time is user and
//! system time of that process, from the opening of the run to its end. `EYAS_BENCH_ANSWERS` sets the number of answers (10,000).
//!
//! With the shared tokenizers beside the repository, answers are real text in the ids of a real vocabulary and are split and decoded
//! by the real splitter; else a stand-in cuts the server's text at the marker.
//!
//! `cargo test --benches` runs it with a few answers, as a check that it still works.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark may fail and talks"
)]

use bytes::Bytes;
use eyas_generate::{
    Cancel, DatasetPlan, Endpoint, EndpointPlan, ExitReason, FormatSplitter, FsyncPolicy, GeneratePlan, Protocol, Run,
    SplitInput, SplitOutput, Splitter,
};
use eyas_prompts::reasoning::ReasoningFormat;
use eyas_prompts::tokenizer::Tokenizer;
use eyas_types::{FingerprintInputs, Message, Prompt, Role, SamplingParams, Schema, Source, Span, Spans, ThinkState};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const IN_FLIGHT: u32 = 64;
const N_TOKENS: usize = 1_400;
const N_PROMPT_TOKENS: u32 = 256;
const END_MARKER: &str = "</think>";

fn main() {
    let argument = |n: usize| std::env::args().nth(n).unwrap_or_default();
    match argument(1).as_str() {
        "serve" => serve(Path::new(&argument(2))),
        "row" => println!("{}", row(&argument(2), &argument(3), argument(4).parse().unwrap(), Path::new(&argument(5)))),
        _ => compare(),
    }
}

// ---------------------------------------------------------------------------------------------- the table

fn compare() {
    // `cargo test --benches` passes no `--bench`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let n_answers: usize = match std::env::var("EYAS_BENCH_ANSWERS") {
        Ok(n) => n.parse().expect("EYAS_BENCH_ANSWERS is a number"),
        Err(_) if measuring => 10_000,
        Err(_) => 200,
    };
    let dir = tempfile::tempdir().unwrap();
    let n_bytes = write_answer(&dir.path().join("answer.json"));
    write_prompts(&dir.path().join("prompts.jsonl"), n_answers);
    let tokenizer = if tokenizer_path().is_some() { "real splitter and vocabulary" } else { "stand-in splitter" };
    println!("{n_answers} answers of {N_TOKENS} tokens ({n_bytes} bytes), {IN_FLIGHT} in flight, {tokenizer}\n");
    println!("| client | CPU-s per 1,000 answers | of that system | answers/s (wall) | peak RSS, MB |");
    println!("|--|--:|--:|--:|--:|");
    for name in [
        "hyper, drain only",
        "eyas, fsync each batch",
        "eyas, fsync each 200 ms",
        "eyas, no fsync",
        "eyas, 200 ms, 2 threads",
    ] {
        let mut server = Server::start(dir.path());
        let url = server.url.clone();
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["row", name, &url, &n_answers.to_string()])
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        let row: Value = serde_json::from_slice(&out.stdout).unwrap();
        let number = |key: &str| row[key].as_f64().unwrap();
        let per_1000 = 1_000.0 / n_answers as f64;
        println!(
            "| {name} | {:.3} | {:.3} | {:.0} | {:.0} |",
            number("cpu_s") * per_1000,
            number("system_s") * per_1000,
            n_answers as f64 / number("wall_s"),
            number("rss_mb"),
        );
        server.child.kill().unwrap();
        server.child.wait().unwrap();
    }
}

fn row(name: &str, url: &str, n_answers: usize, dir: &Path) -> Value {
    let threads = if name.ends_with("2 threads") { 2 } else { 1 };
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        n => tokio::runtime::Builder::new_multi_thread().worker_threads(n).enable_all().build(),
    }
    .unwrap();
    let plan = (name != "hyper, drain only").then(|| plan(url, name, dir));
    let (cpu, started) = (CpuTime::now(), Instant::now());
    match plan {
        None => runtime.block_on(drain(url, n_answers)),
        Some(plan) => {
            let run = Run::open(plan).unwrap();
            let outcome = runtime.block_on(run.execute(Cancel::new(), |_| {})).unwrap();
            assert_eq!(outcome.reason, ExitReason::Complete);
            assert_eq!(outcome.snapshot.sum(|dataset| dataset.answered), n_answers as u64);
        }
    }
    let (spent, wall) = (CpuTime::now(), started.elapsed());
    for leftover in ["raw_responses.jsonl", "raw_responses.jsonl.lock"] {
        std::fs::remove_file(dir.join(leftover)).unwrap_or_default();
    }
    json!({
        "cpu_s": (spent.user_s - cpu.user_s) + (spent.system_s - cpu.system_s),
        "system_s": spent.system_s - cpu.system_s,
        "wall_s": wall.as_secs_f64(),
        "rss_mb": peak_rss_mb(),
    })
}

/// CPU time of this process, from `/proc` (Linux), in ticks of 10 ms.
struct CpuTime {
    user_s: f64,
    system_s: f64,
}

impl CpuTime {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program, in parentheses, may hold blanks.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
        Self { user_s: ticks(11), system_s: ticks(12) }
    }
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb: Option<f64> = line.and_then(|line| line.split_whitespace().next()).and_then(|kb| kb.parse().ok());
    kb.unwrap_or(0.0) / 1024.0
}

// ---------------------------------------------------------------------------------------------- clients

fn plan(url: &str, name: &str, dir: &Path) -> GeneratePlan {
    let splitter: Arc<dyn Splitter> = match tokenizer_path() {
        Some(path) => {
            let tokenizer = Tokenizer::from_file(&path).unwrap();
            Arc::new(FormatSplitter::new(
                ReasoningFormat::named("think", Some(&tokenizer)).unwrap(),
                Arc::new(tokenizer),
            ))
        }
        None => Arc::new(TextCutter),
    };
    let mut plan = GeneratePlan::new(SamplingParams::default(), splitter, FingerprintInputs::default());
    plan.datasets.push(DatasetPlan::in_dir("bench", dir));
    let endpoint = Arc::new(Endpoint::new(url, Protocol::SglangGenerate).unwrap());
    plan.endpoints.push(EndpointPlan { endpoint, slots: IN_FLIGHT });
    plan.fsync = match name {
        "eyas, fsync each batch" => FsyncPolicy::EachBatch,
        "eyas, no fsync" => FsyncPolicy::Never,
        _ => FsyncPolicy::Interval(200),
    };
    plan
}

/// The floor: the same requests, the bodies thrown away.
async fn drain(url: &str, n_answers: usize) {
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let left = Arc::new(AtomicUsize::new(n_answers));
    let ids: Vec<String> = (0..N_PROMPT_TOKENS).map(|id| (1_000 + id).to_string()).collect();
    let body = Bytes::from(format!(
        "{{\"rid\":\"r\",\"input_ids\":[{}],\"sampling_params\":{{\"max_new_tokens\":2048}},\"stream\":false}}",
        ids.join(",")
    ));
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (address, left, body) = (address.clone(), Arc::clone(&left), body.clone());
            tokio::spawn(async move {
                let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let request = hyper::Request::post("/generate")
                        .header("host", &address)
                        .body(Full::new(body.clone()))
                        .unwrap();
                    let mut response = sender.send_request(request).await.unwrap().into_body();
                    while let Some(frame) = response.frame().await {
                        frame.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Stands in for the splitter where there is no tokenizer: the server's text, cut at the marker.
struct TextCutter;

impl Splitter for TextCutter {
    fn split(&self, input: &SplitInput<'_>) -> SplitOutput {
        let n = u32::try_from(input.output_ids.unwrap_or_default().len()).unwrap();
        let (reasoning, content) = input.text.split_once(END_MARKER).unwrap_or(("", input.text));
        let spans = Spans { content: Span::new(0, n), stop: Span::new(n, n), ..Spans::default() };
        SplitOutput {
            spans: Some(spans),
            reasoning: reasoning.to_owned(),
            content: content.to_owned(),
            ..SplitOutput::default()
        }
    }
}

// ---------------------------------------------------------------------------------------------- input

fn tokenizer_path() -> Option<PathBuf> {
    let shared = match std::env::var_os("EYAS_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    Some(shared.join("fixtures/deepseek/deepseek_v4__tokenizer.json")).filter(|path| path.is_file())
}

/// Writes the answer that the server gives, with `RID` where the request's id goes; returns its length.
fn write_answer(path: &Path) -> usize {
    let (text, ids) = match tokenizer_path() {
        Some(path) => {
            let tokenizer = Tokenizer::from_file(&path).unwrap();
            // Words of six or seven bytes, so that 1,400 tokens come to about 18 KB.
            let is_word = |id: &u32| {
                let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
                (6..=7).contains(&bytes.len()) && bytes[0] == b' ' && bytes[1..].iter().all(u8::is_ascii_lowercase)
            };
            let mut ids: Vec<u32> = (0..tokenizer.n_ids()).filter(is_word).cycle().take(N_TOKENS - 1).collect();
            ids[900] = tokenizer.id_of(END_MARKER).unwrap();
            let text = tokenizer.decode(&ids, eyas_prompts::tokenizer::Specials::Keep).unwrap();
            ids.push(1);
            (text, ids)
        }
        None => {
            let ids: Vec<u32> = (0..N_TOKENS).map(|n| u32::try_from(10_000 + n * 37 % 90_000).unwrap()).collect();
            (format!("{}{END_MARKER}{}", " thinks".repeat(900), " writes".repeat(500)), ids)
        }
    };
    let body = json!({"text": text, "output_ids": ids, "meta_info": {"id": "RID",
        "finish_reason": {"type": "stop", "matched": ids[N_TOKENS - 1]}, "prompt_tokens": N_PROMPT_TOKENS,
        "completion_tokens": N_TOKENS, "cached_tokens": 16, "cached_tokens_details": {"device": 16, "host": 0},
        "reasoning_tokens": 0, "weight_version": "default", "num_retractions": 0, "dp_rank": null, "e2e_latency": 0.41,
        "response_sent_to_client_ts": 1_795_000_000.1}});
    let body = body.to_string();
    eyas_testkit::write_file(path, &body);
    body.len()
}

fn write_prompts(path: &Path, n: usize) {
    let prompt_ids: Vec<u32> = (0..N_PROMPT_TOKENS).map(|id| 1_000 + id).collect();
    let mut out = Vec::new();
    for row in 0..n {
        let prompt = Prompt {
            schema: Schema::PROMPT,
            sample_id: format!("bench-{row:08}"),
            dataset: "bench".to_owned(),
            source: Source { file: "bench.jsonl".to_owned(), row: row as u64 + 1 },
            messages: vec![Message::text(
                Role::User,
                "How much does it cost to ask a question of this length? ".repeat(18),
            )],
            tools: None,
            prompt_ids: prompt_ids.clone(),
            think: ThinkState::Open,
            reference: None,
            repairs: Vec::new(),
        };
        serde_json::to_writer(&mut out, &prompt).unwrap();
        out.push(b'\n');
    }
    eyas_testkit::write_file(path, out);
}

// ---------------------------------------------------------------------------------------------- the server

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(dir.join("answer.json"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, url: format!("http://127.0.0.1:{}", line.trim()) }
    }
}

/// Answers every POST with the same body, the request's own id in it. One thread a connection; its CPU time is not counted.
fn serve(answer: &Path) {
    let body = std::fs::read_to_string(answer).unwrap();
    let (before, after) = body.split_once("RID").unwrap();
    let parts = Arc::new((before.as_bytes().to_vec(), after.as_bytes().to_vec()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    for stream in listener.incoming() {
        let parts = Arc::clone(&parts);
        std::thread::spawn(move || talk(stream.unwrap(), &parts));
    }
}

fn talk(stream: TcpStream, (before, after): &(Vec<u8>, Vec<u8>)) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut line, mut request, mut response) = (String::new(), Vec::new(), Vec::new());
    loop {
        let mut n_bytes = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(n) = line.strip_prefix("content-length: ") {
                n_bytes = n.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        request.resize(n_bytes, 0);
        if reader.read_exact(&mut request).is_err() {
            return;
        }
        let rid = request.strip_prefix(b"{\"rid\":\"").unwrap();
        let rid = &rid[..rid.iter().position(|&byte| byte == b'"').unwrap()];
        response.clear();
        let n_bytes = before.len() + rid.len() + after.len();
        write!(response, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {n_bytes}\r\n\r\n")
            .unwrap();
        for part in [before, rid, after] {
            response.extend_from_slice(part);
        }
        if reader.get_mut().write_all(&response).is_err() {
            return;
        }
    }
}
