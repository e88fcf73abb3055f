//! A cursor over JSON text: checks everything, builds nothing.
//!
//! The grammar is that of Python's `json` minus what only Python takes (`NaN`, `Infinity`, lone
//! surrogates), because a body that two readers could take in two ways must not pass. Nesting is a
//! bit per level in one integer, so no input can exhaust the stack.

use core::fmt;
use core::ops::Range;

use super::error::{Problem, ReadError};
use super::scan::{plain_end, unicode_escape};
use super::{MAX_DEPTH, MAX_DIGITS};

type Result<T> = core::result::Result<T, ReadError>;

/// The inside of a string literal: byte offsets without the quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Where the plain span behind the last escape starts; the start if there is none.
    tail: usize,
    pub(crate) escaped: bool,
}

/// A number literal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Written with neither fraction nor exponent.
    pub(crate) integer: bool,
}

/// What kind of value comes next, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Object,
    Array,
    True,
    False,
    Null,
}

pub(crate) struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
    depth: u32,
}

impl fmt::Debug for Cursor<'_> {
    /// Without the text, which is the client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("pos", &self.pos).finish_non_exhaustive()
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), pos: 0, depth: 0 }
    }

    pub(crate) const fn pos(&self) -> usize {
        self.pos
    }

    /// The source between two offsets; empty where they are no boundaries, which does not happen
    /// for offsets this cursor has made.
    pub(crate) fn raw(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    pub(crate) fn byte(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    pub(crate) fn bump(&mut self) {
        self.pos = self.pos.wrapping_add(1);
    }

    pub(crate) fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.bump();
        }
    }

    fn unexpected<T>(&self) -> Result<T> {
        let problem = match self.byte() {
            None => Problem::End,
            Some(_) => Problem::Syntax,
        };
        Err(ReadError::new(problem, self.pos))
    }

    /// Takes one byte that must come now.
    pub(crate) fn expect(&mut self, byte: u8) -> Result<()> {
        if self.byte() == Some(byte) {
            self.bump();
            return Ok(());
        }
        self.unexpected()
    }

    /// Takes the byte if it comes now.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.byte() == Some(byte);
        if found {
            self.bump();
        }
        found
    }

    /// Enters an array or object whose bracket comes now.
    pub(crate) fn enter(&mut self, bracket: u8) -> Result<()> {
        self.expect(bracket)?;
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(ReadError::new(Problem::Deep, self.pos));
        }
        self.space();
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Steps to the next element of an array: false at its end. `first` before the first one.
    pub(crate) fn element(&mut self, first: bool) -> Result<bool> {
        self.space();
        if self.take(b']') {
            self.leave();
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
            self.space();
        }
        Ok(true)
    }

    pub(crate) fn kind(&self) -> Result<Kind> {
        Ok(match self.byte() {
            Some(b'"') => Kind::Text,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            Some(b't') => Kind::True,
            Some(b'f') => Kind::False,
            Some(b'n') => Kind::Null,
            Some(b'N' | b'I') => return self.nan(),
            _ => return self.unexpected(),
        })
    }

    /// The two words Python reads as numbers and JSON does not.
    fn nan<T>(&self) -> Result<T> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        if rest.starts_with(b"NaN") || rest.starts_with(b"Infinity") {
            return Err(ReadError::new(Problem::NonFinite, self.pos));
        }
        self.unexpected()
    }

    fn word(&mut self, word: &[u8]) -> Result<()> {
        for &byte in word {
            self.expect(byte)?;
        }
        Ok(())
    }

    /// Takes `null` if it comes now.
    pub(crate) fn null(&mut self) -> Result<bool> {
        if self.byte() == Some(b'n') {
            self.word(b"null")?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes `true` or `false`, one of which starts here.
    pub(crate) fn boolean(&mut self) -> Result<bool> {
        if self.byte() == Some(b't') {
            self.word(b"true")?;
            return Ok(true);
        }
        self.word(b"false")?;
        Ok(false)
    }

    fn digits(&mut self) -> usize {
        let start = self.pos;
        while let Some(b'0'..=b'9') = self.byte() {
            self.bump();
        }
        self.pos.wrapping_sub(start)
    }

    pub(crate) fn number(&mut self) -> Result<Number> {
        let start = self.pos;
        if self.take(b'-') && self.byte() == Some(b'I') {
            return self.nan();
        }
        let first = self.byte();
        let whole = self.digits();
        if whole == 0 || (first == Some(b'0') && whole > 1) {
            return Err(ReadError::new(Problem::Number, start));
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            if self.digits() == 0 {
                return Err(ReadError::new(Problem::Number, start));
            }
        }
        if let Some(b'e' | b'E') = self.byte() {
            integer = false;
            self.bump();
            if let Some(b'+' | b'-') = self.byte() {
                self.bump();
            }
            if self.digits() == 0 {
                return Err(ReadError::new(Problem::Number, start));
            }
        }
        if integer && whole > MAX_DIGITS {
            return Err(ReadError::new(Problem::Digits, start));
        }
        let end = self.pos;
        Ok(Number { start, end, integer })
    }

    /// Takes a string literal, checking its escapes but not decoding them.
    pub(crate) fn string(&mut self) -> Result<Text> {
        self.literal(|_, _| {})
    }

    /// Takes a string literal; one with escapes is decoded into `out`, which else stays empty.
    pub(crate) fn string_into(&mut self, out: &mut String) -> Result<Text> {
        out.clear();
        let source = self.text;
        self.literal(|span, char| {
            out.push_str(source.get(span).unwrap_or_default());
            if let Some(char) = char {
                out.push(char);
            }
        })
        .inspect(|text| {
            if text.escaped {
                out.push_str(self.raw(text.tail, text.end));
            }
        })
    }

    /// Takes a string literal, handing each escape's character to `escape` with the plain span
    /// before it. An escaped character that stands for itself starts the next span.
    #[inline]
    fn literal(&mut self, mut escape: impl FnMut(Range<usize>, Option<char>)) -> Result<Text> {
        self.expect(b'"')?;
        let start = self.pos;
        let mut tail = start;
        loop {
            match self.byte() {
                Some(b'"') => {
                    let end = self.pos;
                    self.bump();
                    return Ok(Text { start, tail, end, escaped: tail != start });
                }
                Some(b'\\') => {
                    let end = self.pos;
                    let char = self.escape()?;
                    escape(tail..end, char);
                    tail = self.pos;
                    if char.is_none() {
                        self.bump();
                    }
                }
                Some(..0x20) => {
                    return Err(ReadError::new(Problem::ControlCharacter, self.pos));
                }
                // Always a step forward, whatever the scan makes of this byte.
                Some(_) => self.pos = plain_end(self.bytes, self.pos.wrapping_add(1)),
                None => return self.unexpected(),
            }
        }
    }

    /// Takes an escape: the character it stands for; `None`, with that character still to be
    /// taken, if it stands for itself.
    #[inline]
    fn escape(&mut self) -> Result<Option<char>> {
        let start = self.pos;
        self.bump();
        let char = match self.byte() {
            Some(b'n') => '\n',
            Some(b'"' | b'\\' | b'/') => return Ok(None),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let (char, len) = unicode_escape(self.bytes, start)?;
                self.pos = start.saturating_add(len);
                return Ok(Some(char));
            }
            Some(_) => return Err(ReadError::new(Problem::Escape, start)),
            None => return self.unexpected(),
        };
        self.bump();
        Ok(Some(char))
    }

    /// Appends the decoded text of a literal that has been taken before.
    pub(crate) fn decode(&self, text: Text, out: &mut String) {
        self.decode_each(text, &mut |text| out.push_str(text));
    }

    /// Hands over the decoded text of a literal that has been taken before, bit by bit. A quote or a
    /// backslash only begins a bit.
    pub(crate) fn decode_each(&self, text: Text, each: &mut impl FnMut(&str)) {
        let mut again = Cursor { pos: text.start.wrapping_sub(1), ..*self };
        let literal = again.literal(|span, char| {
            if !span.is_empty() {
                each(self.raw(span.start, span.end));
            }
            if let Some(char) = char {
                each(char.encode_utf8(&mut [0; 4]));
            }
        });
        if let Ok(text) = literal {
            each(self.raw(text.tail, text.end));
        }
    }

    /// The same for the inside of a literal of which only the place is known.
    pub(crate) fn decode_span(source: &str, start: u32, end: u32, each: &mut impl FnMut(&str)) {
        let place = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        if let Some((start, end)) = place {
            let text = Text { start, end, tail: start, escaped: true };
            Cursor::new(source).decode_each(text, each);
        }
    }

    /// Nothing but blanks may follow.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.space();
        match self.byte() {
            None => Ok(()),
            Some(_) => Err(ReadError::new(Problem::Trailing, self.pos)),
        }
    }

    /// Takes any value, of any depth up to the bound, without looking at what it means.
    pub(crate) fn skip(&mut self) -> Result<()> {
        // One bit a level, set for an object, the innermost lowest.
        let mut objects: u128 = 0;
        let outer = self.depth;
        loop {
            match self.kind()? {
                Kind::Text => drop(self.string()?),
                Kind::Number => drop(self.number()?),
                Kind::True | Kind::False => drop(self.boolean()?),
                Kind::Null => drop(self.null()?),
                Kind::Object => {
                    self.enter(b'{')?;
                    objects = (objects << 1) | 1;
                    if self.byte() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                }
                Kind::Array => {
                    self.enter(b'[')?;
                    objects <<= 1;
                    if self.byte() != Some(b']') {
                        continue;
                    }
                }
            }
            loop {
                if self.depth == outer {
                    return Ok(());
                }
                self.space();
                let object = objects & 1 == 1;
                if self.take(b',') {
                    self.space();
                    if object {
                        self.key()?;
                    }
                    break;
                }
                self.expect(if object { b'}' } else { b']' })?;
                objects >>= 1;
                self.leave();
            }
        }
    }

    /// Takes a key with its colon and the space behind it.
    pub(crate) fn key(&mut self) -> Result<Text> {
        let key = self.string()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(key)
    }
}
