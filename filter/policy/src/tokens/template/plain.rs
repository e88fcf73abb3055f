//! Texts one by one, markers as a sum.
//!
//! What is counted errs on the high side: long names, ids and template arguments, which only some
//! templates render, are counted as they stand.

use super::run::Run;
use super::{Rendered, Template, asks_anew, has_prompts};
use crate::request::Read;
use crate::request::SHORT_BYTES;
use crate::request::pieces::{Is, Piece};
use crate::tokens::TokenCounter;

pub(super) fn render(
    template: &Template,
    read: &Read<'_>,
    counter: &mut dyn TokenCounter,
) -> Rendered {
    let mut run = Run::new(counter);
    let mut reasoning = false;
    for &piece in &read.pieces.all {
        match piece.is {
            Is::Reasoning | Is::ReasoningContent => reasoning = true,
            Is::CallName if usize::try_from(piece.len()).is_ok_and(|len| len <= SHORT_BYTES) => {}
            _ => text(read, piece, &mut run),
        }
    }
    if reasoning {
        kept_reasoning(read, &mut run);
    }
    let facts = &read.facts;
    let mut tokens: u64 = 0;
    let mut add =
        |count: u64, each: u64| tokens = tokens.saturating_add(count.saturating_mul(each));
    add(u64::from(facts.messages > 0), template.start);
    add(facts.user_turns, template.user.saturating_add(template.reply));
    add(facts.assistant_messages, template.assistant_end);
    add(u64::from(facts.tools > 0), template.tools);
    let texts = !read.pieces.all.is_empty();
    let prompts = has_prompts(read);
    if prompts && texts && read.switches.special_tokens != Some(false) {
        add(facts.prompts, template.prompt_start);
    }
    // Prompts are the engine's own, whatever its template.
    Rendered { tokens, exact: prompts && !read.switches.suffix && run.exact }
}

/// The reasoning that templates keep: after the last user message, or all where there are tools or
/// the template may have been told to keep it.
fn kept_reasoning<'a>(read: &Read<'a>, run: &mut Run<'_, 'a>) {
    let whole = read.facts.tools > 0 || read.switches.arguments;
    let messages = &read.pieces.messages;
    let last = messages.iter().rposition(|message| asks_anew(message.speaker));
    let first = if whole { 0 } else { last.map_or(0, |last| last.saturating_add(1)) };
    for &message in messages.get(first..).unwrap_or_default() {
        for &piece in read.pieces_of(message) {
            if matches!(piece.is, Is::Reasoning | Is::ReasoningContent) {
                text(read, piece, run);
            }
        }
    }
}

fn text<'a>(read: &Read<'a>, piece: Piece, run: &mut Run<'_, 'a>) {
    if piece.len() > 0 {
        run.piece(read, piece);
        run.end();
    }
}
