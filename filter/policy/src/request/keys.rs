//! The keys the filter knows, and the check that none is given twice.
//!
//! The engine lets the last of two equal keys win; another reader may let the first. So a repeated
//! key is refused in every object that is read here, known key or not, escaped or not.

use core::hash::Hasher;
use std::hash::DefaultHasher;

use super::error::{Problem, ReadError};
use super::json::{Cursor, Text};

/// Declares the known keys once, for both directions.
macro_rules! names {
    ($($variant:ident = $text:literal,)*) => {
        /// A key the filter acts on, or `Other`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Key { $($variant,)* Other }

        impl Key {
            fn of(key: &str) -> Self {
                match key { $($text => Self::$variant,)* _ => Self::Other }
            }

            /// The key's text; empty for `Other`.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* Self::Other => "" }
            }
        }
    };
}

names! {
    AddSpecialTokens = "add_special_tokens",
    Arguments = "arguments",
    AudioEmbeds = "audio_embeds",
    AudioUrl = "audio_url",
    BestOf = "best_of",
    CallId = "call_id",
    ChatTemplate = "chat_template",
    ChatTemplateKwargs = "chat_template_kwargs",
    Content = "content",
    Conversation = "conversation",
    DeferLoading = "defer_loading",
    Description = "description",
    Documents = "documents",
    DropThinking = "drop_thinking",
    EnableThinking = "enable_thinking",
    Function = "function",
    Id = "id",
    ImageEmbeds = "image_embeds",
    ImagePil = "image_pil",
    ImageUrl = "image_url",
    IncludeUsage = "include_usage",
    Input = "input",
    InputAudio = "input_audio",
    Instructions = "instructions",
    KvTransferParams = "kv_transfer_params",
    MaxCompletionTokens = "max_completion_tokens",
    MaxOutputTokens = "max_output_tokens",
    MaxTokens = "max_tokens",
    Messages = "messages",
    Model = "model",
    N = "n",
    Name = "name",
    Output = "output",
    Parameters = "parameters",
    PreviousInputMessages = "previous_input_messages",
    PreviousResponseId = "previous_response_id",
    Prompt = "prompt",
    PromptEmbeds = "prompt_embeds",
    PromptTokenIds = "prompt_token_ids",
    Reasoning = "reasoning",
    ReasoningContent = "reasoning_content",
    ReasoningEffort = "reasoning_effort",
    Refusal = "refusal",
    Role = "role",
    Stream = "stream",
    StreamOptions = "stream_options",
    Strict = "strict",
    Suffix = "suffix",
    Summary = "summary",
    System = "system",
    Task = "task",
    Text = "text",
    Thinking = "thinking",
    Tokenize = "tokenize",
    Tool = "tool",
    ToolCallId = "tool_call_id",
    ToolCalls = "tool_calls",
    ToolUseId = "tool_use_id",
    Tools = "tools",
    TruncatePromptTokens = "truncate_prompt_tokens",
    Type = "type",
    VideoEmbeds = "video_embeds",
    VideoUrl = "video_url",
}

/// Longer keys, in bytes, are hashed bit by bit, so that none needs memory.
const LONG_KEY: usize = 1024;

/// Most objects have few keys: these stay on the stack.
const INLINE: usize = 24;

/// The keys of one object so far, as 64-bit hashes.
///
/// Equal keys have equal hashes, so no repetition is missed; a made-up collision costs only its
/// sender a 400.
#[derive(Debug)]
pub(crate) struct Keys {
    limit: usize,
    count: usize,
    /// One bit by hash: where it is clear, the key is new and no list is searched.
    filter: u64,
    inline: [u64; INLINE],
    more: Vec<u64>,
}

impl Keys {
    /// `limit` is the number of keys an object may have.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, count: 0, filter: 0, inline: [0; INLINE], more: Vec::new() }
    }

    /// Steps to the next member of the object entered: its key, with the cursor on its value.
    /// `None` at the end of the object.
    pub(crate) fn next(
        &mut self,
        cursor: &mut Cursor<'_>,
        scratch: &mut String,
    ) -> Result<Option<Key>, ReadError> {
        Ok(self.next_text(cursor, scratch)?.map(|(key, _)| key))
    }

    /// The same with the key's text.
    pub(crate) fn next_text(
        &mut self,
        cursor: &mut Cursor<'_>,
        scratch: &mut String,
    ) -> Result<Option<(Key, Text)>, ReadError> {
        cursor.space();
        if cursor.take(b'}') {
            cursor.leave();
            return Ok(None);
        }
        if self.count > 0 {
            cursor.expect(b',')?;
            cursor.space();
        }
        let at = cursor.pos();
        let text = cursor.key()?;
        let mut len = text.end.saturating_sub(text.start);
        if text.escaped && len > LONG_KEY {
            len = 0;
            cursor.decode_each(text, &mut |bit| len = len.saturating_add(bit.len()));
        }
        let (name, hash) = if len > LONG_KEY {
            let mut hasher = DefaultHasher::new();
            cursor.decode_each(text, &mut |bit| hasher.write(bit.as_bytes()));
            (Key::Other, hasher.finish())
        } else {
            let key = if text.escaped {
                scratch.clear();
                cursor.decode(text, scratch);
                scratch.as_str()
            } else {
                cursor.raw(text.start, text.end)
            };
            (Key::of(key), hash(key.as_bytes()))
        };
        if self.count >= self.limit {
            return Err(ReadError::new(Problem::Keys, at));
        }
        if !self.insert(hash) {
            return Err(match name {
                Key::Other => ReadError::new(Problem::DuplicateKey, at),
                known => ReadError::of(Problem::DuplicateKey, known.text(), at),
            });
        }
        Ok(Some((name, text)))
    }

    /// False if the hash was there already.
    fn insert(&mut self, hash: u64) -> bool {
        let bit = 1_u64 << (hash >> 58);
        if self.filter & bit != 0 {
            let seen = self.inline.get(..self.count.min(INLINE)).unwrap_or_default();
            if seen.contains(&hash) || self.more.contains(&hash) {
                return false;
            }
        }
        self.filter |= bit;
        match self.inline.get_mut(self.count) {
            Some(slot) => *slot = hash,
            None => self.more.push(hash),
        }
        self.count = self.count.saturating_add(1);
        true
    }
}

/// A quick multiply-and-rotate hash, eight bytes at a time.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, tail) = bytes.as_chunks::<8>();
    let mut state = bytes.len() as u64;
    for &word in words {
        state = mix(state, u64::from_le_bytes(word));
    }
    let mut last: u64 = 0;
    for &byte in tail {
        last = (last << 8) | u64::from(byte);
    }
    mix(mix(state, last), FACTOR)
}
