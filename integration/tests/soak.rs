//! After a lot of everything: nothing leaks, and every request is counted once.

mod gate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use gate::{MODEL, PATIENCE, WORKERS, alone, policy, tier};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use slogate_integration::harness::{
    Answer, Chat, Client, Ending, Gate, Piece, Script, Stats, Upstream,
};
use tokio::task::JoinSet;

const PERMITS: usize = 6;
const WARM_UP: usize = 2_000;
const REQUESTS: usize = 10_000;
/// The header by which the engine knows what to play.
const PLAY: &str = "x-play";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_and_all_are_counted_after_ten_thousand_mixed_requests() -> Result<()> {
    let _alone = alone().await;
    for workers in WORKERS {
        soak(workers).await?;
    }
    Ok(())
}

async fn soak(workers: usize) -> Result<()> {
    let few = Duration::from_millis(4);
    let upstream = Upstream::start_forgetful(move |seen| match seen.header(PLAY) {
        Some("stream") => Script::tokens(4, Duration::from_millis(2)),
        Some("dies") => Script::tokens(2, Duration::from_millis(2)).ending(Ending::Reset),
        Some("resets") => Script::after(few).without_body().ending(Ending::Reset),
        Some("400") => Script::after(few).status(400),
        Some("500") => Script::after(few).status(500),
        Some("slow") => Script::after(Duration::from_millis(60)),
        _ => Script::after(few * 2),
    })
    .await?;
    let mut realtime = tier("realtime", 8);
    realtime["queue"]["max_wait"] = json!("15ms");
    let mut standard = tier("standard", 3);
    standard["queue"] = json!({"capacity": 6, "max_wait": "2s"});
    let tiers = [realtime, standard, tier("economy", 1)];
    let mut policy = policy(PERMITS, &tiers, &KEYS);
    policy["max_body_bytes"] = json!(8_192);
    let gate = gate::gate(&upstream, workers, policy).start().await?;

    let started = Instant::now();
    let mut tally = Tally::default();
    tally.add(&round(&gate, WARM_UP, 1).await?);
    settle(&gate, &tally).await?;
    let warm = (gate.resident_bytes()?, machines(&gate.stats().await?));
    tally.add(&round(&gate, REQUESTS, 2).await?);
    let stats = settle(&gate, &tally).await?;
    let end = (gate.resident_bytes()?, machines(&stats));

    println!(
        "{workers} workers: {} sent, {} cut, {} engine peak, in {:.1} s; memory {:.1} -> {:.1} MiB; answers {:?}",
        tally.sent,
        tally.cut,
        upstream.peak(),
        started.elapsed().as_secs_f64(),
        warm.0 as f64 / 1_048_576.0,
        end.0 as f64 / 1_048_576.0,
        tally.answers,
    );
    println!("{workers} workers: outcomes {:?}", outcomes(&stats));
    assert!(tally.cut * 5 >= tally.sent, "{workers} workers: only {} left", tally.cut);
    let counted = outcomes(&stats);
    let count = |outcome: &str| counted.get(outcome).copied().unwrap_or(0);
    for outcome in ["left_waiting", "left_running", "engine_error", "invalid_request"] {
        assert!(count(outcome) > 0, "{workers} workers: no {outcome}");
    }
    let refused = ["queue_timeout", "queue_wait_too_long", "queue_full"].map(count);
    assert!(refused.iter().sum::<u64>() > 0, "{workers} workers: nobody was refused");
    // The engine's peak says nothing here: it notices a client that left later than the gate does.
    // One instance per worker, one on the main thread, and Envoy's base instance.
    assert_eq!((warm.1, end.1), (workers as u64 + 2, workers as u64 + 2));
    assert_eq!(upstream.running(), 0, "{workers} workers");
    // What the allocators keep of a peak differs from run to run; 10,000 requests that leaked a
    // kilobyte each would show.
    let bound = warm.0 + warm.0 / 10 + (8 << 20);
    assert!(end.0 <= bound, "{workers} workers: memory grew from {} to {}", warm.0, end.0);
    for mut client in [Client::http1(gate.addr()).await?, Client::http2(gate.addr()).await?] {
        assert_eq!(client.send(Chat::new(MODEL)).await?.status, 200, "it serves on");
    }
    Ok(())
}

/// The keys and their tiers; keys that are not listed are in the last tier.
const KEYS: [(&str, &str); 4] =
    [("r1", "realtime"), ("r2", "realtime"), ("s1", "standard"), ("s2", "standard")];

/// What was sent, as the clients know it.
#[derive(Debug, Default, Clone)]
struct Tally {
    sent: u64,
    /// Given up by the client before the answer was complete.
    cut: u64,
    /// Outcomes of those that were answered.
    answers: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.cut += other.cut;
        for (name, count) in &other.answers {
            *self.answers.entry(name.clone()).or_default() += count;
        }
    }
}

/// Sends `count` requests from 32 clients, half of them on HTTP/2.
async fn round(gate: &Gate, count: usize, seed: u64) -> Result<Tally> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let (addr, next) = (gate.addr(), Arc::clone(&next));
        let mut dice = SmallRng::seed_from_u64(seed * 1_000 + number);
        tasks.spawn(async move {
            let mut tally = Tally::default();
            let http2 = number % 2 == 0;
            let mut open: Option<Client> = None;
            while next.fetch_add(1, Ordering::SeqCst) < count {
                let mut client = match open.take() {
                    Some(client) => client,
                    None if http2 => Client::http2(addr).await?,
                    None => Client::http1(addr).await?,
                };
                let leaves = dice.random_bool(0.32);
                let patience = if leaves {
                    Duration::from_micros(dice.random_range(1_000..25_000))
                } else {
                    Duration::from_secs(60)
                };
                let chat = any_chat(&mut dice);
                tally.sent += 1;
                let Ok(answer) = tokio::time::timeout(patience, client.send(chat)).await else {
                    ensure!(leaves, "no answer in {patience:?}");
                    tally.cut += 1;
                    // On HTTP/2 the stream is reset; sometimes the whole connection goes.
                    open = Some(client).filter(|_| http2 && dice.random_bool(0.8));
                    continue;
                };
                let answer = answer?;
                *tally.answers.entry(outcome_of(&answer)).or_default() += 1;
                let closes = answer.broken.is_some()
                    || answer.header("connection") == Some("close")
                    || answer.status == 413;
                open = Some(client).filter(|_| !closes || http2);
            }
            anyhow::Ok(tally)
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        all.add(&tally??);
    }
    Ok(all)
}

fn any_chat(dice: &mut SmallRng) -> Chat {
    let key = ["r1", "r2", "s1", "s2", "stranger", "other stranger"][dice.random_range(0..6)];
    let chat = Chat::new(MODEL).key(key).words(dice.random_range(1..300));
    match dice.random_range(0..100) {
        0..30 => chat.header(PLAY, "stream").stream(),
        30..36 => chat.header(PLAY, "dies").stream(),
        36..42 => chat.header(PLAY, "resets"),
        42..45 => chat.header(PLAY, "400"),
        45..48 => chat.header(PLAY, "500"),
        48..52 => chat.header(PLAY, "slow"),
        52..55 => chat.body("{\"model\": nothing}"),
        55..57 => chat.body(format!("{{\"model\":\"{MODEL}\",\"model\":\"x\",\"messages\":[]}}")),
        57..59 => chat.field("model", json!("unheard-of")),
        59..61 => chat.words(4_000),
        61..64 => {
            // Some leave in the middle of the body.
            let body = chat.bytes();
            let (head, tail) = body.split_at(body.len() / 2);
            chat.clone().pieces(vec![
                Piece::Data(Bytes::copy_from_slice(head)),
                Piece::Pause(Duration::from_millis(15)),
                Piece::Data(Bytes::copy_from_slice(tail)),
            ])
        }
        _ => chat,
    }
}

/// What the gate must have counted this answer as.
fn outcome_of(answer: &Answer) -> String {
    let reason = answer.header("x-slogate-reason").unwrap_or_default();
    match answer.status.as_u16() {
        200 if answer.broken.is_none() => "ok",
        _ if reason == "invalid_request_error" => "invalid_request",
        _ if !reason.is_empty() => reason,
        400 => "client_error",
        _ => "engine_error",
    }
    .to_owned()
}

fn outcomes(stats: &Stats) -> BTreeMap<String, u64> {
    let mut outcomes = BTreeMap::new();
    for (labels, count) in stats.metric("slogate_requests") {
        *outcomes.entry(labels["outcome"].to_owned()).or_default() += count;
    }
    outcomes
}

/// Instances of the module.
fn machines(stats: &Stats) -> u64 {
    stats.get("wasm.envoy.wasm.runtime.v8.active")
}

/// Waits until everything is over, and checks the account.
async fn settle(gate: &Gate, tally: &Tally) -> Result<Stats> {
    const RECEIVED: &str = "http.gateway.downstream_rq_total";
    let over = |stats: &Stats| {
        let sum = |name| stats.sum(name, &[]);
        sum("slogate_in_flight") == 0
            && sum("slogate_queue_depth") == 0
            && stats.get("http.gateway.downstream_rq_active") == 0
            && sum("slogate_requests") == stats.get(RECEIVED)
    };
    let stats = match gate.wait_for_stats("all gauges are zero", PATIENCE, over).await {
        Ok(stats) => stats,
        Err(error) => {
            let stats = gate.stats().await?;
            let received = stats.get(RECEIVED);
            let gauges =
                ["slogate_in_flight", "slogate_queue_depth"].map(|name| stats.sum(name, &[]));
            let outcomes = outcomes(&stats);
            return Err(error.context(format!("{received}, {gauges:?}, {outcomes:?}, {tally:?}")));
        }
    };
    // A request that is given up at once may never have left the client.
    let received = stats.get(RECEIVED);
    ensure!((tally.sent - tally.cut..=tally.sent).contains(&received), "{received}: {tally:?}");
    // Who gave up is counted by what became of the request before the gate knew.
    let outcomes = outcomes(&stats);
    let mut extra = 0;
    for (name, count) in &outcomes {
        let known = tally.answers.get(name).copied().unwrap_or(0);
        ensure!(*count >= known, "{name}: {count} counted, {known} answered");
        extra += count - known;
    }
    ensure!(extra <= tally.cut, "{outcomes:?}, {tally:?}");
    ensure!(tally.answers.keys().all(|name| outcomes.contains_key(name)), "{tally:?}");
    Ok(stats)
}
