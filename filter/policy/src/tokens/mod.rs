//! How many tokens a text costs.
//!
//! The engine asks one trait, so that an exact counter for a known vocabulary and the word-piece
//! estimate for every other model can stand behind the same call.

pub mod exact;
pub mod kind;
pub mod template;
mod vocabularies;
mod word_piece;

pub use exact::{ExactCounter, Memo, Vocabulary, VocabularyError};
pub use template::{Count, Rendering, Template};
pub use vocabularies::Vocabularies;
pub use word_piece::WordPiece;
#[doc(hidden)]
pub use word_piece::word_piece_features;

// `BUILT_IN`, written by the build script.
include!(concat!(env!("OUT_DIR"), "/vocabularies.rs"));

/// Counts the tokens of a prompt, text by text.
pub trait TokenCounter {
    /// Adds one whole, unescaped text (a message's content, a prompt, a tool's description). It is
    /// never joined with the one before.
    fn text(&mut self, text: &str);

    /// Tokens of all texts added so far.
    fn tokens(&self) -> u64;

    /// Whether `tokens` is what the model's own tokenizer would count.
    fn is_exact(&self) -> bool {
        false
    }

    /// Whether more texts will be taken by their length alone, so that they need no care.
    fn is_full(&self) -> bool {
        false
    }
}

/// Names and files of the vocabularies compiled in, in the order of their names.
pub fn vocabularies() -> &'static [(&'static str, &'static [u8])] {
    BUILT_IN
}

/// Whether the vocabulary of this name is compiled in.
pub fn vocabulary_is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(built_in, _)| *built_in == name)
}
