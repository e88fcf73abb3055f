//! Word-piece estimate (placeholder until the fitted one lands).

use super::TokenCounter;

/// Estimates tokens from the shape of the words.
#[derive(Debug, Default, Clone)]
pub struct WordPiece {
    bytes: u64,
}

impl TokenCounter for WordPiece {
    fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
    }

    fn tokens(&self) -> u64 {
        self.bytes.div_ceil(4)
    }
}
