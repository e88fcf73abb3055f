//! An engine that does as the test tells it, and remembers what it was asked.
//!
//! A request counts as running from the moment its headers arrive until the last byte of the
//! answer has been handed to the connection, or until either side gave it up. So the peak seen here
//! is never above what the gateway had in flight, and a permit that was given twice shows.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::task::JoinHandle;

/// One request as the engine saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Place in the order of arrival, from 0.
    pub order: usize,
    /// Method and path with query.
    pub target: String,
    /// Headers as they arrived.
    pub headers: HeaderMap,
    /// Body as it arrived.
    pub body: Bytes,
    /// When the headers arrived.
    pub started: Instant,
    /// When it stopped running; `None` while it runs.
    pub ended: Option<Instant>,
    /// Whether the whole answer was handed over.
    pub completed: bool,
}

impl Seen {
    /// A header as text; `None` when missing or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A top-level field of the body; `None` when it has none or is not JSON.
    pub fn field(&self, name: &str) -> Option<Value> {
        let mut body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get_mut(name)?.take())
    }
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Complete,
    /// The connection is broken off after the last piece.
    Reset,
    /// Nothing more comes, and the connection stays.
    Hang,
}

/// What the engine is to answer.
#[derive(Debug, Clone)]
pub struct Script {
    delay: Duration,
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<(Duration, Bytes)>,
    ending: Ending,
}

impl Script {
    /// 200 with a small chat completion, after `delay`. It does not say what the prompt cost: the gate
    /// would learn from a figure that is not the request's own.
    pub fn after(delay: Duration) -> Self {
        Self::bytes(
            r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}"#,
        )
        .delay(delay)
    }

    /// 200 with this body at once.
    pub fn bytes(body: impl Into<Bytes>) -> Self {
        Self {
            delay: Duration::ZERO,
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            pieces: vec![(Duration::ZERO, body.into())],
            ending: Ending::Complete,
        }
    }

    /// 200 as a stream: headers at once, then each piece after its pause.
    pub fn stream(pieces: impl IntoIterator<Item = (Duration, Bytes)>) -> Self {
        let mut script = Self::bytes(Bytes::new());
        "text/event-stream; charset=utf-8".clone_into(&mut script.headers[0].1);
        script.pieces = pieces.into_iter().collect();
        script
    }

    /// A chat stream of `tokens` events, `gap` apart (also before the first), and its `[DONE]`.
    pub fn tokens(tokens: usize, gap: Duration) -> Self {
        let event = Bytes::from_static(
            b"data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n",
        );
        let done = (Duration::ZERO, Bytes::from_static(b"data: [DONE]\n\n"));
        Self::stream(std::iter::repeat_n((gap, event), tokens).chain([done]))
    }

    /// Waits so long before the headers.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers with this status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Ends in this way. Without pieces the ending comes before the headers.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Sends no body; with [`Ending::Reset`] or [`Ending::Hang`] not even headers.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        self.pieces.clear();
        self
    }
}

#[derive(Debug, Default)]
struct Record {
    seen: Mutex<Vec<Seen>>,
    running: AtomicUsize,
    peak: AtomicUsize,
    answered: AtomicUsize,
}

impl Record {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the record of a request when the answer is handed over or given up.
#[derive(Debug)]
struct Running {
    record: Arc<Record>,
    order: Option<usize>,
    completed: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.record.running.fetch_sub(1, Ordering::SeqCst);
        if self.completed {
            self.record.answered.fetch_add(1, Ordering::SeqCst);
        }
        let Some(order) = self.order else { return };
        if let Some(seen) = self.record.seen().get_mut(order) {
            seen.ended = Some(Instant::now());
            seen.completed = self.completed;
        }
    }
}

/// A running engine; it stops listening, and breaks its connections, when dropped.
#[derive(Debug)]
pub struct Upstream {
    addr: SocketAddr,
    record: Arc<Record>,
    listener: JoinHandle<()>,
}

impl Upstream {
    /// Starts an engine that answers each request as `script` says and remembers all of them.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start<F>(script: F) -> Result<Self>
    where
        F: Fn(&Seen) -> Script + Send + Sync + 'static,
    {
        Self::start_with(script, true).await
    }

    /// Starts an engine that remembers numbers but no requests, for long runs.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start_forgetful<F>(script: F) -> Result<Self>
    where
        F: Fn(&Seen) -> Script + Send + Sync + 'static,
    {
        Self::start_with(script, false).await
    }

    async fn start_with<F>(script: F, remember: bool) -> Result<Self>
    where
        F: Fn(&Seen) -> Script + Send + Sync + 'static,
    {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let addr = socket.local_addr()?;
        let record = Arc::new(Record::default());
        let script: Arc<dyn Fn(&Seen) -> Script + Send + Sync> = Arc::new(script);
        let listener = tokio::spawn(listen(socket, Arc::clone(&record), script, remember));
        Ok(Self { addr, record, listener })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// All requests so far in the order of their arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.record.seen().clone()
    }

    /// How many requests run now.
    pub fn running(&self) -> usize {
        self.record.running.load(Ordering::SeqCst)
    }

    /// The most that ever ran at once, or since [`Upstream::forget`].
    pub fn peak(&self) -> usize {
        self.record.peak.load(Ordering::SeqCst)
    }

    /// How many answers were handed over whole.
    pub fn answered(&self) -> usize {
        self.record.answered.load(Ordering::SeqCst)
    }

    /// Forgets the peak and the count of answers; remembered requests stay.
    pub fn forget(&self) {
        self.record.peak.store(self.running(), Ordering::SeqCst);
        self.record.answered.store(0, Ordering::SeqCst);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

type Answerer = Arc<dyn Fn(&Seen) -> Script + Send + Sync>;
type AnswerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Broken>;

/// The error that makes the server break a connection off.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off as the script says")
    }
}

impl std::error::Error for Broken {}

async fn listen(
    socket: tokio::net::TcpListener,
    record: Arc<Record>,
    script: Answerer,
    remember: bool,
) {
    // Dropped with this task, which ends every connection.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = socket.accept().await else { continue };
        // The kernel refuses this only for a connection that is gone already.
        let _ = stream.set_nodelay(true);
        let (record, script) = (Arc::clone(&record), Arc::clone(&script));
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                answer(request, Arc::clone(&record), Arc::clone(&script), remember)
            });
            // Broken connections are part of the play.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    record: Arc<Record>,
    script: Answerer,
    remember: bool,
) -> Result<Response<AnswerBody>, Broken> {
    let started = Instant::now();
    let running = record.running.fetch_add(1, Ordering::SeqCst) + 1;
    record.peak.fetch_max(running, Ordering::SeqCst);
    let mut running = Running { record: Arc::clone(&record), order: None, completed: false };

    let (head, body) = request.into_parts();
    let mut seen = Seen {
        order: 0,
        target: format!("{} {}", head.method, head.uri),
        headers: head.headers,
        body: Bytes::new(),
        started,
        ended: None,
        completed: false,
    };
    if remember {
        let mut all = record.seen();
        seen.order = all.len();
        running.order = Some(seen.order);
        all.push(seen.clone());
    }
    seen.body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    if let Some(kept) = record.seen().get_mut(seen.order).filter(|_| remember) {
        kept.body = seen.body.clone();
    }

    let script = script(&seen);
    if !script.delay.is_zero() {
        tokio::time::sleep(script.delay).await;
    }
    if script.pieces.is_empty() && script.ending != Ending::Complete {
        return end(script.ending).await;
    }
    let mut response = Response::builder().status(script.status);
    for (name, value) in &script.headers {
        response = response.header(name, value);
    }
    response.body(play(script, running)).map_err(|_| Broken)
}

async fn end<T>(ending: Ending) -> Result<T, Broken> {
    if ending == Ending::Hang {
        std::future::pending::<()>().await;
    }
    // The server sends what it has when it must wait, so this lets the pieces before go out.
    tokio::task::yield_now().await;
    Err(Broken)
}

/// The body of an answer. A whole one ends its record just before its last piece goes out: the
/// gateway may send the next request as soon as it has that piece.
fn play(script: Script, mut running: Running) -> AnswerBody {
    if let [(pause, only)] = script.pieces.as_slice()
        && script.ending == Ending::Complete
        && pause.is_zero()
    {
        running.completed = true;
        drop(running);
        let whole = http_body_util::Full::new(only.clone());
        return whole.map_err(|never| match never {}).boxed_unsync();
    }
    let ending = script.ending;
    let state = (script.pieces.into_iter().peekable(), Some(running));
    let frames = stream::unfold(state, move |(mut pieces, mut running)| async move {
        let Some((pause, data)) = pieces.next() else {
            if ending == Ending::Complete {
                return None;
            }
            return Some((end(ending).await, (pieces, running)));
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        if pieces.peek().is_none()
            && ending == Ending::Complete
            && let Some(mut running) = running.take()
        {
            running.completed = true;
        }
        Some((Ok(Frame::data(data)), (pieces, running)))
    });
    StreamBody::new(frames).boxed_unsync()
}
