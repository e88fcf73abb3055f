//! How an Envoy is to be started: the shipped bootstrap and the few things a test changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::process::{self, Directory};
use super::{Bootstrap, Gate};

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
    pub(super) fn new() -> Self {
        Self {
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
                let discovered = bootstrap.discover_filter(directory.path(), &file)?;
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
        Gate::when_ready(child, directory, resource).await
    }
}
