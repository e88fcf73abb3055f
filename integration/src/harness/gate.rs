//! One Envoy process with the shipped bootstrap, and what it lets a user see.

use std::net::SocketAddr;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::process::{self, Directory};
use super::{Client, GateBuilder, Stats, eventually, http_get};

/// Envoy with a module takes 0.3 s to start; a machine busy with other builds takes longer.
const START: Duration = Duration::from_secs(30);

/// What became of a pushed policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// It is in force.
    Taken,
    /// It was refused; the one before it serves on.
    Refused,
}

/// A running Envoy; killed, and its files removed, when dropped.
#[derive(Debug)]
pub struct Gate {
    child: Child,
    addr: SocketAddr,
    admin: SocketAddr,
    directory: Directory,
    resource: Option<Value>,
}

impl Gate {
    /// The shipped bootstrap on free ports, with one worker.
    pub fn builder() -> GateBuilder {
        GateBuilder::new()
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where the admin endpoint is.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Process id of Envoy.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Body of an admin page.
    ///
    /// # Errors
    /// When the page is not answered with 200.
    pub async fn admin_get(&self, path: &str) -> Result<String> {
        let (status, body) = http_get(self.admin, path).await?;
        if status != 200 {
            bail!("admin {path}: status {status}: {body}");
        }
        Ok(body)
    }

    /// All counters and gauges now.
    ///
    /// # Errors
    /// When the admin endpoint does not answer.
    pub async fn stats(&self) -> Result<Stats> {
        Ok(Stats::parse(&self.admin_get("/stats").await?))
    }

    /// One counter or gauge; 0 when it does not exist (yet).
    ///
    /// # Errors
    /// When the admin endpoint does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.stats().await?.get(name))
    }

    /// The page Prometheus scrapes.
    ///
    /// # Errors
    /// When the admin endpoint does not answer.
    pub async fn prometheus(&self) -> Result<String> {
        self.admin_get("/stats/prometheus").await
    }

    /// Waits until the stats satisfy `holds`, and gives them.
    ///
    /// # Errors
    /// With `what` when `within` has passed.
    pub async fn wait_for_stats<F>(&self, what: &str, within: Duration, holds: F) -> Result<Stats>
    where
        F: Fn(&Stats) -> bool,
    {
        eventually(what, within, async || Ok(Some(self.stats().await?).filter(&holds))).await
    }

    /// Waits until one stat satisfies `holds`, and gives its value.
    ///
    /// # Errors
    /// When `within` has passed.
    pub async fn wait_for_stat<F>(&self, name: &str, within: Duration, holds: F) -> Result<u64>
    where
        F: Fn(u64) -> bool,
    {
        let stats = self.wait_for_stats(name, within, |stats| holds(stats.get(name))).await?;
        Ok(stats.get(name))
    }

    /// Lines of the access log so far.
    ///
    /// # Errors
    /// When a complete line is not JSON.
    pub fn access_log(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.directory.file("access.log")).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line: &str| {
            serde_json::from_str(line).with_context(|| format!("log line is not JSON: {line}"))
        };
        whole.lines().map(parse).collect()
    }

    /// Waits until the access log has at least `lines` lines, and gives all of them.
    ///
    /// # Errors
    /// When `within` has passed or a line is not JSON.
    pub async fn wait_for_log(&self, lines: usize, within: Duration) -> Result<Vec<Value>> {
        let what = format!("{lines} lines in the access log");
        eventually(&what, within, async || {
            Ok(Some(self.access_log()?).filter(|log| log.len() >= lines))
        })
        .await
    }

    /// What Envoy itself has logged so far, the filter's lines among it.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.file("envoy.log")).unwrap_or_default()
    }

    /// CPU time, user and system, of the process so far.
    ///
    /// # Errors
    /// When Envoy is gone.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid())
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// When Envoy is gone.
    pub fn resident_bytes(&self) -> Result<u64> {
        process::resident_bytes(self.pid())
    }

    /// Replaces the policy of a running Envoy and waits for its verdict. Needs
    /// [`GateBuilder::discovered`].
    ///
    /// # Errors
    /// When the filter does not come from a file, or nothing happens within 10 s. A policy equal
    /// to the one in force makes nothing happen.
    pub async fn push_policy(&mut self, policy: &Value) -> Result<Push> {
        let resource = self.resource.as_mut().context("the filter does not come from a file")?;
        let configuration = resource
            .pointer_mut("/resources/0/typed_config/config/configuration/value")
            .context("the filter has no policy")?;
        *configuration = policy.clone();
        let text = resource.to_string();

        let prefix = "extension_config_discovery.http_filter.slogate.";
        let taken = format!("{prefix}config_reload");
        let refused = format!("{prefix}update_rejected");
        let before = self.stats().await?;
        let next = self.directory.file("filter.json.new");
        std::fs::write(&next, text)?;
        // Envoy sees the rename; a file written in place could be read half.
        std::fs::rename(&next, self.directory.file("filter.json"))?;
        let after = self
            .wait_for_stats("a verdict on the pushed policy", Duration::from_secs(10), |now| {
                now.get(&taken) > before.get(&taken) || now.get(&refused) > before.get(&refused)
            })
            .await?;
        let refusals = after.get(&refused) - before.get(&refused);
        Ok(if refusals > 0 { Push::Refused } else { Push::Taken })
    }

    /// Connections each worker has accepted so far on the listener.
    ///
    /// # Errors
    /// When the admin endpoint does not answer.
    pub async fn accepted(&self) -> Result<Vec<u64>> {
        let stats = self.stats().await?;
        let mut workers = Vec::new();
        // The listener's name in between is the address it was configured with.
        for (name, value) in stats.starting_with("listener.") {
            let Some(rest) = name.strip_suffix(".downstream_cx_total") else { continue };
            let Some((_, number)) = rest.rsplit_once(".worker_") else { continue };
            workers.push((number.parse::<usize>()?, value));
        }
        workers.sort_unstable();
        Ok(workers.into_iter().map(|(_, value)| value).collect())
    }

    /// Opens an HTTP/1.1 connection that `worker` serves, numbered from 0.
    ///
    /// The kernel deals connections out by a hash of the ports, so this tries until one lands
    /// there. Nobody else may connect meanwhile.
    ///
    /// # Errors
    /// When there is no such worker, or none of 200 connections landed there.
    pub async fn client_on_worker(&self, worker: usize) -> Result<Client> {
        for _ in 0..200 {
            let before = self.accepted().await?;
            if worker >= before.len() {
                bail!("there is no worker {worker}, only {}", before.len());
            }
            let client = Client::http1(self.addr).await?;
            let landed = eventually("the connection is accepted", START, async || {
                let now = self.accepted().await?;
                Ok(now.iter().zip(&before).position(|(now, before)| now > before))
            })
            .await?;
            if landed == worker {
                return Ok(client);
            }
        }
        bail!("no connection landed on worker {worker}")
    }

    /// Takes over a process that was just started, and waits until it serves.
    pub(super) async fn when_ready(
        child: Child,
        directory: Directory,
        resource: Option<Value>,
    ) -> Result<Self> {
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gate = Self { child, addr: unknown, admin: unknown, directory, resource };
        gate.wait_until_ready().await?;
        Ok(gate)
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let file = self.directory.file("admin");
        let ready = eventually("Envoy serves", START, async || {
            if let Some(status) = self.child.try_wait()? {
                bail!("Envoy ended at its start with {status}");
            }
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let Ok(admin) = text.trim().parse() else { return Ok(None) };
            self.admin = admin;
            match http_get(admin, "/ready").await {
                Ok((200, _)) => Ok(Some(())),
                _ => Ok(None),
            }
        })
        .await;
        if let Err(error) = ready {
            return Err(error.context(format!("its log ends so:\n{}", tail(&self.log(), 20))));
        }
        let listeners: Value =
            serde_json::from_str(&self.admin_get("/listeners?format=json").await?)?;
        let socket = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
        let port = socket["port_value"].as_u64().context("the listener has no port")?;
        self.addr.set_port(u16::try_from(port)?);
        Ok(())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- end of Envoy's log\n{}", tail(&self.log(), 40));
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
