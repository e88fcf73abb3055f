//! Messages, their content parts and tool calls.

use super::{Reader, Result, SHORT_BYTES};
use crate::request::error::{Problem, ReadError};
use crate::request::json::Kind;
use crate::request::keys::{Key, Keys};
use crate::request::pieces::{Is, Speaker, Task};
use crate::request::{Endpoint, MAX_KEYS, RequestFacts};

/// Tool results hold content parts of their own; deeper ones are no text to the engine.
const MAX_PART_NESTING: u32 = 1;

/// The longest usual role or type, in bytes.
const USUAL_WORD: usize = 24;

/// Counts over the messages so far.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: u64,
    user_turns: u64,
    assistant_messages: u64,
    previous: Option<Speaker>,
}

impl Conversation {
    /// Another conversation begins: its first message joins no turn of the one before.
    pub(super) fn begin(&mut self) {
        self.previous = None;
    }

    fn add(&mut self, speaker: Speaker, merge: bool) {
        self.messages = self.messages.saturating_add(1);
        if speaker.asks() && !self.previous.is_some_and(Speaker::asks) {
            self.user_turns = self.user_turns.saturating_add(1);
        }
        let merged = merge && self.previous == Some(speaker);
        if speaker == Speaker::Assistant && !merged {
            self.assistant_messages = self.assistant_messages.saturating_add(1);
        }
        self.previous = Some(speaker);
    }

    pub(super) fn count_into(&self, facts: &mut RequestFacts) {
        facts.messages = self.messages;
        facts.user_turns = self.user_turns;
        facts.assistant_messages = self.assistant_messages;
    }
}

impl Reader<'_> {
    /// The top-level `messages`: a list of messages, for embeddings also a list of conversations.
    pub(super) fn messages(&mut self) -> Result<()> {
        if self.cursor.null()? {
            return Ok(());
        }
        if self.cursor.kind()? != Kind::Array {
            return self.wrong(Key::Messages);
        }
        self.given.messages = true;
        self.cursor.enter(b'[')?;
        let mut first = true;
        let mut batch = false;
        while self.cursor.element(first)? {
            let kind = self.cursor.kind()?;
            if first {
                batch = kind == Kind::Array && self.endpoint == Endpoint::Embeddings;
            }
            first = false;
            if batch && kind == Kind::Array {
                self.one_prompt();
                self.inner_prompt(Key::Messages)?;
            } else if !batch && kind == Kind::Object {
                self.message(Key::Messages)?;
            } else {
                return self.wrong(Key::Messages);
            }
        }
        Ok(())
    }

    /// A responses input: one user's text, or a list of items.
    pub(super) fn items(&mut self, param: Key) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Text if param == Key::Input => {
                self.given.input = true;
                self.conversation.add(Speaker::User, true);
                let (first, at) = (self.pieces.count(), self.cursor.pos());
                self.text(Is::Content)?;
                return self.pieces.message(first, Speaker::User, Task::None, at);
            }
            Kind::Array => self.cursor.enter(b'[')?,
            _ => return self.wrong(param),
        }
        self.given.input |= param == Key::Input;
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            if self.cursor.kind()? != Kind::Object {
                return self.wrong(param);
            }
            self.message(param)?;
        }
        Ok(())
    }

    /// One message or responses item; the cursor is on its brace.
    pub(super) fn message(&mut self, param: Key) -> Result<()> {
        let responses = self.endpoint == Endpoint::Responses;
        let at = self.cursor.pos();
        self.cursor.enter(b'{')?;
        let mut keys = Keys::new(MAX_KEYS);
        let first = self.pieces.count();
        let mut role = None;
        let mut task = Task::None;
        let mut item = Speaker::Other;
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            match name {
                Key::Role => role = self.word(param, Speaker::of_role)?,
                Key::Content => self.content(param, 0)?,
                Key::ToolCalls => self.tool_calls(param)?,
                Key::Tools => self.tools(param, Is::MessageTool)?,
                Key::Task if self.cursor.kind()? == Kind::Text => {
                    let look = |task: &str| match task {
                        "action" => Task::Action,
                        _ => Task::Other,
                    };
                    task = self.word(param, look)?.unwrap_or_default();
                }
                Key::Reasoning => self.text_or_null(param, Is::Reasoning)?,
                Key::ReasoningContent => self.text_or_null(param, Is::ReasoningContent)?,
                Key::Type if responses => {
                    item = self.word(param, Speaker::of_item)?.unwrap_or_default();
                }
                Key::Name | Key::ToolCallId => self.aside()?,
                Key::Id | Key::CallId if responses => self.aside()?,
                Key::Output if responses && self.cursor.kind()? == Kind::Object => {
                    self.raw_value(Is::Raw)?;
                }
                Key::Output | Key::Summary if responses => self.content(param, 0)?,
                Key::Arguments | Key::Input if responses => self.arguments(param)?,
                _ => self.cursor.skip()?,
            }
        }
        let speaker = match role {
            Some(role) => role,
            None if responses => item,
            None => return Err(ReadError::of(Problem::Missing, param.text(), at)),
        };
        self.conversation.add(speaker, responses);
        self.pieces.message(first, speaker, task, at)
    }

    /// A short string that is looked at decoded, and counted if it is long; `None` for null.
    fn word<T>(&mut self, param: Key, look: fn(&str) -> T) -> Result<Option<T>> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(|_| None),
            Kind::Text => {
                let text = self.cursor.string()?;
                let len = text.end.saturating_sub(text.start);
                if len > SHORT_BYTES {
                    self.pieces.text(Is::Aside, text)?;
                } else {
                    self.short(len.saturating_sub(USUAL_WORD));
                }
                if !text.escaped {
                    return Ok(Some(look(self.cursor.raw(text.start, text.end))));
                }
                self.scratch.clear();
                self.cursor.decode(text, &mut self.scratch);
                Ok(Some(look(&self.scratch)))
            }
            _ => self.wrong(param),
        }
    }

    /// Content: null, a text, or a list of parts. `nesting` counts the parts around it.
    pub(super) fn content(&mut self, param: Key, nesting: u32) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Text => return self.text(if nesting > 0 { Is::Part } else { Is::Content }),
            Kind::Array => self.cursor.enter(b'[')?,
            _ => return self.wrong(param),
        }
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            match self.cursor.kind()? {
                Kind::Text => self.text(Is::Part)?,
                Kind::Object => self.part(param, nesting)?,
                _ => return self.wrong(param),
            }
        }
        Ok(())
    }

    /// One content part. Its texts count whatever its type says, as the type may come after them.
    fn part(&mut self, param: Key, nesting: u32) -> Result<()> {
        let blocks = self.endpoint == Endpoint::Messages;
        self.cursor.enter(b'{')?;
        let mut keys = Keys::new(MAX_KEYS);
        let mut kind = None;
        let mut by_key = None;
        let mut texts: u32 = 0;
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            match name {
                Key::Type => kind = self.word(param, PartKind::of)?,
                Key::Thinking if blocks => self.text_or_null(param, Is::Reasoning)?,
                Key::Text | Key::Refusal | Key::Thinking => {
                    texts = texts.saturating_add(u32::from(self.cursor.kind()? == Kind::Text));
                    self.text_or_null(param, Is::Part)?;
                }
                Key::Content if blocks && nesting < MAX_PART_NESTING => {
                    self.content(param, nesting.saturating_add(1))?;
                }
                Key::Input | Key::Tool if blocks && self.cursor.kind()? == Kind::Object => {
                    self.raw_value(Is::Raw)?;
                }
                Key::Name | Key::Id | Key::ToolUseId => self.aside()?,
                Key::VideoUrl | Key::VideoEmbeds | Key::PromptEmbeds => {
                    by_key = Some(PartKind::Video);
                    self.cursor.skip()?;
                }
                Key::ImageUrl | Key::ImagePil | Key::ImageEmbeds => {
                    by_key = by_key.or(Some(PartKind::Image));
                    self.cursor.skip()?;
                }
                Key::AudioUrl | Key::InputAudio | Key::AudioEmbeds => {
                    by_key = by_key.or(Some(PartKind::Audio));
                    self.cursor.skip()?;
                }
                _ => self.cursor.skip()?,
            }
        }
        let text = (texts > 0).then_some(PartKind::Text);
        let kind = kind.or(by_key).or(text).unwrap_or(PartKind::Unknown);
        // Which of several texts the engine takes depends on the type; what is beside a text of
        // another type is not known to be taken.
        self.switches.unsure |= texts > 1 || (kind == PartKind::Text && by_key.is_some());
        let facts = &mut self.facts;
        let at = self.cursor.pos();
        let (number, is) = match kind {
            PartKind::Image => (&mut facts.images, Is::Image),
            PartKind::Audio => (&mut facts.audio, Is::Audio),
            PartKind::Video => (&mut facts.video, Is::Image),
            PartKind::Text => return Ok(()),
            PartKind::Unknown => {
                self.switches.unsure = true;
                return Ok(());
            }
        };
        *number = number.saturating_add(1);
        self.pieces.add(is, at, at, false)
    }

    fn tool_calls(&mut self, param: Key) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Array => self.cursor.enter(b'[')?,
            _ => return self.wrong(param),
        }
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            if self.cursor.kind()? != Kind::Object {
                return self.wrong(param);
            }
            self.tool_call(param)?;
        }
        Ok(())
    }

    fn tool_call(&mut self, param: Key) -> Result<()> {
        self.cursor.enter(b'{')?;
        let mut keys = Keys::new(MAX_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            if name != Key::Function || self.cursor.kind()? != Kind::Object {
                self.aside()?;
                continue;
            }
            self.cursor.enter(b'{')?;
            let at = self.cursor.pos();
            self.pieces.add(Is::Call, at, at, false)?;
            let mut keys = Keys::new(MAX_KEYS);
            while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
                match name {
                    Key::Arguments => self.arguments(param)?,
                    Key::Name => self.raw_value(Is::CallName)?,
                    _ => self.aside()?,
                }
            }
        }
        Ok(())
    }

    /// Arguments of a call: JSON in a string, or some clients' plain object.
    fn arguments(&mut self, param: Key) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Object => self.raw_value(Is::ArgumentsObject),
            _ => self.text_or_null(param, Is::Arguments),
        }
    }
}

/// What a content part is, as far as its price depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    /// Text, or blocks of which all texts are counted.
    Text,
    Image,
    Audio,
    /// A video, or a prompt as a tensor.
    Video,
    Unknown,
}

impl PartKind {
    fn of(kind: &str) -> Self {
        match kind {
            "text" | "input_text" | "output_text" | "summary_text" | "reasoning_text"
            | "refusal" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" => {
                Self::Text
            }
            "image_url" | "input_image" | "image" | "image_pil" | "image_embeds" => Self::Image,
            "input_audio" | "audio_url" | "audio_embeds" => Self::Audio,
            "video_url" | "input_video" | "video" | "video_embeds" | "prompt_embeds" => Self::Video,
            _ => Self::Unknown,
        }
    }
}
