//! The short way through prose: up to 64 bytes at a time, a bit for each byte.
//!
//! Most of most prompts is words of letters with single blanks, single marks, single line breaks and
//! short numbers between them. There every piece is told by a byte and its neighbours, so the pieces
//! of a block are counted with a few shifts of masks, where stepping from piece to piece costs ten
//! times as much. What is not that simple ends the block at the last blank before it and is left to
//! the ordinary ways, with the same features for the same text.

use super::super::bytes::{Block, Masks};
use super::super::feature::Feature;
use super::{Lead, Scan, Tally};

/// A block that gets less far than this was not worth its while.
const WORTH: usize = 16;

/// Bytes for which no block is tried after one that was not worth its while.
const REST: usize = 64;

impl<T: Tally> Scan<'_, T> {
    /// Takes blocks of prose as long as there are any. The state before and behind each is that at
    /// the start of a text.
    #[inline]
    pub(super) fn prose(&mut self) {
        if self.lead != Lead::Bare || self.accents > 0 {
            return;
        }
        while self.rest.len() <= self.try_prose_at
            && let Some(block) = self.rest.first_chunk::<64>()
        {
            let length = self.block(block);
            self.rest = self.rest.get(length..).unwrap_or_default();
            if length < WORTH {
                self.try_prose_at = self.rest.len().saturating_sub(REST);
            }
        }
    }

    /// Reports the pieces up to the last blank of a block that nothing but prose stands before.
    /// How far it got.
    #[inline]
    fn block(&mut self, block: &Block) -> usize {
        let Masks { letters, capitals, digits, marks, blanks, breaks } = Masks::of(block);
        let behind = |mask: u64| mask << 1;
        let others = !(letters | digits | marks | blanks | breaks);
        // Two of a kind, a capital inside a word, more than three digits, a blank at a line's end.
        let three_digits = digits & digits << 1 & digits << 2;
        let doubles = (marks & behind(marks)) | (blanks & behind(blanks));
        let odd = others
            | doubles
            | (capitals & behind(letters))
            | (digits & behind(three_digits))
            | (breaks & behind(blanks));
        // Up to the first odd byte, itself included: the blank of a double one may be the end.
        let good = odd ^ odd.wrapping_sub(1);
        let ends = blanks & behind(letters | digits | marks) & good;
        let Some(end) = ends.checked_ilog2() else { return 0 };
        let inside = (1_u64 << end).wrapping_sub(1);

        let words = letters & !behind(letters);
        let spaced = words & behind(blanks);
        // A mark right before a word belongs to it, unless a blank belongs to the mark.
        let joining = marks & (letters >> 1) & !behind(blanks);
        let marked = words & behind(joining);
        // Letters that have eight before them in their word.
        let two = letters & behind(letters);
        let four = two & two << 2;
        let eight = four & four << 4;
        let over = letters & behind(eight);
        // A carry runs from the start of a word over all its letters.
        let of_spaced = letters & !letters.wrapping_add(spaced);
        let lines = breaks & !behind(breaks);
        for (feature, mask) in [
            (Feature::WordSpaced, spaced),
            (Feature::WordMarked, marked),
            (Feature::WordBare, words & !spaced & !marked),
            (Feature::SpacedOver8, over & of_spaced),
            (Feature::OtherOver8, over & !of_spaced),
            (Feature::Digits, digits & !behind(digits)),
            (Feature::BlankAlone, blanks & (digits >> 1)),
            (Feature::Marks, marks & !joining),
            (Feature::MarkedLineBreaks, lines & behind(marks)),
            (Feature::LineBreaks, lines & !behind(marks)),
        ] {
            self.tally.add(feature, (mask & inside).count_ones());
        }
        end as usize
    }
}
