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

// Fitted, but for these. Set by hand because the corpus has too few of them: `CarriageReturn` and
// `Control` (the vocabulary has them alone), `LongRun` (one token by definition), `Joiner` (one to
// three), `Emoji` (common ones 1, most 2, new ones 3), `Astral` (3 or 4, hardly any merges). Set by
// hand because the fit put a whole run's cost on its start, which is absurd for long or short
// runs: `Russian` and `Katakana`, with their runs fitted to the rest.
features! {
    /// A word after a blank.
    WordSpaced = 1007,
    /// A word right after a single punctuation mark.
    WordMarked = 1484,
    /// A word at the start of a line, or after digits or a run of punctuation.
    WordBare = 1055,
    /// A further part of a word in camel case.
    WordInner = 1068,
    /// Letters past the eighth of a word after a blank.
    SpacedOver8 = 156,
    /// Letters past the eighth of any other word or part.
    OtherOver8 = 233,
    /// A part in capitals.
    Capitals = 1215,
    /// Its letters past the second.
    CapitalsOver2 = 234,
    /// A word within reach of an accented letter, which costs this much more.
    NearAccent = 98,
    /// Its letters past the fourth.
    NearAccentOver4 = 204,
    /// What an accented letter of Central Europe, Turkey and others costs more.
    AccentCentral = 1852,
    /// What a Vietnamese letter or a combining mark costs more.
    AccentFar = 535,
    /// Up to three digits.
    Digits = 1013,
    /// A blank that joins nothing: before a digit, a hanzi, kana or the end.
    BlankAlone = 956,
    /// Two or more blanks.
    Blanks = 867,
    /// White space up to a line break.
    LineBreaks = 1270,
    /// Line breaks that a run of punctuation takes along.
    MarkedLineBreaks = 234,
    /// A carriage return.
    CarriageReturn = 1024,
    /// A run of ASCII punctuation.
    Marks = 1045,
    /// A mark past the second that differs from the one before it.
    MarkChangeOver2 = 335,
    /// A mark equal to the one before it, as long as the run is short.
    MarkRepeat = 466,
    /// A further `LONG_RUN` of one character.
    LongRun = 1024,
    /// A control character.
    Control = 1024,
    /// A run of hanzi.
    HanRun = 233,
    /// A hanzi.
    Han = 487,
    /// A hanzi in traditional Chinese.
    Traditional = 649,
    /// A hiragana.
    Hiragana = 492,
    /// A run of katakana.
    KatakanaRun = 1161,
    /// A katakana.
    Katakana = 512,
    /// A run of Hangul.
    HangulRun = 749,
    /// A Hangul syllable.
    Hangul = 555,
    /// A run of Cyrillic letters in Russian.
    RussianRun = 583,
    /// A Cyrillic letter in Russian.
    Russian = 205,
    /// A run of Cyrillic letters in another language.
    CyrillicRun = 646,
    /// A Cyrillic letter in another language.
    Cyrillic = 350,
    /// What a capital in Cyrillic costs more.
    CyrillicCapital = 556,
    /// A Greek letter.
    Greek = 542,
    /// An Arabic letter.
    Arabic = 432,
    /// A Hebrew letter.
    Hebrew = 560,
    /// A letter or sign of Devanagari.
    Devanagari = 691,
    /// One of Bengali or Tamil.
    Bengali = 562,
    /// One of the other Indic scripts.
    Indic = 920,
    /// One of Thai.
    Thai = 363,
    /// An Armenian or Georgian letter.
    Caucasian = 766,
    /// Any other letter.
    OtherLetter = 1138,
    /// A typographic quote, dash or the like.
    GeneralMark = 1438,
    /// Chinese or Japanese punctuation, or a full-width form.
    WideMark = 1002,
    /// An arrow, a piece of a frame, a sign of mathematics or currency.
    Symbol = 1601,
    /// An emoji of the usual blocks.
    Emoji = 2048,
    /// Any other character beyond the basic plane.
    Astral = 3584,
    /// A joiner or selector between emoji, or a skin tone.
    Joiner = 1024,
}
