//! What the scan asks of bytes: their class, how far a run of them goes, the letter they spell.
//!
//! Eight bytes at a time where that pays. All of it is total: on bytes that are no UTF-8, which do not
//! come here, it would find odd letters, but nothing out of bounds and no end of the scan.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The bit in which small ASCII letters differ from capitals.
pub(super) const LOWER_CASE: u8 = 0x20;

/// What a byte begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Letter,
    Digit,
    /// ASCII punctuation.
    Mark,
    /// A blank, a tab or the end of a line.
    Space,
    Control,
    /// A character beyond ASCII.
    Wide,
}

static CLASSES: [Class; 256] = {
    let mut table = [Class::Wide; 256];
    let mut rest: &mut [Class] = &mut table;
    let mut byte: u8 = 0;
    while let [entry, after @ ..] = rest {
        *entry = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b' ' | b'\t' | b'\n' | b'\r' => Class::Space,
            b'!'..=b'~' => Class::Mark,
            0x80.. => Class::Wide,
            _ => Class::Control,
        };
        byte = byte.wrapping_add(1);
        rest = after;
    }
    table
};

impl Class {
    #[inline]
    pub(super) fn of(byte: u8) -> Self {
        CLASSES.get(usize::from(byte)).copied().unwrap_or(Self::Wide)
    }
}

/// Bytes of which the classes are found at once.
pub(super) type Block = [u8; 64];

/// The classes of a block: in each mask a bit for each byte, the first byte lowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) letters: u64,
    pub(super) capitals: u64,
    pub(super) digits: u64,
    pub(super) marks: u64,
    pub(super) blanks: u64,
    /// Line feeds alone.
    pub(super) breaks: u64,
}

impl Masks {
    #[cfg(not(target_feature = "simd128"))]
    pub(super) fn of(block: &Block) -> Self {
        let mut masks = Self::default();
        for &byte in block.iter().rev() {
            let class = Class::of(byte);
            let push = |mask: &mut u64, is: bool| *mask = *mask << 1 | u64::from(is);
            push(&mut masks.letters, class == Class::Letter);
            push(&mut masks.capitals, byte.is_ascii_uppercase());
            push(&mut masks.digits, class == Class::Digit);
            push(&mut masks.marks, class == Class::Mark);
            push(&mut masks.blanks, byte == b' ');
            push(&mut masks.breaks, byte == b'\n');
        }
        masks
    }

    #[cfg(target_feature = "simd128")]
    #[inline]
    pub(super) fn of(block: &Block) -> Self {
        use core::arch::wasm32::{
            i8x16_bitmask, i8x16_shl, u8x16_eq, u8x16_lt, u8x16_splat, u8x16_sub, u64x2, v128_or,
        };

        let (mut letters, mut small, mut digits, mut visible, mut blanks, mut breaks) =
            (0, 0, 0, 0, 0, 0);
        let (quarters, _) = block.as_chunks::<16>();
        for quarter in quarters.iter().rev() {
            let (words, _) = quarter.as_chunks::<8>();
            let [low, high] = words else { continue };
            let bytes = u64x2(u64::from_le_bytes(*low), u64::from_le_bytes(*high));
            let within = |bytes, first, count| {
                u8x16_lt(u8x16_sub(bytes, u8x16_splat(first)), u8x16_splat(count))
            };
            let push = |mask: &mut u64, lanes| {
                *mask = *mask << 16 | u64::from(i8x16_bitmask(lanes));
            };
            push(&mut letters, within(v128_or(bytes, u8x16_splat(LOWER_CASE)), b'a', 26));
            // The bit of small letters, moved to where masks are taken from.
            push(&mut small, i8x16_shl(bytes, 2));
            push(&mut digits, within(bytes, b'0', 10));
            push(&mut visible, within(bytes, b'!', 94));
            push(&mut blanks, u8x16_eq(bytes, u8x16_splat(b' ')));
            push(&mut breaks, u8x16_eq(bytes, u8x16_splat(b'\n')));
        }
        let (capitals, marks) = (letters & !small, visible & !letters & !digits);
        Self { letters, capitals, digits, marks, blanks, breaks }
    }
}

/// Length of the run of one class that `bytes` starts with.
#[inline]
pub(super) fn run(bytes: &[u8], class: Class) -> usize {
    bytes.iter().position(|&byte| Class::of(byte) != class).unwrap_or(bytes.len())
}

/// Length of the run of `byte` that `bytes` starts with.
#[inline]
pub(super) fn run_of(bytes: &[u8], byte: u8) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    let pattern = LOW.wrapping_mul(u64::from(byte));
    let mut length = 0_usize;
    for &word in words {
        let other = u64::from_le_bytes(word) ^ pattern;
        if other != 0 {
            return length.wrapping_add((other.trailing_zeros() / 8) as usize);
        }
        length = length.wrapping_add(8);
    }
    let last = tail.iter().position(|&other| other != byte).unwrap_or(tail.len());
    length.wrapping_add(last)
}

/// Length of the word that `bytes` starts with, zero if with none, where it is plain: no capital
/// but the first, nothing beyond ASCII behind it, and not among the last bytes of the text.
#[inline]
pub(super) fn plain_word(bytes: &[u8]) -> Option<u32> {
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let others = no_letters(word);
    // The first letter may be a capital.
    if is_cut(word, others, HIGH & !0xFF) {
        return None;
    }
    if others == 0 {
        return long_plain_word(bytes);
    }
    Some(others.trailing_zeros() / 8)
}

/// The same for a word whose first eight bytes are known to be plain letters.
#[inline(never)]
fn long_plain_word(mut bytes: &[u8]) -> Option<u32> {
    let mut length = 8_u32;
    loop {
        bytes = bytes.get(8..)?;
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let others = no_letters(word);
        if is_cut(word, others, HIGH) {
            return None;
        }
        if others != 0 {
            return Some(length.wrapping_add(others.trailing_zeros() / 8));
        }
        length = length.wrapping_add(8);
    }
}

/// The high bits of all bytes that are no ASCII letter.
#[inline]
const fn no_letters(word: u64) -> u64 {
    // Case and the high bit left out: one sum reaches the high bit from A on, one past Z.
    let folded = word & LOW.wrapping_mul(0x5F);
    let from_a = folded.wrapping_add(LOW.wrapping_mul(0x3F));
    let past_z = folded.wrapping_add(LOW.wrapping_mul(0x25));
    (!(from_a ^ past_z) | word) & HIGH
}

/// Whether one of the letters up to the first of the `others` is a capital, of those that `watched`
/// has the high bit of, or that first other one is beyond ASCII.
#[inline]
const fn is_cut(word: u64, others: u64, watched: u64) -> bool {
    let capitals = !((word << 2) | others) & watched;
    let wide = word & others;
    let up_to_the_first = others ^ others.wrapping_sub(1);
    (capitals | wide) & up_to_the_first != 0
}

/// The character beyond ASCII that `bytes` starts with, and its length in bytes.
#[inline]
pub(super) fn wide(bytes: &[u8]) -> Option<(char, usize)> {
    let low = |byte: u8| u32::from(byte & 0x3F);
    let (code, length) = match *bytes {
        [first @ 0xE0..=0xEF, a, b, ..] => {
            (u32::from(first & 0x0F) << 12 | low(a) << 6 | low(b), 3)
        }
        [first @ 0xC0..=0xDF, a, ..] => (u32::from(first & 0x1F) << 6 | low(a), 2),
        [first @ 0xF0..=0xFF, a, b, c, ..] => {
            (u32::from(first & 0x07) << 18 | low(a) << 12 | low(b) << 6 | low(c), 4)
        }
        [0x80..=0xFF, ..] => (0xFFFD, 1),
        _ => return None,
    };
    Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), length))
}

/// The code of the hanzi of the usual block that `bytes` starts with, and what is behind it.
#[inline]
pub(super) fn common_hanzi(bytes: &[u8]) -> Option<(u32, &[u8])> {
    // These lead bytes are of U+4000 to U+9FFF, where it is the last block.
    let [lead @ 0xE4..=0xE9, a, b, behind @ ..] = bytes else { return None };
    let code = u32::from(lead & 0x0F) << 12 | u32::from(a & 0x3F) << 6 | u32::from(b & 0x3F);
    (code >= 0x4E00).then_some((code, behind))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "a test may panic")]

    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn plain_word_is_as_long_as_its_letters_whatever_ends_it() {
        for length in 0..40 {
            for end in (0..=0x7F_u8).filter(|end| !end.is_ascii_alphabetic()) {
                let mut text = vec![b'z'; length];
                text.push(end);
                text.extend(b"Tail-tail");
                assert_eq!(plain_word(&text), u32::try_from(length).ok(), "{length} {end}");
            }
        }
    }

    #[test]
    fn word_is_plain_only_without_a_capital_inside_or_a_letter_beyond_ascii_behind_it() {
        for length in 1..40 {
            let word = "a".repeat(length);
            assert_eq!(plain_word(format!("{word}é, and more").as_bytes()), None, "{length}");
            for capital in 0..length {
                let (before, behind) = word.split_at(capital);
                let text = format!("{before}A{} - and more", behind.get(1..).unwrap());
                let expected = (capital == 0).then(|| u32::try_from(length).unwrap());
                assert_eq!(plain_word(text.as_bytes()), expected, "{text}");
            }
        }
    }

    #[test]
    fn every_character_beyond_ascii_is_spelt_as_the_standard_library_spells_it() {
        for c in '\u{80}'..=char::MAX {
            let text = c.to_string();
            assert_eq!(wide(text.as_bytes()), Some((c, text.len())));
            let common = ('\u{4E00}'..='\u{9FFF}').contains(&c);
            let found = common_hanzi(text.as_bytes());
            assert_eq!(found, common.then(|| (u32::from(c), &[][..])), "{c}");
        }
    }

    #[test]
    fn masks_of_a_block_are_the_classes_of_its_bytes() {
        for first in 0..=u8::MAX {
            let mut block: Block = [b'.'; 64];
            for (at, byte) in block.iter_mut().enumerate() {
                *byte = first.wrapping_add(u8::try_from(at * 37 % 256).unwrap());
            }
            let masks = Masks::of(&block);
            for (at, &byte) in block.iter().enumerate() {
                let bit = |mask: u64| mask >> at & 1 == 1;
                assert_eq!(bit(masks.letters), byte.is_ascii_alphabetic(), "{byte}");
                assert_eq!(bit(masks.capitals), byte.is_ascii_uppercase(), "{byte}");
                assert_eq!(bit(masks.digits), byte.is_ascii_digit(), "{byte}");
                assert_eq!(bit(masks.marks), byte.is_ascii_punctuation(), "{byte}");
                assert_eq!(bit(masks.blanks), byte == b' ', "{byte}");
                assert_eq!(bit(masks.breaks), byte == b'\n', "{byte}");
            }
        }
    }

    #[test]
    fn run_ends_where_another_byte_stands() {
        for length in 0..40 {
            let text = format!("{}\n  ", " ".repeat(length));
            assert_eq!(run_of(text.as_bytes(), b' '), length);
            assert_eq!(run_of(" ".repeat(length).as_bytes(), b' '), length);
        }
    }
}
