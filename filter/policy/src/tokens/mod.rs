//! How many tokens a text costs.
//!
//! The engine asks one trait, so that an exact counter for a known vocabulary and the word-piece
//! estimate for every other model can stand behind the same call.

pub mod template;
mod word_piece;

pub use template::{Count, Rendering, Template};
pub use word_piece::WordPiece;
#[doc(hidden)]
pub use word_piece::word_piece_features;

/// Counts the tokens of a prompt, text by text.
pub trait TokenCounter {
    /// Adds one whole, unescaped text (a message's content, a prompt, a tool's description).
    fn text(&mut self, text: &str);

    /// Tokens of all texts added so far.
    fn tokens(&self) -> u64;

    /// Whether these are the tokens the engine will count, not an estimate.
    fn is_exact(&self) -> bool {
        false
    }
}

/// Whether this module carries the vocabulary of that name.
pub fn vocabulary_is_built_in(_name: &str) -> bool {
    false
}
