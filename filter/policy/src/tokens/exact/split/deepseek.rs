//! The three splits of `DeepSeek` in one pass.
//!
//! 1. `\p{N}{1,3}`
//! 2. runs of hanzi (U+4E00 to U+9FA5), hiragana and katakana
//! 3. `[ASCII sign][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
//!
//! Each works inside the pieces of the one before, so for the third a number or a run of the second
//! is the end of the text, and the runs themselves are split by it: at the middle dot and the few
//! other characters of the kana block that are no letters. What no alternative takes is a piece
//! too.

use super::super::classes::{BREAK, CJK, END, Flags, HANZI, LETTER, MARK, NUMBER, SIGN, SPACE};
use super::{Splitter, plain_word};

const WORD: Flags = LETTER | MARK;
/// What the third split cannot see beyond.
const WALL: Flags = NUMBER | CJK | END;

impl Splitter<'_, '_> {
    /// End of the piece at `start` and whether it may be of hanzi alone.
    #[inline]
    pub(super) fn deepseek(&mut self, start: usize) -> Option<(usize, bool)> {
        if start < self.mixed_run {
            let run = self.bytes.get(..self.mixed_run)?;
            return Some((self.third::<true>(run, start), false));
        }
        if let Some(end) = plain_word(self.bytes.get(start..)?) {
            return Some((start.wrapping_add(end), false));
        }
        let (flags, length) = self.classes.at(self.bytes, start);
        if flags & WALL == 0 {
            return Some((self.third::<false>(self.bytes, start), false));
        }
        if flags & NUMBER != 0 {
            return Some((self.numbers(start.wrapping_add(length)), false));
        }
        if flags & END != 0 {
            return None;
        }
        Some(self.cjk(start))
    }

    /// End of a group of numbers, the first of which ends at `at`.
    #[inline]
    pub(super) fn numbers(&self, mut at: usize) -> usize {
        for _ in 1..self.rules.digits {
            let (flags, length) = self.classes.at(self.bytes, at);
            if flags & NUMBER == 0 {
                break;
            }
            at = at.wrapping_add(length);
        }
        at
    }

    fn cjk(&mut self, start: usize) -> (usize, bool) {
        let mut at = start;
        let (mut only_words, mut only_hanzi) = (true, true);
        // All of them are of three bytes.
        while let Some(&[a @ 0xE0..=0xEF, b, c]) =
            self.bytes.get(at..).and_then(|rest| rest.first_chunk())
        {
            let low = |byte: u8| u32::from(byte & 0x3F);
            let code = u32::from(a & 0x0F) << 12 | low(b) << 6 | low(c);
            let flags = self.classes.of_code(code);
            if flags & CJK == 0 {
                break;
            }
            only_words &= flags & WORD != 0;
            only_hanzi &= HANZI.contains(&code);
            at = at.wrapping_add(3);
        }
        if only_words {
            return (at, only_hanzi);
        }
        self.mixed_run = at;
        let run = self.bytes.get(..at).unwrap_or_default();
        (self.third::<true>(run, start), false)
    }

    /// End of the piece that the third split makes. Inside a run of the second, where `bytes` ends
    /// with it, its characters are what they are; elsewhere they are a wall.
    #[inline]
    fn third<const IN_RUN: bool>(&self, bytes: &[u8], start: usize) -> usize {
        let look = |at: usize| {
            let (flags, length) = self.classes.at(bytes, at);
            let is_wall = !IN_RUN && flags & CJK != 0;
            (if is_wall { CJK } else { flags & !CJK }, length)
        };
        let word =
            |at| self.run(bytes, at, |flags| flags & WORD != 0 && (IN_RUN || flags & CJK == 0));
        let signs = |at| {
            let end = self.run(bytes, at, |f| f & SIGN != 0 && (IN_RUN || f & CJK == 0));
            self.breaks(bytes, end)
        };

        let (first, length) = look(start);
        let second = start.wrapping_add(length);
        if first & WORD != 0 {
            return word(second);
        }
        let (next, length) = look(second);
        let third = second.wrapping_add(length);
        if first & SIGN != 0 {
            let is_ascii = |at| bytes.get(at).is_some_and(u8::is_ascii);
            if next & LETTER != 0 && is_ascii(second) && is_ascii(start) {
                let letters = bytes.get(third..).unwrap_or_default();
                let length = letters.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
                return third.wrapping_add(length);
            }
            return signs(second);
        }
        if first & BREAK == 0 {
            if next & WORD != 0 {
                return word(third);
            }
            if next & SIGN != 0 && bytes.get(start) == Some(&b' ') {
                return signs(third);
            }
        }
        if first & SPACE != 0 {
            return self.blanks(bytes, start, |flags| flags & WALL != 0);
        }
        // Taken by no alternative, up to what is.
        let mut at = second;
        let mut here = (next, length);
        while here.0 == 0 {
            let behind = look(at.wrapping_add(here.1));
            if behind.0 & WORD != 0 {
                break;
            }
            at = at.wrapping_add(here.1);
            here = behind;
        }
        at
    }
}
