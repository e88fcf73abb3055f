//! Cuts a text into the pieces a byte-pair vocabulary starts from and names what each costs.
//!
//! The pieces follow the pre-tokenizer of `DeepSeek`: digits by threes, a word with the blank or the
//! one mark before it, a run of punctuation with the line breaks behind it, white space. What the
//! merges then make of a piece is guessed from its length and script. The scan only reports
//! features; the estimate weighs them and a fit collects them, so that the two cannot drift apart.
//!
//! It runs over every prompt, so what most texts are made of has short ways: words without inner
//! capitals or accents, single blanks, single marks. Amounts are bounded by the length of the text,
//! so that sums of them wrap in no memory there is.

mod prose;
mod wide;

use super::bytes::{Class, LOWER_CASE, plain_word, run, run_of, wide};
use super::feature::Feature;
use super::repeats::{LONG_RUN, Repeats, SHORT_RUN};
use super::script::Script;

/// Where the scan reports to.
pub(super) trait Tally {
    /// `amount` more of `feature`.
    fn add(&mut self, feature: Feature, amount: u32);
}

/// Whether blocks of prose are tried: only where classes of many bytes are found at once.
const BLOCKS: bool = cfg!(target_feature = "simd128");

/// Reports the features of one text to the tally and gives it back.
#[inline]
pub(super) fn scan<T: Tally>(text: &str, tally: T) -> T {
    scan_by::<T, BLOCKS>(text, tally)
}

/// The same, with blocks or without.
#[inline]
pub(super) fn scan_by<T: Tally, const BLOCKS: bool>(text: &str, tally: T) -> T {
    let mut scan = Scan {
        rest: text.as_bytes(),
        try_prose_at: usize::MAX,
        lead: Lead::Bare,
        accents: 0,
        russian: LANGUAGE_REACH,
        traditional: 0,
        tally,
    };
    // The rare ways take the state and give it back, so that the common ones have it in registers.
    loop {
        if BLOCKS {
            scan.prose();
        }
        let Some(&first) = scan.rest.first() else { break };
        match Class::of(first) {
            Class::Letter => {
                if !scan.plain_words() {
                    scan = scan.any_word();
                }
            }
            Class::Space => scan.white_space(),
            Class::Mark => scan.marks(),
            Class::Digit => scan.digits(),
            Class::Wide => scan = scan.beyond_ascii(),
            Class::Control => scan.control(),
        }
    }
    scan.tally
}

/// What stands before a word and belongs to its piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    Bare,
    Blank,
    Mark,
}

/// Words for which a letter tells the language: an accented one that it is not English, one that
/// only Russian has, or lacks, that Cyrillic letters are Russian or are not, a traditional hanzi
/// that its neighbours are traditional too.
const LANGUAGE_REACH: u32 = 24;

/// State of one pass over a text.
struct Scan<'t, T> {
    /// What is left of the text, from a character on.
    rest: &'t [u8],
    /// Blocks of prose are tried again when no more than this is left.
    try_prose_at: usize,
    lead: Lead,
    /// Words left for which the last accented letter counts.
    accents: u32,
    /// Words left for which Cyrillic counts as Russian, which vocabularies know best.
    russian: u32,
    /// Runs of hanzi left that count as traditional, which vocabularies know less well.
    traditional: u32,
    tally: T,
}

impl<T: Tally> Scan<'_, T> {
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// A plain word, and those that follow after one blank each: most of most texts. False if the
    /// first is not plain.
    #[inline]
    fn plain_words(&mut self) -> bool {
        let Some(letters) = plain_word(self.rest) else { return false };
        let Some(behind) = self.rest.get(letters as usize..) else { return false };
        self.rest = behind;
        self.close(&Part { lead: Some(self.lead), letters, capitals: 0 });
        self.accents = self.accents.saturating_sub(1);
        self.lead = Lead::Bare;
        while let [b' ', behind @ ..] = self.rest
            && let Some(letters @ 1..) = plain_word(behind)
            && let Some(behind) = behind.get(letters as usize..)
        {
            self.close(&Part { lead: Some(Lead::Blank), letters, capitals: 0 });
            self.accents = self.accents.saturating_sub(1);
            self.rest = behind;
        }
        true
    }

    #[inline(never)]
    fn any_word(mut self) -> Self {
        self.word();
        self
    }

    /// Any word of Latin letters, cut where camel case changes.
    fn word(&mut self) {
        let mut part = Part::new(Some(self.lead));
        self.lead = Lead::Bare;
        loop {
            let bytes = self.rest;
            let (mut length, mut capitals) = (0_usize, 0_u32);
            for &byte in bytes {
                if !byte.is_ascii_alphabetic() {
                    break;
                }
                length = length.wrapping_add(1);
                capitals = capitals.wrapping_add(u32::from(byte & LOWER_CASE == 0));
            }
            let starts = part.letters == 0 && bytes.first().is_some_and(u8::is_ascii_uppercase);
            if capitals == 0 || (capitals == 1 && starts) {
                part.letters = part.letters.wrapping_add(amount(length));
                part.capitals = part.capitals.wrapping_add(capitals);
            } else {
                part = self.cut_camel_case(part, bytes.get(..length).unwrap_or_default());
            }
            self.advance(length);
            let Some(length) = self.accented() else { break };
            part.letters = part.letters.wrapping_add(1);
            self.advance(length);
        }
        self.close(&part);
        self.accents = self.accents.saturating_sub(1);
    }

    /// Closes all parts of a word but the last, which it gives back.
    fn cut_camel_case(&mut self, mut part: Part, letters: &[u8]) -> Part {
        for &letter in letters {
            if letter & LOWER_CASE == 0 {
                if part.letters > part.capitals {
                    self.close(&part);
                    part = Part::new(None);
                }
                part.capitals = part.capitals.wrapping_add(1);
            } else if part.capitals > 1 && part.capitals == part.letters {
                // `HTTPServer`: the last capital belongs to what follows.
                part.letters = part.letters.wrapping_sub(1);
                self.close(&part);
                part = Part { lead: None, letters: 1, capitals: 1 };
            }
            part.letters = part.letters.wrapping_add(1);
        }
        part
    }

    /// Length of the accented letter that stands here, if one does.
    #[inline]
    fn accented(&mut self) -> Option<usize> {
        let (letter, length) = wide(self.rest)?;
        match letter {
            '\u{D7}' | '\u{F7}' => return None,
            '\u{C0}'..='\u{FF}' => {}
            '\u{100}'..='\u{24F}' => self.tally.add(Feature::AccentCentral, 1),
            '\u{300}'..='\u{36F}' | '\u{1E00}'..='\u{1EFF}' => {
                self.tally.add(Feature::AccentFar, 1);
            }
            _ => return None,
        }
        self.accents = LANGUAGE_REACH;
        Some(length)
    }

    #[inline]
    fn close(&mut self, part: &Part) {
        if part.letters == 0 {
            return;
        }
        let tally = &mut self.tally;
        let over = |limit: u32| part.letters.saturating_sub(limit);
        if part.capitals > 1 && part.capitals >= part.letters {
            tally.add(Feature::Capitals, 1);
            tally.add(Feature::CapitalsOver2, over(2));
            return;
        }
        if self.accents > 0 {
            tally.add(Feature::NearAccent, 1);
            tally.add(Feature::NearAccentOver4, over(4));
        }
        if part.lead == Some(Lead::Blank) {
            tally.add(Feature::WordSpaced, 1);
            tally.add(Feature::SpacedOver8, over(8));
            return;
        }
        let word = match part.lead {
            Some(Lead::Mark) => Feature::WordMarked,
            Some(_) => Feature::WordBare,
            None => Feature::WordInner,
        };
        tally.add(word, 1);
        tally.add(Feature::OtherOver8, over(8));
    }

    #[inline]
    fn digits(&mut self) {
        let digits = run(self.rest, Class::Digit);
        self.tally.add(Feature::Digits, amount(digits.div_ceil(3)));
        self.advance(digits);
        self.lead = Lead::Bare;
    }

    fn control(&mut self) {
        let count = run(self.rest, Class::Control).max(1);
        self.tally.add(Feature::Control, amount(count));
        self.advance(count);
        self.lead = Lead::Bare;
    }

    /// White space: one piece up to the last line break, one for the blanks behind it. The last
    /// blank goes to the word or mark that follows.
    #[inline]
    fn white_space(&mut self) {
        if let [b' ', next, ..] = *self.rest
            && let Class::Letter | Class::Mark = Class::of(next)
        {
            self.advance(1);
            self.lead = Lead::Blank;
            return;
        }
        let (mut breaks, mut returns, mut blanks) = (0_u32, 0_u32, 0_u32);
        while let Some(&byte) = self.rest.first() {
            let mut length = 1;
            match byte {
                b' ' => {
                    length = run_of(self.rest, b' ');
                    blanks = blanks.wrapping_add(amount(length));
                }
                b'\t' => blanks = blanks.wrapping_add(1),
                b'\n' => {
                    breaks = breaks.wrapping_add(1);
                    blanks = 0;
                }
                b'\r' => {
                    returns = returns.wrapping_add(1);
                    blanks = 0;
                }
                _ => break,
            }
            self.advance(length);
        }
        if breaks > 0 || returns > 0 {
            self.tally.add(Feature::LineBreaks, 1);
            self.tally.add(Feature::CarriageReturn, returns);
            self.tally.add(Feature::LongRun, breaks / LONG_RUN);
        }
        self.lead = if blanks > 0 && self.joins_a_blank() { Lead::Blank } else { Lead::Bare };
        let alone = blanks.saturating_sub(u32::from(self.lead == Lead::Blank));
        if alone > 0 {
            let piece = if blanks == 1 { Feature::BlankAlone } else { Feature::Blanks };
            self.tally.add(piece, 1);
            self.tally.add(Feature::LongRun, alone / LONG_RUN);
        }
    }

    /// Whether the piece that starts here takes a blank along.
    #[inline]
    fn joins_a_blank(&self) -> bool {
        match self.rest.first() {
            None | Some(b'0'..=b'9') => false,
            Some(0x80..) => wide(self.rest).is_some_and(|(c, _)| !Script::of(c).leaves_the_blank()),
            Some(_) => true,
        }
    }

    /// Punctuation: a run, with the line breaks behind it. A single mark joins the word behind it.
    #[inline]
    fn marks(&mut self) {
        let joined = self.lead == Lead::Blank;
        self.lead = Lead::Bare;
        let [_, behind @ ..] = self.rest else { return };
        let next = behind.first().map(|&next| Class::of(next));
        if next == Some(Class::Mark) {
            self.mark_run();
        } else {
            self.rest = behind;
            if next == Some(Class::Letter) && !joined {
                self.lead = Lead::Mark;
                return;
            }
        }
        self.tally.add(Feature::Marks, 1);
        if self.rest.first() == Some(&b'\n') {
            self.tally.add(Feature::MarkedLineBreaks, 1);
            let breaks = run_of(self.rest, b'\n');
            self.tally.add(Feature::LongRun, amount(breaks) / LONG_RUN);
            self.advance(breaks);
        }
    }

    /// Takes a run of marks: what they cost besides, by how they change.
    #[inline]
    fn mark_run(&mut self) {
        let length = run(self.rest, Class::Mark);
        let run = self.rest.get(..length).unwrap_or_default();
        self.advance(length);
        let tally = &mut self.tally;
        let length = amount(length);
        if length <= SHORT_RUN {
            let pairs = run.iter().zip(run.iter().skip(1));
            let equal = pairs.fold(0_u32, |sum, (a, b)| sum.wrapping_add(u32::from(a == b)));
            tally.add(Feature::MarkRepeat, equal);
            tally.add(Feature::MarkChangeOver2, length.wrapping_sub(equal).saturating_sub(2));
            return;
        }
        let mut repeats = Repeats::default();
        for &mark in run {
            repeats.push(u32::from(mark));
        }
        tally.add(Feature::MarkChangeOver2, repeats.changes.saturating_sub(2));
        tally.add(Feature::MarkRepeat, repeats.equal);
        tally.add(Feature::LongRun, repeats.long);
    }
}

/// A part of a word. Without a lead it continues the part before it.
struct Part {
    lead: Option<Lead>,
    letters: u32,
    capitals: u32,
}

impl Part {
    #[inline]
    const fn new(lead: Option<Lead>) -> Self {
        Self { lead, letters: 0, capitals: 0 }
    }
}

/// An amount that no text in memory makes overflow in practice, and that saturates if one does.
#[inline]
fn amount(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
