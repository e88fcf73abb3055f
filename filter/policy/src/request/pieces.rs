//! What a body's prompt is made of: where its texts are, and what each of them is.
//!
//! Which tokenizer and which template count a prompt is known only with the model, and a message's
//! role only at its end, so the reader notes places and the counting comes after it. A piece is
//! twelve bytes, and there are at most [`MAX_PIECES`](super::MAX_PIECES), so a body of any shape
//! costs less than a megabyte beside itself.

use core::fmt;

use super::error::{Problem, ReadError};
use super::json::{Cursor, Text};
use super::{Endpoint, MAX_PIECES, RequestFacts};

/// What a piece is to a chat template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    /// A prompt outside of conversations.
    Prompt,
    /// What comes after the gap of a prompt.
    Suffix,
    /// What a conversation is told before its messages.
    Instructions,
    /// A message's content, given as one text.
    Content,
    /// A content part; also an empty one is noted, as templates put something between parts.
    Part,
    /// An image among the parts.
    Image,
    /// A sound clip among the parts.
    Audio,
    /// The assistant's earlier reasoning.
    Reasoning,
    /// The same under its old name.
    ReasoningContent,
    /// The tools' JSON text, as it stands in the body.
    Tool,
    /// The same inside a message.
    MessageTool,
    /// A call of a tool begins; no text.
    Call,
    /// The name of the tool called: a JSON value as it stands.
    CallName,
    /// The arguments, a text that should be JSON.
    Arguments,
    /// The arguments as a JSON object.
    ArgumentsObject,
    /// A text or JSON value that some templates render; noted only where it is long.
    Aside,
    /// JSON that templates render as it is, or nearly.
    Raw,
}

/// One piece: bytes of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    start: u32,
    end: u32,
    pub(crate) is: Is,
    /// Whether the bytes are the inside of a string literal with escapes.
    escaped: bool,
}

impl Piece {
    /// Length in the body, in bytes.
    pub(crate) const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}

/// Who speaks, as far as a chat template depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Developer,
    Tool,
    Assistant,
    System,
    /// A note that stands apart from the turns.
    Reminder,
    #[default]
    Other,
}

impl Speaker {
    pub(super) fn of_role(role: &str) -> Self {
        match role {
            "user" => Self::User,
            "developer" => Self::Developer,
            "tool" => Self::Tool,
            "assistant" => Self::Assistant,
            "system" => Self::System,
            "latest_reminder" => Self::Reminder,
            _ => Self::Other,
        }
    }

    /// A responses item that is no message says by its type whose it is.
    pub(super) fn of_item(kind: &str) -> Self {
        match kind {
            "reasoning" => Self::Assistant,
            _ if kind.ends_with("_call_output") => Self::Tool,
            _ if kind.ends_with("_call") => Self::Assistant,
            _ => Self::Other,
        }
    }

    /// Whether its messages join into a user's turn.
    pub(crate) const fn asks(self) -> bool {
        matches!(self, Self::User | Self::Tool)
    }
}

/// A special job a message gives the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    #[default]
    None,
    Action,
    Other,
}

/// One message: its speaker and its pieces, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) speaker: Speaker,
    pub(crate) task: Task,
}

/// How hard the model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Not at all: thinking is off.
    None,
    /// Without being told so in words.
    Low,
    /// Much.
    High,
    /// As much as it can.
    Max,
}

impl Effort {
    /// Any word is an effort; those that are not known mean a high one.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "none" => Self::None,
            "low" | "minimal" | "medium" => Self::Low,
            "max" => Self::Max,
            _ => Self::High,
        }
    }
}

/// What a request says about its template.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Switches {
    pub(crate) thinking: Option<bool>,
    pub(crate) enable_thinking: Option<bool>,
    /// It is there, be it null.
    pub(crate) enable_given: bool,
    pub(crate) drop_thinking: Option<bool>,
    /// From the template's arguments.
    pub(crate) argued_effort: Option<Effort>,
    /// From the request itself; it goes first.
    pub(crate) effort: Option<Effort>,
    /// A gap is to be filled: there is a suffix, if only an empty one.
    pub(crate) suffix: bool,
    pub(crate) special_tokens: Option<bool>,
    /// Something here changes the prompt in a way that is not followed.
    pub(crate) unsure: bool,
    /// Bytes of names, ids and the like that are too short to be noted each.
    pub(crate) short_bytes: usize,
}

/// A request that has been read: what decides admission, and what its prompt is made of.
#[derive(Clone)]
pub struct Read<'a> {
    /// What decides admission.
    pub facts: RequestFacts,
    pub(crate) endpoint: Endpoint,
    pub(crate) body: &'a str,
    pub(crate) pieces: Pieces,
    pub(crate) switches: Switches,
}

impl fmt::Debug for Read<'_> {
    /// Without the body, which is the client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl<'a> Read<'a> {
    /// A piece that needs no decoding; `None` if it does.
    pub(crate) fn plain(&self, piece: Piece) -> Option<&'a str> {
        (!piece.escaped).then(|| self.raw(piece))
    }

    /// The bytes of a piece.
    pub(crate) fn raw(&self, piece: Piece) -> &'a str {
        let range = usize::try_from(piece.start).ok().zip(usize::try_from(piece.end).ok());
        range.and_then(|(start, end)| self.body.get(start..end)).unwrap_or_default()
    }

    /// Appends the decoded text of a piece.
    pub(crate) fn decode(&self, piece: Piece, out: &mut String) {
        self.decode_each(piece, &mut |text| out.push_str(text));
    }

    /// Hands over the decoded text of a piece, bit by bit.
    pub(crate) fn decode_each(&self, piece: Piece, each: &mut impl FnMut(&str)) {
        match self.plain(piece) {
            Some(text) => each(text),
            None => Cursor::decode_span(self.body, piece.start, piece.end, each),
        }
    }

    /// The pieces of a message.
    pub(crate) fn pieces_of(&self, message: Message) -> &[Piece] {
        self.pieces.between(message.first, message.end)
    }
}

/// The pieces and messages of one body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) all: Vec<Piece>,
    pub(crate) messages: Vec<Message>,
}

impl Pieces {
    /// How many there are so far.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    fn between(&self, first: u32, end: u32) -> &[Piece] {
        let range = usize::try_from(first).ok().zip(usize::try_from(end).ok());
        range.and_then(|(first, end)| self.all.get(first..end)).unwrap_or_default()
    }

    fn room(&self, at: usize) -> Result<(), ReadError> {
        let taken = self.all.len().saturating_add(self.messages.len());
        if taken < MAX_PIECES { Ok(()) } else { Err(ReadError::new(Problem::Pieces, at)) }
    }

    pub(super) fn add(
        &mut self,
        is: Is,
        start: usize,
        end: usize,
        escaped: bool,
    ) -> Result<(), ReadError> {
        self.room(start)?;
        let far = |_| ReadError::new(Problem::Pieces, start);
        let (start, end) = (u32::try_from(start).map_err(far)?, u32::try_from(end).map_err(far)?);
        self.all.push(Piece { start, end, is, escaped });
        Ok(())
    }

    /// Adds a text; an empty one is nothing, unless it is a part, or takes the place of another.
    pub(super) fn text(&mut self, is: Is, text: Text) -> Result<(), ReadError> {
        if text.start == text.end && !matches!(is, Is::Part | Is::Reasoning) {
            return Ok(());
        }
        self.add(is, text.start, text.end, text.escaped)
    }

    pub(super) fn message(
        &mut self,
        first: u32,
        speaker: Speaker,
        task: Task,
        at: usize,
    ) -> Result<(), ReadError> {
        self.room(at)?;
        self.messages.push(Message { first, end: self.count(), speaker, task });
        Ok(())
    }
}
