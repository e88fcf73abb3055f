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
    WordSpaced = 1034,
    /// A word right after a single punctuation mark.
    WordMarked = 1467,
    /// A word at the start of a line, or after digits or a run of punctuation.
    WordBare = 1004,
    /// A further part of a word in camel case.
    WordInner = 1021,
    /// Letters past the sixth of a word after a blank.
    SpacedOver6 = 0,
    /// Letters past the tenth.
    SpacedOver10 = 148,
    /// Letters past the thirteenth.
    SpacedOver13 = 628,
    /// Letters past the fourth of any other word.
    OtherOver4 = 24,
    /// Letters past the sixth.
    OtherOver6 = 0,
    /// Letters past the ninth.
    OtherOver9 = 199,
    /// A part in capitals.
    Capitals = 1541,
    /// Its letters past the second.
    CapitalsOver2 = 195,
    /// A word within reach of an accented letter, which costs this much more.
    NearAccent = 116,
    /// Its letters past the fourth.
    NearAccentOver4 = 176,
    /// A Western European letter beyond ASCII.
    Accent = 100,
    /// One of Central Europe, Turkey and others.
    AccentCentral = 1994,
    /// A Vietnamese letter or a combining mark.
    AccentFar = 388,
    /// Up to three digits.
    Digits = 1005,
    /// A blank that joins nothing: before a digit, a hanzi, kana or the end.
    BlankAlone = 963,
    /// Two or more blanks.
    Blanks = 850,
    /// White space up to a line break.
    LineBreaks = 1259,
    /// Line breaks that a run of punctuation takes along.
    MarkedLineBreaks = 316,
    /// A carriage return.
    CarriageReturn = 1024,
    /// A run of ASCII punctuation.
    Marks = 1049,
    /// A mark that differs from the one before it.
    MarkChange = 29,
    /// The same past the third.
    MarkChangeOver3 = 1068,
    /// A mark equal to the one before it, as long as the run is short.
    MarkRepeat = 294,
    /// Many more of one character.
    LongRun = 1024,
    /// A control character.
    Control = 1024,
    /// A run of hanzi.
    HanRun = 163,
    /// A hanzi.
    Han = 492,
    /// A hiragana.
    Hiragana = 475,
    /// A run of katakana.
    KatakanaRun = 2435,
    /// A katakana.
    Katakana = 301,
    /// A run of Hangul.
    HangulRun = 686,
    /// A Hangul syllable.
    Hangul = 573,
    /// A run of Cyrillic letters in Russian.
    RussianRun = 571,
    /// A Cyrillic letter in Russian.
    Russian = 205,
    /// A run of Cyrillic letters in another language.
    CyrillicRun = 711,
    /// A Cyrillic letter in another language.
    Cyrillic = 340,
    /// What a capital in Cyrillic costs more.
    CyrillicCapital = 569,
    /// A Greek letter.
    Greek = 541,
    /// An Arabic letter.
    Arabic = 430,
    /// A Hebrew letter.
    Hebrew = 558,
    /// A letter or sign of Devanagari.
    Devanagari = 689,
    /// One of Bengali or Tamil.
    Bengali = 562,
    /// One of the other Indic scripts.
    Indic = 918,
    /// One of Thai.
    Thai = 363,
    /// An Armenian or Georgian letter.
    Caucasian = 765,
    /// Any other letter.
    OtherLetter = 1149,
    /// A typographic quote, dash or the like.
    GeneralMark = 1394,
    /// Chinese or Japanese punctuation, or a full-width form.
    WideMark = 1044,
    /// An arrow, a piece of a frame, a sign of mathematics or currency.
    Symbol = 1335,
    /// An emoji of the usual blocks.
    Emoji = 2048,
    /// Any other character beyond the basic plane.
    Astral = 3584,
    /// A joiner or selector between emoji, or a skin tone.
    Joiner = 1024,
}
