//! What one instance itself has in a pool: the truth of which its rows in the ledger are a copy.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::ledger::Tag;
use crate::ids::{FlowId, Lane, StreamId, TierId};

/// Most waiters of a flow that move up when one of them leaves. In a longer queue it is not worth
/// the time: thousands that leave at once would stop the worker.
const MOST_MOVED: u32 = 256;

/// A request that waits in this instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Bytes of its body.
    pub bytes: u64,
    /// Virtual time its turn lasts.
    pub length: u64,
}

/// One lane of this instance.
#[derive(Debug, Default)]
pub(super) struct LocalLane {
    pub(super) in_flight: u32,
    pub(super) bytes: u64,
    pub(super) queue: BTreeMap<(Tag, StreamId), Entry>,
}

/// What this instance has in one pool.
#[derive(Debug, Default)]
pub struct LocalPool {
    pub(super) lanes: BTreeMap<Lane, LocalLane>,
    pub(super) flows: BTreeMap<(FlowId, TierId), u32>,
    /// Where each waiter stands.
    waiters: FxHashMap<StreamId, (Lane, Tag)>,
}

impl LocalPool {
    /// Whether requests wait here.
    pub fn waits(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Whether nothing runs and nothing waits here.
    pub fn is_idle(&self) -> bool {
        self.lanes.values().all(|lane| lane.in_flight == 0 && lane.queue.is_empty())
    }

    /// Whether nothing is remembered of what is over.
    #[cfg(test)]
    pub(super) fn is_swept(&self) -> bool {
        self.lanes.is_empty() && self.flows.is_empty() && self.waiters.is_empty()
    }

    /// Puts a request into the queue of its lane.
    pub(super) fn enqueue(&mut self, lane: Lane, tag: Tag, stream: StreamId, entry: Entry) {
        let place = self.lanes.entry(lane).or_default();
        place.bytes = place.bytes.saturating_add(entry.bytes);
        place.queue.insert((tag, stream), entry);
        self.waiters.insert(stream, (lane, tag));
        let waiting = self.flows.entry((entry.flow, lane.tier)).or_insert(0);
        *waiting = waiting.saturating_add(1);
    }

    /// Takes a request out of its queue. `None`: it did not wait.
    pub(super) fn dequeue(&mut self, stream: StreamId) -> Option<(Lane, Entry)> {
        let (lane, tag) = self.waiters.remove(&stream)?;
        let place = self.lanes.get_mut(&lane)?;
        let entry = place.queue.remove(&(tag, stream))?;
        place.bytes = place.bytes.saturating_sub(entry.bytes);
        self.uncount(entry.flow, lane.tier);
        if self.flows.get(&(entry.flow, lane.tier)).is_some_and(|waiting| *waiting > MOST_MOVED) {
            // Its flow pays for the turn it did not take.
            return Some((lane, Entry { length: 0, ..entry }));
        }
        self.move_up(lane.tier, tag, entry);
        Some((lane, entry))
    }

    /// Moves those of a flow up that stood behind a waiter who left.
    fn move_up(&mut self, tier: TierId, gone: Tag, left: Entry) {
        for (lane, place) in self.lanes.iter_mut().filter(|(lane, _)| lane.tier == tier) {
            let behind = |(tag, _): &(Tag, StreamId)| tag.start > gone.start;
            let of_flow = place.queue.iter().filter(|(_, entry)| entry.flow == left.flow);
            let moved: Vec<_> = of_flow.map(|(at, _)| *at).filter(behind).collect();
            for (tag, stream) in moved {
                let Some(entry) = place.queue.remove(&(tag, stream)) else { continue };
                let start = tag.start.saturating_sub(left.length).max(gone.start);
                let tag = Tag { start, ..tag };
                place.queue.insert((tag, stream), entry);
                self.waiters.insert(stream, (*lane, tag));
            }
        }
    }

    /// Takes the first request of a lane out of its queue and lets it run.
    pub(super) fn promote(&mut self, lane: Lane) -> Option<StreamId> {
        let place = self.lanes.get_mut(&lane)?;
        let ((_, stream), entry) = place.queue.pop_first()?;
        self.waiters.remove(&stream);
        place.bytes = place.bytes.saturating_sub(entry.bytes);
        place.in_flight = place.in_flight.saturating_add(1);
        self.uncount(entry.flow, lane.tier);
        Some(stream)
    }

    pub(super) fn run(&mut self, lane: Lane) {
        let place = self.lanes.entry(lane).or_default();
        place.in_flight = place.in_flight.saturating_add(1);
    }

    /// Ends a request that ran. False where none did.
    pub(super) fn give_back(&mut self, lane: Lane) -> bool {
        let Some(place) = self.lanes.get_mut(&lane).filter(|place| place.in_flight > 0) else {
            return false;
        };
        place.in_flight = place.in_flight.saturating_sub(1);
        true
    }

    /// Forgets lanes with nothing in them.
    pub(super) fn sweep(&mut self) {
        self.lanes.retain(|_, lane| lane.in_flight > 0 || !lane.queue.is_empty());
    }

    fn uncount(&mut self, flow: FlowId, tier: TierId) {
        if let Some(waiting) = self.flows.get_mut(&(flow, tier)) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                self.flows.remove(&(flow, tier));
            }
        }
    }
}
