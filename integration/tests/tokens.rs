//! The exact count against the model's own tokenizer: documents, every character, random strings.
//!
//! Pure computation, no Envoy. `scripts/test.sh tokens` fetches what it needs and says where it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use slogate_policy::tokens::exact::MAX_PIECE;
use slogate_policy::tokens::{ExactCounter, Memo, TokenCounter as _, Vocabulary};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

/// A file or folder that the script names.
fn given(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run scripts/test.sh tokens"))
        .into()
}

/// A counter and the truth.
struct Pair {
    vocabulary: Vocabulary,
    memo: Memo,
    oracle: Tokenizer,
    compared: u64,
    tokens: u64,
    wrong: Vec<String>,
}

impl Pair {
    fn new(vocabulary: &Path, oracle: Tokenizer) -> Self {
        let file = fs::read(vocabulary).expect("a vocabulary file");
        let vocabulary = Vocabulary::from_bytes(&file).expect("a legal vocabulary");
        Self {
            vocabulary,
            memo: Memo::default(),
            oracle,
            compared: 0,
            tokens: 0,
            wrong: Vec::new(),
        }
    }

    fn deepseek() -> Self {
        let oracle = Tokenizer::from_file(given("SLOGATE_TOKENIZER")).expect("a tokenizer.json");
        Self::new(&given("SLOGATE_VOCABULARY"), oracle)
    }

    fn count(&mut self, text: &str) -> (u64, bool) {
        let mut counter = ExactCounter::new(&self.vocabulary, &mut self.memo, u64::MAX);
        counter.text(text);
        (counter.tokens(), counter.is_exact())
    }

    fn truth(&self, text: &str) -> u64 {
        self.oracle.encode(text, false).expect("an encoding").len() as u64
    }

    /// Takes note of a text that is counted wrongly, cut pieces apart.
    fn compare(&mut self, text: &str) {
        let (count, is_exact) = self.count(text);
        let truth = self.truth(text);
        self.compared += 1;
        self.tokens += truth;
        if count != truth && (is_exact || count.abs_diff(truth) > 3) {
            self.wrong.push(format!("{count} instead of {truth}: {:?}", shortened(text)));
        }
    }

    #[track_caller]
    fn assert_all_right(&self, at_least: u64) {
        let Self { compared, tokens, wrong, .. } = self;
        println!("{compared} texts, {tokens} tokens, {} wrong", wrong.len());
        assert!(
            wrong.is_empty(),
            "{} of {compared}: {:#?}",
            wrong.len(),
            &wrong[..5.min(wrong.len())]
        );
        assert!(*compared >= at_least, "only {compared} texts");
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The documents of `scripts/fetch-corpus.sh`: their kind and text.
fn documents() -> Vec<(String, String)> {
    let corpus = fs::read_to_string(given("SLOGATE_CORPUS")).expect("a corpus");
    let document = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let field = |name: &str| line[name].as_str().expect(name).to_owned();
        (field("kind"), field("text"))
    };
    corpus.lines().map(document).collect()
}

#[test]
fn documents_of_every_kind_are_counted_exactly() {
    let documents = documents();
    let kinds = ["english", "chinese", "japanese", "code", "json", "numbers", "latin", "mixed"];
    for kind in kinds {
        let found = documents.iter().filter(|(other, _)| other == kind).count();
        assert!(found >= 50, "only {found} documents of kind {kind}");
    }
    let mut pair = Pair::deepseek();
    for (_, text) in &documents {
        pair.compare(text);
    }
    pair.assert_all_right(1500);
}

#[test]
fn every_character_has_the_class_it_has_for_the_tokenizer() {
    let mut pair = Pair::deepseek();
    let mut text = String::new();
    for c in '\0'..=char::MAX {
        // Places in which letters, marks, numbers, signs, white space and the rest are split
        // differently. The other planes, of hanzi or of nothing, need one place only.
        if matches!(u32::from(c) >> 16, 0 | 1 | 14) {
            text.extend(
                ["a", " ", ".", "\n", "1", "\u{1}"]
                    .iter()
                    .flat_map(|before| before.chars().chain([c, 'b', ' ', c, '!'])),
            );
        } else {
            text.extend(['a', c, 'b', ' ', c, '.']);
        }
        if text.len() > 4000 {
            pair.compare(&text);
            text.clear();
        }
    }
    pair.compare(&text);
    pair.assert_all_right(2000);
}

/// Characters that splitting turns on, by what they are.
const ALPHABETS: &[&str] = &[
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "etaoin ETAOIN",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "0123456789٠١٢三²½Ⅷ०๙𝟗",
    " \t\n\r\u{b}\u{c}\u{85}\u{a0}\u{1680}\u{2003}\u{2028}\u{2029}\u{202f}\u{3000}\u{200b}\u{feff}",
    "的一是不了人我在有他这中大来上国病疼骨青碗果者乐子鼗龥㐀𠀀",
    "のはがをにでとたしてるアイスーンタフサッシコっゃ・゠゛゜ヽヾヿ\u{3040}\u{3097}\u{3099}\u{309a}",
    "éèüßñçøåæþłżőğıİﬁǅªº",
    "\u{300}\u{301}\u{308}\u{32b}\u{5b0}\u{64b}\u{93f}\u{e34}\u{20dd}\u{1d165}",
    "приветΓειάשלוםمرحباनमस्तेไทยქართული한국어漢字",
    "，。！？、；：“”‘’（）《》【】…—～￥｜▁",
    "😀👍🏽👨\u{200d}👩\u{200d}👧🇩🇪❤\u{fe0f}☃€£©®™°±×÷",
    "\0\u{1}\u{1b}\u{7f}\u{80}\u{9f}\u{ad}\u{200d}\u{200e}\u{e000}\u{fffd}\u{ffff}\u{e0001}\u{10ffff}",
];

/// Strings made of everything, with added tokens and parts of them anywhere.
struct Generator {
    rng: StdRng,
    added: Vec<String>,
    alphabets: Vec<Vec<char>>,
}

impl Generator {
    fn new(seed: u64, oracle: &Tokenizer) -> Self {
        let mut added: Vec<_> =
            oracle.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        added.sort();
        let alphabets = ALPHABETS.iter().map(|alphabet| alphabet.chars().collect()).collect();
        Self { rng: StdRng::seed_from_u64(seed), added, alphabets }
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.rng.random_range(1..12) {
            self.part(&mut text);
        }
        text
    }

    fn part(&mut self, text: &mut String) {
        let length = self.rng.random_range(1..20);
        match self.rng.random_range(0..10) {
            0 => {
                // Every character there is.
                text.extend((0..length).map(|_| self.rng.random::<char>()));
            }
            1 => {
                // Around where scripts and classes begin and end.
                let block = self.rng.random_range(0..0x3200) * 16;
                text.extend(
                    (0..length)
                        .filter_map(|_| char::from_u32(block + self.rng.random_range(0..64))),
                );
            }
            2 => {
                let token = self.added.choose(&mut self.rng).expect("tokens").clone();
                text.push_str(&token);
            }
            3 => {
                // A part of an added token, cut between characters.
                let token = self.added.choose(&mut self.rng).expect("tokens").clone();
                let length = token.chars().count();
                let start = self.rng.random_range(0..length);
                let amount = self.rng.random_range(0..=length - start);
                text.extend(token.chars().skip(start).take(amount));
            }
            4 => {
                // One character again and again.
                let c = *self.alphabet().choose(&mut self.rng).expect("characters");
                let length = if self.rng.random_bool(0.02) { 3000 } else { length };
                text.extend(std::iter::repeat_n(c, length));
            }
            5 => {
                // Different alphabets, character by character.
                for _ in 0..length {
                    text.push(*self.alphabet().choose(&mut self.rng).expect("characters"));
                }
            }
            _ => {
                let alphabet = self.alphabet();
                let characters = (0..length).map(|_| alphabet.choose(&mut self.rng));
                text.extend(characters.flatten());
            }
        }
    }

    fn alphabet(&mut self) -> Vec<char> {
        self.alphabets.choose(&mut self.rng).expect("alphabets").clone()
    }
}

#[test]
fn random_strings_over_all_of_unicode_with_added_tokens_are_counted_exactly() {
    let mut pair = Pair::deepseek();
    let mut generator = Generator::new(20_260_101, &pair.oracle);
    assert!(generator.added.len() > 1000);
    for _ in 0..12_000 {
        let text = generator.text();
        pair.compare(&text);
    }
    pair.assert_all_right(12_000);
}

#[test]
fn random_hanzi_are_counted_exactly_where_tokens_cross_characters_too() {
    let mut pair = Pair::deepseek();
    let mut rng = StdRng::seed_from_u64(7);
    // Of the tokens that hold parts of two hanzi: all that begin or end as they do.
    let near: Vec<char> = [0x85, 0x97, 0x9C, 0xA5, 0xA7, 0xA8, 0xAB, 0xB1, 0xB8, 0xB9, 0x90]
        .iter()
        .flat_map(|&tail: &u8| {
            ('\u{4E00}'..='\u{9FA5}').filter(move |c| {
                let [_, second, third] = *c.to_string().as_bytes() else { return false };
                second == tail || third == tail
            })
        })
        .collect();
    for _ in 0..6000 {
        let length = rng.random_range(1..60);
        let text: String = (0..length)
            .map(|_| match rng.random_range(0..3) {
                0 => rng.random_range('\u{4E00}'..='\u{9FA5}'),
                _ => *near.choose(&mut rng).expect("hanzi"),
            })
            .collect();
        pair.compare(&text);
    }
    pair.assert_all_right(6000);
}

#[test]
fn piece_without_a_break_is_exact_up_to_the_cut_and_says_so_above_it() {
    let mut pair = Pair::deepseek();
    for unit in ["a", "ab", " ", "-", "=", "猫", "的", "ก", "é", "\n", "=-"] {
        let fits = MAX_PIECE / unit.len();
        for count in [fits - 1, fits] {
            let text = unit.repeat(count);
            assert_eq!(pair.count(&text), (pair.truth(&text), true), "{count} {unit:?}");
        }
        let text = unit.repeat(fits * 5 / 2);
        let (count, is_exact) = pair.count(&text);
        let truth = pair.truth(&text);
        assert!(!is_exact, "{unit:?}");
        assert!(count.abs_diff(truth) <= 2, "{unit:?}: {count} instead of {truth}");
    }
}

#[test]
fn count_above_the_limit_is_estimated_from_what_was_counted() {
    let mut pair = Pair::deepseek();
    for (kind, text) in documents().iter().filter(|(_, text)| text.len() > 20_000).take(200) {
        let truth = pair.truth(text);
        let limit = truth / 2;
        let mut counter = ExactCounter::new(&pair.vocabulary, &mut pair.memo, limit);
        counter.text(text);
        assert!(!counter.is_exact() && counter.tokens() > limit, "{kind}");
        let mut counter = ExactCounter::new(&pair.vocabulary, &mut pair.memo, truth);
        counter.text(text);
        assert!(counter.is_exact() && counter.tokens() == truth, "{kind}");
    }
}

/// A vocabulary of a few thousand tokens over another pattern, as a `tokenizer.json` and as a rank
/// file: both are one more input for the tool.
#[test]
fn another_vocabulary_is_another_input_file() {
    const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let documents = documents();
    let mut oracle = Tokenizer::new(BPE::default());
    let pattern = SplitPattern::Regex(PATTERN.into());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).expect("a pattern");
    let pre_tokenizers = vec![split.into(), ByteLevel::new(false, false, false).into()];
    oracle.with_pre_tokenizer(Some(Sequence::new(pre_tokenizers)));
    let mut trainer: TrainerWrapper = BpeTrainerBuilder::new()
        .vocab_size(4000)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build()
        .into();
    let texts = documents.iter().step_by(10).map(|(_, text)| text.as_str());
    oracle.train(&mut trainer, texts).expect("training");
    let added = ["<|im_start|>", "<|im_end|>", "<|im_"];
    oracle
        .add_special_tokens(added.map(|text| tokenizers::AddedToken::from(text, true)).to_vec())
        .expect("added tokens");

    let folder = std::env::temp_dir().join(format!("slogate-vocabulary-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let json = folder.join("tokenizer.json");
    oracle.save(&json, false).expect("a tokenizer.json");
    let ranks = folder.join("ranks.tiktoken");
    fs::write(&ranks, rank_file(&fs::read(&json).expect("JSON"))).expect("a rank file");

    for (input, options) in [
        (&json, vec![]),
        (
            &ranks,
            vec!["--digits", "1", "--added", added[0], "--added", added[1], "--added", added[2]],
        ),
    ] {
        let out = folder.join("small.vocab");
        let status = Command::new(given("SLOGATE_VOCABULARY_TOOL"))
            .args(["--name", "small", "--out"])
            .arg(&out)
            .args(options)
            .arg(input)
            .status();
        assert!(status.expect("the tool").success(), "{}", input.display());
        let mut pair = Pair::new(&out, oracle.clone());
        assert_eq!(pair.vocabulary.name(), "small");
        let mut generator = Generator::new(3, &pair.oracle);
        for (_, text) in &documents {
            pair.compare(text);
        }
        for _ in 0..3000 {
            let text = generator.text();
            pair.compare(&text);
        }
        pair.assert_all_right(4500);
    }
    fs::remove_dir_all(&folder).expect("an own folder");
}

/// The tokens of a `tokenizer.json` in the order of their ids, bytes first.
fn rank_file(json: &[u8]) -> String {
    let json: Value = serde_json::from_slice(json).expect("JSON");
    let letters: Vec<char> = {
        let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..);
        let mut next = 256..;
        let mut letter = |byte: u8| {
            let code = if is_itself(byte) { u32::from(byte) } else { next.next().unwrap_or(0) };
            char::from_u32(code).expect("a letter")
        };
        (0..=u8::MAX).map(&mut letter).collect()
    };
    let mut tokens: Vec<_> = json["model"]["vocab"]
        .as_object()
        .expect("a vocabulary")
        .iter()
        .map(|(token, id)| {
            let byte = |c| letters.iter().position(|&letter| letter == c).expect("a byte") as u8;
            let bytes: Vec<u8> = token.chars().map(byte).collect();
            (bytes.len() > 1, id.as_u64().expect("an id"), bytes)
        })
        .collect();
    tokens.sort();
    let line = |(rank, (_, _, bytes)): (usize, &(bool, u64, Vec<u8>))| {
        format!("{} {rank}\n", STANDARD.encode(bytes))
    };
    tokens.iter().enumerate().map(line).collect()
}
