//! With a small vocabulary made here; `integration/tests/tokens.rs` compares the real one with the
//! model's own tokenizer.
#![allow(clippy::arithmetic_side_effects, clippy::string_slice, reason = "a test may panic")]

use super::blob::checksum;
use super::classes::{Classes, LETTER, MARK, NUMBER, SIGN, SPACE};
use super::memo::LONGEST;
use super::merge::{SHORT, Scratch, merge};
use super::tables::{NONE, Pairs};
use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const DEEPSEEK: Rules = Rules { family: Family::DeepSeek, digits: 3, cjk: true, marks: false };
const QWEN: Rules = Rules { family: Family::Contractions, digits: 1, cjk: false, marks: false };

/// Seeded numbers: the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one_of<'t>(&mut self, choices: &[&'t str]) -> &'t str {
        choices[self.below(choices.len())]
    }
}

/// Classes good enough for the texts used here.
fn classes() -> Vec<(u32, u8)> {
    let mut ranges: Vec<(u32, u8)> = Vec::new();
    for code in 0..0xFFFF {
        let flags = match char::from_u32(code) {
            Some(c) if c.is_whitespace() => SPACE,
            Some(c) if c.is_numeric() => NUMBER,
            Some('\u{300}'..='\u{36F}' | '\u{3099}') => MARK,
            Some('\u{3000}'..='\u{303F}' | '・' | '゠' | '゛' | '，' | '¿' | '€') => SIGN,
            Some(c) if c.is_ascii_punctuation() => SIGN,
            Some(c) if c.is_alphabetic() => LETTER,
            _ => 0,
        };
        match ranges.last_mut() {
            Some((length, last)) if *last == flags => *length += 1,
            _ => ranges.push((1, flags)),
        }
    }
    ranges
}

/// A vocabulary with these tokens, each of which the ones before must make of two.
fn source(rules: Rules, tokens: &[&[u8]], added: &[(&str, bool)]) -> VocabularySource {
    let mut merges: Vec<(u32, u32)> = Vec::new();
    for token in tokens {
        let ids = naive(&merges, token);
        let &[left, right] = &*ids else { panic!("{token:?} is made of {ids:?}") };
        merges.push((left, right));
    }
    let added = added.iter().map(|&(text, second)| AddedToken { bytes: text.into(), second });
    VocabularySource {
        name: "small".into(),
        rules,
        classes: classes(),
        added: added.collect(),
        wholes: Vec::new(),
        merges,
    }
}

/// The ids that bytes become, by the definition.
fn naive(merges: &[(u32, u32)], bytes: &[u8]) -> Vec<u32> {
    let mut ids: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
    for (pair, id) in merges.iter().zip(256..) {
        let mut at = 0;
        while at + 1 < ids.len() {
            if (ids[at], ids[at + 1]) == *pair {
                ids.splice(at..at + 2, [id]);
            }
            at += 1;
        }
    }
    ids
}

const WORDS: &[&[u8]] = &[
    b"th", b"the", b" the", b"in", b"ing", b"ca", b"cat", b" cat", b"  ", b"    ", b"--", b"----",
    b"\n\n", b"12", b"123",
];

fn vocabulary() -> Vocabulary {
    let added = [("<a>", false), ("<a><b>", false), ("<c>", true), ("<b><c>", true), ("|D|", true)];
    Vocabulary::from_bytes(&source(DEEPSEEK, WORDS, &added).to_bytes()).unwrap()
}

fn count(vocabulary: &Vocabulary, text: &str) -> u64 {
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(vocabulary, &mut memo, u64::MAX);
    counter.text(text);
    counter.tokens()
}

fn pieces<'t>(classes: &Classes, rules: Rules, text: &'t str) -> Vec<&'t str> {
    let mut splitter = Splitter::new(classes, rules, text.as_bytes());
    std::iter::from_fn(|| Some(std::str::from_utf8(splitter.next()?.bytes).unwrap())).collect()
}

#[test]
fn text_is_split_as_the_patterns_of_deepseek_split_it() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("the cat", &["the", " cat"]),
        ("  the", &[" ", " the"]),
        ("the  ", &["the", "  "]),
        ("a\tb", &["a", "\tb"]),
        // Numbers, in threes; what is before one is the end of its text.
        ("1234567", &["123", "456", "7"]),
        ("a  12 b", &["a", "  ", "12", " b"]),
        ("x2y", &["x", "2", "y"]),
        // Line breaks.
        ("a\n\nb", &["a", "\n\n", "b"]),
        ("a \n \n b", &["a", " \n \n", " b"]),
        ("a.\r\n\nb", &["a", ".\r\n\n", "b"]),
        ("\u{85}\r", &["\u{85}\r"]),
        // A sign takes the letters of ASCII behind it, if it stands alone.
        (".cat", &[".cat"]),
        ("..cat", &["..", "cat"]),
        (" .cat", &[" .", "cat"]),
        ("_caf\u{e9}", &["_caf", "\u{e9}"]),
        ("¿cat", &["¿", "cat"]),
        (".\u{e9}", &[".", "\u{e9}"]),
        // Marks are letters, at the start too.
        ("e\u{301}e", &["e\u{301}e"]),
        ("\u{301}\u{302}", &["\u{301}\u{302}"]),
        ("1\u{301}", &["1", "\u{301}"]),
        // Chinese and Japanese are split off, and again at what is no letter there.
        ("the猫cat", &["the", "猫", "cat"]),
        (" 猫は", &[" ", "猫は"]),
        ("猫，猫", &["猫", "，", "猫"]),
        ("ア・イ・", &["ア", "・", "イ", "・"]),
        ("ア\u{3097}イ", &["ア", "\u{3097}イ"]),
        ("ア\u{3097}", &["ア", "\u{3097}"]),
        ("か\u{3099}", &["か\u{3099}"]),
        // No alternative takes these by themselves.
        ("\u{1}\u{2}", &["\u{1}\u{2}"]),
        ("\u{1}\u{2}a", &["\u{1}", "\u{2}a"]),
        ("\u{1}\u{2} a", &["\u{1}\u{2}", " a"]),
        ("\u{1}1\u{2}猫", &["\u{1}", "1", "\u{2}", "猫"]),
    ];
    let classes = Classes::new(&classes(), DEEPSEEK);
    for (text, expected) in table {
        assert_eq!(&pieces(&classes, DEEPSEEK, text), expected, "{text:?}");
    }
}

#[test]
fn text_is_split_as_the_pattern_with_contractions_splits_it() {
    let table: &[(&str, &[&str])] = &[
        ("it's IT'S it'll we'Ve", &["it", "'s", " IT", "'S", " it", "'ll", " we", "'Ve"]),
        ("'sound 'cat", &["'s", "ound", " '", "cat"]),
        ("it'ſ", &["it", "'ſ"]),
        ("123 4", &["1", "2", "3", " ", "4"]),
        ("a  1", &["a", " ", " ", "1"]),
        ("a   b", &["a", "  ", " b"]),
        (".cat ..cat", &[".cat", " ..", "cat"]),
        ("e\u{301}e", &["e", "\u{301}e"]),
        ("猫は cat", &["猫は", " cat"]),
        ("a \n b", &["a", " \n", " b"]),
        ("!\n\n\u{1}", &["!\n\n", "\u{1}"]),
    ];
    let classes = Classes::new(&classes(), QWEN);
    for (text, expected) in table {
        assert_eq!(&pieces(&classes, QWEN, text), expected, "{text:?}");
    }
    let marks = Rules { marks: true, digits: 3, ..QWEN };
    assert_eq!(pieces(&classes, marks, "e\u{301}e1234"), ["e\u{301}e", "123", "4"]);
}

#[test]
fn pieces_put_together_are_the_text_whatever_it_is() {
    let mut dice = Dice(1);
    let parts = [
        "a", "é", " ", "\n", "\r", "1", "²", "猫", "の", "・", ".", "、", "\u{301}", "\u{1}", "'s",
    ];
    for rules in [DEEPSEEK, QWEN] {
        let classes = Classes::new(&classes(), rules);
        for _ in 0..500 {
            let text: String = (0..dice.below(20)).map(|_| dice.one_of(&parts)).collect();
            assert_eq!(pieces(&classes, rules, &text).concat(), text);
        }
    }
}

#[test]
fn few_and_many_symbols_are_merged_as_the_definition_says() {
    let mut dice = Dice(2);
    for _ in 0..40 {
        // Tokens of two bytes, then of those. Zero is one of them, as the tables mark free places so.
        let mut merges: Vec<(u32, u32)> = Vec::new();
        let mut pairs = Pairs::with_capacity(60);
        while merges.len() < 60 {
            let id = 256 + u32::try_from(merges.len()).unwrap();
            let mut part = || match dice.below(8 + merges.len()) {
                byte @ ..8 => u32::try_from(byte).unwrap(),
                made => 248 + u32::try_from(made).unwrap(),
            };
            let pair = (part(), part());
            if pairs.get(pair.0, pair.1) == NONE {
                pairs.insert(pair.0, pair.1, id).unwrap();
                merges.push(pair);
            }
        }
        for length in [2, 3, 10, SHORT - 1, SHORT, SHORT + 1, 100, 500] {
            let text: Vec<u8> = (0..length).map(|_| u8::try_from(dice.below(8)).unwrap()).collect();
            let mut scratch = Scratch::default();
            scratch.ids.extend(text.iter().map(|&byte| u32::from(byte)));
            assert_eq!(merge(&pairs, &mut scratch), naive(&merges, &text).len());
        }
    }
}

#[test]
fn hanzi_are_counted_as_their_bytes_are_where_tokens_cross_characters_too() {
    let [a, b, c, d] = ["猫", "狗", "病", "龥"].map(str::as_bytes);
    // 猫 = e7 8c ab, 狗 = e7 8b 97, 病 = e7 97 85, 龥 = e9 be a5.
    let tokens: &[&[u8]] = &[
        &a[..2],
        a,
        &b[..2],
        b,
        &[0xAB, 0xE7],
        &[0xAB, 0xE7, 0x97],
        &d[1..],
        &[a, b].concat(),
        &[0xA5, 0xE7],
        &[b, &[0xE7]].concat(),
        &c[..2],
        &[a, b, a, b].concat(),
    ];
    let vocabulary = Vocabulary::from_bytes(&source(DEEPSEEK, tokens, &[]).to_bytes()).unwrap();
    let merges = source(DEEPSEEK, tokens, &[]).merges;
    let mut dice = Dice(3);
    let mut short_cuts = 0;
    for _ in 0..2000 {
        let text: String = (0..=dice.below(30))
            .map(|_| dice.one_of(&["猫", "狗", "猫狗", "一", "病", "龥"]))
            .collect();
        let hanzi = vocabulary.hanzi.as_ref().unwrap();
        short_cuts += u32::from(hanzi.symbols(&vocabulary.pairs, text.as_bytes(), &mut Vec::new()));
        assert_eq!(
            count(&vocabulary, &text),
            naive(&merges, text.as_bytes()).len() as u64,
            "{text}"
        );
    }
    assert!((100..1900).contains(&short_cuts), "{short_cuts}");
}

#[test]
fn longest_added_token_is_cut_out_and_the_second_kind_only_of_what_is_left() {
    let vocabulary = vocabulary();
    for (text, expected) in [
        ("<a>", 1),
        ("the<a>the", 3),
        ("<a><b>", 1),
        ("<a><a><b><a>", 3),
        // "<b><c>" would begin before "<c>" does, but its "<b>" went with the token before.
        ("<a><b><c>", 2),
        ("<b><c>", 1),
        // The first kind goes first, though the second begins before it.
        ("|<a>D|", 4),
        ("|D|", 1),
        ("<", 1),
        ("<a", 2),
    ] {
        assert_eq!(count(&vocabulary, text), expected, "{text}");
    }
}

#[test]
fn whole_piece_tokens_are_one_token_only_as_a_whole_piece() {
    let mut source = source(DEEPSEEK, WORDS, &[]);
    source.wholes = vec!["xyz".into()];
    let vocabulary = Vocabulary::from_bytes(&source.to_bytes()).unwrap();
    assert_eq!(count(&vocabulary, "xyz xyz"), 1 + 4);
    assert_eq!(count(&vocabulary, "xyzs"), 4);
}

#[test]
fn texts_are_never_joined_and_their_counts_add_up() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 100);
    counter.text("th");
    counter.text("e");
    counter.text("");
    assert_eq!((counter.tokens(), counter.is_exact()), (2, true));
}

#[test]
fn counting_ends_above_the_limit_and_takes_the_rest_to_be_like_the_start() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    for limit in [0, 1, 10, 99] {
        let mut counter = ExactCounter::new(&vocabulary, &mut memo, limit);
        counter.text(&"the ".repeat(50));
        counter.text(&"<a>".repeat(50));
        assert!(counter.tokens() > limit && !counter.is_exact(), "{limit}");
    }
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 10);
    counter.text(&" the".repeat(1000));
    assert_eq!((counter.tokens(), counter.is_exact()), (1000, false));
    // The limit is the largest count that is exact.
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 1000);
    counter.text(&" the".repeat(1000));
    assert_eq!((counter.tokens(), counter.is_exact()), (1000, true));
}

#[test]
fn piece_is_cut_only_above_its_longest_length() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    let mut counted = |text: &str| {
        let mut counter = ExactCounter::new(&vocabulary, &mut memo, u64::MAX);
        counter.text(text);
        (counter.tokens(), counter.is_exact())
    };
    let whole = MAX_PIECE as u64 / 4;
    assert_eq!(counted(&"-".repeat(MAX_PIECE)), (whole, true));
    assert_eq!(counted(&"-".repeat(MAX_PIECE + 4)), (whole + 1, false));
    // The cut separates the last "the" from its end.
    let text = "cat".repeat(MAX_PIECE / 3 - 1) + "cathe";
    assert_eq!(counted(&text), (whole / 3 * 4 + 2, false));
    assert_eq!(counted("the"), (1, true));
}

#[test]
fn pieces_whose_hashes_collide_are_told_apart() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    for (count, piece) in [(2, &b"zq"[..]), (7, b"zq\0"), (5, &[b'z'; LONGEST]), (3, b"qz")] {
        // All with the hash of the first: only the bytes differ.
        assert_eq!(memo.get(piece, hash(b"zq")), None);
        memo.put(piece, hash(b"zq"), count);
        assert_eq!(memo.get(piece, hash(b"zq")), Some(count));
    }
    assert!(vocabulary.wholes.contains(b" the", hash(b" the")));
    for piece in ["thf", " tha", "cat ", "\0the", "the\0", "thethethethe"] {
        let collides = ["the", " the", "cat", " cat"].iter();
        for token in collides {
            assert!(!vocabulary.wholes.contains(piece.as_bytes(), hash(token.as_bytes())));
        }
    }
    let pieces = ["123456789abcdef", "zqzqzqzqzqzqzqzqzqzqzqzqzqzqzq", "th", "zq"];
    for (piece, expected) in pieces.iter().zip([15, 30, 1, 2]) {
        let merges = source(DEEPSEEK, WORDS, &[]).merges;
        let count = |memo: &mut Memo| {
            let mut counter = ExactCounter::new(&vocabulary, memo, u64::MAX);
            counter.count(Piece { bytes: piece.as_bytes(), is_hanzi: false })
        };
        let expected = expected.min(naive(&merges, piece.as_bytes()).len() as u64);
        assert_eq!([count(&mut memo), count(&mut memo)], [expected; 2], "{piece}");
    }
}

#[test]
fn runs_of_equal_symbols_are_merged_as_the_definition_says() {
    let mut dice = Dice(7);
    for round in 0..300 {
        // Merges of any kind of two bytes and of what they make.
        let mut merges: Vec<(u32, u32)> = Vec::new();
        let mut pairs = Pairs::with_capacity(20);
        while merges.len() < 20 {
            let id = 256 + u32::try_from(merges.len()).unwrap();
            let mut part = || match dice.below(2 + merges.len()) {
                byte @ ..2 => u32::try_from(byte).unwrap(),
                made => 254 + u32::try_from(made).unwrap(),
            };
            let pair = (part(), part());
            if pairs.get(pair.0, pair.1) == NONE {
                pairs.insert(pair.0, pair.1, id).unwrap();
                merges.push(pair);
            }
        }
        let mut text = vec![0; SHORT + 1 + dice.below(300)];
        for byte in 0..u8::try_from(round % 4).unwrap() {
            text.extend(vec![(byte + 1) % 2; 1 + dice.below(20)]);
        }
        let mut scratch = Scratch::default();
        scratch.ids.extend(text.iter().map(|&byte| u32::from(byte)));
        assert_eq!(merge(&pairs, &mut scratch), naive(&merges, &text).len(), "{merges:?} {text:?}");
        assert!(scratch.steps > 0);
    }
}

#[test]
fn blanks_of_differing_lengths_are_little_work() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    let text: String = (3000..3200).map(|length| " ".repeat(length) + "x").collect();
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, u64::MAX);
    counter.text(&text);
    assert!(counter.is_exact());
    assert!(memo.scratch.steps < 200 * 100, "{}", memo.scratch.steps);
}

#[test]
fn long_pieces_that_become_few_tokens_end_the_count_early() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 8192);
    // Fewer than 8192 tokens would be left of a million bytes of it, if each were a long token.
    let text = ("-=".repeat(2000) + " x").repeat(250);
    counter.limit = u64::MAX;
    counter.text(&text);
    assert!(!counter.is_exact() && counter.is_full());
    assert!(counter.tokens() >= text.len() as u64 / 4);
    assert!(memo.scratch.steps <= MIN_BUDGET + MAX_PIECE as u64);
    // The next count begins anew.
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 8192);
    counter.text("the");
    assert_eq!((counter.tokens(), counter.is_exact()), (1, true));
}

#[test]
fn what_is_not_looked_at_has_a_token_in_four_bytes_at_least() {
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 10);
    counter.text(&" ".repeat(400));
    counter.text(&"x1".repeat(500));
    assert!(counter.tokens() >= 100 + 250 && !counter.is_exact(), "{}", counter.tokens());
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 0);
    counter.text("    ");
    counter.text(&"1".repeat(1000));
    assert!(counter.tokens() > 250 && !counter.is_exact(), "{}", counter.tokens());
}

#[test]
fn memo_of_another_vocabulary_is_forgotten() {
    let other = Vocabulary::from_bytes(&source(DEEPSEEK, &[b"xx"], &[]).to_bytes()).unwrap();
    let vocabulary = vocabulary();
    let mut memo = Memo::default();
    for (vocabulary, expected) in [(&vocabulary, 8), (&other, 4), (&vocabulary, 8)] {
        let mut counter = ExactCounter::new(vocabulary, &mut memo, 100);
        counter.text("xxxxxxxx");
        assert_eq!(counter.tokens(), expected);
    }
}

#[test]
fn file_that_is_cut_short_or_changed_is_refused() {
    let file = source(DEEPSEEK, WORDS, &[("<a>", false)]).to_bytes();
    assert_eq!(Vocabulary::from_bytes(&file).unwrap().name(), "small");
    for length in 0..file.len() {
        assert!(Vocabulary::from_bytes(&file[..length]).is_err(), "{length}");
    }
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        assert!(Vocabulary::from_bytes(&changed).is_err(), "{at}");
    }
    let mut longer = file.clone();
    longer.push(0);
    assert_eq!(Vocabulary::from_bytes(&longer).unwrap_err(), VocabularyError::Checksum);
}

#[test]
fn file_with_any_content_and_a_right_checksum_is_read_or_refused_but_never_panics() {
    let file = source(DEEPSEEK, WORDS, &[("<a>", false), ("<ab>", true)]).to_bytes();
    let mut dice = Dice(4);
    let mut read = 0;
    for _ in 0..3000 {
        let mut changed = file.clone();
        let end = changed.len() - 8;
        for _ in 0..=dice.below(3) {
            // Mostly where something is in a small file: its head and its merges.
            let at = if dice.below(2) == 0 { dice.below(40) } else { end - 1 - dice.below(120) };
            changed[at] = u8::try_from(dice.below(256)).unwrap();
        }
        let sum = checksum(&changed[..end]);
        changed.truncate(end);
        changed.extend(sum.to_le_bytes());
        if let Ok(vocabulary) = Vocabulary::from_bytes(&changed) {
            read += 1;
            count(&vocabulary, "the cat 123 猫は <a><ab> \n\n ----");
        }
    }
    assert!(read > 100, "{read}");
}

#[test]
fn merge_of_what_is_not_there_or_is_there_already_is_refused() {
    let mut early = source(DEEPSEEK, WORDS, &[]);
    early.merges[0] = (97, 257);
    assert_eq!(
        Vocabulary::from_bytes(&early.to_bytes()).unwrap_err(),
        VocabularyError::Merge { id: 256 }
    );
    let mut twice = source(DEEPSEEK, WORDS, &[]);
    twice.merges[1] = twice.merges[0];
    assert_eq!(
        Vocabulary::from_bytes(&twice.to_bytes()).unwrap_err(),
        VocabularyError::Merge { id: 257 }
    );
    // Every token twice as long as the one before.
    let mut long = source(DEEPSEEK, &[], &[]);
    long.merges = (0..40).map(|k| if k == 0 { (97, 97) } else { (255 + k, 255 + k) }).collect();
    assert_eq!(
        Vocabulary::from_bytes(&long.to_bytes()).unwrap_err(),
        VocabularyError::Merge { id: 266 }
    );
}

#[test]
fn debug_output_shows_the_name_and_nothing_of_texts() {
    let vocabulary = vocabulary();
    assert_eq!(format!("{vocabulary:?}"), "Vocabulary { name: \"small\", .. }");
    let mut memo = Memo::default();
    assert_eq!(format!("{memo:?}"), "Memo { .. }");
    let mut counter = ExactCounter::new(&vocabulary, &mut memo, 5);
    counter.text("secret");
    assert!(!format!("{counter:?}").contains("secret"));
}
