//! The gate of one instance: the engine and its host, shared by all roots and streams with one
//! root id.
//!
//! A policy push makes a new root in the same VM while streams of the old one still wait, so the
//! gate outlives roots. Two listeners with different root ids are two gates.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use slogate_policy::config::Policy;
use slogate_policy::engine::Engine;
use slogate_policy::ids::{Nanos, StreamId};
use slogate_policy::stats::Build;
use slogate_policy::timing::Moment;
use slogate_policy::tokens::Vocabularies;

use crate::host::{self, HostPort};

/// What this module was built from.
pub(crate) const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    git: match option_env!("SLOGATE_GIT_HASH") {
        Some(hash) => hash,
        None => "unknown",
    },
};

/// One gate.
pub(crate) struct Gate {
    pub(crate) engine: Engine,
    pub(crate) port: HostPort,
    /// Streams whose body has not been seen. Kept only until the first body shows that Envoy hands
    /// bodies on.
    pub(crate) bodiless: Vec<Bodiless>,
    /// Envoy has handed a body on under the present configuration.
    pub(crate) body_seen: bool,
    clock: Clock,
}

impl Gate {
    /// Now, on both clocks.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A clock to be read later, if at all.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Sets the wall clock anew.
    pub(crate) fn read_wall_clock(&mut self) {
        self.clock.wall_ahead = host::wall_nanos().wrapping_sub(host::monotonic_nanos());
    }
}

/// A held stream whose body has not been seen.
pub(crate) struct Bodiless {
    pub(crate) stream: StreamId,
    /// Bytes that Envoy had received when it was held.
    pub(crate) before: u64,
    /// Since when there are more.
    pub(crate) grown: Option<Nanos>,
}

/// The host's clocks. Only the monotonic one is read each time: asking the host costs as much as
/// everything else a callback does.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// What the wall clock was ahead of the monotonic clock at the last tick.
    wall_ahead: u64,
}

impl Clock {
    /// Now, on both clocks.
    pub(crate) fn now(self) -> Moment {
        let mono = host::monotonic_nanos();
        Moment { mono, wall: mono.wrapping_add(self.wall_ahead) }
    }
}

/// A gate that several roots and streams hold.
pub(crate) type SharedGate = Rc<RefCell<Gate>>;

thread_local! {
    static VOCABULARIES: Vocabularies = Vocabularies::default();
    static GATES: RefCell<HashMap<String, SharedGate>> = RefCell::new(HashMap::new());
}

/// The gate with this root id, with this policy from now on. `None` only where it is in use, which
/// a configure callback never is.
pub(crate) fn with_policy(root_id: &str, vm_id: &str, policy: Policy) -> Option<SharedGate> {
    let policy = Rc::new(policy);
    GATES.with(|gates| {
        let mut gates = gates.try_borrow_mut().ok()?;
        if let Some(gate) = gates.get(root_id) {
            let mut open = gate.try_borrow_mut().ok()?;
            let Gate { engine, port, .. } = &mut *open;
            engine.retire(&policy, port);
            port.adopt(Rc::clone(&policy));
            engine.adopt(policy, port);
            open.body_seen = false;
            return Some(Rc::clone(gate));
        }
        let prefix = format!("slogate/{root_id}/");
        let mut port = HostPort::new(&prefix, vm_id.to_owned(), BUILD, Rc::clone(&policy));
        let vocabularies = VOCABULARIES.with(Vocabularies::clone);
        let engine = Engine::new(&prefix, policy, vocabularies, &mut port);
        let mut gate =
            Gate { engine, port, bodiless: Vec::new(), body_seen: false, clock: Clock::default() };
        gate.read_wall_clock();
        let gate = Rc::new(RefCell::new(gate));
        gates.insert(root_id.to_owned(), Rc::clone(&gate));
        Some(gate)
    })
}

/// Bytes of a request that Envoy has received so far, head and body.
pub(crate) fn bytes_received() -> Option<u64> {
    let bytes = host::property(&["request", "total_size"])?;
    bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}
