//! One bucket of allowance, in whole numbers.
//!
//! It is the generic cell rate algorithm (ITU-T I.371) written as a level instead of a time: the
//! level rises with the clock up to a bound, and who takes from it must find enough. Whole numbers,
//! so that reserving and settling the same amount a million times loses nothing. The level is kept
//! in grains, chosen so that a nanosecond brings a whole number of them.
//!
//! The level may go below zero: a request that was let in on a guess is charged the truth in the
//! end, and what it took too much is waited for by the next.

use crate::ids::Nanos;

/// Grains of one request; a rate of a thousandth of a request a second brings one a nanosecond.
const REQUEST_GRAINS: u64 = 1_000_000_000_000;
/// Grains of one token; a rate of one token a minute brings one a nanosecond.
const TOKEN_GRAINS: u64 = 60_000_000_000;

/// How fast allowance comes, and how much of it can be saved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Grains of one unit.
    unit: u64,
    /// Grains a nanosecond brings; at least 1.
    rate: u64,
    /// Units that can be saved up; at least 1.
    burst: u64,
}

impl Allowance {
    /// Requests: `per_second` in thousandths of a request, `burst` in requests. Zeros count as 1.
    pub const fn requests(per_second_milli: u64, burst: u64) -> Self {
        Self {
            unit: REQUEST_GRAINS,
            rate: at_least_one(per_second_milli),
            burst: at_least_one(burst),
        }
    }

    /// Tokens: `per_minute`, of which a minute's worth can be saved up. Zero counts as 1.
    pub const fn tokens(per_minute: u64) -> Self {
        let rate = at_least_one(per_minute);
        Self { unit: TOKEN_GRAINS, rate, burst: rate }
    }

    /// Units that can be saved up.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Time in which an empty bucket fills.
    pub fn window(&self) -> Nanos {
        self.time_for(self.bound())
    }

    fn grains(&self, units: u64) -> i128 {
        // Both factors have 64 bits, so their product has 127 at most with these grains.
        i128::from(units).saturating_mul(i128::from(self.unit))
    }

    fn bound(&self) -> i128 {
        self.grains(self.burst)
    }

    fn time_for(&self, grains: i128) -> Nanos {
        let rate = i128::from(self.rate);
        let nanos = grains.max(0).saturating_add(rate.saturating_sub(1)).checked_div(rate);
        nanos.and_then(|nanos| Nanos::try_from(nanos).ok()).unwrap_or(Nanos::MAX)
    }
}

const fn at_least_one(value: u64) -> u64 {
    if value == 0 { 1 } else { value }
}

/// A bucket as it is stored: its level and when that was true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    level: i128,
    at: Nanos,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn full(allowance: &Allowance, now: Nanos) -> Self {
        Self { level: allowance.bound(), at: now }
    }

    /// Brings the level up to now. A clock that lags behind another worker's changes nothing. A
    /// bound that a newer policy has lowered holds from here on.
    pub(super) fn refill(&mut self, allowance: &Allowance, now: Nanos) {
        let elapsed = now.saturating_sub(self.at);
        let grains = i128::from(elapsed).saturating_mul(i128::from(allowance.rate));
        self.level = self.level.saturating_add(grains).min(allowance.bound());
        self.at = self.at.max(now);
    }

    /// Whether these units are there.
    pub(super) fn holds(&self, allowance: &Allowance, units: u64) -> bool {
        self.level >= allowance.grains(units)
    }

    /// Takes units, whether they are there or not.
    pub(super) fn take(&mut self, allowance: &Allowance, units: u64) {
        self.level = self.level.saturating_sub(allowance.grains(units));
    }

    /// Gives units back; what does not fit is lost.
    pub(super) fn give(&mut self, allowance: &Allowance, units: u64) {
        let level = self.level.saturating_add(allowance.grains(units));
        self.level = level.min(allowance.bound());
    }

    /// Whole units that are there.
    pub(super) fn units(&self, allowance: &Allowance) -> u64 {
        let units = self.level.max(0).checked_div(i128::from(allowance.unit)).unwrap_or(0);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Time until these units are there, if nobody takes any; `None`: they never fit.
    pub(super) fn wait_for(&self, allowance: &Allowance, units: u64) -> Option<Nanos> {
        let missing = allowance.grains(units).saturating_sub(self.level);
        (units <= allowance.burst).then(|| allowance.time_for(missing))
    }

    /// Time until the bucket is full, if nobody takes anything.
    pub(super) fn time_to_full(&self, allowance: &Allowance) -> Nanos {
        allowance.time_for(allowance.bound().saturating_sub(self.level))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.level.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
    }

    /// Reads a bucket from the front of these bytes and returns the rest.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (level, rest) = bytes.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        Some((Self { level: i128::from_le_bytes(*level), at: u64::from_le_bytes(*at) }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SECOND: Nanos = 1_000_000_000;

    fn taken(bucket: &mut Bucket, allowance: &Allowance, now: Nanos) -> bool {
        bucket.refill(allowance, now);
        let holds = bucket.holds(allowance, 1);
        if holds {
            bucket.take(allowance, 1);
        }
        holds
    }

    #[test]
    fn a_burst_gets_in_and_then_the_rate() {
        let ten = Allowance::requests(10_000, 10);
        let mut bucket = Bucket::full(&ten, 5);
        let admitted = (0..100).filter(|_| taken(&mut bucket, &ten, 5)).count();
        assert_eq!(admitted, 10);
        // Three times the rate for 20 s.
        let steps = (1..=600_u64).map(|step| 5 + step * SECOND / 30);
        let admitted = steps.filter(|now| taken(&mut bucket, &ten, *now)).count();
        assert_eq!(admitted, 200);
    }

    #[test]
    fn who_waits_as_long_as_told_gets_in_and_not_before() {
        let slow = Allowance::requests(300, 1);
        let mut bucket = Bucket::full(&slow, 0);
        assert!(taken(&mut bucket, &slow, 0));
        let wait = bucket.wait_for(&slow, 1).expect("fits");
        assert_eq!(wait, 3_333_333_334);
        assert!(!taken(&mut bucket, &slow, wait - 1));
        assert!(taken(&mut bucket, &slow, wait));
        assert_eq!(bucket.wait_for(&slow, 2), None);
    }

    #[test]
    fn tokens_given_back_are_there_again_to_the_token() {
        let minute = Allowance::tokens(7);
        let mut bucket = Bucket::full(&minute, 0);
        for _ in 0..1_000 {
            bucket.take(&minute, 5);
            bucket.take(&minute, 3);
            assert_eq!(bucket.units(&minute), 0);
            assert!(!bucket.holds(&minute, 0));
            bucket.give(&minute, 8);
        }
        assert_eq!(bucket, Bucket::full(&minute, 0));
    }

    #[test]
    fn a_clock_that_lags_gives_nothing_and_takes_nothing() {
        let one = Allowance::requests(1_000, 1);
        let mut bucket = Bucket::full(&one, 10 * SECOND);
        bucket.take(&one, 1);
        let before = bucket;
        bucket.refill(&one, 3 * SECOND);
        assert_eq!(bucket, before);
        bucket.refill(&one, 11 * SECOND);
        assert_eq!(bucket.units(&one), 1);
    }

    #[test]
    fn extreme_numbers_saturate() {
        let most = Allowance::tokens(u64::MAX);
        let mut bucket = Bucket::full(&most, 0);
        bucket.refill(&most, u64::MAX);
        bucket.take(&most, u64::MAX);
        bucket.take(&most, u64::MAX);
        bucket.give(&most, u64::MAX);
        assert!(bucket.time_to_full(&most) <= 60 * SECOND);
    }
}
