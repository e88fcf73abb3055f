//! Messages, their content parts and tool calls.

use super::{Reader, Result, SHORT_BYTES};
use crate::request::error::{Problem, ReadError};
use crate::request::json::{Kind, Text};
use crate::request::keys::{Key, Keys};
use crate::request::{Endpoint, MAX_KEYS, RequestFacts};

/// Tool results hold content parts of their own; deeper ones are no text to the engine.
const MAX_PART_NESTING: u32 = 1;

/// Who speaks, as far as a chat template's markers depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Speaker {
    User,
    Developer,
    Tool,
    Assistant,
    #[default]
    Other,
}

impl Speaker {
    fn of_role(role: &str) -> Self {
        match role {
            "user" => Self::User,
            "developer" => Self::Developer,
            "tool" => Self::Tool,
            "assistant" => Self::Assistant,
            _ => Self::Other,
        }
    }

    /// A responses item that is no message says by its type whose it is.
    fn of_item(kind: &str) -> Self {
        match kind {
            "reasoning" => Self::Assistant,
            _ if kind.ends_with("_call_output") => Self::Tool,
            _ if kind.ends_with("_call") => Self::Assistant,
            _ => Self::Other,
        }
    }

    fn asks(self) -> bool {
        matches!(self, Self::User | Self::Tool)
    }
}

/// Counts over the messages so far.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: u64,
    user_turns: u64,
    assistant_messages: u64,
    previous: Option<Speaker>,
    last_user: u64,
    /// The assistant's reasoning, with the number of its message.
    reasoning: Vec<(u64, Text)>,
    keep: bool,
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
        if matches!(speaker, Speaker::User | Speaker::Developer) {
            self.last_user = self.messages;
        }
        self.previous = Some(speaker);
    }

    fn add_reasoning(&mut self, text: Text) {
        let message = self.messages.saturating_add(1);
        self.reasoning.push((message, text));
    }

    /// The template may have been told to keep all reasoning.
    pub(super) fn keep_reasoning(&mut self) {
        self.keep = true;
    }

    /// The reasoning that templates keep: after the last user message, or all where there are tools.
    pub(super) fn kept_reasoning(&mut self, tools: bool) -> Vec<Text> {
        let last = self.last_user;
        let whole = tools || self.keep;
        let all = core::mem::take(&mut self.reasoning).into_iter();
        all.filter(|&(message, _)| whole || message > last).map(|(_, text)| text).collect()
    }

    pub(super) fn count_into(&self, facts: &mut RequestFacts) {
        facts.messages = self.messages;
        facts.user_turns = self.user_turns;
        facts.assistant_messages = self.assistant_messages;
    }
}

impl Reader<'_, '_> {
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
                return self.emit_string();
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
        let mut role = None;
        let mut item = Speaker::Other;
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            match name {
                Key::Role => role = self.word(param, Speaker::of_role)?,
                Key::Content => self.content(param, 0)?,
                Key::ToolCalls => self.tool_calls(param)?,
                Key::Tools => self.tools(param)?,
                Key::Reasoning | Key::ReasoningContent => self.reasoning(param)?,
                Key::Type if responses => {
                    item = self.word(param, Speaker::of_item)?.unwrap_or_default();
                }
                Key::Name | Key::ToolCallId => self.aside()?,
                Key::Id | Key::CallId if responses => self.aside()?,
                Key::Output if responses && self.cursor.kind()? == Kind::Object => {
                    self.emit_raw()?;
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
        Ok(())
    }

    /// A short string that is looked at decoded, and counted if it is long; `None` for null.
    fn word<T>(&mut self, param: Key, look: fn(&str) -> T) -> Result<Option<T>> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(|_| None),
            Kind::Text => {
                let text = self.cursor.string()?;
                if text.end.saturating_sub(text.start) > SHORT_BYTES {
                    self.emit(text);
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
            Kind::Text => return self.emit_string(),
            Kind::Array => self.cursor.enter(b'[')?,
            _ => return self.wrong(param),
        }
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            match self.cursor.kind()? {
                Kind::Text => self.emit_string()?,
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
        let mut media = None;
        let mut by_key = None;
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            match name {
                Key::Type => media = self.word(param, Media::of_type)?.flatten(),
                Key::Thinking if blocks => self.reasoning(param)?,
                Key::Text | Key::Refusal | Key::Thinking => self.text_or_null(param)?,
                Key::Content if blocks && nesting < MAX_PART_NESTING => {
                    self.content(param, nesting.saturating_add(1))?;
                }
                Key::Input | Key::Tool if blocks && self.cursor.kind()? == Kind::Object => {
                    self.emit_raw()?;
                }
                Key::Name | Key::Id | Key::ToolUseId => self.aside()?,
                Key::ImageUrl | Key::ImagePil | Key::ImageEmbeds => {
                    by_key = Some(Media::Image);
                    self.cursor.skip()?;
                }
                Key::AudioUrl | Key::InputAudio | Key::AudioEmbeds => {
                    by_key = by_key.or(Some(Media::Audio));
                    self.cursor.skip()?;
                }
                _ => self.cursor.skip()?,
            }
        }
        let facts = &mut self.facts;
        match media.or(by_key) {
            Some(Media::Image) => facts.images = facts.images.saturating_add(1),
            Some(Media::Audio) => facts.audio = facts.audio.saturating_add(1),
            None => {}
        }
        Ok(())
    }

    fn reasoning(&mut self, param: Key) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text => {
                let text = self.cursor.string()?;
                self.conversation.add_reasoning(text);
                Ok(())
            }
            _ => self.wrong(param),
        }
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
            let mut keys = Keys::new(MAX_KEYS);
            while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
                match name {
                    Key::Arguments => self.arguments(param)?,
                    _ => self.aside()?,
                }
            }
        }
        Ok(())
    }

    /// Arguments of a call: JSON in a string, or some clients' plain object.
    fn arguments(&mut self, param: Key) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Object => self.emit_raw(),
            _ => self.text_or_null(param),
        }
    }
}

/// Parts that are no text but cost the model tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Media {
    Image,
    Audio,
}

impl Media {
    fn of_type(kind: &str) -> Option<Self> {
        match kind {
            "image_url" | "input_image" | "image" | "image_pil" | "image_embeds" => {
                Some(Self::Image)
            }
            "input_audio" | "audio_url" | "audio_embeds" => Some(Self::Audio),
            _ => None,
        }
    }
}
