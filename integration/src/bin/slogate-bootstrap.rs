//! `slogate-bootstrap`: the shipped bootstrap with other addresses, or without the filter, as JSON
//! for Envoy. The demo starts its two arms with it.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use slogate_integration::harness::Bootstrap;

/// Prints envoy/envoy.yaml with the given changes, as JSON.
#[derive(Debug, Parser)]
#[command(name = "slogate-bootstrap", version)]
struct Args {
    /// Bootstrap to read; the shipped one unless given
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where the admin endpoint is
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// Endpoint of a cluster; may be repeated
    #[arg(long, value_name = "NAME=ADDR", value_parser = cluster)]
    cluster: Vec<(String, SocketAddr)>,
    /// Where the access log goes
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// The module
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// A policy, as JSON, in place of the shipped one
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Takes the filter out and sends inference to this cluster
    #[arg(long, value_name = "CLUSTER", conflicts_with_all = ["wasm", "policy"])]
    without_filter: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut bootstrap = args.from.as_deref().map_or_else(Bootstrap::shipped, Bootstrap::read)?;
    if let Some(addr) = args.listen {
        bootstrap.listen(addr)?;
    }
    if let Some(addr) = args.admin {
        bootstrap.admin(addr)?;
    }
    for (name, addr) in &args.cluster {
        bootstrap.cluster(name, &[*addr])?;
    }
    if let Some(path) = &args.access_log {
        bootstrap.access_log(path)?;
    }
    if let Some(path) = &args.wasm {
        bootstrap.wasm(path)?;
    }
    if let Some(path) = &args.policy {
        let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        bootstrap.policy(&serde_json::from_slice(&text)?)?;
    }
    if let Some(cluster) = &args.without_filter {
        bootstrap.remove_filter(cluster)?;
    }
    println!("{:#}", bootstrap.document());
    Ok(())
}

fn cluster(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, addr) = text.split_once('=').ok_or("expected NAME=ADDR")?;
    let addr = addr.parse().map_err(|error| format!("{addr}: {error}"))?;
    Ok((name.to_owned(), addr))
}
