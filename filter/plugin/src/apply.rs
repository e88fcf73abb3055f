//! The only place that lets a request through or answers it.

use slogate_policy::engine::{Action, Verdict};
use slogate_policy::refusal::Refusal;

use crate::host::{self, HeaderMap};

/// The header that Envoy's `cluster_header` route reads.
pub(crate) const CLUSTER_HEADER: &str = "x-slogate-cluster";

/// Points the current request at a cluster. The caller lets it continue.
pub(crate) fn admit(cluster: &str) {
    if let Err(status) = host::replace_header(HeaderMap::Request, CLUSTER_HEADER, cluster) {
        log::error!("the cluster header could not be set: {status:?}");
    }
}

/// Adds headers to the current answer. The engine's own copies of ours go; `server-timing` may be
/// there more than once. One call each costs less than one call that sets the whole map anew.
pub(crate) fn stamp(headers: &[(&'static str, String)]) {
    for (name, value) in headers {
        let set = if *name == "server-timing" { host::add_header } else { host::replace_header };
        if let Err(status) = set(HeaderMap::Response, name, value) {
            log::error!("the header {name} could not be set: {status:?}");
        }
    }
}

/// Answers the current request.
pub(crate) fn refuse(refusal: &Refusal, request_id: &str) {
    let headers = refusal.all_headers();
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let details = format!("slogate_{}", refusal.code);
    let body = refusal.body(request_id);
    if let Err(status) = host::send_local_response(refusal.status, &details, &headers, &body) {
        log::error!("a refusal could not be sent: {status:?}");
    }
}

/// Carries out what was decided about held requests, in order, and returns to the context whose
/// callback runs.
pub(crate) fn all(actions: &[Action], current: u32) {
    if actions.is_empty() {
        return;
    }
    for Action { stream, verdict } in actions {
        // A stream that is gone answers with an error here; its end gives back what it held.
        if host::set_effective_context(stream.0).is_err() {
            continue;
        }
        match verdict {
            Verdict::Admit(cluster) => {
                admit(cluster);
                if let Err(status) = host::continue_request() {
                    log::error!("a held request could not be let through: {status:?}");
                }
            }
            Verdict::Refuse(refusal) => refuse(refusal, &request_id()),
            Verdict::Enqueue => {}
        }
    }
    let _ = host::set_effective_context(current);
}

/// The id of the current request, as Envoy gave or accepted it.
pub(crate) fn request_id() -> String {
    let id = host::header(HeaderMap::Request, "x-request-id").unwrap_or_default();
    String::from_utf8(id).unwrap_or_default()
}
