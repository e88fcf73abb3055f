//! Which instances of the filter live: one row each in a value that all share.
//!
//! An instance joins with its first request and says every second that it still lives. One that
//! was silent for [`SILENCE`] is taken for dead (its VM panicked and was reloaded), and whatever
//! it held in any pool is free again. An instance that was only slow finds itself missing, joins
//! again under the same number and writes its rows anew. After foreign bytes nobody is taken for
//! dead until everybody had the time to speak.

use crate::ids::{MILLI, Nanos, SlotId};
use crate::port::{Port, StoreError};

/// How often an instance says that it lives.
pub const BEAT: Nanos = 1_000 * MILLI;
/// After this silence an instance is dead. Long enough for a worker that is starved of CPU.
pub const SILENCE: Nanos = 5_000 * MILLI;

const MAGIC: [u8; 4] = *b"slm\x01";
const TRIES: u32 = 1_000;
/// More rows than any process has workers: what has more is not ours.
const MAX_MEMBERS: usize = 4_096;

/// The instances that live.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    next: u32,
    /// When this value was made anew because what was stored was none of ours; 0: never.
    rebuilt: Nanos,
    /// Rebuilt so short a time ago that some that live may not have spoken yet.
    young: bool,
    rows: Vec<(SlotId, Nanos)>,
}

impl Members {
    /// Whether this instance lives, or may.
    pub fn lives(&self, slot: SlotId) -> bool {
        self.young || self.rows.iter().any(|(other, _)| *other == slot)
    }

    /// The members in these bytes that are not silent for too long. Where the bytes are foreign,
    /// the numbers go on from the time: those given out before must not be given out again.
    fn read(bytes: &[u8], now: Nanos) -> Self {
        let mut members = Self::decode(bytes).unwrap_or_else(|| Self {
            next: u32::try_from((now / MILLI) & 0x7fff_ffff).unwrap_or(0),
            rebuilt: now,
            ..Self::default()
        });
        members.rows.retain(|(_, beat)| now.saturating_sub(*beat) <= SILENCE);
        let age = now.saturating_sub(members.rebuilt);
        members.young = members.rebuilt != 0 && age <= SILENCE;
        members
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend_from_slice(&self.next.to_le_bytes());
        out.extend_from_slice(&self.rebuilt.to_le_bytes());
        for (slot, beat) in &self.rows {
            out.extend_from_slice(&slot.0.to_le_bytes());
            out.extend_from_slice(&beat.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (next, rest) = rest.split_first_chunk::<4>()?;
        let (rebuilt, mut rest) = rest.split_first_chunk::<8>()?;
        let mut members = Self {
            next: u32::from_le_bytes(*next),
            rebuilt: u64::from_le_bytes(*rebuilt),
            ..Self::default()
        };
        while let Some((slot, tail)) = rest.split_first_chunk::<4>() {
            let (beat, tail) = tail.split_first_chunk::<8>()?;
            let row = (SlotId(u32::from_le_bytes(*slot)), u64::from_le_bytes(*beat));
            members.rows.push(row);
            if members.rows.len() > MAX_MEMBERS {
                return None;
            }
            rest = tail;
        }
        rest.is_empty().then_some(members)
    }
}

/// Joins, or says that this instance still lives. Returns its number and who lives now.
///
/// # Errors
/// The shared store failed.
pub fn beat(
    key: &str,
    me: Option<SlotId>,
    now: Nanos,
    port: &mut dyn Port,
) -> Result<(SlotId, Members), StoreError> {
    for _ in 0..TRIES {
        let stored = port.load(key)?;
        let mut members = Members::read(&stored.bytes, now);
        let slot = me.unwrap_or_else(|| {
            members.next = members.next.wrapping_add(1);
            SlotId(members.next)
        });
        members.next = members.next.max(slot.0);
        match members.rows.iter_mut().find(|(other, _)| *other == slot) {
            Some((_, beat)) => *beat = now,
            None => members.rows.push((slot, now)),
        }
        if port.store(key, &members.encode(), stored.version)? {
            return Ok((slot, members));
        }
    }
    Err(StoreError::Contended)
}

/// Who lives now, for an instance that has not joined.
///
/// # Errors
/// The shared store failed.
pub fn look(key: &str, now: Nanos, port: &mut dyn Port) -> Result<Members, StoreError> {
    Ok(Members::read(&port.load(key)?.bytes, now))
}

/// Makes the value where it is missing, before the first race for it can be.
///
/// # Errors
/// The shared store failed.
pub fn create(key: &str, port: &mut dyn Port) -> Result<(), StoreError> {
    let stored = port.load(key)?;
    if stored.version == 0 && stored.bytes.is_empty() {
        port.store(key, &Members::default().encode(), 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
