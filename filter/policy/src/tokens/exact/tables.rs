//! The two hash tables of a vocabulary: which pairs merge, which pieces are one token.
//!
//! Open addressing in plain arrays of a power of two: a look-up is one multiplication and, mostly,
//! one cache line. The hash needs no key and may be guessed: what it finds is compared byte by byte,
//! so pieces that were made to collide are told apart, and all they can do is to have their places
//! looked at: as many as the longest row of taken slots that the vocabulary itself makes.

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
    /// Up to seven bytes of a token and their number in the highest byte; or, of a longer one, where
    /// its bytes begin (25 bits), their number (11), some of their hash (20) and ones. Zero is
    /// free, as no token is empty.
    slots: Vec<u64>,
    /// The bytes of all tokens, in the order of the vocabulary: usual ones are close together.
    bytes: Vec<u8>,
}

const LENGTH_BITS: u32 = 11;
const PRINT_BITS: u32 = 20;
const LONG: u64 = 0xFF << 56;
/// Where the start of a long token is.
const START_SHIFT: u32 = LENGTH_BITS + PRINT_BITS;
const START: u64 = (1 << 25) - 1;

impl Wholes {
    /// For `count` tokens of so many bytes together, both of which may be exceeded by little.
    pub(super) fn with_capacity(count: usize, bytes: usize) -> Self {
        Self { slots: vec![0; slots(count)], bytes: Vec::with_capacity(bytes) }
    }

    /// The bytes entered so far, one token behind the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Enters a token of 1 to 1024 bytes; its bytes are kept even if it is there already.
    pub(super) fn insert(&mut self, token: &[u8]) {
        let start = self.bytes.len() as u64;
        self.bytes.extend(token);
        let (mut at, print) = halves(hash(token), token);
        let mask = self.slots.len().wrapping_sub(1);
        while let Some(&slot) = self.slots.get(at & mask) {
            if slot == 0 {
                break;
            }
            if self.is(slot, print, token) {
                return;
            }
            at = at.wrapping_add(1);
        }
        if let Some(slot) = self.slots.get_mut(at & mask) {
            *slot = if print < LONG { print } else { print | (start & START) << START_SHIFT };
        }
    }

    #[inline]
    pub(super) fn contains(&self, piece: &[u8], hash: u64) -> bool {
        let (mut at, print) = halves(hash, piece);
        let mask = self.slots.len().wrapping_sub(1);
        while let Some(&slot) = self.slots.get(at & mask) {
            if self.is(slot, print, piece) {
                return true;
            }
            if slot == 0 {
                break;
            }
            at = at.wrapping_add(1);
        }
        false
    }

    #[inline]
    fn is(&self, slot: u64, print: u64, piece: &[u8]) -> bool {
        if print < LONG {
            return slot == print;
        }
        if slot & !(START << START_SHIFT) != print {
            return false;
        }
        let start = usize::try_from(slot >> START_SHIFT & START).unwrap_or_default();
        let token = self.bytes.get(start..start.wrapping_add(piece.len()));
        token.is_some_and(|token| same(token, piece))
    }
}

/// Where a hash belongs, and the slot of the piece without its start.
#[inline]
fn halves(hash: u64, piece: &[u8]) -> (usize, u64) {
    let low = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
    let length = piece.len() as u64;
    let print = if length < 8 {
        length << 56 | last_word(piece)
    } else {
        LONG | length << PRINT_BITS | hash >> (64 - PRINT_BITS)
    };
    (low as usize, print)
}

/// Whether pieces of one length are equal; they are too short for a call of `memcmp`.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.iter().zip(b).all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
        && last_word(a_tail) == last_word(b_tail)
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

/// Up to seven bytes in a number, the first lowest.
#[inline]
pub(super) fn last_word(tail: &[u8]) -> u64 {
    if let (Some(&low), Some(&high)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        // The two overlap in the same bytes.
        let shift = (tail.len() as u64).wrapping_sub(4).wrapping_mul(8);
        return u64::from(u32::from_le_bytes(low))
            | u64::from(u32::from_le_bytes(high)) << (shift & 63);
    }
    match *tail {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        _ => 0,
    }
}
