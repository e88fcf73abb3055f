//! JSON as Python writes it: a blank after every comma and colon, no escape that is not needed,
//! numbers as Python prints them.
//!
//! The engine reads tools and arguments into Python values and writes them out again, so a
//! client's own blanks and escapes are lost. Syntax is followed token by token; no tree is built.

use core::fmt::Write;

use crate::request::error::ReadError;
use crate::request::json::{Cursor, Kind, Text};
use crate::request::keys::{Key, Keys};
use crate::request::lax;
use crate::request::{MAX_KEYS, MAX_TOP_KEYS};

/// Asked behind a comma with what is written so far, which may be taken away: a tokenizer's piece
/// ends there, as a blank follows. False: the rest may be written as it stands.
pub(super) type Pause<'p> = dyn FnMut(&mut String) -> bool + 'p;

/// Appends a JSON value, which a cursor has taken before, as Python writes it.
pub(super) fn dump(json: &str, out: &mut String, pause: &mut Pause<'_>) -> Result<(), ReadError> {
    let mut cursor = Cursor::new(json);
    loop {
        cursor.space();
        match cursor.byte() {
            None => return Ok(()),
            Some(b',') => {
                out.push(',');
                if !pause(out) {
                    cursor.bump();
                    out.push_str(json.get(cursor.pos()..).unwrap_or_default());
                    return Ok(());
                }
                out.push(' ');
            }
            Some(b':') => out.push_str(": "),
            Some(bracket @ (b'{' | b'}' | b'[' | b']')) => out.push(char::from(bracket)),
            Some(_) => {
                scalar(&mut cursor, out)?;
                continue;
            }
        }
        cursor.bump();
    }
}

fn scalar(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), ReadError> {
    match cursor.kind()? {
        Kind::Text => {
            let text = cursor.string()?;
            quote(cursor, text, out);
        }
        Kind::Number => {
            let number = cursor.number()?;
            let text = cursor.raw(number.start, number.end);
            match text {
                "-0" => out.push('0'),
                _ if number.integer => out.push_str(text),
                _ => float(text.parse().unwrap_or_default(), out),
            }
        }
        Kind::True | Kind::False => {
            out.push_str(if cursor.boolean()? { "true" } else { "false" });
        }
        _ => {
            cursor.null()?;
            out.push_str("null");
        }
    }
    Ok(())
}

fn quote(cursor: &Cursor<'_>, text: Text, out: &mut String) {
    out.push('"');
    if text.escaped {
        let mut plain = String::new();
        cursor.decode(text, &mut plain);
        for char in plain.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                ..' ' => drop(write!(out, "\\u{:04x}", u32::from(char))),
                _ => out.push(char),
            }
        }
    } else {
        out.push_str(cursor.raw(text.start, text.end));
    }
    out.push('"');
}

/// The shortest digits that read back as the same number; with an exponent where Python has one.
fn float(value: f64, out: &mut String) {
    let size = value.abs();
    // Writing into a string cannot fail.
    let _ = if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        Ok(())
    } else if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        match exponent.strip_prefix('-') {
            Some(exponent) => write!(out, "{digits}e-{exponent:0>2}"),
            None => write!(out, "{digits}e+{exponent:0>2}"),
        }
    } else if value.fract() == 0.0 {
        write!(out, "{value}.0")
    } else {
        write!(out, "{value}")
    };
}

/// Appends the function of a tool as the engine writes it: known fields in their order. Tools of
/// the request show absent fields as null and lose unknown ones (`filled`); those of a message keep
/// what they have. False where there is no function in it.
pub(super) fn function(
    tool: &str,
    filled: bool,
    out: &mut String,
    pause: &mut Pause<'_>,
) -> Result<bool, ReadError> {
    let mut scratch = String::new();
    let mut cursor = Cursor::new(tool);
    let mut function = None;
    let mut deferred = None;
    let mut typed = false;
    if cursor.byte() != Some(b'{') {
        return Ok(false);
    }
    cursor.enter(b'{')?;
    let mut keys = Keys::new(MAX_KEYS);
    while let Some(key) = keys.next(&mut cursor, &mut scratch)? {
        match key {
            Key::Function if cursor.kind()? == Kind::Object => function = Some(take(&mut cursor)?),
            Key::Type => {
                typed = true;
                cursor.skip()?;
            }
            Key::DeferLoading => deferred = flag(&mut cursor, &mut scratch)?,
            _ => cursor.skip()?,
        }
    }
    let Some(function) = function else { return Ok(false) };
    let mut cursor = Cursor::new(function);
    let (mut name, mut description, mut parameters) = (None, None, None);
    let (mut strict, mut own_deferred) = (None, None);
    cursor.enter(b'{')?;
    let mut keys = Keys::new(MAX_KEYS);
    let word = |flag: bool| if flag { "true" } else { "false" };
    let mut extras = String::new();
    while let Some((key, text)) = keys.next_text(&mut cursor, &mut scratch)? {
        match key {
            Key::Name => name = Some(take(&mut cursor)?),
            Key::Description => description = Some(take(&mut cursor)?),
            Key::Parameters => parameters = Some(take(&mut cursor)?),
            Key::Strict if !filled && cursor.kind()? == Kind::Null => {
                strict = cursor.null().map(|_| Some("null"))?;
            }
            Key::Strict => strict = flag(&mut cursor, &mut scratch)?.map(word),
            Key::DeferLoading if filled => own_deferred = flag(&mut cursor, &mut scratch)?,
            _ if filled => cursor.skip()?,
            _ => {
                extras.push_str(", ");
                quote(&cursor, text, &mut extras);
                extras.push_str(": ");
                dump(take(&mut cursor)?, &mut extras, &mut |_| true)?;
            }
        }
    }
    // A message's function that is not as it should be is shown as it came.
    let fits = |value: Option<&str>, start| value.is_none_or(|value| value.starts_with(start));
    let regular = typed && fits(description, '"') && fits(parameters, '{');
    if !filled && !regular {
        return dump(function, out, pause).map(|()| true);
    }
    let null = filled.then_some("null");
    let deferred = own_deferred.or(deferred).filter(|_| filled);
    let fields = [
        ("name", name),
        ("description", description.or(null)),
        ("parameters", parameters.or(null)),
        ("strict", strict),
        ("defer_loading", deferred.map(word)),
    ];
    out.push('{');
    let mut first = true;
    for (key, value) in fields {
        let Some(value) = value else { continue };
        let comma = if first { "" } else { ", " };
        first = false;
        out.push_str(comma);
        out.push('"');
        out.push_str(key);
        out.push_str("\": ");
        dump(value, out, pause)?;
    }
    out.push_str(&extras);
    out.push('}');
    Ok(true)
}

fn take<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, ReadError> {
    let start = cursor.pos();
    cursor.skip()?;
    Ok(cursor.raw(start, cursor.pos()))
}

/// A boolean as the engine takes it; what it would refuse counts as absent.
fn flag(cursor: &mut Cursor<'_>, scratch: &mut String) -> Result<Option<bool>, ReadError> {
    match cursor.kind()? {
        Kind::Object | Kind::Array => cursor.skip().map(|()| None),
        _ => match lax::take_boolean(cursor, scratch) {
            Ok(value) => Ok(value),
            Err(lax::Fault::Json(error)) => Err(error),
            Err(lax::Fault::Misfit(_)) => Ok(None),
        },
    }
}

/// One argument of a call.
pub(super) enum Argument<'a> {
    /// A text, decoded.
    Text(&'a str),
    /// Any other value, as it stands.
    Json(&'a str),
}

/// Hands over the arguments of a call, name by name.
///
/// # Errors
/// Where the text is no JSON object. Some have been handed over by then.
pub(super) fn arguments(
    json: &str,
    each: &mut impl FnMut(&str, Argument<'_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let (mut name, mut text) = (String::new(), String::new());
    let mut cursor = Cursor::new(json);
    cursor.space();
    cursor.enter(b'{')?;
    let mut keys = Keys::new(MAX_TOP_KEYS);
    while let Some((_, key)) = keys.next_text(&mut cursor, &mut name)? {
        let key = if key.escaped { &name } else { cursor.raw(key.start, key.end) };
        if cursor.kind()? == Kind::Text {
            let value = cursor.string_into(&mut text)?;
            let plain = cursor.raw(value.start, value.end);
            each(key, Argument::Text(if value.escaped { &text } else { plain }))?;
        } else {
            each(key, Argument::Json(take(&mut cursor)?))?;
        }
    }
    cursor.end()
}

/// Appends what a JSON string says; any other value as it stands.
pub(super) fn text(json: &str, out: &mut String) {
    let mut cursor = Cursor::new(json);
    match cursor.string() {
        Ok(text) if text.escaped => cursor.decode(text, out),
        Ok(text) => out.push_str(cursor.raw(text.start, text.end)),
        Err(_) => out.push_str(json),
    }
}
