//! Who asks: from the key in a request to an entry of the policy.
//!
//! Only the SHA-256 of a key is compared and kept; the key itself is never stored, and nothing
//! here can print one.

use sha2::{Digest, Sha256};

use crate::config::Keys;
use crate::ids::FlowId;

/// Flows that keys which are not listed are spread over: enough that two of them rarely share one,
/// few enough that strangers cannot fill the shared account.
const UNKNOWN_FLOWS: u8 = 64;

/// Who a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Index of the key's entry; `None` where it is not listed.
    pub entry: Option<usize>,
    /// Index of the tier.
    pub tier: usize,
    /// The flow it shares the tier as.
    pub flow: FlowId,
}

/// The SHA-256 of a key.
pub fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Finds out who asks. `None`: the policy refuses keys that are not listed, and this one is not.
pub fn identify(keys: &Keys, key: Option<&[u8]>) -> Option<Caller> {
    let Some(key) = key else {
        return keys.unknown.map(|tier| Caller { entry: None, tier, flow: FlowId::of("") });
    };
    let hash = hash(key);
    if let Some(index) = keys.find(&hash) {
        let entry = keys.entries.get(index)?;
        return Some(Caller { entry: Some(index), tier: entry.tier, flow: entry.flow });
    }
    let bucket = hash.first().copied().unwrap_or(0) % UNKNOWN_FLOWS;
    // A listed key whose id hashes to such a small number would share its flow: harmless.
    keys.unknown.map(|tier| Caller { entry: None, tier, flow: FlowId(u32::from(bucket)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn keys(unknown: &str) -> Keys {
        let text = format!(
            r#"{{"models": [{{"name": "m", "cluster": "c", "max_in_flight": 1}}],
                "tiers": [{{"name": "a"}}, {{"name": "b"}}],
                "keys": {{"unknown": {unknown}, "entries": [{{"id": "shop", "tier": "a", "sha256":
                "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}}]}}}}"#
        );
        Policy::from_json(text.as_bytes()).expect("legal").keys
    }

    #[test]
    fn a_listed_key_has_the_tier_and_flow_of_its_entry() {
        let caller = identify(&keys(r#"{"tier": "b"}"#), Some(b"secret")).expect("listed");
        assert_eq!((caller.entry, caller.tier, caller.flow), (Some(0), 0, FlowId::of("shop")));
    }

    #[test]
    fn a_key_that_is_not_listed_is_unknown_or_refused() {
        let caller = identify(&keys(r#"{"tier": "b"}"#), Some(b"guess")).expect("allowed");
        assert_eq!((caller.entry, caller.tier), (None, 1));
        assert_eq!(identify(&keys(r#"{"reject": true}"#), Some(b"guess")), None);
        assert_eq!(identify(&keys(r#"{"reject": true}"#), None), None);
    }

    #[test]
    fn nothing_prints_a_hash() {
        let shown = format!("{:?}", keys(r#"{"tier": "b"}"#));
        assert!(!shown.contains("2bb8") && !shown.contains("43, 184"), "{shown}");
    }
}
