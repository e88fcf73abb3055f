//! The two hash tables of a vocabulary: which pairs merge, which pieces are one token.
//!
//! Open addressing in plain arrays of a power of two: a look-up is one multiplication and, mostly,
//! one cache line. A piece that is one token is known by 32 bits of a hash of its bytes besides
//! their place in the table, so that the bytes need not be kept: a piece that is none is taken for
//! one about once in a thousand million times.

use super::VocabularyError;

/// "These two do not merge."
pub(super) const NONE: u32 = u32::MAX;

const ID_BITS: u32 = 21;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Slots for `count` entries: a power of two at most 60 % full.
fn slots(count: usize) -> usize {
    (count.saturating_mul(5) / 3).saturating_add(2).next_power_of_two()
}

/// Pairs of ids and the id they become.
pub(super) struct Pairs {
    /// Left, right and merged id, 21 bits each; zero is free, as no merge makes id zero.
    slots: Vec<u64>,
    shift: u32,
}

impl Pairs {
    pub(super) fn with_capacity(count: usize) -> Self {
        let slots = vec![0; slots(count)];
        let shift = 64_u32.saturating_sub(slots.len().trailing_zeros());
        Self { slots, shift }
    }

    /// Enters a pair; the ids are below `MAX_IDS`.
    ///
    /// # Errors
    /// The pair is there already.
    pub(super) fn insert(
        &mut self,
        left: u32,
        right: u32,
        merged: u32,
    ) -> Result<(), VocabularyError> {
        let key = u64::from(left) << ID_BITS | u64::from(right);
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.place(key);
        while let Some(slot) = self.slots.get_mut(at & mask) {
            if *slot == 0 {
                *slot = key << ID_BITS | u64::from(merged);
                return Ok(());
            }
            if *slot >> ID_BITS == key {
                break;
            }
            at = at.wrapping_add(1);
        }
        Err(VocabularyError::Merge { id: merged })
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        // Below 2^22, as the shift leaves only so many bits.
        usize::try_from(key.wrapping_mul(SPREAD) >> self.shift).unwrap_or_default()
    }

    /// The id that two neighbours become, or `NONE`.
    #[inline]
    pub(super) fn get(&self, left: u32, right: u32) -> u32 {
        let key = u64::from(left) << ID_BITS | u64::from(right);
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.place(key);
        while let Some(&slot) = self.slots.get(at & mask) {
            // First, as the pair of two zeros is the key zero.
            if slot == 0 {
                break;
            }
            if slot >> ID_BITS == key {
                return u32::try_from(slot & ID_MASK).unwrap_or(NONE);
            }
            at = at.wrapping_add(1);
        }
        NONE
    }
}

/// Pieces that are one token.
pub(super) struct Wholes {
    /// Half of the hash of a token; zero is free.
    slots: Vec<u32>,
}

impl Wholes {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { slots: vec![0; slots(count)] }
    }

    pub(super) fn insert(&mut self, hash: u64) {
        let (mut at, print) = halves(hash);
        let mask = self.slots.len().wrapping_sub(1);
        while let Some(slot) = self.slots.get_mut(at & mask) {
            if *slot == 0 || *slot == print {
                *slot = print;
                return;
            }
            at = at.wrapping_add(1);
        }
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        let (mut at, print) = halves(hash);
        let mask = self.slots.len().wrapping_sub(1);
        while let Some(&slot) = self.slots.get(at & mask) {
            if slot == print {
                return true;
            }
            if slot == 0 {
                break;
            }
            at = at.wrapping_add(1);
        }
        false
    }
}

/// Where a hash belongs and what is kept of it.
#[inline]
fn halves(hash: u64) -> (usize, u32) {
    let low = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
    let high = u32::try_from(hash >> 32).unwrap_or_default();
    (low as usize, high.max(1))
}

/// A hash of a piece's bytes: eight at a time, all 64 bits of use.
#[inline]
pub(super) fn hash(piece: &[u8]) -> u64 {
    let mut hash = (piece.len() as u64).wrapping_mul(SPREAD);
    let (words, tail) = piece.as_chunks::<8>();
    for &word in words {
        hash = stir(hash ^ u64::from_le_bytes(word));
    }
    if !tail.is_empty() {
        hash = stir(hash ^ last_word(tail));
    }
    hash.wrapping_mul(SPREAD) ^ (hash >> 29)
}

#[inline]
fn stir(word: u64) -> u64 {
    let word = word.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ (word >> 32)
}

/// Up to seven bytes in a number; with their count, no two are alike.
#[inline]
fn last_word(tail: &[u8]) -> u64 {
    if let (Some(&low), Some(&high)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(low)) | u64::from(u32::from_le_bytes(high)) << 32;
    }
    match *tail {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        _ => 0,
    }
}
