//! A request and the quota of its key: taken before anything else, given back or settled on every
//! road out.

use std::rc::Rc;

use super::request_state::Request;
use super::{Engine, members_key};
use crate::ids::{FlowId, Nanos, SlotId};
use crate::members;
use crate::outcome::Outcome;
use crate::port::{Port, StoreError};
use crate::quota::{Ask, Broken, KeyLimits, Standing};
use crate::refusal::Refusal;
use crate::stats::{QuotaLimit, StatId, UNKNOWN};

/// How a request left the gate, as far as its quota is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bill {
    /// It came to nothing here: not even the request counts.
    Nothing,
    /// It cost these tokens.
    Tokens(u64),
}

impl Engine {
    /// Makes the shared values of all quotas. They are made with the clock's zero: a full bucket
    /// is full whenever it was.
    pub(super) fn create_quotas(&mut self, port: &mut dyn Port) {
        let made = self.quotas.create(self.policy.keys.quotas(), 0, port);
        port.count(StatId::SharedStateErrors, u64::from(made.is_err()));
    }

    /// Takes one request and these tokens from the quota of a request's key.
    pub(super) fn reserve(
        &mut self,
        request: &mut Request,
        slot: SlotId,
        tokens: u64,
        now: Nanos,
        port: &mut dyn Port,
    ) -> Result<(), Refusal> {
        let Some(caller) = request.caller else { return Ok(()) };
        let Some((owner, limits)) = request.policy.keys.quota(caller.entry) else { return Ok(()) };
        // A push while the body came: what counts is what serves now.
        let limits = self.limits_now(request, owner).unwrap_or(limits);
        if limits.is_none() {
            return Ok(());
        }
        let prefix = &self.prefix;
        let mut members = |port: &mut dyn Port| members::look(&members_key(prefix), now, port);
        let ask = Ask { owner, limits, slot, tokens, now };
        let (decided, standing) =
            self.quotas.reserve(ask, &mut members, port).map_err(|error| failed(error, port))?;
        match decided {
            Ok(reservation) => {
                request.reservation = Some(reservation);
                request.standing = standing;
                Ok(())
            }
            Err(broken) => {
                let (refusal, limit) = refusal(broken, standing);
                port.count(StatId::QuotaRefusals(self.key_label(request), limit), 1);
                Err(refusal)
            }
        }
    }

    /// Ends what a request holds of its key's quota; once it holds nothing, nothing happens.
    pub(super) fn bill(
        &mut self,
        request: &mut Request,
        bill: Bill,
        now: Nanos,
        port: &mut dyn Port,
    ) {
        let (Some(mut reservation), Some(slot)) = (request.reservation.take(), self.slot) else {
            return;
        };
        if let Some(limits) = self.limits_now(request, reservation.owner) {
            reservation.limits = limits.shared_with(&reservation.limits);
        }
        let done = match bill {
            Bill::Nothing => self.quotas.give_back(reservation, slot, now, port),
            Bill::Tokens(cost) => self.quotas.settle(reservation, cost, slot, now, port),
        };
        port.count(StatId::SharedStateErrors, u64::from(done.is_err()));
    }

    /// An owner's limits in the policy that serves, where that is not the request's own.
    fn limits_now(&self, request: &Request, owner: FlowId) -> Option<KeyLimits> {
        if Rc::ptr_eq(&request.policy, &self.policy) {
            return None;
        }
        self.policy.keys.quotas().find(|(other, _)| *other == owner).map(|(_, limits)| limits)
    }

    /// The index of a request's key in the policy that serves now, by its id.
    fn key_label(&self, request: &Request) -> usize {
        let at = request.caller.and_then(|caller| caller.entry);
        let entry = at.and_then(|at| request.policy.keys.entries.get(at));
        let same = |found: &&crate::config::KeyEntry| {
            let at = at.unwrap_or(UNKNOWN);
            self.policy.keys.entries.get(at).is_some_and(|entry| entry.id == found.id)
        };
        match entry {
            None => UNKNOWN,
            // A push seldom changes the order of the keys.
            Some(entry) if same(&entry) => at.unwrap_or(UNKNOWN),
            Some(entry) => {
                let entries = &self.policy.keys.entries;
                entries.iter().position(|other| other.id == entry.id).unwrap_or(UNKNOWN)
            }
        }
    }
}

fn failed(_: StoreError, port: &mut dyn Port) -> Refusal {
    port.count(StatId::SharedStateErrors, 1);
    super::entry::store_failed()
}

fn refusal(broken: Broken, standing: Standing) -> (Refusal, QuotaLimit) {
    let (mut refusal, limit) = match broken {
        Broken::Requests { after } => {
            let message = "the key has used up its requests per second".to_owned();
            let outcome = Outcome::RateLimit;
            let refusal = Refusal::new(outcome, 429, "rate_limit_exceeded", message);
            (refusal.retry_when(after), QuotaLimit::Requests)
        }
        Broken::Tokens { after } => {
            let message = if after.is_some() {
                "the key has used up its tokens per minute"
            } else {
                "the request may cost more tokens than the key has in a whole minute; shorten the \
                 prompt or lower max_tokens"
            };
            let (outcome, message) = (Outcome::TokenLimit, message.to_owned());
            let refusal = Refusal::new(outcome, 429, "token_limit_exceeded", message);
            let refusal = match after {
                Some(after) => refusal.retry_when(after),
                // Coming back would be in vain; this stops OpenAI's clients from trying.
                None => refusal.header("x-should-retry", "false".to_owned()),
            };
            (refusal, QuotaLimit::Tokens)
        }
        Broken::InFlight => {
            let message = "the key has as many requests at once as it may have".to_owned();
            let outcome = Outcome::ConcurrencyLimit;
            let refusal = Refusal::new(outcome, 429, "concurrency_limit_exceeded", message);
            (refusal, QuotaLimit::Concurrency)
        }
    };
    refusal.headers.extend(standing.headers());
    (refusal, limit)
}
