//! How long a request will wait, from what the ledger shows.
//!
//! A forecast refuses requests early and says when to come back. It needs the mean time a permit is
//! held; before the first permit came back there is none, and the deadline alone decides.
//!
//! # Trade-offs
//! Every other tier with a waiter counts with its full weight, so a low tier beside one that hardly
//! waits is told too long a time. Who comes later and is served before is not foreseen.

use super::ledger::Ledger;
use crate::config::PoolLimits;
use crate::ids::{FlowId, Lane, Nanos, TierId};

/// Waiting requests of each flow of a tier, over all instances.
fn flows_of(ledger: &Ledger, tier: TierId) -> Vec<(FlowId, u32)> {
    let mut flows: Vec<(FlowId, u32)> = Vec::new();
    for row in ledger.flows.iter().filter(|row| row.tier == tier && row.waiting > 0) {
        match flows.last_mut() {
            Some((flow, waiting)) if *flow == row.flow => {
                *waiting = waiting.saturating_add(row.waiting);
            }
            _ => flows.push((row.flow, row.waiting)),
        }
    }
    flows
}

/// Flows of a tier that wait, this one included.
pub(super) fn live_flows(ledger: &Ledger, tier: TierId, flow: FlowId) -> u64 {
    let flows = flows_of(ledger, tier);
    let others = flows.iter().filter(|(other, _)| *other != flow).count();
    u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1)
}

/// The wait that an arrival of this flow has to reckon with: as many turns of every other flow of
/// its tier as its own flow takes until it is served, at the rate the tier is served with.
pub(super) fn predict(ledger: &Ledger, limits: &PoolLimits, lane: Lane, flow: FlowId) -> Nanos {
    let flows = flows_of(ledger, lane.tier);
    let own = flows.iter().find(|(other, _)| *other == flow).map_or(0, |(_, waiting)| *waiting);
    let turns = u64::from(own).saturating_add(1);
    let others = flows.iter().filter(|(other, _)| *other != flow);
    let ahead = others.fold(u64::from(own), |ahead, (_, waiting)| {
        ahead.saturating_add(u64::from(*waiting).min(turns))
    });
    time_of(ledger, limits, lane, ahead).unwrap_or(0)
}

/// The time in which all that wait in a lane's tier are served; 0 before any permit came back.
pub fn drain_time(ledger: &Ledger, limits: &PoolLimits, lane: Lane) -> Nanos {
    let (waiting, _) = ledger.waiting_of(lane.tier);
    time_of(ledger, limits, lane, u64::from(waiting.max(1))).unwrap_or(0)
}

/// The time in which a tier is served this many requests. `None` before any permit came back.
///
/// By Little's law a pool with all permits in use serves `permits / hold` requests a second; a
/// tier gets its weight's share of them among the tiers that wait.
pub(super) fn time_of(
    ledger: &Ledger,
    limits: &PoolLimits,
    lane: Lane,
    requests: u64,
) -> Option<Nanos> {
    if ledger.hold == 0 {
        return None;
    }
    let waits = |tier: TierId| {
        tier == lane.tier || ledger.rows.iter().any(|row| row.lane.tier == tier && row.waiting > 0)
    };
    let tiers = limits.tiers.iter().filter(|rule| waits(rule.id));
    let weights = tiers.fold(0_u64, |sum, rule| sum.saturating_add(u64::from(rule.weight)));
    let weight = u128::from(limits.tier(lane.tier).map_or(1, |rule| rule.weight).max(1));
    let work = u128::from(requests).saturating_mul(u128::from(ledger.hold));
    let shared = work
        .saturating_mul(u128::from(weights).max(weight))
        .checked_div(u128::from(limits.max_in_flight.max(1)).saturating_mul(weight))?;
    let capped = work.checked_div(u128::from(limits.tier_permits(lane.tier).max(1)))?;
    Some(u64::try_from(shared.max(capped)).unwrap_or(u64::MAX))
}
