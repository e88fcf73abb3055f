//! The state of the engine, and what one step does to it.
//!
//! Nothing here waits: the engine's loop asks when something is due, sleeps, and lets it happen.
//! Steps end at absolute times: a late wake-up shortens the next sleep, which keeps the mean rate
//! right on a busy machine.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::ask::Ask;
use super::config::{Fault, SimConfig};
use super::engine::{End, Event};
use super::journal::Journal;
use super::metrics::{Gauges, Metrics, Timings};

/// A real engine that was held up does not make up for it, so at most this much is caught up.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);

/// The engine lets others look at its state between two steps only.
const MIN_STEP: Duration = Duration::from_micros(10);

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

/// How a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Served,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) request: u64,
    pub(crate) choice: usize,
    pub(crate) ask: Arc<Ask>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) trap: Option<Trap>,
    pub(crate) plan: Plan,
    /// How long it runs, where that is fixed.
    pub(crate) service: Duration,
    pub(crate) unread: usize,
    pub(crate) made: usize,
    pub(crate) over: bool,
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
    /// When the step that goes on will end.
    step_ends: Option<Instant>,
    /// When the last step should have ended, if the next one follows at once.
    clock: Option<Instant>,
    pub(crate) slow: Option<(f64, Instant)>,
    pub(crate) hang_until: Option<Instant>,
    pub(crate) script: VecDeque<Fault>,
    pub(crate) metrics: Metrics,
    pub(crate) journal: Journal,
}

// === impl Sequence ===

impl Sequence {
    /// When the next thing happens that anybody can see, where the running time is fixed.
    fn due(&self) -> Instant {
        let tokens = self.ask.output_tokens.max(1);
        let step = self.ask.stream || self.trap.is_some();
        let next = if step { (self.made + 1).min(tokens) } else { tokens };
        self.started + self.service.mul_f64(next as f64 / tokens as f64)
    }

    /// Springs its trap or makes its next token, and says how it ended if it did.
    fn next(&mut self, metrics: &mut Metrics) -> Option<How> {
        if self.made == 0 {
            metrics.prompt_tokens += self.ask.prompt_tokens as u64;
            self.unread = 0;
        }
        let trap = self.trap.filter(|trap| self.made >= trap.after_tokens);
        let how = match trap {
            Some(trap) => {
                let event = if trap.reset { Event::Reset } else { Event::Failed };
                let _ = self.events.send(event);
                Some(How::Failed)
            }
            None => self.make_token(metrics).then_some(How::Served),
        };
        self.over = how.is_some();
        how
    }

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
            let end = if self.ask.capped { End::Length } else { End::Stop };
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
            step_ends: None,
            clock: None,
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
        self.journal.depths(self.running.len(), self.waiting.len(), self.open.len());
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
    fn end_one(&mut self, request: u64, how: How) {
        if how == How::Failed {
            if self.remove(request) {
                self.journal.ended(request, "failed");
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

    /// When something will happen next; `None` when nothing runs.
    pub(crate) fn due(&mut self, config: &SimConfig, now: Instant) -> Option<Instant> {
        if let Some(service) = config.fixed_service {
            let service = self.slowed(service, now);
            self.admit(config, now, service);
            return self.running.iter().map(Sequence::due).min();
        }
        if self.step_ends.is_none() {
            let step = self.begin_step(config, now);
            let earliest = now.checked_sub(MAX_CATCH_UP).unwrap_or(now);
            let begin = self.clock.take().map_or(now, |clock| clock.max(earliest));
            self.step_ends = step.map(|step| begin + step);
        }
        self.step_ends
    }

    /// Lets happen what is due.
    pub(crate) fn advance(&mut self, config: &SimConfig, now: Instant) {
        if config.fixed_service.is_some() {
            let mut ended = Vec::new();
            for sequence in &mut self.running {
                while let Some(how) =
                    (sequence.due() <= now).then(|| sequence.next(&mut self.metrics))
                {
                    if let Some(how) = how {
                        ended.push((sequence.request, how));
                        break;
                    }
                }
            }
            self.end(ended);
        } else {
            self.clock = self.step_ends.take();
            self.end_step();
        }
    }

    /// Starts what waits as far as there is room.
    fn admit(&mut self, config: &SimConfig, now: Instant, service: Duration) {
        while self.running.len() < config.max_num_seqs {
            let Some((_, mut sequence)) = self.waiting.pop_first() else {
                break;
            };
            sequence.started = now;
            sequence.service = service;
            self.journal.started(sequence.request);
            self.running.push(sequence);
        }
        self.note_depths();
    }

    fn slowed(&self, time: Duration, now: Instant) -> Duration {
        match self.slow {
            Some((factor, until)) if until > now => time.mul_f64(factor),
            _ => time,
        }
    }

    /// Fills the batch, plans a step and says how long it takes; `None` when nothing runs.
    fn begin_step(&mut self, config: &SimConfig, now: Instant) -> Option<Duration> {
        self.admit(config, now, Duration::ZERO);
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
            sequence.plan = if part > 0 { Plan::Read(part) } else { Plan::Idle };
            budget -= part;
            read += part;
        }
        let extra = u32::try_from(self.running.len() - 1).unwrap_or(u32::MAX);
        let step = config.decode_per_token
            + config.decode_per_extra_seq * extra
            + config.prefill_per_token * u32::try_from(read).unwrap_or(u32::MAX);
        Some(self.slowed(step, now).max(MIN_STEP))
    }

    /// Hands out the tokens of the step.
    fn end_step(&mut self) {
        let mut ended = Vec::new();
        for sequence in &mut self.running {
            match std::mem::replace(&mut sequence.plan, Plan::Idle) {
                Plan::Idle => continue,
                Plan::Read(part) => {
                    sequence.unread -= part;
                    if sequence.unread > 0 {
                        continue;
                    }
                }
                Plan::Make => {}
            }
            if let Some(how) = sequence.next(&mut self.metrics) {
                ended.push((sequence.request, how));
            }
        }
        self.end(ended);
    }

    /// Takes ended sequences out of the batch and counts them.
    fn end(&mut self, ended: Vec<(u64, How)>) {
        self.running.retain(|sequence| !sequence.over);
        for (request, how) in ended {
            self.end_one(request, how);
        }
        self.note_depths();
    }
}
