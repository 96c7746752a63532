//! Counters of the whole server, and `/metrics` in Prometheus' text format under SGLang's names.

use crate::backend::Load;
use crate::model::ModelInfo;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency buckets, seconds.
const BUCKETS_S: [f64; 14] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// What was counted since the start. Relaxed atomics: each number is right, pairs of them may be a moment apart.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) n_requests: AtomicU64,
    pub(crate) n_answered: AtomicU64,
    pub(crate) n_aborted: AtomicU64,
    /// Requests whose connection went away before they were done.
    pub(crate) n_disconnected: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) max_in_flight: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) generation_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    e2e: Histogram,
    ttft: Histogram,
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; BUCKETS_S.len()],
    n: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    fn record(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        if let Some(bucket) = BUCKETS_S.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.n.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(value.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Adds one, or `n`.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Meters {
    pub(crate) fn enter(&self) {
        add(&self.n_requests, 1);
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_in_flight.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn record_e2e(&self, elapsed: Duration) {
        self.e2e.record(elapsed);
    }

    pub(crate) fn record_ttft(&self, elapsed: Duration) {
        self.ttft.record(elapsed);
    }

    /// The page.
    pub(crate) fn render(&self, model: &ModelInfo, load: &Load) -> String {
        let label = format!("model_name={}", serde_json::Value::from(model.served_model_name.as_str()));
        let mut page = Page { out: String::new(), label };
        page.gauge("num_running_reqs", "Requests being generated.", load.n_running as f64);
        page.gauge("num_queue_reqs", "Requests waiting.", load.n_queued as f64);
        page.gauge("num_used_tokens", "Tokens in the KV cache.", load.used_tokens as f64);
        page.gauge("token_usage", "Share of the KV cache in use.", load.token_usage(model.max_total_num_tokens));
        page.gauge("gen_throughput", "Generated tokens per second.", load.gen_throughput);
        page.gauge("cache_hit_rate", "Share of prompt tokens found in the cache.", 0.0);
        page.gauge("max_total_num_tokens", "Size of the KV cache, tokens.", model.max_total_num_tokens as f64);
        page.gauge("context_len", "Context length, tokens.", f64::from(model.context_length));
        page.gauge("http_requests_active", "HTTP requests in flight.", get(&self.in_flight) as f64);
        page.counter("prompt_tokens_total", "Prompt tokens.", get(&self.prompt_tokens));
        page.counter("generation_tokens_total", "Generated tokens.", get(&self.generation_tokens));
        page.counter("cached_tokens_total", "Prompt tokens from the cache.", get(&self.cached_tokens));
        page.counter("num_requests_total", "Requests.", get(&self.n_requests));
        page.counter(
            "num_aborted_requests_total",
            "Aborted requests.",
            get(&self.n_aborted) + get(&self.n_disconnected),
        );
        page.counter("num_retracted_requests_total", "Requests put back into the queue.", load.n_retractions);
        page.histogram("e2e_request_latency_seconds", "From request to whole answer.", &self.e2e);
        page.histogram("time_to_first_token_seconds", "From request to first token; streams only.", &self.ttft);
        page.out
    }
}

struct Page {
    out: String,
    label: String,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP sglang:{name} {help}\n# TYPE sglang:{name} {kind}"));
    }

    #[expect(clippy::expect_used, reason = "a String takes every write")]
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{text}").expect("text is written to memory");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        let label = self.label.clone();
        self.line(format_args!("sglang:{name}{{{label}}} {value}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        let label = self.label.clone();
        self.line(format_args!("sglang:{name}{{{label}}} {value}"));
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let label = self.label.clone();
        let mut below = 0;
        for (bound, count) in BUCKETS_S.iter().zip(&histogram.counts) {
            below += get(count);
            self.line(format_args!("sglang:{name}_bucket{{{label},le=\"{bound}\"}} {below}"));
        }
        let n = get(&histogram.n);
        self.line(format_args!("sglang:{name}_bucket{{{label},le=\"+Inf\"}} {n}"));
        self.line(format_args!("sglang:{name}_sum{{{label}}} {}", get(&histogram.sum_us) as f64 / 1e6));
        self.line(format_args!("sglang:{name}_count{{{label}}} {n}"));
    }
}
