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
    WordSpaced = 1021,
    /// A word right after a single punctuation mark.
    WordMarked = 1462,
    /// A word at the start of a line, or after digits or a run of punctuation.
    WordBare = 1052,
    /// A further part of a word in camel case.
    WordInner = 1048,
    /// Letters past the sixth of a word after a blank.
    SpacedOver6 = 25,
    /// Letters past the tenth.
    SpacedOver10 = 0,
    /// Letters past the thirteenth.
    SpacedOver13 = 1344,
    /// Letters past the fourth of any other word.
    OtherOver4 = 19,
    /// Letters past the sixth.
    OtherOver6 = 0,
    /// Letters past the ninth.
    OtherOver9 = 277,
    /// A part in capitals.
    Capitals = 1371,
    /// Its letters past the second.
    CapitalsOver2 = 175,
    /// A word within reach of an accented letter, which costs this much more.
    NearAccent = 264,
    /// Its letters past the fourth.
    NearAccentOver4 = 99,
    /// A Western European letter beyond ASCII.
    Accent = 0,
    /// One of Central Europe, Turkey and others.
    AccentCentral = 2144,
    /// A Vietnamese letter or a combining mark.
    AccentFar = 119,
    /// Up to three digits.
    Digits = 1013,
    /// A blank that joins nothing: before a digit, a hanzi, kana or the end.
    BlankAlone = 950,
    /// Two or more blanks.
    Blanks = 882,
    /// White space up to a line break.
    LineBreaks = 1247,
    /// Line breaks that a run of punctuation takes along.
    MarkedLineBreaks = 202,
    /// A carriage return.
    CarriageReturn = 1024,
    /// A run of ASCII punctuation.
    Marks = 1049,
    /// A mark that differs from the one before it.
    MarkChange = 0,
    /// The same past the third.
    MarkChangeOver3 = 1208,
    /// A mark equal to the one before it, as long as the run is short.
    MarkRepeat = 465,
    /// Many more of one character.
    LongRun = 1024,
    /// A control character.
    Control = 1024,
    /// A run of hanzi.
    HanRun = 223,
    /// A hanzi.
    Han = 487,
    /// A hanzi in traditional Chinese.
    Traditional = 647,
    /// A hiragana.
    Hiragana = 484,
    /// A run of katakana.
    KatakanaRun = 1228,
    /// A katakana.
    Katakana = 512,
    /// A run of Hangul.
    HangulRun = 723,
    /// A Hangul syllable.
    Hangul = 563,
    /// A run of Cyrillic letters in Russian.
    RussianRun = 584,
    /// A Cyrillic letter in Russian.
    Russian = 205,
    /// A run of Cyrillic letters in another language.
    CyrillicRun = 661,
    /// A Cyrillic letter in another language.
    Cyrillic = 349,
    /// What a capital in Cyrillic costs more.
    CyrillicCapital = 547,
    /// A Greek letter.
    Greek = 541,
    /// An Arabic letter.
    Arabic = 432,
    /// A Hebrew letter.
    Hebrew = 560,
    /// A letter or sign of Devanagari.
    Devanagari = 692,
    /// One of Bengali or Tamil.
    Bengali = 564,
    /// One of the other Indic scripts.
    Indic = 920,
    /// One of Thai.
    Thai = 364,
    /// An Armenian or Georgian letter.
    Caucasian = 766,
    /// Any other letter.
    OtherLetter = 1139,
    /// A typographic quote, dash or the like.
    GeneralMark = 1371,
    /// Chinese or Japanese punctuation, or a full-width form.
    WideMark = 1013,
    /// An arrow, a piece of a frame, a sign of mathematics or currency.
    Symbol = 1721,
    /// An emoji of the usual blocks.
    Emoji = 2048,
    /// Any other character beyond the basic plane.
    Astral = 3584,
    /// A joiner or selector between emoji, or a skin tone.
    Joiner = 1024,
}
