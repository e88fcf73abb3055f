//! The admission policy of slogate: a pure core.
//!
//! Nothing here sees Envoy, a clock or a file: time comes in as an argument, shared state through
//! a port trait, and what is to be done goes out as a value.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod config;
pub mod engine;
pub mod ids;
pub mod keys;
pub mod members;
pub mod outcome;
pub mod pool;
pub mod port;
pub mod quota;
pub mod refusal;
pub mod request;
pub mod sse;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod timing;
pub mod tokens;
pub mod usage;
