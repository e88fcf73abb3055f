//! Quotas of keys: exact over all workers, whatever comes at once and however it ends.

mod gate;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use gate::{MODEL, PATIENCE, WORKERS, alone, clients, policy, tier};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use slogate_integration::harness::{
    Answer, Chat, Client, Ending, Gate, Script, Upstream, eventually,
};
use tokio::task::JoinSet;

const KEY: &str = "the-shop-key";

/// A model with so many permits that only the quota of the one key limits.
fn quota(quota: &Value) -> Value {
    let mut policy = policy(1_000, &[tier("all", 1)], &[(KEY, "all")]);
    let entry = policy["keys"]["entries"][0].as_object_mut().expect("an entry");
    entry.insert("id".to_owned(), json!("shop"));
    entry.extend(quota.as_object().expect("an object").clone());
    policy
}

/// Sends one request on each client at once and waits for all answers.
async fn at_once(clients: Vec<(Client, Chat)>) -> Result<Vec<Answer>> {
    let mut tasks = JoinSet::new();
    for (mut client, chat) in clients {
        tasks.spawn(async move { client.send(chat).await });
    }
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

fn admitted(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 200).count()
}

fn millis(answer: &Answer) -> Result<u64> {
    Ok(answer.header("retry-after-ms").context("no retry-after-ms")?.parse()?)
}

#[tokio::test]
async fn of_a_hundred_parallel_calls_a_burst_of_ten_gets_in() -> Result<()> {
    let _alone = alone().await;
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(5))).await?;
        let rule = quota(&json!({"requests_per_second": 10, "burst": 10}));
        let gate = gate::gate(&upstream, workers, rule).start().await?;
        let chat = Chat::new(MODEL).key(KEY);
        let clients = clients(&gate, 100, &chat).await?;
        let begun = Instant::now();
        let answers = at_once(clients).await?;
        let took = begun.elapsed();
        // Every tenth of a second brings one more.
        let most = 10 + usize::try_from(took.as_millis() / 100)?;
        let found = admitted(&answers);
        println!("{workers} workers: {found} of 100 got in within {took:?}");
        assert!((10..=most).contains(&found), "{workers} workers: {found} within {took:?}");
        assert_eq!(upstream.seen().len(), found);
        let refused =
            answers.iter().find(|answer| answer.status != 200).context("nobody refused")?;
        assert_eq!(
            (refused.status.as_u16(), refused.header("x-slogate-reason")),
            (429, Some("rate_limit_exceeded"))
        );
        assert_eq!(refused.header("x-ratelimit-limit-requests"), Some("10"));
        assert_eq!(refused.header("ratelimit-policy"), Some("\"requests\";q=10;w=1"));
        let name = "slogate_quota_refusals";
        let refusals = (100 - found) as u64;
        let labels = [("key", "shop"), ("limit", "requests")];
        gate.wait_for_stats("all refusals are counted", PATIENCE, |stats| {
            stats.sum(name, &labels) == refusals
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_waits_as_long_as_told_gets_in() -> Result<()> {
    let _alone = alone().await;
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let rule = quota(&json!({"requests_per_second": 2, "burst": 1}));
    let gate = gate::gate(&upstream, 2, rule).start().await?;
    let mut client = Client::http1(gate.addr()).await?;
    let chat = Chat::new(MODEL).key(KEY);
    assert_eq!(client.send(chat.clone()).await?.status, 200);
    for _ in 0..4 {
        let refused = client.send(chat.clone()).await?;
        assert_eq!(refused.status, 429);
        tokio::time::sleep(Duration::from_millis(millis(&refused)?)).await;
        assert_eq!(client.send(chat.clone()).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn steady_overload_gets_the_rate_within_one_percent() -> Result<()> {
    let _alone = alone().await;
    // Side by side: the load is small, and each takes its 20 s.
    let [one, two, four] = WORKERS.map(steady_overload);
    tokio::try_join!(one, two, four)?;
    Ok(())
}

async fn steady_overload(workers: usize) -> Result<()> {
    const RATE: usize = 20;
    const SPAN: Duration = Duration::from_secs(20);
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let rule = quota(&json!({"requests_per_second": RATE, "burst": 10}));
    let gate = gate::gate(&upstream, workers, rule).start().await?;
    let chat = Chat::new(MODEL).key(KEY);
    let mut tasks = JoinSet::new();
    let begun = tokio::time::Instant::now();
    // Three times the rate, from connections spread over the workers.
    let clients = clients(&gate, 12, &chat).await?;
    let each = Duration::from_secs(12) / (3 * RATE as u32);
    for (number, (mut client, chat)) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut pace = tokio::time::interval_at(begun + each / 12 * number as u32, each);
            let mut times = Vec::new();
            while begun.elapsed() < SPAN {
                pace.tick().await;
                if client.send(chat.clone()).await?.status == 200 {
                    times.push(begun.elapsed());
                }
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(found) = tasks.join_next().await {
        times.extend(found??);
    }
    times.sort();
    let last = times.last().context("nobody got in")?.as_secs_f64();
    let ideal = 10.0 + RATE as f64 * last;
    let found = times.len() as f64;
    println!("{workers} workers: {found} of {ideal:.1} in {last:.2} s");
    assert!((found / ideal - 1.0).abs() <= 0.01, "{workers} workers: {found} of {ideal}");
    Ok(())
}

#[tokio::test]
async fn a_key_with_five_at_once_never_has_six_and_gets_all_back_after_any_ending() -> Result<()> {
    // `SLOGATE_ROUNDS` for more: each is a request, of either kind.
    let rounds = std::env::var("SLOGATE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: usize = rounds.unwrap_or(480);
    let _alone = alone().await;
    for workers in WORKERS {
        let few = Duration::from_millis(3);
        let upstream = Upstream::start_forgetful(move |seen| match seen.header("x-play") {
            Some("stream") => Script::tokens(3, Duration::from_millis(1)),
            Some("dies") => Script::tokens(2, Duration::from_millis(1)).ending(Ending::Reset),
            Some("500") => Script::after(few).status(500),
            Some("hangs") => Script::after(Duration::ZERO).ending(Ending::Hang),
            _ => Script::after(few),
        })
        .await?;
        let gate =
            gate::gate(&upstream, workers, quota(&json!({"max_in_flight": 5}))).start().await?;
        let stay = churn(&gate, &["stream", "dies", "500", "plain"], rounds, None).await?;
        // The engine notices a client that left later than the gate: only before that is its peak
        // the gate's.
        let peak = upstream.peak();
        assert_eq!(peak, 5, "{workers} workers");
        let leave = Some(Duration::from_millis(9));
        let left =
            churn(&gate, &["stream", "dies", "500", "hangs", "plain"], rounds, leave).await?;
        assert!(stay > 0 && left > 0, "nobody was refused");
        // All five are there again: that many hang, and the sixth is refused.
        eventually("five at once", PATIENCE, async || {
            let chat = Chat::new(MODEL).key(KEY);
            let found = admitted(&at_once(clients(&gate, 5, &chat).await?).await?);
            Ok((found == 5).then_some(()))
        })
        .await?;
        println!("{workers} workers: at most {peak} at once, {stay} and {left} refused");
        left_over(&gate, &upstream).await?;
    }
    Ok(())
}

/// Random requests from twelve clients, which give up at random within `patience`; returns how many
/// were refused.
async fn churn(
    gate: &Gate,
    plays: &'static [&'static str],
    requests: usize,
    patience: Option<Duration>,
) -> Result<usize> {
    const CLIENTS: usize = 12;
    let mut tasks = JoinSet::new();
    for seed in 0..CLIENTS {
        let addr = gate.addr();
        tasks.spawn(async move {
            let mut random = SmallRng::seed_from_u64(seed as u64);
            let mut refused = 0;
            for _ in 0..requests / CLIENTS {
                let play = plays[random.random_range(0..plays.len())];
                let mut client = Client::http1(addr).await?;
                let chat = Chat::new(MODEL).key(KEY).header("x-play", play);
                let wait = patience.map_or(PATIENCE, |most| most.mul_f64(random.random()));
                // Else it was broken off by the engine, or left by the client.
                if let Ok(Ok(answer)) = tokio::time::timeout(wait, client.send(chat)).await {
                    refused += usize::from(answer.status == 429);
                }
            }
            anyhow::Ok(refused)
        });
    }
    let mut refused = 0;
    while let Some(found) = tasks.join_next().await {
        refused += found??;
    }
    Ok(refused)
}

/// Nobody is counted whose request is over: exactly five hang, in whichever worker.
async fn left_over(gate: &Gate, upstream: &Upstream) -> Result<()> {
    eventually(
        "the engine is idle",
        PATIENCE,
        async || Ok((upstream.running() == 0).then_some(())),
    )
    .await?;
    let mut hanging = JoinSet::new();
    let chat = Chat::new(MODEL).key(KEY).header("x-play", "hangs");
    for (mut client, chat) in clients(gate, 5, &chat).await? {
        hanging.spawn(async move { client.send(chat).await.map(|answer| answer.status) });
    }
    eventually("five run", PATIENCE, async || Ok((upstream.running() == 5).then_some(()))).await?;
    let mut client = Client::http1(gate.addr()).await?;
    let answer = client.send(Chat::new(MODEL).key(KEY)).await?;
    assert_eq!(answer.header("x-slogate-reason"), Some("concurrency_limit_exceeded"));
    assert_eq!(upstream.running(), 5);
    Ok(())
}
