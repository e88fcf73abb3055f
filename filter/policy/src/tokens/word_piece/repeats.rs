//! Caps what a run of one character costs: a ruler of dashes is a few tokens, not thousands, and
//! one table full of them would throw a prompt two size classes up.

/// Characters alike in a row that are counted one by one; the rest of the run shares tokens.
pub(super) const SHORT_RUN: u32 = 3;

/// Characters alike that make one token more in a long run: vocabularies have tokens for rulers of
/// up to 64 or 128 dashes, though for rarer characters of 8 or 16.
pub(super) const LONG_RUN: u32 = 64;

/// The characters of a run, sorted.
#[derive(Default)]
pub(super) struct Repeats {
    previous: Option<u32>,
    in_a_row: u32,
    /// Characters that differ from the one before them, the first included.
    pub(super) changes: u32,
    /// Characters equal to the one before them, as long as few are in a row.
    pub(super) equal: u32,
    /// Long repetitions, in multiples of [`LONG_RUN`].
    pub(super) long: u32,
}

impl Repeats {
    #[inline]
    pub(super) fn push(&mut self, character: u32) {
        if self.previous != Some(character) {
            self.previous = Some(character);
            self.changes = self.changes.saturating_add(1);
            self.in_a_row = 0;
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row <= SHORT_RUN {
            self.equal = self.equal.saturating_add(1);
        } else if self.in_a_row.is_multiple_of(LONG_RUN) {
            self.long = self.long.saturating_add(1);
        }
    }
}
