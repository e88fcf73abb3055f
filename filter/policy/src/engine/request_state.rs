//! One request and where it stands.

use std::rc::Rc;

use crate::calibration::Estimate;
use crate::config::Policy;
use crate::ids::{FlowId, Lane, Nanos, PoolId};
use crate::keys::Caller;
use crate::outcome::Outcome;
use crate::quota::{Reservation, Standing};
use crate::request::Endpoint;
use crate::sse::{Events, FirstEvent};
use crate::timing::Moment;
use crate::usage::{Form, Usage, UsageReader};

/// A request the gate has taken up.
#[derive(Debug)]
pub(super) struct Request {
    /// The policy it came in under; it keeps it over a push.
    pub(super) policy: Rc<Policy>,
    /// `None` where it is no inference request and was refused for that.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) caller: Option<Caller>,
    /// Index of its tier: the key's, or a lower one the client asked for.
    pub(super) tier: usize,
    /// The wait the client allows.
    pub(super) max_wait: Option<Nanos>,
    pub(super) id: Box<str>,
    /// When its last byte was there; `None` before that. Until then a client sends, it does not wait.
    pub(super) arrived: Option<Moment>,
    /// What is known once its body is read.
    pub(super) job: Option<Job>,
    /// What it holds of its key's quota.
    pub(super) reservation: Option<Reservation>,
    /// What was left of that quota then.
    pub(super) standing: Standing,
    pub(super) phase: Phase,
}

impl Request {
    /// When it was there whole.
    pub(super) fn arrived(&self) -> Moment {
        self.arrived.unwrap_or_default()
    }
}

/// What a request asks for, once its body is read.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) model: usize,
    pub(super) class: usize,
    /// The most output tokens it may have, over all choices and prompts.
    pub(super) output_cap: Option<u64>,
    /// What the engine's own count is held against.
    pub(super) estimate: Estimate,
    /// Its answer will say what it cost, even as a stream.
    pub(super) usage_asked: bool,
    pub(super) pool: PoolId,
    pub(super) lane: Lane,
    pub(super) flow: FlowId,
}

impl Job {
    /// Prompt tokens, as they were given out.
    pub(super) fn prompt_tokens(&self) -> u64 {
        self.estimate.given
    }
}

/// What a request is in stats: indexes into the policy that serves now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Labels {
    pub(super) model: usize,
    pub(super) class: usize,
    pub(super) tier: usize,
}

/// Where a request stands. Forward only:
/// `Reading => (Waiting | Running | Over)`, `Waiting => (Running | Over)`, `Running => Running`.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its headers are held, its body is awaited.
    Reading,
    /// It waits for a permit.
    Waiting { deadline: Nanos },
    /// It holds a permit, and the engine has it.
    Running { since: Nanos, answer: Answer },
    /// It was answered by the gate or by Envoy, and holds nothing.
    Over { outcome: Outcome, at: Nanos },
}

/// How far the engine's answer has come.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Its status, once there.
    pub(super) status: Option<u16>,
    /// When its first token came.
    pub(super) first_token: Option<Nanos>,
    /// Whether it is an event stream.
    pub(super) event_stream: bool,
    /// What was delivered of an event stream, where the key pays for it.
    pub(super) events: Events,
    /// Bytes of an answer that comes whole.
    pub(super) bytes: u64,
    /// Where an event stream stands before its first event.
    pub(super) watch: FirstEvent,
    /// Where its usage is read.
    pub(super) usage: UsageReader,
}

impl Answer {
    /// What it says it cost.
    pub(super) fn told(&self) -> Usage {
        self.usage.usage(if self.event_stream { Form::Events } else { Form::Document })
    }
}
