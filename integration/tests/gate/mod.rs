//! What the tests of the gate under load share: closed-loop clients, and figures made of what the
//! engine saw.
//!
//! The figures allow for what the machine did and not for what the gate did: the engine's own
//! service times, and how late a thread wakes up that does nothing but sleep.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use slogate_integration::harness::{Answer, Chat, Client, Gate, GateBuilder, Seen, Upstream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

pub const MODEL: &str = "deepseek-v4";
pub const CLUSTER: &str = "vllm_deepseek_v4";
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers of workers that everything must hold with.
pub const WORKERS: [usize; 3] = [1, 2, 4];

/// The header by which an engine knows who asks; the gate does not read it.
pub const TAG: &str = "x-tag";

/// Lets one heavy test of a binary run at a time: they would measure each other.
pub async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// A tier whose queue never refuses.
pub fn tier(name: &str, weight: u32) -> Value {
    json!({"name": name, "weight": weight, "queue": {"capacity": 1000, "max_wait": "60s"}})
}

/// One model with these permits, the given tiers, and keys, each with the name of its tier.
pub fn policy(permits: usize, tiers: &[Value], keys: &[(&str, &str)]) -> Value {
    let entry = |(key, tier): &(&str, &str)| {
        let hash = hex(&Sha256::digest(key));
        json!({"id": key, "sha256": hash, "tier": tier})
    };
    let entries: Vec<Value> = keys.iter().map(entry).collect();
    json!({
        "models": [{"name": MODEL, "cluster": CLUSTER, "max_in_flight": permits}],
        "size_classes": [{"name": "short", "max_tokens": 100}, {"name": "long"}],
        "tiers": tiers,
        "keys": {"entries": entries},
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

pub fn gate(upstream: &Upstream, workers: usize, policy: Value) -> GateBuilder {
    Gate::builder().workers(workers).cluster(CLUSTER, upstream.addr()).policy(policy)
}

/// `count` HTTP/1.1 connections with the same request.
pub async fn clients(gate: &Gate, count: usize, chat: &Chat) -> Result<Vec<(Client, Chat)>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push((Client::http1(gate.addr()).await?, chat.clone()));
    }
    Ok(clients)
}

/// `count` HTTP/1.1 connections that `worker` of the gate serves.
pub async fn clients_on(
    gate: &Gate,
    worker: usize,
    count: usize,
    chat: &Chat,
) -> Result<Vec<(Client, Chat)>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push((gate.client_on_worker(worker).await?, chat.clone()));
    }
    Ok(clients)
}

/// An answer and whose it is.
#[derive(Debug)]
pub struct Served {
    /// Place of the client in the list.
    pub client: usize,
    pub answer: Answer,
}

impl Served {
    /// What the gate says it waited, in ms.
    pub fn waited(&self) -> Result<f64> {
        self.answer.number("x-slogate-queue-ms").context("no x-slogate-queue-ms")
    }
}

/// Each client sends its request again as soon as it is answered, until `more` says no to the
/// number of requests sent before. Gives the answers in the order of their sending.
pub async fn closed_loop<F>(clients: Vec<(Client, Chat)>, more: F) -> Result<Vec<Served>>
where
    F: Fn(usize) -> bool + Send + Sync + 'static,
{
    let (more, sent) = (Arc::new(more), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for (number, (mut client, chat)) in clients.into_iter().enumerate() {
        let (more, sent) = (Arc::clone(&more), Arc::clone(&sent));
        tasks.spawn(async move {
            let mut served = Vec::new();
            while more(sent.fetch_add(1, Ordering::SeqCst)) {
                let answer = client.send(chat.clone()).await?;
                served.push(Served { client: number, answer });
            }
            anyhow::Ok(served)
        });
    }
    let mut all = Vec::new();
    while let Some(served) = tasks.join_next().await {
        all.extend(served??);
    }
    for served in &all {
        ensure!(
            served.answer.status == 200,
            "status {}: {:?}",
            served.answer.status,
            served.answer.body
        );
        ensure!(served.answer.broken.is_none(), "an answer broke off");
    }
    all.sort_by_key(|served| served.answer.sent);
    Ok(all)
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The value that this share of all is at or below.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

/// How long the engine had each request, in ms; those that still run are left out.
pub fn service(seen: &[Seen]) -> Vec<f64> {
    seen.iter().filter_map(|seen| Some(ms(seen.ended? - seen.started))).collect()
}

/// The time from each end of a request until its permit ran the next one, in ms. Always `permits`
/// must have run, and somebody must have waited: then the n-th request to end makes place for the
/// n-th after the first `permits`.
pub fn hand_overs(seen: &[Seen], permits: usize) -> Vec<f64> {
    let mut started: Vec<Instant> = seen.iter().map(|seen| seen.started).collect();
    let mut ended: Vec<Instant> = seen.iter().filter_map(|seen| seen.ended).collect();
    started.sort();
    ended.sort();
    let next = started.iter().skip(permits);
    next.zip(&ended).map(|(next, end)| ms(next.saturating_duration_since(*end))).collect()
}

/// Most requests that `of` is true for and that ran side by side.
pub fn peak_of(seen: &[Seen], of: impl Fn(&Seen) -> bool) -> usize {
    let mut changes: Vec<(Instant, bool)> = Vec::new();
    for seen in seen.iter().filter(|seen| of(seen)) {
        changes.push((seen.started, true));
        changes.extend(seen.ended.map(|ended| (ended, false)));
    }
    changes.sort();
    let (mut running, mut peak) = (0_usize, 0);
    for (_, begins) in changes {
        running = if begins { running + 1 } else { running - 1 };
        peak = peak.max(running);
    }
    peak
}

/// Requests per tag.
pub fn by_tag<'a>(seen: impl IntoIterator<Item = &'a Seen>) -> BTreeMap<&'a str, usize> {
    let mut tags = BTreeMap::new();
    for seen in seen {
        *tags.entry(seen.header(TAG).unwrap_or_default()).or_insert(0) += 1;
    }
    tags
}

/// How late threads wake up on this machine while it lives: what no gate can better.
#[derive(Debug)]
pub struct Lateness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<f64>>>,
}

impl Lateness {
    pub fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let pause = Duration::from_millis(2);
            let mut late = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(pause);
                late.push(ms(before.elapsed().saturating_sub(pause)));
            }
            late
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the watch; 99 of 100 times a thread was at most so late, in ms.
    pub fn p99(mut self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        quantile(&late, 0.99)
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
