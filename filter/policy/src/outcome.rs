//! How a request ended: exactly one outcome each.

/// The ending of a request. The list is closed; it is the `outcome` label of `slogate_requests`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The engine answered, completely.
    Ok,
    /// The engine refused the request itself (4xx).
    ClientError,
    /// The engine failed: 5xx, no connection, or an answer cut short.
    EngineError,
    /// The client left before its request was let through.
    LeftWaiting,
    /// The client left while its request ran.
    LeftRunning,
    /// It waited as long as it may.
    QueueTimeout,
    /// It would have waited longer than it may.
    QueueWaitTooLong,
    /// The tier's queue was full.
    QueueFull,
    /// The request could not be read.
    InvalidRequest,
    /// It asked for a model the policy does not know.
    ModelNotFound,
    /// Its body was over the filter's limit.
    RequestTooLarge,
    /// Its key is not listed and the policy refuses such keys.
    InvalidApiKey,
    /// Its key is not to ask for this model.
    ModelForbidden,
    /// Its key made more requests than its quota allows.
    RateLimit,
    /// Its key asked for more tokens than its quota allows.
    TokenLimit,
    /// Its key has as many requests at once as its quota allows.
    ConcurrencyLimit,
    /// The gate could not do its work: wrong Envoy configuration, or the shared store failed.
    GateError,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::ClientError,
        Self::EngineError,
        Self::LeftWaiting,
        Self::LeftRunning,
        Self::QueueTimeout,
        Self::QueueWaitTooLong,
        Self::QueueFull,
        Self::InvalidRequest,
        Self::ModelNotFound,
        Self::RequestTooLarge,
        Self::InvalidApiKey,
        Self::ModelForbidden,
        Self::RateLimit,
        Self::TokenLimit,
        Self::ConcurrencyLimit,
        Self::GateError,
    ];

    /// The label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::EngineError => "engine_error",
            Self::LeftWaiting => "left_waiting",
            Self::LeftRunning => "left_running",
            Self::QueueTimeout => "queue_timeout",
            Self::QueueWaitTooLong => "queue_wait_too_long",
            Self::QueueFull => "queue_full",
            Self::InvalidRequest => "invalid_request",
            Self::ModelNotFound => "model_not_found",
            Self::RequestTooLarge => "request_too_large",
            Self::InvalidApiKey => "invalid_api_key",
            Self::ModelForbidden => "model_forbidden",
            Self::RateLimit => "rate_limit",
            Self::TokenLimit => "token_limit",
            Self::ConcurrencyLimit => "concurrency_limit",
            Self::GateError => "gate_error",
        }
    }

    /// Whether it says something about the service, and not about the request itself. Who left is
    /// counted by how long it had waited by then.
    pub fn counts_for_slo(self) -> bool {
        !matches!(
            self,
            Self::ClientError
                | Self::InvalidRequest
                | Self::ModelNotFound
                | Self::RequestTooLarge
                | Self::InvalidApiKey
                | Self::ModelForbidden
                | Self::RateLimit
                | Self::TokenLimit
                | Self::ConcurrencyLimit
        )
    }
}
