//! What an answer says it cost: the engine's own count of prompt and output tokens.
//!
//! Engines report it last: in the last event of a stream, and behind the choices of an answer that
//! comes whole. So nothing of an answer is read as JSON while it passes. Its last [`TAIL`] bytes are
//! kept, and the end of the answer looks for the last `"usage"` in them; the first piece of a stream
//! is looked at too, for engines that say the prompt's tokens there. This costs a copy a piece and
//! one search a request, whatever the length.
//!
//! **Text cannot pose as usage.** A quotation mark inside a JSON string is always escaped, so the
//! seven bytes `"usage"` are a string of their own wherever they stand, never a part of another.
//! Followed by a colon they are a key; that it is the answer's own key, and not one deep inside (of
//! a tool call's arguments, say), is told by counting the brackets from there to the end of the
//! document. An object one of whose counts is no whole number of 1 to 15 digits is
//! not believed.
//!
//! Trade-offs: usage that lies more than [`TAIL`] bytes before the end (an answer with the log
//! probabilities of its prompt) is not found, and neither is that of compressed answers. An event
//! whose JSON goes over several `data:` lines is not read. Such an answer teaches nothing, and is
//! charged by its length.

/// Bytes of the end of an answer that are kept. The usage and what engines put behind it take some
/// hundred.
pub const TAIL: usize = 2048;

/// Digits that a count may have: what is longer is no count.
const MAX_DIGITS: usize = 15;

const KEY: &[u8] = b"\"usage\"";

/// How many objects are tried before the answer is taken to have no usage.
const MAX_TRIES: usize = 16;

/// The engine's count, as far as it gave one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt, those from a cache included.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated, over all choices.
    pub completion_tokens: Option<u64>,
}

impl Usage {
    fn is_whole(&self) -> bool {
        self.prompt_tokens.is_some() && self.completion_tokens.is_some()
    }

    /// This one's figures, and the other's where this one has none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.or(other.prompt_tokens),
            completion_tokens: self.completion_tokens.or(other.completion_tokens),
        }
    }
}

/// What kind of text an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One JSON document.
    Document,
    /// Server-sent events, one JSON document a line.
    Events,
}

/// Follows an answer for its usage. Memory: at most twice [`TAIL`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UsageReader {
    tail: Vec<u8>,
    /// What the first piece said.
    first: Usage,
}

/// Answers must not be printed, so neither is what holds a part of one.
impl std::fmt::Debug for UsageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsageReader").finish_non_exhaustive()
    }
}

impl UsageReader {
    /// Takes the next bytes of the answer. Of a piece longer than [`TAIL`] its last bytes are enough.
    pub fn feed(&mut self, piece: &[u8]) {
        let keep = piece.len().saturating_sub(TAIL);
        let piece = piece.get(keep..).unwrap_or_default();
        // Moving the tail to the front with every piece would copy it a thousand times.
        if self.tail.len().saturating_add(piece.len()) > TAIL.saturating_mul(2) {
            let old = self.tail.len().saturating_add(piece.len()).saturating_sub(TAIL);
            self.tail.drain(..old.min(self.tail.len()));
        }
        self.tail.extend_from_slice(piece);
    }

    /// Looks at the beginning of a stream, where some engines say the prompt's tokens already.
    pub fn look_at_first(&mut self, piece: &[u8]) {
        let end = piece.len().min(TAIL);
        self.first = find(piece.get(..end).unwrap_or_default(), Form::Events);
    }

    /// The usage of the answer, or of what there is of it.
    pub fn usage(&self, form: Form) -> Usage {
        let from = self.tail.len().saturating_sub(TAIL);
        find(self.tail.get(from..).unwrap_or_default(), form).or(self.first)
    }
}

/// The last usage in the end of an answer.
fn find(text: &[u8], form: Form) -> Usage {
    let (mut rest, mut found) = (text, Usage::default());
    for _ in 0..MAX_TRIES {
        let Some(at) = last(rest) else { break };
        let after = text.get(at.saturating_add(KEY.len())..).unwrap_or_default();
        if let Some((usage, behind)) = object(after)
            && is_top_level(behind, form)
        {
            // The last word counts; what it leaves out, an earlier event may have said.
            found = found.or(usage);
            if form == Form::Document || found.is_whole() {
                break;
            }
        }
        rest = text.get(..at).unwrap_or_default();
    }
    found
}

/// Where the last key `usage` is.
fn last(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    // One byte first: most places fail with it.
    loop {
        let at = text.get(..end)?.iter().rposition(|byte| *byte == b'u')?;
        let start = at.checked_sub(1);
        if let Some(start) = start
            && text.get(start..).is_some_and(|text| text.starts_with(KEY))
        {
            return Some(start);
        }
        end = at;
    }
}

/// A cursor over what follows a key.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn blank(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    /// Takes this byte, after white space.
    fn take(&mut self, byte: u8) -> Option<()> {
        self.blank();
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    /// Takes a string without its quotation marks; escapes stay.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let end = string_end(self.0)?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(1..)?;
        Some(text)
    }

    /// Takes a whole number.
    fn number(&mut self) -> Option<u64> {
        self.blank();
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.0.split_at_checked(digits)?;
        if !(1..=MAX_DIGITS).contains(&digits) || matches!(rest.first(), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.0 = rest;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Takes a whole number or `null`.
    #[expect(clippy::option_option, reason = "the outer one is `?`'s: something else is there")]
    fn count(&mut self) -> Option<Option<u64>> {
        self.blank();
        if let Some(rest) = self.0.strip_prefix(b"null") {
            self.0 = rest;
            return Some(None);
        }
        self.number().map(Some)
    }

    /// Takes any value that holds no figure of ours.
    fn skip(&mut self) -> Option<()> {
        self.blank();
        match self.0.first()? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' => {
                let (end, depth) = nesting(self.0, |depth| depth == 0);
                self.0 = self.0.get(end..)?;
                (depth == 0).then_some(())
            }
            _ => {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = self.0.iter().take_while(|byte| plain(byte)).count();
                self.0 = self.0.get(length..)?;
                (length > 0).then_some(())
            }
        }
    }
}

/// Reads `: {…}`; returns what is behind it too.
fn object(text: &[u8]) -> Option<(Usage, &[u8])> {
    let mut cursor = Cursor(text);
    cursor.take(b':')?;
    cursor.take(b'{')?;
    let mut usage = Usage::default();
    let mut cached = 0_u64;
    loop {
        let name = cursor.string()?;
        cursor.take(b':')?;
        match name {
            b"prompt_tokens" | b"input_tokens" => usage.prompt_tokens = Some(cursor.number()?),
            // An embedding has none, which some engines write as null.
            b"completion_tokens" | b"output_tokens" => usage.completion_tokens = cursor.count()?,
            // Anthropic's `input_tokens` leaves these out.
            b"cache_read_input_tokens" | b"cache_creation_input_tokens" => {
                cached = cached.saturating_add(cursor.count()?.unwrap_or(0));
            }
            _ if cursor.number().is_some() => {}
            _ => cursor.skip()?,
        }
        if cursor.take(b',').is_none() {
            break;
        }
    }
    cursor.take(b'}')?;
    usage.prompt_tokens = usage.prompt_tokens.map(|tokens| tokens.saturating_add(cached));
    (usage != Usage::default()).then_some((usage, cursor.0))
}

/// Whether an object that this text follows was a member of the document itself, or in an event of
/// one object inside it.
fn is_top_level(behind: &[u8], form: Form) -> bool {
    let line = match form {
        Form::Document => behind,
        Form::Events => {
            let line = behind.split(|byte| matches!(byte, b'\n' | b'\r')).next();
            line.unwrap_or_default()
        }
    };
    let (_, depth) = nesting(line, |_| false);
    let deepest = if form == Form::Events { -2 } else { -1 };
    (deepest..0).contains(&depth)
}

/// Walks over JSON until `done` with the depth, counted from where it begins, or its end. Returns how
/// far it came and the depth there.
fn nesting(text: &[u8], done: impl Fn(i32) -> bool) -> (usize, i32) {
    let (mut at, mut depth) = (0_usize, 0_i32);
    while let Some(byte) = text.get(at) {
        at = at.saturating_add(1);
        match byte {
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let rest = text.get(at..).unwrap_or_default();
                // A string that does not end is no JSON: nothing behind it counts.
                let end = string_end(rest).unwrap_or(rest.len());
                at = at.saturating_add(end).saturating_add(1);
                continue;
            }
            _ => continue,
        }
        if done(depth) {
            break;
        }
    }
    (at.min(text.len()), depth)
}

/// Where the quotation mark is that ends a string, whose first one is taken already.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at = at.saturating_add(2),
            _ => at = at.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests;
