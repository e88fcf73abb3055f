//! What kinds of text a prompt is made of.
//!
//! Vocabularies differ by kind of text: one takes digits three at a time and another one by one,
//! one has words of Greek and another only letters. So what is learned about a vocabulary is learned
//! by kind, and since a prompt is rarely of one kind (figures in English, English in Chinese), it is
//! described by the share of its tokens that each kind has.
//!
//! A sample decides, because that is enough for shares and costs the same for every length: up to
//! [`SAMPLE`] bytes, in a few places of each text. Kinds are told apart by the first bytes of a
//! character alone. How many tokens a character of a kind is worth is a constant here; it has to be
//! right only roughly, as it weighs kinds against each other.

use super::TokenCounter;

/// Bytes of a prompt that are looked at. Each further text adds at most 64.
pub const SAMPLE: usize = 1024;
/// Places of a text that are looked at; at least two.
const WINDOWS: usize = 8;
/// The sum of all shares of a mix.
pub const WHOLE: u32 = 1024;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $label:literal $weight:literal;)*) => {
        /// A coarse kind of text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in labels.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),* }
            }

            /// What one character is worth, in 64ths of a token.
            const fn weight(self) -> u32 {
                match self { $(Self::$name => $weight),* }
            }
        }
    };
}

kinds! {
    /// Unaccented letters: English, and most of other languages in Latin letters.
    Words "words" 13;
    /// Digits.
    Digits "digits" 21;
    /// Punctuation, brackets, line breaks: much of it is code or JSON.
    Symbols "symbols" 37;
    /// Accented Latin letters.
    Accents "accents" 32;
    /// Cyrillic.
    Cyrillic "cyrillic" 18;
    /// Greek.
    Greek "greek" 22;
    /// Hebrew, Arabic and their neighbours.
    Arabic "arabic" 19;
    /// Devanagari and the other scripts of India.
    Indic "indic" 16;
    /// Thai, Lao, Tibetan.
    Thai "thai" 13;
    /// Han characters and the punctuation between them.
    Han "han" 38;
    /// Hiragana and katakana.
    Kana "kana" 32;
    /// Hangul.
    Hangul "hangul" 38;
    /// All other scripts, and emoji.
    Others "others" 64;
}

/// How many kinds there are.
pub const KINDS: usize = Kind::ALL.len();

/// The kind of an ASCII character; `None` for blanks, which belong to the words around them.
const fn ascii(byte: u8) -> Option<Kind> {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => Some(Kind::Words),
        b'0'..=b'9' => Some(Kind::Digits),
        b' ' | b'\r' => None,
        _ => Some(Kind::Symbols),
    }
}

/// The kind of a longer character by its first two bytes.
const fn wide(first: u8, second: u8) -> Kind {
    match (first, second) {
        (0xc2 | 0xe2, _) => Kind::Symbols,
        (0xc3..=0xcb, _) | (0xe1, 0xb8..=0xbb) => Kind::Accents,
        (0xcd..=0xcf, _) | (0xe1, 0xbc..=0xbf) => Kind::Greek,
        (0xd0..=0xd4, _) => Kind::Cyrillic,
        (0xd6..=0xdb, _) => Kind::Arabic,
        (0xe0, 0xa4..=0xb7) => Kind::Indic,
        (0xe0, 0xb8..=0xbf) => Kind::Thai,
        (0xe3, 0x81..=0x83) => Kind::Kana,
        // Full-width punctuation stands in Chinese.
        (0xe3..=0xe9, _) | (0xef, 0xbc..=0xbd) => Kind::Han,
        (0xea..=0xed, _) => Kind::Hangul,
        _ => Kind::Others,
    }
}

/// The share of each kind in the tokens of a prompt, in 1024ths. All zero: there was no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mix([u16; KINDS]);

impl Mix {
    /// The share of each kind, in the order of [`Kind::ALL`]; their sum is at most [`WHOLE`].
    pub fn shares(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|share| u32::from(*share))
    }

    /// Whether there was no text.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|share| *share == 0)
    }
}

/// A counter that hands every text on to another and looks at a sample of it by the way.
pub struct Sampler<'a> {
    counter: &'a mut dyn TokenCounter,
    worth: [u64; KINDS],
    left: usize,
}

impl std::fmt::Debug for Sampler<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("worth", &self.worth).finish_non_exhaustive()
    }
}

impl<'a> Sampler<'a> {
    /// A sampler before the first text.
    pub fn new(counter: &'a mut dyn TokenCounter) -> Self {
        Self { counter, worth: [0; KINDS], left: SAMPLE }
    }

    /// The kinds of all texts so far.
    pub fn mix(&self) -> Mix {
        let sum = self.worth.iter().fold(0_u64, |sum, worth| sum.saturating_add(*worth));
        let mut mix = Mix::default();
        for (share, worth) in mix.0.iter_mut().zip(&self.worth) {
            let part = worth.saturating_mul(WHOLE.into()).checked_div(sum).unwrap_or(0);
            *share = u16::try_from(part).unwrap_or(0);
        }
        mix
    }

    fn sample(&mut self, text: &[u8]) {
        let most = self.left.max(WINDOWS.saturating_mul(8));
        let mut found = [0_u64; KINDS];
        let seen = text.len().min(most);
        if seen == text.len() {
            look(text, &mut found);
        } else {
            let length = most / WINDOWS;
            let step = text.len().saturating_sub(length) / (WINDOWS - 1);
            for window in 0..WINDOWS {
                let at = window.saturating_mul(step);
                look(text.get(at..at.saturating_add(length)).unwrap_or_default(), &mut found);
            }
        }
        self.left = self.left.saturating_sub(seen);
        // What was seen stands for the whole text: 16ths, so that no length is lost.
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_mul(16);
        let scale = length.checked_div(u64::try_from(seen).unwrap_or(1)).unwrap_or(0);
        for ((worth, found), kind) in self.worth.iter_mut().zip(found).zip(Kind::ALL) {
            let more = found.saturating_mul(kind.weight().into()).saturating_mul(scale);
            *worth = worth.saturating_add(more);
        }
    }
}

impl TokenCounter for Sampler<'_> {
    fn text(&mut self, text: &str) {
        self.sample(text.as_bytes());
        self.counter.text(text);
    }

    fn tokens(&self) -> u64 {
        self.counter.tokens()
    }
}

/// Counts the characters of each kind. The text may be cut inside a character.
fn look(text: &[u8], found: &mut [u64; KINDS]) {
    let mut lead = 0_u8;
    for byte in text {
        let kind = match *byte {
            byte @ 0..=0x7f => ascii(byte),
            byte @ 0xc0..=0xff => {
                lead = byte;
                continue;
            }
            byte if lead != 0 => Some(wide(std::mem::take(&mut lead), byte)),
            _ => continue,
        };
        if let Some(found) = kind.and_then(|kind| found.get_mut(kind as usize)) {
            *found = found.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::WordPiece;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn mix(texts: &[&str]) -> Mix {
        let mut counter = WordPiece::default();
        let mut sampler = Sampler::new(&mut counter);
        for text in texts {
            sampler.text(text);
        }
        sampler.mix()
    }

    fn share(mix: &Mix, kind: Kind) -> u32 {
        mix.shares().nth(kind as usize).expect("a kind")
    }

    #[test]
    fn each_script_is_its_own_kind() {
        for (text, kind) in [
            ("An English sentence of some length", Kind::Words),
            ("31415926535897932384", Kind::Digits),
            ("{\"[]\":[{},{}]}\n\n", Kind::Symbols),
            ("éàüñçőşẾ", Kind::Accents),
            ("Привет, как дела сегодня", Kind::Cyrillic),
            ("Καλημέρα κόσμε", Kind::Greek),
            ("مرحبا بالعالم שלום", Kind::Arabic),
            ("नमस्ते दुनिया", Kind::Indic),
            ("สวัสดีชาวโลก", Kind::Thai),
            ("你好，世界。", Kind::Han),
            ("ありがとうカタカナ", Kind::Kana),
            ("안녕하세요 세계", Kind::Hangul),
            ("🚀🦀🐍🎉", Kind::Others),
        ] {
            let mix = mix(&[text]);
            assert!(share(&mix, kind) > 850, "{text}: {mix:?}");
            assert!(mix.shares().sum::<u32>() <= WHOLE);
        }
        assert!(mix(&[]).is_empty() && mix(&["", "   "]).is_empty());
    }

    #[test]
    fn a_sample_tells_the_same_as_the_whole_and_long_texts_weigh_more() {
        let half = "words of a sentence and 123456 figures ".repeat(100);
        let long = half.repeat(20);
        let (whole, sampled) = (mix(&[half.get(..800).expect("long enough")]), mix(&[&long]));
        for (whole, sampled) in whole.shares().zip(sampled.shares()) {
            assert!(whole.abs_diff(sampled) < 100, "{whole} {sampled}");
        }
        let mixed = mix(&["你好世界".repeat(5).as_str(), &"plain words ".repeat(2_000)]);
        assert!(share(&mixed, Kind::Words) > 950, "{mixed:?}");
    }

    #[test]
    fn a_window_that_begins_inside_a_character_is_read_on() {
        let text = "é你好🚀".repeat(500);
        for shift in 0..4 {
            let mixed = mix(&[&format!("{}{text}", "a".repeat(shift))]);
            assert!(share(&mixed, Kind::Han) > 300, "{mixed:?}");
        }
    }
}
