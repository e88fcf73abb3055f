//! The root context: configuration, ticks, messages from other workers.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use slogate_policy::config::Policy;
use slogate_policy::engine::{Action, Verdict};
use slogate_policy::ids::{MILLI, Nanos, PoolId};

use crate::apply;
use crate::gate::{self, BUILD, Gate, SharedGate};
use crate::host::{self, Buffer};
use crate::stream::Stream;

/// Milliseconds between ticks: how late a deadline may be noticed.
const TICK_MS: u32 = 20;

/// How long a body may be there without being handed on: another filter before this one may hold it
/// for a moment.
const HELD_BACK: Nanos = 200 * MILLI;

/// One configuration of the plugin in one instance.
pub(crate) struct Root {
    context_id: u32,
    gate: Option<SharedGate>,
}

impl Root {
    pub(crate) fn new(context_id: u32) -> Self {
        Self { context_id, gate: None }
    }

    /// Asks the engine something and does what it says.
    fn run(&self, ask: impl FnOnce(&mut Gate) -> Vec<Action>) {
        let Some(gate) = &self.gate else { return };
        let actions = match gate.try_borrow_mut() {
            Ok(mut gate) => ask(&mut gate),
            Err(_) => return log::error!("the gate is in use"),
        };
        apply::all(&actions, self.context_id);
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        let text = host::buffer(Buffer::PluginConfiguration, usize::MAX).unwrap_or_default();
        let policy = match Policy::from_configuration(&text) {
            Ok(policy) => policy,
            Err(faults) => {
                log::error!("the policy is refused, {} fault(s):", faults.len());
                for fault in faults {
                    let path = if fault.path.is_empty() { "policy" } else { &fault.path };
                    log::error!("{path}: {}", fault.problem);
                }
                return false;
            }
        };
        let text = |name| {
            String::from_utf8(host::property(&[name]).unwrap_or_default()).unwrap_or_default()
        };
        let digest = policy.digest;
        self.gate = gate::with_policy(&text("plugin_root_id"), &text("plugin_vm_id"), policy);
        log::info!(
            "slogate {} ({}) serves policy {digest:012x} ({digest})",
            BUILD.version,
            BUILD.git
        );
        self.gate.is_some() && host::set_tick_period(TICK_MS).is_ok()
    }

    fn on_tick(&mut self) {
        self.run(|gate| {
            gate.read_wall_clock();
            let now = gate.now();
            let mut actions = held_back(gate);
            actions.extend(gate.engine.tick(now, &mut gate.port));
            gate.port.flush();
            actions
        });
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let mut pools = Vec::new();
        while let Ok(Some(message)) = host::dequeue(queue) {
            // Anybody can write into a queue: what is no pool's number is nothing.
            if let Ok(bytes) = <[u8; 4]>::try_from(message.as_slice()) {
                let pool = PoolId(u32::from_le_bytes(bytes));
                if !pools.contains(&pool) {
                    pools.push(pool);
                }
            }
        }
        self.run(|gate| {
            let now = gate.now();
            gate.engine.woken(&pools, now, &mut gate.port)
        });
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(context_id, self.gate.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// Held requests whose body Envoy has received but not handed on: without
/// `allow_on_headers_stop_iteration` it never will.
fn held_back(gate: &mut Gate) -> Vec<Action> {
    if gate.bodiless.is_empty() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    let now = gate.now();
    for mut held in std::mem::take(&mut gate.bodiless) {
        if host::set_effective_context(held.stream.0).is_err() {
            continue;
        }
        let grown = gate::bytes_received().is_some_and(|bytes| bytes > held.before);
        held.grown = held.grown.or(grown.then_some(now.mono));
        if held.grown.is_none_or(|since| now.mono.saturating_sub(since) < HELD_BACK) {
            gate.bodiless.push(held);
            continue;
        }
        let refusal = gate.engine.flag_is_missing(held.stream, now, &mut gate.port);
        if let Some(refusal) = refusal {
            log::error!("allow_on_headers_stop_iteration: true is missing from Envoy's filter");
            actions.push(Action { stream: held.stream, verdict: Verdict::Refuse(refusal) });
        }
    }
    actions
}
