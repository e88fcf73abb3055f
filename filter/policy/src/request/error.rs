//! Why a body is refused, in words that are safe to send back.
//!
//! A message never holds a byte of the client's content, only its offset, so that a prompt cannot
//! reach a log through an error.

use core::fmt;

/// A request that is refused before it is admitted: its status, the parameter at fault, the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    problem: Problem,
    param: Option<&'static str>,
    at: usize,
}

/// What is wrong, one variant for each sentence a client can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Ambiguous,
    ContentEncoding,
    ContentType,
    ControlCharacter,
    Deep,
    Digits,
    DuplicateKey,
    Empty,
    EmptyList,
    Encoding,
    End,
    Escape,
    Keys,
    Missing,
    NonFinite,
    NotObject,
    Number,
    Pieces,
    Range,
    Surrogate,
    Syntax,
    TooLong,
    Trailing,
    Type,
    Utf8,
}

impl ReadError {
    pub(crate) const fn new(problem: Problem, at: usize) -> Self {
        Self { problem, param: None, at }
    }

    pub(crate) const fn of(problem: Problem, param: &'static str, at: usize) -> Self {
        Self { problem, param: Some(param), at }
    }

    /// Whether the engine's own reader may take what is refused here.
    pub(crate) const fn only_here(&self) -> bool {
        matches!(
            self.problem,
            Problem::Deep
                | Problem::Digits
                | Problem::DuplicateKey
                | Problem::Keys
                | Problem::NonFinite
                | Problem::Surrogate
        )
    }

    /// The HTTP status to answer: 415 for a coding or media type that is not read, else 400.
    pub const fn status(&self) -> u16 {
        match self.problem {
            Problem::ContentEncoding | Problem::ContentType => 415,
            _ => 400,
        }
    }

    /// The request parameter at fault, where one can be named.
    pub const fn param(&self) -> Option<&'static str> {
        self.param
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        if let Some(param) = self.param {
            write!(f, "{param}: ")?;
        }
        match self.problem {
            Problem::Ambiguous => {
                f.write_str("give either messages, prompt or input, not two of them")
            }
            Problem::ContentEncoding => {
                f.write_str("compressed bodies are not read; send the body as it is")
            }
            Problem::ContentType => f.write_str("the content type must be application/json"),
            Problem::ControlCharacter => {
                write!(f, "raw control character in a string at byte {at}")
            }
            Problem::Deep => {
                write!(f, "nested deeper than {} levels at byte {at}", super::MAX_DEPTH)
            }
            Problem::Digits => {
                write!(f, "integer of more than {} digits at byte {at}", super::MAX_DIGITS)
            }
            Problem::DuplicateKey => write!(f, "key given twice at byte {at}"),
            Problem::Empty => f.write_str("the body is empty"),
            Problem::EmptyList => write!(f, "must not be empty at byte {at}"),
            Problem::Encoding => f.write_str("the body must be UTF-8 without a byte-order mark"),
            Problem::End => f.write_str("the body ends before its JSON document does"),
            Problem::Escape => write!(f, "bad escape in a string at byte {at}"),
            Problem::Keys => write!(f, "too many keys in one object at byte {at}"),
            Problem::Missing => f.write_str("required, but not given"),
            Problem::NonFinite => {
                write!(f, "NaN and Infinity are not JSON, at byte {at}")
            }
            Problem::NotObject => f.write_str("the body must be a JSON object"),
            Problem::Number => write!(f, "bad number at byte {at}"),
            Problem::Pieces => {
                write!(f, "more than {} texts and messages at byte {at}", super::MAX_PIECES)
            }
            Problem::Range => write!(f, "number out of range at byte {at}"),
            Problem::Surrogate => write!(f, "lone surrogate in a string at byte {at}"),
            Problem::Syntax => write!(f, "not valid JSON at byte {at}"),
            Problem::TooLong => write!(f, "longer than {} bytes", super::MAX_MODEL_BYTES),
            Problem::Trailing => write!(f, "bytes after the JSON document at byte {at}"),
            Problem::Type => write!(f, "value of the wrong type at byte {at}"),
            Problem::Utf8 => write!(f, "not valid UTF-8 at byte {at}"),
        }
    }
}

impl core::error::Error for ReadError {}
