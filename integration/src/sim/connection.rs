//! One connection: HTTP/1.1 alone, closed when idle, reset on demand.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::server::Server;
use super::stream::EventStream;

/// After the server stopped, the last bytes of an answer get this long.
const FLUSH: Duration = Duration::from_millis(300);
const HTTP2_PREFACE: &[u8] = b"PRI";

/// What a request handler may do to its connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Notified to reset the connection.
    pub(crate) reset: Arc<Notify>,
    changed: Notify,
    active: AtomicUsize,
    used: AtomicBool,
}

/// Marks the connection as busy until dropped with the answer.
#[derive(Debug)]
struct Busy(Arc<Link>);

impl Busy {
    fn new(link: &Arc<Link>) -> Self {
        link.active.fetch_add(1, Ordering::Relaxed);
        link.used.store(true, Ordering::Relaxed);
        link.changed.notify_one();
        Self(Arc::clone(link))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

/// The two kinds of bodies.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Option<Bytes>),
    Events(Box<EventStream>),
}

/// A body that keeps its connection busy.
#[derive(Debug)]
pub(crate) struct Answer {
    content: Content,
    _busy: Busy,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Events(events) => events.poll_frame(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Content::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Events(_) => SizeHint::default(),
        }
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(server: Arc<Server>, mut socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut first = [0; HTTP2_PREFACE.len()];
    if socket.peek(&mut first).await.is_ok_and(|n| n > 0 && first[..n] == HTTP2_PREFACE[..n]) {
        // No HTTP/1.1 request of ours begins with P, R, I: POST differs at the second letter.
        let answer = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                      connection: close\r\ncontent-length: 30\r\n\r\nInvalid HTTP request received.";
        if first.starts_with(b"PRI") {
            let _ = socket.write_all(answer.as_bytes()).await;
            return;
        }
    }
    let link = Arc::new(Link::default());
    let mut closing = server.closing();
    let service = service_fn(|request| {
        let busy = Busy::new(&link);
        let (server, link) = (Arc::clone(&server), Arc::clone(&link));
        Box::pin(async move {
            let answer = server.answer(request, &link).await;
            Ok::<_, Infallible>(answer.map(|content| Answer { content, _busy: busy }))
        })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    loop {
        let idle = link.used.load(Ordering::Relaxed) && link.active.load(Ordering::Relaxed) == 0;
        tokio::select! {
            _ = &mut connection => return,
            () = link.changed.notified() => {}
            () = tokio::time::sleep(server.config().keep_alive), if idle => break,
            _ = closing.wait_for(|closed| *closed) => break,
            () = link.reset.notified() => {
                let _ = connection.into_parts().io.into_inner().set_zero_linger();
                return;
            }
        }
    }
    Pin::new(&mut connection).graceful_shutdown();
    let _ = tokio::time::timeout(FLUSH, connection).await;
}
