//! Whole numbers and booleans as the engine's lax mode takes them.
//!
//! The engine turns `"2"`, `2.0` and `true` into whole numbers and `"yes"` into a boolean. A gate
//! that reads them otherwise is walked around. Where the engine's rules are odd, what is taken here
//! is a subset with the same value, and the rest is refused.

use super::json::{Cursor, Kind};

/// The longest numeric string looked at, in bytes; no sensible one is near it.
const MAX_STRING: usize = 64;

/// Why a value is no whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    Type,
    Range,
}

/// A whole number from the text of a JSON number.
pub(crate) fn whole(number: &str, integer: bool) -> Result<i64, Misfit> {
    if integer {
        return number.parse().map_err(|_| Misfit::Range);
    }
    // Many digits take long to read, and name no number that is wanted here.
    if number.len() > MAX_STRING {
        return Err(Misfit::Range);
    }
    let value: f64 = number.parse().map_err(|_| Misfit::Type)?;
    // Beyond 2^53 a float names no single whole number; nothing read here is that large.
    if value.abs() > 9_007_199_254_740_992.0 {
        return Err(Misfit::Range);
    }
    if value.fract() != 0.0 {
        return Err(Misfit::Type);
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
    Ok(value as i64)
}

/// A whole number from the decoded text of a JSON string: blanks around it, one sign, single
/// underscores between digits and a fraction of zeros are taken, as the engine does.
pub(crate) fn whole_from_text(text: &str) -> Result<i64, Misfit> {
    let text = text.trim();
    if text.len() > MAX_STRING {
        return Err(Misfit::Range);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    if fraction.is_empty() || fraction.bytes().any(|b| b != b'0') {
        return Err(Misfit::Type);
    }
    let mut value: i64 = 0;
    let mut last = b'_';
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' => {
                value = value
                    .checked_mul(10)
                    .and_then(|v| v.checked_add(i64::from(byte ^ b'0')))
                    .ok_or(Misfit::Range)?;
            }
            b'_' if last != b'_' => {}
            _ => return Err(Misfit::Type),
        }
        last = byte;
    }
    if last == b'_' {
        return Err(Misfit::Type);
    }
    Ok(if text.starts_with('-') { value.saturating_neg() } else { value })
}

/// A boolean from the decoded text of a JSON string; no blanks, any case.
pub(crate) fn boolean_from_text(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["true", "1", "yes", "on", "t", "y"]) {
        return Some(true);
    }
    is(&["false", "0", "no", "off", "f", "n"]).then_some(false)
}

/// Takes the value that comes now as a whole number; `None` for null.
pub(crate) fn take_whole(
    cursor: &mut Cursor<'_>,
    scratch: &mut String,
) -> Result<Option<i64>, Fault> {
    let value = match cursor.kind()? {
        Kind::Null => {
            cursor.null()?;
            return Ok(None);
        }
        Kind::Number => {
            let number = cursor.number()?;
            whole(cursor.raw(number.start, number.end), number.integer)?
        }
        Kind::True | Kind::False => i64::from(cursor.boolean()?),
        Kind::Text => {
            let text = cursor.string()?;
            scratch.clear();
            cursor.decode(text, scratch);
            whole_from_text(scratch)?
        }
        Kind::Object | Kind::Array => return Err(Misfit::Type.into()),
    };
    Ok(Some(value))
}

/// Takes the value that comes now as a boolean; `None` for null.
pub(crate) fn take_boolean(
    cursor: &mut Cursor<'_>,
    scratch: &mut String,
) -> Result<Option<bool>, Fault> {
    let value = match cursor.kind()? {
        Kind::Text => {
            let text = cursor.string()?;
            scratch.clear();
            cursor.decode(text, scratch);
            boolean_from_text(scratch).ok_or(Misfit::Type)?
        }
        Kind::True | Kind::False => cursor.boolean()?,
        _ => match take_whole(cursor, scratch)? {
            None => return Ok(None),
            Some(0) => false,
            Some(1) => true,
            Some(_) => return Err(Misfit::Type.into()),
        },
    };
    Ok(Some(value))
}

/// Bad JSON, or good JSON of the wrong kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Json(super::ReadError),
    Misfit(Misfit),
}

impl From<super::ReadError> for Fault {
    fn from(error: super::ReadError) -> Self {
        Self::Json(error)
    }
}

impl From<Misfit> for Fault {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}
