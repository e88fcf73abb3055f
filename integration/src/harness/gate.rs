//! One Envoy process with the shipped bootstrap, and what it lets a user see.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Bootstrap, Client, Stats, eventually, http_get, process};

/// Envoy with a module takes 0.3 s to start; a machine busy with other builds takes longer.
const START: Duration = Duration::from_secs(30);

type Edit = Box<dyn FnOnce(&mut Bootstrap) -> Result<()> + Send>;

/// Where the filter's configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// Written in the bootstrap, as shipped.
    Static,
    /// From a file that Envoy watches.
    Discovered,
    /// There is no filter.
    Absent,
}

/// How an Envoy is to be started.
pub struct GateBuilder {
    workers: usize,
    filter: Filter,
    binary: Option<PathBuf>,
    wasm: Option<PathBuf>,
    policy: Option<Value>,
    clusters: BTreeMap<String, Vec<SocketAddr>>,
    edits: Vec<Edit>,
    log_level: String,
}

impl std::fmt::Debug for GateBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateBuilder")
            .field("workers", &self.workers)
            .field("filter", &self.filter)
            .field("clusters", &self.clusters)
            .finish_non_exhaustive()
    }
}

impl GateBuilder {
    /// Number of worker threads; 1 unless told otherwise.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Endpoint of a cluster of the bootstrap, or of a further one.
    #[must_use]
    pub fn cluster(mut self, name: &str, endpoint: SocketAddr) -> Self {
        self.clusters.entry(name.to_owned()).or_default().push(endpoint);
        self
    }

    /// Replaces the shipped policy.
    #[must_use]
    pub fn policy(mut self, policy: Value) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Loads this module instead of the built one.
    #[must_use]
    pub fn wasm(mut self, module: impl Into<PathBuf>) -> Self {
        self.wasm = Some(module.into());
        self
    }

    /// Runs this Envoy instead of the pinned one.
    #[must_use]
    pub fn envoy(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// Leaves the filter out: inference paths go to `vllm_deepseek_v4`.
    #[must_use]
    pub fn without_filter(mut self) -> Self {
        self.filter = Filter::Absent;
        self
    }

    /// Lets the filter's configuration come from a watched file, for [`Gate::push_policy`].
    #[must_use]
    pub fn discovered(mut self) -> Self {
        self.filter = Filter::Discovered;
        self
    }

    /// Sets the flag without which the filter cannot work.
    #[must_use]
    pub fn allow_on_headers_stop_iteration(self, allow: bool) -> Self {
        self.edit(move |bootstrap| bootstrap.allow_on_headers_stop_iteration(allow))
    }

    /// Envoy's `--log-level`, which is also its syntax; `warning` unless told otherwise. What
    /// the filter logs goes to the component `wasm`.
    #[must_use]
    pub fn log_level(mut self, level: &str) -> Self {
        level.clone_into(&mut self.log_level);
        self
    }

    /// Any other change of the bootstrap, before the filter is moved or removed.
    #[must_use]
    pub fn edit<F>(mut self, edit: F) -> Self
    where
        F: FnOnce(&mut Bootstrap) -> Result<()> + Send + 'static,
    {
        self.edits.push(Box::new(edit));
        self
    }

    /// Starts Envoy and waits until it serves.
    ///
    /// # Errors
    /// When the binary or the module is missing (the text says how to get it), or Envoy refuses
    /// the configuration (the text has the end of its log).
    pub async fn start(self) -> Result<Gate> {
        let binary = self.binary.map_or_else(process::envoy_binary, Ok)?;
        let directory = Directory::create()?;
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut bootstrap = Bootstrap::shipped()?;
        bootstrap.listen(any_port)?;
        bootstrap.admin(any_port)?;
        bootstrap.access_log(&directory.file("access.log"))?;
        // Histograms reach the admin pages only with a flush.
        bootstrap.document_mut()["stats_flush_interval"] = "0.1s".into();
        for (name, endpoints) in &self.clusters {
            bootstrap.cluster(name, endpoints)?;
        }
        if self.filter != Filter::Absent {
            bootstrap.wasm(&self.wasm.map_or_else(process::wasm_module, Ok)?)?;
        }
        if let Some(policy) = &self.policy {
            bootstrap.policy(policy)?;
        }
        for edit in self.edits {
            edit(&mut bootstrap)?;
        }
        let mut resource = None;
        match self.filter {
            Filter::Static => {}
            Filter::Absent => bootstrap.remove_filter("vllm_deepseek_v4")?,
            Filter::Discovered => {
                let file = directory.file("filter.json");
                let discovered = bootstrap.discover_filter(&directory.0, &file)?;
                std::fs::write(&file, discovered.to_string())?;
                resource = Some(discovered);
            }
        }
        let config = directory.file("envoy.json");
        std::fs::write(&config, bootstrap.document().to_string())?;

        let log = directory.file("envoy.log");
        let child = Command::new(&binary)
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(directory.file("admin"))
            .args(["--disable-hot-restart", "--file-flush-interval-msec", "20"])
            // Asked for as soon as any configuration comes from a file.
            .args(["--service-node", "slogate", "--service-cluster", "slogate"])
            .args(["--concurrency", &self.workers.to_string()])
            .args(["--log-level", &self.log_level])
            .stdin(Stdio::null())
            .stdout(File::create(directory.file("envoy.out"))?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let mut gate = Gate { child, addr: any_port, admin: any_port, directory, resource };
        gate.wait_until_ready().await?;
        Ok(gate)
    }
}

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
        GateBuilder {
            workers: 1,
            filter: Filter::Static,
            binary: None,
            wasm: None,
            policy: None,
            clusters: BTreeMap::new(),
            edits: Vec::new(),
            log_level: "warning".to_owned(),
        }
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

/// A directory of its own, removed when dropped.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("slogate-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
