//! What a simulated engine is told at its start, and the faults it can be told later.
//!
//! The defaults are those of a real vLLM where it has one; the times are those of the tiny model
//! on two CPU cores (about 2.5 ms a token), so that a test written against the simulator also
//! makes sense against the real engine.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How the waiting queue is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// By arrival; a `priority` in the body is accepted and ignored.
    #[default]
    Fcfs,
    /// By the body's `priority`, lower first, ties by arrival. Nothing running is pre-empted.
    Priority,
}

/// How text is turned into a number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// One UTF-8 byte is one token, so counts in tests are exact.
    #[default]
    Byte,
    /// Four UTF-8 bytes are one token, rounded up: nearer to what users send.
    QuarterByte,
}

impl Counting {
    /// Tokens of a text of `bytes` bytes.
    pub fn tokens(self, bytes: usize) -> usize {
        match self {
            Self::Byte => bytes,
            Self::QuarterByte => bytes.div_ceil(4),
        }
    }

    /// Bytes that make exactly `tokens` tokens.
    pub fn bytes(self, tokens: usize) -> usize {
        match self {
            Self::Byte => tokens,
            Self::QuarterByte => tokens.saturating_mul(4),
        }
    }
}

/// Configuration of one simulated engine. Use `SimConfig { max_num_seqs: 4, ..Default::default() }`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the real server")]
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Served model names; the first one stands in every answer and label. Never empty.
    pub models: Vec<String>,
    /// Sequences that run together (vLLM's `--max-num-seqs`).
    pub max_num_seqs: usize,
    /// Tokens one step can work on; bounds the prompt part that is read in one step.
    pub max_num_batched_tokens: usize,
    /// Prompt and output together may not be longer than this, in tokens.
    pub max_model_len: usize,
    /// Size of the key-value cache in blocks of `block_size` tokens; only feeds the usage gauge.
    pub num_gpu_blocks: usize,
    /// Tokens in one block of the cache.
    pub block_size: usize,
    /// Order of the waiting queue.
    pub scheduling: Scheduling,
    /// Cap on waiting plus running sequences; `None` is no cap.
    pub max_num_queued_reqs: Option<usize>,
    /// Cap on prompt tokens not yet read; `None` is no cap.
    pub max_num_queued_tokens: Option<usize>,
    /// Time to read one prompt token.
    pub prefill_per_token: Duration,
    /// Time of one step: one output token for each running sequence.
    pub decode_per_token: Duration,
    /// What each further running sequence adds to a step.
    pub decode_per_extra_seq: Duration,
    /// Every sequence takes exactly this long once it runs, whatever its lengths and however many
    /// run beside it; replaces the times above. For tests that compute an ideal throughput.
    pub fixed_service: Option<Duration>,
    /// Output tokens of a request that sets no `max_tokens`, and the place of the end-of-sequence
    /// token where `ignore_eos` is not set.
    pub output_tokens: usize,
    /// How tokens are counted.
    pub counting: Counting,
    /// Key that guards the paths under `/v1`; `None` is open.
    pub api_key: Option<String>,
    /// Adds `metrics` with the queue time to every answer.
    pub per_request_metrics: bool,
    /// Echoes `x-request-id` as a response header.
    pub request_id_headers: bool,
    /// Usage in every chunk of every stream, asked for or not.
    pub force_include_usage: bool,
    /// Comment lines in a stream that waits; `None` sends none.
    pub sse_keep_alive: Option<Duration>,
    /// Idle connections are closed after this.
    pub keep_alive: Duration,
    /// How long SIGTERM waits for what is running; zero fails it at once.
    pub shutdown_timeout: Duration,
    /// Keeps headers and body of each request in the log, for tests that compare bytes.
    pub capture: bool,
    /// Faults that hold from the start.
    pub faults: Vec<Fault>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            models: vec!["tiny".into(), "tiny-alias".into()],
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: 131_072,
            num_gpu_blocks: 4096,
            block_size: 128,
            scheduling: Scheduling::Fcfs,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            prefill_per_token: Duration::from_micros(5),
            decode_per_token: Duration::from_micros(2500),
            decode_per_extra_seq: Duration::ZERO,
            fixed_service: None,
            output_tokens: 16,
            counting: Counting::Byte,
            api_key: None,
            per_request_metrics: false,
            request_id_headers: false,
            force_include_usage: false,
            sse_keep_alive: None,
            keep_alive: Duration::from_secs(5),
            shutdown_timeout: Duration::ZERO,
            capture: false,
            faults: Vec::new(),
        }
    }
}

/// A scripted fault, given as JSON by `--fault` or `POST /sim/fault`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Every step takes `factor` times as long, for `for_ms` (or until cleared).
    Slow {
        /// Above 0, at most a million; below 1 makes the engine faster.
        factor: f64,
        /// Milliseconds; absent means until `none`.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// No step ends, for `for_ms` (or until cleared). The gauges read 0 and `/health` stays 200,
    /// as with a real engine that hangs.
    Hang {
        /// Milliseconds; absent means until `none`.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// The next `count` requests end with the error of a dead engine after `after_tokens` tokens:
    /// an error event in a stream, a 500 elsewhere.
    Error {
        /// How many requests.
        #[serde(default = "one")]
        count: usize,
        /// Output tokens made before it.
        #[serde(default)]
        after_tokens: usize,
    },
    /// The connections of the next `count` requests are reset (RST) after `after_tokens` tokens.
    Reset {
        /// How many requests.
        #[serde(default = "one")]
        count: usize,
        /// Output tokens made before it.
        #[serde(default)]
        after_tokens: usize,
    },
    /// The next `count` requests are answered with this status at once.
    Status {
        /// How many requests.
        #[serde(default = "one")]
        count: usize,
        /// 400 to 599.
        status: u16,
    },
    /// The engine process dies: whatever is in flight fails, then connections are refused.
    Die,
    /// SIGTERM: with a timeout what is in flight ends normally while new requests get 500 and
    /// `/health` stays 200; then connections are refused.
    Drain {
        /// Milliseconds; absent means the configured shutdown timeout.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Ends slow and hang, and forgets faults not yet used up.
    None,
}

fn one() -> usize {
    1
}

impl Fault {
    /// Reads a fault from its JSON form.
    ///
    /// # Errors
    /// The JSON is not a known fault, or a number is out of its range.
    pub fn parse(json: &str) -> Result<Self, String> {
        let fault: Self = serde_json::from_str(json).map_err(|err| {
            format!("not a fault: {err}; an example: {{\"kind\":\"slow\",\"factor\":4}}")
        })?;
        match &fault {
            Self::Slow { factor, .. } if !(*factor > 0.0 && *factor <= 1e6) => {
                Err("factor must be above 0 and at most a million".into())
            }
            Self::Status { status, .. } if !(400..=599).contains(status) => {
                Err("status must be between 400 and 599".into())
            }
            _ => Ok(fault),
        }
    }
}
