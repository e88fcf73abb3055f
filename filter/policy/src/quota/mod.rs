//! What each key may do: requests a second, tokens a minute, requests at once.
//!
//! One shared value per key holds all three, and one compare-and-set decides about all three: a
//! request that fails one limit has used up none of the others, and calls in parallel, in whichever
//! worker, cannot both take the last of anything. Requests at once are counted per instance, so
//! that the share of an instance that is gone comes back.
//!
//! Tokens are reserved on what is known at admission and settled with the truth; see
//! [`Quotas::settle`]. The names of the values come from the policy alone, so their number is
//! bounded by it.

mod account;
mod bucket;
mod headers;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

use crate::ids::{FlowId, Nanos, SlotId};
use crate::members::Members;
use crate::port::{Port, StoreError};
use crate::stats::StatId;

use account::Account;
pub use bucket::Allowance;

/// Attempts to change a value before giving up; each failure means that another worker succeeded.
const TRIES: u32 = 1_000;

/// The limits of one key. `None`: not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyLimits {
    /// Requests over time.
    pub requests: Option<Allowance>,
    /// Tokens over time, prompt and output together.
    pub tokens: Option<Allowance>,
    /// Requests that wait or run at once.
    pub max_in_flight: Option<u32>,
}

impl KeyLimits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// These limits as far as the others limit the same. Over a push that is what both the taking
    /// and the giving are about.
    #[must_use]
    pub fn shared_with(&self, others: &Self) -> Self {
        Self {
            requests: self.requests.filter(|_| others.requests.is_some()),
            tokens: self.tokens.filter(|_| others.tokens.is_some()),
            max_in_flight: self.max_in_flight,
        }
    }
}

/// The limit that a request would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Requests a second; they are there again after this time.
    Requests {
        /// How long to wait if nobody else takes them.
        after: Nanos,
    },
    /// Tokens a minute.
    Tokens {
        /// How long to wait if nobody else takes them; `None`: the request asks for more than can
        /// ever be saved up.
        after: Option<Nanos>,
    },
    /// Requests at once; nobody knows when one ends.
    InFlight,
}

/// What is left of one allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The most there can be, in requests or tokens.
    pub limit: u64,
    /// What is there.
    pub remaining: u64,
    /// Time until all of it is there again.
    pub full_after: Nanos,
    /// Time in which an empty one fills.
    pub window: Nanos,
}

/// What is left to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Requests over time.
    pub requests: Option<Left>,
    /// Tokens over time.
    pub tokens: Option<Left>,
}

/// What a request holds of its key's quota until it is settled. Not to be dropped: every road out
/// of the gate ends in [`Quotas::settle`] or [`Quotas::give_back`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Reservation {
    /// Whose it is.
    pub owner: FlowId,
    /// The limits it was made under.
    pub limits: KeyLimits,
    /// Tokens that were taken.
    pub tokens: u64,
}

/// The quotas as one instance sees them.
#[derive(Debug)]
pub struct Quotas {
    prefix: String,
    /// Requests of each owner that this instance has in hand.
    held: FxHashMap<FlowId, u32>,
}

impl Quotas {
    /// Quotas whose shared values have names with this prefix.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}quota/"), held: FxHashMap::default() }
    }

    /// Makes the values of these owners where they are missing, before the first race for one: the
    /// store takes the first write of a value from everybody.
    ///
    /// # Errors
    /// The shared store failed.
    pub fn create(
        &self,
        owners: impl Iterator<Item = (FlowId, KeyLimits)>,
        now: Nanos,
        port: &mut dyn Port,
    ) -> Result<(), StoreError> {
        for (owner, limits) in owners.filter(|(_, limits)| !limits.is_none()) {
            let key = self.key(owner);
            let stored = port.load(&key)?;
            if stored.version == 0 && stored.bytes.is_empty() {
                let mut bytes = Vec::new();
                Account::full(&limits, now).encode(&mut bytes);
                port.store(&key, &bytes, 0)?;
            }
        }
        Ok(())
    }

    /// Takes one request and these tokens from an owner's quota, or nothing at all. `members` is
    /// asked who lives only where the owner has too many at once.
    ///
    /// # Errors
    /// The shared store failed; nothing was taken.
    pub fn reserve(
        &mut self,
        ask: Ask,
        members: &mut dyn FnMut(&mut dyn Port) -> Result<Members, StoreError>,
        port: &mut dyn Port,
    ) -> Result<(Result<Reservation, Broken>, Standing), StoreError> {
        let Ask { owner, limits, slot, tokens, now } = ask;
        let mut living = None;
        let decided = self.change(owner, &limits, now, port, |account, held, port| {
            // A row that could not be written when a request ended is put right here.
            account.set_held(slot, held);
            if account.is_full(&limits) {
                if living.is_none() {
                    living = Some(members(port)?);
                }
                let lives = |other| living.as_ref().is_none_or(|living| living.lives(other));
                account.keep(|other| other == slot || lives(other));
            }
            let broken = account.broken(&limits, tokens);
            if broken.is_none() {
                account.take(&limits, 1, tokens);
                account.set_held(slot, held.saturating_add(1));
            }
            Ok((broken.is_none(), (broken, account.standing(&limits))))
        })?;
        let (broken, standing) = decided;
        if let Some(broken) = broken {
            return Ok((Err(broken), standing));
        }
        let held = self.held.entry(owner).or_default();
        *held = held.saturating_add(1);
        Ok((Ok(Reservation { owner, limits, tokens }), standing))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a reservation ends once")]
    /// The request came to nothing: all of it is given back.
    ///
    /// # Errors
    /// The shared store failed; the reserved amounts stay taken.
    pub fn give_back(
        &mut self,
        reservation: Reservation,
        slot: SlotId,
        now: Nanos,
        port: &mut dyn Port,
    ) -> Result<(), StoreError> {
        self.end(&reservation, slot, now, port, |account| {
            account.give(&reservation.limits, 1, reservation.tokens);
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "a reservation ends once")]
    /// The request is over and cost so many tokens: what was reserved too much is given back, what
    /// was too little is taken, also below zero.
    ///
    /// # Errors
    /// The shared store failed; the reserved amounts stay taken.
    pub fn settle(
        &mut self,
        reservation: Reservation,
        cost: u64,
        slot: SlotId,
        now: Nanos,
        port: &mut dyn Port,
    ) -> Result<(), StoreError> {
        let reserved = reservation.tokens;
        self.end(&reservation, slot, now, port, |account| {
            account.give(&reservation.limits, 0, reserved.saturating_sub(cost));
            account.take(&reservation.limits, 0, cost.saturating_sub(reserved));
        })
    }

    fn end(
        &mut self,
        reservation: &Reservation,
        slot: SlotId,
        now: Nanos,
        port: &mut dyn Port,
        book: impl Fn(&mut Account),
    ) -> Result<(), StoreError> {
        let owner = reservation.owner;
        // Even where the store fails this instance has it in hand no more; the row follows with
        // the next change.
        if let Some(held) = self.held.get_mut(&owner) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&owner);
            }
        }
        self.change(owner, &reservation.limits, now, port, |account, held, _| {
            book(account);
            account.set_held(slot, held);
            Ok((true, ()))
        })
    }

    /// Changes an owner's account until nobody else does meanwhile.
    fn change<T>(
        &self,
        owner: FlowId,
        limits: &KeyLimits,
        now: Nanos,
        port: &mut dyn Port,
        mut by: impl FnMut(&mut Account, u32, &mut dyn Port) -> Result<(bool, T), StoreError>,
    ) -> Result<T, StoreError> {
        let key = self.key(owner);
        let held = self.held.get(&owner).copied().unwrap_or(0);
        let mut bytes = Vec::with_capacity(128);
        for _ in 0..TRIES {
            let stored = port.load(&key)?;
            let mut account = Account::decode(&stored.bytes).unwrap_or_else(|| {
                // Foreign bytes: every instance writes its own share anew in time.
                port.count(StatId::SharedStateErrors, u64::from(!stored.bytes.is_empty()));
                Account::full(limits, now)
            });
            account.refill(limits, now);
            let (changed, result) = by(&mut account, held, port)?;
            if !changed {
                return Ok(result);
            }
            bytes.clear();
            account.encode(&mut bytes);
            if port.store(&key, &bytes, stored.version)? {
                return Ok(result);
            }
        }
        Err(StoreError::Contended)
    }

    fn key(&self, owner: FlowId) -> String {
        format!("{}{:08x}", self.prefix, owner.0)
    }
}

/// What is asked of a quota.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Whose quota.
    pub owner: FlowId,
    /// Its limits.
    pub limits: KeyLimits,
    /// The instance that has the request.
    pub slot: SlotId,
    /// Tokens it is expected to cost.
    pub tokens: u64,
    /// The time.
    pub now: Nanos,
}
