//! The two loops, and the collector that both report to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::bail;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::exchange::{Exchange, Record};
use super::plan::{Arrivals, Maker};
use super::progress::Progress;
use super::report::{Report, Tallies, rounded};
use super::{LoadConfig, Mode};

/// The first request is due so long after the start, to have it prepared in time.
const HEAD_START: Duration = Duration::from_millis(20);

/// What the loops tell the collector.
enum Told {
    Sent(usize),
    Ended(Box<Record>),
}

type Teller = mpsc::UnboundedSender<Told>;

/// Runs a load to its end.
///
/// # Errors
/// The configuration makes no sense, or the target cannot be reached.
pub async fn run(config: LoadConfig) -> anyhow::Result<Report> {
    let (_keep, never) = watch::channel(false);
    run_until(config, never).await
}

/// Runs a load until its end or until `stop` turns true; what was measured so far is reported.
///
/// # Errors
/// As [`run`].
pub async fn run_until(config: LoadConfig, stop: watch::Receiver<bool>) -> anyhow::Result<Report> {
    check(&config)?;
    let client = Client::reach(&config.target, config.protocol).await?;
    let names: Vec<&str> = config.mix.iter().map(|entry| entry.name.as_str()).collect();
    let wait_over_ms = config.wait_over.as_secs_f64() * 1e3;
    let objective_ms = config.objective.as_secs_f64() * 1e3;
    let tallies = Tallies::new(&names, wait_over_ms, objective_ms, config.keep_records);
    let start = Instant::now() + HEAD_START;
    let exchange = Arc::new(Exchange {
        client: Arc::clone(&client),
        path: config.path.clone(),
        timeout: config.timeout,
        mix: config.mix.clone(),
        seed: config.seed,
        start,
    });
    let maker = Arc::new(Maker { mix: config.mix.clone(), seed: config.seed, unit: config.unit });
    let (teller, told) = mpsc::unbounded_channel();
    let collector = tokio::spawn(collect(told, tallies, Progress::new(config.progress)));
    let mut stopped = stop.clone();
    let loops = async {
        match &config.mode {
            Mode::Open(arrivals) => open(arrivals, &exchange, &maker, teller).await,
            Mode::Closed { clients, requests, duration } => {
                let until = duration.map(|duration| start + duration);
                closed(*clients, *requests, until, &exchange, &maker, teller).await;
            }
        }
    };
    // Dropping the loops drops all requests in flight with them.
    let interrupted = tokio::select! {
        () = loops => false,
        () = turned_true(&mut stopped) => true,
    };
    let tallies = collector.await?;
    let elapsed_s = Instant::now().saturating_duration_since(start).as_secs_f64();
    let due_s = match &config.mode {
        Mode::Open(arrivals) => arrivals.duration().as_secs_f64().min(elapsed_s),
        Mode::Closed { .. } => elapsed_s,
    };
    let report = Report {
        target: config.target.clone(),
        load: in_words(&config.mode),
        seed: config.seed,
        elapsed_s: rounded(elapsed_s),
        interrupted,
        connections: client.opened(),
        ..Report::default()
    };
    Ok(tallies.finish(due_s, report))
}

/// Never returns when the sender is gone without having sent true.
async fn turned_true(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn check(config: &LoadConfig) -> anyhow::Result<()> {
    if config.mix.is_empty() {
        bail!("the mix has no entries");
    }
    for (at, entry) in config.mix.iter().enumerate() {
        if config.mix.iter().take(at).any(|other| other.name == entry.name) {
            bail!("two mix entries are named `{}`", entry.name);
        }
    }
    match &config.mode {
        Mode::Open(Arrivals::Poisson { rate, .. } | Arrivals::Constant { rate, .. })
            if !(rate.is_finite() && *rate > 0.0) =>
        {
            bail!("the rate must be above 0")
        }
        Mode::Closed { clients: 0, .. } => bail!("there must be at least one client"),
        _ => Ok(()),
    }
}

fn in_words(mode: &Mode) -> String {
    match mode {
        Mode::Open(Arrivals::Poisson { rate, .. }) => format!("Poisson arrivals, {rate} per s,"),
        Mode::Open(Arrivals::Constant { rate, .. }) => format!("even arrivals, {rate} per s,"),
        Mode::Open(Arrivals::Trace(points)) => format!("trace of {} requests", points.len()),
        Mode::Closed { clients, requests, .. } => {
            format!("closed loop, {clients} clients, {requests} requests,")
        }
    }
}

/// Sends each request when it is due.
///
/// A thread keeps the times: the timers of the runtime round up to a millisecond, which would
/// count as latency of the target.
async fn open(arrivals: &Arrivals, exchange: &Arc<Exchange>, maker: &Arc<Maker>, teller: Teller) {
    let runtime = Handle::current();
    // Dropped with this future, which tells the thread to stop.
    let (_running, stopped) = std::sync::mpsc::channel::<()>();
    let (finished, all_sent) = oneshot::channel();
    let (arrivals, exchange, maker) = (arrivals.clone(), Arc::clone(exchange), Arc::clone(maker));
    let clock = move || {
        let mut requests = JoinSet::new();
        for (number, (at, lengths)) in arrivals.times(maker.seed).enumerate() {
            let due = exchange.start + at;
            let prepared = maker.prepare(number as u64, None, lengths);
            let left = due.saturating_duration_since(Instant::now());
            if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let _ = teller.send(Told::Sent(prepared.entry));
            let (exchange, teller) = (Arc::clone(&exchange), teller.clone());
            let request = async move {
                let record = exchange.run(prepared, due, None).await;
                let _ = teller.send(Told::Ended(Box::new(record)));
            };
            requests.spawn_on(request, &runtime);
            while requests.try_join_next().is_some() {}
        }
        let _ = finished.send(requests);
    };
    if let Err(err) = std::thread::Builder::new().name("load-clock".into()).spawn(clock) {
        eprintln!("cannot start a thread: {err}");
    }
    if let Ok(mut requests) = all_sent.await {
        while requests.join_next().await.is_some() {}
    }
}

/// Lets clients send one request after the other.
async fn closed(
    clients: usize,
    requests: u64,
    until: Option<Instant>,
    exchange: &Arc<Exchange>,
    maker: &Arc<Maker>,
    teller: Teller,
) {
    let own = |(at, entry): (usize, &super::MixEntry)| {
        std::iter::repeat_n(Some(at), entry.clients.unwrap_or(0))
    };
    let mut kinds: Vec<Option<usize>> = maker.mix.iter().enumerate().flat_map(own).collect();
    if kinds.is_empty() {
        kinds = vec![None; clients];
    }
    let next = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for (client, kind) in kinds.into_iter().enumerate() {
        let (exchange, maker) = (Arc::clone(exchange), Arc::clone(maker));
        let (next, teller) = (Arc::clone(&next), teller.clone());
        running.spawn(async move {
            sleep_until(exchange.start).await;
            while until.is_none_or(|until| Instant::now() < until) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return;
                }
                let prepared = maker.prepare(number, kind, None);
                let _ = teller.send(Told::Sent(prepared.entry));
                let record = exchange.run(prepared, Instant::now(), Some(client)).await;
                let _ = teller.send(Told::Ended(Box::new(record)));
            }
        });
    }
    while running.join_next().await.is_some() {}
}

/// Counts until all tellers are gone.
async fn collect(
    mut told: mpsc::UnboundedReceiver<Told>,
    mut tallies: Tallies,
    mut progress: Progress,
) -> Tallies {
    loop {
        tokio::select! {
            one = told.recv() => match one {
                Some(Told::Sent(entry)) => tallies.sent(entry),
                Some(Told::Ended(record)) => tallies.ended(*record),
                None => break,
            },
            () = sleep_until(progress.next()) => progress.tell(tallies.line()),
        }
    }
    progress.finish();
    tallies
}
