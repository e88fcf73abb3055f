//! Cuts a text into the pieces a byte-pair vocabulary starts from and names what each costs.
//!
//! The pieces follow the pre-tokenizer of `DeepSeek`: digits by threes, a word with the blank or the
//! one mark before it, a run of punctuation with the line breaks behind it, white space. What the
//! merges then make of a piece is guessed from its length and script. The scan only reports
//! features; the estimate weighs them and a fit collects them, so that the two cannot drift apart.

use super::feature::Feature;
use super::repeats::{LONG_RUN, Repeats};
use super::script::{Script, is_traditional};

/// Where the scan reports to.
pub(super) trait Tally {
    /// `amount` more of `feature`.
    fn add(&mut self, feature: Feature, amount: u32);
}

/// Reports the features of one text.
#[inline]
pub(super) fn scan(text: &str, tally: &mut impl Tally) {
    let mut scan = Scan {
        rest: text,
        lead: Lead::Bare,
        accents: 0,
        russian: LANGUAGE_REACH,
        traditional: 0,
        tally,
    };
    while let Some(&first) = scan.rest.as_bytes().first() {
        match first {
            b'a'..=b'z' | b'A'..=b'Z' => scan.words(),
            b' ' | b'\t' | b'\n' | b'\r' => scan.white_space(),
            b'0'..=b'9' => scan.digits(),
            b'!'..=b'~' => scan.marks(),
            0x80.. => scan.beyond_ascii(),
            _ => scan.control(),
        }
    }
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

/// The bit in which small ASCII letters differ from capitals.
const LOWER_CASE: u8 = 0x20;

/// State of one pass over a text.
struct Scan<'t, 's, T> {
    rest: &'t str,
    lead: Lead,
    /// Words left for which the last accented letter counts.
    accents: u32,
    /// Words left for which Cyrillic counts as Russian, which vocabularies know best.
    russian: u32,
    /// Runs of hanzi left that count as traditional, which vocabularies know less well.
    traditional: u32,
    tally: &'s mut T,
}

impl<T: Tally> Scan<'_, '_, T> {
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Length of the run of matching bytes, all ASCII, that starts here.
    #[inline]
    fn run(&self, matches: impl Fn(u8) -> bool) -> usize {
        let bytes = self.rest.as_bytes();
        bytes.iter().position(|&byte| !matches(byte)).unwrap_or(bytes.len())
    }

    /// A word of Latin letters, and those that follow after one blank each: most of most texts.
    #[inline]
    fn words(&mut self) {
        self.word();
        while let [b' ', b'a'..=b'z' | b'A'..=b'Z', ..] = self.rest.as_bytes() {
            self.advance(1);
            self.lead = Lead::Blank;
            self.word();
        }
    }

    /// A word of Latin letters, cut where camel case changes.
    #[inline]
    fn word(&mut self) {
        let mut part = Part::new(Some(self.lead));
        self.lead = Lead::Bare;
        loop {
            let bytes = self.rest.as_bytes();
            let (mut length, mut capitals) = (0_usize, 0_u32);
            for &byte in bytes {
                if !byte.is_ascii_alphabetic() {
                    break;
                }
                length = length.saturating_add(1);
                capitals = capitals.saturating_add(u32::from(byte & LOWER_CASE == 0));
            }
            let starts = part.letters == 0 && bytes.first().is_some_and(u8::is_ascii_uppercase);
            if capitals == 0 || (capitals == 1 && starts) {
                part.letters = part.letters.saturating_add(amount(length));
                part.capitals = part.capitals.saturating_add(capitals);
            } else {
                part = self.cut_camel_case(part, bytes.get(..length).unwrap_or_default());
            }
            self.advance(length);
            let Some(letter) = self.accented() else { break };
            part.letters = part.letters.saturating_add(1);
            self.advance(letter.len_utf8());
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
                part.capitals = part.capitals.saturating_add(1);
            } else if part.capitals > 1 && part.capitals == part.letters {
                // `HTTPServer`: the last capital belongs to what follows.
                part.letters = part.letters.saturating_sub(1);
                self.close(&part);
                part = Part { lead: None, letters: 1, capitals: 1 };
            }
            part.letters = part.letters.saturating_add(1);
        }
        part
    }

    /// The accented letter that stands here, if one does.
    #[inline]
    fn accented(&mut self) -> Option<char> {
        if self.rest.as_bytes().first().is_none_or(u8::is_ascii) {
            return None;
        }
        let letter = self.rest.chars().next()?;
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
        Some(letter)
    }

    #[inline]
    fn close(&mut self, part: &Part) {
        if part.letters == 0 {
            return;
        }
        let tally = &mut *self.tally;
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
        let digits = self.run(|byte| byte.is_ascii_digit());
        self.tally.add(Feature::Digits, amount(digits.div_ceil(3)));
        self.advance(digits);
        self.lead = Lead::Bare;
    }

    fn control(&mut self) {
        let is_control = |byte: u8| byte.is_ascii_control() && !b"\t\n\r".contains(&byte);
        let count = self.run(is_control).max(1);
        self.tally.add(Feature::Control, amount(count));
        self.advance(count);
        self.lead = Lead::Bare;
    }

    /// White space: one piece up to the last line break, one for the blanks behind it. The last
    /// blank goes to the word or mark that follows.
    #[inline]
    fn white_space(&mut self) {
        let (mut breaks, mut returns, mut blanks, mut length) = (0_u32, 0_u32, 0_u32, 0_usize);
        for byte in self.rest.bytes() {
            match byte {
                b' ' | b'\t' => blanks = blanks.saturating_add(1),
                b'\n' => {
                    breaks = breaks.saturating_add(1);
                    blanks = 0;
                }
                b'\r' => {
                    returns = returns.saturating_add(1);
                    blanks = 0;
                }
                _ => break,
            }
            length = length.saturating_add(1);
        }
        self.advance(length);
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
        match self.rest.as_bytes().first() {
            None | Some(b'0'..=b'9') => false,
            Some(0x80..) => {
                self.rest.chars().next().is_some_and(|c| !Script::of(c).leaves_the_blank())
            }
            Some(_) => true,
        }
    }

    /// Punctuation: a run, with the line breaks behind it. A single mark joins the word behind it.
    #[inline]
    fn marks(&mut self) {
        let length = self.run(|byte| byte.is_ascii_punctuation());
        let run = self.rest.as_bytes().get(..length).unwrap_or_default();
        self.advance(length);
        let next = self.rest.as_bytes().first();
        let blank = self.lead == Lead::Blank;
        self.lead = Lead::Bare;
        if length == 1 && !blank && next.is_some_and(u8::is_ascii_alphabetic) {
            self.lead = Lead::Mark;
            return;
        }
        let mut repeats = Repeats::default();
        for &mark in run {
            repeats.push(u32::from(mark));
        }
        let tally = &mut *self.tally;
        tally.add(Feature::Marks, 1);
        tally.add(Feature::MarkChangeOver2, repeats.changes.saturating_sub(2));
        tally.add(Feature::MarkRepeat, repeats.equal);
        tally.add(Feature::LongRun, repeats.long);
        if next == Some(&b'\n') {
            tally.add(Feature::MarkedLineBreaks, 1);
            let breaks = self.run(|byte| byte == b'\n');
            self.tally.add(Feature::LongRun, amount(breaks) / LONG_RUN);
            self.advance(breaks);
        }
    }

    /// Follows which of two languages or spellings a script stands for.
    #[inline]
    fn tell_language(&mut self, script: Script, letter: char) {
        match script {
            Script::Cyrillic => match letter {
                // No other large language has yery and e.
                'ы' | 'э' | 'Ы' | 'Э' | 'ё' => self.russian = LANGUAGE_REACH,
                '\u{410}'..='\u{42F}' => self.tally.add(Feature::CyrillicCapital, 1),
                '\u{430}'..='\u{44F}' => {}
                _ => self.russian = 0,
            },
            Script::Han if is_traditional(letter) => self.traditional = LANGUAGE_REACH,
            _ => {}
        }
    }

    /// A run of one script, or a word that starts with an accented letter.
    #[inline]
    fn beyond_ascii(&mut self) {
        let mut chars = self.rest.chars();
        let Some(first) = chars.next() else { return };
        let script = Script::of(first);
        if script == Script::Latin {
            let before = self.rest.len();
            self.word();
            // Letters that a word does not take, such as phonetic ones, are passed over one by one.
            if self.rest.len() == before {
                self.tally.add(Feature::OtherLetter, 1);
                self.advance(first.len_utf8());
            }
            return;
        }
        let shares = script.shares_when_repeated();
        let (mut letters, mut repeats, mut length) =
            (1_usize, Repeats::default(), first.len_utf8());
        repeats.push(u32::from(first));
        self.tell_language(script, first);
        for c in chars {
            if c.is_ascii() || Script::of(c) != script {
                break;
            }
            if shares {
                repeats.push(u32::from(c));
            } else {
                self.tell_language(script, c);
            }
            letters = letters.saturating_add(1);
            length = length.saturating_add(c.len_utf8());
        }
        let (run, each) = match script {
            Script::Cyrillic if self.russian == 0 => {
                (Some(Feature::CyrillicRun), Feature::Cyrillic)
            }
            Script::Han if self.traditional > 0 => (Some(Feature::HanRun), Feature::Traditional),
            _ => (script.run(), script.each()),
        };
        match script {
            Script::Cyrillic => self.russian = self.russian.saturating_sub(1),
            Script::Han => self.traditional = self.traditional.saturating_sub(1),
            _ => {}
        }
        if let Some(run) = run {
            self.tally.add(run, 1);
        }
        if shares {
            self.tally.add(each, repeats.changes.saturating_add(repeats.equal));
            self.tally.add(Feature::LongRun, repeats.long);
        } else {
            self.tally.add(each, amount(letters));
        }
        self.advance(length);
        self.lead = Lead::Bare;
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
