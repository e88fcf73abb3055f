//! The `/metrics` page, with vLLM's names, labels and buckets.
//!
//! Only the series that a reader of a real engine's page uses are here; the real page is some
//! 50 KB because it has more histograms, not because these differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::config::SimConfig;
use super::engine::End;

const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0, 100_000.0,
];

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn record(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        let at = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
    }
}

/// Gauges of one moment, read from the engine for the page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) kv_usage: f64,
}

/// Times of one finished sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    pub(crate) queue: Duration,
    pub(crate) prefill: Duration,
    pub(crate) decode: Duration,
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
}

/// Counters and histograms since the start.
#[derive(Debug)]
pub(crate) struct Metrics {
    queue: Histogram,
    latency: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    first_token: Histogram,
    inter_token: Histogram,
    per_output_token: Histogram,
    prompt: Histogram,
    generation: Histogram,
    finished: BTreeMap<&'static str, u64>,
    rejected: BTreeMap<&'static str, u64>,
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let finished = ["stop", "length", "abort", "error", "repetition"];
        Self {
            queue: Histogram::new(LATENCY),
            latency: Histogram::new(LATENCY),
            prefill: Histogram::new(LATENCY),
            decode: Histogram::new(LATENCY),
            inference: Histogram::new(LATENCY),
            first_token: Histogram::new(FIRST_TOKEN),
            inter_token: Histogram::new(PER_TOKEN),
            per_output_token: Histogram::new(PER_TOKEN),
            prompt: Histogram::new(TOKENS),
            generation: Histogram::new(TOKENS),
            finished: finished.into_iter().map(|reason| (reason, 0)).collect(),
            rejected: BTreeMap::new(),
            prompt_tokens: 0,
            generation_tokens: 0,
        }
    }

    pub(crate) fn rejected(&mut self, reason: &'static str) {
        *self.rejected.entry(reason).or_default() += 1;
    }

    pub(crate) fn first_token(&mut self, since_arrival: Duration) {
        self.first_token.record(since_arrival.as_secs_f64());
    }

    pub(crate) fn next_token(&mut self, since_last: Duration) {
        self.inter_token.record(since_last.as_secs_f64());
    }

    /// Aborted requests count nowhere, as in the real engine.
    pub(crate) fn finished(&mut self, end: End, times: &Timings) {
        let reason = match end {
            End::Stop => "stop",
            End::Length => "length",
        };
        *self.finished.entry(reason).or_default() += 1;
        let inference = times.prefill + times.decode;
        self.queue.record(times.queue.as_secs_f64());
        self.latency.record((times.queue + inference).as_secs_f64());
        self.prefill.record(times.prefill.as_secs_f64());
        self.decode.record(times.decode.as_secs_f64());
        self.inference.record(inference.as_secs_f64());
        self.prompt.record(times.prompt_tokens as f64);
        self.generation.record(times.output_tokens as f64);
        if times.output_tokens > 1 {
            let gaps = (times.output_tokens - 1) as f64;
            self.per_output_token.record(times.decode.as_secs_f64() / gaps);
        }
    }

    /// The page in Prometheus text format.
    pub(crate) fn page(&self, config: &SimConfig, gauges: Gauges, started: f64) -> String {
        let (blocks, block_size) = (config.num_gpu_blocks, config.block_size);
        let model = config.models.first().map_or("", String::as_str);
        let mut page = Page {
            text: String::with_capacity(16 * 1024),
            labels: format!("engine=\"0\",model_name=\"{}\"", escape(model)),
            started,
        };
        page.gauge("vllm:num_requests_running", "Requests in execution.", gauges.running as f64);
        page.gauge("vllm:num_requests_waiting", "Requests waiting.", gauges.waiting as f64);
        page.head(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            "Waiting, by reason; the sum is all that wait.",
        );
        for (reason, value) in [("capacity", gauges.waiting), ("deferred", 0)] {
            page.line(
                "vllm:num_requests_waiting_by_reason",
                &format!("reason=\"{reason}\""),
                value as f64,
            );
        }
        page.gauge("vllm:kv_cache_usage_perc", "Used part of the cache, 0 to 1.", gauges.kv_usage);
        page.head("vllm:cache_config_info", "gauge", "Configuration of the cache.");
        let info = format!(
            "block_size=\"{block_size}\",kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{blocks}\"",
            block_size * blocks
        );
        page.line("vllm:cache_config_info", &info, 1.0);
        self.counters(&mut page);
        let histograms = [
            ("request_queue_time_seconds", &self.queue),
            ("e2e_request_latency_seconds", &self.latency),
            ("request_prefill_time_seconds", &self.prefill),
            ("request_decode_time_seconds", &self.decode),
            ("request_inference_time_seconds", &self.inference),
            ("time_to_first_token_seconds", &self.first_token),
            ("inter_token_latency_seconds", &self.inter_token),
            ("request_time_per_output_token_seconds", &self.per_output_token),
            ("request_prompt_tokens", &self.prompt),
            ("request_generation_tokens", &self.generation),
        ];
        for (name, data) in histograms {
            page.histogram(&format!("vllm:{name}"), data);
        }
        self.rejections(&mut page, model);
        page.text
    }

    fn counters(&self, page: &mut Page) {
        let counters = [
            ("prompt_tokens", self.prompt_tokens),
            ("generation_tokens", self.generation_tokens),
            ("prefix_cache_queries", self.prompt_tokens),
            ("prefix_cache_hits", 0),
            ("num_preemptions", 0),
        ];
        for (name, value) in counters {
            page.counter(&format!("vllm:{name}"), &[(String::new(), value)]);
        }
        let labelled =
            |(reason, count): (&&str, &u64)| (format!("finished_reason=\"{reason}\""), *count);
        let finished: Vec<_> = self.finished.iter().map(labelled).collect();
        page.counter("vllm:request_success", &finished);
    }

    /// Unlike the others, these have no engine label.
    fn rejections(&self, page: &mut Page, model: &str) {
        page.labels = format!("model_name=\"{}\"", escape(model));
        let rejected = ["max_num_queued_reqs", "max_num_queued_tokens"].map(|reason| {
            let count = self.rejected.get(reason).copied().unwrap_or(0);
            (format!("reason=\"{reason}\""), count)
        });
        page.counter("vllm:admission_rejections", &rejected);
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Page {
    text: String,
    labels: String,
    /// Seconds since 1970, for the `_created` gauges.
    started: f64,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, more: &str, value: f64) {
        let comma = if more.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "{name}{{{}{comma}{more}}} {value:?}", self.labels);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, values: &[(String, u64)]) {
        let (total, created) = (format!("{name}_total"), format!("{name}_created"));
        self.head(&total, "counter", "Since the start.");
        for (more, value) in values {
            self.line(&total, more, *value as f64);
        }
        self.head(&created, "gauge", "When the counter began.");
        for (more, _) in values {
            self.line(&created, more, self.started);
        }
    }

    fn histogram(&mut self, name: &str, data: &Histogram) {
        self.head(name, "histogram", "Of finished requests.");
        let (bucket, created) = (format!("{name}_bucket"), format!("{name}_created"));
        let mut total = 0;
        for (bound, count) in data.bounds.iter().zip(&data.counts) {
            total += count;
            self.line(&bucket, &format!("le=\"{bound:?}\""), total as f64);
        }
        self.line(&bucket, "le=\"+Inf\"", data.count as f64);
        self.line(&format!("{name}_count"), "", data.count as f64);
        self.line(&format!("{name}_sum"), "", data.sum);
        self.head(&created, "gauge", "When the histogram began.");
        self.line(&created, "", self.started);
    }
}
