//! Permits and queues of one pool, exact over all workers of the process.
//!
//! [`ledger`] is what the workers share, [`local`] what one of them has itself, [`mod@turn`] the one
//! rule by which the ledger changes, [`forecast`] what it says about the wait to come. [`Pool`] runs
//! that rule against the host's compare-and-set.

pub mod forecast;
pub mod ledger;
pub mod local;
pub mod turn;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::config::PoolLimits;
use crate::ids::{Lane, MILLI, Nanos, PoolId, SlotId, StreamId};
use crate::members::Members;
use crate::port::{Port, StoreError};
use crate::stats::StatId;
use ledger::Ledger;
use local::{Entry, LocalPool};
use turn::{Arrival, Arrived, Cause, Turn, turn};

/// Tries before a change is given up. A try fails only because another worker's change succeeded,
/// so this is never reached unless something else writes the value all the time.
const TRIES: u32 = 1_000;

/// How long a pool that was seen to be calm is taken to be so.
const CALM: Nanos = 20 * MILLI;

/// One pool, as one instance runs it.
#[derive(Debug)]
pub struct Pool {
    /// Its identifier.
    pub id: PoolId,
    /// The cluster requests go to.
    pub cluster: Rc<str>,
    key: String,
    limits: PoolLimits,
    local: LocalPool,
    buffer: Vec<u8>,
    /// The last change could not be stored: the ledger does not show what this instance has.
    stale: bool,
    spare: Spare,
}

/// Permits that came back and are kept for the next request of their lane, so that a pool nobody
/// waits for is not written into the ledger twice a request. In the ledger they are in use.
///
/// They are kept only while the pool was seen to be at most half in use and without a waiter, at
/// most [`CALM`] ago, and go back with the next change, whatever its cause. Whoever begins to wait
/// wakes all instances that hold permits, so no spare permit outlives the wake.
#[derive(Debug, Default)]
struct Spare {
    permits: BTreeMap<Lane, u32>,
    /// Until when permits may be kept.
    until: Nanos,
    /// Mean time the permits were held that came back since the last change; 0 for none.
    held: Nanos,
}

/// What a change brought about in this instance.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Requests that have a permit now.
    pub promoted: Vec<StreamId>,
    /// What became of the arrival, where there was one.
    pub arrived: Option<Arrived>,
}

impl Pool {
    /// A pool with nothing in it. `key` names its ledger in the shared store.
    pub fn new(id: PoolId, key: String, cluster: &str, limits: PoolLimits) -> Self {
        let cluster = Rc::from(cluster);
        let (local, buffer) = (LocalPool::default(), Vec::new());
        let spare = Spare::default();
        Self { id, cluster, key, limits, local, buffer, stale: false, spare }
    }

    /// Takes up new limits; what runs and waits stays.
    pub fn limit(&mut self, cluster: &str, limits: PoolLimits) {
        if *self.cluster != *cluster {
            self.cluster = Rc::from(cluster);
        }
        self.limits = limits;
        self.spare.until = 0;
    }

    /// The limits that hold now.
    pub fn limits(&self) -> &PoolLimits {
        &self.limits
    }

    /// Whether requests wait in this instance.
    pub fn waits(&self) -> bool {
        self.local.waits()
    }

    /// Whether this instance has nothing here.
    pub fn is_idle(&self) -> bool {
        self.local.is_idle() && !self.has_spare()
    }

    /// Whether this instance keeps permits that nobody uses.
    pub fn has_spare(&self) -> bool {
        !self.spare.permits.is_empty()
    }

    /// Whether the ledger does not show what this instance has.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Asks for a permit.
    ///
    /// # Errors
    /// The shared store failed; the request has neither a permit nor a place.
    pub fn arrive(
        &mut self,
        me: SlotId,
        stream: StreamId,
        arrival: Arrival,
        port: &mut dyn Port,
    ) -> Result<Change, StoreError> {
        if self.take_spare(arrival.lane, arrival.now) {
            self.local.run(arrival.lane);
            return Ok(Change { promoted: Vec::new(), arrived: Some(Arrived::Admitted) });
        }
        let cause = Cause { arrival: Some(arrival), ..Cause::default() };
        let change = self.change(me, cause, Some(arrival.now), port)?;
        match change.arrived {
            Some(Arrived::Admitted) => self.local.run(arrival.lane),
            Some(Arrived::Queued { tag, length }) => {
                let entry = Entry { flow: arrival.flow, bytes: arrival.bytes, length };
                self.local.enqueue(arrival.lane, tag, stream, entry);
            }
            _ => {}
        }
        Ok(change)
    }

    /// Gives a permit back that was held for this long.
    pub fn release(
        &mut self,
        me: SlotId,
        lane: Lane,
        held: Nanos,
        now: Nanos,
        port: &mut dyn Port,
    ) -> Vec<StreamId> {
        self.spare.held = turn::smooth(self.spare.held, held);
        if self.local.give_back(lane) && now < self.spare.until {
            let kept = self.spare.permits.entry(lane).or_insert(0);
            *kept = kept.saturating_add(1);
            return Vec::new();
        }
        self.change_or_stale(me, Cause::default(), Some(now), port)
    }

    fn take_spare(&mut self, lane: Lane, now: Nanos) -> bool {
        if now >= self.spare.until {
            return false;
        }
        let Some(kept) = self.spare.permits.get_mut(&lane) else { return false };
        *kept = kept.saturating_sub(1);
        if *kept == 0 {
            self.spare.permits.remove(&lane);
        }
        true
    }

    /// Takes a waiter out of the queue; its client left or its time is over.
    pub fn leave(&mut self, me: SlotId, stream: StreamId, port: &mut dyn Port) -> Vec<StreamId> {
        let Some((lane, entry)) = self.local.dequeue(stream) else { return Vec::new() };
        let left = Some((entry.flow, lane.tier, entry.length));
        self.change_or_stale(me, Cause { left, ..Cause::default() }, None, port)
    }

    /// Looks whether there is something to take up or to hand out.
    pub fn look(&mut self, me: SlotId, port: &mut dyn Port) -> Vec<StreamId> {
        self.change_or_stale(me, Cause::default(), None, port)
    }

    /// The ledger as it is now; `None` where there is none that can be read.
    ///
    /// # Errors
    /// The shared store failed.
    pub fn ledger(&self, port: &mut dyn Port) -> Result<Option<Ledger>, StoreError> {
        Ok(Ledger::decode(&port.load(&self.key)?.bytes))
    }

    /// Makes the ledger where it is missing, before the first race for it can be.
    ///
    /// # Errors
    /// The shared store failed.
    pub fn create(&mut self, port: &mut dyn Port) -> Result<(), StoreError> {
        let stored = port.load(&self.key)?;
        if stored.version == 0 && stored.bytes.is_empty() {
            Ledger::default().encode(&mut self.buffer);
            port.store(&self.key, &self.buffer, 0)?;
        }
        Ok(())
    }

    /// Takes out the rows of instances that are gone. True where there were any. `who_lives` is
    /// asked after the ledger was read: whoever is in the ledger by then had joined before.
    ///
    /// # Errors
    /// The shared store failed.
    pub fn purge(
        &mut self,
        who_lives: &mut dyn FnMut(&mut dyn Port) -> Result<Members, StoreError>,
        port: &mut dyn Port,
    ) -> Result<bool, StoreError> {
        for _ in 0..TRIES {
            let stored = port.load(&self.key)?;
            let Some(mut ledger) = Ledger::decode(&stored.bytes) else { return Ok(false) };
            let members = who_lives(port)?;
            if !turn::purge(&mut ledger, |slot| members.lives(slot)) {
                return Ok(false);
            }
            ledger.encode(&mut self.buffer);
            if port.store(&self.key, &self.buffer, stored.version)? {
                return Ok(true);
            }
        }
        Err(StoreError::Contended)
    }

    fn change_or_stale(
        &mut self,
        me: SlotId,
        cause: Cause,
        now: Option<Nanos>,
        port: &mut dyn Port,
    ) -> Vec<StreamId> {
        if let Ok(change) = self.change(me, cause, now, port) {
            return change.promoted;
        }
        self.stale = true;
        self.spare = Spare::default();
        port.count(StatId::SharedStateErrors, 1);
        Vec::new()
    }

    /// Changes the ledger. Where the time is given, permits may be kept from now on if the pool is
    /// calm.
    fn change(
        &mut self,
        me: SlotId,
        cause: Cause,
        now: Option<Nanos>,
        port: &mut dyn Port,
    ) -> Result<Change, StoreError> {
        let held = Some(self.spare.held).filter(|held| *held > 0);
        let cause = Cause { held, ..cause };
        for _ in 0..TRIES {
            let stored = port.load(&self.key)?;
            let known = Ledger::decode(&stored.bytes);
            let foreign = known.is_none() && !stored.bytes.is_empty();
            let mut ledger = known.unwrap_or_default();
            let turn = turn(&mut ledger, me, &self.local, &self.limits, cause);
            ledger.encode(&mut self.buffer);
            if self.buffer == stored.bytes || port.store(&self.key, &self.buffer, stored.version)? {
                self.stale = false;
                self.spare = Spare::default();
                if let Some(now) = now
                    && turn::is_calm(&ledger, &self.limits)
                {
                    self.spare.until = now.saturating_add(CALM);
                }
                port.count(StatId::SharedStateErrors, u64::from(foreign));
                return Ok(self.apply(turn, port));
            }
        }
        Err(StoreError::Contended)
    }

    fn apply(&mut self, turn: Turn, port: &mut dyn Port) -> Change {
        let promoted = turn.promoted.iter().filter_map(|lane| self.local.promote(*lane)).collect();
        self.local.sweep();
        for slot in turn.wake {
            port.wake(slot, self.id);
        }
        Change { promoted, arrived: turn.arrived }
    }
}
