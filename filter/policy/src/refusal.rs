//! What a client is told when its request is not let through.

use serde_json::json;

use crate::ids::{MILLI, Nanos};
use crate::outcome::Outcome;

/// Shortest and longest `retry-after`, in milliseconds: clients that come back at once only add to
/// the load, and an estimate of more than a minute is no longer one.
const RETRY_AFTER_MS: (u64, u64) = (100, 60_000);

/// A refusal, complete but for the host's part in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// How the request ended.
    pub outcome: Outcome,
    /// HTTP status.
    pub status: u16,
    /// The machine-readable reason: `error.code`, and the header `x-slogate-reason`.
    pub code: &'static str,
    /// `error.type`, in OpenAI's vocabulary.
    pub kind: &'static str,
    /// The field of the request at fault.
    pub param: Option<&'static str>,
    /// A sentence for people; it never quotes the request.
    pub message: String,
    /// When to come back, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// More headers, such as the tier and the time spent waiting.
    pub headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// A fault of the request itself.
    pub fn invalid(status: u16, param: Option<&'static str>, message: String) -> Self {
        Self::new(Outcome::InvalidRequest, status, "invalid_request_error", message).param(param)
    }

    /// A refusal with this outcome and code.
    pub fn new(outcome: Outcome, status: u16, code: &'static str, message: String) -> Self {
        let kind = match status {
            401 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "service_unavailable_error",
            _ => "invalid_request_error",
        };
        let (param, retry_after_ms, headers) = (None, None, Vec::new());
        Self { outcome, status, code, kind, param, message, retry_after_ms, headers }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn param(mut self, param: Option<&'static str>) -> Self {
        self.param = param;
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, after: Nanos) -> Self {
        let (low, high) = RETRY_AFTER_MS;
        self.retry_after_ms = Some((after / MILLI).clamp(low, high));
        self
    }

    /// Says when to come back, to the millisecond: earlier would be in vain, later is a waste.
    #[must_use]
    pub fn retry_when(mut self, after: Nanos) -> Self {
        self.retry_after_ms = Some(after.div_ceil(MILLI).max(1));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// All headers of the answer.
    pub fn all_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("x-slogate-reason", self.code.to_owned()),
        ];
        if let Some(millis) = self.retry_after_ms {
            // Whole seconds, rounded up: coming early would be in vain.
            headers.push(("retry-after", millis.div_ceil(1_000).to_string()));
            headers.push(("retry-after-ms", millis.to_string()));
        }
        headers.extend(self.headers.iter().cloned());
        headers
    }

    /// The body of the answer, in OpenAI's shape, with the request's id.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        let error = json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        });
        json!({"error": error, "request_id": request_id}).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_refusal_has_openais_shape_and_escapes_what_it_says() {
        let refusal = Refusal::invalid(400, Some("model"), "a \"quoted\" word".to_owned());
        let body: serde_json::Value =
            serde_json::from_slice(&refusal.body("id-\"1\"")).expect("JSON");
        assert_eq!(body["error"]["message"], "a \"quoted\" word");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["param"], "model");
        assert_eq!(body["request_id"], "id-\"1\"");
    }

    #[test]
    fn retry_after_is_never_earlier_in_seconds_than_in_milliseconds() {
        let after = |nanos| {
            let refusal = Refusal::new(Outcome::QueueFull, 503, "queue_full", String::new());
            let headers = refusal.retry_after(nanos).all_headers();
            let find = |name| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            (find("retry-after").expect("there"), find("retry-after-ms").expect("there"))
        };
        assert_eq!(after(1_001 * MILLI), ("2".to_owned(), "1001".to_owned()));
        assert_eq!(after(0), ("1".to_owned(), "100".to_owned()));
        assert_eq!(after(u64::MAX), ("60".to_owned(), "60000".to_owned()));
    }
}
