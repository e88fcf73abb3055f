//! The adapter of slogate: Envoy's callbacks become questions to the policy core, its verdicts
//! become host calls.
//!
//! Nothing is decided here. `root` takes configuration, ticks and messages, `stream` a
//! request's callbacks, `apply` is the only place that lets a request through or answers it,
//! and `host` wraps the host's functions so that no status of theirs can become a panic.

#![cfg(target_arch = "wasm32")]

mod apply;
mod gate;
mod host;
mod root;
mod stream;

/// What the host calls first.
mod start {
    use proxy_wasm::types::LogLevel;

    use crate::root::Root;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(LogLevel::Info);
        proxy_wasm::set_root_context(|context_id| Box::new(Root::new(context_id)));
    }}
}
