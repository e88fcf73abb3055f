//! Whose turn it is: one change of a pool's ledger.
//!
//! Every change follows one pattern, whatever caused it: the instance writes its own rows anew
//! from what it itself has, takes up permits that others handed to it, and then hands out every
//! free permit to the waiter with the smallest tag in the whole process. A change that did not
//! arrive, a lost message, or rows that somebody overwrote are thereby repaired by the next one.
//!
//! # Order
//! Start-time fair queueing: a waiter's tag is the later of the pool's virtual time and the end of
//! its flow's last turn, and its turn lasts `cost / weight`, where the weight of a flow is the
//! tier's weight divided by the number of the tier's flows that wait now. Tiers thus share by
//! weight however many keys they have, keys of one tier share evenly in tokens, and inside a key
//! the oldest is first. A waiter whose tier or size class is at its own limit is passed over, but
//! where it is next in its tier, a permit of its size class is kept for it. When a waiter leaves
//! unserved, those of its flow behind it in its instance move up, and so does the end of the flow's
//! last turn.
//!
//! # Trade-offs
//! Tags are given on arrival, so a tier whose number of waiting keys changes a lot is off by one
//! queue's length. A request that finds a free permit does not wait for the order to matter. When
//! nobody waits all flows start equal again.

use super::forecast::{live_flows, predict, time_of};
use super::ledger::{COST_UNIT, FlowRow, HEADS, Ledger, Row, Tag};
use super::local::LocalPool;
use crate::config::PoolLimits;
use crate::ids::{FlowId, Lane, Nanos, SlotId, TierId};

/// Share of a new sample in the mean time a permit is held: one in this many.
const HOLD_SMOOTHING: u64 = 16;

/// Most tokens that one request is reckoned with. No engine holds more in one sequence, and without
/// a bound a request that names an absurd cap could drive virtual time to its end, where all tags
/// are equal.
const MAX_COST: u64 = 1 << 22;

/// A request that wants a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its lane.
    pub lane: Lane,
    /// Rank of its size class, the smallest first.
    pub rank: u32,
    /// Its flow.
    pub flow: FlowId,
    /// What it costs, in tokens: prompt and expected output.
    pub cost: u64,
    /// Bytes of its body.
    pub bytes: u64,
    /// Now.
    pub now: Nanos,
    /// How long it may wait.
    pub max_wait: Nanos,
}

/// What became of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// It has a permit.
    Admitted,
    /// It waits.
    Queued {
        /// Its place.
        tag: Tag,
        /// The virtual time its turn lasts.
        length: u64,
    },
    /// Its tier's queue is full.
    Full {
        /// Time after which a place should be free.
        retry_after: Nanos,
    },
    /// It would wait longer than it may.
    TooLong {
        /// The wait that is predicted.
        predicted: Nanos,
    },
}

/// What a change did besides.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Waiters of this instance that have a permit now, in this order.
    pub promoted: Vec<Lane>,
    /// Other instances that were handed a permit and must be woken.
    pub wake: Vec<SlotId>,
    /// What became of the arrival, where there was one.
    pub arrived: Option<Arrived>,
}

/// What a change is about, besides what the instance itself has.
#[derive(Debug, Default, Clone, Copy)]
pub struct Cause {
    /// A request that wants a permit.
    pub arrival: Option<Arrival>,
    /// A permit came back after this time.
    pub held: Option<Nanos>,
    /// A waiter of this flow left without a permit; its turn would have lasted so long.
    pub left: Option<(FlowId, TierId, u64)>,
}

/// Changes the ledger. The instance's own state is only read: the caller applies the turn to it
/// once the ledger is stored.
pub fn turn(
    ledger: &mut Ledger,
    me: SlotId,
    local: &LocalPool,
    limits: &PoolLimits,
    cause: Cause,
) -> Turn {
    let mut turn = Turn::default();
    publish(ledger, me, local, &mut turn);
    if let Some(held) = cause.held {
        ledger.hold = smooth(ledger.hold, held);
    }
    hand_out(ledger, me, local, limits, &mut turn);
    publish_flows(ledger, me, local, &turn);
    if let Some((flow, tier, length)) = cause.left {
        refund(ledger, flow, tier, length);
    }
    if let Some(arrival) = cause.arrival {
        let nobody_waited = ledger.waiting() == 0;
        turn.arrived = Some(arrive(ledger, me, limits, arrival));
        if nobody_waited && matches!(turn.arrived, Some(Arrived::Queued { .. })) {
            call_in(ledger, me, &mut turn.wake);
        }
    }
    tidy(ledger);
    turn
}

/// Forgets what is over. When nobody waits all flows start equal again.
fn tidy(ledger: &mut Ledger) {
    ledger.rows.retain(|row| row.in_flight > 0 || row.granted > 0 || row.waiting > 0);
    if ledger.waiting() == 0 {
        ledger.flows.clear();
        ledger.virtual_time = 0;
    } else {
        let now = ledger.virtual_time;
        ledger.flows.retain(|row| row.waiting > 0 || row.finish > now);
    }
}

/// Wakes everybody who has permits: some of them may be spare.
fn call_in(ledger: &Ledger, me: SlotId, wake: &mut Vec<SlotId>) {
    for row in ledger.rows.iter().filter(|row| row.slot != me && row.in_flight > 0) {
        if !wake.contains(&row.slot) {
            wake.push(row.slot);
        }
    }
}

/// Whether nobody waits and at most half of every limit is in use, so that a permit which is not
/// given back at once stands in nobody's way.
pub(super) fn is_calm(ledger: &Ledger, limits: &PoolLimits) -> bool {
    let low = |held: u32, limit: u32| held <= limit / 2;
    let held = |of: &dyn Fn(&Lane) -> bool| {
        ledger.sum(|row| if of(&row.lane) { row.in_flight } else { 0 })
    };
    ledger.waiting() == 0
        && low(ledger.in_flight(), limits.max_in_flight)
        && limits.tiers.iter().all(|rule| {
            let limit = rule.max_in_flight.unwrap_or(u32::MAX);
            limit == u32::MAX || low(held(&|lane| lane.tier == rule.id), limit)
        })
        && limits.classes.iter().all(|rule| {
            let limit = rule.max_in_flight.unwrap_or(u32::MAX);
            limit == u32::MAX || low(held(&|lane| lane.class == rule.id), limit)
        })
}

/// Takes the rows of instances that are gone out of the ledger. True where there were any.
pub fn purge(ledger: &mut Ledger, lives: impl Fn(SlotId) -> bool) -> bool {
    let before = (ledger.rows.len(), ledger.flows.len());
    ledger.rows.retain(|row| lives(row.slot));
    ledger.flows.retain(|row| lives(row.slot));
    let gone = before != (ledger.rows.len(), ledger.flows.len());
    if gone {
        tidy(ledger);
    }
    gone
}

/// The mean after one more sample; 0 is no mean yet.
pub(super) fn smooth(mean: u64, sample: u64) -> u64 {
    // A sample of zero must not read as "no sample yet".
    let sample = sample.max(1);
    if mean == 0 {
        return sample;
    }
    let kept = mean.saturating_sub(mean / HOLD_SMOOTHING);
    kept.saturating_add(sample / HOLD_SMOOTHING).max(1)
}

/// Writes this instance's rows anew and takes up what was handed to it.
fn publish(ledger: &mut Ledger, me: SlotId, local: &LocalPool, turn: &mut Turn) {
    for row in ledger.rows.iter_mut().filter(|row| row.slot == me) {
        if !local.lanes.contains_key(&row.lane) {
            row.in_flight = 0;
            row.granted = 0;
            row.waiting = 0;
            row.bytes = 0;
            row.heads.clear();
        }
    }
    for (lane, place) in &local.lanes {
        let row = row_of(ledger, me, *lane);
        let waiting = u32::try_from(place.queue.len()).unwrap_or(u32::MAX);
        let taken = row.granted.min(waiting);
        row.granted = 0;
        row.in_flight = place.in_flight.saturating_add(taken);
        row.waiting = waiting.saturating_sub(taken);
        row.bytes = place.bytes;
        for _ in 0..taken {
            turn.promoted.push(*lane);
        }
        heads(row, local, taken);
    }
}

/// The row of an instance's lane, made where it is missing.
fn row_of(ledger: &mut Ledger, slot: SlotId, lane: Lane) -> &mut Row {
    let at = ledger.rows.iter().position(|row| row.slot == slot && row.lane == lane);
    let at = at.unwrap_or_else(|| {
        ledger.rows.push(Row {
            slot,
            lane,
            in_flight: 0,
            granted: 0,
            waiting: 0,
            bytes: 0,
            heads: Vec::new(),
        });
        ledger.rows.len().saturating_sub(1)
    });
    // `at` is an index into `rows` by construction.
    #[expect(clippy::indexing_slicing, reason = "the index was found or made above")]
    &mut ledger.rows[at]
}

/// Publishes the first tags of a lane of this instance, those left out that run already.
fn heads(row: &mut Row, local: &LocalPool, promoted: u32) {
    row.heads.clear();
    if let Some(place) = local.lanes.get(&row.lane) {
        let skip = usize::try_from(promoted).unwrap_or(usize::MAX);
        row.heads.extend(place.queue.keys().skip(skip).take(HEADS).map(|(tag, _)| *tag));
    }
}

/// Hands every free permit to the waiter whose turn it is.
fn hand_out(
    ledger: &mut Ledger,
    me: SlotId,
    local: &LocalPool,
    limits: &PoolLimits,
    turn: &mut Turn,
) {
    while ledger.in_flight() < limits.max_in_flight {
        let next = ledger
            .rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| Some((*row.heads.first()?, at)))
            .filter(|(_, at)| {
                ledger.rows.get(*at).is_some_and(|row| {
                    may_run(ledger, limits, row.lane)
                        && !is_kept(ledger, limits, row.lane, row.heads.first())
                })
            })
            .min();
        let Some((tag, at)) = next else { return };
        ledger.virtual_time = ledger.virtual_time.max(tag.start);
        let Some(row) = ledger.rows.get_mut(at) else { return };
        if row.slot == me {
            turn.promoted.push(row.lane);
            row.in_flight = row.in_flight.saturating_add(1);
            row.waiting = row.waiting.saturating_sub(1);
            let lane = row.lane;
            let promoted = turn.promoted.iter().filter(|other| **other == lane).count();
            heads(row, local, u32::try_from(promoted).unwrap_or(u32::MAX));
        } else {
            row.granted = row.granted.saturating_add(1);
            row.heads.remove(0);
            if !turn.wake.contains(&row.slot) {
                turn.wake.push(row.slot);
            }
        }
    }
}

/// Whether the tier and the size class of a lane are below their own limits.
fn may_run(ledger: &Ledger, limits: &PoolLimits, lane: Lane) -> bool {
    let held = |of: &dyn Fn(&Lane) -> bool| {
        ledger.sum(|row| if of(&row.lane) { row.in_flight.saturating_add(row.granted) } else { 0 })
    };
    held(&|other| other.tier == lane.tier) < limits.tier_permits(lane.tier)
        && held(&|other| other.class == lane.class) < limits.class_permits(lane.class)
}

/// Whether the free permit of a size class is kept for a waiter with a smaller tag than this one
/// (`None`: a newcomer), which is next in a tier that is at its limit just now.
///
/// Without that, a waiter that needs permits of two limits would never see both free at once. The
/// permit stays free no longer than until the next one of that tier comes back.
fn is_kept(ledger: &Ledger, limits: &PoolLimits, lane: Lane, tag: Option<&Tag>) -> bool {
    if limits.class_permits(lane.class) == u32::MAX {
        return false;
    }
    let head = |row: &Row| row.heads.first().copied();
    ledger.rows.iter().filter(|row| row.lane.class == lane.class).any(|row| {
        let tier = row.lane.tier;
        tier != lane.tier
            && head(row).is_some_and(|first| {
                let of_tier = ledger.rows.iter().filter(|other| other.lane.tier == tier);
                tag.is_none_or(|tag| first < *tag)
                    && of_tier.filter_map(head).min() == Some(first)
                    && !may_run(ledger, limits, row.lane)
            })
    })
}

/// Writes this instance's waiting counts of flows anew; the ends of their turns stay.
fn publish_flows(ledger: &mut Ledger, me: SlotId, local: &LocalPool, turn: &Turn) {
    for row in ledger.flows.iter_mut().filter(|row| row.slot == me) {
        row.waiting = 0;
    }
    for ((flow, tier), waiting) in &local.flows {
        let row = flow_row(ledger, *flow, *tier, me);
        row.waiting = row.waiting.saturating_add(*waiting);
    }
    // Who was promoted in this turn is still in the local queues.
    let mut taken: Vec<(Lane, usize)> = Vec::new();
    for lane in &turn.promoted {
        let at = if let Some((_, at)) = taken.iter_mut().find(|(other, _)| other == lane) {
            *at = at.saturating_add(1);
            at.saturating_sub(1)
        } else {
            taken.push((*lane, 1));
            0
        };
        let entry = local.lanes.get(lane).and_then(|place| place.queue.values().nth(at));
        if let Some(entry) = entry {
            let row = flow_row(ledger, entry.flow, lane.tier, me);
            row.waiting = row.waiting.saturating_sub(1);
            let row = row_of(ledger, me, *lane);
            row.bytes = row.bytes.saturating_sub(entry.bytes);
        }
    }
}

/// The row of a flow for one instance, made where it is missing; rows stay in the order of flows.
fn flow_row(ledger: &mut Ledger, flow: FlowId, tier: TierId, slot: SlotId) -> &mut FlowRow {
    let key = (flow, tier, slot);
    let found = ledger.flows.binary_search_by_key(&key, |row| (row.flow, row.tier, row.slot));
    let at = found.unwrap_or_else(|at| {
        ledger.flows.insert(at, FlowRow { flow, tier, slot, waiting: 0, finish: 0 });
        at
    });
    #[expect(clippy::indexing_slicing, reason = "the index was found or made above")]
    &mut ledger.flows[at]
}

/// A flow does not pay for a turn that was not taken: or else one whose waiters often leave would
/// run ever further ahead of virtual time and not be served at all.
fn refund(ledger: &mut Ledger, flow: FlowId, tier: TierId, length: u64) {
    for row in ledger.flows.iter_mut().filter(|row| row.flow == flow && row.tier == tier) {
        row.finish = row.finish.saturating_sub(length);
    }
}

fn arrive(ledger: &mut Ledger, me: SlotId, limits: &PoolLimits, arrival: Arrival) -> Arrived {
    let Arrival { lane, flow, .. } = arrival;
    if ledger.in_flight() < limits.max_in_flight
        && may_run(ledger, limits, lane)
        && !is_kept(ledger, limits, lane, None)
    {
        let row = row_of(ledger, me, lane);
        row.in_flight = row.in_flight.saturating_add(1);
        return Arrived::Admitted;
    }
    let rule = limits.tier(lane.tier).copied();
    let (entries, bytes) = ledger.waiting_of(lane.tier);
    let (capacity, max_bytes) = rule.map_or((0, 0), |rule| (rule.capacity, rule.max_bytes));
    if entries >= capacity || bytes.saturating_add(arrival.bytes) > max_bytes {
        let ahead = u64::from(entries.max(1));
        let retry_after = time_of(ledger, limits, lane, ahead).unwrap_or(0);
        return Arrived::Full { retry_after };
    }
    let predicted = predict(ledger, limits, lane, flow);
    if predicted > arrival.max_wait || arrival.max_wait == 0 {
        return Arrived::TooLong { predicted };
    }
    let weight = u64::from(rule.map_or(1, |rule| rule.weight));
    let flows = live_flows(ledger, lane.tier, flow);
    let cost = arrival.cost.clamp(1, MAX_COST).saturating_mul(COST_UNIT);
    let length = cost.saturating_mul(flows).checked_div(weight).unwrap_or(cost);
    let finish = last_finish(ledger, flow, lane.tier);
    let start = ledger.virtual_time.max(finish);
    let tag = Tag { start, rank: arrival.rank, arrived: arrival.now };

    let row = row_of(ledger, me, lane);
    row.waiting = row.waiting.saturating_add(1);
    row.bytes = row.bytes.saturating_add(arrival.bytes);
    let at = row.heads.partition_point(|other| *other <= tag);
    // Behind the last published tag there may be others that are not published.
    if at < row.heads.len() || row.heads.len().saturating_add(1) == count(row.waiting) {
        row.heads.insert(at, tag);
        row.heads.truncate(HEADS);
    }
    let row = flow_row(ledger, flow, lane.tier, me);
    row.waiting = row.waiting.saturating_add(1);
    row.finish = start.saturating_add(length);
    Arrived::Queued { tag, length }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// When the last turn of a flow ends, over all instances.
fn last_finish(ledger: &Ledger, flow: FlowId, tier: TierId) -> u64 {
    let rows = ledger.flows.iter().filter(|row| row.flow == flow && row.tier == tier);
    rows.map(|row| row.finish).max().unwrap_or(0)
}
