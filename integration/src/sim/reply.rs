//! Answers that are not streams: errors in the engine's three shapes, and finished completions.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::ask::{Api, Ask};
use super::config::{Counting, SimConfig};
use super::engine::{End, Refused};
use super::metrics::Timings;

/// An error with its status and its body.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl ApiError {
    fn new(status: u16, kind: &str, message: &str, param: Option<&str>) -> Self {
        let error = json!({"message": message, "type": kind, "param": param, "code": status});
        Self { status, body: json!({ "error": error }) }
    }

    /// The body could not be read as what the path takes.
    pub(crate) fn bad_body(message: &str, param: &str) -> Self {
        Self::new(400, "Bad Request", message, Some(param))
    }

    /// The content type is not JSON: a 400, not a 415.
    pub(crate) fn bad_content_type() -> Self {
        let message = "Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(400, "Bad Request", message, None)
    }

    /// A value was read and is not allowed.
    pub(crate) fn bad_value(message: &str, param: &str) -> Self {
        Self::new(400, "BadRequestError", message, Some(param))
    }

    pub(crate) fn unknown_model(name: &str, models: &[String]) -> Self {
        let valid = models.join(", ");
        let message = format!("The model `{name}` does not exist. Valid aliases: {valid}.");
        Self::new(404, "NotFoundError", &message, Some("model"))
    }

    pub(crate) fn engine_died() -> Self {
        let message = "EngineCore encountered an issue";
        Self::new(500, "InternalServerError", message, None)
    }

    pub(crate) fn refused(why: Refused) -> Self {
        match why {
            Refused::Cap(cap) => {
                let message = format!("The server has reached --{}", cap.replace('_', "-"));
                Self::new(503, "Service Unavailable", &message, None)
            }
            Refused::Draining => {
                let message = "cannot schedule new futures after shutdown";
                Self::new(500, "InternalServerError", message, None)
            }
            Refused::Dead => Self::engine_died(),
            Refused::Scripted(status) => Self::new(status, "Scripted", "scripted fault", None),
        }
    }

    /// The shape of the web framework: unknown paths and methods.
    pub(crate) fn detail(status: u16, text: &str) -> Self {
        Self { status, body: json!({ "detail": text }) }
    }

    pub(crate) fn unauthorized() -> Self {
        Self { status: 401, body: json!({"error": "Unauthorized"}) }
    }
}

/// What all answers to one request carry.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The id with its prefix, as in the body.
    pub(crate) id: String,
    /// The id without the prefix.
    pub(crate) request_id: String,
    /// The first served name, whichever was asked for.
    pub(crate) model: String,
    pub(crate) created: u64,
    pub(crate) counting: Counting,
    pub(crate) with_metrics: bool,
}

impl Head {
    pub(crate) fn new(api: Api, request_id: &str, config: &SimConfig) -> Self {
        let prefix = match api {
            Api::Chat => "chatcmpl",
            Api::Completions => "cmpl",
            Api::Embeddings => "embd",
            Api::Responses => "resp",
            Api::Messages => "msg",
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: format!("{prefix}-{request_id}"),
            request_id: request_id.to_owned(),
            model: config.models.first().cloned().unwrap_or_default(),
            created: since_1970.as_secs(),
            counting: config.counting,
            with_metrics: config.per_request_metrics,
        }
    }
}

/// Text of the token at place `at`.
pub(crate) fn token_text(at: usize, counting: Counting) -> String {
    const TEXT: &[u8] = b"an answer of words that mean nothing ";
    let width = counting.bytes(1);
    (at * width..(at + 1) * width).map(|i| char::from(TEXT[i % TEXT.len()])).collect()
}

pub(crate) fn finish_reason(end: End) -> &'static str {
    match end {
        End::Stop => "stop",
        End::Length => "length",
    }
}

/// Usage with `made` output tokens.
pub(crate) fn usage(ask: &Ask, made: usize) -> Value {
    let prompt = ask.prompt_tokens;
    match ask.api {
        Api::Responses => {
            json!({"input_tokens": prompt, "output_tokens": made, "total_tokens": prompt + made})
        }
        Api::Messages => json!({"input_tokens": prompt, "output_tokens": made}),
        _ => {
            json!({"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made})
        }
    }
}

/// The queue time and its siblings, in milliseconds.
pub(crate) fn metrics(times: &Timings) -> Value {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    json!({
        "time_to_first_token_ms": ms(times.queue + times.prefill),
        "queue_time_ms": ms(times.queue),
        "generation_time_ms": ms(times.decode),
    })
}

/// The answer to a finished request; one end for each choice, in order.
pub(crate) fn complete(head: &Head, ask: &Ask, ends: &[(End, Timings)]) -> Value {
    let text =
        || -> String { (0..ask.output_tokens).map(|at| token_text(at, head.counting)).collect() };
    let usage = usage(ask, ask.output_tokens * ask.choices);
    let (id, model, created) = (&head.id, &head.model, head.created);
    let ends_indexed = ends.iter().enumerate();
    let mut body = match ask.api {
        Api::Chat => {
            let choices: Vec<Value> = ends_indexed
                .map(|(index, (end, _))| {
                    json!({"index": index, "message": {"role": "assistant", "content": text()},
                        "logprobs": null, "finish_reason": finish_reason(*end)})
                })
                .collect();
            json!({"id": id, "object": "chat.completion", "created": created, "model": model,
                "request_id": head.request_id, "choices": choices, "usage": usage})
        }
        Api::Completions => {
            let choices: Vec<Value> = ends_indexed
                .map(|(index, (end, _))| {
                    json!({"index": index, "text": text(), "logprobs": null,
                        "finish_reason": finish_reason(*end)})
                })
                .collect();
            json!({"id": id, "object": "text_completion", "created": created, "model": model,
                "request_id": head.request_id, "choices": choices, "usage": usage})
        }
        Api::Embeddings => json!({"id": id, "object": "list", "created": created, "model": model,
            "data": [{"index": 0, "object": "embedding", "embedding": [0.5, -0.5, 0.5, -0.5]}],
            "usage": usage}),
        Api::Responses => json!({"id": id, "object": "response", "created_at": created,
            "model": model, "status": "completed", "output": [{"type": "message",
            "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text(), "annotations": []}]}],
            "usage": usage}),
        Api::Messages => json!({"id": id, "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text()}],
            "stop_reason": stop_reason(ends.first().map(|(end, _)| *end)), "usage": usage}),
    };
    if let (true, Some((_, times))) = (head.with_metrics, ends.first()) {
        body["metrics"] = metrics(times);
    }
    body
}

/// The word of the Messages API for how an answer ended.
pub(crate) fn stop_reason(end: Option<End>) -> &'static str {
    match end {
        Some(End::Length) => "max_tokens",
        _ => "end_turn",
    }
}
