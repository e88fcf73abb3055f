//! How many tokens a text costs.
//!
//! The engine asks one trait, so that an exact counter for a known vocabulary and the word-piece
//! estimate for every other model can stand behind the same call.

pub mod kind;
pub mod template;
mod word_piece;

pub use word_piece::WordPiece;
#[doc(hidden)]
pub use word_piece::word_piece_features;

/// Counts the tokens of a prompt, text by text.
pub trait TokenCounter {
    /// Adds one whole, unescaped text (a message's content, a prompt, a tool's description).
    fn text(&mut self, text: &str);

    /// Tokens of all texts added so far.
    fn tokens(&self) -> u64;
}
