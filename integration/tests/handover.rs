//! How soon a permit that comes back is in use again, in whichever worker.

mod gate;

use std::time::Duration;

use anyhow::Result;
use gate::{
    Lateness, MODEL, WORKERS, alone, clients, closed_loop, hand_overs, policy, quantile, tier,
};
use slogate_integration::harness::{Chat, Script, Upstream};

#[tokio::test]
async fn a_permit_that_comes_back_is_in_use_again_within_5_ms() -> Result<()> {
    let _alone = alone().await;
    for workers in WORKERS {
        handed_over(workers).await?;
    }
    Ok(())
}

async fn handed_over(workers: usize) -> Result<()> {
    const PERMITS: usize = 4;
    const REQUESTS: usize = 1_000;
    let upstream = Upstream::start(|_| Script::after(Duration::from_millis(20))).await?;
    let policy = policy(PERMITS, &[tier("all", 1)], &[]);
    let gate = gate::gate(&upstream, workers, policy).start().await?;
    let clients = clients(&gate, 48, &Chat::new(MODEL)).await?;
    let lateness = Lateness::watch();
    closed_loop(clients, |sent| sent < REQUESTS).await?;
    let late = lateness.p99();
    let mut gaps = hand_overs(&upstream.seen(), PERMITS);
    assert_eq!(gaps.len(), REQUESTS - PERMITS);
    // At the start no client waits yet, and its requests open the connections to the engine.
    gaps.drain(..PERMITS);
    let p99 = quantile(&gaps, 0.99);
    println!(
        "{workers} workers: permit in use again after {:.2} ms (P50), {p99:.2} ms (P99), {:.2} ms \
         at most; a thread woke up {late:.2} ms late (P99)",
        quantile(&gaps, 0.5),
        quantile(&gaps, 1.0),
    );
    // On the way are four turns of a thread: the engine's that writes the end, the worker's that
    // has the answer, that of the worker with the next request, and the engine's again.
    assert!(p99 <= 5.0 + 4.0 * late, "{workers} workers: {p99:.2} ms, {late:.2} ms late");
    assert_eq!(upstream.peak(), PERMITS, "{workers} workers");
    Ok(())
}
