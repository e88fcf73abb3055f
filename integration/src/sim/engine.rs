//! The scheduler: a waiting queue, a running batch, and steps that take time.
//!
//! Each step gives every running sequence one token, or reads a part of its prompt, as continuous
//! batching does. So a long prompt slows down the others in its batch, and a sequence that ends
//! makes room at the next step. It runs on a thread of its own, as the real one has a process of
//! its own: the timers of an asynchronous runtime round to a millisecond, which is half a token.
//!
//! Where it is simpler than the real one: no pre-emption, no prefix cache, no shortage of cache blocks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::ask::Ask;
use super::batch::{Core, Plan, Sequence, State, Trap};
use super::config::{Fault, Scheduling, SimConfig};
use super::journal::{Journal, Stats};
use super::metrics::{Gauges, Timings};

pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Length,
}

/// What the engine tells about a request.
#[derive(Debug)]
pub(crate) enum Event {
    /// A token of a choice; streams get each, others only the last one.
    Token { choice: usize, made: usize, end: Option<(End, Timings)> },
    /// The engine died under this request.
    Failed,
    /// The connection of this request is to be reset.
    Reset,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Cap(&'static str),
    Draining,
    Dead,
    Scripted(u16),
}

/// The engine; shared by its loop, the connections and the handle of the simulator.
#[derive(Debug)]
pub(crate) struct Engine {
    config: Arc<SimConfig>,
    core: Mutex<Core>,
    wake: Condvar,
}

/// A request in flight; dropping it aborts what is not finished.
#[derive(Debug)]
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    request: u64,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.engine.abort(self.request);
    }
}

impl Engine {
    pub(crate) fn new(config: Arc<SimConfig>) -> Arc<Self> {
        Arc::new(Self { config, core: Mutex::new(Core::new()), wake: Condvar::new() })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request, or says why not. `id` is its name in the journal.
    pub(crate) fn submit(
        self: &Arc<Self>,
        ask: Ask,
        id: &str,
        seen: Option<super::Seen>,
    ) -> Result<Ticket, Refused> {
        let mut guard = self.core();
        let core = &mut *guard;
        match core.state {
            State::Serving => {}
            State::Draining => return Err(Refused::Draining),
            State::Dead => return Err(Refused::Dead),
        }
        let queued = core.waiting.len() + core.running.len();
        let cap = |limit: Option<usize>, would_be: usize| limit.is_some_and(|max| would_be > max);
        let refused = if cap(self.config.max_num_queued_reqs, queued + ask.choices) {
            Some("max_num_queued_reqs")
        } else {
            let unread: usize = core.waiting.values().chain(&core.running).map(|s| s.unread).sum();
            cap(self.config.max_num_queued_tokens, unread + ask.prompt_tokens)
                .then_some("max_num_queued_tokens")
        };
        if let Some(reason) = refused {
            core.metrics.rejected(reason);
            core.journal.rejected();
            return Err(Refused::Cap(reason));
        }
        let trap = match core.next_trap() {
            Some(Fault::Status { status, .. }) => return Err(Refused::Scripted(status)),
            Some(Fault::Error { after_tokens, .. }) => Some(Trap { reset: false, after_tokens }),
            Some(Fault::Reset { after_tokens, .. }) => Some(Trap { reset: true, after_tokens }),
            _ => None,
        };
        let now = Instant::now();
        let request = core.journal.arrived(id, &ask, seen);
        core.open.insert(request, ask.choices);
        let (tx, events) = mpsc::unbounded_channel();
        let ask = Arc::new(ask);
        for choice in 0..ask.choices {
            let rank = match self.config.scheduling {
                Scheduling::Fcfs => 0,
                Scheduling::Priority => ask.priority,
            };
            let sequence = Sequence {
                request,
                choice,
                ask: Arc::clone(&ask),
                events: tx.clone(),
                trap,
                plan: Plan::Idle,
                service: Duration::ZERO,
                unread: ask.prompt_tokens.max(1),
                made: 0,
                over: false,
                arrived: now,
                started: now,
                first_token: now,
                last_token: now,
            };
            core.waiting.insert((rank, core.next_sequence), sequence);
            core.next_sequence += 1;
        }
        core.note_depths();
        drop(guard);
        self.wake.notify_one();
        Ok(Ticket { engine: Arc::clone(self), request, events })
    }

    fn abort(&self, request: u64) {
        let mut core = self.core();
        if core.remove(request) {
            core.journal.ended(request, "aborted");
            core.note_depths();
            self.wake.notify_one();
        }
    }

    /// Applies a fault that concerns the engine.
    pub(crate) fn apply(&self, fault: &Fault) {
        let until = |for_ms: &Option<u64>| {
            Instant::now() + for_ms.map_or(FOREVER, Duration::from_millis).min(FOREVER)
        };
        let mut core = self.core();
        match fault {
            Fault::Slow { factor, for_ms } => core.slow = Some((*factor, until(for_ms))),
            Fault::Hang { for_ms } => core.hang_until = Some(until(for_ms)),
            Fault::Error { .. } | Fault::Reset { .. } | Fault::Status { .. } => {
                core.script.push_back(fault.clone());
            }
            Fault::Die => {
                core.state = State::Dead;
                core.fail_all();
            }
            Fault::Drain { .. } => core.state = State::Draining,
            Fault::None => {
                core.slow = None;
                core.hang_until = None;
                core.script.clear();
            }
        }
        drop(core);
        self.wake.notify_one();
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.core().open.is_empty()
    }

    pub(crate) fn stats(&self) -> Stats {
        let core = self.core();
        core.journal.stats(core.running.len(), core.waiting.len(), core.open.len())
    }

    /// Reads the journal; `read` should be short, the engine waits meanwhile.
    pub(crate) fn journal<T>(&self, read: impl FnOnce(&Journal) -> T) -> T {
        read(&self.core().journal)
    }

    pub(crate) fn metrics_page(&self, started: f64) -> String {
        let core = self.core();
        // The gauges of an engine that hangs read as those of an idle one.
        let gauges =
            if core.hang_until.is_some() { Gauges::default() } else { core.gauges(&self.config) };
        core.metrics.page(&self.config, gauges, started)
    }

    /// The gauges as they are, for the load report in a response header.
    pub(crate) fn gauges(&self) -> Gauges {
        self.core().gauges(&self.config)
    }

    /// Runs until the engine is dead; blocks its thread.
    pub(crate) fn run(&self) {
        let mut core = self.core();
        while core.state != State::Dead {
            let now = Instant::now();
            let due = match core.hang_until {
                Some(until) if until > now => Some(until),
                _ => {
                    core.hang_until = None;
                    core.due(&self.config, now)
                }
            };
            core = match due {
                None => self.wake.wait(core).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    let waited = self.wake.wait_timeout(core, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    core.advance(&self.config, now);
                    core
                }
            };
        }
    }
}
