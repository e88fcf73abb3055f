//! Every stat of the filter, in one list.
//!
//! A stat's full name carries its labels, labels first, in the form that Istio's bootstrap takes
//! apart by itself: `model=.=m;.;tier=.=t;.;slogate_requests`. Label values come from the policy
//! or from closed lists alone, never from a client, so the number of names is bounded by the
//! policy.

use crate::config::Policy;
use crate::outcome::Outcome;
use crate::tokens::kind::Kind;

/// What a stat is to Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatKind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution of whole numbers.
    Histogram,
}

/// Index into a policy's models; [`UNKNOWN`] where the request names none.
pub type ModelIndex = usize;
/// Stands for a model, a tier or a key that is not known, in labels `unknown`.
pub const UNKNOWN: usize = usize::MAX;

/// What was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Objective {
    /// Time to the end of the answer.
    Total,
    /// Time to the first token.
    FirstToken,
}

/// What part of the execution a time covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecPhase {
    /// To the first token.
    FirstToken,
    /// To the end of the answer.
    EndToEnd,
}

/// Which limit of a key's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaLimit {
    /// Requests over time.
    Requests,
    /// Tokens over time.
    Tokens,
    /// Requests at once.
    Concurrency,
}

/// One stat with its labels; numbers are indexes into the policy's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatId {
    /// Requests, by how they ended.
    Requests(ModelIndex, usize, Outcome),
    /// Time in the gate's queue, in ms.
    QueueLatency(ModelIndex, usize),
    /// Time with the engine, in ms.
    InferenceLatency(ModelIndex, usize, ExecPhase),
    /// Requests that wait.
    QueueDepth(ModelIndex, usize),
    /// Requests that may wait.
    QueueCapacity(ModelIndex, usize),
    /// Permits in use.
    InFlight(ModelIndex),
    /// Permits there are.
    InFlightLimit(ModelIndex),
    /// Requests answered within the objective.
    SloGood(usize, Objective),
    /// Requests that the objective is about.
    SloTotal(usize, Objective),
    /// Prompt tokens.
    PromptTokens(ModelIndex),
    /// Requests refused because of a key's quota.
    QuotaRefusals(usize, QuotaLimit),
    /// The engine's count of prompt tokens over the one given out, steadied, in thousandths.
    TokenRatio(ModelIndex),
    /// What the estimate is multiplied by for a kind of text, in thousandths.
    TokenFactor(ModelIndex, Kind),
    /// 1: which version serves.
    BuildInfo,
    /// The first 48 bits of the SHA-256 of the policy that serves.
    PolicyDigest,
    /// 1: `allow_on_headers_stop_iteration` is missing from Envoy's configuration.
    FlagMissing,
    /// The shared store failed or held foreign bytes.
    SharedStateErrors,
}

/// A stat as it is documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatSpec {
    /// The name that Prometheus shows.
    pub name: &'static str,
    /// What it is.
    pub kind: StatKind,
    /// The names of its labels, in order.
    pub labels: &'static [&'static str],
}

macro_rules! specs {
    ($($pattern:pat => $name:literal $kind:ident $labels:expr;)*) => {
        /// All stats there are.
        pub const STATS: &[StatSpec] =
            &[$(StatSpec { name: $name, kind: StatKind::$kind, labels: &$labels }),*];

        impl StatId {
            /// The description of this stat.
            pub fn spec(self) -> StatSpec {
                match self {
                    $($pattern => StatSpec { name: $name, kind: StatKind::$kind, labels: &$labels },)*
                }
            }
        }
    };
}

specs! {
    Self::Requests(..) => "slogate_requests" Counter ["model", "tier", "outcome"];
    Self::QueueLatency(..) => "slogate_queue_latency_ms" Histogram ["model", "context"];
    Self::InferenceLatency(..) =>
        "slogate_inference_latency_ms" Histogram ["model", "context", "phase"];
    Self::QueueDepth(..) => "slogate_queue_depth" Gauge ["model", "tier"];
    Self::QueueCapacity(..) => "slogate_queue_capacity" Gauge ["model", "tier"];
    Self::InFlight(..) => "slogate_in_flight" Gauge ["model"];
    Self::InFlightLimit(..) => "slogate_in_flight_limit" Gauge ["model"];
    Self::SloGood(..) => "slogate_slo_good" Counter ["tier", "objective"];
    Self::SloTotal(..) => "slogate_slo_total" Counter ["tier", "objective"];
    Self::PromptTokens(..) => "slogate_prompt_tokens" Histogram ["model"];
    Self::QuotaRefusals(..) => "slogate_quota_refusals" Counter ["key", "limit"];
    Self::TokenRatio(..) => "slogate_token_ratio_permille" Gauge ["model"];
    Self::TokenFactor(..) => "slogate_token_factor_permille" Gauge ["model", "kind"];
    Self::BuildInfo => "slogate_build_info" Gauge ["version", "git"];
    Self::PolicyDigest => "slogate_policy_digest" Gauge [];
    Self::FlagMissing => "slogate_flag_missing" Gauge [];
    Self::SharedStateErrors => "slogate_shared_state_errors" Counter [];
}

/// What names the build: label values of `slogate_build_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Build {
    /// Version of the module.
    pub version: &'static str,
    /// Hash of the commit it was built from, or `unknown`.
    pub git: &'static str,
}

impl StatId {
    /// The full name, labels first.
    pub fn name(self, policy: &Policy, build: Build) -> String {
        let mut name = String::new();
        let spec = self.spec();
        for (label, value) in spec.labels.iter().zip(self.values(policy, build)) {
            name.push_str(label);
            name.push_str("=.=");
            name.push_str(value);
            name.push_str(";.;");
        }
        name.push_str(spec.name);
        name
    }

    fn values(self, policy: &Policy, build: Build) -> Vec<&str> {
        let model = |at: usize| policy.models.get(at).map_or("unknown", |m| m.name.as_str());
        let tier = |at: usize| policy.tiers.get(at).map_or("unknown", |t| t.name.as_str());
        let class = |at: usize| policy.classes.get(at).map_or("unknown", |c| c.name.as_str());
        let key = |at: usize| policy.keys.entries.get(at).map_or("unknown", |k| k.id.as_str());
        let objective = |objective| match objective {
            Objective::Total => "total",
            Objective::FirstToken => "first_token",
        };
        match self {
            Self::Requests(m, t, outcome) => vec![model(m), tier(t), outcome.label()],
            Self::QueueLatency(m, c) => vec![model(m), class(c)],
            Self::InferenceLatency(m, c, phase) => {
                let phase = match phase {
                    ExecPhase::FirstToken => "first_token",
                    ExecPhase::EndToEnd => "end_to_end",
                };
                vec![model(m), class(c), phase]
            }
            Self::QueueDepth(m, t) | Self::QueueCapacity(m, t) => vec![model(m), tier(t)],
            Self::InFlight(m)
            | Self::InFlightLimit(m)
            | Self::PromptTokens(m)
            | Self::TokenRatio(m) => vec![model(m)],
            Self::TokenFactor(m, kind) => vec![model(m), kind.label()],
            Self::SloGood(t, of) | Self::SloTotal(t, of) => vec![tier(t), objective(of)],
            Self::QuotaRefusals(k, limit) => {
                let limit = match limit {
                    QuotaLimit::Requests => "requests",
                    QuotaLimit::Tokens => "tokens",
                    QuotaLimit::Concurrency => "concurrency",
                };
                vec![key(k), limit]
            }
            Self::BuildInfo => vec![build.version, build.git],
            Self::PolicyDigest | Self::FlagMissing | Self::SharedStateErrors => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn no_label_ends_in_another_because_istios_patterns_are_not_anchored() {
        let labels: Vec<_> = STATS.iter().flat_map(|spec| spec.labels).collect();
        for label in &labels {
            for other in &labels {
                assert!(label == other || !label.ends_with(*other), "{label} ends in {other}");
            }
        }
    }

    #[test]
    fn a_name_carries_its_labels_first() {
        let text = br#"{"models": [{"name": "m", "cluster": "c", "max_in_flight": 1}],
                        "tiers": [{"name": "t"}]}"#;
        let policy = Policy::from_json(text).expect("legal");
        let build = Build { version: "1", git: "abc" };
        let name = |id: StatId| id.name(&policy, build);
        assert_eq!(
            name(StatId::Requests(0, UNKNOWN, Outcome::Ok)),
            "model=.=m;.;tier=.=unknown;.;outcome=.=ok;.;slogate_requests"
        );
        assert_eq!(name(StatId::BuildInfo), "version=.=1;.;git=.=abc;.;slogate_build_info");
    }
}
