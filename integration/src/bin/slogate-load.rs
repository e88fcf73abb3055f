//! `slogate-load`: sends chat requests and tells how long they waited. See the library's `load` module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use slogate_integration::load::{
    Arrivals, LoadConfig, MixEntry, Mode, Protocol, Report, TextUnit, TraceOptions, compare,
    read_mix, read_trace, run_until, table,
};

/// Sends chat requests to an OpenAI-style server and reports waiting, latency, refusals and goodput.
///
/// Requests come at a rate or from a trace, whether or not earlier ones were answered, and their
/// times count from the moment at which they were due. Ctrl-C prints what was measured so far.
#[derive(Debug, Parser)]
#[command(
    name = "slogate-load",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = AFTER_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

const AFTER_HELP: &str = "Examples:
  slogate-load --target http://127.0.0.1:10000 --rate 50 --duration 30s --json with.json \\
      --mix name=short,share=0.7,key=sk-a,prompt=50-200,output=16 \\
      --mix name=long,share=0.3,key=sk-b,prompt=2000-4000,output=64,stream=true
  slogate-load --target http://127.0.0.1:10000 --trace azure.csv --speed 4 --limit 1000
  slogate-load --target http://127.0.0.1:10000 --clients 48 --requests 800
  slogate-load compare without.json with.json --label without --label with";

#[derive(Debug, Subcommand)]
enum Command {
    /// Print two reports side by side
    Compare {
        /// Report of the first run, from --json
        left: PathBuf,
        /// Report of the second run
        right: PathBuf,
        /// Heading of a column; give it twice
        #[arg(long, value_name = "TEXT")]
        label: Vec<String>,
    },
}

#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
#[derive(Debug, Args)]
struct RunArgs {
    /// Server to send to, such as `http://127.0.0.1:10000`
    #[arg(long, required = true, value_name = "URL")]
    target: Option<String>,
    /// Path of the requests
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    #[command(flatten)]
    mode: ModeArgs,
    /// How long requests are sent; 10 s where only a rate is given
    #[arg(long, value_parser = time, value_name = "TIME")]
    duration: Option<Duration>,
    /// Requests at equal distances instead of at random times
    #[arg(long, requires = "rate")]
    even: bool,
    /// Play a trace so many times as fast
    #[arg(long, default_value_t = 1.0, requires = "trace")]
    speed: f64,
    /// Only the first requests of a trace
    #[arg(long, requires = "trace", value_name = "N")]
    limit: Option<usize>,
    /// Cut longer prompts of a trace to so many tokens
    #[arg(long, requires = "trace", value_name = "TOKENS")]
    max_prompt: Option<usize>,
    /// Cut longer answers of a trace to so many tokens
    #[arg(long, requires = "trace", value_name = "TOKENS")]
    max_output: Option<usize>,
    /// End a closed loop after so many requests
    #[arg(long, requires = "clients", value_name = "N")]
    requests: Option<u64>,
    /// A kind of request: name=,share=,key=,tier=,model=,prompt=100-300,output=16,stream=true,
    /// language=english|chinese|code,clients=; may be repeated
    #[arg(long, value_name = "FIELDS")]
    mix: Vec<MixEntry>,
    /// The kinds of requests as a JSON list with the same fields
    #[arg(long, conflicts_with = "mix", value_name = "FILE")]
    mix_file: Option<PathBuf>,
    /// Speak HTTP/2 without TLS
    #[arg(long)]
    h2: bool,
    /// Open another HTTP/2 connection above so many requests on one
    #[arg(long, default_value_t = 32, requires = "h2", value_name = "N")]
    h2_streams: usize,
    /// How long a token of a prompt is taken to be
    #[arg(long, value_enum, default_value = "quarter")]
    tokens: Unit,
    /// Seed of times, prompts and kinds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A request that takes longer has failed
    #[arg(long, value_parser = time, default_value = "60s", value_name = "TIME")]
    timeout: Duration,
    /// Report the share of requests that waited longer than this
    #[arg(long, value_parser = time, default_value = "700ms", value_name = "TIME")]
    wait_over: Duration,
    /// Count requests answered within this as good
    #[arg(long, value_parser = time, default_value = "400ms", value_name = "TIME")]
    objective: Duration,
    /// Write the report as JSON to this file; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put each request into the JSON
    #[arg(long, requires = "json")]
    records: bool,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ModeArgs {
    /// Requests per second, at random times (Poisson)
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Times and lengths from a trace: CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or JSON lines
    /// (timestamp in ms, `input_length`, `output_length`)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Closed loop: so many clients, each sends its next request when the last one is answered
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// Four bytes
    Quarter,
    /// One byte: exact against a server that counts bytes
    Byte,
    /// The mean of common tokenizers for each language
    Real,
}

/// Reads `700ms`, `2s`, `1.5s` or `2m`.
fn time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("a time needs a unit: ms, s or m".into()),
    };
    let number: f64 = number.trim().parse().map_err(|_| format!("`{number}` is not a number"))?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(time) if time <= Duration::from_secs(7 * 24 * 3600) => Ok(time),
        _ => Err("a time is from 0 to a week".into()),
    }
}

impl RunArgs {
    fn config(&self) -> anyhow::Result<LoadConfig> {
        // Optional only for the subcommand's sake.
        let target = self.target.as_deref().context("--target is needed")?;
        let mut mix = match &self.mix_file {
            Some(path) => read_mix(path)?,
            None => self.mix.clone(),
        };
        if mix.is_empty() {
            mix.push(MixEntry::named("chat"));
        }
        let protocol =
            if self.h2 { Protocol::H2 { streams: self.h2_streams } } else { Protocol::Http1 };
        Ok(LoadConfig {
            path: self.path.clone(),
            protocol,
            seed: self.seed,
            unit: match self.tokens {
                Unit::Quarter => TextUnit::Quarter,
                Unit::Byte => TextUnit::Byte,
                Unit::Real => TextUnit::Real,
            },
            timeout: self.timeout,
            wait_over: self.wait_over,
            objective: self.objective,
            keep_records: self.records,
            progress: !self.quiet,
            ..LoadConfig::new(target, self.mode()?, mix)
        })
    }

    fn mode(&self) -> anyhow::Result<Mode> {
        if let Some(path) = &self.mode.trace {
            let options = TraceOptions {
                speed: self.speed,
                limit: self.limit,
                duration: self.duration,
                max_prompt: self.max_prompt.unwrap_or(usize::MAX),
                max_output: self.max_output.unwrap_or(usize::MAX),
            };
            return Ok(Mode::Open(Arrivals::Trace(read_trace(path, &options)?)));
        }
        if let Some(clients) = self.mode.clients {
            if self.requests.is_none() && self.duration.is_none() {
                bail!("a closed loop needs --requests or --duration");
            }
            return Ok(Mode::Closed {
                clients,
                requests: self.requests.unwrap_or(u64::MAX),
                duration: self.duration,
            });
        }
        let rate = self.mode.rate.context("one of --rate, --trace and --clients is needed")?;
        let duration = self.duration.unwrap_or(Duration::from_secs(10));
        Ok(Mode::Open(if self.even {
            Arrivals::Constant { rate, duration }
        } else {
            Arrivals::Poisson { rate, duration }
        }))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::Compare { left, right, label }) => print_comparison(left, right, label),
        None => measure(&cli.run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("slogate-load: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_comparison(left: &Path, right: &Path, labels: &[String]) -> anyhow::Result<()> {
    let (a, b) = (Report::read(left)?, Report::read(right)?);
    let labels = match labels {
        [] => ["first", "second"],
        [first, second] => [first.as_str(), second.as_str()],
        _ => bail!("give --label twice, or not at all"),
    };
    print!("{}", compare(&a, &b, labels));
    Ok(())
}

fn measure(args: &RunArgs) -> anyhow::Result<()> {
    let config = args.config()?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(path) = args.json.as_ref().filter(|_| !to_stdout) {
        // A path that cannot be written is better known before the run.
        std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(async {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                eprintln!("stopped; what was measured so far:");
                let _ = stop.send(true);
                // A second one ends the program at once.
                let _ = tokio::signal::ctrl_c().await;
                std::process::exit(130);
            }
        });
        run_until(config, stopped).await
    })?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if !to_stdout {
        print!("{}", table(&report));
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        if to_stdout {
            print!("{json}");
        } else {
            std::fs::write(path, json)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
