//! `vllm-sim`: a vLLM server without a model. See the library's `sim` module for what it imitates.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use slogate_integration::sim::{Counting, Fault, Scheduling, Sim, SimConfig};

/// Simulates a vLLM server: continuous batching, its queue, its HTTP answers, its metrics, and
/// its faults. Serves HTTP/1.1 until SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "vllm-sim", version, after_help = AFTER_HELP)]
struct Args {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one and prints it
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Names of the model; the first one stands in answers and labels
    #[arg(long, num_args = 1.., default_values = ["tiny", "tiny-alias"], value_name = "NAME")]
    served_model_name: Vec<String>,
    /// Sequences that run together; further ones wait
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    max_num_seqs: usize,
    /// Tokens one step can work on
    #[arg(long, default_value_t = 2048, value_parser = at_least_one)]
    max_num_batched_tokens: usize,
    /// Longest prompt and output together, in tokens
    #[arg(long, default_value_t = 131_072, value_parser = at_least_one)]
    max_model_len: usize,
    /// Order of the waiting queue
    #[arg(long, value_enum, default_value = "fcfs")]
    scheduling_policy: Policy,
    /// Refuse with 503 above so many waiting and running sequences
    #[arg(long, value_name = "N")]
    max_num_queued_reqs: Option<usize>,
    /// Refuse with 503 above so many prompt tokens not yet read
    #[arg(long, value_name = "N")]
    max_num_queued_tokens: Option<usize>,
    /// Microseconds to read one prompt token
    #[arg(long, default_value_t = 5.0, value_name = "US")]
    prefill_us: f64,
    /// Milliseconds of one step, which makes one token for each running sequence
    #[arg(long, default_value_t = 2.5, value_name = "MS")]
    decode_ms: f64,
    /// Milliseconds that each further running sequence adds to a step
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    decode_growth_ms: f64,
    /// Every request takes exactly so many milliseconds once it runs; replaces the times above
    #[arg(long, value_name = "MS")]
    fixed_ms: Option<f64>,
    /// Output tokens where the request sets neither `max_tokens` nor `ignore_eos`
    #[arg(long, default_value_t = 16, value_parser = at_least_one)]
    output_tokens: usize,
    /// What is one token: a byte (exact counts), or four bytes (nearer to real text)
    #[arg(long, value_enum, default_value = "byte")]
    tokens: Unit,
    /// Key that the paths under /v1 ask for
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Add `metrics` with `queue_time_ms` to answers
    #[arg(long)]
    enable_per_request_metrics: bool,
    /// Send x-request-id back as a header
    #[arg(long)]
    enable_request_id_headers: bool,
    /// Put usage into every chunk of every stream
    #[arg(long)]
    enable_force_include_usage: bool,
    /// Seconds between comment lines in a stream that waits
    #[arg(long, value_name = "S")]
    sse_keep_alive_interval: Option<u32>,
    /// Seconds after which an idle connection is closed
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    keep_alive: f64,
    /// Seconds that SIGTERM waits for requests in flight; 0 fails them at once
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    shutdown_timeout: f64,
    /// A fault from the start, as JSON; may be repeated
    #[arg(long, value_name = "JSON", value_parser = Fault::parse)]
    fault: Vec<Fault>,
}

const AFTER_HELP: &str = r#"Faults (for --fault, or POST /sim/fault while it runs):
  {"kind":"slow","factor":4,"for_ms":2000}      steps take 4 times as long; without for_ms until "none"
  {"kind":"hang","for_ms":2000}                 nothing moves; /health stays 200, the gauges read 0
  {"kind":"error","count":3,"after_tokens":5}   the next 3 requests fail: error event, or 500
  {"kind":"reset","count":3,"after_tokens":5}   the connections of the next 3 requests are reset
  {"kind":"status","count":3,"status":503}      the next 3 requests get this status
  {"kind":"die"}                                all in flight fails, then connections are refused
  {"kind":"drain","timeout_ms":10000}           as SIGTERM with a shutdown timeout
  {"kind":"none"}                               ends slow and hang, forgets the rest
The paths under /sim/ are not vLLM's: GET /sim/stats tells counters and peaks, GET /sim/log the requests."#;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// By arrival
    Fcfs,
    /// By the body's `priority`, lower first
    Priority,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// One UTF-8 byte is one token
    Byte,
    /// Four bytes are one token
    Quarter,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(err) => Err(format!("{err}")),
    }
}

fn seconds(name: &str, value: f64, unit: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(value * unit) {
        Ok(time) if time <= Duration::from_secs(24 * 3600) => Ok(time),
        _ => bail!("--{name} {value}: must be a time from 0 to a day"),
    }
}

impl Args {
    fn config(&self) -> anyhow::Result<SimConfig> {
        Ok(SimConfig {
            listen: SocketAddr::from((self.host, self.port)),
            models: self.served_model_name.clone(),
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_model_len: self.max_model_len,
            scheduling: match self.scheduling_policy {
                Policy::Fcfs => Scheduling::Fcfs,
                Policy::Priority => Scheduling::Priority,
            },
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_num_queued_tokens: self.max_num_queued_tokens,
            prefill_per_token: seconds("prefill-us", self.prefill_us, 1e-6)?,
            decode_per_token: seconds("decode-ms", self.decode_ms, 1e-3)?,
            decode_per_extra_seq: seconds("decode-growth-ms", self.decode_growth_ms, 1e-3)?,
            fixed_service: self.fixed_ms.map(|ms| seconds("fixed-ms", ms, 1e-3)).transpose()?,
            output_tokens: self.output_tokens,
            counting: match self.tokens {
                Unit::Byte => Counting::Byte,
                Unit::Quarter => Counting::QuarterByte,
            },
            api_key: self.api_key.clone(),
            per_request_metrics: self.enable_per_request_metrics,
            request_id_headers: self.enable_request_id_headers,
            force_include_usage: self.enable_force_include_usage,
            sse_keep_alive: self
                .sse_keep_alive_interval
                .filter(|&s| s > 0)
                .map(|s| Duration::from_secs(s.into())),
            keep_alive: seconds("keep-alive", self.keep_alive, 1.0)?,
            shutdown_timeout: seconds("shutdown-timeout", self.shutdown_timeout, 1.0)?,
            faults: self.fault.clone(),
            ..SimConfig::default()
        })
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("vllm-sim: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let config = args.config()?;
    let listen = config.listen;
    let sim = Sim::start(config)
        .with_context(|| format!("cannot listen on {listen} (is the port in use?)"))?;
    println!("vllm-sim listens on {}", sim.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_stopped(&sim))?;
    let stats = sim.stats();
    eprintln!(
        "vllm-sim: {} served, {} aborted, {} failed, {} rejected; at most {} ran together",
        stats.served, stats.aborted, stats.failed, stats.rejected, stats.peak_running
    );
    Ok(())
}

/// Waits for a signal or a fault that ends the server; a second signal ends it at once.
async fn until_stopped(sim: &Sim) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut draining = false;
    while sim.is_open() {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = tokio::time::sleep(Duration::from_millis(20)) => continue,
        }
        if draining {
            break;
        }
        draining = true;
        sim.fault(&Fault::Drain { timeout_ms: None });
    }
    Ok(())
}
