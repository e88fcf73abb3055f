//! Tools, and calls of them: both are joined to the text before them.

use super::Prompt;
use super::Turn;
use crate::request::error::ReadError;
use crate::request::pieces::{Is, Piece, Speaker};
use crate::tokens::template::python::{self, Argument};
use crate::tokens::template::run::Run;

/// The longest arguments with escapes, in bytes as written, that are decoded to be followed.
const MAX_DECODED: usize = 512 * 1024;

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
                self.run.step();
            }
            let raw = read.raw(piece);
            if self.run.is_full() {
                self.run.push(raw);
                continue;
            }
            // Nothing has been written where there is no function.
            if !python::function(raw, turn.tools, &mut self.run).unwrap_or(false) {
                self.run.push(raw);
                self.run.exact = false;
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
        self.run.step();
        self.run.add("<｜DSML｜invoke name=\"");
        if let Some(name) = name {
            python::text(read.raw(name), &mut self.run);
        }
        self.run.add("\">\n");
        if let Some(arguments) = arguments {
            self.arguments(arguments);
        }
        self.run.add("\n</｜DSML｜invoke>");
    }

    fn arguments(&mut self, piece: Piece) {
        let read = self.read;
        let mut decoded = String::new();
        let json = match read.plain(piece) {
            Some(json) => json,
            None if usize::try_from(piece.len()).is_ok_and(|len| len <= MAX_DECODED) => {
                decoded.reserve_exact(usize::try_from(piece.len()).unwrap_or_default());
                read.decode(piece, &mut decoded);
                &decoded
            }
            None => {
                self.run.exact = false;
                return self.run.piece(read, piece);
            }
        };
        // Checked before anything is written, as what is written may be counted on the way.
        match python::arguments(json, &mut |_, _, _| Ok(())) {
            _ if self.run.is_full() => self.run.add(json),
            Ok(()) => self.run.exact &= parameters(json, &mut self.run).is_ok(),
            // What is no object of JSON is to the engine one without arguments.
            Err(error) if error.only_here() => {
                self.run.exact = false;
                self.run.add(json);
            }
            Err(_) => {}
        }
    }
}

/// The arguments of a call, each in a tag.
fn parameters(json: &str, run: &mut Run<'_, '_>) -> Result<(), ReadError> {
    let mut between = "";
    python::arguments(json, &mut |cursor, key, value| {
        run.add(between);
        between = "\n";
        run.add("<｜DSML｜parameter name=\"");
        run.literal(cursor, key);
        run.add("\" string=\"");
        match value {
            Argument::Text(text) => {
                run.add("true\">");
                run.literal(cursor, text);
            }
            Argument::Json(json) => {
                run.add("false\">");
                python::dump(json, run)?;
            }
        }
        run.add("</｜DSML｜parameter>");
        Ok(())
    })
}
