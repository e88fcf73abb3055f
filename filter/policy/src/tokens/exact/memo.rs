//! Counts of recent pieces.

use super::merge::Scratch;

use super::tables::last_word;

/// Slots, a power of two; 64 KiB.
const SLOTS: usize = 2048;
const PLACE_MASK: u64 = SLOTS as u64 - 1;

/// Bytes of a piece that is remembered at most. Longer ones are rarely seen again.
pub(super) const LONGEST: usize = 30;

/// The bytes of a piece, then its length and above it the count, one byte each. The
/// hash alone would not do: it can be inverted, and a memo serves all clients.
type Slot = [u64; 4];

const LENGTH_SHIFT: u32 = 48;
const COUNT_SHIFT: u32 = 56;

/// What a counter remembers from text to text, and its working memory. Pieces are known by
/// their bytes. One memo should serve one vocabulary: with another it starts anew, which costs time.
pub struct Memo {
    /// Checksum of the vocabulary it serves.
    serves: u64,
    slots: Box<[Slot]>,
    pub(super) scratch: Scratch,
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The pieces are from texts.
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl Default for Memo {
    fn default() -> Self {
        Self { serves: 0, slots: vec![[0; 4]; SLOTS].into(), scratch: Scratch::default() }
    }
}

impl Memo {
    /// Forgets everything unless it served this vocabulary already.
    pub(super) fn serve(&mut self, checksum: u64) {
        if self.serves != checksum {
            self.slots.fill([0; 4]);
            self.serves = checksum;
        }
    }

    /// The count of a piece of up to `LONGEST` bytes.
    #[inline]
    pub(super) fn get(&self, piece: &[u8], hash: u64) -> Option<u64> {
        let [a, b, c, d] = *self.slots.get(place(hash))?;
        let count = d >> COUNT_SHIFT;
        (count != 0 && key(piece) == [a, b, c, d & !(u64::MAX << COUNT_SHIFT)]).then_some(count)
    }

    /// Remembers the count of a piece of up to `LONGEST` bytes.
    #[inline]
    pub(super) fn put(&mut self, piece: &[u8], hash: u64, count: u64) {
        if let Some(slot) = self.slots.get_mut(place(hash)) {
            let [a, b, c, d] = key(piece);
            *slot = [a, b, c, d | count << COUNT_SHIFT];
        }
    }
}

/// A slot without its count: no two pieces have the same.
#[inline]
fn key(piece: &[u8]) -> Slot {
    let (words, tail) = piece.as_chunks::<8>();
    let word = |index: usize| match words.get(index) {
        Some(word) => u64::from_le_bytes(*word),
        None if index == words.len() => last_word(tail),
        None => 0,
    };
    let length = (piece.len() as u64) << LENGTH_SHIFT;
    [word(0), word(1), word(2), word(3) | length]
}

#[inline]
fn place(hash: u64) -> usize {
    usize::try_from(hash & PLACE_MASK).unwrap_or_default()
}
