//! JSON as Python writes it: a blank after every comma and colon, no escape that is not needed,
//! numbers as Python prints them.
//!
//! The engine reads tools and arguments into Python values and writes them out again, so a
//! client's own blanks and escapes are lost. Syntax is followed token by token; no tree is built.

use core::hash::Hasher;
use std::hash::DefaultHasher;

use super::run::Run;
use crate::request::error::ReadError;
use crate::request::json::{Cursor, Kind, Text};
use crate::request::keys::{Key, Keys};
use crate::request::lax;
use crate::request::{MAX_KEYS, MAX_TOP_KEYS};

/// The longest number that is rewritten, in bytes. Python writes none that is longer.
const MAX_NUMBER: usize = 32;

/// The most significant digits of a number that is rewritten: more take long to read.
const MAX_SIGNIFICANT: usize = 19;

/// The most keys of open objects that are watched for one given twice.
const MAX_WATCHED: usize = 4096;

/// Adds a JSON value, which a cursor has taken before, as Python writes it. A long one is counted on
/// the way, and added as it stands once the counter is full.
pub(super) fn dump(json: &str, run: &mut Run<'_, '_>) -> Result<(), ReadError> {
    let mut cursor = Cursor::new(json);
    let mut seen = Seen::default();
    loop {
        cursor.space();
        match cursor.byte() {
            None => return Ok(()),
            Some(b',') => {
                run.add(",");
                // A tokenizer's piece ends here, as a blank follows.
                run.step();
                if run.is_full() {
                    cursor.bump();
                    run.add(cursor.raw(cursor.pos(), json.len()));
                    return Ok(());
                }
                run.add(" ");
            }
            Some(b':') => {
                run.add(": ");
                run.exact &= seen.key();
            }
            Some(bracket @ (b'{' | b'[')) => {
                run.add(if bracket == b'{' { "{" } else { "[" });
                seen.open();
            }
            Some(bracket @ (b'}' | b']')) => {
                run.add(if bracket == b'}' { "}" } else { "]" });
                run.exact &= seen.close();
            }
            Some(_) => {
                scalar(&mut cursor, run, &mut seen)?;
                continue;
            }
        }
        cursor.bump();
    }
}

/// The keys of all objects that are open, as hashes, to find one given twice.
#[derive(Debug, Default)]
struct Seen {
    keys: Vec<u64>,
    /// How many keys there were before each open bracket.
    open: Vec<usize>,
    /// The last text, which is a key if a colon comes.
    last: u64,
}

impl Seen {
    fn open(&mut self) {
        self.open.push(self.keys.len());
    }

    /// False where there are more than are watched.
    fn key(&mut self) -> bool {
        let room = self.keys.len() < MAX_WATCHED;
        if room {
            self.keys.push(self.last);
        }
        room
    }

    /// False where a key of the object came twice.
    fn close(&mut self) -> bool {
        let first = self.open.pop().unwrap_or_default();
        let keys = self.keys.get_mut(first..).unwrap_or_default();
        keys.sort_unstable();
        let once = keys.windows(2).all(|pair| pair.first() != pair.get(1));
        self.keys.truncate(first);
        once
    }
}

fn scalar(
    cursor: &mut Cursor<'_>,
    run: &mut Run<'_, '_>,
    seen: &mut Seen,
) -> Result<(), ReadError> {
    match cursor.kind()? {
        Kind::Text => {
            let text = cursor.string()?;
            let key = {
                cursor.space();
                cursor.byte() == Some(b':')
            };
            if key {
                let mut hasher = DefaultHasher::new();
                cursor.decode_each(text, &mut |text| hasher.write(text.as_bytes()));
                seen.last = hasher.finish();
            }
            quote(cursor, text, run);
        }
        Kind::Number => {
            let number = cursor.number()?;
            let text = cursor.raw(number.start, number.end);
            match text {
                "-0" => run.add("0"),
                _ if number.integer => run.add(text),
                _ if is_easy(text) || (text.len() <= MAX_NUMBER && run.hard_number()) => {
                    run.add(&float(text.parse().unwrap_or_default()));
                }
                _ => {
                    run.exact = false;
                    run.add(text);
                }
            }
        }
        Kind::True | Kind::False => {
            run.add(if cursor.boolean()? { "true" } else { "false" });
        }
        _ => {
            cursor.null()?;
            run.add("null");
        }
    }
    Ok(())
}

/// Whether a number is read and written quickly: few digits, a small exponent.
fn is_easy(number: &str) -> bool {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, ""));
    let significant = digits.trim_start_matches(['-', '0', '.']);
    significant.len() <= MAX_SIGNIFICANT
        && number.len() <= MAX_NUMBER
        && exponent.trim_start_matches(['+', '-', '0']).len() <= 2
}

fn quote(cursor: &Cursor<'_>, text: Text, run: &mut Run<'_, '_>) {
    run.add("\"");
    if text.escaped {
        cursor.decode_each(text, &mut |text| {
            let first = text.chars().next().unwrap_or('x');
            match first {
                '"' => run.add("\\\""),
                '\\' => run.add("\\\\"),
                '\n' => run.add("\\n"),
                '\r' => run.add("\\r"),
                '\t' => run.add("\\t"),
                '\u{8}' => run.add("\\b"),
                '\u{c}' => run.add("\\f"),
                ..' ' => run.add(&format!("\\u{:04x}", u32::from(first))),
                _ => return run.add(text),
            }
            run.add(text.get(1..).unwrap_or_default());
        });
    } else {
        run.add(cursor.raw(text.start, text.end));
    }
    run.add("\"");
}

/// The shortest digits that read back as the same number; with an exponent where Python has one.
fn float(value: f64) -> String {
    let size = value.abs();
    if value.is_infinite() {
        (if value > 0.0 { "Infinity" } else { "-Infinity" }).to_owned()
    } else if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        }
    } else if value.fract() == 0.0 {
        format!("{value}.0")
    } else {
        format!("{value}")
    }
}

/// Appends the function of a tool as the engine writes it: known fields in their order. Tools of
/// the request show absent fields as null and lose unknown ones (`filled`); those of a message keep
/// what they have. False where there is no function in it.
pub(super) fn function(tool: &str, filled: bool, run: &mut Run<'_, '_>) -> Result<bool, ReadError> {
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
    let mut extras: Vec<(Text, &str)> = Vec::new();
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
            _ => extras.push((text, take(&mut cursor)?)),
        }
    }
    // A message's function that is not as it should be is shown as it came.
    let fits = |value: Option<&str>, start| value.is_none_or(|value| value.starts_with(start));
    let regular = typed && fits(description, '"') && fits(parameters, '{');
    if !filled && !regular {
        return dump(function, run).map(|()| true);
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
    run.add("{");
    let mut comma = "";
    for (key, value) in fields {
        let Some(value) = value else { continue };
        run.add(comma);
        comma = ", ";
        run.add("\"");
        run.add(key);
        run.add("\": ");
        dump(value, run)?;
    }
    for (key, value) in extras {
        run.add(", ");
        quote(&cursor, key, run);
        run.add(": ");
        dump(value, run)?;
    }
    run.add("}");
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
    /// A text, still to be decoded.
    Text(Text),
    /// Any other value, as it stands.
    Json(&'a str),
}

/// Hands over the arguments of a call, name by name.
///
/// # Errors
/// Where the text is no JSON object. Some have been handed over by then.
pub(super) fn arguments(
    json: &str,
    each: &mut impl FnMut(&Cursor<'_>, Text, Argument<'_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut name = String::new();
    let mut cursor = Cursor::new(json);
    cursor.space();
    cursor.enter(b'{')?;
    let mut keys = Keys::new(MAX_TOP_KEYS);
    while let Some((_, key)) = keys.next_text(&mut cursor, &mut name)? {
        if cursor.kind()? == Kind::Text {
            let text = cursor.string()?;
            each(&cursor, key, Argument::Text(text))?;
        } else {
            let value = take(&mut cursor)?;
            each(&cursor, key, Argument::Json(value))?;
        }
    }
    cursor.end()
}

/// Adds what a JSON string says; any other value as it stands.
pub(super) fn text(json: &str, run: &mut Run<'_, '_>) {
    let mut cursor = Cursor::new(json);
    match cursor.string() {
        Ok(text) => run.literal(&cursor, text),
        Err(_) => run.add(json),
    }
}
