//! DeepSeek-V4's prompt, put together as the engine's encoder does it.
//!
//! Markers are tokens of their own, so they only separate runs of text and are counted, not
//! written. What stands between two of them is one run: the system's text and the tools behind it,
//! the parts of a message with a blank line between, neighbouring user and tool messages, a reply
//! and the calls behind it. The rules, as far as they change the count:
//!
//! - Tools go with the first system message, or with one made for them at the start.
//! - Neighbouring user and tool messages are one turn; a result stands in a pair of tags.
//! - Reasoning is shown only when thinking, and without tools only after the last user turn;
//!   developers' messages before that turn are then left out altogether.
//! - The words about the reasoning effort come first of all, when thinking.
//! - `add_generation_prompt`, `continue_final_message`, `response_format` and names change nothing.
//!
//! Not followed: arguments and tools with a key given twice (all are counted, the engine keeps the
//! last), numbers of many digits, truncation asked for by the request, media, and conversations of
//! other endpoints, where the count is an estimate by the same rules.

mod tools;

use super::run::Run;
use super::{Rendered, Template, has_prompts, is_chat};
use crate::request::pieces::{Is, Message, Piece, Speaker, Task};
use crate::request::{Effort, Read};
use crate::tokens::TokenCounter;

/// A marker that is one token whatever the version of the template.
const MARKER: u64 = 1;

/// The line of a client that changes with every request; the engine leaves it out.
const BILLING: &str = "x-anthropic-billing-header";

pub(super) fn render(
    template: &Template,
    read: &Read<'_>,
    counter: &mut dyn TokenCounter,
) -> Rendered {
    let run = Run::new(counter);
    let mut prompt = Prompt { template, read, run, fixed: 0, exact: true };
    if has_prompts(read) {
        prompt.prompts();
    } else {
        prompt.exact = is_chat(read) && read.facts.messages > 0;
        prompt.conversation();
    }
    let asides = read.pieces.all.iter().any(|piece| matches!(piece.is, Is::Aside | Is::Raw));
    let unsure = !prompt.run.exact || (asides && prompt.is_unsure());
    Rendered { tokens: prompt.fixed, exact: prompt.exact && prompt.run.exact, unsure }
}

/// Neighbouring messages that are rendered as one.
#[derive(Clone, Copy, Debug)]
struct Turn {
    speaker: Speaker,
    first: usize,
    end: usize,
    task: Task,
    /// The request's tools go here.
    tools: bool,
}

struct Prompt<'r, 'a> {
    template: &'r Template,
    read: &'r Read<'a>,
    run: Run<'r, 'a>,
    /// Tokens that are no text.
    fixed: u64,
    exact: bool,
}

impl<'r, 'a> Prompt<'r, 'a> {
    /// Ends the run of text; what comes now costs that many tokens.
    fn fixed(&mut self, tokens: u64) {
        self.run.end();
        self.fixed = self.fixed.saturating_add(tokens);
    }

    /// Prompts as they are; with a suffix, which all of them share, as a gap to fill.
    fn prompts(&mut self) {
        let mut texts: u64 = 0;
        let mut gap = None;
        for &piece in &self.read.pieces.all {
            match piece.is {
                Is::Suffix => gap = Some(piece),
                Is::Prompt => {
                    texts = texts.saturating_add(1);
                    self.run.piece(self.read, piece);
                    self.fixed(0);
                }
                _ => {}
            }
        }
        let switches = &self.read.switches;
        // Empty texts are no pieces, but prompts.
        let prompts = if self.read.facts.token_ids > 0 { texts } else { self.read.facts.prompts };
        let mut each = self.template.prompt_start;
        if switches.special_tokens == Some(false) {
            each = 0;
        }
        if switches.suffix {
            each = each.saturating_add(MARKER.saturating_mul(3));
        }
        self.fixed(each.saturating_mul(prompts));
        if let Some(gap) = gap {
            let before = self.run.tokens();
            self.run.piece(self.read, gap);
            self.fixed(0);
            let tokens = self.run.tokens().saturating_sub(before);
            self.fixed(tokens.saturating_mul(prompts.saturating_sub(1)));
        }
    }

    fn conversation(&mut self) {
        let (read, template) = (self.read, self.template);
        let (thinking, effort) = template.thought(read);
        let mut turns = self.turns();
        let with_tools = |turn: &Turn| {
            turn.tools || (turn.speaker == Speaker::Developer && self.has_tools(turn))
        };
        let all = read.switches.drop_thinking == Some(false) || turns.iter().any(with_tools);
        let mut last = last_user(&turns);
        if thinking && !all {
            let mut at = 0;
            turns.retain(|turn| {
                let stays = !matches!(turn.speaker, Speaker::Developer | Speaker::Other);
                let keep = stays || Some(at) >= last;
                at = at.saturating_add(1);
                keep
            });
            last = last_user(&turns);
        }
        let special =
            if read.switches.special_tokens == Some(true) { template.prompt_start } else { 0 };
        self.fixed(template.start.saturating_add(special));
        if thinking && !turns.is_empty() {
            let words = match effort {
                Effort::High => template.high_effort,
                Effort::Max => template.max_effort,
                Effort::None | Effort::Low => 0,
            };
            self.instructions(words, ".\n\n");
        }
        self.outside();
        let mut task_before = false;
        for (at, turn) in turns.iter().enumerate() {
            match turn.speaker {
                Speaker::System => {
                    self.content(turn, "\n\n");
                    self.offered(turn);
                }
                Speaker::Developer => {
                    self.fixed(template.user);
                    self.content(turn, "\n\n");
                    self.offered(turn);
                }
                Speaker::User | Speaker::Tool => {
                    self.fixed(template.user);
                    self.asked(turn);
                }
                Speaker::Reminder => {
                    self.fixed(MARKER);
                    self.content(turn, "\n\n");
                }
                Speaker::Assistant => {
                    if thinking && !task_before && (all || Some(at) > last) {
                        self.reasoning(turn);
                        self.fixed(MARKER);
                    }
                    self.content(turn, "\n\n");
                    self.calls(turn);
                    self.fixed(template.assistant_end);
                }
                Speaker::Other => {
                    self.exact = false;
                    self.content(turn, "\n\n");
                }
            }
            task_before = turn.task != Task::None;
            let next = turns.get(at.saturating_add(1)).map(|turn| turn.speaker);
            self.opening(turn, next);
        }
        self.fixed(0);
    }

    /// What leads over to a reply, where one follows or is asked for.
    fn opening(&mut self, turn: &Turn, next: Option<Speaker>) {
        let reply = self.template.reply;
        if !matches!(next, None | Some(Speaker::Assistant | Speaker::Reminder)) {
            return;
        }
        let asks = match turn.speaker {
            Speaker::User | Speaker::Tool | Speaker::Developer => true,
            Speaker::System => next != Some(Speaker::Reminder),
            _ => false,
        };
        match turn.task {
            Task::None if asks => self.fixed(reply),
            Task::None => {}
            Task::Action => self.fixed(reply.saturating_add(MARKER)),
            Task::Other => self.fixed(MARKER),
        }
    }

    /// Messages in turns, with one more for tools that no system message is there for.
    fn turns(&self) -> Vec<Turn> {
        let messages = &self.read.pieces.messages;
        let mut turns: Vec<Turn> = Vec::with_capacity(messages.len().saturating_add(1));
        for (at, message) in messages.iter().enumerate() {
            let end = at.saturating_add(1);
            let joins = message.speaker.asks();
            match turns.last_mut() {
                Some(turn)
                    if joins
                        && turn.speaker == Speaker::User
                        && (turn.task == Task::None || message.speaker == Speaker::Tool) =>
                {
                    turn.end = end;
                }
                _ => {
                    let speaker = if joins { Speaker::User } else { message.speaker };
                    let task =
                        if message.speaker == Speaker::Tool { Task::None } else { message.task };
                    turns.push(Turn { speaker, first: at, end, task, tools: false });
                }
            }
        }
        if self.read.pieces.all.iter().any(|piece| piece.is == Is::Tool) {
            match turns.iter_mut().find(|turn| turn.speaker == Speaker::System) {
                Some(turn) => turn.tools = true,
                None => turns.insert(
                    0,
                    Turn {
                        speaker: Speaker::System,
                        first: 0,
                        end: 0,
                        task: Task::None,
                        tools: true,
                    },
                ),
            }
        }
        turns
    }

    fn messages(&self, turn: &Turn) -> &'r [Message] {
        self.read.pieces.messages.get(turn.first..turn.end).unwrap_or_default()
    }

    fn pieces(&self, turn: &Turn) -> impl Iterator<Item = Piece> + use<'r, 'a> {
        let read = self.read;
        self.messages(turn).iter().flat_map(|&message| read.pieces_of(message)).copied()
    }

    fn has_tools(&self, turn: &Turn) -> bool {
        self.pieces(turn).any(|piece| piece.is == Is::MessageTool)
    }

    /// The blocks of a user's turn.
    fn asked(&mut self, turn: &Turn) {
        let mut first = true;
        for &message in self.messages(turn) {
            if !first {
                self.run.push("\n\n");
            }
            first = false;
            let pieces = self.read.pieces_of(message);
            if message.speaker == Speaker::Tool {
                let media = pieces.iter().any(|piece| matches!(piece.is, Is::Image | Is::Audio));
                self.run.push("<tool_result>");
                self.parts(pieces, if media { "\n\n" } else { "\n" }, false);
                self.run.push("</tool_result>");
            } else {
                self.parts(pieces, "\n\n", false);
            }
        }
    }

    /// The content of a turn that is one message.
    fn content(&mut self, turn: &Turn, between: &'static str) {
        let system = turn.speaker == Speaker::System;
        for &message in self.messages(turn) {
            self.parts(self.read.pieces_of(message), between, system);
        }
    }

    fn parts(&mut self, pieces: &[Piece], between: &'static str, system: bool) {
        let mut first = true;
        for &piece in pieces {
            let media = matches!(piece.is, Is::Image | Is::Audio);
            let other = matches!(piece.is, Is::Aside | Is::Raw) && self.is_unsure();
            if !(media || other || matches!(piece.is, Is::Content | Is::Part)) {
                continue;
            }
            let billed = system && !media && self.billed(piece);
            if billed {
                let (mut lines, mut rest) = (false, false);
                self.read.decode_each(piece, &mut |text| {
                    rest |= lines && !text.is_empty();
                    if let Some((_, behind)) = text.split_once('\n').filter(|_| !lines) {
                        (lines, rest) = (true, !behind.is_empty());
                    }
                });
                if !rest {
                    continue;
                }
            }
            if !first {
                self.run.push(between);
            }
            first = false;
            match piece.is {
                // Their price is added elsewhere.
                _ if media => self.fixed(0),
                _ if billed => {
                    let mut behind = false;
                    self.read.decode_each(piece, &mut |text| {
                        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
                        self.run.add(if behind { text } else { rest });
                        behind |= text.contains('\n');
                    });
                }
                _ => self.run.piece(self.read, piece),
            }
        }
    }

    /// Whether a text of the system begins with the line that is left out.
    fn billed(&self, piece: Piece) -> bool {
        if let Some(text) = self.read.plain(piece) {
            return text.starts_with(BILLING);
        }
        // Few texts begin with this letter, or with an escape.
        if !self.read.raw(piece).starts_with(['x', '\\']) {
            return false;
        }
        let mut text = String::new();
        self.read.decode_each(piece, &mut |bit| {
            if text.len() < BILLING.len() {
                text.extend(bit.chars().take(BILLING.len()));
            }
        });
        text.starts_with(BILLING)
    }

    /// Whether texts that this template leaves out are counted nonetheless: where something has been
    /// asked of the engine that is not followed here, nothing may hide.
    fn is_unsure(&self) -> bool {
        !is_chat(self.read) || self.read.switches.unsure
    }

    /// Texts that are in no message.
    fn outside(&mut self) {
        let instructions = self.read.pieces.all.iter().filter(|piece| piece.is == Is::Instructions);
        for &piece in instructions {
            self.run.piece(self.read, piece);
            self.run.push("\n\n");
        }
        if self.is_unsure() {
            // What stands in messages is counted there.
            let inside = |at: usize| {
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                let messages = &self.read.pieces.messages;
                let next = messages.partition_point(|message| message.end <= at);
                messages.get(next).is_some_and(|message| message.first <= at)
            };
            let pieces = self.read.pieces.all.iter().enumerate();
            let texts: Vec<Piece> = pieces
                .filter(|&(at, piece)| {
                    matches!(piece.is, Is::Aside | Is::Raw | Is::Content | Is::Part | Is::Prompt)
                        && !inside(at)
                })
                .map(|(_, &piece)| piece)
                .collect();
            for piece in texts {
                self.run.piece(self.read, piece);
                self.fixed(0);
            }
        }
    }

    /// A fixed text; its last token may join with what follows.
    fn instructions(&mut self, tokens: u64, ending: &'static str) {
        if tokens > 0 {
            self.fixed(tokens.saturating_sub(1));
            self.run.push(ending);
        }
    }

    fn reasoning(&mut self, turn: &Turn) {
        let read = self.read;
        // Of the two names a client may use, the newer one goes first.
        let find = |is: Is| self.pieces(turn).find(|piece| piece.is == is);
        if let Some(piece) = find(Is::Reasoning).or_else(|| find(Is::ReasoningContent)) {
            self.run.piece(read, piece);
        }
    }
}

fn last_user(turns: &[Turn]) -> Option<usize> {
    turns.iter().rposition(|turn| super::asks_anew(turn.speaker))
}
