//! Harness of slogate: what the integration tests, the demo and the benchmarks share.
//!
//! It uses what a user has: the built `slogate.wasm`, the files in `envoy/`, HTTP, and Envoy's
//! admin endpoint. Nothing here is linked with the filter.

pub mod harness;
pub mod load;
pub mod sim;
