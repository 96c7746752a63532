//! What a scripted answer costs the server: CPU time of its thread for answers of 1,400 tokens, 64 in flight, no latency.
//!
//! `cargo bench -p eyas-serve --bench script [answers]`. The client here only drains; it runs on another thread and is not counted.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench prints its figures and stops at what it did not expect"
)]

use eyas_serve::script::Lengths;
use eyas_serve::{Script, ScriptBackend, Server, ServerConfig};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

const IN_FLIGHT: u64 = 64;

fn main() {
    let n_answers: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(50_000);
    let (send_addr, addr) = channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = thread::spawn(move || {
        let script = Script { lengths: Lengths::Fixed { tokens: 1400 }, ..Script::default() };
        let backend = ScriptBackend::new(script).expect("the script is valid");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::start(backend, ServerConfig::default()).await.expect("a loopback port is free");
            send_addr.send(server.addr()).expect("the bench waits for it");
            let before = thread_cpu_s();
            stopped.await.ok();
            (thread_cpu_s() - before, server.script_stats().expect("a script"))
        })
    });
    let addr = addr.recv().expect("the server starts");
    let began = Instant::now();
    let n_bytes = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..IN_FLIGHT {
            let n_bytes = &n_bytes;
            scope.spawn(move || n_bytes.fetch_add(drain(addr, client, n_answers / IN_FLIGHT), Ordering::Relaxed));
        }
    });
    let wall_s = began.elapsed().as_secs_f64();
    stop.send(()).ok();
    let (cpu_s, stats) = server.join().expect("the server ends well");
    let n = stats.answered as f64;
    println!("answers            {n}");
    println!("body               {:.0} bytes", n_bytes.into_inner() as f64 / n);
    println!("server CPU         {:.3} s for 1,000 answers", cpu_s / n * 1e3);
    println!("a core would give  {:.0} answers/s", n / cpu_s);
    println!("wall               {:.0} answers/s, clients on the same machine", n / wall_s);
}

/// Asks `n` times over one connection; the bytes of the bodies.
fn drain(addr: SocketAddr, client: u64, n: u64) -> u64 {
    let mut stream = TcpStream::connect(addr).expect("connects");
    let mut buffer = vec![0; 1 << 16];
    let mut n_bytes = 0;
    for call in 0..n {
        let ids: Vec<String> = (0..256).map(|at| ((client * 7919 + call * 31 + at) % 90_000).to_string()).collect();
        let body = format!(
            "{{\"rid\":\"{client}-{call}\",\"input_ids\":[{}],\"sampling_params\":{{\"max_new_tokens\":10240,\"temperature\":1.0}}}}",
            ids.join(",")
        );
        let head = format!("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("sends");
        let mut filled = 0;
        let total = loop {
            filled += stream.read(&mut buffer[filled..]).expect("reads");
            if let Some(total) = whole_length(&buffer[..filled]) {
                break total;
            }
        };
        while filled < total.0 + total.1 {
            filled += stream.read(&mut buffer[filled..]).expect("reads");
        }
        n_bytes += total.1 as u64;
    }
    n_bytes
}

/// Length of head and body, once the head is whole.
fn whole_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).expect("a head is ASCII");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    Some((head, length.expect("a content length")))
}

/// CPU time of this thread, seconds (Linux; elsewhere 0).
fn thread_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
