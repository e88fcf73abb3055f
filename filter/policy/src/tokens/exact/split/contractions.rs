//! The pattern of `cl100k`, Llama 3 and Qwen, which differ in the length of a group of numbers and in
//! whether marks are letters:
//!
//! `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

use super::super::classes::{BREAK, END, Flags, LETTER, MARK, NUMBER, SPACE};
use super::Splitter;

impl Splitter<'_, '_> {
    /// End of the piece at `start`.
    pub(super) fn contractions(&self, start: usize) -> Option<usize> {
        let bytes = self.bytes;
        let letter = if self.rules.marks { LETTER | MARK } else { LETTER };
        let word = |at| self.run(bytes, at, |flags| flags & letter != 0);
        let is_sign = |flags: Flags| flags & (SPACE | letter | NUMBER | END) == 0;
        let signs = |at| self.breaks(bytes, self.run(bytes, at, is_sign));

        let (first, length) = self.classes.at(bytes, start);
        if first & END != 0 {
            return None;
        }
        let second = start.wrapping_add(length);
        if let Some(length) = contraction(bytes.get(start..)?) {
            return Some(start.wrapping_add(length));
        }
        if first & letter != 0 {
            return Some(word(second));
        }
        if first & NUMBER != 0 {
            return Some(self.numbers(second));
        }
        let (next, length) = self.classes.at(bytes, second);
        let third = second.wrapping_add(length);
        if first & BREAK == 0 && next & letter != 0 {
            return Some(word(third));
        }
        if is_sign(first) {
            return Some(signs(second));
        }
        if is_sign(next) && bytes.get(start) == Some(&b' ') {
            return Some(signs(third));
        }
        Some(self.blanks(bytes, start, |flags| flags & END != 0))
    }
}

/// Length of the English ending that `bytes` begin with.
fn contraction(bytes: &[u8]) -> Option<usize> {
    let [b'\'', rest @ ..] = bytes else { return None };
    match *rest {
        // The long s is a small s to a pattern that ignores case.
        [0xC5, 0xBF, ..] => Some(3),
        [a, ..] if matches!(a | 0x20, b's' | b't' | b'm' | b'd') => Some(2),
        [a, b, ..] if matches!([a | 0x20, b | 0x20], [b'r' | b'v', b'e'] | [b'l', b'l']) => Some(3),
        _ => None,
    }
}
