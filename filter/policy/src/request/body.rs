//! The reader of whole bodies: which fields each endpoint has and where its texts are.

mod conversation;
mod prompts;
mod switches;

use super::error::{Problem, ReadError};
use super::json::{Cursor, Kind};
use super::keys::{Key, Keys};
use super::lax::{self, Fault, Misfit};
use super::pieces::{Is, Pieces, Read, Switches};
use super::{Endpoint, MAX_KEYS, MAX_MODEL_BYTES, MAX_TOP_KEYS, RequestFacts};

use conversation::Conversation;

type Result<T> = core::result::Result<T, ReadError>;

/// Output tokens of a completion that names no cap: the engine's own default.
const COMPLETION_TOKENS: u64 = 16;

/// Names, ids and the like up to this length, in bytes as written, are not counted.
pub(crate) const SHORT_BYTES: usize = 128;

/// One pass over one body.
pub(super) struct Reader<'a> {
    endpoint: Endpoint,
    cursor: Cursor<'a>,
    body: &'a str,
    scratch: String,
    pieces: Pieces,
    switches: Switches,
    facts: RequestFacts,
    conversation: Conversation,
    caps: Caps,
    given: Given,
}

/// The caps by name, before it is known which one counts.
#[derive(Debug, Default)]
struct Caps {
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    best_of: Option<u64>,
}

/// Which of the fields that hold the prompt are there, null ones left out.
#[derive(Debug, Default)]
struct Given {
    messages: bool,
    prompt: bool,
    input: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(endpoint: Endpoint, text: &'a str) -> Self {
        Self {
            endpoint,
            cursor: Cursor::new(text),
            body: text,
            scratch: String::new(),
            pieces: Pieces::default(),
            switches: Switches::default(),
            facts: RequestFacts::default(),
            conversation: Conversation::default(),
            caps: Caps::default(),
            given: Given::default(),
        }
    }

    pub(super) fn read(mut self) -> Result<Read<'a>> {
        self.cursor.space();
        match self.cursor.byte() {
            None => return Err(ReadError::new(Problem::Empty, 0)),
            Some(b'{') => {}
            Some(_) => {
                self.cursor.kind()?;
                return Err(ReadError::new(Problem::NotObject, self.cursor.pos()));
            }
        }
        self.cursor.enter(b'{')?;
        let mut keys = Keys::new(MAX_TOP_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            self.field(name)?;
        }
        self.cursor.end()?;
        self.finish()
    }

    fn field(&mut self, name: Key) -> Result<()> {
        use Endpoint::{
            ChatCompletions as Chat, Completions, Embeddings, Invocations, Messages, Responses,
        };
        match (name, self.endpoint) {
            (Key::Model, _) => self.model(),
            (Key::Messages, Chat | Messages | Embeddings | Invocations) => self.messages(),
            (Key::Prompt, Completions | Invocations) => self.prompt(),
            (Key::PromptEmbeds, Completions | Invocations) => self.prompt_embeds(),
            (Key::Input, Embeddings | Invocations) => self.input(),
            (Key::Input | Key::PreviousInputMessages, Responses) => self.items(name),
            (Key::Instructions, Responses) => self.text_or_null(name, Is::Instructions),
            (Key::System, Messages) => self.content(name, 0),
            (Key::Tools, Chat | Responses | Messages | Invocations) => self.tools(name, Is::Tool),
            (Key::ChatTemplateKwargs, _) => self.template_arguments(),
            (Key::Documents, Chat | Invocations) => {
                if self.cursor.null()? {
                    Ok(())
                } else {
                    self.raw_value(Is::Aside)
                }
            }
            (Key::Suffix, Completions | Invocations) => {
                self.switches.suffix = self.cursor.kind()? == Kind::Text;
                self.text_or_null(name, Is::Suffix)
            }
            (Key::ReasoningEffort, Chat | Invocations) => {
                self.switches.effort = self.effort()?;
                Ok(())
            }
            (Key::AddSpecialTokens, Chat | Completions | Invocations) => {
                self.switches.special_tokens = self.truth()?;
                Ok(())
            }
            (Key::ChatTemplate, Chat | Invocations) => {
                if self.cursor.null()? {
                    return Ok(());
                }
                self.switches.unsure = true;
                self.aside()
            }
            // The one shortens the prompt, the other puts an earlier conversation before it.
            (Key::TruncatePromptTokens, _) | (Key::PreviousResponseId, Responses) => {
                self.switches.unsure |= self.cursor.kind()? != Kind::Null;
                self.cursor.skip()
            }
            (Key::KvTransferParams, Chat | Completions | Responses | Messages | Invocations) => {
                self.forwarded_ids()
            }
            (Key::Stream, Chat | Completions | Responses | Messages | Invocations) => {
                self.facts.stream = self.boolean(name)?.unwrap_or(false);
                Ok(())
            }
            (Key::StreamOptions, Chat | Completions | Invocations) => self.stream_options(),
            (Key::MaxTokens, Chat | Completions | Messages | Invocations) => {
                self.caps.max_tokens = self.whole(name)?;
                Ok(())
            }
            (Key::MaxCompletionTokens, Chat | Invocations) => {
                self.caps.max_completion_tokens = self.whole(name)?;
                Ok(())
            }
            (Key::MaxOutputTokens, Responses) => {
                self.caps.max_output_tokens = self.whole(name)?;
                Ok(())
            }
            (Key::N, Chat | Completions | Invocations) => {
                self.caps.n = self.positive(name)?;
                Ok(())
            }
            (Key::BestOf, Completions | Invocations) => {
                self.caps.best_of = self.positive(name)?;
                Ok(())
            }
            _ => self.cursor.skip(),
        }
    }

    fn finish(mut self) -> Result<Read<'a>> {
        let end = self.cursor.pos();
        let Given { messages, prompt, input } = self.given;
        let missing = match self.endpoint {
            Endpoint::ChatCompletions | Endpoint::Messages if !messages => Some("messages"),
            Endpoint::Completions if !prompt => Some("prompt"),
            Endpoint::Responses if !input => Some("input"),
            Endpoint::Embeddings if !messages && !input => Some("input"),
            Endpoint::Invocations if !messages && !prompt && !input => Some("messages"),
            Endpoint::Messages if self.caps.max_tokens.is_none() => Some("max_tokens"),
            _ => None,
        };
        if let Some(param) = missing {
            return Err(ReadError::of(Problem::Missing, param, end));
        }
        let given = [messages, prompt, input];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(ReadError::new(Problem::Ambiguous, end));
        }
        // `/invocations` is the endpoint its body has the shape of.
        let caps = &self.caps;
        let (cap, param) = match self.endpoint {
            Endpoint::Responses => (caps.max_output_tokens, Key::MaxOutputTokens),
            Endpoint::Embeddings => (Some(0), Key::Other),
            _ if prompt => (caps.max_tokens.or(Some(COMPLETION_TOKENS)), Key::Other),
            _ if input => (Some(0), Key::Other),
            _ if caps.max_completion_tokens.is_some() => {
                (caps.max_completion_tokens, Key::MaxCompletionTokens)
            }
            _ => (caps.max_tokens, Key::MaxTokens),
        };
        if cap == Some(0) && param != Key::Other {
            return Err(ReadError::of(Problem::Range, param.text(), end));
        }
        let facts = &mut self.facts;
        facts.max_output_tokens = cap;
        facts.choices = match (messages, prompt) {
            (true, _) => caps.n.unwrap_or(1),
            (_, true) => caps.n.unwrap_or(1).max(caps.best_of.unwrap_or(1)),
            _ => 1,
        };
        facts.prompts = facts.prompts.max(1);
        self.conversation.count_into(facts);
        Ok(Read {
            facts: self.facts,
            endpoint: self.endpoint,
            body: self.body,
            pieces: self.pieces,
            switches: self.switches,
        })
    }

    /// Takes a string and notes it.
    fn text(&mut self, is: Is) -> Result<()> {
        let text = self.cursor.string()?;
        self.pieces.text(is, text)
    }

    /// Takes any value and notes its JSON text as it stands.
    fn raw_value(&mut self, is: Is) -> Result<()> {
        let start = self.cursor.pos();
        self.cursor.skip()?;
        self.pieces.add(is, start, self.cursor.pos(), false)
    }

    /// Takes any value; one that is long is noted as it stands.
    ///
    /// For values that only some chat templates render, and that are a few tokens in an honest request:
    /// leaving short ones out keeps the count exact, counting long ones leaves nowhere to hide a prompt.
    fn aside(&mut self) -> Result<()> {
        let start = self.cursor.pos();
        self.cursor.skip()?;
        self.aside_from(start)
    }

    fn aside_from(&mut self, start: usize) -> Result<()> {
        let end = self.cursor.pos();
        let len = end.saturating_sub(start);
        if len > SHORT_BYTES {
            return self.pieces.add(Is::Aside, start, end, false);
        }
        self.short(len);
        Ok(())
    }

    /// Notes that something short has been left out.
    fn short(&mut self, len: usize) {
        let sum = &mut self.switches.short_bytes;
        *sum = sum.saturating_add(len);
    }

    fn wrong<T>(&self, param: Key) -> Result<T> {
        Err(ReadError::of(Problem::Type, param.text(), self.cursor.pos()))
    }

    fn text_or_null(&mut self, param: Key, is: Is) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text => self.text(is),
            _ => self.wrong(param),
        }
    }

    fn model(&mut self) -> Result<()> {
        let start = self.cursor.pos();
        match self.cursor.kind()? {
            Kind::Null => drop(self.cursor.null()?),
            Kind::Text => {
                let text = self.cursor.string()?;
                let mut name = String::new();
                // An escape is at most six times as long as what it stands for.
                if text.end.saturating_sub(text.start) <= MAX_MODEL_BYTES.saturating_mul(6) {
                    self.cursor.decode(text, &mut name);
                } else {
                    return Err(ReadError::of(Problem::TooLong, "model", start));
                }
                if name.len() > MAX_MODEL_BYTES {
                    return Err(ReadError::of(Problem::TooLong, "model", start));
                }
                self.facts.model = Some(name).filter(|name| !name.is_empty());
            }
            _ => return self.wrong(Key::Model),
        }
        self.facts.model_span = Some(start..self.cursor.pos());
        Ok(())
    }

    fn boolean(&mut self, param: Key) -> Result<Option<bool>> {
        let at = self.cursor.pos();
        lax::take_boolean(&mut self.cursor, &mut self.scratch).map_err(|f| named(f, param, at))
    }

    fn whole(&mut self, param: Key) -> Result<Option<u64>> {
        let at = self.cursor.pos();
        let value = lax::take_whole(&mut self.cursor, &mut self.scratch)
            .map_err(|fault| named(fault, param, at))?;
        value
            .map(|value| u32::try_from(value).map(u64::from))
            .transpose()
            .map_err(|_| ReadError::of(Problem::Range, param.text(), at))
    }

    fn positive(&mut self, param: Key) -> Result<Option<u64>> {
        let at = self.cursor.pos();
        match self.whole(param)? {
            Some(0) => Err(ReadError::of(Problem::Range, param.text(), at)),
            value => Ok(value),
        }
    }

    fn stream_options(&mut self) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => return self.cursor.null().map(drop),
            Kind::Object => self.cursor.enter(b'{')?,
            _ => return self.wrong(Key::StreamOptions),
        }
        let mut keys = Keys::new(MAX_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            if name == Key::IncludeUsage {
                self.facts.include_usage = self.boolean(Key::StreamOptions)?.unwrap_or(false);
            } else {
                self.cursor.skip()?;
            }
        }
        Ok(())
    }

    /// A list of tools, each noted as JSON text.
    fn tools(&mut self, param: Key, is: Is) -> Result<()> {
        if self.cursor.null()? {
            return Ok(());
        }
        if self.cursor.kind()? != Kind::Array {
            return self.wrong(param);
        }
        self.cursor.enter(b'[')?;
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            self.facts.tools = self.facts.tools.saturating_add(1);
            self.raw_value(is)?;
        }
        Ok(())
    }

    fn one_prompt(&mut self) {
        self.facts.prompts = self.facts.prompts.saturating_add(1);
    }
}

fn named(fault: Fault, param: Key, at: usize) -> ReadError {
    match fault {
        Fault::Json(error) => error,
        Fault::Misfit(Misfit::Type) => ReadError::of(Problem::Type, param.text(), at),
        Fault::Misfit(Misfit::Range) => ReadError::of(Problem::Range, param.text(), at),
    }
}
