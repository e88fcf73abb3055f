//! The account of one pool that all workers share, and its bytes.
//!
//! Each worker of Envoy runs its own instance of the filter with memory of its own. What they
//! share is one value per pool, changed by compare-and-set: each instance's permits in use, how
//! many requests wait with it, and the tags of those it would send next. Counts are kept per
//! instance, never as one sum, so that the share of an instance that is gone can be taken back.
//!
//! Another plugin may write into the same store, so the bytes are read like any outside input:
//! what is not a ledger is no ledger, and the workers build a new one from what each knows.

use crate::ids::{ClassId, FlowId, Lane, Nanos, SlotId, TierId};

/// Tags an instance publishes per lane. With one, a lane that was just handed a permit would look
/// empty until its owner speaks again; four cover the permits that come back in that time.
pub const HEADS: usize = 4;

/// Most rows of each kind that are read: 1,024 instances with 16 tiers would not reach it.
const MAX_ROWS: usize = 1 << 16;

const MAGIC: [u8; 4] = *b"slg\x01";

/// The place of a waiter in the order of its pool: the smallest is next.
///
/// `start` is the start tag of start-time fair queueing (Goyal, Vin, Cheng 1996) in units of
/// [`COST_UNIT`]-th tokens divided by weight; equal tags go by size class, then by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Virtual time at which the waiter's turn begins.
    pub start: u64,
    /// Rank of the size class, the smallest first.
    pub rank: u32,
    /// When it came.
    pub arrived: Nanos,
}

/// Virtual time that one token of a flow with weight 1 takes.
pub const COST_UNIT: u64 = 1 << 12;

/// What one instance has in one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The instance.
    pub slot: SlotId,
    /// The lane.
    pub lane: Lane,
    /// Permits in use.
    pub in_flight: u32,
    /// Permits handed over by others that the instance has not taken up yet.
    pub granted: u32,
    /// Requests that wait, those included that a handed-over permit is meant for.
    pub waiting: u32,
    /// Bytes of the bodies that wait.
    pub bytes: u64,
    /// The first tags, in order; shorter than `waiting` where some are not published.
    pub heads: Vec<Tag>,
}

/// What one instance knows of one flow that waits or has lately been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRow {
    /// The flow.
    pub flow: FlowId,
    /// The tier it shares.
    pub tier: TierId,
    /// The instance.
    pub slot: SlotId,
    /// Requests that wait.
    pub waiting: u32,
    /// Virtual time at which its last request's turn ends.
    pub finish: u64,
}

/// The account of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Virtual time: the start tag of the last waiter served.
    pub virtual_time: u64,
    /// Mean time a permit is held, in nanoseconds; 0 before the first came back.
    pub hold: u64,
    /// One row for each instance and lane in use.
    pub rows: Vec<Row>,
    /// One row for each flow and instance in use, in the order of flows.
    pub flows: Vec<FlowRow>,
}

impl Ledger {
    /// Permits in use or handed over.
    pub fn in_flight(&self) -> u32 {
        self.sum(|row| row.in_flight.saturating_add(row.granted))
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        self.sum(|row| row.waiting)
    }

    /// Requests of a tier that wait, and their bytes.
    pub fn waiting_of(&self, tier: TierId) -> (u32, u64) {
        let rows = self.rows.iter().filter(|row| row.lane.tier == tier);
        rows.fold((0, 0), |(entries, bytes), row| {
            (entries.saturating_add(row.waiting), bytes.saturating_add(row.bytes))
        })
    }

    pub(super) fn sum(&self, of: impl Fn(&Row) -> u32) -> u32 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(of(row)))
    }

    /// Writes the bytes of this ledger into `out`, which is cleared first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        put64(out, self.virtual_time);
        put64(out, self.hold);
        put32(out, len(self.rows.len()));
        put32(out, len(self.flows.len()));
        for row in &self.rows {
            for word in [row.slot.0, row.lane.tier.0, row.lane.class.0] {
                put32(out, word);
            }
            for word in [row.in_flight, row.granted, row.waiting, len(row.heads.len())] {
                put32(out, word);
            }
            put64(out, row.bytes);
            for tag in &row.heads {
                put64(out, tag.start);
                put32(out, tag.rank);
                put64(out, tag.arrived);
            }
        }
        for row in &self.flows {
            for word in [row.flow.0, row.tier.0, row.slot.0, row.waiting] {
                put32(out, word);
            }
            put64(out, row.finish);
        }
    }

    /// Reads a ledger. `None`: these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input(bytes.strip_prefix(&MAGIC)?);
        let virtual_time = input.u64()?;
        let hold = input.u64()?;
        let rows = input.count()?;
        let flows = input.count()?;
        let mut ledger =
            Self { virtual_time, hold, rows: Vec::with_capacity(rows), flows: Vec::new() };
        for _ in 0..rows {
            let slot = SlotId(input.u32()?);
            let lane = Lane { tier: TierId(input.u32()?), class: ClassId(input.u32()?) };
            let (in_flight, granted, waiting) = (input.u32()?, input.u32()?, input.u32()?);
            let heads = usize::try_from(input.u32()?).ok().filter(|count| *count <= HEADS)?;
            let bytes = input.u64()?;
            let mut tags = Vec::with_capacity(heads);
            for _ in 0..heads {
                let (start, rank, arrived) = (input.u64()?, input.u32()?, input.u64()?);
                tags.push(Tag { start, rank, arrived });
            }
            ledger.rows.push(Row { slot, lane, in_flight, granted, waiting, bytes, heads: tags });
        }
        ledger.flows.reserve(flows);
        for _ in 0..flows {
            let (flow, tier, slot) = (input.u32()?, input.u32()?, input.u32()?);
            let (waiting, finish) = (input.u32()?, input.u64()?);
            let (flow, tier, slot) = (FlowId(flow), TierId(tier), SlotId(slot));
            ledger.flows.push(FlowRow { flow, tier, slot, waiting, finish });
        }
        input.0.is_empty().then_some(ledger)
    }
}

fn len(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn put32(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

/// Bytes still to be read.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of rows; the bytes left must be able to hold that many.
    pub(super) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count <= MAX_ROWS && count <= self.0.len()).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn ledger() -> Ledger {
        let lane = Lane { tier: TierId(7), class: ClassId(9) };
        let tag = Tag { start: 5, rank: 1, arrived: u64::MAX };
        let row = Row {
            slot: SlotId(1),
            lane,
            in_flight: 2,
            granted: 1,
            waiting: 3,
            bytes: 4,
            heads: vec![tag],
        };
        let flow =
            FlowRow { flow: FlowId(3), tier: TierId(7), slot: SlotId(1), waiting: 3, finish: 99 };
        Ledger { virtual_time: 4, hold: 5, rows: vec![row], flows: vec![flow] }
    }

    #[test]
    fn a_ledger_is_read_back_as_it_was_written() {
        let mut bytes = vec![1, 2, 3];
        ledger().encode(&mut bytes);
        assert_eq!(Ledger::decode(&bytes), Some(ledger()));
    }

    #[test]
    fn bytes_that_are_no_ledger_are_refused_whatever_they_are() {
        let mut bytes = Vec::new();
        ledger().encode(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(Ledger::decode(&bytes[..end]), None, "cut at {end}");
        }
        bytes.push(0);
        assert_eq!(Ledger::decode(&bytes), None);
        assert_eq!(Ledger::decode(b"4"), None);
        let mut huge = Vec::from(MAGIC);
        huge.extend_from_slice(&[0xff; 64]);
        assert_eq!(Ledger::decode(&huge), None);
    }
}
