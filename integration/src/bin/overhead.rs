//! `overhead`: what the filter costs Envoy, in CPU time of the Envoy process.
//!
//! Two Envoys with one worker each, the shipped bootstrap with and without the filter, are loaded
//! in turn within one run: with, without, and the other way round in the next round. So a machine
//! that grows slower meanwhile slows both arms. What is judged is the median over the rounds of the
//! ratio of one round's two figures. CPU time is that of the process, from the kernel, so neither
//! the clients nor the engine count; they only have to keep the worker busy and never queue.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use hyper::body::Body as _;
use serde_json::{Value, json};
use slogate_integration::harness::{Bootstrap, Chat, Client, Gate, Script, Upstream};

/// Chunks of one stream.
const STREAM: usize = 1_000;

/// Measures the CPU time Envoy spends with the filter and without it.
#[derive(Debug, Parser)]
#[command(name = "overhead", version)]
struct Args {
    /// Paired rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of load in each arm of a round
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Keep-alive connections that send one request after another
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Bytes of the request bodies to measure
    #[arg(long, value_delimiter = ',', default_values_t = [200, 8192])]
    bodies: Vec<usize>,
    /// Leaves out the streams
    #[arg(long)]
    no_streams: bool,
    /// The module; dist/slogate.wasm unless given
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// Access log format of the arm `with`, to compare ways of logging: a file with the JSON of
    /// Envoy's `log_format`
    #[arg(long, value_name = "FILE")]
    log_format: Option<PathBuf>,
    /// A module for the arm `without`, to compare two modules
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Prints JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One kind of load.
#[derive(Debug, Clone)]
struct Work {
    name: String,
    chat: Chat,
    /// What one answer counts as: 1, or the chunks of a stream.
    units: usize,
    unit: &'static str,
}

/// Microseconds of CPU a unit, one entry a round.
#[derive(Debug, Default)]
struct Rounds {
    without: Vec<f64>,
    with: Vec<f64>,
    rate: Vec<f64>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let engine = Upstream::start_forgetful(|seen| {
        if seen.field("stream") == Some(Value::Bool(true)) {
            // A pause, or many chunks would leave as one.
            Script::tokens(STREAM, Duration::from_micros(1))
        } else {
            Script::after(Duration::ZERO)
        }
    })
    .await?;
    let with = start(&args, &engine, args.wasm.clone(), true).await?;
    let without = start(&args, &engine, args.against.clone(), args.against.is_some()).await?;

    let mut results = Vec::new();
    for work in works(&args) {
        let rounds = measure(&args, &work, &without, &with).await?;
        if args.json {
            results.push(as_json(&work, &rounds));
        } else {
            print!("{}", as_table(&work, &rounds));
        }
    }
    if args.json {
        println!("{:#}", Value::from(results));
    }
    Ok(())
}

async fn start(
    args: &Args,
    engine: &Upstream,
    wasm: Option<PathBuf>,
    filter: bool,
) -> Result<Gate> {
    let mut gate = Gate::builder()
        .workers(1)
        .cluster("vllm_deepseek_v4", engine.addr())
        .cluster("vllm_deepseek_coder", engine.addr());
    if !filter {
        return gate.without_filter().start().await;
    }
    if let Some(wasm) = wasm {
        gate = gate.wasm(wasm);
    }
    if let Some(path) = &args.log_format {
        let format: Value = serde_json::from_slice(
            &std::fs::read(path).with_context(|| format!("reading {}", path.display()))?,
        )?;
        gate = gate.edit(move |bootstrap: &mut Bootstrap| {
            bootstrap.manager()?["access_log"][0]["typed_config"]["log_format"] = format;
            Ok(())
        });
    }
    gate.start().await
}

fn works(args: &Args) -> Vec<Work> {
    let mut works = Vec::new();
    for bytes in &args.bodies {
        let empty = Chat::new("deepseek-v4").content("").bytes().len();
        let text = "The river runs down to a quiet town. ";
        let content: String = text.chars().cycle().take(bytes.saturating_sub(empty)).collect();
        works.push(Work {
            name: format!("{bytes} B body"),
            chat: Chat::new("deepseek-v4").content(&content),
            units: 1,
            unit: "request",
        });
    }
    if !args.no_streams {
        works.push(Work {
            name: format!("stream of {STREAM} chunks"),
            chat: Chat::new("deepseek-v4").stream(),
            units: STREAM,
            unit: "chunk",
        });
    }
    works
}

async fn measure(args: &Args, work: &Work, without: &Gate, with: &Gate) -> Result<Rounds> {
    let time = Duration::from_secs_f64(args.seconds);
    for gate in [without, with] {
        arm(gate, work, args.connections, time / 4).await?;
    }
    let mut rounds = Rounds::default();
    for round in 0..args.rounds {
        let mut order = [(without, false), (with, true)];
        if round % 2 == 1 {
            order.reverse();
        }
        for (gate, filtered) in order {
            let (cost, rate) = arm(gate, work, args.connections, time).await?;
            if filtered {
                rounds.with.push(cost);
                rounds.rate.push(rate);
            } else {
                rounds.without.push(cost);
            }
        }
    }
    Ok(rounds)
}

/// Loads one Envoy for `time`; microseconds of its CPU a unit, and units a second.
async fn arm(gate: &Gate, work: &Work, connections: usize, time: Duration) -> Result<(f64, f64)> {
    let answers = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut client = Client::http1(gate.addr()).await?;
        let (answers, stop, chat) = (Arc::clone(&answers), Arc::clone(&stop), work.chat.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let mut answer = client.begin(chat.clone()).await?;
                if answer.status() != 200 {
                    bail!("status {} instead of an answer", answer.status());
                }
                while !answer.body().is_end_stream() {
                    let Some(frame) = next(answer.body_mut()).await else { break };
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
    let units = answers.load(Ordering::Relaxed) as f64 * work.units as f64;
    if units == 0.0 {
        bail!("no answer within {time:?}");
    }
    Ok((used.as_secs_f64() * 1e6 / units, units / started.elapsed().as_secs_f64()))
}

async fn next(
    body: &mut hyper::body::Incoming,
) -> Option<Result<hyper::body::Frame<bytes::Bytes>, hyper::Error>> {
    http_body_util::BodyExt::frame(body).await
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// Of each round: what the filter adds, in microseconds and as a share of the arm without it.
fn added(rounds: &Rounds) -> (Vec<f64>, Vec<f64>) {
    let pairs = || rounds.with.iter().zip(&rounds.without);
    (
        pairs().map(|(with, without)| with - without).collect(),
        pairs().map(|(with, without)| with / without - 1.0).collect(),
    )
}

fn as_table(work: &Work, rounds: &Rounds) -> String {
    let (micros, share) = added(rounds);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: without {:.2} us, with {:.2} us a {unit}; added {:.2} us, {:.2} of bare Envoy (medians of {} rounds, {:.0} {unit}s/s)",
        work.name,
        median(&rounds.without),
        median(&rounds.with),
        median(&micros),
        median(&share),
        share.len(),
        median(&rounds.rate),
        unit = work.unit,
    );
    let shares: Vec<String> = share.iter().map(|value| format!("{value:.2}")).collect();
    let _ = writeln!(text, "  added in each round: {}", shares.join(" "));
    text
}

fn as_json(work: &Work, rounds: &Rounds) -> Value {
    let (micros, share) = added(rounds);
    json!({
        "work": work.name,
        "unit": work.unit,
        "without_us": median(&rounds.without),
        "with_us": median(&rounds.with),
        "added_us": median(&micros),
        "added_share": median(&share),
        "rounds": {"without_us": rounds.without, "with_us": rounds.with, "added_share": share},
    })
}
