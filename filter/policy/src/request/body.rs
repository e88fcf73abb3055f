//! The reader of whole bodies: which fields each endpoint has and where its texts are.

mod conversation;

use super::error::{Problem, ReadError};
use super::json::{Cursor, Kind, Text};
use super::keys::{Keys, Name};
use super::lax::{self, Fault, Misfit};
use super::{Endpoint, MAX_KEYS, MAX_MODEL_BYTES, MAX_TOP_KEYS, RequestFacts};
use crate::tokens::TokenCounter;

use conversation::Conversation;

type Result<T> = core::result::Result<T, ReadError>;

/// Output tokens of a completion that names no cap: the engine's own default.
const COMPLETION_TOKENS: u64 = 16;

/// One pass over one body.
pub(super) struct Reader<'a, 'c> {
    endpoint: Endpoint,
    cursor: Cursor<'a>,
    scratch: String,
    counter: &'c mut dyn TokenCounter,
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

impl<'a, 'c> Reader<'a, 'c> {
    pub(super) fn new(
        endpoint: Endpoint,
        text: &'a str,
        counter: &'c mut dyn TokenCounter,
    ) -> Self {
        Self {
            endpoint,
            cursor: Cursor::new(text),
            scratch: String::new(),
            counter,
            facts: RequestFacts::default(),
            conversation: Conversation::default(),
            caps: Caps::default(),
            given: Given::default(),
        }
    }

    pub(super) fn read(mut self) -> Result<RequestFacts> {
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
        self.cursor.space();
        if self.cursor.byte().is_some() {
            return Err(ReadError::new(Problem::Trailing, self.cursor.pos()));
        }
        self.finish()
    }

    fn field(&mut self, name: Name) -> Result<()> {
        use Endpoint::{
            ChatCompletions as Chat, Completions, Embeddings, Invocations, Messages, Responses,
        };
        match (name, self.endpoint) {
            (Name::Model, _) => self.model(),
            (Name::Messages, Chat | Messages | Embeddings | Invocations) => self.messages(),
            (Name::Prompt, Completions | Invocations) => self.prompt(),
            (Name::PromptEmbeds, Completions | Invocations) => self.prompt_embeds(),
            (Name::Input, Embeddings | Invocations) => self.input(),
            (Name::Input | Name::PreviousInputMessages, Responses) => self.items(name),
            (Name::Instructions, Responses) => self.text_or_null(name),
            (Name::System, Messages) => self.content(name, 0),
            (Name::Tools, Chat | Responses | Messages | Invocations) => self.tools(name),
            (Name::Stream, Chat | Completions | Responses | Messages | Invocations) => {
                self.facts.stream = self.boolean(name)?.unwrap_or(false);
                Ok(())
            }
            (Name::StreamOptions, Chat | Completions | Invocations) => self.stream_options(),
            (Name::MaxTokens, Chat | Completions | Messages | Invocations) => {
                self.caps.max_tokens = self.whole(name)?;
                Ok(())
            }
            (Name::MaxCompletionTokens, Chat | Invocations) => {
                self.caps.max_completion_tokens = self.whole(name)?;
                Ok(())
            }
            (Name::MaxOutputTokens, Responses) => {
                self.caps.max_output_tokens = self.whole(name)?;
                Ok(())
            }
            (Name::N, Chat | Completions | Invocations) => {
                self.caps.n = self.positive(name)?;
                Ok(())
            }
            (Name::BestOf, Completions | Invocations) => {
                self.caps.best_of = self.positive(name)?;
                Ok(())
            }
            _ => self.cursor.skip(),
        }
    }

    fn finish(mut self) -> Result<RequestFacts> {
        let end = self.cursor.pos();
        let Given {
            messages,
            prompt,
            input,
        } = self.given;
        let missing = match self.endpoint {
            Endpoint::ChatCompletions | Endpoint::Messages if !messages => Some("messages"),
            Endpoint::Completions if !prompt => Some("prompt"),
            Endpoint::Responses if !input => Some("input"),
            Endpoint::Embeddings if !messages && !input => Some("input"),
            Endpoint::Invocations if !messages && !prompt && !input => Some("messages"),
            _ => None,
        };
        if let Some(param) = missing {
            return Err(ReadError::of(Problem::Missing, param, end));
        }
        let given = [messages, prompt, input];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(ReadError::new(Problem::Ambiguous, end));
        }
        let kept = self.conversation.kept_reasoning(self.facts.tools > 0);
        for text in kept {
            self.emit(text);
        }
        // `/invocations` is the endpoint its body has the shape of.
        let caps = &self.caps;
        let (cap, param) = match self.endpoint {
            Endpoint::Responses => (caps.max_output_tokens, Name::MaxOutputTokens),
            Endpoint::Embeddings => (Some(0), Name::Other),
            _ if prompt => (caps.max_tokens.or(Some(COMPLETION_TOKENS)), Name::Other),
            _ if input => (Some(0), Name::Other),
            _ if caps.max_completion_tokens.is_some() => {
                (caps.max_completion_tokens, Name::MaxCompletionTokens)
            }
            _ => (caps.max_tokens, Name::MaxTokens),
        };
        if cap == Some(0) && param != Name::Other {
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
        Ok(self.facts)
    }

    /// Hands a text to the counter, decoded if it holds escapes.
    fn emit(&mut self, text: Text) {
        if text.escaped {
            self.scratch.clear();
            self.cursor.decode(text, &mut self.scratch);
            self.counter.text(&self.scratch);
        } else {
            self.counter.text(self.cursor.raw(text.start, text.end));
        }
    }

    /// Takes a string and hands it over.
    fn emit_string(&mut self) -> Result<()> {
        let text = self.cursor.string()?;
        self.emit(text);
        Ok(())
    }

    /// Takes any value and hands over its JSON text as it stands.
    fn emit_raw(&mut self) -> Result<()> {
        let start = self.cursor.pos();
        self.cursor.skip()?;
        self.counter.text(self.cursor.raw(start, self.cursor.pos()));
        Ok(())
    }

    fn wrong<T>(&self, param: Name) -> Result<T> {
        Err(ReadError::of(
            Problem::Type,
            param.text(),
            self.cursor.pos(),
        ))
    }

    fn text_or_null(&mut self, param: Name) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text => self.emit_string(),
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
            _ => return self.wrong(Name::Model),
        }
        self.facts.model_span = Some(start..self.cursor.pos());
        Ok(())
    }

    fn boolean(&mut self, param: Name) -> Result<Option<bool>> {
        let at = self.cursor.pos();
        lax::take_boolean(&mut self.cursor, &mut self.scratch).map_err(|f| named(f, param, at))
    }

    fn whole(&mut self, param: Name) -> Result<Option<u64>> {
        let at = self.cursor.pos();
        let value = lax::take_whole(&mut self.cursor, &mut self.scratch)
            .map_err(|fault| named(fault, param, at))?;
        value
            .map(|value| u32::try_from(value).map(u64::from))
            .transpose()
            .map_err(|_| ReadError::of(Problem::Range, param.text(), at))
    }

    fn positive(&mut self, param: Name) -> Result<Option<u64>> {
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
            _ => return self.wrong(Name::StreamOptions),
        }
        let mut keys = Keys::new(MAX_KEYS);
        while let Some(name) = keys.next(&mut self.cursor, &mut self.scratch)? {
            if name == Name::IncludeUsage {
                self.facts.include_usage = self.boolean(Name::StreamOptions)?.unwrap_or(false);
            } else {
                self.cursor.skip()?;
            }
        }
        Ok(())
    }

    /// A list of tools, each handed over as JSON text.
    fn tools(&mut self, param: Name) -> Result<()> {
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
            self.emit_raw()?;
        }
        Ok(())
    }

    fn one_prompt(&mut self) {
        self.facts.prompts = self.facts.prompts.saturating_add(1);
    }

    /// A completion's prompt: a text, a list of texts, token ids, or a list of lists of them.
    fn prompt(&mut self) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text | Kind::Array => {
                self.given.prompt = true;
                self.prompts(Name::Prompt)
            }
            _ => self.wrong(Name::Prompt),
        }
    }

    /// What embeddings take: a prompt as above, or messages.
    fn input(&mut self) -> Result<()> {
        match self.cursor.kind()? {
            Kind::Null => self.cursor.null().map(drop),
            Kind::Text | Kind::Array => {
                self.given.input = true;
                self.prompts(Name::Input)
            }
            _ => self.wrong(Name::Input),
        }
    }

    fn prompts(&mut self, param: Name) -> Result<()> {
        if self.cursor.kind()? == Kind::Text {
            self.one_prompt();
            return self.emit_string();
        }
        self.cursor.enter(b'[')?;
        if self.cursor.byte() == Some(b']') {
            return Err(ReadError::of(
                Problem::EmptyList,
                param.text(),
                self.cursor.pos(),
            ));
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
                    self.emit_string()?;
                }
                Kind::Number => self.token_id(param)?,
                Kind::Object if param == Name::Input => self.message(param)?,
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
    fn inner_prompt(&mut self, param: Name) -> Result<()> {
        self.conversation.begin();
        self.cursor.enter(b'[')?;
        let mut first = true;
        while self.cursor.element(first)? {
            first = false;
            match self.cursor.kind()? {
                Kind::Number if param != Name::Messages => self.token_id(param)?,
                Kind::Object if param != Name::Prompt => self.message(param)?,
                _ => return self.wrong(param),
            }
        }
        Ok(())
    }

    fn token_id(&mut self, param: Name) -> Result<()> {
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
    fn prompt_embeds(&mut self) -> Result<()> {
        let param = Name::PromptEmbeds;
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
}

fn named(fault: Fault, param: Name, at: usize) -> ReadError {
    match fault {
        Fault::Json(error) => error,
        Fault::Misfit(Misfit::Type) => ReadError::of(Problem::Type, param.text(), at),
        Fault::Misfit(Misfit::Range) => ReadError::of(Problem::Range, param.text(), at),
    }
}
