//! One stream: Envoy's callbacks in, the engine's verdicts out.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use slogate_policy::engine::{Begin, Ending, Head, Verdict, Watch};
use slogate_policy::ids::StreamId;
use slogate_policy::usage::TAIL;

use crate::apply;
use crate::gate::{self, Bodiless, Gate, SharedGate};
use crate::host::{self, Buffer, HeaderMap};

/// Bytes of one piece of an answer that are looked at for the first token.
const WATCHED: usize = 64 * 1024;

/// One HTTP stream.
pub(crate) struct Stream {
    id: u32,
    gate: Option<SharedGate>,
    hold: Hold,
    /// What the engine wants to see of the answer's data.
    watch: Watch,
    /// The answer was sent to its end.
    complete: bool,
}

/// What the engine knows of a stream. Forward only, from any to any later one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Nothing: it passes.
    Nothing,
    /// Its head; the body is awaited.
    Head,
    /// All of it: it was decided about.
    Whole,
}

impl Stream {
    pub(crate) fn new(id: u32, gate: Option<SharedGate>) -> Self {
        Self { id, gate, hold: Hold::Nothing, watch: Watch::Nothing, complete: false }
    }

    fn stream(&self) -> StreamId {
        StreamId(self.id)
    }

    /// Asks the gate something. `None` only where it is in use, which a callback never finds.
    fn ask<T>(&self, question: impl FnOnce(&mut Gate) -> T) -> Option<T> {
        let mut gate = self.gate.as_ref()?.try_borrow_mut().ok()?;
        Some(question(&mut gate))
    }

    fn decide(&mut self) -> Action {
        match self.hold {
            Hold::Nothing => return Action::Continue,
            Hold::Head => self.hold = Hold::Whole,
            Hold::Whole => return Action::Pause,
        }
        let body = host::buffer(Buffer::RequestBody, usize::MAX).unwrap_or_default();
        let stream = self.stream();
        let decided = self.ask(|gate| {
            let now = gate.now();
            gate.engine.decide(stream, &body, now, &mut gate.port)
        });
        let Some((verdict, others)) = decided else { return Action::Continue };
        apply::all(&others, self.id);
        match verdict {
            Verdict::Admit(cluster) => {
                apply::admit(&cluster);
                Action::Continue
            }
            Verdict::Enqueue => Action::Pause,
            Verdict::Refuse(refusal) => {
                apply::refuse(&refusal, &apply::request_id());
                Action::Pause
            }
        }
    }

    fn end(&mut self, ending: impl FnOnce() -> Ending) {
        if self.hold == Hold::Nothing {
            return;
        }
        self.hold = Hold::Nothing;
        let stream = self.stream();
        let ending = if self.complete { Ending::Complete } else { ending() };
        let ended = self.ask(|gate| {
            let now = gate.now();
            gate.engine.end(stream, ending, now, &mut gate.port)
        });
        if let Some(Some((line, actions))) = ended {
            let _ = host::set_property("slogate.log", line.as_bytes());
            apply::all(&actions, self.id);
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let headers = host::headers(HeaderMap::Request).unwrap_or_default();
        let mut head = Head { end_of_stream, ..Head::default() };
        let (mut bearer, mut x_api_key, mut api_key) = (None, None, None);
        for (name, value) in headers.iter() {
            match name {
                b":method" => head.method = value,
                b":path" => head.path = value,
                b"authorization" => bearer = bearer.or_else(|| bearer_token(value)),
                b"x-api-key" => x_api_key = x_api_key.or(Some(value)),
                b"api-key" => api_key = api_key.or(Some(value)),
                b"content-type" => head.content_type = Some(value),
                b"content-encoding" => head.content_encoding = Some(value),
                b"content-length" => head.content_length = Some(value),
                b"x-request-id" => head.request_id = Some(value),
                b"x-slogate-tier" => head.tier = Some(value),
                b"x-slogate-max-wait-ms" => head.max_wait_ms = Some(value),
                _ => {}
            }
            head.overrides_model |= name.starts_with(b"x-amzn-sagemaker-adapter");
            if name.starts_with(b"x-slogate-") {
                let _ = host::remove_header(HeaderMap::Request, name);
            }
        }
        head.key = bearer.or(x_api_key).or(api_key);
        let stream = self.stream();
        let begun = self.ask(|gate| {
            let clock = gate.clock();
            let begun = gate.engine.begin(stream, &head, || clock.now());
            if begun == Begin::Hold && !gate.body_seen {
                let before = gate::bytes_received();
                gate.bodiless.extend(before.map(|before| Bodiless { stream, before, grown: None }));
            }
            begun
        });
        match begun {
            Some(Begin::Hold) => {
                self.hold = Hold::Head;
                Action::Pause
            }
            Some(Begin::Refuse(refusal)) => {
                self.hold = Hold::Whole;
                apply::refuse(&refusal, &apply::request_id());
                Action::Pause
            }
            Some(Begin::Pass) | None => Action::Continue,
        }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        match self.hold {
            Hold::Nothing => return Action::Continue,
            Hold::Head => {}
            Hold::Whole => return Action::Pause,
        }
        if self.is_too_large(size) || !end_of_stream {
            return Action::Pause;
        }
        self.decide()
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.decide()
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        self.complete = end_of_stream;
        if self.hold == Hold::Nothing {
            return Action::Continue;
        }
        let headers = host::headers(HeaderMap::Response).unwrap_or_default();
        let value = |name: &[u8]| headers.iter().find(|(other, _)| *other == name).map(|(_, v)| v);
        let status =
            value(b":status").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let kind = value(b"content-type").and_then(|kind| kind.get(..17));
        let event_stream = kind.is_some_and(|k| k.eq_ignore_ascii_case(b"text/event-stream"));
        let stream = self.stream();
        let stamp = self.ask(|gate| {
            let now = gate.now();
            gate.engine.respond(stream, status.unwrap_or(0), event_stream, now)
        });
        if let Some(Some(stamp)) = stamp {
            self.watch = stamp.watch;
            apply::stamp(&stamp.headers);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        match self.watch {
            Watch::Beginning if size > 0 => {
                let most = size.min(WATCHED);
                let chunk = host::buffer(Buffer::ResponseBody, most).unwrap_or_default();
                let stream = self.stream();
                let next = self.ask(|gate| {
                    let now = gate.now();
                    gate.engine.data(stream, &chunk, now)
                });
                self.watch = next.unwrap_or_default();
            }
            Watch::Tails if size > 0 => {
                let from = size.saturating_sub(TAIL);
                let tail = host::buffer_from(Buffer::ResponseBody, from, TAIL).unwrap_or_default();
                let stream = self.stream();
                self.ask(|gate| gate.engine.tail(stream, &tail, size));
            }
            _ => {}
        }
        self.complete |= end_of_stream;
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.complete = true;
        Action::Continue
    }

    fn on_log(&mut self) {
        self.end(how_it_was_cut);
    }
}

impl Stream {
    /// Answers a request whose body is over the limit; it is not even read.
    fn is_too_large(&mut self, size: usize) -> bool {
        let stream = self.stream();
        let refusal = self.ask(|gate| {
            gate.body_seen = true;
            gate.bodiless.clear();
            let clock = gate.clock();
            gate.engine.body_grows(stream, size, || clock.now())
        });
        let Some(Some(refusal)) = refusal else { return false };
        self.hold = Hold::Whole;
        apply::refuse(&refusal, &apply::request_id());
        true
    }
}

/// A stream that Envoy drops without logging it gives back what it held all the same.
impl Drop for Stream {
    fn drop(&mut self) {
        self.end(|| Ending::ClientLeft);
    }
}

/// The token of an `authorization` header with the scheme `Bearer`.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Who broke off an answer that was not sent to its end, by Envoy's response flags: the client where
/// they say so or say nothing, otherwise the engine, the way to it, or a timer of Envoy's own.
fn how_it_was_cut() -> Ending {
    /// The client's connection was closed, its protocol was broken, it reset the stream.
    const DOWNSTREAM: u64 = 1 << 14 | 1 << 18 | 1 << 28;
    let bytes = host::property(&["response", "flags"]).unwrap_or_default();
    let flags = bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if flags == 0 || flags & DOWNSTREAM != 0 { Ending::ClientLeft } else { Ending::EngineCut }
}
