//! Character classes of a pre-tokenizer, in a table of two stages.
//!
//! A splitting rule asks of a character only whether it is a letter, a mark, a number, punctuation,
//! white space. Which characters are depends on the Unicode version of the regex engine that the
//! model's own tokenizer runs on, so the classes come with the vocabulary and not from this crate.

use super::blob::Rules;

/// What a character is, as bits that are asked for together.
pub(super) type Flags = u8;

/// A letter.
pub(super) const LETTER: Flags = 1;
/// A combining mark.
pub(super) const MARK: Flags = 2;
/// A number.
pub(super) const NUMBER: Flags = 4;
/// Punctuation or a symbol.
pub(super) const SIGN: Flags = 8;
/// White space, line breaks included.
pub(super) const SPACE: Flags = 16;
/// Carriage return or line feed.
pub(super) const BREAK: Flags = 32;
/// Split off as Chinese or Japanese before anything else is looked at.
pub(super) const CJK: Flags = 64;
/// No character at all: the end of what is split.
pub(super) const END: Flags = 128;

/// The flags a vocabulary may give a character.
pub(super) const GIVEN: Flags = LETTER | MARK | NUMBER | SIGN | SPACE;

/// Number of Unicode code points.
pub(super) const CODE_POINTS: u32 = 0x11_0000;

/// Hanzi that the rules for Chinese split off, and that the fast path knows.
pub(super) const HANZI: std::ops::RangeInclusive<u32> = 0x4E00..=0x9FA5;
/// Hiragana and katakana.
const KANA: std::ops::RangeInclusive<u32> = 0x3040..=0x30FF;

const BLOCK_BITS: u32 = 7;
const BLOCK: usize = 1 << BLOCK_BITS;

/// The flags of every character.
pub(super) struct Classes {
    ascii: [Flags; 128],
    /// Which block holds the flags of 128 code points.
    stage1: Vec<u16>,
    blocks: Vec<[Flags; BLOCK]>,
}

impl Classes {
    /// The table for `ranges`: flags and the number of code points in a row that have them, from the
    /// first code point on. What is behind the last one has none.
    pub(super) fn new(ranges: &[(u32, Flags)], rules: Rules) -> Self {
        let mut table = Self { ascii: [0; 128], stage1: Vec::new(), blocks: Vec::new() };
        let mut ranges = ranges.iter().copied();
        let (mut left, mut flags) = ranges.next().unwrap_or((CODE_POINTS, 0));
        let mut code = 0_u32;
        while code < CODE_POINTS {
            let mut block = [0; BLOCK];
            for entry in &mut block {
                while left == 0 {
                    (left, flags) = ranges.next().unwrap_or((CODE_POINTS, 0));
                }
                left = left.saturating_sub(1);
                *entry = flags & GIVEN;
                if rules.cjk && (HANZI.contains(&code) || KANA.contains(&code)) {
                    *entry |= CJK;
                }
                if code == 0x0A || code == 0x0D {
                    *entry |= BREAK;
                }
                code = code.wrapping_add(1);
            }
            if table.stage1.is_empty() {
                table.ascii = block;
            }
            table.push(&block);
        }
        table
    }

    fn push(&mut self, block: &[Flags; BLOCK]) {
        // Most are like the one before; looking through all of them takes milliseconds.
        let last = self.stage1.last().map(|&last| usize::from(last));
        let at = last
            .filter(|&last| self.blocks.get(last) == Some(block))
            .or_else(|| self.blocks.iter().position(|known| known == block))
            .unwrap_or_else(|| {
                self.blocks.push(*block);
                self.blocks.len().saturating_sub(1)
            });
        // 8,704 blocks at most.
        self.stage1.push(u16::try_from(at).unwrap_or_default());
    }

    /// The flags of a byte that is a character of its own; `None` of one beyond ASCII.
    #[inline]
    pub(super) fn of_ascii(&self, byte: u8) -> Option<Flags> {
        self.ascii.get(usize::from(byte)).copied()
    }

    /// The flags of a code point.
    #[inline]
    pub(super) fn of_code(&self, code: u32) -> Flags {
        let block = self.stage1.get((code >> BLOCK_BITS) as usize).copied().unwrap_or_default();
        let entry = (code as usize) & (BLOCK - 1);
        self.blocks
            .get(usize::from(block))
            .and_then(|block| block.get(entry))
            .copied()
            .unwrap_or_default()
    }

    /// The flags of the character at `at` and its length in bytes; `END` and none behind the last.
    #[inline]
    pub(super) fn at(&self, bytes: &[u8], at: usize) -> (Flags, usize) {
        match bytes.get(at) {
            None => (END, 0),
            Some(&byte) => match self.of_ascii(byte) {
                Some(flags) => (flags, 1),
                None => self.wide(bytes.get(at..).unwrap_or_default()),
            },
        }
    }

    #[inline]
    fn wide(&self, bytes: &[u8]) -> (Flags, usize) {
        let low = |byte: u8| u32::from(byte & 0x3F);
        match *bytes {
            [first @ 0xE0..=0xEF, a, b, ..] => {
                (self.of_code(u32::from(first & 0x0F) << 12 | low(a) << 6 | low(b)), 3)
            }
            [first @ 0xC0..=0xDF, a, ..] => {
                (self.of_code(u32::from(first & 0x1F) << 6 | low(a)), 2)
            }
            [first @ 0xF0..=0xFF, a, b, c, ..] => {
                let high = u32::from(first & 0x07) << 18 | low(a) << 12;
                (self.of_code(high | low(b) << 6 | low(c)), 4)
            }
            // Not in a `str`.
            _ => (0, 1),
        }
    }
}
