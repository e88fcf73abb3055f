//! The account of one key, and its bytes.

use super::bucket::{Allowance, Bucket};
use super::{Broken, KeyLimits, Left, Standing};
use crate::ids::{Nanos, SlotId};

const MAGIC: [u8; 4] = *b"slq\x01";
/// More rows than any process has workers: what has more is not ours.
const MAX_ROWS: usize = 4_096;

/// What is left to one key, and what it has in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    requests: Bucket,
    tokens: Bucket,
    /// Requests each instance has in hand; none with zero.
    rows: Vec<(SlotId, u32)>,
}

/// Stands in where nothing is limited, so that a later policy finds a bucket to start from.
const IDLE: Allowance = Allowance::requests(1, 1);

impl Account {
    pub(super) fn full(limits: &KeyLimits, now: Nanos) -> Self {
        let full = |allowance: Option<Allowance>| Bucket::full(&allowance.unwrap_or(IDLE), now);
        Self { requests: full(limits.requests), tokens: full(limits.tokens), rows: Vec::new() }
    }

    pub(super) fn refill(&mut self, limits: &KeyLimits, now: Nanos) {
        for (bucket, allowance) in self.buckets(limits) {
            bucket.refill(&allowance, now);
        }
    }

    fn buckets(&mut self, limits: &KeyLimits) -> impl Iterator<Item = (&mut Bucket, Allowance)> {
        let pairs = [(&mut self.requests, limits.requests), (&mut self.tokens, limits.tokens)];
        pairs.into_iter().filter_map(|(bucket, allowance)| Some((bucket, allowance?)))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.rows.iter().fold(0_u32, |sum, (_, held)| sum.saturating_add(*held))
    }

    /// Whether one more request would be too many at once.
    pub(super) fn is_full(&self, limits: &KeyLimits) -> bool {
        limits.max_in_flight.is_some_and(|most| self.in_flight() >= most)
    }

    /// Forgets the rows of other instances.
    pub(super) fn keep(&mut self, lives: impl Fn(SlotId) -> bool) {
        self.rows.retain(|(slot, _)| lives(*slot));
    }

    pub(super) fn set_held(&mut self, slot: SlotId, held: u32) {
        self.rows.retain(|(other, _)| *other != slot);
        if held > 0 {
            self.rows.push((slot, held));
        }
    }

    /// The first limit that one more request with these tokens would break.
    pub(super) fn broken(&self, limits: &KeyLimits, tokens: u64) -> Option<Broken> {
        if self.is_full(limits) {
            return Some(Broken::InFlight);
        }
        if let Some(allowance) = &limits.requests
            && !self.requests.holds(allowance, 1)
        {
            let after = self.requests.wait_for(allowance, 1).unwrap_or(Nanos::MAX);
            return Some(Broken::Requests { after });
        }
        if let Some(allowance) = &limits.tokens
            && !self.tokens.holds(allowance, tokens)
        {
            return Some(Broken::Tokens { after: self.tokens.wait_for(allowance, tokens) });
        }
        None
    }

    pub(super) fn take(&mut self, limits: &KeyLimits, requests: u64, tokens: u64) {
        if let Some(allowance) = &limits.requests {
            self.requests.take(allowance, requests);
        }
        if let Some(allowance) = &limits.tokens {
            self.tokens.take(allowance, tokens);
        }
    }

    pub(super) fn give(&mut self, limits: &KeyLimits, requests: u64, tokens: u64) {
        if let Some(allowance) = &limits.requests {
            self.requests.give(allowance, requests);
        }
        if let Some(allowance) = &limits.tokens {
            self.tokens.give(allowance, tokens);
        }
    }

    pub(super) fn standing(&self, limits: &KeyLimits) -> Standing {
        let left = |bucket: &Bucket, allowance: Option<Allowance>| {
            let allowance = allowance?;
            Some(Left {
                limit: allowance.burst(),
                remaining: bucket.units(&allowance),
                full_after: bucket.time_to_full(&allowance),
                window: allowance.window(),
            })
        };
        Standing {
            requests: left(&self.requests, limits.requests),
            tokens: left(&self.tokens, limits.tokens),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        self.requests.encode(out);
        self.tokens.encode(out);
        for (slot, held) in &self.rows {
            out.extend_from_slice(&slot.0.to_le_bytes());
            out.extend_from_slice(&held.to_le_bytes());
        }
    }

    /// Reads an account. `None`: these bytes are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (requests, rest) = Bucket::decode(rest)?;
        let (tokens, mut rest) = Bucket::decode(rest)?;
        let mut rows = Vec::new();
        while let Some((slot, tail)) = rest.split_first_chunk() {
            let (held, tail) = tail.split_first_chunk()?;
            rows.push((SlotId(u32::from_le_bytes(*slot)), u32::from_le_bytes(*held)));
            if rows.len() > MAX_ROWS {
                return None;
            }
            rest = tail;
        }
        rest.is_empty().then_some(Self { requests, tokens, rows })
    }
}
