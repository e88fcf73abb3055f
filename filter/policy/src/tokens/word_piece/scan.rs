//! Cuts a text into the pieces a byte-pair vocabulary starts from and names what each costs.
//!
//! The pieces follow the pre-tokenizer of DeepSeek: digits by threes, a word with the blank or the
//! one mark before it, runs of punctuation with the line breaks behind them, white space. What the
//! merges then make of a piece is guessed from its length and script. The scan only reports
//! features; the estimate weighs them and a fit collects them, so the two cannot drift apart.

use super::feature::Feature;

/// Where the scan reports to.
pub(super) trait Tally {
    /// `amount` more of `feature`.
    fn add(&mut self, feature: Feature, amount: u32);
}

/// Reports the features of one text.
#[inline]
pub(super) fn scan(text: &str, tally: &mut impl Tally) {
    let mut rest = text;
    let mut lead = Lead::Bare;
    while let Some(&first) = rest.as_bytes().first() {
        (rest, lead) = match first {
            b'a'..=b'z' | b'A'..=b'Z' => (word(rest, lead, tally), Lead::Bare),
            b' ' | b'\t' | b'\n' | b'\r' => white_space(rest, tally),
            b'0'..=b'9' => {
                let (digits, after) = run(rest, |b| b.is_ascii_digit());
                tally.add(Feature::Digits, digits.div_ceil(3));
                (after, Lead::Bare)
            }
            b'!'..=b'~' => marks(rest, lead, tally),
            0x80.. => beyond_ascii(rest, lead, tally),
            _ => {
                let (count, after) =
                    run(rest, |b| b.is_ascii_control() && !b.is_ascii_whitespace());
                tally.add(Feature::Control, count.max(1));
                (if count == 0 { skip(rest, 1) } else { after }, Lead::Bare)
            }
        };
    }
}

/// What stands before a word and belongs to its piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    Bare,
    Blank,
    Mark,
}

fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

/// Length of the run of matching ASCII bytes at the start, and what follows it.
#[inline]
fn run(text: &str, matches: impl Fn(u8) -> bool) -> (u32, &str) {
    let bytes = text.as_bytes();
    let length = bytes
        .iter()
        .position(|&b| !matches(b))
        .unwrap_or(bytes.len());
    (
        u32::try_from(length).unwrap_or(u32::MAX),
        skip(text, length),
    )
}

/// A word of Latin letters, cut where camel case changes.
#[inline]
fn word<'t>(text: &'t str, lead: Lead, tally: &mut impl Tally) -> &'t str {
    let mut part = Part {
        lead: Some(lead),
        letters: 0,
        capitals: 0,
    };
    let mut rest = text;
    loop {
        match rest.as_bytes().first() {
            Some(b'a'..=b'z') => {
                if part.capitals > 1 && part.capitals == part.letters {
                    // `HTTPServer`: the last capital belongs to what follows.
                    part.letters = part.letters.saturating_sub(1);
                    part.close(tally);
                    part = Part {
                        lead: None,
                        letters: 1,
                        capitals: 1,
                    };
                }
                part.letters = part.letters.saturating_add(1);
                rest = skip(rest, 1);
            }
            Some(b'A'..=b'Z') => {
                if part.letters > part.capitals {
                    part.close(tally);
                    part = Part {
                        lead: None,
                        letters: 0,
                        capitals: 0,
                    };
                }
                part.letters = part.letters.saturating_add(1);
                part.capitals = part.capitals.saturating_add(1);
                rest = skip(rest, 1);
            }
            Some(0xC3..) => {
                let Some(letter) = rest.chars().next() else {
                    break;
                };
                let far = match letter {
                    '\u{C0}'..='\u{24F}' => false,
                    '\u{300}'..='\u{36F}' | '\u{1E00}'..='\u{1EFF}' => true,
                    _ => break,
                };
                tally.add(
                    if far {
                        Feature::AccentFar
                    } else {
                        Feature::Accent
                    },
                    1,
                );
                part.letters = part.letters.saturating_add(1);
                rest = skip(rest, letter.len_utf8());
            }
            _ => break,
        }
    }
    part.close(tally);
    rest
}

/// A part of a word; without a lead it continues the part before it.
struct Part {
    lead: Option<Lead>,
    letters: u32,
    capitals: u32,
}

impl Part {
    #[inline]
    fn close(&self, tally: &mut impl Tally) {
        if self.letters == 0 {
            return;
        }
        let over = |limit: u32| self.letters.saturating_sub(limit);
        if self.capitals > 1 && self.capitals >= self.letters {
            tally.add(Feature::Capitals, 1);
            tally.add(Feature::CapitalsOver2, over(2));
            return;
        }
        if self.lead == Some(Lead::Blank) {
            tally.add(Feature::WordSpaced, 1);
            tally.add(Feature::SpacedOver4, over(4));
            tally.add(Feature::SpacedOver6, over(6));
            tally.add(Feature::SpacedOver9, over(9));
            tally.add(Feature::SpacedOver13, over(13));
            return;
        }
        let kind = match self.lead {
            Some(Lead::Mark) => Feature::WordMarked,
            Some(_) => Feature::WordBare,
            None => Feature::WordInner,
        };
        tally.add(kind, 1);
        tally.add(Feature::OtherOver4, over(4));
        tally.add(Feature::OtherOver6, over(6));
        tally.add(Feature::OtherOver9, over(9));
        tally.add(Feature::OtherOver13, over(13));
    }
}

/// White space: one piece up to the last line break, one for the blanks behind it; the last blank
/// goes to the word or mark that follows.
#[inline]
fn white_space<'t>(text: &'t str, tally: &mut impl Tally) -> (&'t str, Lead) {
    let (mut broken, mut breaks, mut returns, mut blanks) = (false, 0_u32, 0_u32, 0_u32);
    let mut rest = text;
    loop {
        match rest.as_bytes().first() {
            Some(b' ' | b'\t') => blanks = blanks.saturating_add(1),
            Some(b'\n') => {
                (broken, blanks) = (true, 0);
                breaks = breaks.saturating_add(1);
            }
            Some(b'\r') => {
                (broken, blanks) = (true, 0);
                returns = returns.saturating_add(1);
            }
            _ => break,
        }
        rest = skip(rest, 1);
    }
    if broken {
        tally.add(Feature::LineBreaks, 1);
        tally.add(Feature::CarriageReturn, returns);
        tally.add(Feature::LongRun, breaks / 32);
    }
    let joins = blanks > 0 && joins_a_blank(rest);
    match blanks.saturating_sub(u32::from(joins)) {
        0 => {}
        1 if blanks == 1 => tally.add(Feature::BlankAlone, 1),
        alone => {
            tally.add(Feature::Blanks, 1);
            tally.add(Feature::LongRun, alone / 128);
        }
    }
    (rest, if joins { Lead::Blank } else { Lead::Bare })
}

/// Whether the piece that starts here takes a blank along.
#[inline]
fn joins_a_blank(text: &str) -> bool {
    match text.as_bytes().first() {
        None | Some(b'0'..=b'9') => false,
        Some(0x80..) => text
            .chars()
            .next()
            .is_some_and(|c| !matches!(group(c), Group::Han | Group::Hiragana | Group::Katakana)),
        Some(_) => true,
    }
}

/// Repeats of one character that are counted one by one; the rest goes by the long run.
const SHORT_RUN: u32 = 3;

/// Punctuation: a run, with the line breaks behind it. A single mark before a word joins the word.
#[inline]
fn marks<'t>(text: &'t str, lead: Lead, tally: &mut impl Tally) -> (&'t str, Lead) {
    let (mut changes, mut repeats, mut in_a_row, mut previous) = (0_u32, 0_u32, 0_u32, None);
    let mut long = 0_u32;
    let (length, rest) = run(text, |b| b.is_ascii_punctuation());
    for &mark in text
        .as_bytes()
        .iter()
        .take(usize::try_from(length).unwrap_or(usize::MAX))
    {
        if previous == Some(mark) {
            in_a_row = in_a_row.saturating_add(1);
            if in_a_row <= SHORT_RUN {
                repeats = repeats.saturating_add(1);
            } else if in_a_row.is_multiple_of(32) {
                long = long.saturating_add(1);
            }
        } else {
            in_a_row = 0;
            changes = changes.saturating_add(1);
        }
        previous = Some(mark);
    }
    let next = rest.as_bytes().first();
    if length == 1 && lead != Lead::Blank && next.is_some_and(u8::is_ascii_alphabetic) {
        return (rest, Lead::Mark);
    }
    tally.add(Feature::Marks, 1);
    tally.add(Feature::MarkChange, changes.saturating_sub(1));
    tally.add(Feature::MarkChangeOver3, changes.saturating_sub(3));
    tally.add(Feature::MarkRepeat, repeats);
    tally.add(Feature::LongRun, long);
    if next != Some(&b'\n') {
        return (rest, Lead::Bare);
    }
    let (breaks, rest) = run(rest, |b| b == b'\n');
    tally.add(Feature::MarkedLineBreaks, 1);
    tally.add(Feature::LongRun, breaks / 32);
    (rest, Lead::Bare)
}

/// Characters beyond ASCII that cost alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Latin,
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    Indic,
    Thai,
    OtherLetter,
    GeneralMark,
    WideMark,
    Symbol,
    Emoji,
    Joiner,
}

#[inline]
fn group(c: char) -> Group {
    match c {
        '\u{4E00}'..='\u{9FFF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}' => Group::Han,
        '\u{3000}'..='\u{303F}' | '\u{FF00}'..='\u{FFEF}' | '\u{FE30}'..='\u{FE4F}' => {
            Group::WideMark
        }
        '\u{3040}'..='\u{309F}' => Group::Hiragana,
        '\u{30A0}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' => Group::Katakana,
        '\u{AC00}'..='\u{D7FF}' | '\u{1100}'..='\u{11FF}' | '\u{3130}'..='\u{318F}' => {
            Group::Hangul
        }
        '\u{80}'..='\u{BF}' | '\u{D7}' | '\u{F7}' | '\u{2100}'..='\u{2BFF}' => Group::Symbol,
        '\u{C0}'..='\u{36F}' | '\u{1E00}'..='\u{1EFF}' => Group::Latin,
        '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}' => Group::Greek,
        '\u{400}'..='\u{52F}' => Group::Cyrillic,
        '\u{590}'..='\u{5FF}' => Group::Hebrew,
        '\u{600}'..='\u{77F}' | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFE}' => Group::Arabic,
        '\u{900}'..='\u{DFF}' => Group::Indic,
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' => Group::Thai,
        '\u{200B}'..='\u{200F}'
        | '\u{FE00}'..='\u{FE0F}'
        | '\u{1F3FB}'..='\u{1F3FF}'
        | '\u{E0000}'.. => Group::Joiner,
        '\u{2000}'..='\u{20FF}' => Group::GeneralMark,
        '\u{10000}'.. => Group::Emoji,
        _ => Group::OtherLetter,
    }
}

/// A run of characters of one group.
#[inline]
fn beyond_ascii<'t>(text: &'t str, lead: Lead, tally: &mut impl Tally) -> (&'t str, Lead) {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return ("", Lead::Bare);
    };
    let this = group(first);
    let (start, each) = match this {
        Group::Latin => return (word_beyond_ascii(text, lead, tally), Lead::Bare),
        Group::Han => (Feature::HanRun, Feature::Han),
        Group::Hiragana => (Feature::HiraganaRun, Feature::Hiragana),
        Group::Katakana => (Feature::KatakanaRun, Feature::Katakana),
        Group::Hangul => (Feature::HangulRun, Feature::Hangul),
        Group::Cyrillic => (Feature::CyrillicRun, Feature::Cyrillic),
        Group::Greek => (Feature::GreekRun, Feature::Greek),
        Group::Arabic => (Feature::ArabicRun, Feature::Arabic),
        Group::Hebrew => (Feature::HebrewRun, Feature::Hebrew),
        Group::Indic => (Feature::IndicRun, Feature::Indic),
        Group::Thai => (Feature::ThaiRun, Feature::Thai),
        Group::OtherLetter => (Feature::OtherLetterRun, Feature::OtherLetter),
        Group::GeneralMark => (Feature::GeneralMarkRun, Feature::GeneralMark),
        Group::WideMark => (Feature::WideMarkRun, Feature::WideMark),
        Group::Symbol => (Feature::SymbolRun, Feature::Symbol),
        Group::Emoji => (Feature::EmojiRun, Feature::Emoji),
        Group::Joiner => (Feature::Joiner, Feature::Joiner),
    };
    // Signs repeat in rulers and frames and then share tokens; a letter seldom does.
    let shares = matches!(this, Group::GeneralMark | Group::WideMark | Group::Symbol);
    let (mut amount, mut in_a_row, mut long, mut previous) = (1_u32, 0_u32, 0_u32, first);
    let mut rest = chars.as_str();
    for c in chars {
        if c.is_ascii() || group(c) != this {
            break;
        }
        in_a_row = if c == previous {
            in_a_row.saturating_add(1)
        } else {
            0
        };
        if !shares || in_a_row <= SHORT_RUN {
            amount = amount.saturating_add(1);
        } else if in_a_row.is_multiple_of(32) {
            long = long.saturating_add(1);
        }
        previous = c;
        rest = skip(rest, c.len_utf8());
    }
    if this != Group::Joiner {
        tally.add(start, 1);
    }
    tally.add(each, amount);
    tally.add(Feature::LongRun, long);
    (rest, Lead::Bare)
}

/// A word whose first letter is accented. Letters that `word` does not take (such as those of the
/// phonetic alphabet) count one by one, so that the scan always moves on.
#[inline]
fn word_beyond_ascii<'t>(text: &'t str, lead: Lead, tally: &mut impl Tally) -> &'t str {
    let rest = word(text, lead, tally);
    if rest.len() < text.len() {
        return rest;
    }
    let mut chars = text.chars();
    chars.next();
    tally.add(Feature::OtherLetter, 1);
    chars.as_str()
}
