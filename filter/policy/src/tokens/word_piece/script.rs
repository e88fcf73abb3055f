//! Characters beyond ASCII, grouped by what they cost.

use super::feature::Feature;

/// Characters that cost alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// Part of a Latin word, not a script of its own here.
    Latin,
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    Devanagari,
    Bengali,
    Indic,
    Thai,
    Caucasian,
    OtherLetter,
    GeneralMark,
    WideMark,
    Symbol,
    Emoji,
    Astral,
    Joiner,
}

impl Script {
    /// The script of a character beyond ASCII.
    #[inline]
    pub(super) const fn of(c: char) -> Self {
        match c {
            '\u{4E00}'..='\u{9FFF}'
            | '\u{3400}'..='\u{4DBF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{3FFFF}' => Self::Han,
            '\u{3000}'..='\u{303F}' | '\u{FE30}'..='\u{FE4F}' | '\u{FF00}'..='\u{FFEF}' => {
                Self::WideMark
            }
            '\u{3040}'..='\u{309F}' => Self::Hiragana,
            '\u{30A0}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' => Self::Katakana,
            '\u{AC00}'..='\u{D7FF}' | '\u{1100}'..='\u{11FF}' | '\u{3130}'..='\u{318F}' => {
                Self::Hangul
            }
            '\u{80}'..='\u{BF}' | '\u{D7}' | '\u{F7}' | '\u{2070}'..='\u{2BFF}' => Self::Symbol,
            '\u{C0}'..='\u{36F}' | '\u{1E00}'..='\u{1EFF}' => Self::Latin,
            '\u{400}'..='\u{52F}' => Self::Cyrillic,
            '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}' => Self::Greek,
            '\u{590}'..='\u{5FF}' => Self::Hebrew,
            '\u{600}'..='\u{77F}' | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFE}' => {
                Self::Arabic
            }
            '\u{900}'..='\u{97F}' => Self::Devanagari,
            '\u{980}'..='\u{9FF}' | '\u{B80}'..='\u{BFF}' => Self::Bengali,
            '\u{A00}'..='\u{DFF}' => Self::Indic,
            '\u{530}'..='\u{58F}' | '\u{10A0}'..='\u{10FF}' => Self::Caucasian,
            '\u{E00}'..='\u{E7F}' => Self::Thai,
            '\u{200B}'..='\u{200F}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{1F3FB}'..='\u{1F3FF}'
            | '\u{E0000}'..='\u{E01EF}' => Self::Joiner,
            '\u{2000}'..='\u{206F}' => Self::GeneralMark,
            '\u{1F300}'..='\u{1FAFF}' => Self::Emoji,
            '\u{10000}'.. => Self::Astral,
            _ => Self::OtherLetter,
        }
    }

    /// What one character costs.
    #[inline]
    pub(super) const fn each(self) -> Feature {
        match self {
            Self::Han => Feature::Han,
            Self::Hiragana => Feature::Hiragana,
            Self::Katakana => Feature::Katakana,
            Self::Hangul => Feature::Hangul,
            Self::Cyrillic => Feature::Russian,
            Self::Greek => Feature::Greek,
            Self::Arabic => Feature::Arabic,
            Self::Hebrew => Feature::Hebrew,
            Self::Devanagari => Feature::Devanagari,
            Self::Bengali => Feature::Bengali,
            Self::Indic => Feature::Indic,
            Self::Thai => Feature::Thai,
            Self::Caucasian => Feature::Caucasian,
            Self::Latin | Self::OtherLetter => Feature::OtherLetter,
            Self::GeneralMark => Feature::GeneralMark,
            Self::WideMark => Feature::WideMark,
            Self::Symbol => Feature::Symbol,
            Self::Emoji => Feature::Emoji,
            Self::Astral => Feature::Astral,
            Self::Joiner => Feature::Joiner,
        }
    }

    /// What a run of it costs besides.
    #[inline]
    pub(super) const fn run(self) -> Option<Feature> {
        match self {
            Self::Han => Some(Feature::HanRun),
            Self::Katakana => Some(Feature::KatakanaRun),
            Self::Hangul => Some(Feature::HangulRun),
            Self::Cyrillic => Some(Feature::RussianRun),
            _ => None,
        }
    }

    /// Whether a blank before it stays a piece of its own.
    pub(super) const fn leaves_the_blank(self) -> bool {
        matches!(self, Self::Han | Self::Hiragana | Self::Katakana)
    }

    /// Whether equal characters in a row share tokens, as signs do in rulers and frames.
    pub(super) const fn shares_when_repeated(self) -> bool {
        matches!(self, Self::GeneralMark | Self::WideMark | Self::Symbol)
    }
}

/// Whether a hanzi is one of some common ones that are written so in traditional Chinese alone
/// (hardly in Japanese). One candidate for each value of the low bits makes it a single comparison.
#[inline]
pub(super) fn is_traditional(hanzi: u32) -> bool {
    TRADITIONAL.get((hanzi % 64) as usize) == Some(&hanzi)
}

static TRADITIONAL: [u32; 64] = {
    let mut table = [0; 64];
    let mut rest: &mut [u32] = &mut table;
    let mut low: u32 = 0;
    while let [entry, after @ ..] = rest {
        *entry = candidate(low) as u32;
        low = low.wrapping_add(1);
        rest = after;
    }
    table
};

/// The hanzi that stands for a value of the low six bits, which are its own.
const fn candidate(low: u32) -> char {
    match low {
        0 => '區',
        3 => '會',
        4 => '錄',
        6 => '來',
        7 => '與',
        9 => '應',
        10 => '變',
        11 => '國',
        13 => '對',
        17 => '們',
        18 => '沒',
        19 => '經',
        20 => '檔',
        21 => '處',
        25 => '這',
        28 => '關',
        30 => '從',
        33 => '裡',
        34 => '產',
        35 => '樣',
        38 => '實',
        42 => '說',
        46 => '單',
        54 => '當',
        56 => '學',
        60 => '麼',
        _ => '\0',
    }
}
