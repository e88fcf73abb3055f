//! Prompts outside of conversations: texts, token ids, tensors.

use super::{Reader, Result, lax, named};
use crate::request::MAX_KEYS;
use crate::request::error::{Problem, ReadError};
use crate::request::json::Kind;
use crate::request::keys::{Key, Keys};
use crate::request::pieces::Is;

impl Reader<'_> {
    /// A completion's prompt: a text, a list of texts, token ids, or a list of lists of them.
    pub(super) fn prompt(&mut self) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text | Kind::Array => {
                self.given.prompt = true;
                self.prompts(Key::Prompt)
            }
            _ => self.wrong(Key::Prompt),
        }
    }

    /// What embeddings take: a prompt as above, or messages.
    pub(super) fn input(&mut self) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text | Kind::Array => {
                self.given.input = true;
                self.prompts(Key::Input)
            }
            _ => self.wrong(Key::Input),
        }
    }

    fn prompts(&mut self, param: Key) -> Result<()> {
        if self.cursor.kind()? == Kind::Text {
            self.one_prompt();
            return self.text(Is::Prompt);
        }
        self.cursor.enter(b'[')?;
        if self.cursor.byte() == Some(b']') {
            return Err(ReadError::of(Problem::EmptyList, param.text(), self.cursor.pos()));
        }
        let kind = self.cursor.kind()?;
        // A flat list of ids or of messages is one prompt; texts and lists are one each.
        if matches!(kind, Kind::Number | Kind::Object) {
            self.one_prompt();
        }
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            if self.cursor.kind()? != kind {
                return self.wrong(param);
            }
            match kind {
                Kind::Text => {
                    self.one_prompt();
                    self.text(Is::Prompt)?;
                }
                Kind::Number => self.token_id(param)?,
                Kind::Object if param == Key::Input => self.message(param)?,
                Kind::Array => {
                    self.one_prompt();
                    self.inner_prompt(param)?;
                }
                _ => return self.wrong(param),
            }
        }
        Ok(())
    }

    /// One of a list of prompts: token ids, or for embeddings also messages.
    pub(super) fn inner_prompt(&mut self, param: Key) -> Result<()> {
        self.conversation.begin();
        self.cursor.enter(b'[')?;
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            match self.cursor.kind()? {
                Kind::Number if param != Key::Messages => self.token_id(param)?,
                Kind::Object if param != Key::Prompt => self.message(param)?,
                _ => return self.wrong(param),
            }
        }
        Ok(())
    }

    fn token_id(&mut self, param: Key) -> Result<()> {
        let at = self.cursor.pos();
        let number = self.cursor.number()?;
        let text = self.cursor.raw(number.start, number.end);
        // The usual id has few digits and needs no parsing.
        if !number.integer || text.len() > 9 || text.starts_with('-') {
            let value = lax::whole(text, number.integer)
                .map_err(|misfit| named(misfit.into(), param, at))?;
            if u32::try_from(value).is_err() {
                return Err(ReadError::of(Problem::Range, param.text(), at));
            }
        }
        self.facts.token_ids = self.facts.token_ids.saturating_add(1);
        Ok(())
    }

    /// Prompts given as tensors: each counts as a prompt, its tokens are not known.
    pub(super) fn prompt_embeds(&mut self) -> Result<()> {
        let param = Key::PromptEmbeds;
        self.switches.unsure |= self.cursor.kind()? != Kind::Null;
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Text => {
                self.cursor.string()?;
                self.one_prompt();
                self.given.prompt = true;
                return Ok(());
            }
            Kind::Array => self.cursor.enter(b'[')?,
            _ => return self.wrong(param),
        }
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            if self.cursor.kind()? != Kind::Text {
                return self.wrong(param);
            }
            self.cursor.string()?;
            self.one_prompt();
            self.given.prompt = true;
        }
        Ok(())
    }

    /// Token ids that a prefill stage hands on: where given, the engine takes them for the prompt, so
    /// they count beside the texts.
    pub(super) fn forwarded_ids(&mut self) -> Result<()> {
        let param = Key::KvTransferParams;
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Object => self.cursor.enter(b'{')?,
            _ => return self.wrong(param),
        }
        let mut keys = Keys::new(MAX_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            if name != Key::PromptTokenIds || self.cursor.kind()? == Kind::Null {
                self.cursor.skip()?;
                continue;
            }
            if self.cursor.kind()? != Kind::Array {
                return self.wrong(param);
            }
            self.cursor.enter(b'[')?;
            let mut first = true;
            while self.cursor.element(first)? {
                first = false;
                if self.cursor.kind()? != Kind::Number {
                    return self.wrong(param);
                }
                self.switches.unsure = true;
                self.token_id(param)?;
            }
        }
        Ok(())
    }
}
