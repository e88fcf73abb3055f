//! A load generator that counts what users feel.
//!
//! In an open loop requests come when they come, whether or not earlier ones were answered, and
//! each time counts from the moment at which the request was due. A client that waits for answers
//! before it sends the next request sends less the worse it is served, and so measures the bad
//! moments too rarely (coordinated omission). The closed loop is there for tests of throughput
//! and fairness, where the number of clients is what is fixed.

mod client;
mod exchange;
mod mix;
mod plan;
mod progress;
mod report;
mod run;
mod table;
mod trace;
mod words;

use std::time::Duration;

pub use client::Protocol;
pub use exchange::{Ended, Record};
pub use mix::{Language, MixEntry, Span, read_mix};
pub use plan::Arrivals;
pub use report::{Quantiles, Report, Section};
pub use run::{run, run_until};
pub use table::{compare, table};
pub use trace::{TraceOptions, TracePoint, read_trace};
pub use words::{TextUnit, text};

/// How requests are sent.
#[derive(Clone, Debug)]
pub enum Mode {
    /// At given times, whatever happens.
    Open(Arrivals),
    /// By clients that each send their next request when the last one is answered.
    Closed {
        /// Number of clients; where mix entries name theirs, those count instead.
        clients: usize,
        /// Ends after so many requests in all.
        requests: u64,
        /// Ends after this time, if that comes first.
        duration: Option<Duration>,
    },
}

/// Configuration of a run. Use `LoadConfig { seed: 7, ..LoadConfig::new(target, mode, mix) }`.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// `http://host:port`.
    pub target: String,
    /// Path of all requests.
    pub path: String,
    /// How requests are sent.
    pub mode: Mode,
    /// Kinds of requests; never empty.
    pub mix: Vec<MixEntry>,
    /// How the client speaks.
    pub protocol: Protocol,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How long a token of a prompt is.
    pub unit: TextUnit,
    /// A request that takes longer has failed.
    pub timeout: Duration,
    /// Bound of the share that waited too long.
    pub wait_over: Duration,
    /// Bound of the goodput.
    pub objective: Duration,
    /// Keeps a record of each request in the report.
    pub keep_records: bool,
    /// Tells on standard error how it goes.
    pub progress: bool,
}

impl LoadConfig {
    /// A configuration with the defaults: chat, HTTP/1.1, one minute for each request.
    pub fn new(target: &str, mode: Mode, mix: Vec<MixEntry>) -> Self {
        Self {
            target: target.to_owned(),
            path: "/v1/chat/completions".into(),
            mode,
            mix,
            protocol: Protocol::default(),
            seed: 1,
            unit: TextUnit::default(),
            timeout: Duration::from_secs(60),
            wait_over: Duration::from_millis(700),
            objective: Duration::from_millis(400),
            keep_records: false,
            progress: false,
        }
    }
}
