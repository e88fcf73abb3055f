//! A request comes in: its head, its body, and what is decided about it.

use std::rc::Rc;

use super::key_quota::Bill;
use super::request_state::{Answer, Job, Labels, Phase, Request};
use super::{Action, Begin, Engine, Head, Verdict};
use crate::calibration::Estimate;
use crate::config::{OtherPaths, Policy, Tokenizer};
use crate::ids::{MILLI, Nanos, SlotId, StreamId};
use crate::outcome::Outcome;
use crate::pool::Change;
use crate::pool::turn::{Arrival, Arrived};
use crate::port::Port;
use crate::quota::Standing;
use crate::refusal::Refusal;
use crate::request::{self, Endpoint, PathMatch, Read};
use crate::stats::{StatId, UNKNOWN};
use crate::timing::{Moment, millis, nanos, whole_millis};
use crate::tokens::kind::Sampler;
use crate::tokens::{ExactCounter, WordPiece};
use crate::{keys, members};

impl Engine {
    /// Takes a request's head. The clock is read only where the request ends here.
    pub fn begin(
        &mut self,
        stream: StreamId,
        head: &Head<'_>,
        clock: impl FnOnce() -> Moment,
    ) -> Begin {
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
            id: id.into(),
            arrived: None,
            job: None,
            reservation: None,
            standing: Standing::default(),
            phase: Phase::Reading,
            policy,
        };
        let refusal = refusal.or_else(|| self.head_refusal(&mut request, head));
        if let Some(refusal) = &refusal {
            request.phase = Phase::Over { outcome: refusal.outcome, at: clock().mono };
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
        if head.overrides_model {
            let message = "the model is named in the body, not in a header".to_owned();
            return Some(Refusal::invalid(400, Some("model"), message));
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
    pub fn body_grows(
        &mut self,
        stream: StreamId,
        bytes: usize,
        clock: impl FnOnce() -> Moment,
    ) -> Option<Refusal> {
        let limit = self.policy.max_body_bytes;
        if usize::try_from(limit).is_ok_and(|limit| bytes <= limit) {
            return None;
        }
        let request = self.requests.get_mut(&stream)?;
        let Phase::Reading = request.phase else { return None };
        let refusal = too_large(limit);
        request.phase = Phase::Over { outcome: refusal.outcome, at: clock().mono };
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
        request.arrived = Some(now);
        let (verdict, promoted) = match self.decide_new(stream, &mut request, body, now, port) {
            Ok((verdict, promoted)) => (verdict, promoted),
            Err(refusal) => {
                request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
                (Verdict::Refuse(refusal), Vec::new())
            }
        };
        if matches!(request.phase, Phase::Over { .. }) {
            self.bill(&mut request, Bill::Nothing, now.mono, port);
        }
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
        let (job, cost) = self.job(request, body)?;
        let slot = self.joined(now.mono, port)?;
        let model = self.labels(request, Some(&job)).model;
        port.record(StatId::PromptTokens(model), job.prompt_tokens());
        request.job = Some(job.clone());
        self.reserve(request, slot, cost, now.mono, port)?;
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

    /// Reads a body and finds its place. Returns the cost too, in tokens.
    fn job(&mut self, request: &Request, body: &[u8]) -> Result<(Job, u64), Refusal> {
        let policy = &request.policy;
        let endpoint = request.endpoint.ok_or_else(lost)?;
        let read = request::read(endpoint, body)
            .map_err(|error| Refusal::invalid(error.status(), error.param(), error.to_string()))?;
        let facts = &read.facts;
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
        let entry = request.caller.and_then(|caller| caller.entry);
        if !policy.keys.may_use(entry, model) {
            let message = "the key may not ask for this model".to_owned();
            let refusal = Refusal::new(Outcome::ModelForbidden, 403, "model_forbidden", message);
            return Err(refusal.param(Some("model")));
        }
        let estimate = self.count(policy, model, &read);
        let prompt_tokens = estimate.given;
        // These two endpoints report it without being asked.
        let usage_asked =
            facts.include_usage || matches!(endpoint, Endpoint::Responses | Endpoint::Messages);
        let class = policy.class_of(prompt_tokens);
        let (pool, lane) = policy.place(model, class, request.tier).ok_or_else(lost)?;
        let expected = u64::from(policy.expected_output_tokens)
            .saturating_mul(facts.choices)
            .saturating_mul(facts.prompts.max(1));
        let output_cap = facts.output_cap();
        let output = output_cap.map_or(expected, |cap| cap.min(expected));
        let flow = request.caller.map_or(crate::ids::FlowId(0), |caller| caller.flow);
        let pool = pool.id;
        let job = Job { model, class, output_cap, estimate, usage_asked, pool, lane, flow };
        Ok((job, prompt_tokens.saturating_add(output)))
    }

    /// Counts a prompt with the model's own tokenizer, or estimates it.
    fn count(&mut self, policy: &Policy, model: usize, read: &Read<'_>) -> Estimate {
        let Some(model) = policy.models.get(model) else { return Estimate::default() };
        let vocabulary = match &model.tokenizer {
            Tokenizer::Vocabulary(name) => self.vocabularies.get(name),
            Tokenizer::Estimate => None,
        };
        let (count, mix) = if let Some(vocabulary) = vocabulary {
            let limit = policy.count_limit;
            let mut counter = ExactCounter::new(&vocabulary, &mut self.memo, limit);
            (model.template.count(read, &mut counter), None)
        } else {
            let mut counter = WordPiece::default();
            let mut sampler = Sampler::new(&mut counter);
            (model.template.count(read, &mut sampler), Some(sampler.mix()))
        };
        let mut estimate = Estimate {
            own: mix.is_none(),
            mix: mix.unwrap_or_default(),
            text: count.text,
            fixed: count.fixed,
            exact: count.exact,
            priced: count.unsure || read.facts.images > 0 || read.facts.audio > 0,
            given: 0,
        };
        self.calibrations.apply(&model.name, &mut estimate);
        estimate
    }

    /// A request's labels under the policy that serves now. Stats are named by that one, and a
    /// push may have moved, added or removed names since the request came.
    pub(super) fn labels(&self, request: &Request, job: Option<&Job>) -> Labels {
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

    pub(super) fn queue_refusal(
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
    /// Envoy holds the body of this request back although it has come: its configuration lacks
    /// `allow_on_headers_stop_iteration`. From now on every request is told so at once.
    pub fn flag_is_missing(
        &mut self,
        stream: StreamId,
        now: Moment,
        port: &mut dyn Port,
    ) -> Option<Refusal> {
        let request = self.requests.get_mut(&stream)?;
        let Phase::Reading = request.phase else { return None };
        self.flag_missing = true;
        port.set(StatId::FlagMissing, 1);
        let refusal = flag_missing();
        request.phase = Phase::Over { outcome: refusal.outcome, at: now.mono };
        Some(refusal)
    }
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

pub(super) fn store_failed() -> Refusal {
    let message = "the gate's shared state could not be reached".to_owned();
    Refusal::new(Outcome::GateError, 503, "gate_error", message)
}

fn lost() -> Refusal {
    let message = "the gate lost track of this request".to_owned();
    Refusal::new(Outcome::GateError, 503, "gate_error", message)
}
