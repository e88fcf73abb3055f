//! The engine: what is decided about a request, from its first header to its last byte.
//!
//! Each call takes what the host saw and returns what is to be done; the host's adapter does it
//! and decides nothing. A request ends in exactly one [`Outcome`](crate::outcome::Outcome).

mod answer;
mod entry;
mod key_quota;
mod request_state;
mod upkeep;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::calibration::Calibrations;
use crate::config::{Policy, Tokenizer};
use crate::ids::{Nanos, PoolId, SlotId, StreamId};
use crate::members;
use crate::pool::Pool;
use crate::port::Port;
use crate::quota::Quotas;
use crate::refusal::Refusal;
use crate::stats::StatId;
use crate::tokens::{Memo, Vocabularies};

pub use answer::{Ending, LOG_FIELDS, Stamp, Watch};
use request_state::Request;

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
    /// Whether a header is there with which some engines replace the model of the body.
    pub overrides_model: bool,
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
    policy: Rc<Policy>,
    pools: FxHashMap<PoolId, Pool>,
    quotas: Quotas,
    requests: FxHashMap<StreamId, Request>,
    deadlines: BTreeSet<(Nanos, StreamId)>,
    calibrations: Calibrations,
    slot: Option<SlotId>,
    beat: Nanos,
    refreshed: Nanos,
    /// Envoy holds bodies back: every held request would hang.
    flag_missing: bool,
    vocabularies: Vocabularies,
    /// Pieces counted a moment ago.
    memo: Memo,
}

impl Engine {
    /// An engine with this policy. `prefix` names its values in the shared store: two gates with
    /// one prefix are one gate. The vocabularies that policies name are made ready in `vocabularies`.
    pub fn new(
        prefix: &str,
        policy: Rc<Policy>,
        vocabularies: Vocabularies,
        port: &mut dyn Port,
    ) -> Self {
        let mut engine = Self {
            prefix: prefix.to_owned(),
            policy: Rc::clone(&policy),
            pools: FxHashMap::default(),
            quotas: Quotas::new(prefix),
            requests: FxHashMap::default(),
            deadlines: BTreeSet::new(),
            calibrations: Calibrations::default(),
            slot: None,
            beat: 0,
            refreshed: 0,
            flag_missing: false,
            vocabularies,
            memo: Memo::default(),
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
        for model in &policy.models {
            if let Tokenizer::Vocabulary(name) = &model.tokenizer {
                self.vocabularies.prepare(name);
            }
        }
        self.calibrations.adopt(&self.prefix, &policy, port);
        self.policy = policy;
        self.create_quotas(port);
        self.forget_pools();
        self.flag_missing = false;
        // The next tick looks at every queue under the new limits.
        self.refreshed = 0;
        port.set(StatId::BuildInfo, 1);
        port.set(StatId::PolicyDigest, self.policy.digest);
        port.set(StatId::FlagMissing, 0);
    }

    /// Requests this instance has in hand.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    fn members_key(&self) -> String {
        members_key(&self.prefix)
    }
}

/// The name of the value that says which instances live.
fn members_key(prefix: &str) -> String {
    format!("{prefix}members")
}
