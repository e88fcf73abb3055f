//! One run of text between two markers, which no token crosses.
//!
//! A run that is one text is counted where it lies in the body; only what is joined is copied.

use super::python::Pause;
use crate::request::Read;
use crate::request::error::ReadError;
use crate::request::pieces::Piece;
use crate::tokens::TokenCounter;

/// Bytes after which a run that is being written is counted so far.
const STEP: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(super) struct Run<'a> {
    /// The only text so far; empty if there is none, or if it has been copied.
    whole: &'a str,
    copied: String,
}

impl<'a> Run<'a> {
    /// Adds a text.
    pub(super) fn push(&mut self, text: &'a str) {
        if self.whole.is_empty() && self.copied.is_empty() {
            self.whole = text;
        } else {
            self.buffer().push_str(text);
        }
    }

    /// Adds the decoded text of a piece.
    pub(super) fn piece(&mut self, read: &Read<'a>, piece: Piece) {
        match read.plain(piece) {
            Some(text) => self.push(text),
            None => read.decode(piece, self.buffer()),
        }
    }

    /// The run, to be appended to.
    pub(super) fn buffer(&mut self) -> &mut String {
        self.copied.push_str(core::mem::take(&mut self.whole));
        &mut self.copied
    }

    /// Writes a value as Python does. A long one is counted on the way, and no longer written with
    /// care once the counter is full.
    pub(super) fn python(
        &mut self,
        counter: &mut dyn TokenCounter,
        write: impl FnOnce(&mut String, &mut Pause<'_>) -> Result<bool, ReadError>,
    ) -> Result<bool, ReadError> {
        write(self.buffer(), &mut |out| {
            if out.len() < STEP {
                return true;
            }
            counter.text(out);
            out.clear();
            !counter.is_full()
        })
    }

    /// Counts a long run so far. Only where no token can go on: behind a line end, with something
    /// visible to come.
    pub(super) fn step(&mut self, counter: &mut dyn TokenCounter) {
        if self.copied.len() >= STEP {
            self.end(counter);
        }
    }

    /// Ends the run: counts it.
    pub(super) fn end(&mut self, counter: &mut dyn TokenCounter) {
        let text = if self.copied.is_empty() { self.whole } else { &self.copied };
        if !text.is_empty() {
            counter.text(text);
        }
        self.whole = "";
        self.copied.clear();
    }
}
