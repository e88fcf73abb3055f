//! What a chat template adds to the texts of a request.
//!
//! The figures are those of DeepSeek-V4's template, counted on rendered prompts; other models'
//! templates differ by a few tokens a message, which no size class turns on.

use crate::request::RequestFacts;

/// The marker that begins a prompt.
const START: u64 = 1;
/// Markers of a run of user messages: one before, two that open the reply.
const USER_TURN: u64 = 3;
/// The marker that ends a message of the assistant.
const ASSISTANT: u64 = 1;
/// The instructions that come with any tools at all.
const TOOLS: u64 = 222;
/// Tokens of one image: 24 x 24 patches, the size of the common 336-pixel vision towers.
const IMAGE: u64 = 576;
/// Tokens of one audio part: 30 s at 25 tokens a second.
const AUDIO: u64 = 750;

/// Tokens beyond those of the texts: template, token ids, images, audio.
pub fn overhead(facts: &RequestFacts) -> u64 {
    let mut sum = facts.token_ids;
    let mut add = |count: u64, each: u64| sum = sum.saturating_add(count.saturating_mul(each));
    if facts.messages > 0 {
        add(1, START);
    }
    add(facts.user_turns, USER_TURN);
    add(facts.assistant_messages, ASSISTANT);
    if facts.tools > 0 {
        add(1, TOOLS);
    }
    add(facts.images, IMAGE);
    add(facts.audio, AUDIO);
    sum
}
