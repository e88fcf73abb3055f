//! Streams: the events of one request, as the chunks that a client sees.
//!
//! The response head has long left when the first event is made, for the engine sends it before
//! it queues the request. So an error here can only be an event in a stream that began with 200.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Interval;

use super::ask::{Api, Ask};
use super::engine::{End, Event, Ticket};
use super::metrics::Timings;
use super::reply::{self, ApiError, Head};

/// The body of a streamed answer.
#[derive(Debug)]
pub(crate) struct EventStream {
    ticket: Option<Ticket>,
    chunks: Chunks,
    ready: VecDeque<Bytes>,
    keep_alive: Option<Interval>,
    reset: Arc<Notify>,
    /// The connection is about to be reset; nothing more is sent.
    cut: bool,
}

impl EventStream {
    pub(crate) fn new(
        ticket: Ticket,
        head: Head,
        ask: Ask,
        keep_alive: Option<Interval>,
        reset: Arc<Notify>,
    ) -> Self {
        let left = ask.choices;
        Self {
            ticket: Some(ticket),
            chunks: Chunks { head, ask, left, began: false, made: 0, times: None },
            ready: VecDeque::new(),
            keep_alive,
            reset,
            cut: false,
        }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Frame::data(bytes)));
            }
            if self.cut {
                return Poll::Pending;
            }
            let Some(ticket) = &mut self.ticket else {
                return Poll::Ready(None);
            };
            match ticket.events.poll_recv(cx) {
                Poll::Ready(Some(Event::Token { choice, made, end })) => {
                    self.ready.push_back(self.chunks.token(choice, made, end));
                    if self.chunks.left == 0 {
                        self.ready.push_back(self.chunks.last());
                        self.ticket = None;
                    }
                }
                Poll::Ready(Some(Event::Failed) | None) => {
                    let error = ApiError::engine_died().body;
                    self.ready.push_back(format!("data: {error}\n\ndata: [DONE]\n\n").into());
                    self.ticket = None;
                }
                Poll::Ready(Some(Event::Reset)) => {
                    // The connection drops this body with everything else.
                    self.cut = true;
                    self.reset.notify_one();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let tick = self.keep_alive.as_mut().filter(|_| !self.chunks.began);
                    let Some(tick) = tick else {
                        return Poll::Pending;
                    };
                    if Pin::new(tick).poll_tick(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.ready.push_back(Bytes::from_static(b": keep-alive\n\n"));
                }
            }
        }
    }
}

#[derive(Debug)]
struct Chunks {
    head: Head,
    ask: Ask,
    /// Choices without their end.
    left: usize,
    began: bool,
    /// Tokens of all choices together.
    made: usize,
    times: Option<Timings>,
}

impl Chunks {
    /// The chunks of one token; with the very first one also what begins a stream.
    fn token(&mut self, choice: usize, made: usize, end: Option<(End, Timings)>) -> Bytes {
        let mut text = String::new();
        if !self.began {
            self.began = true;
            self.begin(&mut text);
        }
        self.made += 1;
        if let Some((_, times)) = end {
            self.left -= 1;
            self.times.get_or_insert(times);
        }
        let token = reply::token_text(made - 1, self.head.counting);
        let reason = end.map(|(end, _)| reply::finish_reason(end));
        match self.ask.api {
            Api::Chat => {
                let choice = json!({"index": choice, "delta": {"content": token}, "logprobs": null,
                    "finish_reason": reason});
                self.chunk(&mut text, &choice, made);
            }
            Api::Completions | Api::Embeddings => {
                let choice = json!({"index": choice, "text": token, "logprobs": null,
                    "finish_reason": reason});
                self.chunk(&mut text, &choice, made);
            }
            Api::Responses => {
                named(&mut text, "response.output_text.delta", json!({"delta": token}));
            }
            Api::Messages => named(
                &mut text,
                "content_block_delta",
                json!({"index": 0, "delta": {"type": "text_delta", "text": token}}),
            ),
        }
        text.into()
    }

    fn begin(&self, text: &mut String) {
        let head = &self.head;
        match self.ask.api {
            Api::Chat => {
                for index in 0..self.ask.choices {
                    let choice = json!({"index": index, "delta": {"role": "assistant", "content": ""},
                        "logprobs": null, "finish_reason": null});
                    self.chunk(text, &choice, 0);
                }
            }
            Api::Completions | Api::Embeddings => {}
            Api::Responses => named(
                text,
                "response.created",
                json!({"response": {"id": head.id, "model": head.model, "status": "in_progress"}}),
            ),
            Api::Messages => {
                named(
                    text,
                    "message_start",
                    json!({"message": {"id": head.id, "type": "message",
                    "role": "assistant", "model": head.model, "content": [],
                    "usage": reply::usage(&self.ask, 0)}}),
                );
                named(
                    text,
                    "content_block_start",
                    json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
                );
            }
        }
    }

    /// One unnamed chunk, with usage where every chunk has it.
    fn chunk(&self, text: &mut String, choice: &Value, made: usize) {
        let mut chunk = self.frame(&json!([choice]));
        if self.ask.continuous_usage {
            chunk["usage"] = reply::usage(&self.ask, made);
        }
        data(text, &chunk);
    }

    fn frame(&self, choices: &Value) -> Value {
        let object = match self.ask.api {
            Api::Chat => "chat.completion.chunk",
            _ => "text_completion",
        };
        json!({"id": self.head.id, "object": object, "created": self.head.created,
            "model": self.head.model, "choices": choices})
    }

    /// What ends a stream.
    fn last(&self) -> Bytes {
        let mut text = String::new();
        match self.ask.api {
            Api::Chat | Api::Completions | Api::Embeddings => {
                if self.ask.include_usage {
                    let mut chunk = self.frame(&json!([]));
                    chunk["usage"] = reply::usage(&self.ask, self.made);
                    if let (true, Some(times)) = (self.head.with_metrics, &self.times) {
                        chunk["metrics"] = reply::metrics(times);
                    }
                    data(&mut text, &chunk);
                }
                text.push_str("data: [DONE]\n\n");
            }
            Api::Responses => named(
                &mut text,
                "response.completed",
                json!({"response": {"id": self.head.id, "model": self.head.model,
                    "status": "completed", "usage": reply::usage(&self.ask, self.made)}}),
            ),
            Api::Messages => {
                named(&mut text, "content_block_stop", json!({"index": 0}));
                named(
                    &mut text,
                    "message_delta",
                    json!({"delta": {"stop_reason": "max_tokens"},
                    "usage": reply::usage(&self.ask, self.made)}),
                );
                named(&mut text, "message_stop", json!({}));
            }
        }
        text.into()
    }
}

fn data(text: &mut String, chunk: &Value) {
    text.push_str("data: ");
    text.push_str(&chunk.to_string());
    text.push_str("\n\n");
}

/// An event with a name, which its data repeat as `type`.
fn named(text: &mut String, name: &str, mut body: Value) {
    body["type"] = name.into();
    text.push_str("event: ");
    text.push_str(name);
    text.push('\n');
    data(text, &body);
}
