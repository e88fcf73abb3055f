//! What a client is told about its quota.
//!
//! Two families of headers: the `x-ratelimit-*` that `OpenAI`'s own clients know, and the fields of
//! the IETF draft `draft-ietf-httpapi-ratelimit-headers-11`. The figures are those of the moment the
//! request was admitted or refused: its own reservation is taken off already.

use std::fmt::Write as _;

use super::{Left, Standing};
use crate::ids::{MILLI, Nanos};

const SECOND: Nanos = 1_000 * MILLI;

impl Standing {
    /// Headers for an answer or a refusal; none where nothing is limited.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::with_capacity(8);
        if let Some(left) = &self.requests {
            headers.push(("x-ratelimit-limit-requests", left.limit.to_string()));
            headers.push(("x-ratelimit-remaining-requests", left.remaining.to_string()));
            headers.push(("x-ratelimit-reset-requests", spoken(left.full_after)));
        }
        if let Some(left) = &self.tokens {
            headers.push(("x-ratelimit-limit-tokens", left.limit.to_string()));
            headers.push(("x-ratelimit-remaining-tokens", left.remaining.to_string()));
            headers.push(("x-ratelimit-reset-tokens", spoken(left.full_after)));
        }
        if headers.is_empty() {
            return headers;
        }
        let (mut policy, mut state) = (String::new(), String::new());
        for (name, unit, left) in [
            ("requests", "", &self.requests),
            // The draft's registry has no unit for tokens, and without one requests are meant.
            ("tokens", ";qu=\"tokens\"", &self.tokens),
        ] {
            let Some(Left { limit, remaining, full_after, window }) = left else { continue };
            let comma = if policy.is_empty() { "" } else { ", " };
            let (window, after) = (window.div_ceil(SECOND), full_after.div_ceil(SECOND));
            let _ = write!(policy, "{comma}\"{name}\";q={limit};w={window}{unit}");
            let _ = write!(state, "{comma}\"{name}\";r={remaining};t={after}");
        }
        headers.push(("ratelimit-policy", policy));
        headers.push(("ratelimit", state));
        headers
    }
}

/// A duration the way `OpenAI` writes it: `120ms`, `7s`, `6m0s`. Rounded up.
fn spoken(time: Nanos) -> String {
    if time < SECOND {
        return format!("{}ms", time.div_ceil(MILLI));
    }
    let seconds = time.div_ceil(SECOND);
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{}s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn both_families_say_the_same() {
        let requests = Left { limit: 10, remaining: 9, full_after: 100 * MILLI, window: SECOND };
        let tokens =
            Left { limit: 60_000, remaining: 0, full_after: 90 * SECOND, window: 60 * SECOND };
        let standing = Standing { requests: Some(requests), tokens: Some(tokens) };
        let headers = standing.headers();
        let header = |name| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!(header("x-ratelimit-remaining-requests"), Some("9"));
        assert_eq!(header("x-ratelimit-reset-requests"), Some("100ms"));
        assert_eq!(header("x-ratelimit-reset-tokens"), Some("1m30s"));
        let policy = "\"requests\";q=10;w=1, \"tokens\";q=60000;w=60;qu=\"tokens\"";
        assert_eq!(header("ratelimit-policy"), Some(policy));
        assert_eq!(header("ratelimit"), Some("\"requests\";r=9;t=1, \"tokens\";r=0;t=90"));
    }

    #[test]
    fn who_is_not_limited_is_told_nothing() {
        assert!(Standing::default().headers().is_empty());
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(spoken(1), "1ms");
        assert_eq!(spoken(999_999_999), "1000ms");
        assert_eq!(spoken(SECOND + 1), "2s");
        assert_eq!(spoken(360 * SECOND), "6m0s");
    }
}
