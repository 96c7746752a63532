//! Decoding speed of the engine: `cargo run --release -p eyas-target --example decode_speed -- [MODEL] [N_REQUESTS] [NEW_TOKENS] [MODE]`.
//!
//! Without a model, or with `-`, a random one of about a million weights is made (vocabulary 1024, hidden 128, 4 layers, 4 heads over 2, MLP 344).
//! Prints tokens per second of wall time and of CPU time. For one core set `RAYON_NUM_THREADS=1 CANDLE_NUM_THREADS=1`.

#[path = "../tests/it/tiny.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "it belongs to the tests, which use more of it")]
mod tiny;

use eyas_target::{Engine, EngineConfig, Event, Request, Target, WeightMode};
use eyas_types::SamplingParams;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PROMPT_TOKENS: u32 = 32;

#[expect(clippy::print_stdout, reason = "an example that prints its findings")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u32| args.get(i).map_or(Ok(default), |arg| arg.parse());
    let (n_requests, max_new_tokens) = (number(1, 64)?, number(2, 256)?);
    let mode: WeightMode = args.get(3).map_or(Ok(WeightMode::F32), |arg| arg.parse())?;

    let scratch = tempfile::tempdir()?;
    let path = match args.first().filter(|arg| *arg != "-") {
        Some(path) => PathBuf::from(path),
        None => {
            let spec = tiny::Spec {
                vocab_size: 1024,
                hidden_size: 128,
                intermediate_size: 344,
                n_layers: 4,
                head_dim: 32,
                ..tiny::Spec::llama()
            };
            let spec = spec.with(serde_json::json!({"max_position_embeddings": 4096}));
            spec.write(scratch.path(), &spec.tensors(1), safetensors::Dtype::F32);
            scratch.path().to_owned()
        }
    };
    let opened = Instant::now();
    let target = Target::open(&path, mode)?;
    let vocab_size = u32::try_from(target.model.config().vocab_size)?;
    println!(
        "{} weights, {} loaded in {:.2} s",
        target.model.n_params(),
        mode.as_str(),
        opened.elapsed().as_secs_f64()
    );

    for temperature in [0.0, 1.0] {
        let model = Arc::new(Target::open(&path, mode)?.model);
        let engine = Engine::start(
            model,
            Vec::new(),
            &EngineConfig { max_running: n_requests as usize, ..EngineConfig::default() },
        )?;
        let (done, finished) = channel();
        let (started, cpu_before) = (Instant::now(), cpu_time());
        for i in 0..n_requests {
            let done = done.clone();
            let sampling =
                SamplingParams { max_new_tokens, temperature, seed: Some(u64::from(i)), ..SamplingParams::default() };
            let input_ids = (0..PROMPT_TOKENS).map(|t| (t * 7919 + i * 31) % vocab_size).collect();
            let sink = Box::new(move |event: Event<'_>| {
                if let Event::Finished(finished) = event {
                    done.send(finished.completion_tokens).unwrap_or_default();
                }
            });
            engine.submit(Request { rid: i.to_string(), input_ids, sampling, sink })?;
        }
        drop(done);
        let n_tokens: u32 = finished.iter().sum();
        let (wall, cpu) = (started.elapsed().as_secs_f64(), (cpu_time() - cpu_before).as_secs_f64());
        println!(
            "temperature {temperature}: {n_requests} requests x {PROMPT_TOKENS}+{max_new_tokens} tokens: {n_tokens} in {wall:.2} s wall, {cpu:.2} s CPU: {:.0} tok/s, {:.0} tok/CPU-s",
            f64::from(n_tokens) / wall,
            f64::from(n_tokens) / cpu,
        );
    }
    Ok(())
}

/// CPU time of the process so far, user and system (Linux; 0 elsewhere).
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // Clock ticks are hundredths of a second on every Linux that matters here.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
