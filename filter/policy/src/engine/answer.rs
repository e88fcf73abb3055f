//! From the engine's answer to the end: times, and the one outcome.

use std::fmt::Write as _;

use serde_json::Value;

use super::key_quota::Bill;
use super::request_state::{Answer, Job, Labels, Phase, Request};
use super::{Action, Engine};
use crate::ids::{Nanos, StreamId};
use crate::outcome::Outcome;
use crate::port::Port;
use crate::sse::FirstEvent;
use crate::stats::{ExecPhase, Objective, StatId};
use crate::timing::{Moment, millis, nanos, rfc3339, whole_millis};
use crate::usage::Usage;

/// What an answer's headers are to carry, and whether its data must be shown to the engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Headers to add.
    pub headers: Vec<(&'static str, String)>,
    /// What the engine is to be shown of the answer's data.
    pub watch: Watch,
}

/// What the engine is to be shown of an answer's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Watch {
    /// Nothing more.
    #[default]
    Nothing,
    /// The next piece from its beginning, by [`Engine::data`].
    Beginning,
    /// The end of each piece, [`TAIL`](crate::usage::TAIL) bytes at most, by [`Engine::tail`].
    Tails,
}

/// How a stream ended, as the host saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The answer was sent to its end.
    Complete,
    /// The engine, or the way to it, broke off.
    EngineCut,
    /// The client left.
    ClientLeft,
}

impl Engine {
    /// Takes the head of an answer: the engine's, or one that Envoy made itself.
    pub fn respond(
        &mut self,
        stream: StreamId,
        status: u16,
        event_stream: bool,
        now: Moment,
    ) -> Option<Stamp> {
        let request = self.requests.get_mut(&stream)?;
        match &mut request.phase {
            Phase::Running { since, answer } => {
                answer.status = Some(status);
                answer.event_stream = event_stream;
                let watch = match (status, event_stream) {
                    (400.., _) => Watch::Nothing,
                    (_, true) => Watch::Beginning,
                    (_, false) => Watch::Tails,
                };
                match watch {
                    Watch::Nothing => {}
                    Watch::Beginning => answer.watch = FirstEvent::default(),
                    // The head of such an answer comes with the whole of it.
                    Watch::Tails => answer.first_token = Some(now.mono),
                }
                let since = *since;
                let headers = stamp(request, since, event_stream, now.mono);
                Some(Stamp { headers, watch })
            }
            // A timer of Envoy's own, or another filter, answered a request the gate still held.
            Phase::Reading | Phase::Waiting { .. } => {
                self.answered_elsewhere(stream, status, now.mono);
                Some(Stamp::default())
            }
            Phase::Over { .. } => Some(Stamp::default()),
        }
    }

    fn answered_elsewhere(&mut self, stream: StreamId, status: u16, now: Nanos) {
        let Some(request) = self.requests.get_mut(&stream) else { return };
        // A waiter keeps its place until the stream ends, at once: the place goes with it.
        if let Phase::Reading = request.phase {
            let outcome = match status {
                413 => Outcome::RequestTooLarge,
                400..=499 => Outcome::InvalidRequest,
                _ => Outcome::GateError,
            };
            request.phase = Phase::Over { outcome, at: now };
        }
    }

    /// Takes data of an event stream: until its first token has come, and to the end where it is paid
    /// for by what was delivered. Returns what to show next.
    pub fn data(&mut self, stream: StreamId, chunk: &[u8], now: Moment) -> Watch {
        let Some(request) = self.requests.get_mut(&stream) else { return Watch::Nothing };
        let Phase::Running { answer, .. } = &mut request.phase else { return Watch::Nothing };
        // An engine's error has a body, but no token.
        if answer.status.is_some_and(|status| status >= 400) {
            return Watch::Nothing;
        }
        let before = answer.first_token.is_some();
        let begun = answer.watch.feed(chunk);
        if begun && answer.first_token.is_none() {
            answer.first_token = Some(now.mono);
        }
        // Whoever pays for tokens pays for what was delivered, if nothing better is known.
        let limits = request.reservation.as_ref().map(|reservation| reservation.limits);
        let paid = limits.is_some_and(|limits| limits.tokens.is_some());
        if paid {
            answer.events.feed(chunk);
        }
        match (begun, &request.job) {
            (false, _) => Watch::Beginning,
            (true, Some(Job { usage_asked, .. })) if paid => {
                if *usage_asked {
                    if !before {
                        answer.usage.look_at_first(chunk);
                    }
                    answer.usage.feed(chunk);
                }
                Watch::Beginning
            }
            (true, Some(Job { usage_asked: true, .. })) => {
                answer.usage.look_at_first(chunk);
                answer.usage.feed(chunk);
                Watch::Tails
            }
            (true, _) => Watch::Nothing,
        }
    }

    /// Takes the end of a piece of an answer, for its usage, and the length of the whole piece.
    pub fn tail(&mut self, stream: StreamId, tail: &[u8], bytes: usize) {
        if let Some(request) = self.requests.get_mut(&stream)
            && let Phase::Running { answer, .. } = &mut request.phase
        {
            answer.usage.feed(tail);
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            answer.bytes = answer.bytes.saturating_add(bytes);
        }
    }

    /// Holds the engine's count of a prompt against the one that was given out.
    fn learn(&mut self, request: &Request, told: Usage) {
        let Some(job) = &request.job else { return };
        let model = request.policy.models.get(job.model);
        if let (Some(model), Some(truth)) = (model, told.prompt_tokens) {
            self.calibrations.learn(&model.name, &job.estimate, truth);
        }
    }

    /// Ends a request, by any road: what it held is free again, its one outcome is counted.
    /// Returns the fields of its log line as a JSON fragment that begins with a comma.
    pub fn end(
        &mut self,
        stream: StreamId,
        ending: Ending,
        now: Moment,
        port: &mut dyn Port,
    ) -> Option<(String, Vec<Action>)> {
        let mut request = self.requests.remove(&stream)?;
        // A request that was not there whole has not waited.
        let at = if let Phase::Over { at, .. } = request.phase { at } else { now.mono };
        request.arrived.get_or_insert(Moment { mono: at, wall: now.wall_at(at) });
        let mut promoted = Vec::new();
        let outcome = match &request.phase {
            Phase::Reading => Outcome::LeftWaiting,
            Phase::Waiting { .. } => {
                promoted = self.leave(stream, &request, port);
                if ending == Ending::Complete {
                    Outcome::QueueTimeout
                } else {
                    Outcome::LeftWaiting
                }
            }
            Phase::Running { since, answer } => {
                let held = now.mono.saturating_sub(*since);
                if let (Some(job), Some(slot)) = (&request.job, self.slot)
                    && let Some(pool) = self.pools.get_mut(&job.pool)
                {
                    promoted = pool.release(slot, job.lane, held, now.mono, port);
                }
                outcome_of(answer, ending)
            }
            Phase::Over { outcome, .. } => *outcome,
        };
        let told = match &request.phase {
            Phase::Running { answer, .. } => answer.told(),
            _ => Usage::default(),
        };
        self.learn(&request, told);
        let bill = bill(&request, outcome, told);
        self.bill(&mut request, bill, now.mono, port);
        let labels = self.labels(&request, request.job.as_ref());
        count(&request, labels, outcome, now.mono, port);
        let line = log_line(&request, outcome, now.mono);
        Some((line, self.admit(promoted, now.mono)))
    }
}

/// The headers of an answer.
fn stamp(
    request: &Request,
    since: Nanos,
    event_stream: bool,
    now: Nanos,
) -> Vec<(&'static str, String)> {
    let queue = millis(since.saturating_sub(request.arrived().mono));
    let mut headers = Vec::with_capacity(9);
    if event_stream {
        headers.push(("server-timing", format!("queue;dur={queue}")));
    } else {
        let exec = millis(now.saturating_sub(since));
        headers.push(("server-timing", format!("queue;dur={queue}, exec;dur={exec}")));
        headers.push(("x-slogate-exec-ms", exec));
    }
    headers.push(("x-slogate-queue-ms", queue));
    headers.extend(request.standing.headers());
    let policy = &request.policy;
    if let Some(tier) = policy.tiers.get(request.tier) {
        headers.push(("x-slogate-tier", tier.name.clone()));
    }
    if let Some(job) = &request.job {
        if let Some(class) = policy.classes.get(job.class) {
            headers.push(("x-slogate-class", class.name.clone()));
        }
        if let Some(model) = policy.models.get(job.model) {
            headers.push(("x-slogate-model", model.name.clone()));
        }
        headers.push(("x-slogate-prompt-tokens", job.prompt_tokens().to_string()));
        if !job.estimate.exact {
            // Each header costs a call into the host: the exact count, which is to cost nothing, is
            // the one that goes without.
            headers.push(("x-slogate-prompt-tokens-estimated", "true".to_owned()));
        }
    }
    headers
}

/// Bytes of an answer that are charged as one token where the engine's count is not found.
const BYTES_A_TOKEN: u64 = 4;

/// What a request that ends costs its key. One that never ran costs nothing; one that the engine
/// refused or broke off costs what it was answered; any other its prompt and its answer.
fn bill(request: &Request, outcome: Outcome, told: Usage) -> Bill {
    let (Phase::Running { answer, .. }, Some(job)) = (&request.phase, &request.job) else {
        return Bill::Nothing;
    };
    let delivered = if answer.event_stream {
        answer.events.tokens()
    } else {
        // An answer whose usage was not found: no token is longer than this on average, and it is
        // the client who chose what stands behind the usage.
        (answer.bytes / BYTES_A_TOKEN).min(job.output_cap.unwrap_or(u64::MAX))
    };
    let prompt = told.prompt_tokens.unwrap_or(job.prompt_tokens());
    match (told.completion_tokens, outcome) {
        (Some(output), _) => Bill::Tokens(prompt.saturating_add(output)),
        (None, Outcome::ClientError | Outcome::EngineError) if delivered == 0 => Bill::Tokens(0),
        (None, _) => Bill::Tokens(prompt.saturating_add(delivered)),
    }
}

fn outcome_of(answer: &Answer, ending: Ending) -> Outcome {
    match (ending, answer.status) {
        (Ending::ClientLeft, _) => Outcome::LeftRunning,
        (Ending::EngineCut, _) | (Ending::Complete, None | Some(500..)) => Outcome::EngineError,
        (Ending::Complete, Some(400..=499)) => Outcome::ClientError,
        (Ending::Complete, Some(_)) => Outcome::Ok,
    }
}

/// Times of a request, relative to the monotonic clock.
struct Times {
    exec_start: Option<Nanos>,
    first_token: Option<Nanos>,
    event_stream: bool,
    queue: Nanos,
    exec: Option<Nanos>,
}

fn times(request: &Request, now: Nanos) -> Times {
    let arrived = request.arrived().mono;
    match &request.phase {
        Phase::Running { since, answer } => Times {
            exec_start: Some(*since),
            first_token: answer.first_token,
            event_stream: answer.event_stream,
            queue: since.saturating_sub(arrived),
            exec: Some(now.saturating_sub(*since)),
        },
        Phase::Over { at, .. } => Times {
            exec_start: None,
            first_token: None,
            event_stream: false,
            queue: at.saturating_sub(arrived),
            exec: None,
        },
        Phase::Reading | Phase::Waiting { .. } => Times {
            exec_start: None,
            first_token: None,
            event_stream: false,
            queue: now.saturating_sub(arrived),
            exec: None,
        },
    }
}

fn count(request: &Request, labels: Labels, outcome: Outcome, now: Nanos, port: &mut dyn Port) {
    let Labels { model, class, tier } = labels;
    port.count(StatId::Requests(model, tier, outcome), 1);
    let times = times(request, now);
    if request.job.is_some() {
        port.record(StatId::QueueLatency(model, class), whole_millis(times.queue));
        if let (Some(exec), Some(since)) = (times.exec, times.exec_start) {
            let stat = |phase| StatId::InferenceLatency(model, class, phase);
            if outcome == Outcome::Ok {
                port.record(stat(ExecPhase::EndToEnd), whole_millis(exec));
            }
            // The first token of an answer that comes whole is not seen.
            if let (Some(first), true) = (times.first_token, times.event_stream) {
                let first = whole_millis(first.saturating_sub(since));
                port.record(stat(ExecPhase::FirstToken), first);
            }
        }
    }
    count_slo(request, tier, outcome, &times, now, port);
}

fn count_slo(
    request: &Request,
    tier: usize,
    outcome: Outcome,
    times: &Times,
    now: Nanos,
    port: &mut dyn Port,
) {
    let slo = request.policy.tiers.get(request.tier).and_then(|tier| tier.slo.as_ref());
    let Some(slo) = slo.filter(|_| outcome.counts_for_slo()) else { return };
    let arrived = request.arrived().mono;
    let left = matches!(outcome, Outcome::LeftWaiting | Outcome::LeftRunning);
    let total = now.saturating_sub(arrived);
    let first = times.first_token.map(|first| first.saturating_sub(arrived));
    for (objective, bound, time) in [
        (Objective::Total, slo.total, (!left).then_some(total)),
        (Objective::FirstToken, slo.first_token, first),
    ] {
        let Some(bound) = bound.map(nanos) else { continue };
        // Who left before the promise was broken says nothing about it.
        if left && time.is_none() && total <= bound {
            continue;
        }
        port.count(StatId::SloTotal(tier, objective), 1);
        let kept = time.is_some_and(|time| time <= bound);
        if kept && (outcome == Outcome::Ok || left) {
            port.count(StatId::SloGood(tier, objective), 1);
        }
    }
}

/// The fields that a request leaves for the access log.
pub const LOG_FIELDS: [&str; 14] = [
    "request_id",
    "queue_start",
    "exec_start",
    "first_token",
    "finish_time",
    "model",
    "class",
    "tier",
    "key",
    "outcome",
    "context_len",
    "context_exact",
    "queue_ms",
    "exec_ms",
];

/// The fields of the log line, as members of a JSON object after others.
fn log_line(request: &Request, outcome: Outcome, now: Nanos) -> String {
    let times = times(request, now);
    let arrived = request.arrived();
    let policy = &request.policy;
    let job = request.job.as_ref();
    let entry = request.caller.and_then(|caller| caller.entry);
    let mut line = String::with_capacity(512);
    // The id is the client's; everything else is plain.
    let id = Some(&*request.id).filter(|id| !id.is_empty());
    let _ = write!(line, ",\"request_id\":{}", id.map_or(Value::Null, Value::from));
    let moments = [
        ("queue_start", Some(arrived.mono)),
        ("exec_start", times.exec_start),
        ("first_token", times.first_token),
        ("finish_time", Some(now)),
    ];
    for (name, at) in moments {
        field(
            &mut line,
            name,
            at.map(|at| move |line: &mut String| rfc3339(line, arrived.wall_at(at))),
        );
    }
    let texts = [
        ("model", job.and_then(|job| policy.models.get(job.model)).map(|model| &*model.name)),
        ("class", job.and_then(|job| policy.classes.get(job.class)).map(|class| &*class.name)),
        ("tier", policy.tiers.get(request.tier).map(|tier| &*tier.name)),
        ("key", entry.and_then(|at| policy.keys.entries.get(at)).map(|entry| &*entry.id)),
        ("outcome", Some(outcome.label())),
    ];
    for (name, text) in texts {
        field(&mut line, name, text.map(|text| move |line: &mut String| line.push_str(text)));
    }
    let number = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
    let tokens = number(job.map(|job| job.prompt_tokens().to_string()));
    let exact = match job.map(|job| job.estimate.exact) {
        None => "null",
        Some(true) => "true",
        Some(false) => "false",
    };
    let exec = number(times.exec.map(millis));
    let queue = millis(times.queue);
    let _ = write!(
        line,
        ",\"context_len\":{tokens},\"context_exact\":{exact},\"queue_ms\":{queue},\"exec_ms\":{exec}"
    );
    line
}

/// Writes a member whose value is plain text, or null.
fn field(line: &mut String, name: &str, value: Option<impl FnOnce(&mut String)>) {
    line.push_str(",\"");
    line.push_str(name);
    line.push_str("\":");
    match value {
        Some(value) => {
            line.push('"');
            value(line);
            line.push('"');
        }
        None => line.push_str("null"),
    }
}
