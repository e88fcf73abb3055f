//! Paths, headers and the life of the server as a whole.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Seen;
use super::ask::{Api, Ask};
use super::config::{Fault, SimConfig};
use super::connection::{self, Content, Link};
use super::engine::{Engine, Event, FOREVER, Ticket};
use super::journal::Journal;
use super::reply::{self, ApiError, Head};
use super::stream::EventStream;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Open connections get this long to send their last bytes when the server ends.
const FLUSH: Duration = Duration::from_millis(400);

/// One server with its engine.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) config: Arc<SimConfig>,
    pub(crate) engine: Arc<Engine>,
    closing: watch::Sender<bool>,
    /// Drains asked for: how long each may take.
    drains: watch::Sender<Option<Duration>>,
    pub(crate) started: f64,
}

impl Server {
    pub(crate) fn new(config: SimConfig) -> Arc<Self> {
        let config = Arc::new(config);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let server = Self {
            engine: Engine::new(Arc::clone(&config)),
            config,
            closing: watch::Sender::new(false),
            drains: watch::Sender::new(None),
            started: started.as_secs_f64(),
        };
        for fault in &server.config.faults {
            server.apply(fault);
        }
        Arc::new(server)
    }

    pub(crate) fn config(&self) -> &SimConfig {
        &self.config
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Runs the engine on the calling thread until it is dead.
    pub(crate) fn run_engine(&self) {
        self.engine.run();
    }

    /// Fails what is in flight, stops accepting and ends all connections.
    pub(crate) fn close(&self) {
        self.engine.apply(&Fault::Die);
        self.closing.send_replace(true);
    }

    pub(crate) fn apply(&self, fault: &Fault) {
        match fault {
            Fault::Drain { timeout_ms } => {
                let timeout =
                    timeout_ms.map_or(self.config.shutdown_timeout, Duration::from_millis);
                if !timeout.is_zero() {
                    self.engine.apply(fault);
                    self.drains.send_replace(Some(timeout));
                    return;
                }
                self.close();
            }
            Fault::Die => self.close(),
            _ => self.engine.apply(fault),
        }
    }

    /// Serves until closed.
    pub(crate) async fn serve(self: Arc<Self>, listener: std::net::TcpListener) {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        tokio::spawn(Arc::clone(&self).end_of_drain());
        let mut closing = self.closing();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        connections.spawn(connection::serve(Arc::clone(&self), socket));
                    }
                    Err(err) => backoff(&err).await,
                },
                Some(_) = connections.join_next() => {}
                _ = closing.wait_for(|closed| *closed) => break,
            }
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FLUSH, all).await;
    }

    /// Waits for a drain, lets it run, then ends the server.
    async fn end_of_drain(self: Arc<Self>) {
        let mut drains = self.drains.subscribe();
        let Ok(timeout) = drains.wait_for(Option::is_some).await.map(|timeout| *timeout) else {
            return;
        };
        let deadline = tokio::time::Instant::now() + timeout.unwrap_or_default().min(FOREVER);
        while !self.engine.is_idle() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.close();
    }

    /// Answers one request; dropping this future or the answer aborts it.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        link: &Arc<Link>,
    ) -> Response<Content> {
        let sent_id = request.headers().get(REQUEST_ID).cloned();
        let mut response = match self.route(request, link).await {
            Ok(response) => response,
            Err(error) => whole(error.status, &error.body),
        };
        let headers = response.headers_mut();
        headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
        if self.config.request_id_headers {
            let id = sent_id.or_else(|| HeaderValue::from_str(&random_id()).ok());
            headers.extend(id.map(|id| (REQUEST_ID, id)));
        }
        response
    }

    async fn route(
        self: &Arc<Self>,
        request: Request<Incoming>,
        link: &Arc<Link>,
    ) -> Result<Response<Content>, ApiError> {
        let path = request.uri().path().to_owned();
        let guarded = path == "/v1" || path.starts_with("/v1/");
        if guarded && !self.is_authorized(request.headers()) {
            return Err(ApiError::unauthorized());
        }
        let wanted: &[Method] = match path.as_str() {
            "/v1/chat/completions"
            | "/v1/completions"
            | "/v1/embeddings"
            | "/v1/responses"
            | "/v1/messages"
            | "/invocations"
            | "/tokenize"
            | "/sim/fault" => &[Method::POST],
            "/ping" => &[Method::GET, Method::POST],
            "/v1/models" | "/health" | "/load" | "/version" | "/metrics" | "/sim/stats"
            | "/sim/log" => &[Method::GET],
            _ => return Err(ApiError::detail(404, "Not Found")),
        };
        if !wanted.contains(request.method()) {
            return Err(ApiError::detail(405, "Method Not Allowed"));
        }
        let api = match path.as_str() {
            "/v1/chat/completions" => Some(Api::Chat),
            "/v1/completions" => Some(Api::Completions),
            "/v1/embeddings" => Some(Api::Embeddings),
            "/v1/responses" => Some(Api::Responses),
            "/v1/messages" => Some(Api::Messages),
            "/invocations" => None,
            "/tokenize" => return self.tokenize(request).await,
            "/sim/fault" => return self.script(request).await,
            "/sim/log" => {
                let log = self.engine.journal(Journal::logged);
                return Ok(whole(200, &json!(log)));
            }
            "/sim/stats" => return Ok(whole(200, &json!(self.engine.stats()))),
            "/v1/models" => return Ok(whole(200, &self.models())),
            // Counts only with a flag of the real server that is off by default.
            "/load" => return Ok(whole(200, &json!({"server_load": 0}))),
            "/version" => return Ok(whole(200, &json!({"version": "0.32.0"}))),
            "/metrics" => return Ok(self.metrics()),
            // The health of the process, not of the engine: it hangs and drains at 200.
            _ => return Ok(empty()),
        };
        self.infer(api, request, link).await
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.config.api_key else {
            return true;
        };
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        sent.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|sent| sent == key)
    }

    async fn infer(
        self: &Arc<Self>,
        api: Option<Api>,
        request: Request<Incoming>,
        link: &Arc<Link>,
    ) -> Result<Response<Content>, ApiError> {
        check_content_type(request.headers())?;
        let (parts, body) = request.into_parts();
        let body = read_body(body).await?;
        let ask = Ask::read(api, &body, &self.config)?;
        let sent_id = parts.headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let id = sent_id.map_or_else(random_id, str::to_owned);
        let seen = self.config.capture.then(|| Seen {
            path: parts.uri.to_string(),
            headers: parts
                .headers
                .iter()
                .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.into())))
                .collect(),
            body,
        });
        let ticket = self.engine.submit(ask.clone(), &id, seen).map_err(ApiError::refused)?;
        let head = Head::new(ask.api, &id, &self.config);
        if ask.stream {
            let keep_alive = self.config.sse_keep_alive.map(|period| {
                tokio::time::interval_at(tokio::time::Instant::now() + period, period)
            });
            let reset = Arc::clone(&link.reset);
            let events = EventStream::new(ticket, head, ask, keep_alive, reset);
            let mut response = Response::new(Content::Events(Box::new(events)));
            set_type(&mut response, "text/event-stream; charset=utf-8");
            return Ok(response);
        }
        let body = self.collect(ticket, &head, &ask, link).await?;
        let mut response = whole(200, &body);
        if let Some(report) = self.load_report(&parts.headers) {
            response.headers_mut().insert("endpoint-load-metrics", report);
        }
        Ok(response)
    }

    /// Waits for the end of every choice.
    async fn collect(
        &self,
        mut ticket: Ticket,
        head: &Head,
        ask: &Ask,
        link: &Arc<Link>,
    ) -> Result<Value, ApiError> {
        let mut ends = Vec::new();
        loop {
            match ticket.events.recv().await {
                Some(Event::Token { choice, end, .. }) => {
                    ends.extend(end.map(|(end, times)| (choice, (end, times))));
                    if ends.len() == ask.choices {
                        ends.sort_by_key(|(choice, _)| *choice);
                        let ends: Vec<_> = ends.into_iter().map(|(_, end)| end).collect();
                        return Ok(reply::complete(head, ask, &ends));
                    }
                }
                Some(Event::Failed) | None => return Err(ApiError::engine_died()),
                Some(Event::Reset) => {
                    link.reset.notify_one();
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Out of file handles: accepting again at once would only spin.
async fn backoff(err: &io::Error) {
    if !matches!(err.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = sent.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(ApiError::bad_content_type())
    }
}

pub(crate) async fn read_body(body: Incoming) -> Result<Bytes, ApiError> {
    let collected = body.collect().await;
    let unread = |_| ApiError::bad_body("the body could not be read", "body");
    collected.map(http_body_util::Collected::to_bytes).map_err(unread)
}

/// 32 hexadecimal digits, as a uuid without its dashes.
fn random_id() -> String {
    // The standard library's hash keys are random and need no further dependency.
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

pub(crate) fn set_type(response: &mut Response<Content>, media: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}

pub(crate) fn whole(status: u16, body: &Value) -> Response<Content> {
    let mut response = Response::new(Content::Whole(Some(body.to_string().into())));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    set_type(&mut response, "application/json");
    response
}

fn empty() -> Response<Content> {
    Response::new(Content::Whole(None))
}
