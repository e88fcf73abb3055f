//! What happens to held requests without a word from their clients: hand-overs, deadlines, and a
//! look at everything now and then.

use std::rc::Rc;

use super::key_quota::Bill;
use super::request_state::{Answer, Phase, Request};
use super::{Action, Engine, Verdict};
use crate::config::{Policy, PoolPolicy};
use crate::ids::{MILLI, Nanos, PoolId, StreamId};
use crate::members;
use crate::outcome::Outcome;
use crate::pool::forecast;
use crate::pool::ledger::Ledger;
use crate::port::Port;
use crate::stats::StatId;
use crate::timing::Moment;

/// How often gauges are set and queues are looked at again.
pub(super) const REFRESH: Nanos = 250 * MILLI;

impl Engine {
    /// Lets requests through that were handed a permit.
    pub(super) fn admit(&mut self, promoted: Vec<StreamId>, now: Nanos) -> Vec<Action> {
        let mut actions = Vec::with_capacity(promoted.len());
        for stream in promoted {
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            if let Phase::Waiting { deadline } = request.phase {
                self.deadlines.remove(&(deadline, stream));
            }
            request.phase = Phase::Running { since: now, answer: Answer::default() };
            let pool = request.job.as_ref().and_then(|job| self.pools.get(&job.pool));
            let Some(pool) = pool else { continue };
            actions.push(Action { stream, verdict: Verdict::Admit(Rc::clone(&pool.cluster)) });
        }
        actions
    }

    /// Another instance handed this one a permit of these pools.
    pub fn woken(&mut self, pools: &[PoolId], now: Moment, port: &mut dyn Port) -> Vec<Action> {
        let Some(slot) = self.slot else { return Vec::new() };
        let mut promoted = Vec::new();
        for id in pools {
            if let Some(pool) = self.pools.get_mut(id) {
                promoted.extend(pool.look(slot, port));
            }
        }
        self.admit(promoted, now.mono)
    }

    /// What time brings: deadlines, and now and then a look at everything.
    pub fn tick(&mut self, now: Moment, port: &mut dyn Port) -> Vec<Action> {
        let mut actions = Vec::new();
        // A permit may be on its way to one whose time is over.
        let due = self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now.mono);
        let look = self.pools.values().filter(|pool| pool.has_spare() || (due && pool.waits()));
        let look: Vec<PoolId> = look.map(|pool| pool.id).collect();
        actions.extend(self.woken(&look, now, port));
        while let Some((deadline, stream)) = self.deadlines.first().copied() {
            if deadline > now.mono {
                break;
            }
            self.deadlines.pop_first();
            actions.extend(self.expire(stream, now.mono, port));
        }
        if now.mono.saturating_sub(self.refreshed) >= REFRESH {
            self.refreshed = now.mono;
            actions.extend(self.refresh(now.mono, port));
        }
        actions
    }

    fn expire(&mut self, stream: StreamId, now: Nanos, port: &mut dyn Port) -> Vec<Action> {
        let Some(mut request) = self.requests.remove(&stream) else { return Vec::new() };
        let mut actions = Vec::new();
        if let Phase::Waiting { .. } = request.phase {
            let promoted = self.leave(stream, &request, port);
            let waited = now.saturating_sub(request.arrived().mono);
            let after = self.drain_time(&request, port);
            let refusal = self.queue_refusal(&request, Outcome::QueueTimeout, after, waited);
            request.phase = Phase::Over { outcome: refusal.outcome, at: now };
            self.bill(&mut request, Bill::Nothing, now, port);
            actions.push(Action { stream, verdict: Verdict::Refuse(refusal) });
            self.requests.insert(stream, request);
            actions.extend(self.admit(promoted, now));
        } else {
            self.requests.insert(stream, request);
        }
        actions
    }

    /// The time in which those who wait in a request's tier are served.
    fn drain_time(&self, request: &Request, port: &mut dyn Port) -> Nanos {
        let Some(job) = &request.job else { return 0 };
        let Some(pool) = self.pools.get(&job.pool) else { return 0 };
        let ledger = pool.ledger(port).ok().flatten();
        ledger.map_or(0, |ledger| forecast::drain_time(&ledger, pool.limits(), job.lane))
    }

    /// Takes a waiting request out of its queue.
    pub(super) fn leave(
        &mut self,
        stream: StreamId,
        request: &Request,
        port: &mut dyn Port,
    ) -> Vec<StreamId> {
        let (Phase::Waiting { deadline }, Some(job), Some(slot)) =
            (&request.phase, &request.job, self.slot)
        else {
            return Vec::new();
        };
        self.deadlines.remove(&(*deadline, stream));
        self.pools.get_mut(&job.pool).map(|pool| pool.leave(slot, stream, port)).unwrap_or_default()
    }

    /// Says that this instance lives, takes back what dead ones held, looks at every queue and
    /// sets the gauges.
    fn refresh(&mut self, now: Nanos, port: &mut dyn Port) -> Vec<Action> {
        let key = self.members_key();
        let since = now.saturating_sub(self.beat);
        let due = since >= members::BEAT;
        if due {
            // Who slept itself (the whole process was stopped) cannot tell who is dead: the others
            // say within a tick that they live.
            let slept = since > members::SILENCE / 2;
            self.beat = now;
            if self.slot.is_some() && members::beat(&key, self.slot, now, port).is_err() {
                port.count(StatId::SharedStateErrors, 1);
            }
            for pool in self.pools.values_mut().filter(|_| !slept) {
                let purged = pool.purge(&mut |port| members::look(&key, now, port), port);
                port.count(StatId::SharedStateErrors, u64::from(purged.is_err()));
            }
        }
        let mut promoted = Vec::new();
        if let Some(slot) = self.slot {
            for pool in self.pools.values_mut() {
                // An idle pool too: rows that are not true must not stay for ever.
                if pool.waits() || pool.is_stale() || due {
                    promoted.extend(pool.look(slot, port));
                }
            }
        }
        self.calibrations.refresh(&self.policy, port);
        self.gauges(port);
        self.forget_pools();
        self.admit(promoted, now)
    }

    /// Forgets pools that the policy does not know and that have nothing in them any more.
    pub(super) fn forget_pools(&mut self) {
        let rules = &self.policy.pools;
        self.pools.retain(|id, pool| {
            !pool.is_idle() || pool.is_stale() || rules.iter().any(|rule| rule.id == *id)
        });
    }

    /// Sets the gauges to zero that the next policy has no names for: nobody sets them later, and
    /// Envoy never forgets a stat. To be called while the host still names stats after the policy
    /// that serves, so before [`Engine::adopt`].
    pub fn retire(&self, next: &Policy, port: &mut dyn Port) {
        self.calibrations.retire(&self.policy, next, port);
        for (index, model) in self.policy.models.iter().enumerate() {
            let stays = next.models.iter().any(|other| other.name == model.name);
            if !stays {
                port.set(StatId::InFlight(index), 0);
                port.set(StatId::InFlightLimit(index), 0);
            }
            for (at, tier) in self.policy.tiers.iter().enumerate() {
                if !(stays && next.tiers.iter().any(|other| other.name == tier.name)) {
                    port.set(StatId::QueueDepth(index, at), 0);
                    port.set(StatId::QueueCapacity(index, at), 0);
                }
            }
        }
    }

    /// Sets the gauges from the shared ledgers: every instance would set the same.
    fn gauges(&self, port: &mut dyn Port) {
        for (index, model) in self.policy.models.iter().enumerate() {
            let mut pools: Vec<usize> = model.pools.clone();
            pools.sort_unstable();
            pools.dedup();
            let pools = pools.iter().filter_map(|at| self.policy.pools.get(*at));
            let found: Vec<_> = pools
                .filter_map(|rule| {
                    let pool = self.pools.get(&rule.id)?;
                    Some((rule, pool.ledger(port).ok().flatten().unwrap_or_default()))
                })
                .collect();
            let sum = |of: &dyn Fn(&PoolPolicy, &Ledger) -> u64| {
                found.iter().fold(0_u64, |sum, (rule, ledger)| sum.saturating_add(of(rule, ledger)))
            };
            port.set(StatId::InFlight(index), sum(&|_, ledger| ledger.in_flight().into()));
            port.set(
                StatId::InFlightLimit(index),
                sum(&|rule, _| rule.limits.max_in_flight.into()),
            );
            for (at, tier) in self.policy.tiers.iter().enumerate() {
                let depth = sum(&|_, ledger| ledger.waiting_of(tier.id).0.into());
                port.set(StatId::QueueDepth(index, at), depth);
                let capacity = sum(&|rule, _| {
                    rule.limits.tier(tier.id).map_or(0, |rule| rule.capacity.into())
                });
                port.set(StatId::QueueCapacity(index, at), capacity);
            }
        }
    }
}
