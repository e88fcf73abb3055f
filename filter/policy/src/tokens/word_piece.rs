//! Word-piece estimate.

mod feature;
mod scan;
mod script;

use super::TokenCounter;
use feature::{Feature, UNIT};
use scan::Tally;

/// Estimates tokens from the shape of the words.
#[derive(Debug, Default, Clone)]
pub struct WordPiece {
    units: u64,
    bytes: u64,
}

impl TokenCounter for WordPiece {
    fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        scan::scan(text, self);
    }

    fn tokens(&self) -> u64 {
        let rounded = self.units.saturating_add(UNIT / 2) / UNIT;
        rounded.min(self.bytes)
    }
}

impl Tally for WordPiece {
    #[inline]
    fn add(&mut self, feature: Feature, amount: u32) {
        let units = feature.weight().saturating_mul(u64::from(amount));
        self.units = self.units.saturating_add(units);
    }
}

/// What the estimate of `text` is made of: names and amounts, for fitting the weights anew.
#[doc(hidden)]
pub fn word_piece_features(text: &str) -> Vec<(String, u32)> {
    let mut found = Found(vec![0; Feature::ALL.len()]);
    scan::scan(text, &mut found);
    let names = Feature::ALL.iter().map(|feature| format!("{feature:?}"));
    names.zip(found.0).collect()
}

/// Collects amounts instead of weighing them.
struct Found(Vec<u32>);

impl Tally for Found {
    fn add(&mut self, feature: Feature, amount: u32) {
        if let Some(total) = self.0.get_mut(feature as usize) {
            *total = total.saturating_add(amount);
        }
    }
}
