//! A real Envoy, an engine that does as it is told, and a client that keeps exact times.
//!
//! A test starts an [`Upstream`] or two, a [`Gate`] (the shipped bootstrap with only addresses,
//! ports and paths replaced) in front, and sends [`Chat`]s over connections of its own. Everything
//! listens on ports the kernel chose, so tests run side by side; everything ends when it is dropped.
//!
//! What is observed is what a user can observe: answers, admin stats, access log lines, and the
//! resources of the Envoy process.

mod admin;
mod bootstrap;
mod builder;
mod client;
mod gate;
mod process;
mod upstream;

pub use admin::{Stats, http_get};
pub use bootstrap::Bootstrap;
pub use builder::GateBuilder;
pub use client::{Answer, Chat, Client, Piece};
pub use gate::{Gate, Push};
pub use process::{envoy_binary, wasm_module, workspace_root};
pub use upstream::{Ending, Script, Seen, Upstream};

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Polls `probe` until it gives `Some`, or fails with `what` once `within` has passed.
///
/// The pause between two tries grows from 1 ms to 20 ms.
///
/// # Errors
/// When the time is up, or with the first error of `probe`.
pub async fn eventually<T, F>(what: &str, within: Duration, mut probe: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<Option<T>>,
{
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("waited {within:?} in vain: {what}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
