//! The state of the engine, and what one step does to it.
//!
//! Nothing here waits: the engine's loop asks for a step, sleeps as long as it takes, and ends it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ask::Ask;
use super::config::{Fault, SimConfig};
use super::engine::{End, Event};
use super::journal::Journal;
use super::metrics::{Gauges, Metrics, Timings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Serving,
    Draining,
    Dead,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    Idle,
    Read(usize),
    Make,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) reset: bool,
    pub(crate) after_tokens: usize,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) request: u64,
    pub(crate) choice: usize,
    pub(crate) ask: Arc<Ask>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) trap: Option<Trap>,
    pub(crate) plan: Plan,
    pub(crate) unread: usize,
    pub(crate) made: usize,
    pub(crate) arrived: Instant,
    pub(crate) started: Instant,
    pub(crate) first_token: Instant,
    pub(crate) last_token: Instant,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) waiting: BTreeMap<(i64, u64), Sequence>,
    pub(crate) running: Vec<Sequence>,
    /// Unfinished choices of each request in flight.
    pub(crate) open: HashMap<u64, usize>,
    pub(crate) next_sequence: u64,
    pub(crate) slow: Option<(f64, Instant)>,
    pub(crate) hang_until: Option<Instant>,
    pub(crate) script: VecDeque<Fault>,
    pub(crate) metrics: Metrics,
    pub(crate) journal: Journal,
}

// === impl Sequence ===

impl Sequence {
    /// Makes one token and tells about it; true when it was the last one.
    fn make_token(&mut self, metrics: &mut Metrics) -> bool {
        let now = Instant::now();
        // An embedding has no tokens, but it ends like the first token of a prompt.
        let made = (self.made + 1).min(self.ask.output_tokens);
        if self.made == 0 {
            self.first_token = now;
            metrics.first_token(now - self.arrived);
        } else {
            metrics.next_token(now - self.last_token);
        }
        metrics.generation_tokens += (made - self.made) as u64;
        self.made = made;
        self.last_token = now;
        let end = (made == self.ask.output_tokens).then(|| {
            let end = if self.ask.capped {
                End::Length
            } else {
                End::Stop
            };
            let times = Timings {
                queue: self.started - self.arrived,
                prefill: self.first_token - self.started,
                decode: now - self.first_token,
                prompt_tokens: self.ask.prompt_tokens,
                output_tokens: made,
            };
            metrics.finished(end, &times);
            (end, times)
        });
        if self.ask.stream || end.is_some() {
            let choice = self.choice;
            let _ = self.events.send(Event::Token { choice, made, end });
        }
        end.is_some()
    }
}

// === impl Core ===

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Serving,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            open: HashMap::new(),
            next_sequence: 0,
            slow: None,
            hang_until: None,
            script: VecDeque::new(),
            metrics: Metrics::new(),
            journal: Journal::new(),
        }
    }

    pub(crate) fn gauges(&self, config: &SimConfig) -> Gauges {
        let blocks =
            |s: &Sequence| (s.ask.prompt_tokens + s.made).div_ceil(config.block_size.max(1));
        let used: usize = self.running.iter().map(blocks).sum();
        Gauges {
            running: self.running.len(),
            waiting: self.waiting.len(),
            kv_usage: (used as f64 / config.num_gpu_blocks.max(1) as f64).min(1.0),
        }
    }

    pub(crate) fn note_depths(&mut self) {
        self.journal
            .depths(self.running.len(), self.waiting.len(), self.open.len());
    }

    /// Takes a request out wherever it is; false when it had ended before.
    pub(crate) fn remove(&mut self, request: u64) -> bool {
        if self.open.remove(&request).is_none() {
            return false;
        }
        self.waiting.retain(|_, s| s.request != request);
        self.running.retain(|s| s.request != request);
        true
    }

    /// Counts the end of one choice, and of the request with its last.
    fn end_one(&mut self, request: u64, failed: Option<&'static str>) {
        if let Some(outcome) = failed {
            if self.remove(request) {
                self.journal.ended(request, outcome);
            }
            return;
        }
        let Some(left) = self.open.get_mut(&request) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.open.remove(&request);
            self.journal.ended(request, "served");
        }
    }

    pub(crate) fn fail_all(&mut self) {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        for sequence in waiting.chain(std::mem::take(&mut self.running)) {
            let _ = sequence.events.send(Event::Failed);
        }
        for (request, _) in self.open.drain() {
            self.journal.ended(request, "failed");
        }
        self.note_depths();
    }

    /// The fault that the script has for the next request.
    pub(crate) fn next_trap(&mut self) -> Option<Fault> {
        let front = self.script.front_mut()?;
        let (Fault::Error { count, .. } | Fault::Reset { count, .. } | Fault::Status { count, .. }) =
            front
        else {
            return None;
        };
        *count = count.saturating_sub(1);
        let used_up = *count == 0;
        let fault = front.clone();
        if used_up {
            self.script.pop_front();
        }
        Some(fault)
    }

    /// Fills the batch, plans a step and says how long it takes; `None` when nothing runs.
    pub(crate) fn begin_step(&mut self, config: &SimConfig) -> Option<Duration> {
        let now = Instant::now();
        while self.running.len() < config.max_num_seqs {
            let Some((_, mut sequence)) = self.waiting.pop_first() else {
                break;
            };
            sequence.started = now;
            self.journal.started(sequence.request);
            self.running.push(sequence);
        }
        self.note_depths();
        if self.running.is_empty() {
            return None;
        }
        let mut budget = config.max_num_batched_tokens;
        let mut read = 0;
        for sequence in self.running.iter_mut().filter(|s| s.unread == 0) {
            sequence.plan = Plan::Make;
            budget = budget.saturating_sub(1);
        }
        for sequence in self.running.iter_mut().filter(|s| s.unread > 0) {
            let part = sequence.unread.min(budget);
            sequence.plan = if part > 0 {
                Plan::Read(part)
            } else {
                Plan::Idle
            };
            budget -= part;
            read += part;
        }
        let extra = u32::try_from(self.running.len() - 1).unwrap_or(u32::MAX);
        let step = config.decode_per_token
            + config.decode_per_extra_seq * extra
            + config.prefill_per_token * u32::try_from(read).unwrap_or(u32::MAX);
        match self.slow {
            Some((factor, until)) if until > now => Some(step.mul_f64(factor)),
            _ => Some(step),
        }
    }

    /// Hands out the tokens of the step.
    pub(crate) fn end_step(&mut self) {
        let mut ended = Vec::new();
        for sequence in &mut self.running {
            match std::mem::replace(&mut sequence.plan, Plan::Idle) {
                Plan::Idle => continue,
                Plan::Read(part) => {
                    sequence.unread -= part;
                    self.metrics.prompt_tokens += part as u64;
                    if sequence.unread > 0 {
                        continue;
                    }
                }
                Plan::Make => {}
            }
            if let Some(trap) = sequence
                .trap
                .filter(|trap| sequence.made >= trap.after_tokens)
            {
                let event = if trap.reset {
                    Event::Reset
                } else {
                    Event::Failed
                };
                let _ = sequence.events.send(event);
                ended.push((sequence.request, Some("failed")));
                continue;
            }
            if sequence.make_token(&mut self.metrics) {
                ended.push((sequence.request, None));
            }
        }
        self.running
            .retain(|s| s.unread > 0 || s.made < s.ask.output_tokens);
        for (request, failed) in ended {
            self.end_one(request, failed);
        }
        self.note_depths();
    }
}
