//! What the scan does beyond ASCII: runs of one script, each with its own way to be counted.

use super::{LANGUAGE_REACH, Lead, Scan, Tally, amount};
use crate::tokens::word_piece::bytes::{common_hanzi, wide};
use crate::tokens::word_piece::feature::Feature;
use crate::tokens::word_piece::repeats::Repeats;
use crate::tokens::word_piece::script::{Script, is_traditional};

impl<T: Tally> Scan<'_, T> {
    /// A run of one script, or a word that starts with an accented letter.
    #[inline(never)]
    pub(super) fn beyond_ascii(mut self) -> Self {
        let Some((first, length)) = wide(self.rest) else { return self };
        match Script::of(first) {
            Script::Latin => {
                let before = self.rest.len();
                self.word();
                // Letters that a word does not take, such as phonetic ones, are passed over one by
                // one.
                if self.rest.len() == before {
                    self.tally.add(Feature::OtherLetter, 1);
                    self.advance(length);
                }
                return self;
            }
            Script::Han => self.hanzi(),
            Script::Cyrillic => self.cyrillic(),
            script if script.shares_when_repeated() => self.signs(script),
            script => {
                let letters = self.run_of_script(script, |_| {});
                self.tally.add(script.each(), letters);
                if let Some(run) = script.run() {
                    self.tally.add(run, 1);
                }
            }
        }
        self.lead = Lead::Bare;
        self
    }

    /// Takes all characters of a script that stand here and shows them to `each`: their number.
    #[inline]
    fn run_of_script(&mut self, script: Script, mut each: impl FnMut(char)) -> u32 {
        let (mut rest, mut letters) = (self.rest, 0_usize);
        while let Some((letter, length)) = wide(rest)
            && Script::of(letter) == script
        {
            each(letter);
            letters = letters.wrapping_add(1);
            rest = rest.get(length..).unwrap_or_default();
        }
        self.rest = rest;
        amount(letters)
    }

    /// Hanzi: a traditional one tells that its neighbours are traditional too.
    #[inline]
    fn hanzi(&mut self) {
        let (mut common, mut traditional, mut rest) = (0_u32, false, self.rest);
        while let Some((hanzi, behind)) = common_hanzi(rest) {
            traditional |= is_traditional(hanzi);
            common = common.wrapping_add(1);
            rest = behind;
        }
        self.rest = rest;
        let others =
            self.run_of_script(Script::Han, |hanzi| traditional |= is_traditional(hanzi.into()));
        let letters = common.wrapping_add(others);
        if traditional {
            self.traditional = LANGUAGE_REACH;
        }
        let each = if self.traditional > 0 { Feature::Traditional } else { Feature::Han };
        self.traditional = self.traditional.saturating_sub(1);
        self.tally.add(Feature::HanRun, 1);
        self.tally.add(each, letters);
    }

    /// Cyrillic letters: some are in Russian alone, some in any other language.
    #[inline]
    fn cyrillic(&mut self) {
        let (mut russian, mut capitals) = (self.russian, 0_u32);
        let letters = self.run_of_script(Script::Cyrillic, |letter| match letter {
            // No other large language has yery and e.
            'ы' | 'э' | 'Ы' | 'Э' | 'ё' => russian = LANGUAGE_REACH,
            '\u{410}'..='\u{42F}' => capitals = capitals.wrapping_add(1),
            '\u{430}'..='\u{44F}' => {}
            _ => russian = 0,
        });
        let (run, each) = if russian == 0 {
            (Feature::CyrillicRun, Feature::Cyrillic)
        } else {
            (Feature::RussianRun, Feature::Russian)
        };
        self.russian = russian.saturating_sub(1);
        self.tally.add(Feature::CyrillicCapital, capitals);
        self.tally.add(run, 1);
        self.tally.add(each, letters);
    }

    /// Signs, of which equal ones in a row share tokens.
    #[inline]
    fn signs(&mut self, script: Script) {
        let mut repeats = Repeats::default();
        self.run_of_script(script, |sign| repeats.push(u32::from(sign)));
        self.tally.add(script.each(), repeats.changes.wrapping_add(repeats.equal));
        self.tally.add(Feature::LongRun, repeats.long);
    }
}
