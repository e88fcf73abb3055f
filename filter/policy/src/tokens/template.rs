//! What a chat template makes of a request, in tokens.
//!
//! A template puts markers between the texts of a conversation, and instructions around its tools.
//! For most models a few tokens a message are near enough: the texts are counted one by one, as
//! they stand, and the rest is a sum ([`Rendering::Plain`]). For DeepSeek-V4 the prompt is put
//! together as the engine does it ([`Rendering::DeepSeekV4`]), so that with its vocabulary the
//! count is the engine's own. Every figure is a field of [`Template`], and a policy can change it:
//! templates come in versions.

mod deepseek_v4;
mod plain;
mod python;
mod run;
#[cfg(test)]
mod tests;

use super::TokenCounter;
use crate::request::pieces::Speaker;
use crate::request::{Effort, Endpoint, Read};

/// How the texts of a conversation are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// Each text by itself. Right but for a few tokens where a template joins texts.
    Plain,
    /// As the engine's own encoder for DeepSeek-V4 does it.
    DeepSeekV4,
}

/// One template: how it renders, and what its fixed parts cost. All figures are tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// How texts are put together.
    pub rendering: Rendering,
    /// What begins a conversation.
    pub start: u64,
    /// What the tokenizer puts before a prompt that is no conversation, unless a request turns it off.
    pub prompt_start: u64,
    /// The marker before a run of user and tool messages.
    pub user: u64,
    /// What opens a reply, also the one that is asked for.
    pub reply: u64,
    /// The marker that ends a message of the assistant.
    pub assistant_end: u64,
    /// The instructions that come with any tools at all.
    pub tools: u64,
    /// The words that ask for a high reasoning effort.
    pub high_effort: u64,
    /// The words that ask for the highest reasoning effort.
    pub max_effort: u64,
    /// Whether a model thinks where a request does not say.
    pub thinking: bool,
    /// The reasoning effort where a request does not say; `None` as the rendering has it.
    pub effort: Option<Effort>,
    /// Each image.
    pub image: u64,
    /// Each sound clip.
    pub audio: u64,
}

/// Tokens of one image: 24 x 24 patches, the size of the common 336-pixel vision towers.
pub const IMAGE_TOKENS: u64 = 576;

/// Tokens of one sound clip: 30 s at 25 tokens a second.
pub const AUDIO_TOKENS: u64 = 750;

/// Images that a video costs as much as: frames of it, few or small.
pub const VIDEO_IMAGES: u64 = 8;

/// How many tokens a request's prompt has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tokens of its texts, as the counter has them.
    pub text: u64,
    /// Tokens of everything else: markers, instructions, token ids, images, sound.
    pub fixed: u64,
    /// Whether the engine will count the same.
    pub exact: bool,
    /// Whether a difference to the engine's count teaches nothing of the counter: the prompt holds
    /// what is not text, or is not followed, or is rendered by some templates only.
    pub unsure: bool,
}

impl Count {
    /// All of the prompt.
    pub const fn tokens(self) -> u64 {
        self.text.saturating_add(self.fixed)
    }
}

impl Template {
    /// For models nothing is known of: DeepSeek's markers, which are as many as most models have.
    pub const GENERIC: Self = Self {
        rendering: Rendering::Plain,
        start: 1,
        prompt_start: 0,
        user: 1,
        reply: 2,
        assistant_end: 1,
        tools: 222,
        high_effort: 0,
        max_effort: 0,
        thinking: true,
        effort: None,
        image: IMAGE_TOKENS,
        audio: AUDIO_TOKENS,
    };

    /// DeepSeek-V4's, as vLLM 0.32 renders it: it thinks with high effort where nothing is said.
    pub const DEEPSEEK_V4: Self = Self {
        rendering: Rendering::DeepSeekV4,
        tools: 221,
        high_effort: 79,
        max_effort: 92,
        ..Self::GENERIC
    };

    /// The template that goes with a vocabulary, or the generic one.
    pub fn of_tokenizer(name: &str) -> Self {
        match name {
            "deepseek-v4" => Self::DEEPSEEK_V4,
            _ => Self::GENERIC,
        }
    }

    /// Counts the prompt of a request. The counter is a fresh one.
    pub fn count(&self, read: &Read<'_>, counter: &mut dyn TokenCounter) -> Count {
        let rendered = match self.rendering {
            Rendering::Plain => plain::render(self, read, counter),
            Rendering::DeepSeekV4 => deepseek_v4::render(self, read, counter),
        };
        let facts = &read.facts;
        let ids = facts.token_ids;
        let media = facts.images.saturating_mul(self.image);
        let media = media.saturating_add(facts.audio.saturating_mul(self.audio));
        let video = facts.video.saturating_mul(VIDEO_IMAGES).saturating_mul(self.image);
        let media = media.saturating_add(video);
        let fixed = rendered.tokens.saturating_add(ids).saturating_add(media);
        let silent = counter.tokens() == 0;
        let exact = rendered.exact
            && (counter.is_exact() || silent)
            && !read.switches.unsure
            && facts.images == 0
            && facts.audio == 0
            && facts.video == 0;
        let unsure = rendered.unsure || read.switches.unsure || ids > 0 || facts.video > 0;
        Count { text: counter.tokens(), fixed, exact, unsure }
    }

    /// Whether the model is to think, and how hard it is told to.
    fn thought(&self, read: &Read<'_>) -> (bool, Effort) {
        let switches = &read.switches;
        // A request that names an effort switches thinking on by it, unless it says more.
        let by_effort = switches.effort.map(|effort| effort != Effort::None);
        let by_effort = by_effort.filter(|_| !switches.enable_given);
        let enable = switches.enable_thinking.or(by_effort);
        let thinking = match (switches.thinking, enable) {
            (None, None) => self.thinking,
            (one, other) => one == Some(true) || other == Some(true),
        };
        match switches.effort.or(switches.argued_effort).or(self.effort) {
            Some(Effort::None) => (false, Effort::None),
            Some(effort) => (thinking, effort),
            None => (thinking, Effort::High),
        }
    }
}

/// What a rendering adds to the texts it has given to the counter.
#[derive(Clone, Copy, Debug)]
struct Rendered {
    /// Markers and instructions.
    tokens: u64,
    /// Whether texts and markers are those of the engine.
    exact: bool,
    /// Whether something is counted that the engine may leave out, or not as the engine has it.
    unsure: bool,
}

/// Whether a request is a chat as the engine's chat template takes it.
fn is_chat(read: &Read<'_>) -> bool {
    matches!(read.endpoint, Endpoint::ChatCompletions | Endpoint::Invocations)
}

/// Whether a request holds prompts, not a conversation.
fn has_prompts(read: &Read<'_>) -> bool {
    matches!(read.endpoint, Endpoint::Completions | Endpoint::Invocations)
        && read.facts.messages == 0
}

/// Whether this message is one of those after which all reasoning is kept.
fn asks_anew(speaker: Speaker) -> bool {
    matches!(speaker, Speaker::User | Speaker::Developer)
}
