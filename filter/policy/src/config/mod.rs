//! The policy a user writes, read and checked.
//!
//! [`Policy::from_json`] turns the plugin configuration into values that can only be legal:
//! durations, resolved references, non-zero limits. It reports every fault at once, each with its
//! path, so that a wrong push is repaired in one go; a policy with a fault is refused as a whole
//! and the one before it keeps serving.

mod reader;
mod source;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

pub use reader::Fault;

use crate::ids::{ClassId, FlowId, Lane, PoolId, TierId};
use crate::tokens::Template;

/// Bytes of a request body above which the filter answers 413, where the policy says nothing.
/// A prompt of 128k tokens in English is about 0.6 MB of JSON, in escaped Chinese about 1.2 MB.
pub const DEFAULT_MAX_BODY_BYTES: u32 = 2 * 1024 * 1024;

/// Bytes that one tier's queue may hold, where the policy says nothing.
pub const DEFAULT_QUEUE_BYTES: u32 = 64 * 1024 * 1024;

/// Output tokens reckoned with for a choice where the policy says nothing; a smaller cap of the
/// request counts instead.
pub const DEFAULT_EXPECTED_OUTPUT: u32 = 256;

/// Prompt tokens up to which an exact count always goes on: prompts beyond are few, and their exact
/// length decides nothing. It bounds the time for one, whatever its text.
pub const MIN_COUNT_LIMIT: u64 = 8_192;

/// A legal policy.
#[derive(Debug)]
pub struct Policy {
    /// Models, in the order of the policy.
    pub models: Vec<Model>,
    /// Size classes, smallest first; the last has no bound.
    pub classes: Vec<SizeClass>,
    /// Tiers, in the order of the policy.
    pub tiers: Vec<Tier>,
    /// Who may come in, and with which tier.
    pub keys: Keys,
    /// Pools: one for each model, and one for each size class of a model with a cluster of its own.
    pub pools: Vec<PoolPolicy>,
    /// Index of the model that a request without `model` means.
    pub default_model: Option<usize>,
    /// What happens to paths that are not inference.
    pub other_paths: OtherPaths,
    /// Largest request body, in bytes; above it the answer is 413.
    pub max_body_bytes: u32,
    /// Output tokens reckoned with for a choice; a smaller cap of the request counts instead.
    pub expected_output_tokens: u32,
    /// Prompt tokens above which an exact count ends early and the rest is estimated: one more than
    /// the largest bound of a size class, at least [`MIN_COUNT_LIMIT`].
    pub count_limit: u64,
    /// Status of refusals that come from waiting: 503, or 429 where the policy says so.
    pub queue_status: u16,
    /// The first 48 bits of the SHA-256 of the policy, its fields in order: which policy serves.
    pub digest: u64,
    model_names: HashMap<String, usize>,
}

/// A model the gate knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its name, also in labels.
    pub name: String,
    /// What counts the tokens of its prompts.
    pub tokenizer: Tokenizer,
    /// What its chat template makes of a request.
    pub template: Template,
    /// Index of its pool for each size class.
    pub pools: Vec<usize>,
}

/// What counts the tokens of a model's prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokenizer {
    /// The shape of the words.
    Estimate,
    /// The vocabulary of this name, which is compiled in.
    Vocabulary(String),
}

/// Prompts up to a number of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeClass {
    /// Its name, also in labels.
    pub name: String,
    /// Its identifier.
    pub id: ClassId,
    /// Prompt tokens up to which a request belongs here; `None`: no bound.
    pub max_tokens: Option<u32>,
}

/// A service level.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Its name, also in labels.
    pub name: String,
    /// Its identifier.
    pub id: TierId,
    /// Share of the permits under saturation, relative to the other tiers; at least 1.
    pub weight: u32,
    /// How long a request may wait; zero where the tier has no queue.
    pub max_wait: Duration,
    /// What is promised.
    pub slo: Option<Slo>,
}

/// What a tier promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    /// Share of requests that must keep the promise, between 0 and 1.
    pub objective: f64,
    /// Time from arrival to the end of the answer.
    pub total: Option<Duration>,
    /// Time from arrival to the first token.
    pub first_token: Option<Duration>,
}

/// What happens to a path that is not an inference path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherPaths {
    /// It passes untouched.
    Pass,
    /// It is answered with 404.
    Deny,
}

/// The listed keys, and what holds for all others.
#[derive(Default)]
pub struct Keys {
    /// The tier of requests whose key is not listed; `None`: they are refused.
    pub unknown: Option<usize>,
    /// The listed keys.
    pub entries: Vec<KeyEntry>,
    by_hash: HashMap<[u8; 32], usize>,
}

/// A listed key. Its hash stays inside [`Keys`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// What stands for the key in logs and labels.
    pub id: String,
    /// The flow it shares its tier as.
    pub flow: FlowId,
    /// Index of its tier.
    pub tier: usize,
}

impl Keys {
    /// The entry with this SHA-256, by its index.
    pub fn find(&self, hash: &[u8; 32]) -> Option<usize> {
        self.by_hash.get(hash).copied()
    }
}

/// Hashes are no secrets, but they have no business in an output either.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("unknown", &self.unknown)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

/// One pool: a cluster, its permits and its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPolicy {
    /// Its identifier: the hash of [`PoolPolicy::key`].
    pub id: PoolId,
    /// `MODEL`, or `MODEL/CLASS` for a size class with a cluster of its own.
    pub key: String,
    /// Index of the model.
    pub model: usize,
    /// The Envoy cluster requests go to.
    pub cluster: String,
    /// What may run and wait here.
    pub limits: PoolLimits,
}

/// What may run and wait in one pool. Every limit counts inside the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolLimits {
    /// Permits: requests that run at once, over all workers of the process.
    pub max_in_flight: u32,
    /// One rule for each tier.
    pub tiers: Vec<TierRule>,
    /// One rule for each size class.
    pub classes: Vec<ClassRule>,
}

/// What one tier may do inside a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierRule {
    /// The tier.
    pub id: TierId,
    /// Its weight.
    pub weight: u32,
    /// Permits it may hold at once; `None`: all of them.
    pub max_in_flight: Option<u32>,
    /// Requests that may wait.
    pub capacity: u32,
    /// Bytes of request bodies that may wait.
    pub max_bytes: u64,
}

/// What one size class may do inside a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassRule {
    /// The size class.
    pub id: ClassId,
    /// Permits it may hold at once; `None`: all of them.
    pub max_in_flight: Option<u32>,
}

impl PoolLimits {
    /// The rule of a tier; a tier that a newer policy no longer has is not limited here.
    pub fn tier(&self, id: TierId) -> Option<&TierRule> {
        self.tiers.iter().find(|rule| rule.id == id)
    }

    /// The permits a lane's tier may hold.
    pub(crate) fn tier_permits(&self, id: TierId) -> u32 {
        self.tier(id).and_then(|rule| rule.max_in_flight).unwrap_or(u32::MAX)
    }

    /// The permits a lane's size class may hold.
    pub(crate) fn class_permits(&self, id: ClassId) -> u32 {
        let rule = self.classes.iter().find(|rule| rule.id == id);
        rule.and_then(|rule| rule.max_in_flight).unwrap_or(u32::MAX)
    }
}

impl Policy {
    /// Reads and checks a policy written as JSON.
    ///
    /// # Errors
    /// Every fault of the text at once; never an empty list.
    pub fn from_json(text: &[u8]) -> Result<Self, Vec<Fault>> {
        validate::policy(source::from_json(text)?)
    }

    /// Reads and checks a policy as Envoy hands it over: JSON where the configuration is a
    /// `StringValue`, the bytes of a `google.protobuf.Struct` where it is one.
    ///
    /// # Errors
    /// Every fault at once; never an empty list.
    pub fn from_configuration(bytes: &[u8]) -> Result<Self, Vec<Fault>> {
        validate::policy(source::from_configuration(bytes)?)
    }

    /// The model with this name or alias.
    pub fn model(&self, name: &str) -> Option<usize> {
        self.model_names.get(name).copied()
    }

    /// The size class of a prompt: the first whose bound it keeps.
    pub fn class_of(&self, prompt_tokens: u64) -> usize {
        let fits = |class: &SizeClass| {
            class.max_tokens.is_none_or(|bound| prompt_tokens <= u64::from(bound))
        };
        let last = self.classes.len().saturating_sub(1);
        self.classes.iter().position(fits).unwrap_or(last)
    }

    /// The pool of a model for a size class, and the lane in it.
    pub fn place(&self, model: usize, class: usize, tier: usize) -> Option<(&PoolPolicy, Lane)> {
        let pool = *self.models.get(model)?.pools.get(class)?;
        let lane = Lane { tier: self.tiers.get(tier)?.id, class: self.classes.get(class)?.id };
        Some((self.pools.get(pool)?, lane))
    }
}
