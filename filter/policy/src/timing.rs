//! Times of a request, as people and programs read them.

use std::time::Duration;

use crate::ids::{MILLI, Nanos};

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Monotonic: differences are taken from this.
    pub mono: Nanos,
    /// Nanoseconds since 1970, UTC: what is shown.
    pub wall: Nanos,
}

impl Moment {
    /// The wall time of another monotonic moment, seen from this one. A request's times are all
    /// derived from one reading of the wall clock, so that they add up even if that clock jumps.
    pub fn wall_at(self, mono: Nanos) -> Nanos {
        if mono >= self.mono {
            self.wall.saturating_add(mono.saturating_sub(self.mono))
        } else {
            self.wall.saturating_sub(self.mono.saturating_sub(mono))
        }
    }
}

/// A duration in nanoseconds.
pub fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Milliseconds with three decimals.
pub fn millis(nanos: Nanos) -> String {
    let micros = nanos / 1_000;
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

/// Whole milliseconds, rounded, as histograms take them.
pub fn whole_millis(nanos: Nanos) -> u64 {
    nanos.saturating_add(MILLI / 2) / MILLI
}

/// Writes a wall time in RFC 3339, UTC, with milliseconds.
pub fn rfc3339(out: &mut String, wall: Nanos) {
    let millis = wall / MILLI;
    let seconds = millis / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    two(out, year / 100);
    for (number, after) in [
        (year, '-'),
        (month, '-'),
        (day, 'T'),
        (second / 3_600, ':'),
        (second / 60 % 60, ':'),
        (second % 60, '.'),
    ] {
        two(out, number);
        out.push(after);
    }
    two(out, millis / 10);
    digit(out, millis);
    out.push('Z');
}

/// The last two digits of a number. The formatter would take ten times as long, and a log line has
/// four times in it.
fn two(out: &mut String, number: u64) {
    digit(out, number / 10);
    digit(out, number);
}

fn digit(out: &mut String, number: u64) {
    let last = u8::try_from(number % 10).unwrap_or(0);
    out.push(char::from(b'0'.wrapping_add(last)));
}

/// The date of a day since 1970-01-01, in the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last day of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01; an era has 400 years of 146,097 days in all.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let leaps = (day / 1_460).saturating_add(day / 146_096);
    let year = day.saturating_add(day / 36_524).saturating_sub(leaps) / 365;
    let before = (year.saturating_mul(365)).saturating_add(year / 4).saturating_sub(year / 100);
    let day = day.saturating_sub(before);
    let month = day.saturating_mul(5).saturating_add(2) / 153;
    let first = month.saturating_mul(153).saturating_add(2) / 5;
    let day = day.saturating_sub(first).saturating_add(1);
    let (month, next) =
        if month < 10 { (month.saturating_add(3), 0) } else { (month.saturating_sub(9), 1) };
    (era.saturating_mul(400).saturating_add(year).saturating_add(next), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn dates_are_right_over_leap_years_and_centuries() {
        let at = |seconds: u64| {
            let mut text = String::new();
            rfc3339(&mut text, seconds * 1_000_000_000 + 7_999_999);
            text
        };
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.007Z");
        assert_eq!(at(1_709_251_200), "2024-03-01T00:00:00.007Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.007Z");
        assert_eq!(at(1_796_083_199), "2026-11-30T23:59:59.007Z");
    }

    #[test]
    fn milliseconds_keep_three_decimals() {
        assert_eq!(millis(1_234_567), "1.234");
        assert_eq!(millis(50_000), "0.050");
        assert_eq!(whole_millis(1_500_000), 2);
    }

    #[test]
    fn wall_times_follow_the_monotonic_clock() {
        let moment = Moment { mono: 100, wall: 1_000 };
        assert_eq!(moment.wall_at(150), 1_050);
        assert_eq!(moment.wall_at(50), 950);
    }
}
