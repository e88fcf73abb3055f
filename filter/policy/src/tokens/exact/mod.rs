//! Exact counts for a known vocabulary.
//!
//! The count is that of the model's own tokenizer: added tokens are cut out, the rest is split into
//! pieces (`split`), and each piece is merged pair by pair (`merge`). Most pieces are one token, which
//! one look-up tells; others were often seen a moment ago, which the [`Memo`] tells. Both compare bytes: a hash alone can be forged.
//!
//! Where it is not exact, [`TokenCounter::is_exact`] says so:
//! - Counting ends early once the count has passed a limit: no size class or quota asks how far. The
//!   rest is taken to have as many tokens a byte as the text so far.
//! - A piece of more than 6144 bytes (a run of letters, blanks, signs or hanzi without any break) is
//!   merged in parts, because the work for one piece grows faster than its length. Real texts with
//!   such a piece differ by a token or two.
//!
//! Costs: some ten milliseconds once for the tables, then per token about 20 ns of English and up to
//! 90 ns of Chinese.

mod added;
mod blob;
mod classes;
mod hanzi;
mod memo;
mod merge;
mod split;
mod tables;
mod vocabulary;

pub use blob::{AddedToken, Family, Rules, VocabularySource};
pub use memo::Memo;
pub use vocabulary::{Vocabulary, VocabularyError};

use super::TokenCounter;
use split::{Piece, Splitter};
use tables::hash;

/// Bytes of a piece that are merged together at most. A multiple of 3, so that runs of hanzi stay
/// whole characters, and of 128, the length of the longest blanks and rulers a vocabulary has.
pub const MAX_PIECE: usize = 6144;

/// Counts as the model's own tokenizer does.
#[derive(Debug)]
pub struct ExactCounter<'v> {
    vocabulary: &'v Vocabulary,
    memo: &'v mut Memo,
    limit: u64,
    tokens: u64,
    /// Bytes that `tokens` were counted in.
    seen: u64,
    /// Bytes that were not looked at.
    skipped: u64,
    /// Whether a piece was merged in parts.
    is_cut: bool,
}

impl<'v> ExactCounter<'v> {
    /// Starts at no tokens; counting ends early above `limit` tokens.
    pub fn new(vocabulary: &'v Vocabulary, memo: &'v mut Memo, limit: u64) -> Self {
        memo.serve(vocabulary.checksum);
        Self { vocabulary, memo, limit, tokens: 0, seen: 0, skipped: 0, is_cut: false }
    }

    /// Counts what the added tokens of the first pass leave.
    fn between(&mut self, bytes: &[u8]) {
        let [_, second] = &self.vocabulary.added;
        self.around(second, bytes, Self::pieces);
    }

    /// Counts the added tokens, and what is between them by `between`.
    #[inline]
    fn around(
        &mut self,
        added: &added::AddedTokens,
        bytes: &[u8],
        between: impl Fn(&mut Self, &[u8]),
    ) {
        let mut at = 0;
        while at < bytes.len() && self.tokens <= self.limit {
            let (start, end) = added.find(bytes, at).unwrap_or((bytes.len(), bytes.len()));
            between(self, bytes.get(at..start).unwrap_or_default());
            if self.tokens <= self.limit && start < end {
                self.tokens = self.tokens.saturating_add(1);
                self.seen = self.seen.saturating_add(end.wrapping_sub(start) as u64);
            }
            at = end;
        }
    }

    fn pieces(&mut self, bytes: &[u8]) {
        let vocabulary = self.vocabulary;
        let mut splitter = Splitter::new(&vocabulary.classes, vocabulary.rules, bytes);
        while self.tokens <= self.limit {
            let Some(piece) = splitter.next() else { break };
            if piece.bytes.len() <= MAX_PIECE {
                self.piece(piece);
            } else {
                self.is_cut = true;
                for bytes in piece.bytes.chunks(MAX_PIECE) {
                    if self.tokens <= self.limit {
                        self.piece(Piece { bytes, ..piece });
                    }
                }
            }
        }
    }

    #[inline]
    fn piece(&mut self, piece: Piece<'_>) {
        let length = piece.bytes.len();
        self.seen = self.seen.wrapping_add(length as u64);
        let count = if length == 1 { 1 } else { self.count(piece) };
        self.tokens = self.tokens.wrapping_add(count);
    }

    #[inline]
    fn count(&mut self, piece: Piece<'_>) -> u64 {
        let bytes = piece.bytes;
        let is_short = bytes.len() <= memo::LONGEST;
        if !is_short && bytes.len() > self.vocabulary.longest {
            return self.merge(piece);
        }
        let hash = hash(bytes);
        if self.vocabulary.wholes.contains(bytes, hash) {
            return 1;
        }
        if !is_short {
            return self.merge(piece);
        }
        if let Some(count) = self.memo.get(bytes, hash) {
            return count;
        }
        let count = self.merge(piece);
        self.memo.put(bytes, hash, count);
        count
    }

    #[inline(never)]
    fn merge(&mut self, piece: Piece<'_>) -> u64 {
        let Vocabulary { pairs, hanzi, .. } = self.vocabulary;
        let scratch = &mut self.memo.scratch;
        let by_characters = piece.is_hanzi
            && hanzi.as_ref().is_some_and(|it| it.symbols(pairs, piece.bytes, &mut scratch.ids));
        if !by_characters {
            scratch.ids.clear();
            scratch.ids.extend(piece.bytes.iter().map(|&byte| u32::from(byte)));
        }
        merge::merge(pairs, scratch) as u64
    }
}

impl TokenCounter for ExactCounter<'_> {
    fn text(&mut self, text: &str) {
        let before = self.seen;
        let [first, _] = &self.vocabulary.added;
        self.around(first, text.as_bytes(), Self::between);
        let looked_at = self.seen.saturating_sub(before);
        let rest = (text.len() as u64).saturating_sub(looked_at);
        self.skipped = self.skipped.saturating_add(rest);
    }

    fn tokens(&self) -> u64 {
        if self.skipped == 0 {
            return self.tokens;
        }
        let each = self.tokens as f64 / self.seen.max(1) as f64;
        // Saturates; both are far below 2^53.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a product of two amounts, and a cast of floats saturates"
        )]
        let rest = (each * self.skipped as f64) as u64;
        self.tokens.saturating_add(rest)
    }

    fn is_exact(&self) -> bool {
        self.skipped == 0 && !self.is_cut
    }

    fn is_full(&self) -> bool {
        self.tokens > self.limit
    }
}

#[cfg(test)]
mod tests;
