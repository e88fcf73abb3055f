//! Connections without a queue: a request takes an idle one or opens another, and never waits for
//! one that is in use. A pool with a bound would hide the waiting that is to be measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Engines close idle connections after 5 s; one that is nearly as old may close under a request.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// How the client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one request at a time on each connection.
    #[default]
    Http1,
    /// HTTP/2 without TLS and without an upgrade.
    H2 {
        /// Requests together on one connection before another is opened; at least 1.
        streams: usize,
    },
}

type Sender1 = http1::SendRequest<Full<Bytes>>;
type Sender2 = http2::SendRequest<Full<Bytes>>;

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// No connection could be made.
    Connect,
    /// The connection ended before the answer.
    Closed,
}

#[derive(Debug)]
struct Shared2 {
    sender: Sender2,
    streams: Arc<AtomicUsize>,
}

/// All connections to one target.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    authority: String,
    base_path: String,
    protocol: Protocol,
    idle: Mutex<Vec<(Sender1, Instant)>>,
    shared: Mutex<Vec<Shared2>>,
    opened: AtomicU64,
}

/// The connection of one request, for as long as its answer is read.
#[derive(Debug)]
pub(crate) enum Lease {
    One(Sender1),
    Stream(#[expect(dead_code, reason = "held for its drop")] StreamCount),
}

/// Counts one stream of a shared connection until dropped.
#[derive(Debug)]
pub(crate) struct StreamCount(Arc<AtomicUsize>);

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Finds the target and tries one connection.
    pub(crate) async fn reach(target: &str, protocol: Protocol) -> anyhow::Result<Arc<Self>> {
        let uri: Uri = target.parse().with_context(|| format!("`{target}` is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!("`{target}`: only http:// targets are supported");
        }
        let authority = uri.authority().with_context(|| format!("`{target}` has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((host, authority.port_u16().unwrap_or(80))).await;
        let mut found = found.with_context(|| format!("cannot find the host of {target}"))?;
        let address = found.next().with_context(|| format!("{host} has no address"))?;
        TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {target} ({address})"))?;
        Ok(Arc::new(Self {
            address,
            authority: authority.to_string(),
            base_path: uri.path().trim_end_matches('/').to_owned(),
            protocol,
            idle: Mutex::default(),
            shared: Mutex::default(),
            opened: AtomicU64::new(0),
        }))
    }

    /// Connections opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// A request builder for a path, as the protocol wants it.
    pub(crate) fn post(&self, path: &str) -> hyper::http::request::Builder {
        let (base, authority) = (&self.base_path, &self.authority);
        match self.protocol {
            Protocol::Http1 => Request::post(format!("{base}{path}")).header("host", authority),
            Protocol::H2 { .. } => Request::post(format!("http://{authority}{base}{path}")),
        }
    }

    /// Sends a request and returns when the head of the answer is there.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), Broken> {
        match self.protocol {
            Protocol::Http1 => self.send1(request).await,
            Protocol::H2 { streams } => self.send2(request, streams.max(1)).await,
        }
    }

    /// Takes back a connection whose answer was read to its end.
    pub(crate) async fn give_back(&self, lease: Lease) {
        if let Lease::One(mut sender) = lease
            && sender.ready().await.is_ok()
        {
            locked(&self.idle).push((sender, Instant::now()));
        }
    }

    async fn send1(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), Broken> {
        loop {
            let reused = self.take_idle();
            let is_new = reused.is_none();
            let mut sender = match reused {
                Some(sender) => sender,
                None => self.open1().await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Lease::One(sender))),
                // Not one byte of it was sent, so sending it again is no repetition.
                Err(mut err) => match err.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(Broken::Closed),
                },
            }
        }
    }

    fn take_idle(&self) -> Option<Sender1> {
        let mut idle = locked(&self.idle);
        while let Some((sender, since)) = idle.pop() {
            if sender.is_ready() && !sender.is_closed() && since.elapsed() < MAX_IDLE {
                return Some(sender);
            }
        }
        None
    }

    async fn open1(&self) -> Result<Sender1, Broken> {
        let io = self.connect().await?;
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(|_| Broken::Connect)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, Broken> {
        let socket = TcpStream::connect(self.address).await.map_err(|_| Broken::Connect)?;
        let _ = socket.set_nodelay(true);
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(TokioIo::new(socket))
    }

    async fn send2(
        &self,
        request: Request<Full<Bytes>>,
        streams: usize,
    ) -> Result<(Response<Incoming>, Lease), Broken> {
        let (mut sender, count) = match self.share(streams) {
            Some(shared) => shared,
            None => self.open2().await?,
        };
        let response = sender.send_request(request).await.map_err(|_| Broken::Closed)?;
        Ok((response, Lease::Stream(count)))
    }

    /// A stream of a connection that has room.
    fn share(&self, streams: usize) -> Option<(Sender2, StreamCount)> {
        let mut shared = locked(&self.shared);
        shared.retain(|one| !one.sender.is_closed());
        let room = |one: &&Shared2| one.streams.load(Ordering::Relaxed) < streams;
        let one = shared.iter().find(room)?;
        one.streams.fetch_add(1, Ordering::Relaxed);
        Some((one.sender.clone(), StreamCount(Arc::clone(&one.streams))))
    }

    async fn open2(&self) -> Result<(Sender2, StreamCount), Broken> {
        let io = self.connect().await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let handshake = builder.adaptive_window(true).handshake(io).await;
        let (sender, connection) = handshake.map_err(|_| Broken::Connect)?;
        tokio::spawn(connection);
        let streams = Arc::new(AtomicUsize::new(1));
        let count = StreamCount(Arc::clone(&streams));
        let one = Shared2 { sender: sender.clone(), streams };
        locked(&self.shared).push(one);
        Ok((sender, count))
    }
}
