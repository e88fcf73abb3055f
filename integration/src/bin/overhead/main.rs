//! What the filter costs Envoy in CPU time.
//!
//! Two Envoys differ in one thing, the filter or the way it counts tokens, and both are loaded in
//! turn within one run: one arm, the other, and the other way round in the next round. So a machine
//! that grows slower meanwhile slows both arms. Each round has Envoys of its own, because two
//! processes of the very same configuration differ by several percent as long as they live. What is
//! judged is the median over the rounds of one round's difference. CPU time is that of the process,
//! from the kernel, so neither the clients nor the engine count; they only have to keep the worker
//! busy and never queue.

mod count;
mod hostile;
mod paired;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use slogate_integration::harness::{
    Bootstrap, Chat, Gate, GateBuilder, Script, Upstream, wasm_module,
};

use paired::{Rounds, Work, added, median};

/// Chunks of one stream.
const STREAM: usize = 1_000;

/// Megabytes.
const MIB: f64 = 1_048_576.0;

/// Measures the CPU time Envoy spends with the filter and without it.
#[derive(Debug, Parser)]
#[command(name = "overhead", version)]
struct Args {
    /// What to measure
    #[arg(value_enum, default_value_t = What::Filter)]
    what: What,
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
    /// The tokenizer that is compared with the estimate, or meets the hostile bodies
    #[arg(long, default_value = "deepseek-v4")]
    tokenizer: String,
    /// English text to cut prompts from, instead of generated ones
    #[arg(long, value_name = "FILE")]
    english: Option<PathBuf>,
    /// Chinese text to cut prompts from, instead of generated ones
    #[arg(long, value_name = "FILE")]
    chinese: Option<PathBuf>,
    /// Prints JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The filter against Envoy without it
    Filter,
    /// A tokenizer against the estimate in the same filter
    Count,
    /// Bodies of a megabyte that were made to be expensive
    Hostile,
    /// Size of the module, memory of its instances
    Memory,
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
    match args.what {
        What::Filter => filter(&args, &engine).await,
        What::Count => counting(&args, &engine).await,
        What::Hostile => hostile(&args, &engine).await,
        What::Memory => memory(&args, &engine).await,
    }
}

fn builder(engine: &Upstream) -> GateBuilder {
    Gate::builder()
        .workers(1)
        .cluster("vllm_deepseek_v4", engine.addr())
        .cluster("vllm_deepseek_coder", engine.addr())
        // As shipped: what Envoy does ten times a second for the tests is no part of the cost.
        .edit(|bootstrap| {
            if let Some(document) = bootstrap.document_mut().as_object_mut() {
                document.remove("stats_flush_interval");
            }
            Ok(())
        })
}

/// An Envoy with the filter.
fn filtered(args: &Args, engine: &Upstream) -> GateBuilder {
    match &args.wasm {
        Some(wasm) => builder(engine).wasm(wasm),
        None => builder(engine),
    }
}

/// An Envoy with the filter and this tokenizer.
async fn tokenizing(args: &Args, engine: &Upstream, tokenizer: &str) -> Result<Gate> {
    let gate = filtered(args, engine).policy(count::policy(tokenizer)?).start().await;
    gate.with_context(|| format!("with the tokenizer {tokenizer}"))
}

async fn filter(args: &Args, engine: &Upstream) -> Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    let works = works(args);
    let mut results: Vec<Rounds> = works.iter().map(|_| Rounds::default()).collect();
    for _ in 0..args.rounds {
        let without = match &args.against {
            Some(wasm) => builder(engine).wasm(wasm),
            None => builder(engine).without_filter(),
        };
        let without = without.start().await?;
        let mut with = filtered(args, engine);
        if let Some(path) = &args.log_format {
            let format: Value = serde_json::from_slice(
                &std::fs::read(path).with_context(|| format!("reading {}", path.display()))?,
            )?;
            with = with.edit(move |bootstrap: &mut Bootstrap| {
                bootstrap.manager()?["access_log"][0]["typed_config"]["log_format"] = format;
                Ok(())
            });
        }
        let with = with.start().await?;
        for (work, rounds) in works.iter().zip(&mut results) {
            paired::round(rounds, work, [&without, &with], args.connections, time).await?;
        }
    }
    print(args, &works, &results, "bare Envoy");
    Ok(())
}

async fn counting(args: &Args, engine: &Upstream) -> Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    let (works, targets): (Vec<_>, Vec<_>) =
        count::works(args.english.as_ref(), args.chinese.as_ref())?.into_iter().unzip();
    let mut results: Vec<Rounds> = works.iter().map(|_| Rounds::default()).collect();
    for _ in 0..args.rounds {
        let estimate = tokenizing(args, engine, "estimate").await?;
        let exact = tokenizing(args, engine, &args.tokenizer).await?;
        for (work, rounds) in works.iter().zip(&mut results) {
            paired::round(rounds, work, [&estimate, &exact], args.connections, time).await?;
        }
    }
    print(args, &works, &results, "the filter with the estimate");
    if !args.json {
        for ((work, rounds), target) in works.iter().zip(&results).zip(targets) {
            println!(
                "{}: {:.0} tokens counted (mean), {:.0} us added, target {target:.0}",
                work.name,
                median(&rounds.tokens),
                median(&added(rounds).0),
            );
        }
    }
    Ok(())
}

async fn hostile(args: &Args, engine: &Upstream) -> Result<()> {
    let without = builder(engine).without_filter().start().await?;
    let with = tokenizing(args, engine, &args.tokenizer).await?;
    let mut results = Vec::new();
    for (name, body) in hostile::bodies() {
        let (mut bare, mut gate) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            bare.push(hostile::measure(&without, &body).await?);
            gate.push(hostile::measure(&with, &body).await?);
        }
        let cpu =
            |costs: &[hostile::Cost]| median(&costs.iter().map(|c| c.cpu).collect::<Vec<_>>());
        let block =
            |costs: &[hostile::Cost]| median(&costs.iter().map(|c| c.block).collect::<Vec<_>>());
        let pairs = gate.iter().zip(&bare).map(|(gate, bare)| gate.cpu - bare.cpu);
        let added = median(&pairs.collect::<Vec<_>>());
        if args.json {
            results.push(json!({
                "body": name, "bytes": body.len(), "without_ms": cpu(&bare), "with_ms": cpu(&gate),
                "added_ms": added, "block_without_ms": block(&bare), "block_with_ms": block(&gate),
            }));
        } else {
            println!(
                "{name} ({:.2} MiB): without {:.1} ms, with {:.1} ms of CPU a request; added {added:.1} ms; \
                 longest wait of another client {:.1} ms without, {:.1} ms with",
                body.len() as f64 / MIB,
                cpu(&bare),
                cpu(&gate),
                block(&bare),
                block(&gate),
            );
        }
    }
    if args.json {
        println!("{:#}", Value::from(results));
    }
    Ok(())
}

/// Workers that are added to see what one more takes.
const MORE_WORKERS: usize = 4;

async fn memory(args: &Args, engine: &Upstream) -> Result<()> {
    let wasm = args.wasm.clone().map_or_else(wasm_module, Ok)?;
    let module = std::fs::metadata(&wasm)?.len() as f64 / MIB;
    // The difference between few and many workers is that of the workers' own instances.
    let mut resident = Vec::new();
    for tokenizer in [None, Some("estimate"), Some(args.tokenizer.as_str())] {
        let mut sizes = [0.0; 2];
        for (size, workers) in sizes.iter_mut().zip([1, 1 + MORE_WORKERS]) {
            let gate = match tokenizer {
                None => builder(engine).without_filter(),
                Some(name) => filtered(args, engine).policy(count::policy(name)?),
            };
            let gate = gate.workers(workers).start().await?;
            *size = gate.resident_bytes()? as f64 / MIB;
        }
        resident.push((sizes[1] - sizes[0]) / MORE_WORKERS as f64);
    }
    let [bare, estimate, exact] = resident[..] else { return Ok(()) };
    let (estimate, exact) = (estimate - bare, exact - bare);
    if args.json {
        let value = json!({"module_mib": module, "estimate_mib": estimate, "exact_mib": exact});
        println!("{value:#}");
    } else {
        println!("module {module:.2} MiB");
        println!(
            "resident memory of Envoy a worker's instance, at rest: {estimate:.1} MiB with the \
             estimate, {exact:.1} MiB with {}",
            args.tokenizer
        );
    }
    Ok(())
}

fn works(args: &Args) -> Vec<Work> {
    let mut works = Vec::new();
    for bytes in &args.bodies {
        let empty = Chat::new("deepseek-v4").content("").bytes().len();
        let text = "The river runs down to a quiet town. ";
        let content: String = text.chars().cycle().take(bytes.saturating_sub(empty)).collect();
        works.push(Work {
            name: format!("{bytes} B body"),
            chats: Arc::new(vec![Chat::new("deepseek-v4").content(&content)]),
            units: 1,
            unit: "request",
        });
    }
    if !args.no_streams {
        works.push(Work {
            name: format!("stream of {STREAM} chunks"),
            chats: Arc::new(vec![Chat::new("deepseek-v4").stream()]),
            units: STREAM,
            unit: "chunk",
        });
    }
    works
}

fn print(args: &Args, works: &[Work], results: &[Rounds], base: &str) {
    let all = || works.iter().zip(results);
    if args.json {
        let values: Value = all().map(|(work, rounds)| as_json(work, rounds)).collect();
        println!("{values:#}");
    } else {
        all().for_each(|(work, rounds)| print!("{}", as_table(work, rounds, base)));
    }
}

fn as_table(work: &Work, rounds: &Rounds, base: &str) -> String {
    let (micros, share) = added(rounds);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: without {:.2} us, with {:.2} us a {unit}; added {:.2} us, {:.2} of {base} (medians of {} rounds, {:.0} {unit}s/s)",
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
