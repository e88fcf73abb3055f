//! The core's port, on Envoy.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use slogate_policy::config::Policy;
use slogate_policy::ids::{PoolId, SlotId};
use slogate_policy::port::{Port, StoreError, Stored};
use slogate_policy::stats::{Build, StatId, StatKind};

use super::ffi::{self, Status};

/// The host, for one gate of one instance.
pub(crate) struct HostPort {
    prefix: String,
    vm_id: String,
    build: Build,
    policy: Rc<Policy>,
    /// Metrics the host has defined; `None` where it refused.
    metrics: FxHashMap<StatId, Option<u32>>,
    /// What counters have grown by since the last flush.
    grown: FxHashMap<StatId, u64>,
    mailboxes: FxHashMap<SlotId, u32>,
    own: Option<SlotId>,
}

impl HostPort {
    pub(crate) fn new(prefix: &str, vm_id: String, build: Build, policy: Rc<Policy>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            vm_id,
            build,
            policy,
            metrics: FxHashMap::default(),
            grown: FxHashMap::default(),
            mailboxes: FxHashMap::default(),
            own: None,
        }
    }

    /// Takes up a policy: stats are named after its lists from now on. The mailbox is opened again,
    /// because the host delivers to the root that opened it last.
    pub(crate) fn adopt(&mut self, policy: Rc<Policy>) {
        self.flush();
        self.policy = policy;
        self.metrics.clear();
        if let Some(slot) = self.own
            && self.open_mailbox(slot).is_err()
        {
            log::error!("the mailbox could not be opened again");
        }
    }

    /// Hands the counters' growth to the host. They are gathered between ticks, because a call into
    /// the host costs more than all the arithmetic of a request.
    pub(crate) fn flush(&mut self) {
        for (stat, by) in std::mem::take(&mut self.grown) {
            if let (Some(metric), Ok(by)) = (self.metric(stat), i64::try_from(by)) {
                let _ = ffi::increment_metric(metric, by);
            }
        }
    }

    fn mailbox(&self, slot: SlotId) -> String {
        format!("{}wake/{}", self.prefix, slot.0)
    }

    fn metric(&mut self, stat: StatId) -> Option<u32> {
        if let Some(known) = self.metrics.get(&stat) {
            return *known;
        }
        let kind = match stat.spec().kind {
            StatKind::Counter => 0,
            StatKind::Gauge => 1,
            StatKind::Histogram => 2,
        };
        let metric = ffi::define_metric(kind, &stat.name(&self.policy, self.build)).ok();
        self.metrics.insert(stat, metric);
        metric
    }
}

impl Port for HostPort {
    fn load(&mut self, key: &str) -> Result<Stored, StoreError> {
        match ffi::shared_data(key) {
            Ok((bytes, version)) => Ok(Stored { bytes, version }),
            Err(Status::NOT_FOUND) => Ok(Stored { bytes: Vec::new(), version: 0 }),
            Err(_) => Err(StoreError::Host),
        }
    }

    fn store(&mut self, key: &str, bytes: &[u8], version: u32) -> Result<bool, StoreError> {
        match ffi::set_shared_data(key, bytes, version) {
            Ok(()) => Ok(true),
            Err(Status::CAS_MISMATCH) => Ok(false),
            Err(_) => Err(StoreError::Host),
        }
    }

    fn open_mailbox(&mut self, slot: SlotId) -> Result<(), StoreError> {
        self.own = Some(slot);
        ffi::register_queue(&self.mailbox(slot)).map(|_| ()).map_err(|_| StoreError::Host)
    }

    fn wake(&mut self, slot: SlotId, pool: PoolId) {
        let known = self.mailboxes.get(&slot).copied();
        let queue = known.or_else(|| ffi::resolve_queue(&self.vm_id, &self.mailbox(slot)).ok());
        let Some(queue) = queue else { return };
        self.mailboxes.insert(slot, queue);
        // A message that is lost is made good by the other's tick.
        let _ = ffi::enqueue(queue, &pool.0.to_le_bytes());
    }

    fn count(&mut self, stat: StatId, by: u64) {
        if by > 0 {
            let grown = self.grown.entry(stat).or_insert(0);
            *grown = grown.saturating_add(by);
        }
    }

    fn record(&mut self, stat: StatId, value: u64) {
        if let Some(metric) = self.metric(stat) {
            let _ = ffi::record_metric(metric, value);
        }
    }

    fn set(&mut self, stat: StatId, value: u64) {
        self.record(stat, value);
    }
}
