//! Tools, and calls of them: both are joined to the text before them.

use super::Prompt;
use super::Turn;
use crate::request::error::ReadError;
use crate::request::pieces::{Is, Piece, Speaker};
use crate::tokens::template::python::{self, Argument, Pause};

impl Prompt<'_, '_> {
    /// The tools a turn offers.
    pub(super) fn offered(&mut self, turn: &Turn) {
        let read = self.read;
        let own: Vec<Piece> = match (turn.tools, turn.speaker) {
            (true, _) => {
                read.pieces.all.iter().copied().filter(|piece| piece.is == Is::Tool).collect()
            }
            (_, Speaker::Developer) => {
                self.pieces(turn).filter(|piece| piece.is == Is::MessageTool).collect()
            }
            _ => return,
        };
        if own.is_empty() {
            return;
        }
        self.run.push("\n\n");
        self.fixed(self.template.tools.saturating_sub(1));
        for (at, &piece) in own.iter().enumerate() {
            if at > 0 {
                self.run.push("\n");
                self.run.step(self.counter);
            }
            let raw = read.raw(piece);
            if self.counter.is_full() {
                self.run.push(raw);
                continue;
            }
            let written = self
                .run
                .python(self.counter, |out, pause| python::function(raw, turn.tools, out, pause));
            if !written.unwrap_or(false) {
                self.run.push(raw);
                self.exact = false;
            }
        }
        self.run.push("\n\n");
        self.fixed(0);
        self.run.push(".\n");
    }

    /// The calls of a reply.
    pub(super) fn calls(&mut self, turn: &Turn) {
        let mut name = None;
        let mut arguments = None;
        let mut open = false;
        let mut some = false;
        for piece in self.pieces(turn) {
            match piece.is {
                Is::Call => {
                    if open {
                        self.call(name, arguments, some);
                        some = true;
                    }
                    (open, name, arguments) = (true, None, None);
                }
                Is::CallName => name = Some(piece),
                Is::Arguments | Is::ArgumentsObject => {
                    // Other endpoints have calls that are items of their own.
                    (open, arguments) = (true, Some(piece));
                }
                _ => {}
            }
        }
        if open {
            self.call(name, arguments, some);
            self.run.push("\n</｜DSML｜tool_calls>");
        }
    }

    fn call(&mut self, name: Option<Piece>, arguments: Option<Piece>, more: bool) {
        let read = self.read;
        self.run.push(if more { "\n" } else { "\n\n<｜DSML｜tool_calls>\n" });
        self.run.step(self.counter);
        let out = self.run.buffer();
        out.push_str("<｜DSML｜invoke name=\"");
        if let Some(name) = name {
            python::text(read.raw(name), out);
        }
        out.push_str("\">\n");
        let mut decoded = String::new();
        let json = arguments.map_or("", |piece| {
            read.plain(piece).unwrap_or_else(|| {
                read.decode(piece, &mut decoded);
                &decoded
            })
        });
        // Checked before anything is written, as what is written may be counted on the way.
        match python::arguments(json, &mut |_, _| Ok(())) {
            _ if self.counter.is_full() => out.push_str(json),
            Ok(()) => {
                let write = |out: &mut String, pause: &mut Pause<'_>| parameters(json, out, pause);
                self.exact &= self.run.python(self.counter, write).is_ok();
            }
            // What is no object of JSON is to the engine one without arguments.
            Err(error) if error.only_here() => {
                self.exact = false;
                out.push_str(json);
            }
            Err(_) => {}
        }
        let out = self.run.buffer();
        out.push_str("\n</｜DSML｜invoke>");
    }
}

/// The arguments of a call, each in a tag.
fn parameters(json: &str, out: &mut String, pause: &mut Pause<'_>) -> Result<bool, ReadError> {
    let mut first = true;
    python::arguments(json, &mut |key, value| {
        if !first {
            out.push('\n');
        }
        first = false;
        out.push_str("<｜DSML｜parameter name=\"");
        out.push_str(key);
        out.push_str("\" string=\"");
        match value {
            Argument::Text(text) => {
                out.push_str("true\">");
                out.push_str(text);
            }
            Argument::Json(json) => {
                out.push_str("false\">");
                python::dump(json, out, pause)?;
            }
        }
        out.push_str("</｜DSML｜parameter>");
        Ok(())
    })
    .map(|()| true)
}
