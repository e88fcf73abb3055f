//! Texts one by one, markers as a sum.
//!
//! What is counted errs on the high side: every message has markers, be it empty; all reasoning
//! counts; names, ids and template arguments, which only some templates render, are counted as they
//! stand if they are long, and by their bytes if they are short but many.

use super::run::Run;
use super::{Rendered, Template, has_prompts};
use crate::request::Read;
use crate::request::SHORT_BYTES;
use crate::request::pieces::{Is, Piece};
use crate::tokens::TokenCounter;

/// Bytes of short names and ids that are free: those of an ordinary chat.
const FREE_BYTES: usize = 1024;

/// Bytes of short names and ids to a token, beyond those: few, as for ids.
const BYTES_A_TOKEN: u64 = 3;

pub(super) fn render(
    template: &Template,
    read: &Read<'_>,
    counter: &mut dyn TokenCounter,
) -> Rendered {
    let mut run = Run::new(counter);
    let mut short = read.switches.short_bytes;
    let mut asides = false;
    for &piece in &read.pieces.all {
        let len = usize::try_from(piece.len()).unwrap_or(usize::MAX);
        if piece.is == Is::CallName && len <= SHORT_BYTES {
            short = short.saturating_add(len);
            continue;
        }
        asides |= matches!(piece.is, Is::Aside | Is::Raw);
        text(read, piece, &mut run);
    }
    let many = u64::try_from(short.saturating_sub(FREE_BYTES)).unwrap_or(u64::MAX);
    let facts = &read.facts;
    let mut tokens: u64 = many.div_ceil(BYTES_A_TOKEN);
    let mut add =
        |count: u64, each: u64| tokens = tokens.saturating_add(count.saturating_mul(each));
    let turn = template.user.saturating_add(template.reply);
    add(u64::from(facts.messages > 0), template.start);
    add(facts.user_turns, turn);
    add(facts.assistant_messages, template.assistant_end);
    // Replies that nothing asked for, and messages that are neither the one nor the other; the start
    // is that of a system message.
    add(facts.assistant_messages.saturating_sub(facts.user_turns), template.reply);
    let known = facts.user_turns.saturating_add(facts.assistant_messages).saturating_add(1);
    add(facts.messages.saturating_sub(known), turn);
    add(u64::from(facts.tools > 0), template.tools);
    let texts = !read.pieces.all.is_empty();
    let prompts = has_prompts(read);
    if prompts && texts && read.switches.special_tokens != Some(false) {
        add(facts.prompts, template.prompt_start);
    }
    // Prompts are the engine's own, whatever its template.
    let exact = prompts && !read.switches.suffix && run.exact && !asides && many == 0;
    Rendered { tokens, exact, unsure: asides || many > 0 }
}

fn text<'a>(read: &Read<'a>, piece: Piece, run: &mut Run<'_, 'a>) {
    if piece.len() > 0 {
        run.piece(read, piece);
        run.end();
    }
}
