//! Reading a request: its endpoint, and what in its body decides admission.
//!
//! **What the filter reads is what the engine reads.** The engine's reader is Python's `json` on raw
//! bytes and a lenient model behind it; wherever a body could mean one thing here and another
//! there, it is refused with 400. The body is read in one pass, without a tree: a cursor checks the
//! grammar, the few known fields are noted, and of texts only the place and what they are.
//! Counting is a second step over those places (`tokens::template`), once the model is known.
//!
//! Stricter than the engine, on purpose:
//!
//! - UTF-8 without a byte-order mark only; no `NaN`, no `Infinity`; no lone surrogate in any string,
//!   read or not; at most [`MAX_DEPTH`] levels; no integer of more than [`MAX_DIGITS`] digits.
//! - No key twice in an object that is read (top level, message, content part, tool call, stream
//!   options, template arguments), and at most [`MAX_TOP_KEYS`] keys at the top level and [`MAX_KEYS`] in the others.
//! - At most [`MAX_PIECES`] texts and messages together; empty texts are none, empty parts are.
//! - Every token cap that is given must fit in 32 bits and not be negative, also one that another
//!   cap overrides; zero is taken only where the engine takes it (`/v1/completions`).
//! - A list of prompts has one kind of element. `/invocations` and `/v1/embeddings` take one of
//!   `messages`, `prompt` and `input`, never two.
//!
//! Counted beside the plain texts: token ids forwarded in `kv_transfer_params`, which the engine takes
//! for the prompt; and names, ids, roles and template arguments that are long, since some chat
//! templates render them. In doubt the count is too high, never too low.
//!
//! Not looked at: values the filter has no use for, so a number such as `1e400` passes there and
//! means to the engine what it likes.

mod body;
pub(crate) mod error;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod lax;
mod path;
pub(crate) mod pieces;
mod scan;
#[cfg(test)]
mod tests;

use core::ops::Range;

pub(crate) use body::SHORT_BYTES;
use error::Problem;
pub use error::ReadError;
pub use path::{Endpoint, PathMatch};
pub use pieces::{Effort, Read};

/// The deepest nesting of arrays and objects that is read, the body's own object included.
pub const MAX_DEPTH: u32 = 128;

/// The longest model name, in bytes after unescaping.
pub const MAX_MODEL_BYTES: usize = 256;

/// The most digits of an integer, the same as the engine's.
pub const MAX_DIGITS: usize = 4300;

/// The most keys of the body's own object.
pub const MAX_TOP_KEYS: usize = 256;

/// The most keys of any other object that is read.
pub const MAX_KEYS: usize = 64;

/// The most texts and messages of one body. Twelve bytes each, so below a megabyte in all.
pub const MAX_PIECES: usize = 65_536;

/// What a body says that decides admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model asked for; `None` if absent, null or empty.
    pub model: Option<String>,
    /// Bytes of the model's value in the body, quotes included; `None` if the key is absent.
    pub model_span: Option<Range<usize>>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// Whether the stream is to end with the usage.
    pub include_usage: bool,
    /// Output tokens allowed for one choice, as the engine takes it: `max_completion_tokens` before
    /// `max_tokens`; 16 for completions that name none; 0 for embeddings; else `None` if not named.
    pub max_output_tokens: Option<u64>,
    /// Choices to generate for each prompt, at least 1.
    pub choices: u64,
    /// Prompts in the body: each of a list counts, a conversation is one.
    pub prompts: u64,
    /// Messages of the conversation; items of a responses input.
    pub messages: u64,
    /// Runs of neighbouring user and tool messages: the chat template makes one turn of each.
    pub user_turns: u64,
    /// Messages of the assistant.
    pub assistant_messages: u64,
    /// Tools offered, also those offered by a message.
    pub tools: u64,
    /// Prompt tokens that were given as ids, not as text.
    pub token_ids: u64,
    /// Images in content parts.
    pub images: u64,
    /// Sound clips in content parts.
    pub audio: u64,
    /// Videos in content parts, and prompts given there as tensors.
    pub video: u64,
}

impl RequestFacts {
    /// The most output tokens the whole request may cost; `None` without a cap.
    pub fn output_cap(&self) -> Option<u64> {
        let cap = self.max_output_tokens?;
        Some(cap.saturating_mul(self.choices).saturating_mul(self.prompts))
    }
}

/// Reads the body of a request for an endpoint.
///
/// # Errors
/// A [`ReadError`] with status 400 where the body is not what the endpoint takes, or could be read
/// in two ways.
pub fn read(endpoint: Endpoint, body: &[u8]) -> Result<Read<'_>, ReadError> {
    check_encoding(body)?;
    let text = core::str::from_utf8(body)
        .map_err(|error| ReadError::new(Problem::Utf8, error.valid_up_to()))?;
    body::Reader::new(endpoint, text).read()
}

/// Refuses the encodings Python's `json` would guess from the first bytes.
fn check_encoding(body: &[u8]) -> Result<(), ReadError> {
    let mark = [&b"\xEF\xBB\xBF"[..], b"\xFE\xFF", b"\xFF\xFE"];
    let wide = matches!(body, [0, ..] | [_, 0, ..]);
    if wide || mark.iter().any(|mark| body.starts_with(mark)) {
        return Err(ReadError::new(Problem::Encoding, 0));
    }
    if body.is_empty() {
        return Err(ReadError::new(Problem::Empty, 0));
    }
    Ok(())
}

/// Checks the headers that say how a body is to be read; absent ones pass.
///
/// # Errors
/// A [`ReadError`] with status 415 for a content coding other than `identity`, or a media type
/// other than `application/json` (any case, parameters ignored).
pub fn check_content(
    content_type: Option<&[u8]>,
    content_encoding: Option<&[u8]>,
) -> Result<(), ReadError> {
    let codings = content_encoding.unwrap_or_default().split(|&b| b == b',');
    for coding in codings.map(<[u8]>::trim_ascii) {
        if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity") {
            return Err(ReadError::new(Problem::ContentEncoding, 0));
        }
    }
    if let Some(value) = content_type {
        let media = value.split(|&b| b == b';').next().unwrap_or_default();
        if !media.trim_ascii().eq_ignore_ascii_case(b"application/json") {
            return Err(ReadError::new(Problem::ContentType, 0));
        }
    }
    Ok(())
}
