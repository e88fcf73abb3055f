//! The engine: what is decided about a request, from its first header to its last byte.
//!
//! Each call takes what the host saw and returns what is to be done; the host's adapter does it
//! and decides nothing. A request ends in exactly one [`Outcome`](crate::outcome::Outcome).

mod answer;
mod request_state;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::config::{OtherPaths, Policy};
use crate::ids::{MILLI, Nanos, PoolId, SlotId, StreamId};
use crate::members;
use crate::outcome::Outcome;
use crate::pool::turn::{Arrival, Arrived};
use crate::pool::{Change, Pool};
use crate::port::Port;
use crate::refusal::Refusal;
use crate::request::{self, Endpoint, PathMatch};
use crate::stats::{Build, StatId, UNKNOWN};
use crate::timing::{Moment, millis, whole_millis};
use crate::tokens::{TokenCounter, WordPiece, template};
use crate::{config, keys};

pub use answer::{Ending, Stamp};
use request_state::{Answer, Job, Labels, Phase, Request};

/// How often gauges are set and queues are looked at again.
const REFRESH: Nanos = 250 * MILLI;

/// The parts of a request's head that matter.
#[derive(Clone, Copy, Default)]
pub struct Head<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`, with its query.
    pub path: &'a [u8],
    /// The key, from whichever header carried one.
    pub key: Option<&'a [u8]>,
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// `content-length`.
    pub content_length: Option<&'a [u8]>,
    /// `x-slogate-tier`.
    pub tier: Option<&'a [u8]>,
    /// `x-slogate-max-wait-ms`.
    pub max_wait_ms: Option<&'a [u8]>,
    /// `x-request-id`.
    pub request_id: Option<&'a [u8]>,
    /// Whether no body follows.
    pub end_of_stream: bool,
}

/// Keys must not be printed, so neither is what holds them.
impl std::fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}

/// What to do with a request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Not ours: let it pass.
    Pass,
    /// Hold it until the body is there.
    Hold,
    /// Answer it.
    Refuse(Refusal),
}

/// What to do with a request whose body is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Let it through to this cluster.
    Admit(Rc<str>),
    /// Hold it.
    Enqueue,
    /// Answer it.
    Refuse(Refusal),
}

/// What to do with a request that was held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The request.
    pub stream: StreamId,
    /// What to do: never [`Verdict::Enqueue`].
    pub verdict: Verdict,
}

/// The engine of one instance.
#[derive(Debug)]
pub struct Engine {
    prefix: String,
    build: Build,
    policy: Rc<Policy>,
    pools: HashMap<PoolId, Pool>,
    requests: HashMap<StreamId, Request>,
    deadlines: BTreeSet<(Nanos, StreamId)>,
    slot: Option<SlotId>,
    beat: Nanos,
    refreshed: Nanos,
    /// Envoy holds bodies back: every held request would hang.
    flag_missing: bool,
}

impl Engine {
    /// An engine with this policy. `prefix` names its values in the shared store: two gates with
    /// one prefix are one gate.
    pub fn new(prefix: &str, build: Build, policy: Rc<Policy>, port: &mut dyn Port) -> Self {
        let mut engine = Self {
            prefix: prefix.to_owned(),
            build,
            policy: Rc::clone(&policy),
            pools: HashMap::new(),
            requests: HashMap::new(),
            deadlines: BTreeSet::new(),
            slot: None,
            beat: 0,
            refreshed: 0,
            flag_missing: false,
        };
        engine.adopt(policy, port);
        engine
    }

    /// Takes up a policy. Requests that wait keep their place and their deadline; the limits of the
    /// new policy hold from now on.
    pub fn adopt(&mut self, policy: Rc<Policy>, port: &mut dyn Port) {
        let failed = members::create(&self.members_key(), port).is_err();
        port.count(StatId::SharedStateErrors, u64::from(failed));
        for rule in &policy.pools {
            let key = format!("{}pool/{}", self.prefix, rule.key);
            let pool = self
                .pools
                .entry(rule.id)
                .or_insert_with(|| Pool::new(rule.id, key, &rule.cluster, rule.limits.clone()));
            pool.limit(&rule.cluster, rule.limits.clone());
            if pool.create(port).is_err() {
                port.count(StatId::SharedStateErrors, 1);
            }
        }
        self.policy = policy;
        self.forget_pools();
        self.flag_missing = false;
        // The next tick looks at every queue under the new limits.
        self.refreshed = 0;
        port.set(StatId::BuildInfo, 1);
        port.set(StatId::PolicyDigest, self.policy.digest);
        port.set(StatId::FlagMissing, 0);
    }

    /// The policy that serves.
    pub fn policy(&self) -> &Rc<Policy> {
        &self.policy
    }

    /// What names the build.
    pub fn build(&self) -> Build {
        self.build
    }

    /// Requests this instance has in hand.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    fn members_key(&self) -> String {
        format!("{}members", self.prefix)
    }

    /// Takes a request's head.
    pub fn begin(&mut self, stream: StreamId, head: &Head<'_>, now: Moment) -> Begin {
        let path = Endpoint::from_path(head.path);
        let (endpoint, refusal) = match path {
            PathMatch::Inference(endpoint) if head.method == b"POST" => (Some(endpoint), None),
            PathMatch::Disguised => {
                let message = "an inference path must not be percent-encoded".to_owned();
                (None, Some(Refusal::invalid(400, None, message)))
            }
            _ if self.policy.other_paths == OtherPaths::Deny => {
                let message = "this path is not served here".to_owned();
                let outcome = Outcome::InvalidRequest;
                (None, Some(Refusal::new(outcome, 404, "not_found", message)))
            }
            _ => return Begin::Pass,
        };
        let policy = Rc::clone(&self.policy);
        let caller = keys::identify(&policy.keys, head.key);
        let id = head.request_id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default();
        let mut request = Request {
            endpoint,
            caller,
            tier: caller.map_or(UNKNOWN, |caller| caller.tier),
            max_wait: None,
            request_id: id.into(),
            arrived: now,
            job: None,
            phase: Phase::Reading,
            policy,
        };
        let refusal = refusal.or_else(|| self.head_refusal(&mut request, head));
        if let Some(refusal) = &refusal {
            request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
        }
        self.requests.insert(stream, request);
        refusal.map_or(Begin::Hold, Begin::Refuse)
    }

    /// What can be refused without the body.
    fn head_refusal(&self, request: &mut Request, head: &Head<'_>) -> Option<Refusal> {
        if self.flag_missing {
            return Some(flag_missing());
        }
        if request.caller.is_none() {
            let message = "the API key is not known here".to_owned();
            return Some(Refusal::new(Outcome::InvalidApiKey, 401, "invalid_api_key", message));
        }
        if let Err(error) = request::check_content(head.content_type, head.content_encoding) {
            return Some(Refusal::invalid(error.status(), error.param(), error.to_string()));
        }
        let length = head.content_length.and_then(|value| std::str::from_utf8(value).ok());
        if length
            .and_then(|text| text.parse::<u64>().ok())
            .is_some_and(|bytes| bytes > u64::from(request.policy.max_body_bytes))
        {
            return Some(too_large(request.policy.max_body_bytes));
        }
        if let Some(name) = head.tier {
            let asked = request.policy.tiers.iter().position(|tier| tier.name.as_bytes() == name);
            let weight = |at: usize| request.policy.tiers.get(at).map_or(0, |tier| tier.weight);
            match asked {
                None => {
                    let message = "x-slogate-tier names no tier of this gate".to_owned();
                    return Some(Refusal::invalid(400, None, message));
                }
                Some(asked) if weight(asked) < weight(request.tier) => request.tier = asked,
                Some(_) => {}
            }
        }
        if let Some(value) = head.max_wait_ms {
            let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
            let Some(wait) = parsed else {
                let message = "x-slogate-max-wait-ms must be a whole number".to_owned();
                return Some(Refusal::invalid(400, None, message));
            };
            request.max_wait = Some(Nanos::from(wait).saturating_mul(MILLI));
        }
        head.end_of_stream
            .then(|| Refusal::invalid(400, None, "the request has no body".to_owned()))
    }

    /// Takes the size of a body that is still coming. A refusal where it is too large.
    pub fn body_grows(&mut self, stream: StreamId, bytes: usize, now: Moment) -> Option<Refusal> {
        let limit = self.policy.max_body_bytes;
        if usize::try_from(limit).is_ok_and(|limit| bytes <= limit) {
            return None;
        }
        let request = self.requests.get_mut(&stream)?;
        let Phase::Reading = request.phase else { return None };
        let refusal = too_large(limit);
        request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
        Some(refusal)
    }

    /// Decides about a request whose body is there. Other requests may be let through by the way.
    pub fn decide(
        &mut self,
        stream: StreamId,
        body: &[u8],
        now: Moment,
        port: &mut dyn Port,
    ) -> (Verdict, Vec<Action>) {
        let Some(mut request) = self.requests.remove(&stream) else {
            return (Verdict::Refuse(lost()), Vec::new());
        };
        if !matches!(request.phase, Phase::Reading) {
            // It has its answer, or its place, already.
            self.requests.insert(stream, request);
            return (Verdict::Refuse(lost()), Vec::new());
        }
        request.arrived = now;
        let (verdict, promoted) = match self.decide_new(stream, &mut request, body, now, port) {
            Ok((verdict, promoted)) => (verdict, promoted),
            Err(refusal) => {
                request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
                (Verdict::Refuse(refusal), Vec::new())
            }
        };
        self.requests.insert(stream, request);
        (verdict, self.admit(promoted, now.mono))
    }

    fn decide_new(
        &mut self,
        stream: StreamId,
        request: &mut Request,
        body: &[u8],
        now: Moment,
        port: &mut dyn Port,
    ) -> Result<(Verdict, Vec<StreamId>), Refusal> {
        let (job, cost) = job(request, body)?;
        let slot = self.joined(now.mono, port)?;
        let model = self.labels(request, Some(&job)).model;
        port.record(StatId::PromptTokens(model), job.prompt_tokens);
        let policy = Rc::clone(&request.policy);
        let tier = policy.tiers.get(request.tier);
        let most = tier.map_or(0, |tier| nanos(tier.max_wait));
        let max_wait = request.max_wait.map_or(most, |wait| wait.min(most));
        let pool = self.pools.get_mut(&job.pool).ok_or_else(lost)?;
        let arrival = Arrival {
            lane: job.lane,
            rank: u32::try_from(job.class).unwrap_or(u32::MAX),
            flow: job.flow,
            cost,
            bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
            now: now.mono,
            max_wait,
        };
        let change = pool.arrive(slot, stream, arrival, port).map_err(|_| {
            port.count(StatId::SharedStateErrors, 1);
            store_failed()
        })?;
        let Change { promoted, arrived } = change;
        request.job = Some(job.clone());
        let verdict = match arrived {
            Some(Arrived::Admitted) => {
                request.phase = Phase::Running { since: now.mono, answer: Answer::default() };
                Verdict::Admit(Rc::clone(&pool.cluster))
            }
            Some(Arrived::Queued { .. }) => {
                let deadline = now.mono.saturating_add(max_wait);
                request.phase = Phase::Waiting { deadline };
                self.deadlines.insert((deadline, stream));
                Verdict::Enqueue
            }
            Some(Arrived::Full { retry_after }) => {
                let refusal = self.queue_refusal(request, Outcome::QueueFull, retry_after, 0);
                request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
                Verdict::Refuse(refusal)
            }
            Some(Arrived::TooLong { predicted }) => {
                let after = predicted.saturating_sub(max_wait);
                let outcome = Outcome::QueueWaitTooLong;
                let refusal = self.queue_refusal(request, outcome, after, 0);
                let refusal = refusal.header("x-slogate-predicted-wait-ms", millis(predicted));
                request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
                Verdict::Refuse(refusal)
            }
            None => return Err(lost()),
        };
        Ok((verdict, promoted))
    }

    /// A request's labels under the policy that serves now. Stats are named by that one, and a
    /// push may have moved, added or removed names since the request came.
    fn labels(&self, request: &Request, job: Option<&Job>) -> Labels {
        let mut labels = Labels {
            model: job.map_or(UNKNOWN, |job| job.model),
            class: job.map_or(UNKNOWN, |job| job.class),
            tier: request.tier,
        };
        let (old, new) = (&*request.policy, &*self.policy);
        if !std::ptr::eq(old, new) {
            let model = old.models.get(labels.model);
            let class = old.classes.get(labels.class);
            let tier = old.tiers.get(labels.tier);
            let find = |found: Option<usize>| found.unwrap_or(UNKNOWN);
            labels.model =
                find(model.and_then(|old| new.models.iter().position(|m| m.name == old.name)));
            labels.class =
                find(class.and_then(|old| new.classes.iter().position(|c| c.id == old.id)));
            labels.tier = find(tier.and_then(|old| new.tiers.iter().position(|t| t.id == old.id)));
        }
        labels
    }

    /// This instance's number; the first request makes it join.
    fn joined(&mut self, now: Nanos, port: &mut dyn Port) -> Result<SlotId, Refusal> {
        if let Some(slot) = self.slot {
            return Ok(slot);
        }
        let joined = members::beat(&self.members_key(), None, now, port)
            .and_then(|(slot, _)| port.open_mailbox(slot).map(|()| slot));
        let slot = joined.map_err(|_| {
            port.count(StatId::SharedStateErrors, 1);
            store_failed()
        })?;
        self.slot = Some(slot);
        self.beat = now;
        Ok(slot)
    }

    fn queue_refusal(
        &self,
        request: &Request,
        outcome: Outcome,
        retry_after: Nanos,
        waited: Nanos,
    ) -> Refusal {
        let tier = request.policy.tiers.get(request.tier).map_or("", |tier| tier.name.as_str());
        let (code, message) = match outcome {
            Outcome::QueueFull => ("queue_full", format!("the queue of tier {tier} is full")),
            Outcome::QueueWaitTooLong => (
                "queue_wait_too_long",
                format!("the wait in tier {tier} would be longer than allowed"),
            ),
            _ => (
                "queue_timeout",
                format!("no capacity for tier {tier} within {} ms", whole_millis(waited)),
            ),
        };
        Refusal::new(outcome, self.policy.queue_status, code, message)
            .retry_after(retry_after)
            .header("x-slogate-tier", tier.to_owned())
            .header("x-slogate-queue-ms", millis(waited))
            .header("server-timing", format!("queue;dur={}", millis(waited)))
    }

    /// Lets requests through that were handed a permit.
    fn admit(&mut self, promoted: Vec<StreamId>, now: Nanos) -> Vec<Action> {
        let mut actions = Vec::with_capacity(promoted.len());
        for stream in promoted {
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            if let Phase::Waiting { deadline } = request.phase {
                self.deadlines.remove(&(deadline, stream));
            }
            request.phase = Phase::Running { since: now, answer: Answer::default() };
            let pool = request.job.as_ref().and_then(|job| self.pools.get(&job.pool));
            let Some(pool) = pool else { continue };
            actions.push(Action { stream, verdict: Verdict::Admit(Rc::clone(&pool.cluster)) });
        }
        actions
    }

    /// Another instance handed this one a permit of these pools.
    pub fn woken(&mut self, pools: &[PoolId], now: Moment, port: &mut dyn Port) -> Vec<Action> {
        let Some(slot) = self.slot else { return Vec::new() };
        let mut promoted = Vec::new();
        for id in pools {
            if let Some(pool) = self.pools.get_mut(id) {
                promoted.extend(pool.look(slot, port));
            }
        }
        self.admit(promoted, now.mono)
    }

    /// What time brings: deadlines, and now and then a look at everything.
    pub fn tick(&mut self, now: Moment, port: &mut dyn Port) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((deadline, stream)) = self.deadlines.first().copied() {
            if deadline > now.mono {
                break;
            }
            self.deadlines.pop_first();
            actions.extend(self.expire(stream, now.mono, port));
        }
        if now.mono.saturating_sub(self.refreshed) >= REFRESH {
            self.refreshed = now.mono;
            actions.extend(self.refresh(now.mono, port));
        }
        actions
    }

    fn expire(&mut self, stream: StreamId, now: Nanos, port: &mut dyn Port) -> Vec<Action> {
        let Some(mut request) = self.requests.remove(&stream) else { return Vec::new() };
        let mut actions = Vec::new();
        if let Phase::Waiting { .. } = request.phase {
            let promoted = self.leave(stream, &request, port);
            let waited = now.saturating_sub(request.arrived.mono);
            let after = self.drain_time(&request, port);
            let refusal = self.queue_refusal(&request, Outcome::QueueTimeout, after, waited);
            request.phase = Phase::Over { outcome: refusal.outcome, at: now };
            actions.push(Action { stream, verdict: Verdict::Refuse(refusal) });
            self.requests.insert(stream, request);
            actions.extend(self.admit(promoted, now));
        } else {
            self.requests.insert(stream, request);
        }
        actions
    }

    /// The time in which those who wait in a request's tier are served.
    fn drain_time(&self, request: &Request, port: &mut dyn Port) -> Nanos {
        let Some(job) = &request.job else { return 0 };
        let Some(pool) = self.pools.get(&job.pool) else { return 0 };
        let ledger = pool.ledger(port).ok().flatten();
        ledger.map_or(0, |ledger| crate::pool::turn::drain_time(&ledger, pool.limits(), job.lane))
    }

    /// Takes a waiting request out of its queue.
    fn leave(&mut self, stream: StreamId, request: &Request, port: &mut dyn Port) -> Vec<StreamId> {
        let (Phase::Waiting { deadline }, Some(job), Some(slot)) =
            (&request.phase, &request.job, self.slot)
        else {
            return Vec::new();
        };
        self.deadlines.remove(&(*deadline, stream));
        self.pools.get_mut(&job.pool).map(|pool| pool.leave(slot, stream, port)).unwrap_or_default()
    }

    /// Says that this instance lives, takes back what dead ones held, looks at every queue and
    /// sets the gauges.
    fn refresh(&mut self, now: Nanos, port: &mut dyn Port) -> Vec<Action> {
        let key = self.members_key();
        let due = now.saturating_sub(self.beat) >= members::BEAT;
        if due {
            self.beat = now;
            if self.slot.is_some() && members::beat(&key, self.slot, now, port).is_err() {
                port.count(StatId::SharedStateErrors, 1);
            }
            for pool in self.pools.values_mut() {
                let purged = pool.purge(&mut |port| members::look(&key, now, port), port);
                port.count(StatId::SharedStateErrors, u64::from(purged.is_err()));
            }
        }
        let mut promoted = Vec::new();
        if let Some(slot) = self.slot {
            for pool in self.pools.values_mut() {
                // An idle pool too: rows that are not true must not stay for ever.
                if pool.waits() || pool.is_stale() || due {
                    promoted.extend(pool.look(slot, port));
                }
            }
        }
        self.gauges(port);
        self.forget_pools();
        self.admit(promoted, now)
    }

    /// Forgets pools that the policy does not know and that have nothing in them any more.
    fn forget_pools(&mut self) {
        let rules = &self.policy.pools;
        self.pools.retain(|id, pool| {
            !pool.is_idle() || pool.is_stale() || rules.iter().any(|rule| rule.id == *id)
        });
    }

    /// Sets the gauges from the shared ledgers: every instance would set the same.
    fn gauges(&self, port: &mut dyn Port) {
        for (index, model) in self.policy.models.iter().enumerate() {
            let mut pools: Vec<usize> = model.pools.clone();
            pools.sort_unstable();
            pools.dedup();
            let pools = pools.iter().filter_map(|at| self.policy.pools.get(*at));
            let found: Vec<_> = pools
                .filter_map(|rule| {
                    let pool = self.pools.get(&rule.id)?;
                    Some((rule, pool.ledger(port).ok().flatten().unwrap_or_default()))
                })
                .collect();
            let sum = |of: &dyn Fn(&config::PoolPolicy, &crate::pool::ledger::Ledger) -> u64| {
                found.iter().fold(0_u64, |sum, (rule, ledger)| sum.saturating_add(of(rule, ledger)))
            };
            port.set(StatId::InFlight(index), sum(&|_, ledger| ledger.in_flight().into()));
            port.set(
                StatId::InFlightLimit(index),
                sum(&|rule, _| rule.limits.max_in_flight.into()),
            );
            for (at, tier) in self.policy.tiers.iter().enumerate() {
                let depth = sum(&|_, ledger| ledger.waiting_of(tier.id).0.into());
                port.set(StatId::QueueDepth(index, at), depth);
                let capacity = sum(&|rule, _| {
                    rule.limits.tier(tier.id).map_or(0, |rule| rule.capacity.into())
                });
                port.set(StatId::QueueCapacity(index, at), capacity);
            }
        }
    }

    /// Envoy holds the body of this request back although it has come: its configuration lacks
    /// `allow_on_headers_stop_iteration`. From now on every request is told so at once.
    pub fn flag_is_missing(
        &mut self,
        stream: StreamId,
        now: Moment,
        port: &mut dyn Port,
    ) -> Option<Refusal> {
        self.flag_missing = true;
        port.set(StatId::FlagMissing, 1);
        let request = self.requests.get_mut(&stream)?;
        let Phase::Reading = request.phase else { return None };
        let refusal = flag_missing();
        request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
        Some(refusal)
    }
}

fn nanos(duration: std::time::Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Reads a body and finds its place. Returns the cost too, in tokens.
fn job(request: &Request, body: &[u8]) -> Result<(Job, u64), Refusal> {
    let policy = &request.policy;
    let mut counter = WordPiece::default();
    let endpoint = request.endpoint.ok_or_else(lost)?;
    let facts = request::read(endpoint, body, &mut counter)
        .map_err(|error| Refusal::invalid(error.status(), error.param(), error.to_string()))?;
    let model = match &facts.model {
        Some(name) => policy.model(name).ok_or_else(|| {
            let message = "the model does not exist or is not served here".to_owned();
            Refusal::new(Outcome::ModelNotFound, 404, "model_not_found", message)
                .param(Some("model"))
        })?,
        None => policy.default_model.ok_or_else(|| {
            let message = "the request names no model, and this gate has no default".to_owned();
            Refusal::invalid(400, Some("model"), message)
        })?,
    };
    let prompt_tokens = counter.tokens().saturating_add(template::overhead(&facts));
    let class = policy.class_of(prompt_tokens);
    let (pool, lane) = policy.place(model, class, request.tier).ok_or_else(lost)?;
    let expected = u64::from(policy.expected_output_tokens)
        .saturating_mul(facts.choices)
        .saturating_mul(facts.prompts.max(1));
    let output = facts.output_cap().map_or(expected, |cap| cap.min(expected));
    let flow = request.caller.map_or(crate::ids::FlowId(0), |caller| caller.flow);
    let job = Job { model, class, prompt_tokens, pool: pool.id, lane, flow };
    Ok((job, prompt_tokens.saturating_add(output)))
}

fn too_large(limit: u32) -> Refusal {
    let message = format!("the request body is larger than {limit} bytes");
    Refusal::new(Outcome::RequestTooLarge, 413, "request_too_large", message)
}

fn flag_missing() -> Refusal {
    let message = "the gate is misconfigured: its Envoy filter needs \
                   allow_on_headers_stop_iteration: true"
        .to_owned();
    Refusal::new(Outcome::GateError, 500, "gate_misconfigured", message)
}

fn store_failed() -> Refusal {
    let message = "the gate's shared state could not be reached".to_owned();
    Refusal::new(Outcome::GateError, 503, "gate_error", message)
}

fn lost() -> Refusal {
    let message = "the gate lost track of this request".to_owned();
    Refusal::new(Outcome::GateError, 503, "gate_error", message)
}
