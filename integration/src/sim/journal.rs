//! What a test or a demo wants to know afterwards: peaks, outcomes, and the order of requests.

use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;

use super::ask::Ask;

/// Older requests are forgotten, so that a simulator that runs for days stays small.
const MAX_LOGGED: usize = 100_000;

/// Counters of the simulator; also the answer of `GET /sim/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Sequences in the batch now.
    pub running: usize,
    /// Sequences waiting now.
    pub waiting: usize,
    /// Requests taken and not ended now.
    pub in_flight: usize,
    /// The most sequences that ran together.
    pub peak_running: usize,
    /// The most sequences that waited together.
    pub peak_waiting: usize,
    /// The most requests in flight together.
    pub peak_in_flight: usize,
    /// Requests taken.
    pub received: u64,
    /// Requests that ended with their last token.
    pub served: u64,
    /// Requests whose client left.
    pub aborted: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests refused by a queue cap.
    pub rejected: u64,
}

/// A request as it came, where the configuration asks to keep it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Path with its query.
    pub path: String,
    /// Headers in order, names in lower case; values that are not text are left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// One request that the engine took.
#[derive(Clone, Debug, Serialize)]
pub struct Logged {
    /// The request's `x-request-id`, or the id made for it.
    pub id: String,
    /// The body's priority.
    pub priority: i64,
    /// Prompt tokens as counted here.
    pub prompt_tokens: usize,
    /// Output tokens of each choice.
    pub output_tokens: usize,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Milliseconds after the start of the simulator.
    pub arrived_ms: f64,
    /// Milliseconds after the start of the simulator; absent while it waits.
    pub started_ms: Option<f64>,
    /// The how-manieth request to start; absent while it waits.
    pub started_rank: Option<u64>,
    /// Milliseconds after the start of the simulator; absent while it is in flight.
    pub ended_ms: Option<f64>,
    /// `served`, `aborted` or `failed`; absent while it is in flight.
    pub outcome: Option<&'static str>,
    /// The request itself, with `SimConfig::capture`.
    #[serde(skip)]
    pub seen: Option<Seen>,
}

#[derive(Debug)]
pub(crate) struct Journal {
    start: Instant,
    stats: Stats,
    /// The number of the first request in `logged`.
    first: u64,
    logged: std::collections::VecDeque<Logged>,
    starts: u64,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            stats: Stats::default(),
            first: 0,
            logged: std::collections::VecDeque::new(),
            starts: 0,
        }
    }

    fn now_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3
    }

    fn get(&mut self, request: u64) -> Option<&mut Logged> {
        let at = request.checked_sub(self.first)?;
        self.logged.get_mut(usize::try_from(at).ok()?)
    }

    pub(crate) fn rejected(&mut self) {
        self.stats.rejected += 1;
    }

    /// Notes a new request and gives it its number.
    pub(crate) fn arrived(&mut self, id: &str, ask: &Ask, seen: Option<Seen>) -> u64 {
        if self.logged.len() == MAX_LOGGED {
            self.logged.pop_front();
            self.first += 1;
        }
        let arrived_ms = self.now_ms();
        self.logged.push_back(Logged {
            id: id.to_owned(),
            priority: ask.priority,
            prompt_tokens: ask.prompt_tokens,
            output_tokens: ask.output_tokens,
            stream: ask.stream,
            arrived_ms,
            started_ms: None,
            started_rank: None,
            ended_ms: None,
            outcome: None,
            seen,
        });
        self.stats.received += 1;
        self.first + self.logged.len() as u64 - 1
    }

    /// Notes the start of a request; only that of its first choice counts.
    pub(crate) fn started(&mut self, request: u64) {
        let (now, rank) = (self.now_ms(), self.starts);
        if let Some(entry) = self.get(request).filter(|entry| entry.started_ms.is_none()) {
            entry.started_ms = Some(now);
            entry.started_rank = Some(rank);
            self.starts += 1;
        }
    }

    pub(crate) fn ended(&mut self, request: u64, outcome: &'static str) {
        match outcome {
            "served" => self.stats.served += 1,
            "aborted" => self.stats.aborted += 1,
            _ => self.stats.failed += 1,
        }
        let now = self.now_ms();
        if let Some(entry) = self.get(request) {
            entry.ended_ms = Some(now);
            entry.outcome = Some(outcome);
        }
    }

    pub(crate) fn depths(&mut self, running: usize, waiting: usize, in_flight: usize) {
        let stats = &mut self.stats;
        stats.peak_running = stats.peak_running.max(running);
        stats.peak_waiting = stats.peak_waiting.max(waiting);
        stats.peak_in_flight = stats.peak_in_flight.max(in_flight);
    }

    pub(crate) fn stats(&self, running: usize, waiting: usize, in_flight: usize) -> Stats {
        Stats { running, waiting, in_flight, ..self.stats }
    }

    /// Requests in the order of their arrival.
    pub(crate) fn logged(&self) -> Vec<Logged> {
        self.logged.iter().cloned().collect()
    }
}
