//! The inner loops over string literals, where nearly all of a body's bytes are.

use super::error::{Problem, ReadError};

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Offset of the next quote, backslash or control character from `pos` on, or the end.
///
/// Eight bytes at a time: subtracting borrows into the top bit of a byte that is too small. A
/// borrow may run on into higher bytes, so only the lowest mark is to be trusted, and only it is used.
pub(super) fn plain_end(bytes: &[u8], pos: usize) -> usize {
    let rest = bytes.get(pos..).unwrap_or_default();
    let (words, tail) = rest.as_chunks::<8>();
    let mut at = pos;
    for &word in words {
        let word = u64::from_le_bytes(word);
        let marks = marks(word);
        if marks != 0 {
            return at.wrapping_add((marks.trailing_zeros() / 8) as usize);
        }
        at = at.wrapping_add(8);
    }
    for &byte in tail {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            return at;
        }
        at = at.wrapping_add(1);
    }
    at
}

#[inline]
const fn marks(word: u64) -> u64 {
    // With one bit turned the quote is right above the control characters, and below what else is.
    let low = (word ^ LOW.wrapping_mul(0x02)).wrapping_sub(LOW.wrapping_mul(0x21));
    let slash = (word ^ LOW.wrapping_mul(b'\\' as u64)).wrapping_sub(LOW);
    (low | slash) & !word & HIGH
}

/// Reads `\uXXXX`, or a surrogate pair of them, at `pos`: the character and the bytes it takes.
pub(super) fn unicode_escape(bytes: &[u8], pos: usize) -> Result<(char, usize), ReadError> {
    let unit = hex_unit(bytes, pos)?;
    if let Some(char) = char::from_u32(unit) {
        return Ok((char, 6));
    }
    let lone = ReadError::new(Problem::Surrogate, pos);
    let second = pos.saturating_add(6);
    if unit >= 0xDC00 || bytes.get(second..second.saturating_add(2)) != Some(b"\\u") {
        return Err(lone);
    }
    let low = hex_unit(bytes, second)?;
    if !(0xDC00..0xE000).contains(&low) {
        return Err(lone);
    }
    let high = unit.wrapping_sub(0xD800) << 10;
    let code = 0x1_0000_u32.wrapping_add(high).wrapping_add(low & 0x3FF);
    char::from_u32(code).map(|char| (char, 12)).ok_or(lone)
}

/// The four hexadecimal digits of the `\uXXXX` at `pos`.
fn hex_unit(bytes: &[u8], pos: usize) -> Result<u32, ReadError> {
    let start = pos.saturating_add(2);
    let Some(&[a, b, c, d]) = bytes.get(start..start.saturating_add(4)) else {
        return Err(ReadError::new(Problem::End, bytes.len()));
    };
    let unit = hex(a) << 12 | hex(b) << 8 | hex(c) << 4 | hex(d);
    // A bad digit has bits that no good one reaches.
    if unit > 0xFFFF {
        return Err(ReadError::new(Problem::Escape, pos));
    }
    Ok(unit)
}

/// The value of a hexadecimal digit; all bits above the low 16 where it is none.
fn hex(digit: u8) -> u32 {
    HEX.get(usize::from(digit)).copied().unwrap_or(NO_DIGIT)
}

const NO_DIGIT: u32 = 0xFFFF_0000;

static HEX: [u32; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut rest: &mut [u32] = &mut table;
    let mut byte: u8 = 0;
    while let [entry, after @ ..] = rest {
        if let Some(value) = (byte as char).to_digit(16) {
            *entry = value;
        }
        byte = byte.wrapping_add(1);
        rest = after;
    }
    table
};
