//! Who is served how much when everybody asks for more than there is.

mod gate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use gate::{
    MODEL, TAG, WORKERS, alone, by_tag, clients, clients_on, closed_loop, mean, policy, tier,
};
use slogate_integration::harness::{Chat, Client, Gate, Script, Seen, Upstream};

const PERMITS: usize = 4;

/// Lets the clients ask until the engine has seen `warm_up + counted` requests, and gives those
/// that are counted and all answers. At their end everybody still asks.
async fn saturate(
    upstream: &Upstream,
    clients: Vec<(Client, Chat)>,
    warm_up: usize,
    counted: usize,
) -> Result<(Vec<Seen>, Vec<gate::Served>)> {
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let running = tokio::spawn(closed_loop(clients, move |_| !stop.load(Ordering::SeqCst)));
    let what = "the engine has seen enough";
    slogate_integration::harness::eventually(what, Duration::from_secs(60), async || {
        // A loop that ended with an error says so below.
        let enough = upstream.seen().len() >= warm_up + counted || running.is_finished();
        Ok(enough.then_some(()))
    })
    .await?;
    over.store(true, Ordering::SeqCst);
    let served = running.await??;
    let mut seen = upstream.seen();
    seen.truncate(warm_up + counted);
    Ok((seen.split_off(warm_up), served))
}

#[tokio::test]
async fn weights_hold_between_tiers_whose_clients_are_on_different_workers() -> Result<()> {
    let _alone = alone().await;
    for workers in WORKERS {
        skewed(workers, &[("gold", 8), ("silver", 3)]).await?;
        skewed(workers, &[("gold", 8), ("silver", 3), ("bronze", 1)]).await?;
    }
    Ok(())
}

async fn skewed(workers: usize, tiers: &[(&'static str, u32)]) -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::from_millis(20))).await?;
    let rules: Vec<_> = tiers.iter().map(|(name, weight)| tier(name, *weight)).collect();
    let keys: Vec<_> = tiers.iter().map(|(name, _)| (*name, *name)).collect();
    let gate: Gate = gate::gate(&upstream, workers, policy(PERMITS, &rules, &keys)).start().await?;
    let mut all = Vec::new();
    for (number, (name, _)) in tiers.iter().enumerate() {
        let chat = Chat::new(MODEL).key(name).header(TAG, name);
        all.extend(clients_on(&gate, number % workers, 10, &chat).await?);
    }
    let (seen, _) = saturate(&upstream, all, 100, 600).await?;
    let counts = by_tag(&seen);
    let weights: u32 = tiers.iter().map(|(_, weight)| weight).sum();
    let mut off = 0.0_f64;
    for (name, weight) in tiers {
        let share = counts.get(name).copied().unwrap_or(0) as f64 / seen.len() as f64;
        let due = f64::from(*weight) / f64::from(weights);
        off = off.max((share / due - 1.0).abs());
    }
    println!("{workers} workers, {tiers:?}: {counts:?}, off by at most {:.1} %", off * 100.0);
    assert!(off <= 0.1, "{workers} workers, {tiers:?}: {counts:?}");
    assert!(upstream.peak() <= PERMITS);
    Ok(())
}

#[tokio::test]
async fn a_greedy_key_waits_behind_itself() -> Result<()> {
    let _alone = alone().await;
    for workers in WORKERS {
        greedy(workers).await?;
    }
    Ok(())
}

async fn greedy(workers: usize) -> Result<()> {
    const MODEST: [&str; 4] = ["a", "b", "c", "d"];
    let upstream = Upstream::start(|_| Script::after(Duration::from_millis(40))).await?;
    let keys: Vec<_> = ["greedy"].iter().chain(&MODEST).map(|key| (*key, "all")).collect();
    let policy = policy(PERMITS, &[tier("all", 1)], &keys);
    let gate: Gate = gate::gate(&upstream, workers, policy).start().await?;
    let chat = |key: &str| Chat::new(MODEL).key(key).header(TAG, key);
    let mut all = clients(&gate, 40, &chat("greedy")).await?;
    for key in MODEST {
        all.extend(clients(&gate, 2, &chat(key)).await?);
    }
    let (seen, served) = saturate(&upstream, all, 200, 500).await?;
    let counts = by_tag(&seen);
    let waits = |greedy: bool| -> Result<Vec<f64>> {
        // Those of the first 40 clients are the greedy key's; the first of each is not counted.
        let of = served.iter().skip(48).filter(|served| (served.client < 40) == greedy);
        of.map(gate::Served::waited).collect()
    };
    let (greedy, modest) = (mean(&waits(true)?), mean(&waits(false)?));
    let share = |key: &str| counts.get(key).copied().unwrap_or(0) as f64 / seen.len() as f64;
    let off = MODEST.iter().map(|key| (share(key) / 0.2 - 1.0).abs()).fold(0.0, f64::max);
    println!(
        "{workers} workers: {counts:?}, off by at most {:.1} %; mean wait {greedy:.0} ms of the \
         greedy key, {modest:.0} ms of the others",
        off * 100.0
    );
    assert!(off <= 0.1, "{workers} workers: {counts:?}");
    assert!(modest < greedy / 4.0, "{workers} workers: {modest:.0} and {greedy:.0} ms");
    assert!(upstream.peak() <= PERMITS);
    Ok(())
}
