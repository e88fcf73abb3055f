//! What the scan reports, and what each costs.

/// Parts of a token in which weights are given; a power of two, so that dividing is a shift.
pub(super) const UNIT: u64 = 1024;

/// Defines the features with their weights in one table.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $weight:literal,)*) => {
        /// What the scan found in a text. Runs and parts count once, letters and marks each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Every feature, in the order of the table.
            pub(super) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Units of one token that one of it costs.
            #[inline]
            pub(super) const fn weight(self) -> u64 {
                match self {
                    $(Self::$name => $weight,)*
                }
            }
        }
    };
}

features! {
    /// A word after a blank.
    WordSpaced = 974,
    /// A word right after a single punctuation mark.
    WordMarked = 1546,
    /// A word at the start of a line, or after digits or a run of punctuation.
    WordBare = 1046,
    /// A further part of a word in camel case.
    WordInner = 738,
    /// Letters past the fourth of a word after a blank.
    SpacedOver4 = 43,
    /// Letters past the sixth.
    SpacedOver6 = 0,
    /// Letters past the ninth.
    SpacedOver9 = 77,
    /// Letters past the thirteenth.
    SpacedOver13 = 710,
    /// Letters past the fourth of any other word.
    OtherOver4 = 6,
    /// Letters past the sixth.
    OtherOver6 = 119,
    /// Letters past the ninth.
    OtherOver9 = 170,
    /// Letters past the thirteenth.
    OtherOver13 = 493,
    /// A part in capitals.
    Capitals = 1372,
    /// Its letters past the second.
    CapitalsOver2 = 228,
    /// A Western or Central European letter beyond ASCII.
    Accent = 2256,
    /// A Vietnamese letter or a combining mark.
    AccentFar = 0,
    /// Up to three digits.
    Digits = 1016,
    /// A blank that joins nothing: before a digit, a hanzi, kana or the end.
    BlankAlone = 1042,
    /// Two or more blanks.
    Blanks = 903,
    /// White space up to a line break.
    LineBreaks = 1431,
    /// Line breaks that a run of punctuation takes along.
    MarkedLineBreaks = 327,
    /// A carriage return.
    CarriageReturn = 0,
    /// A run of ASCII punctuation.
    Marks = 984,
    /// A mark that differs from the one before it.
    MarkChange = 18,
    /// The same past the third.
    MarkChangeOver3 = 1166,
    /// A mark equal to the one before it, as long as the run is short.
    MarkRepeat = 381,
    /// Many more of one character.
    LongRun = 8645,
    /// A control character.
    Control = 0,
    /// A run of hanzi.
    HanRun = 0,
    /// A hanzi.
    Han = 495,
    /// A run of hiragana.
    HiraganaRun = 0,
    /// A hiragana.
    Hiragana = 517,
    /// A run of katakana.
    KatakanaRun = 1942,
    /// A katakana.
    Katakana = 348,
    /// A run of Hangul.
    HangulRun = 854,
    /// A Hangul syllable.
    Hangul = 521,
    /// A run of Cyrillic letters.
    CyrillicRun = 2254,
    /// A Cyrillic letter.
    Cyrillic = 0,
    /// A run of Greek letters.
    GreekRun = 1430,
    /// A Greek letter.
    Greek = 297,
    /// A run of Arabic letters.
    ArabicRun = 0,
    /// An Arabic letter.
    Arabic = 433,
    /// A run of Hebrew letters.
    HebrewRun = 2289,
    /// A Hebrew letter.
    Hebrew = 0,
    /// A run of Indic letters and signs.
    IndicRun = 0,
    /// An Indic letter or sign.
    Indic = 616,
    /// A run of Thai, Lao, Burmese or Khmer.
    ThaiRun = 118,
    /// A letter or sign of these.
    Thai = 354,
    /// A run of any other letters.
    OtherLetterRun = 6416,
    /// Any other letter.
    OtherLetter = 0,
    /// A run of typographic marks.
    GeneralMarkRun = 0,
    /// A typographic quote, dash or the like.
    GeneralMark = 1340,
    /// A run of Chinese or Japanese punctuation.
    WideMarkRun = 0,
    /// Chinese or Japanese punctuation, or a full-width form.
    WideMark = 1148,
    /// A run of symbols.
    SymbolRun = 1431,
    /// An arrow, a piece of a frame, a sign of mathematics or currency.
    Symbol = 0,
    /// A run beyond the basic plane.
    EmojiRun = 2163,
    /// An emoji or another character beyond the basic plane.
    Emoji = 308,
    /// A joiner or selector between emoji, or a skin tone.
    Joiner = 0,
}
