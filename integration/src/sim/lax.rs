//! The engine's way of reading a body: Python's `json` on raw bytes, then pydantic's lax mode.
//!
//! It is more generous than most readers (a guessed encoding, the last of two equal keys, numbers
//! and booleans in strings), and a gate that reads otherwise can be walked around. So this module
//! is as generous as the engine, and not more. Where it is wrong: a known field nested deeper
//! than 128 levels is refused here and read there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Python's recursion limit, less the frames its server has already used (900 passed, 100,000 did not).
const MAX_DEPTH: usize = 980;
/// Python refuses to read longer whole numbers.
const MAX_DIGITS: usize = 4300;

/// The known fields of a body, by name; of two equal keys the last counts.
pub(crate) type Fields = BTreeMap<String, Value>;

/// Why a body could not be read, with the `param` the engine names.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) message: String,
    pub(crate) param: String,
}

/// Reads a body into its known fields.
pub(crate) fn read(bytes: &[u8], known: &[&str]) -> Result<Fields, Unreadable> {
    let text = decode(bytes).ok_or_else(|| unreadable("invalid text encoding", "body"))?;
    scan(&text)?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let at = |err: &serde_json::Error| {
        let line_start: usize =
            text.split_inclusive('\n').take(err.line().saturating_sub(1)).map(str::len).sum();
        line_start + err.column().saturating_sub(1)
    };
    let fields = (&mut json)
        .deserialize_map(FieldVisitor { known })
        .and_then(|fields| json.end().map(|()| fields));
    fields.map_err(|err| {
        if err.is_data() {
            unreadable("Input should be a valid dictionary", "body")
        } else {
            unreadable("JSON decode error", &format!("body.{}", at(&err)))
        }
    })
}

fn unreadable(message: &str, param: &str) -> Unreadable {
    Unreadable { message: message.into(), param: param.into() }
}

struct FieldVisitor<'a> {
    known: &'a [&'a str],
}

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dictionary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.known.contains(&key.as_str()) {
                fields.insert(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

/// Guesses UTF-8, UTF-16 or UTF-32 from the first bytes; a byte-order mark is dropped.
fn decode(bytes: &[u8]) -> Option<String> {
    let head = |i: usize| bytes.get(i).copied().unwrap_or(1);
    match (head(0), head(1), head(2), head(3)) {
        (0, 0, 0xfe, 0xff) => utf32(&bytes[4..], u32::from_be_bytes),
        (0xff, 0xfe, 0, 0) => utf32(&bytes[4..], u32::from_le_bytes),
        (0xfe, 0xff, ..) => utf16(&bytes[2..], u16::from_be_bytes),
        (0xff, 0xfe, ..) => utf16(&bytes[2..], u16::from_le_bytes),
        (0xef, 0xbb, 0xbf, _) => String::from_utf8(bytes[3..].to_vec()).ok(),
        (0, 0, 0, _) => utf32(bytes, u32::from_be_bytes),
        (0, ..) => utf16(bytes, u16::from_be_bytes),
        (_, 0, 0, 0) => utf32(bytes, u32::from_le_bytes),
        (_, 0, ..) => utf16(bytes, u16::from_le_bytes),
        _ => String::from_utf8(bytes.to_vec()).ok(),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|&p| unit(p)).collect();
    rest.is_empty().then(|| String::from_utf16(&units).ok())?
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> Option<String> {
    let (quads, rest) = bytes.as_chunks::<4>();
    let text: Option<String> = quads.iter().map(|&q| char::from_u32(unit(q))).collect();
    text.filter(|_| rest.is_empty())
}

/// Refuses nesting and numbers that Python refuses.
fn scan(text: &str) -> Result<(), Unreadable> {
    let (mut depth, mut digits, mut quoted, mut escaped) = (0usize, 0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(unreadable("maximum recursion depth exceeded", "body"));
        }
        if digits > MAX_DIGITS {
            return Err(unreadable("JSON decode error", &format!("body.{at}")));
        }
    }
    Ok(())
}

/// A whole number as pydantic's lax mode takes it: 2, 2.0, "2", true.
pub(crate) fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| whole(text.parse().ok()?))
        }
        _ => None,
    }
}

fn whole(number: f64) -> Option<i64> {
    // Above 2^53 a float no longer says which whole number was meant.
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

/// A boolean as pydantic's lax mode takes it.
pub(crate) fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => match number.as_f64()? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
            "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A number as pydantic's lax mode takes it.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        other => other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(bytes: &[u8]) -> Option<String> {
        let fields = read(bytes, &["model"]).ok()?;
        fields.get("model")?.as_str().map(str::to_owned)
    }

    #[test]
    fn the_last_of_two_equal_keys_counts_however_it_is_spelled() {
        let body = br#"{"model":"a","mod\u0065l":"b"}"#;
        assert_eq!(model(body).as_deref(), Some("b"));
    }

    #[test]
    fn every_encoding_that_python_guesses_is_read() {
        let text = r#"{"model":"x"}"#;
        let le16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let be32: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        let le16_marked = [b"\xff\xfe".as_slice(), &le16].concat();
        for bytes in [le16, be32, marked, le16_marked] {
            assert_eq!(model(&bytes).as_deref(), Some("x"), "{bytes:?}");
        }
    }

    #[test]
    fn deep_unknown_fields_pass_up_to_pythons_limit() {
        let deep = |n: usize| format!("{{\"m\":{}{}}}", "[".repeat(n), "]".repeat(n)).into_bytes();
        assert!(read(&deep(900), &[]).is_ok());
        assert!(read(&deep(100_000), &[]).is_err());
    }

    #[test]
    fn bodies_that_are_not_a_dictionary_are_refused() {
        for body in ["[]", "null", "", "{} x", "{\"a\":NaN}", "{\"model\":\"\u{1}\"}"] {
            assert!(read(body.as_bytes(), &["model"]).is_err(), "{body:?}");
        }
    }

    #[test]
    fn values_are_as_lax_as_pydantics() {
        let int_of = |json: &str| int(&serde_json::from_str(json).unwrap());
        assert_eq!(int_of("2e0"), Some(2));
        assert_eq!(int_of("\"2\""), Some(2));
        assert_eq!(int_of("true"), Some(1));
        assert_eq!(int_of("1.5"), None);
        assert_eq!(int_of("9223372036854775808"), None);
        assert_eq!(boolean(&Value::from("no")), Some(false));
        assert_eq!(boolean(&Value::from(2)), None);
    }
}
