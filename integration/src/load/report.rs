//! What came out of a run: counts that add up, and quantiles, for each kind of request.

use std::collections::BTreeMap;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::exchange::{Ended, Record};

/// Quantiles of times in milliseconds; all 0 when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 90 % are below.
    pub p90: f64,
    /// 95 % are below.
    pub p95: f64,
    /// 99 % are below.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Results of one mix entry, or of all together.
///
/// `sent` is the sum of `ok`, all of `refused`, all of `failed`, and `unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Name of the mix entry; `all` for the sum.
    pub name: String,
    /// Requests that were due and sent.
    pub sent: u64,
    /// Answered in full with 200.
    pub ok: u64,
    /// Refused on purpose, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Other endings, by what was seen.
    pub failed: BTreeMap<String, u64>,
    /// Still in flight when the run ended.
    pub unfinished: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// `sent` per second of the time in which requests were due.
    pub sent_per_s: f64,
    /// `ok` per second of the whole run.
    pub ok_per_s: f64,
    /// Requests whose known wait was over the bound, answered or not.
    pub waited_over: u64,
    /// `waited_over` of `sent`, 0 to 1.
    pub waited_over_share: f64,
    /// Requests about whose wait nobody told.
    pub wait_unknown: u64,
    /// Answered in full within the objective, counted from when they were due.
    pub good: u64,
    /// `good` of `sent`, 0 to 1.
    pub good_share: f64,
    /// `good` per second of the whole run: the goodput.
    pub good_per_s: f64,
    /// Output tokens as the engine tells them.
    pub output_tokens: u64,
    /// Wait in gateway and engine, of those answered in full.
    pub wait: Quantiles,
    /// Wait in the gateway, of those answered in full.
    pub gateway_wait: Quantiles,
    /// Wait in the engine, of those answered in full.
    pub engine_wait: Quantiles,
    /// Execution as the gateway tells it.
    pub exec: Quantiles,
    /// Until the end of the answer, of those answered in full.
    pub total: Quantiles,
    /// Until the first token, of streams answered in full.
    pub first_token: Quantiles,
    /// Until the refusal, of those refused.
    pub refused_after: Quantiles,
    /// How late requests were sent: the client's own fault.
    pub send_lag: Quantiles,
}

impl Section {
    /// All refusals.
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }

    /// All endings that are neither an answer nor a refusal.
    pub fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The target.
    pub target: String,
    /// The kind of load in words.
    pub load: String,
    /// Seed of everything that was drawn.
    pub seed: u64,
    /// Seconds from the first arrival to the last answer.
    pub elapsed_s: f64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Connections that were opened.
    pub connections: u64,
    /// Bound of `waited_over`, in milliseconds.
    pub wait_over_ms: f64,
    /// Bound of `good`, in milliseconds.
    pub objective_ms: f64,
    /// All requests together.
    pub all: Section,
    /// Results by mix entry, in the order of the mix.
    pub entries: Vec<Section>,
    /// Each request, with `LoadConfig::keep_records`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
}

impl Report {
    /// The section of a mix entry.
    pub fn entry(&self, name: &str) -> Option<&Section> {
        self.entries.iter().find(|section| section.name == name)
    }

    /// Reads a report from its JSON file.
    ///
    /// # Errors
    /// The file cannot be read or is not a report.
    pub fn read(path: &std::path::Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("{name} is not a report of this tool"))
    }
}

/// Three decimals: what is left is noise, and such numbers read back from JSON as they were.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Times of one kind; microseconds inside, three significant digits.
#[derive(Debug)]
struct Times(Histogram<u64>);

impl Times {
    fn record(&mut self, ms: f64) {
        self.0.saturating_record((ms.max(0.0) * 1e3).round() as u64);
    }

    fn quantiles(&self) -> Quantiles {
        if self.0.is_empty() {
            return Quantiles::default();
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Quantiles {
            count: self.0.len(),
            mean: rounded(self.0.mean() / 1e3),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: self.0.max() as f64 / 1e3,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        // One hour is longer than any request is waited for.
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are valid"))
    }
}

#[derive(Debug, Default)]
struct Tally {
    counts: Section,
    wait: Times,
    gateway_wait: Times,
    engine_wait: Times,
    exec: Times,
    total: Times,
    first_token: Times,
    refused_after: Times,
    send_lag: Times,
}

impl Tally {
    fn named(name: &str) -> Self {
        let mut tally = Self::default();
        name.clone_into(&mut tally.counts.name);
        tally
    }

    fn record(&mut self, record: &Record, wait_over_ms: f64, objective_ms: f64) {
        let counts = &mut self.counts;
        if let Some(status) = record.status {
            *counts.statuses.entry(status).or_default() += 1;
        }
        self.send_lag.record(record.lag_ms);
        match record.wait_ms() {
            Some(wait) => counts.waited_over += u64::from(wait > wait_over_ms),
            None => counts.wait_unknown += 1,
        }
        counts.output_tokens += record.output_tokens.unwrap_or(0);
        match &record.ended {
            Ended::Refused(reason) => {
                *counts.refused.entry(reason.clone()).or_default() += 1;
                self.refused_after.record(record.total_ms);
            }
            Ended::Failed(what) => *counts.failed.entry(what.clone()).or_default() += 1,
            Ended::Ok => {
                counts.ok += 1;
                counts.good += u64::from(record.total_ms <= objective_ms);
                self.total.record(record.total_ms);
                let optional = [
                    (&mut self.wait, record.wait_ms()),
                    (&mut self.gateway_wait, record.gateway_wait_ms),
                    (&mut self.engine_wait, record.engine_wait_ms),
                    (&mut self.exec, record.exec_ms),
                    (&mut self.first_token, record.first_token_ms),
                ];
                for (times, value) in optional {
                    if let Some(value) = value {
                        times.record(value);
                    }
                }
            }
        }
    }

    fn finish(mut self, due_s: f64, elapsed_s: f64) -> Section {
        let mut counts = std::mem::take(&mut self.counts);
        let ended = counts.ok + counts.refused_total() + counts.failed_total();
        counts.unfinished = counts.sent.saturating_sub(ended);
        let per = |count: u64, whole: f64| {
            if whole > 0.0 { rounded(count as f64 / whole) } else { 0.0 }
        };
        counts.sent_per_s = per(counts.sent, due_s);
        counts.ok_per_s = per(counts.ok, elapsed_s);
        counts.good_per_s = per(counts.good, elapsed_s);
        counts.waited_over_share = per(counts.waited_over, counts.sent as f64);
        counts.good_share = per(counts.good, counts.sent as f64);
        Section {
            wait: self.wait.quantiles(),
            gateway_wait: self.gateway_wait.quantiles(),
            engine_wait: self.engine_wait.quantiles(),
            exec: self.exec.quantiles(),
            total: self.total.quantiles(),
            first_token: self.first_token.quantiles(),
            refused_after: self.refused_after.quantiles(),
            send_lag: self.send_lag.quantiles(),
            ..counts
        }
    }
}

/// Collects records while a run goes on.
#[derive(Debug)]
pub(crate) struct Tallies {
    all: Tally,
    entries: Vec<Tally>,
    wait_over_ms: f64,
    objective_ms: f64,
    keep: Option<Vec<Record>>,
}

impl Tallies {
    pub(crate) fn new(names: &[&str], wait_over_ms: f64, objective_ms: f64, keep: bool) -> Self {
        Self {
            all: Tally::named("all"),
            entries: names.iter().map(|name| Tally::named(name)).collect(),
            wait_over_ms,
            objective_ms,
            keep: keep.then(Vec::new),
        }
    }

    pub(crate) fn sent(&mut self, entry: usize) {
        self.all.counts.sent += 1;
        self.entries[entry].counts.sent += 1;
    }

    pub(crate) fn ended(&mut self, record: Record) {
        self.all.record(&record, self.wait_over_ms, self.objective_ms);
        let tally = self.entries.iter_mut().find(|tally| tally.counts.name == record.entry);
        if let Some(tally) = tally {
            tally.record(&record, self.wait_over_ms, self.objective_ms);
        }
        if let Some(keep) = &mut self.keep {
            keep.push(record);
        }
    }

    /// One line on how it goes.
    pub(crate) fn line(&self) -> String {
        let all = &self.all.counts;
        let ended = all.ok + all.refused_total() + all.failed_total();
        let total = self.all.total.quantiles();
        format!(
            "{} sent, {} ok, {} refused, {} failed, {} in flight, total p50 {:.0} ms p99 {:.0} ms",
            all.sent,
            all.ok,
            all.refused_total(),
            all.failed_total(),
            all.sent.saturating_sub(ended),
            total.p50,
            total.p99
        )
    }

    /// Fills in sections and records of a report.
    pub(crate) fn finish(self, due_s: f64, report: Report) -> Report {
        let elapsed_s = report.elapsed_s;
        let finish = |tally: Tally| tally.finish(due_s, elapsed_s);
        Report {
            wait_over_ms: self.wait_over_ms,
            objective_ms: self.objective_ms,
            all: finish(self.all),
            entries: self.entries.into_iter().map(finish).collect(),
            records: self.keep.unwrap_or_default(),
            ..report
        }
    }
}
