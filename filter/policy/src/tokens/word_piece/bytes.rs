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
pub(super) fn plain_word(mut bytes: &[u8]) -> Option<usize> {
    let mut length = 0_usize;
    // The first letter may be a capital.
    let mut small = !0xFF;
    loop {
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let folded = (word | LOW.wrapping_mul(0x20)) & !HIGH;
        let from_a = folded.wrapping_add(LOW.wrapping_mul(0x80 - b'a' as u64));
        let past_z = folded.wrapping_add(LOW.wrapping_mul(0x7F - b'z' as u64));
        // The high bits of all bytes that are no letter; the lowest of them ends the word.
        let others = (!(from_a ^ past_z) | word) & HIGH;
        let before = others.wrapping_sub(1) & !others;
        let capitals = !(word << 2) & before & small & HIGH;
        let end = others & others.wrapping_neg();
        if capitals | (word & end) != 0 {
            return None;
        }
        length = length.wrapping_add((others.trailing_zeros() / 8) as usize);
        if others != 0 {
            return Some(length);
        }
        small = !0;
        bytes = bytes.get(8..).unwrap_or_default();
    }
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
