//! What the tests of the filter in a real Envoy share: policies, crowds of clients, one raw
//! connection, and the look at what is left over.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::Digest as _;
use slogate_integration::harness::{
    Answer, Chat, Client, Gate, GateBuilder, Stats, Upstream, eventually, workspace_root,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

/// Nothing takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Numbers of workers that each property holds for.
pub const WORKERS: [usize; 3] = [1, 2, 4];
/// The model of [`policy`].
pub const MODEL: &str = "m";
/// The cluster of that model; it exists in the shipped bootstrap.
pub const CLUSTER: &str = "vllm_deepseek_v4";

/// One model with so many permits and one tier `t` with this queue.
pub fn policy(permits: u32, queue: &Value) -> Value {
    json!({
        "models": [{"name": MODEL, "cluster": CLUSTER, "max_in_flight": permits}],
        "tiers": [{"name": "t", "queue": queue}],
    })
}

/// A queue that is never full and never too slow.
pub fn patient() -> Value {
    json!({"capacity": 10000, "max_wait": "60s"})
}

/// An Envoy in front of one engine.
pub fn gate(upstream: &Upstream, workers: usize, policy: Value) -> GateBuilder {
    Gate::builder().workers(workers).cluster(CLUSTER, upstream.addr()).policy(policy)
}

/// What a policy has of a key.
pub fn sha256(key: &str) -> String {
    sha2::Sha256::digest(key).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// One request on a connection of its own.
pub async fn ask(addr: SocketAddr, chat: Chat) -> Result<Answer> {
    Client::http1(addr).await?.send(chat).await
}

/// So many requests at once, each on a connection of its own.
pub fn crowd(addr: SocketAddr, chats: impl IntoIterator<Item = Chat>) -> JoinSet<Result<Answer>> {
    let mut crowd = JoinSet::new();
    for chat in chats {
        crowd.spawn(ask(addr, chat));
    }
    crowd
}

/// All answers of a crowd.
pub async fn answers(crowd: JoinSet<Result<Answer>>) -> Result<Vec<Answer>> {
    tokio::time::timeout(PATIENCE, crowd.join_all())
        .await
        .context("some requests were not answered")?
        .into_iter()
        .collect()
}

/// Waits until so many requests run at the engine.
pub async fn running(upstream: &Upstream, requests: usize) -> Result<()> {
    eventually(
        "requests run",
        PATIENCE,
        async || Ok((upstream.running() == requests).then_some(())),
    )
    .await
}

/// Waits until so many requests wait in the gate.
pub async fn waiting(gate: &Gate, requests: u64) -> Result<Stats> {
    gate.wait_for_stats("requests wait", PATIENCE, |stats| {
        stats.sum("slogate_queue_depth", &[]) == requests
    })
    .await
}

/// Waits until nothing runs and nothing waits, with so many requests ended in all.
pub async fn settled(gate: &Gate, requests: u64) -> Result<Stats> {
    let stats = gate
        .wait_for_stats("all gauges are at zero and all requests counted", PATIENCE, |stats| {
            stats.sum("slogate_in_flight", &[]) == 0
                && stats.sum("slogate_queue_depth", &[]) == 0
                && stats.sum("slogate_requests", &[]) >= requests
        })
        .await;
    let stats = match stats {
        Ok(stats) => stats,
        Err(error) => return Err(error.context(filter_stats(&gate.stats().await?))),
    };
    assert_eq!(stats.sum("slogate_requests", &[]), requests, "{}", filter_stats(&stats));
    assert_eq!(stats.sum("slogate_shared_state_errors", &[]), 0);
    Ok(stats)
}

/// The filter's stats that are not zero, for messages.
pub fn filter_stats(stats: &Stats) -> String {
    let all = stats.starting_with("wasmcustom.").filter(|(_, value)| *value > 0);
    all.fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

/// Requests that ended so.
pub fn outcome(stats: &Stats, outcome: &str) -> u64 {
    stats.sum("slogate_requests", &[("outcome", outcome)])
}

/// Waits until so many requests ended so. Counters reach the page with the filter's next tick.
pub async fn counted(gate: &Gate, outcome: &str, requests: u64) -> Result<()> {
    let what = format!("{requests} requests ended in {outcome}");
    let found = |stats: &Stats| self::outcome(stats, outcome) == requests;
    gate.wait_for_stats(&what, PATIENCE, found).await?;
    Ok(())
}

/// Rows `| status | code |` of the table of refusals in the README, and the headers it names.
struct Documented {
    refusals: BTreeSet<(u16, String)>,
    text: String,
}

static DOCUMENTED: LazyLock<Documented> = LazyLock::new(|| {
    let text = std::fs::read_to_string(workspace_root().join("README.md")).expect("a README");
    let refusals = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, status, code] = cells[..] else { return None };
            Some((status.parse().ok()?, code.trim_matches('`').to_owned()))
        })
        .collect();
    Documented { refusals, text }
});

/// Checks that this is a refusal by the gate, in OpenAI's shape and as the README has it, and gives
/// `error.param`.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json().unwrap_or_default();
    assert_eq!(answer.status, status, "{body}");
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(answer.header("x-slogate-reason"), Some(code));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    let kind = match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "service_unavailable_error",
        _ => "invalid_request_error",
    };
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert_eq!(body["request_id"].as_str(), answer.header("x-request-id"), "{body}");
    // The status of refusals that come from waiting is the policy's choice.
    let status = if status == 429 { 503 } else { status };
    let row = (status, code.to_owned());
    assert!(DOCUMENTED.refusals.contains(&row), "the README has no refusal {row:?}");
    for name in answer.headers.keys().filter(|name| name.as_str().starts_with("x-slogate-")) {
        assert!(DOCUMENTED.text.contains(&format!("`{name}`")), "the README has no {name}");
    }
    body["error"]["param"].clone()
}

/// Like [`refused`], and says when to come back.
#[track_caller]
pub fn refused_for_now(answer: &Answer, status: u16, code: &str) {
    refused(answer, status, code);
    let seconds = answer.number("retry-after").expect("retry-after");
    let millis = answer.number("retry-after-ms").expect("retry-after-ms");
    assert!(seconds >= 1.0 && seconds.fract() == 0.0, "{seconds}");
    assert!(millis >= 100.0 && millis <= seconds * 1e3, "{millis} ms, {seconds} s");
}

/// The median of these; they are sorted by it.
pub fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A connection on which a test writes and reads bytes.
pub struct Raw(tokio::net::TcpStream);

impl Raw {
    pub async fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.0.write_all(bytes.as_ref()).await?)
    }

    /// Reads until `done` or the end of the connection.
    pub async fn read_until(&mut self, done: impl Fn(&str) -> bool) -> Result<String> {
        let reading = async {
            let mut bytes = Vec::new();
            loop {
                let text = String::from_utf8_lossy(&bytes);
                if done(&text) || self.0.read_buf(&mut bytes).await? == 0 {
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.context("nothing more came")?
    }

    /// Reads one answer that has a `content-length`: its status and its body.
    pub async fn answer(&mut self) -> Result<(u16, String)> {
        let whole = |text: &str| {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let status = head.split(' ').nth(1)?.parse().ok()?;
            (body.len() >= length.parse().ok()?).then(|| (status, body.to_owned()))
        };
        let text = self.read_until(|text| whole(text).is_some()).await?;
        whole(&text).with_context(|| format!("no answer with a length: {text}"))
    }
}

/// The head of a chat request with these further header lines, each with its end.
pub fn head(lines: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\ncontent-type: application/json\r\n\
         {lines}\r\n"
    )
}

/// How late this machine's timers are while it lives: what a test of an upper bound forgives.
pub struct Lateness {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Lateness {
    pub fn watch() -> Self {
        use std::sync::atomic::{AtomicBool, Ordering};
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let nap = Duration::from_millis(5);
            let mut worst = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                std::thread::sleep(nap);
                worst = worst.max(start.elapsed().saturating_sub(nap));
            }
            worst
        });
        Self { stop, thread }
    }

    /// The worst so far.
    pub fn worst(self) -> Duration {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Milliseconds since 1970 of a time in RFC 3339 with milliseconds and `Z`, as the log has them.
#[track_caller]
pub fn unix_millis(text: &str) -> f64 {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{text}");
    let part = |at: std::ops::Range<usize>| text[at].parse::<i64>().expect("digits");
    // Days by counting, so that nothing is shared with what is tested.
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let (year, month) = (part(0..4), part(5..7));
    let mut days: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    days += lengths.iter().take(usize::try_from(month - 1).expect("a month")).sum::<i64>();
    days += part(8..10) - 1;
    let seconds = ((days * 24 + part(11..13)) * 60 + part(14..16)) * 60 + part(17..19);
    (seconds * 1000 + part(20..23)) as f64
}

/// Milliseconds since 1970 by this machine's clock.
pub fn now_millis() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs_f64() * 1e3
}
