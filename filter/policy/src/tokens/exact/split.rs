//! Cuts text into the pieces that are merged each for itself, without a regex engine.
//!
//! The patterns are ordered choices without nesting, so one look at a character and the next says
//! which alternative takes them; the rest is a run. Where a pattern has a look-ahead, what ends the
//! text of that stage counts as the end.

mod contractions;
mod deepseek;

use super::blob::{Family, Rules};
use super::classes::{BREAK, Classes, END, Flags, SPACE};

/// What is merged for itself.
#[derive(Clone, Copy)]
pub(super) struct Piece<'t> {
    pub(super) bytes: &'t [u8],
    /// Whether it may be a run of hanzi and of nothing else.
    pub(super) is_hanzi: bool,
}

/// The pieces of one text, in order.
pub(super) struct Splitter<'t, 'v> {
    classes: &'v Classes,
    rules: Rules,
    bytes: &'t [u8],
    at: usize,
    /// End of a run of kana and hanzi that has to be split further.
    mixed_run: usize,
}

impl<'t, 'v> Splitter<'t, 'v> {
    pub(super) fn new(classes: &'v Classes, rules: Rules, bytes: &'t [u8]) -> Self {
        Self { classes, rules, bytes, at: 0, mixed_run: 0 }
    }

    /// The next piece, of one byte at least.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Piece<'t>> {
        let start = self.at;
        let (end, is_hanzi) = match self.rules.family {
            Family::DeepSeek => self.deepseek(start)?,
            Family::Contractions => (self.contractions(start)?, false),
        };
        self.at = end;
        Some(Piece { bytes: self.bytes.get(start..end)?, is_hanzi })
    }

    /// End of the run of characters with any of these flags.
    #[inline]
    fn run(&self, bytes: &[u8], mut at: usize, is_in: impl Fn(Flags) -> bool) -> usize {
        loop {
            let (flags, length) = self.classes.at(bytes, at);
            if flags & END != 0 || !is_in(flags) {
                return at;
            }
            at = at.wrapping_add(length);
        }
    }

    /// End of the run of line breaks.
    #[inline]
    fn breaks(&self, bytes: &[u8], at: usize) -> usize {
        self.run(bytes, at, |flags| flags & BREAK != 0)
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+` at white space; `ends` says which flags stand for the end of the
    /// text.
    fn blanks(&self, bytes: &[u8], start: usize, ends: impl Fn(Flags) -> bool) -> usize {
        let (mut at, mut last, mut behind_break) = (start, start, None);
        loop {
            let (flags, length) = self.classes.at(bytes, at);
            if flags & SPACE == 0 {
                return match behind_break {
                    Some(end) => end,
                    None if ends(flags) || last == start => at,
                    None => last,
                };
            }
            last = at;
            at = at.wrapping_add(length);
            if flags & BREAK != 0 {
                behind_break = Some(at);
            }
        }
    }
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Length of a word of ASCII letters, with the blank before it if there is one, that ends before an
/// ASCII character and not among the last bytes: most pieces of most texts, found eight bytes at a
/// time. `None` says nothing.
#[inline]
fn plain_word(bytes: &[u8]) -> Option<usize> {
    let start = usize::from(bytes.first() == Some(&b' '));
    let mut length = start;
    loop {
        let word = u64::from_le_bytes(*bytes.get(length..)?.first_chunk()?);
        // Case and the high bit left out: one sum reaches the high bit from A on, one past Z.
        let folded = word & LOW.wrapping_mul(0x5F);
        let from_a = folded.wrapping_add(LOW.wrapping_mul(0x3F));
        let past_z = folded.wrapping_add(LOW.wrapping_mul(0x25));
        let others = (!(from_a ^ past_z) | word) & HIGH;
        if others == 0 {
            length = length.wrapping_add(8);
            continue;
        }
        let first = others & others.wrapping_neg();
        length = length.wrapping_add((first.trailing_zeros() / 8) as usize);
        return (length > start && word & first == 0).then_some(length);
    }
}
