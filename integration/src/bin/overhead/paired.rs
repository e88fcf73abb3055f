//! Two Envoys under the same load, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use slogate_integration::harness::{Chat, Client, Gate};

/// One kind of load.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) name: String,
    /// The requests, in turn.
    pub(crate) chats: Arc<Vec<Chat>>,
    /// What one answer counts as: 1, or the chunks of a stream.
    pub(crate) units: usize,
    pub(crate) unit: &'static str,
}

/// Microseconds of CPU a unit, one entry a round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) without: Vec<f64>,
    pub(crate) with: Vec<f64>,
    pub(crate) rate: Vec<f64>,
    /// Prompt tokens as the filter reports them, one entry a round.
    pub(crate) tokens: Vec<f64>,
}

/// What one arm of one round showed.
struct Arm {
    cost: f64,
    rate: f64,
    tokens: f64,
}

/// One round: a warm-up of both, then both for `time`, in an order that changes with the round.
pub(crate) async fn round(
    rounds: &mut Rounds,
    work: &Work,
    [without, with]: [&Gate; 2],
    connections: usize,
    time: Duration,
) -> Result<()> {
    for gate in [without, with] {
        arm(gate, work, connections, time / 4).await?;
    }
    let mut order = [(without, false), (with, true)];
    if rounds.with.len() % 2 == 1 {
        order.reverse();
    }
    for (gate, filtered) in order {
        let arm = arm(gate, work, connections, time).await?;
        if filtered {
            rounds.with.push(arm.cost);
            rounds.rate.push(arm.rate);
            rounds.tokens.push(arm.tokens);
        } else {
            rounds.without.push(arm.cost);
        }
    }
    Ok(())
}

/// Loads one Envoy for `time`.
async fn arm(gate: &Gate, work: &Work, connections: usize, time: Duration) -> Result<Arm> {
    let answers = Arc::new(AtomicU64::new(0));
    let tokens = Arc::new(AtomicU64::new(0));
    let turn = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut client = Client::http1(gate.addr()).await?;
        let (answers, tokens) = (Arc::clone(&answers), Arc::clone(&tokens));
        let (turn, stop, chats) = (Arc::clone(&turn), Arc::clone(&stop), Arc::clone(&work.chats));
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let at = turn.fetch_add(1, Ordering::Relaxed) % chats.len();
                let mut answer = client.begin(chats[at].clone()).await?;
                if answer.status() != 200 {
                    bail!("status {} instead of an answer", answer.status());
                }
                let counted = answer.headers().get("x-slogate-prompt-tokens");
                let counted = counted.and_then(|value| value.to_str().ok()?.parse().ok());
                tokens.fetch_add(counted.unwrap_or(0), Ordering::Relaxed);
                while !answer.body().is_end_stream() {
                    let Some(frame) = answer.body_mut().frame().await else { break };
                    frame?;
                }
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    let started = Instant::now();
    let before = gate.cpu_time()?;
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let used = gate.cpu_time()?.saturating_sub(before);
    let answers = answers.load(Ordering::Relaxed) as f64;
    let units = answers * work.units as f64;
    if units == 0.0 {
        bail!("no answer within {time:?}");
    }
    Ok(Arm {
        cost: used.as_secs_f64() * 1e6 / units,
        rate: units / started.elapsed().as_secs_f64(),
        tokens: tokens.load(Ordering::Relaxed) as f64 / answers,
    })
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// Of each round: what the second arm adds, in microseconds and as a share of the first.
pub(crate) fn added(rounds: &Rounds) -> (Vec<f64>, Vec<f64>) {
    let pairs = || rounds.with.iter().zip(&rounds.without);
    (
        pairs().map(|(with, without)| with - without).collect(),
        pairs().map(|(with, without)| with / without - 1.0).collect(),
    )
}
