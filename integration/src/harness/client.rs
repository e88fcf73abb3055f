//! A client that owns its connection and notes when each thing happened.
//!
//! One [`Client`] is one TCP connection, so a test decides which worker serves it and sees no
//! waiting that a connection pool would hide.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A part of a request body that is sent in parts.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Nothing for so long.
    Pause(Duration),
    /// Bytes, as one chunk.
    Data(Bytes),
    /// Trailers, which end the body.
    Trailers(HeaderMap),
}

/// A request to be sent: a chat completion unless changed.
#[derive(Debug, Clone)]
pub struct Chat {
    method: Method,
    path: String,
    headers: HeaderMap,
    fields: Value,
    raw: Option<Bytes>,
    pieces: Option<Vec<Piece>>,
}

impl Chat {
    /// A chat completion of one short user message.
    pub fn new(model: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self {
            method: Method::POST,
            path: "/v1/chat/completions".to_owned(),
            headers,
            fields: json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]}),
            raw: None,
            pieces: None,
        }
    }

    /// A GET of `path`, without a body.
    pub fn get(path: &str) -> Self {
        let mut chat = Self::new("").path(path).body(Bytes::new());
        chat.method = Method::GET;
        chat.headers.clear();
        chat
    }

    /// Sends to `path` instead of the chat completions.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Replaces the user's message.
    #[must_use]
    pub fn content(mut self, text: &str) -> Self {
        self.fields["messages"][0]["content"] = json!(text);
        self
    }

    /// Makes the user's message `words` English words long, about as many tokens.
    #[must_use]
    pub fn words(self, words: usize) -> Self {
        const TEXT: [&str; 8] = ["the", "river", "runs", "down", "to", "a", "quiet", "town"];
        let text: Vec<&str> = TEXT.iter().copied().cycle().take(words).collect();
        self.content(&text.join(" "))
    }

    /// Asks for a stream.
    #[must_use]
    pub fn stream(self) -> Self {
        self.field("stream", json!(true))
    }

    /// Sets a top-level field of the body.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields[name] = value;
        self
    }

    /// Sends these bytes as the body, whatever they are.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.raw = Some(bytes.into());
        self
    }

    /// Sends the body in these parts (chunked on HTTP/1.1).
    #[must_use]
    pub fn pieces(mut self, pieces: Vec<Piece>) -> Self {
        self.pieces = Some(pieces);
        self
    }

    /// Sends `key` as a bearer token.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        let value = HeaderValue::try_from(format!("Bearer {key}"));
        self.headers.insert(AUTHORIZATION, value.expect("a key is a legal header value"));
        self
    }

    /// Adds a header; a name may be given more than once.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a legal header name");
        let value = HeaderValue::try_from(value).expect("a legal header value");
        self.headers.append(name, value);
        self
    }

    /// The body that will be sent, when it is not sent in parts.
    pub fn bytes(&self) -> Bytes {
        let json = || Bytes::from(self.fields.to_string());
        self.raw.clone().unwrap_or_else(json)
    }

    fn into_body(self) -> Body {
        let Some(pieces) = self.pieces else {
            return Full::new(self.bytes()).boxed_unsync();
        };
        let frames = futures_util::stream::unfold(pieces.into_iter(), |mut pieces| async move {
            loop {
                match pieces.next()? {
                    Piece::Pause(pause) => tokio::time::sleep(pause).await,
                    Piece::Data(bytes) => return Some((Ok(Frame::data(bytes)), pieces)),
                    Piece::Trailers(map) => return Some((Ok(Frame::trailers(map)), pieces)),
                }
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

/// An answer with everything that was seen and when.
#[derive(Debug)]
pub struct Answer {
    /// Status of the answer.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it came.
    pub body: Bytes,
    /// Trailers, empty when there were none.
    pub trailers: HeaderMap,
    /// When each piece of the body came.
    pub pieces: Vec<(Instant, Bytes)>,
    /// When the request was handed to the connection.
    pub sent: Instant,
    /// When the headers came.
    pub headers_at: Instant,
    /// When the body ended or broke.
    pub ended: Instant,
    /// Why the body broke; `None` for a complete one.
    pub broken: Option<String>,
}

impl Answer {
    /// A header as text; `None` when missing or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A header as a number; `None` when missing or not one.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.header(name)?.trim().parse().ok()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("the body is not JSON")
    }

    /// From sending to the end of the body.
    pub fn total(&self) -> Duration {
        self.ended - self.sent
    }

    /// From sending to the first bytes of the body; `None` for an empty body.
    pub fn first_data(&self) -> Option<Duration> {
        Some(self.pieces.first()?.0 - self.sent)
    }
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// One connection to a gateway. Dropping it closes the connection, also with a request in flight.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    authority: String,
    local: SocketAddr,
    driver: JoinHandle<()>,
}

impl Client {
    /// Opens an HTTP/1.1 connection; it carries one request at a time.
    ///
    /// # Errors
    /// When nobody listens at `addr`.
    pub async fn http1(addr: SocketAddr) -> Result<Self> {
        let (io, local) = connect(addr).await?;
        let (sender, connection) = http1::handshake(io).await?;
        let driver = tokio::spawn(async move {
            // The request that breaks reports it.
            let _ = connection.await;
        });
        Ok(Self { sender: Sender::Http1(sender), authority: addr.to_string(), local, driver })
    }

    /// Opens an HTTP/2 connection with prior knowledge.
    ///
    /// # Errors
    /// When nobody listens at `addr`.
    pub async fn http2(addr: SocketAddr) -> Result<Self> {
        let (io, local) = connect(addr).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender: Sender::Http2(sender), authority: addr.to_string(), local, driver })
    }

    /// Own end of the connection.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends one request and reads the answer to its end. Dropping the future gives the request up:
    /// the connection closes on HTTP/1.1, the stream is reset on HTTP/2.
    ///
    /// # Errors
    /// When the connection ends before the headers of an answer. A body that breaks off is not an
    /// error but [`Answer::broken`].
    pub async fn send(&mut self, chat: Chat) -> Result<Answer> {
        let sent = Instant::now();
        let response = self.begin(chat).await?;
        let headers_at = Instant::now();
        Ok(collect(response, sent, headers_at).await)
    }

    /// Sends one request and gives the answer as soon as its headers are there.
    ///
    /// # Errors
    /// When the connection ends before the headers of an answer.
    pub async fn begin(&mut self, chat: Chat) -> Result<Response<Incoming>> {
        let (uri, host) = match self.sender {
            Sender::Http1(_) => (chat.path.clone(), true),
            Sender::Http2(_) => (format!("http://{}{}", self.authority, chat.path), false),
        };
        let mut request = Request::builder().method(chat.method.clone()).uri(uri);
        if let Some(headers) = request.headers_mut() {
            *headers = chat.headers.clone();
            if host && !headers.contains_key(HOST) {
                headers.insert(HOST, HeaderValue::try_from(&self.authority)?);
            }
        }
        let request = request.body(chat.into_body())?;
        let answer = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        };
        answer.context("no answer")
    }

    /// A second handle on the same HTTP/2 connection, for requests side by side; it ends with the
    /// first. `None` on HTTP/1.1.
    pub fn share(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else { return None };
        Some(Self {
            sender: Sender::Http2(sender.clone()),
            authority: self.authority.clone(),
            local: self.local,
            driver: tokio::spawn(async {}),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn connect(addr: SocketAddr) -> Result<(TokioIo<tokio::net::TcpStream>, SocketAddr)> {
    let stream = tokio::net::TcpStream::connect(addr)
        .await
        .with_context(|| format!("connecting to {addr}"))?;
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    Ok((TokioIo::new(stream), local))
}

async fn collect(response: Response<Incoming>, sent: Instant, headers_at: Instant) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut answer = Answer {
        status: head.status,
        headers: head.headers,
        body: Bytes::new(),
        trailers: HeaderMap::new(),
        pieces: Vec::new(),
        sent,
        headers_at,
        ended: headers_at,
        broken: None,
    };
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                whole.extend_from_slice(&data);
                answer.pieces.push((Instant::now(), data));
            }
            Ok(Err(other)) => {
                if let Ok(trailers) = other.into_trailers() {
                    answer.trailers = trailers;
                }
            }
            Err(error) => {
                answer.broken = Some(error.to_string());
                break;
            }
        }
    }
    answer.ended = Instant::now();
    answer.body = whole.freeze();
    answer
}
