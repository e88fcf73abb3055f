//! A client on bare sockets, so that the tests see when head, first data and end arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use slogate_integration::sim::Sim;

/// Far above anything measured here; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer with the times of its parts since the request was sent.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub head_at: Duration,
    pub first_data_at: Duration,
    pub end_at: Duration,
    /// The connection ended with a reset.
    pub reset: bool,
    /// Whether anything came at all.
    pub bytes: usize,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|err| panic!("{err}: {}", self.body))
    }

    /// The data of a stream's events, without the `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    pub fn ends_with_done(&self) -> bool {
        self.body.ends_with("data: [DONE]\n\n")
    }
}

/// A request sent; dropping it closes the connection.
#[derive(Debug)]
pub struct Sent {
    pub socket: TcpStream,
    at: Instant,
}

impl Sent {
    pub fn read(mut self) -> Answer {
        let mut raw = Vec::new();
        let mut answer = Answer::default();
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => raw.extend_from_slice(&buffer[..n]),
                Err(err) if err.kind() == ErrorKind::ConnectionReset => {
                    answer.reset = true;
                    break;
                }
                Err(err) => panic!("no end of the answer: {err}"),
            }
            let head_end = find(&raw, b"\r\n\r\n").map(|at| at + 4);
            if head_end.is_some() && answer.head_at.is_zero() {
                answer.head_at = self.at.elapsed();
            }
            if head_end.is_some_and(|end| raw.len() > end) && answer.first_data_at.is_zero() {
                answer.first_data_at = self.at.elapsed();
            }
        }
        answer.end_at = self.at.elapsed();
        answer.bytes = raw.len();
        let Some(head_end) = find(&raw, b"\r\n\r\n") else {
            return answer;
        };
        answer.head = String::from_utf8(raw[..head_end].to_vec()).unwrap();
        answer.status = answer.head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = &raw[head_end + 4..];
        let chunked = answer.header("transfer-encoding") == Some("chunked");
        let body = if chunked { unchunk(body) } else { body.to_vec() };
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    pub fn read_in_background(self) -> JoinHandle<Answer> {
        std::thread::spawn(move || self.read())
    }

    /// Sends a FIN and keeps reading.
    pub fn half_close(self) -> Self {
        self.socket.shutdown(Shutdown::Write).unwrap();
        self
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Takes as many chunks as are complete.
fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = find(bytes, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap(), 16).unwrap();
        let Some(chunk) = bytes.get(at + 2..at + 2 + size) else {
            break;
        };
        whole.extend_from_slice(chunk);
        bytes = bytes.get(at + 2 + size + 2..).unwrap_or_default();
    }
    whole
}

/// Sends bytes as they are.
pub fn send_raw(sim: &Sim, request: &[u8]) -> Sent {
    let mut socket = TcpStream::connect(sim.addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    let at = Instant::now();
    socket.write_all(request).unwrap();
    Sent { socket, at }
}

/// Sends a POST with JSON; `more` are further header lines.
pub fn send(sim: &Sim, path: &str, more: &[&str], body: &[u8]) -> Sent {
    let has_type = more.iter().any(|line| line.to_ascii_lowercase().starts_with("content-type"));
    let media = if has_type { "" } else { "content-type: application/json\r\n" };
    let more: String = more.iter().flat_map(|line| [*line, "\r\n"]).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n{media}{more}content-length: {}\r\n\r\n",
        body.len()
    );
    send_raw(sim, &[head.as_bytes(), body].concat())
}

pub fn post(sim: &Sim, path: &str, body: &str) -> Answer {
    send(sim, path, &[], body.as_bytes()).read()
}

pub fn get(sim: &Sim, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n");
    send_raw(sim, request.as_bytes()).read()
}

/// A chat of `tokens` output tokens with an id.
pub fn chat(sim: &Sim, id: &str, tokens: usize, more: &str) -> Sent {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"hello"}}],"ignore_eos":true,"max_tokens":{tokens}{more}}}"#
    );
    let id = format!("x-request-id: {id}");
    send(sim, "/v1/chat/completions", &[&id], body.as_bytes())
}

/// Polls until `done` holds.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
