//! One request and its answer, as a record.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::client::{Broken, Client, Lease};
use super::mix::MixEntry;
use super::plan::Prepared;
use super::report::rounded;

/// A code comes from outside and becomes a key of the report.
const MAX_CODE: usize = 64;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Answered in full.
    Ok,
    /// Refused on purpose: a reason of the gateway, or status 429 or 503.
    Refused(String),
    /// Anything else that is not an answer.
    Failed(String),
}

/// What was seen of one request. Times are in milliseconds; they count from the moment at which
/// the request was due, not from the moment at which it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the request in the plan.
    pub number: u64,
    /// Name of its mix entry.
    pub entry: String,
    /// Number of its client in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<usize>,
    /// When it was due, after the start.
    pub due_ms: f64,
    /// How late it was sent; a large number is a fault of the client's machine.
    pub lag_ms: f64,
    /// Until the end of the answer.
    pub total_ms: f64,
    /// Until the first data of a stream that are not a comment.
    pub first_token_ms: Option<f64>,
    /// Status of the answer.
    pub status: Option<u16>,
    /// How it ended.
    pub ended: Ended,
    /// Whether a header tells of the gateway.
    #[serde(default)]
    pub behind_gateway: bool,
    /// Wait in the gateway, as the gateway tells it.
    pub gateway_wait_ms: Option<f64>,
    /// Execution time, as the gateway tells it.
    pub exec_ms: Option<f64>,
    /// Wait in the engine, as the engine tells it.
    pub engine_wait_ms: Option<f64>,
    /// Output tokens, as the engine tells them.
    pub output_tokens: Option<u64>,
}

impl Record {
    /// Wait in gateway and engine together; `None` when neither tells, or when there is a gateway
    /// that does not tell its part.
    pub fn wait_ms(&self) -> Option<f64> {
        match (self.gateway_wait_ms, self.engine_wait_ms) {
            (None, None) => None,
            (None, Some(_)) if self.behind_gateway => None,
            (gateway, engine) => Some(gateway.unwrap_or(0.0) + engine.unwrap_or(0.0)),
        }
    }
}

/// What all exchanges of a run share.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) client: std::sync::Arc<Client>,
    pub(crate) path: String,
    pub(crate) timeout: Duration,
    pub(crate) mix: Vec<MixEntry>,
    pub(crate) seed: u64,
    pub(crate) start: Instant,
}

impl Exchange {
    /// Sends a request that was due at `due` and reads its answer.
    pub(crate) async fn run(
        &self,
        prepared: Prepared,
        due: Instant,
        client: Option<usize>,
    ) -> Record {
        let sent = Instant::now();
        let kind = &self.mix[prepared.entry];
        let mut record = Record {
            number: prepared.number,
            entry: kind.name.clone(),
            client,
            due_ms: ms(due.saturating_duration_since(self.start)),
            lag_ms: ms(sent.saturating_duration_since(due)),
            total_ms: 0.0,
            first_token_ms: None,
            status: None,
            ended: Ended::Failed("timeout".into()),
            behind_gateway: false,
            gateway_wait_ms: None,
            exec_ms: None,
            engine_wait_ms: None,
            output_tokens: None,
        };
        match self.request(kind, prepared) {
            Ok(request) => {
                let all = self.send(request, due, &mut record);
                if let Ok(lease) = timeout(self.timeout, all).await {
                    record.total_ms = ms(due.elapsed());
                    if let Some(lease) = lease {
                        self.client.give_back(lease).await;
                    }
                    return record;
                }
            }
            Err(err) => record.ended = Ended::Failed(code(&format!("request: {err}"))),
        }
        record.total_ms = ms(due.elapsed());
        record
    }

    fn request(
        &self,
        kind: &MixEntry,
        prepared: Prepared,
    ) -> hyper::http::Result<Request<Full<Bytes>>> {
        let mut request = self
            .client
            .post(&self.path)
            .header("content-type", "application/json")
            .header("te", "trailers")
            .header("x-request-id", format!("load-{}-{}", self.seed, prepared.number));
        if let Some(key) = &kind.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
            value.set_sensitive(true);
            request = request.header("authorization", value);
        }
        if let Some(tier) = &kind.tier {
            request = request.header("x-slogate-tier", tier);
        }
        for (name, value) in &kind.headers {
            request = request.header(HeaderName::from_bytes(name.as_bytes())?, value);
        }
        request.body(Full::new(prepared.body))
    }

    /// Returns the connection when it can be used again.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        due: Instant,
        record: &mut Record,
    ) -> Option<Lease> {
        let (response, lease) = match self.client.send(request).await {
            Ok(answer) => answer,
            Err(broken) => {
                let what = if broken == Broken::Connect { "connect" } else { "connection_closed" };
                record.ended = Ended::Failed(what.into());
                return None;
            }
        };
        record.status = Some(response.status().as_u16());
        let reason = header(response.headers(), "x-slogate-reason").map(code);
        record.timing(response.headers());
        let is_stream = header(response.headers(), "content-type")
            .is_some_and(|media| media.starts_with("text/event-stream"));
        let mut reader = Reader { is_stream, ..Reader::default() };
        let whole = reader.read(response, due, record).await;
        record.ended = match (whole, record.status) {
            (false, _) => Ended::Failed("cut_off".into()),
            (true, Some(200)) if reader.error.is_none() && (reader.done || !is_stream) => Ended::Ok,
            (true, Some(200)) if reader.error.is_none() => Ended::Failed("cut_off".into()),
            (true, Some(200)) => Ended::Failed("stream_error".into()),
            (true, status) => {
                let status = status.unwrap_or(0);
                let told = reason.clone().or_else(|| reader.error.clone());
                let told = told.unwrap_or_else(|| format!("http_{status}"));
                if reason.is_some() || matches!(status, 429 | 503) {
                    Ended::Refused(told)
                } else {
                    Ended::Failed(told)
                }
            }
        };
        whole.then_some(lease)
    }
}

impl Record {
    /// Takes the gateway's times from headers or trailers.
    fn timing(&mut self, headers: &HeaderMap) {
        self.behind_gateway |= headers.keys().any(|name| name.as_str().starts_with("x-slogate-"));
        let number = |name: &str| header(headers, name).and_then(|value| value.parse::<f64>().ok());
        let timing = header(headers, "server-timing").unwrap_or_default();
        let queue = number("x-slogate-queue-ms").or_else(|| duration_of(timing, "queue"));
        let exec = number("x-slogate-exec-ms").or_else(|| duration_of(timing, "exec"));
        self.gateway_wait_ms = queue.or(self.gateway_wait_ms);
        self.exec_ms = exec.or(self.exec_ms);
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

/// A short printable form of a code from outside.
fn code(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_CODE).collect()
}

/// The `dur` of a metric in a `server-timing` header, in milliseconds.
fn duration_of(timing: &str, metric: &str) -> Option<f64> {
    timing.split(',').find_map(|part| {
        let mut fields = part.split(';').map(str::trim);
        if fields.next() != Some(metric) {
            return None;
        }
        fields.find_map(|field| field.strip_prefix("dur=")?.parse().ok())
    })
}

/// Reads a body for its times, its usage and its error.
#[derive(Debug, Default)]
struct Reader {
    is_stream: bool,
    pending: Vec<u8>,
    done: bool,
    error: Option<String>,
}

impl Reader {
    /// False when the connection broke before the end.
    async fn read(
        &mut self,
        response: Response<Incoming>,
        due: Instant,
        record: &mut Record,
    ) -> bool {
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            if let Some(trailers) = frame.trailers_ref() {
                record.timing(trailers);
            }
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.pending.extend_from_slice(&data);
            if self.is_stream {
                self.lines(due, record);
            }
        }
        if !self.is_stream
            && let Ok(value) = serde_json::from_slice(&self.pending)
        {
            self.value(&value, record);
        }
        true
    }

    /// Takes all complete lines of a stream.
    fn lines(&mut self, due: Instant, record: &mut Record) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let Some(data) = line.strip_prefix(b"data:") else {
                continue;
            };
            let data = String::from_utf8_lossy(data);
            let data = data.trim();
            record.first_token_ms.get_or_insert_with(|| ms(due.elapsed()));
            // The Messages and Responses APIs have an end of their own instead.
            let ends = data.contains("\"message_stop\"") || data.contains("\"response.completed\"");
            self.done |= data == "[DONE]" || ends;
            let tells = ["\"usage\":{", "\"metrics\"", "\"error\""];
            if tells.iter().any(|mark| data.contains(mark))
                && let Ok(value) = serde_json::from_str(data)
            {
                self.value(&value, record);
            }
        }
        self.pending = rest.to_vec();
    }

    fn value(&mut self, value: &Value, record: &mut Record) {
        let told = value.pointer("/metrics/queue_time_ms").and_then(Value::as_f64);
        record.engine_wait_ms = told.or(record.engine_wait_ms);
        let usage = value.get("usage");
        let count = |name: &str| usage.and_then(|usage| usage.get(name)).and_then(Value::as_u64);
        let tokens = count("completion_tokens").or_else(|| count("output_tokens"));
        record.output_tokens = tokens.or(record.output_tokens);
        self.error = match value.get("error") {
            Some(Value::Object(error)) => match error.get("code") {
                Some(Value::String(name)) => Some(code(name)),
                Some(number) => Some(format!("engine_{number}")),
                None => error.get("type").and_then(Value::as_str).map(code),
            },
            Some(Value::String(name)) => Some(code(name)),
            _ => self.error.take(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_found_in_a_server_timing_header() {
        let timing = "cache;desc=x, queue;desc=\"wait\";dur=12.5,exec;dur=3";
        assert_eq!(duration_of(timing, "queue"), Some(12.5));
        assert_eq!(duration_of(timing, "exec"), Some(3.0));
        assert_eq!(duration_of(timing, "que"), None);
    }
}
