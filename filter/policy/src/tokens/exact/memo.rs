//! Counts of recent pieces.

use super::merge::Scratch;

/// Slots, a power of two; 32 KiB.
const SLOTS: usize = 4096;
const PLACE_MASK: u64 = SLOTS as u64 - 1;
/// Bits of a slot that hold the count, below those of the hash: a piece has up to 6144 tokens.
const COUNT_BITS: u32 = 13;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// What a counter remembers from text to text, and its working memory. Pieces are known by 63 bits of
/// a hash. One memo should serve one vocabulary: with another it starts anew, which costs time.
pub struct Memo {
    /// Checksum of the vocabulary it serves.
    serves: u64,
    slots: Box<[u64]>,
    pub(super) scratch: Scratch,
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Hashes of short pieces tell what they were.
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl Default for Memo {
    fn default() -> Self {
        Self { serves: 0, slots: vec![0; SLOTS].into(), scratch: Scratch::default() }
    }
}

impl Memo {
    /// Forgets everything unless it served this vocabulary already.
    pub(super) fn serve(&mut self, checksum: u64) {
        if self.serves != checksum {
            self.slots.fill(0);
            self.serves = checksum;
        }
    }

    #[inline]
    pub(super) fn get(&self, hash: u64) -> Option<u64> {
        let slot = self.slots.get(place(hash)).copied().unwrap_or_default();
        let count = slot & COUNT_MASK;
        ((slot ^ hash) >> COUNT_BITS == 0 && count != 0).then_some(count)
    }

    #[inline]
    pub(super) fn put(&mut self, hash: u64, count: u64) {
        if let Some(slot) = self.slots.get_mut(place(hash)) {
            *slot = hash & !COUNT_MASK | count & COUNT_MASK;
        }
    }
}

#[inline]
fn place(hash: u64) -> usize {
    usize::try_from(hash & PLACE_MASK).unwrap_or_default()
}
