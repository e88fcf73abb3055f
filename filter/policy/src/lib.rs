//! The admission policy of slogate: a pure core.
//!
//! Nothing here sees Envoy, a clock or a file: time comes in as an argument, shared state through
//! a port trait, and what is to be done goes out as a value.
#![forbid(unsafe_code)]

pub mod request;
pub mod tokens;
