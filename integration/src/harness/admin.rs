//! Envoy's admin endpoint: stats by name, by label, and one plain GET.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;

/// No answer of an admin endpoint takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one GET on a connection of its own; gives status and body.
///
/// # Errors
/// When nothing answers within 10 s or the body is not UTF-8.
pub async fn http_get(addr: SocketAddr, path: &str) -> Result<(u16, String)> {
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(addr).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request =
            hyper::Request::get(path).header(HOST, addr.to_string()).body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        driver.abort();
        anyhow::Ok((status, String::from_utf8(body.to_vec())?))
    };
    match tokio::time::timeout(PATIENCE, exchange).await {
        Ok(result) => result.with_context(|| format!("GET http://{addr}{path}")),
        Err(_) => bail!("GET http://{addr}{path}: no answer within {PATIENCE:?}"),
    }
}

/// All counters and gauges of an Envoy at one moment, by full name.
///
/// Histograms are left out; read them from the Prometheus page.
#[derive(Debug, Clone, Default)]
pub struct Stats(BTreeMap<String, u64>);

impl Stats {
    /// Reads the text of `/stats`.
    pub fn parse(text: &str) -> Self {
        // Names hold colons and equals signs, values are whole numbers.
        let entry = |line: &str| {
            let (name, value) = line.rsplit_once(": ")?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// Value of the stat with this full name; 0 when there is none, since Envoy makes many stats
    /// only with their first use.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Stats whose name starts with `prefix`, by name.
    pub fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0
            .range(prefix.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.as_str(), *value))
    }

    /// The filter's stats called `metric` (as Prometheus shows it, such as `slogate_requests`):
    /// labels and value of each.
    pub fn metric<'a>(
        &'a self,
        metric: &'a str,
    ) -> impl Iterator<Item = (BTreeMap<&'a str, &'a str>, u64)> {
        self.starting_with("wasmcustom.").filter_map(move |(name, value)| {
            let own = name.strip_prefix("wasmcustom.")?;
            let (labels, last) = own.rsplit_once(";.;").unwrap_or(("", own));
            if last != metric {
                return None;
            }
            let labels = labels.split(";.;").filter_map(|part| part.split_once("=.="));
            let labels = labels.collect();
            Some((labels, value))
        })
    }

    /// Sum of the filter's stats called `metric` that carry all of `labels`.
    pub fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        self.metric(metric)
            .filter(|(own, _)| labels.iter().all(|(label, value)| own.get(label) == Some(value)))
            .map(|(_, value)| value)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
cluster.a.upstream_rq_total: 7
wasmcustom.model=.=deepseek-v4.1;.;tier=.=realtime;.;outcome=.=ok;.;slogate_requests: 3
wasmcustom.model=.=deepseek-v4.1;.;tier=.=economy;.;outcome=.=ok;.;slogate_requests: 4
wasmcustom.model=.=deepseek-v4.1;.;slogate_in_flight: 9
wasmcustom.slogate_held: 2
cluster.a.upstream_rq_time: P0(nan,1) P25(nan,1.025)
";

    #[test]
    fn a_stat_is_found_by_its_full_name() {
        let stats = Stats::parse(PAGE);
        assert_eq!(stats.get("cluster.a.upstream_rq_total"), 7);
        assert_eq!(stats.get("cluster.a.upstream_rq_time"), 0);
        assert_eq!(stats.get("no.such"), 0);
    }

    #[test]
    fn labels_are_taken_out_of_the_name() {
        let stats = Stats::parse(PAGE);
        assert_eq!(stats.sum("slogate_requests", &[]), 7);
        assert_eq!(stats.sum("slogate_requests", &[("tier", "economy")]), 4);
        assert_eq!(stats.sum("slogate_requests", &[("tier", "eco")]), 0);
        assert_eq!(stats.sum("slogate_held", &[]), 2);
    }

    #[test]
    fn a_prefix_gives_only_its_stats() {
        let stats = Stats::parse(PAGE);
        assert_eq!(stats.starting_with("wasmcustom.").count(), 4);
        assert_eq!(stats.starting_with("cluster.").count(), 1);
    }
}
