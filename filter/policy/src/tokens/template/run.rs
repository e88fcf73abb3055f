//! One run of text between two markers, which no token crosses.
//!
//! A run that is one text is counted where it lies in the body. What is joined, decoded or rewritten
//! is copied, and counted on the way, so that a body of any size needs little beside itself: where
//! every tokenizer here begins a new piece, or, if that does not come, anywhere, and then the count
//! is no longer exact.

use core::fmt;

use crate::request::Read;
use crate::request::json::Cursor;
use crate::request::pieces::Piece;
use crate::tokens::TokenCounter;

/// Bytes after which a run that is being written is counted so far.
const STEP: usize = 32 * 1024;

/// The most bytes that wait for a place to cut.
const LIMIT: usize = 256 * 1024;

/// The most numbers of a request that are rewritten though they take long.
const HARD_NUMBERS: u32 = 512;

pub(super) struct Run<'r, 'a> {
    counter: &'r mut dyn TokenCounter,
    /// The only text so far; empty if there is none, or if it has been copied.
    whole: &'a str,
    copied: String,
    /// How much of the copy has been searched for a place to cut.
    looked: usize,
    hard_numbers: u32,
    /// Whether texts were cut only where no token can be, and written as the engine does.
    pub(super) exact: bool,
}

impl fmt::Debug for Run<'_, '_> {
    /// Without the texts, which are the client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("exact", &self.exact).finish_non_exhaustive()
    }
}

impl<'r, 'a> Run<'r, 'a> {
    pub(super) fn new(counter: &'r mut dyn TokenCounter) -> Self {
        let (whole, copied) = ("", String::new());
        Self { counter, whole, copied, looked: 0, hard_numbers: 0, exact: true }
    }

    /// Adds a text that lasts.
    pub(super) fn push(&mut self, text: &'a str) {
        if self.whole.is_empty() && self.copied.is_empty() {
            self.whole = text;
        } else {
            self.add(text);
        }
    }

    /// Adds the decoded text of a piece.
    pub(super) fn piece(&mut self, read: &Read<'a>, piece: Piece) {
        match read.plain(piece) {
            Some(text) => self.push(text),
            None => read.decode_each(piece, &mut |text| self.add(text)),
        }
    }

    /// Adds a text by copying it.
    pub(super) fn add(&mut self, text: &str) {
        if !self.whole.is_empty() {
            self.settle();
        }
        let mut rest = text;
        while !rest.is_empty() {
            // A character has four bytes at most.
            let mut ends = (STEP.saturating_sub(3)..=STEP).rev();
            let split = ends.find_map(|end| rest.split_at_checked(end));
            let (chunk, more) = split.unwrap_or((rest, ""));
            self.copied.push_str(chunk);
            if self.copied.len().saturating_sub(self.looked) >= STEP {
                self.cut();
            }
            rest = more;
        }
    }

    /// Copies the text so far; of a long one only what has to be joined.
    fn settle(&mut self) {
        let whole = core::mem::take(&mut self.whole);
        if whole.len() < STEP {
            self.copied.push_str(whole);
            return;
        }
        let place = place(whole, 0).filter(|&at| whole.len().saturating_sub(at) <= LIMIT);
        self.exact &= place.is_some();
        let (done, rest) = whole.split_at_checked(place.unwrap_or(whole.len())).unwrap_or_default();
        self.counter.text(done);
        self.copied.push_str(rest);
    }

    /// Counts the copy up to the last place where it can be cut.
    fn cut(&mut self) {
        if let Some((at, done)) =
            place(&self.copied, self.looked).and_then(|at| Some((at, self.copied.get(..at)?)))
        {
            self.counter.text(done);
            self.copied.drain(..at);
        } else if self.copied.len() > LIMIT {
            self.exact = false;
            self.counter.text(&self.copied);
            self.copied.clear();
        }
        self.looked = self.copied.len();
    }

    /// Counts a long run so far. Only where no token can go on: behind a line end with something
    /// visible to come, or behind a comma with a blank to come.
    pub(super) fn step(&mut self) {
        if self.copied.len() >= STEP {
            self.end();
        }
    }

    /// Ends the run: counts it.
    pub(super) fn end(&mut self) {
        let text = if self.copied.is_empty() { self.whole } else { &self.copied };
        if !text.is_empty() {
            self.counter.text(text);
        }
        self.whole = "";
        self.copied.clear();
        self.looked = 0;
    }

    /// Whether more texts will be taken by their length alone, so that they need no care.
    pub(super) fn is_full(&self) -> bool {
        self.counter.is_full()
    }

    /// Tokens of all texts that have been counted.
    pub(super) fn tokens(&self) -> u64 {
        self.counter.tokens()
    }

    /// Whether one more number that takes long is to be rewritten.
    pub(super) fn hard_number(&mut self) -> bool {
        self.hard_numbers = self.hard_numbers.saturating_add(1);
        self.hard_numbers <= HARD_NUMBERS
    }

    /// Adds the decoded text of a literal.
    pub(super) fn literal(&mut self, cursor: &Cursor<'_>, text: crate::request::json::Text) {
        cursor.decode_each(text, &mut |text| self.add(text));
    }
}

/// The last place from a byte on where every tokenizer here begins a new piece: between a line end
/// behind something visible and a letter or digit, or between a letter and a single blank with a
/// letter behind it.
fn place(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let from = from.saturating_sub(4).max(1);
    (from..bytes.len()).rev().find(|&at| match (byte(at.wrapping_sub(1)), byte(at)) {
        (before, b' ') => {
            before.is_ascii_alphabetic() && byte(at.wrapping_add(1)).is_ascii_alphabetic()
        }
        (b'\n', _) => {
            let after = text.get(at..).and_then(|text| text.chars().next());
            let before = text.get(..at.wrapping_sub(1)).and_then(|text| text.chars().next_back());
            after.is_some_and(char::is_alphanumeric)
                && before.is_some_and(|char| !char.is_whitespace())
        }
        _ => false,
    })
}
