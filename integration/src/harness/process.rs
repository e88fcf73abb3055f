//! Finding what is built or fetched beforehand, and reading what a process has used.
//!
//! A test that cannot find its Envoy or its module fails with the command that makes it; it never
//! passes by skipping.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Version of Envoy that `scripts/fetch-envoy.sh` fetches unless told otherwise.
const ENVOY_VERSION: &str = "1.40.0";

/// The kernel reports CPU times to user space in this unit, whatever its own tick is.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Root of the workspace this crate was built in.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// The Envoy to run: `SLOGATE_ENVOY`, or the one under `.tools/`.
///
/// # Errors
/// Says how to get one when there is none.
pub fn envoy_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SLOGATE_ENVOY") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("SLOGATE_ENVOY names {}, which is not a file", path.display());
        }
        return Ok(path);
    }
    let path = workspace_root().join(format!(".tools/envoy-{ENVOY_VERSION}/envoy"));
    if !path.is_file() {
        bail!("no Envoy at {}: run scripts/fetch-envoy.sh, or set SLOGATE_ENVOY", path.display());
    }
    Ok(path)
}

/// The built module: `SLOGATE_WASM`, or `dist/slogate.wasm`.
///
/// # Errors
/// Says how to build it when it is missing.
pub fn wasm_module() -> Result<PathBuf> {
    let path = std::env::var_os("SLOGATE_WASM")
        .map_or_else(|| workspace_root().join("dist/slogate.wasm"), PathBuf::from);
    if !path.is_file() {
        bail!("no module at {}: run scripts/build.sh", path.display());
    }
    Ok(path.canonicalize()?)
}

/// CPU time, user and system, that process `pid` has used so far; steps of 10 ms.
///
/// # Errors
/// When the process is gone, or this is not Linux.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("CPU time of process {pid}"))?;
    // The second field is the program's name in brackets and may itself hold blanks.
    let rest = stat.rsplit_once(')').context("malformed stat line")?.1;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || -> Result<u32> { Ok(fields.next().context("short stat line")?.parse()?) };
    Ok(CLOCK_TICK * (ticks()? + ticks()?))
}

/// Resident memory of process `pid` in bytes.
///
/// # Errors
/// When the process is gone, or this is not Linux.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("memory of process {pid}"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS in the status of the process")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// A directory of its own, removed when dropped.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn create() -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("slogate-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_while_this_process_works() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let mut sum = 0u64;
        while cpu_time(pid).unwrap() < before + 3 * CLOCK_TICK {
            sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(7));
        }
        assert!(std::hint::black_box(sum) != 1);
    }

    #[test]
    fn resident_memory_of_this_process_is_plausible() {
        let bytes = resident_bytes(std::process::id()).unwrap();
        assert!(bytes > 100 * 1024, "{bytes}");
    }
}
