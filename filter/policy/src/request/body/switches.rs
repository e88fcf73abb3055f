//! What a request says to its chat template: the arguments, read as Python's template code does.

use super::{Reader, Result};
use crate::request::MAX_KEYS;
use crate::request::json::Kind;
use crate::request::keys::{Key, Keys};
use crate::request::pieces::Effort;

impl Reader<'_> {
    /// Arguments for the chat template.
    pub(super) fn template_arguments(&mut self) -> Result<()> {
        if self.cursor.null()? {
            return Ok(());
        }
        if self.cursor.kind()? != Kind::Object {
            return self.aside();
        }
        let start = self.cursor.pos();
        self.cursor.enter(b'{')?;
        let mut keys = Keys::new(MAX_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            match name {
                Key::Thinking => self.switches.thinking = self.truth()?,
                Key::EnableThinking => {
                    self.switches.enable_given = true;
                    self.switches.enable_thinking = self.truth()?;
                }
                Key::DropThinking => self.switches.drop_thinking = self.truth()?,
                Key::ReasoningEffort => self.switches.argued_effort = self.effort()?,
                // These take the place of what the engine itself gives the template.
                Key::Tools
                | Key::Messages
                | Key::Conversation
                | Key::Tokenize
                | Key::ChatTemplate => {
                    self.switches.unsure = true;
                    self.cursor.skip()?;
                }
                _ => self.cursor.skip()?,
            }
        }
        self.aside_from(start)
    }

    /// Takes any value for what Python holds it for, true or false. `null` and `"auto"` say nothing.
    pub(super) fn truth(&mut self) -> Result<Option<bool>> {
        Ok(Some(match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(|_| None),
            Kind::True | Kind::False => self.cursor.boolean()?,
            Kind::Number => {
                let number = self.cursor.number()?;
                let text = self.cursor.raw(number.start, number.end);
                text.parse::<f64>().is_ok_and(|number| number != 0.0)
            }
            Kind::Text => {
                let text = self.cursor.string_into(&mut self.scratch)?;
                let plain = self.cursor.raw(text.start, text.end);
                match if text.escaped { &self.scratch } else { plain } {
                    "auto" => return Ok(None),
                    text => !text.is_empty(),
                }
            }
            Kind::Object | Kind::Array => {
                let start = self.cursor.pos();
                self.cursor.skip()?;
                let raw = self.cursor.raw(start, self.cursor.pos());
                let inside = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
                !inside.trim_ascii().is_empty()
            }
        }))
    }

    /// How hard to think: a word; anything else says nothing.
    pub(super) fn effort(&mut self) -> Result<Option<Effort>> {
        if self.cursor.kind()? != Kind::Text {
            return self.cursor.skip().map(|()| None);
        }
        let text = self.cursor.string_into(&mut self.scratch)?;
        let plain = self.cursor.raw(text.start, text.end);
        let word = if text.escaped { &self.scratch } else { plain };
        Ok(Some(word).filter(|&word| word != "auto").map(Effort::of))
    }
}
