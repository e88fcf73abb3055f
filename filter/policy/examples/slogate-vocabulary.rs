//! Makes the vocabulary file that the exact counter reads, from what a model is published with.
//!
//!     slogate-vocabulary --name NAME --out FILE tokenizer.json
//!     slogate-vocabulary --name NAME --out FILE --digits N [--marks] [--added TOKEN]... ranks.tiktoken
//!
//! A `tokenizer.json` says everything itself. A rank file holds only tokens: how many numbers make a
//! group, whether combining marks are letters, and which tokens are cut out first has to be told.
//! Whatever the counter would not count exactly is refused.
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a tool for whoever builds: it may read files, and fail"
)]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use regex_syntax::hir::{Class, HirKind};
use serde_json::Value;
use slogate_policy::tokens::Vocabulary;
use slogate_policy::tokens::exact::{AddedToken, Family, Rules, VocabularySource};

type Failure = Box<dyn Error>;

/// The Unicode version of the regex engine that Hugging Face's tokenizers run on (Oniguruma). A
/// character that came later has no class there and gets none here.
const UNICODE: &str = "16.0";

/// The stages of the pre-tokenizer of `DeepSeek` V3 and later.
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+",
        "| ?[\\p{P}\\p{S}]+[\r\n]*",
        r"|\s*[",
        "\r\n",
        r"]+|\s+(?!\S)|\s+"
    ),
];

#[derive(Default)]
struct Options {
    name: String,
    out: String,
    input: String,
    digits: u8,
    marks: bool,
    added: Vec<String>,
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let file = fs::read(&options.input).map_err(|error| format!("{}: {error}", options.input))?;
    let is_json = Path::new(&options.input).extension().is_some_and(|it| it == "json");
    let mut source = if is_json { from_json(&file)? } else { from_ranks(&file, &options)? };
    source.name.clone_from(&options.name);
    source.classes = classes()?;
    let blob = source.to_bytes();
    // What cannot be read back is found here and not when a worker starts.
    Vocabulary::from_bytes(&blob)?;
    let new = format!("{}.new", options.out);
    fs::write(&new, &blob)?;
    fs::rename(&new, &options.out)?;
    Ok(())
}

fn options() -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--name" => options.name = value()?,
            "--out" => options.out = value()?,
            "--digits" => options.digits = value()?.parse()?,
            "--added" => options.added.push(value()?),
            "--marks" => options.marks = true,
            _ => options.input = argument,
        }
    }
    if options.name.is_empty() || options.out.is_empty() || options.input.is_empty() {
        return Err("usage: slogate-vocabulary --name NAME --out FILE INPUT".into());
    }
    Ok(options)
}

/// Ids of the counter by a token's bytes, and the merges that make them.
struct Merges {
    ids: HashMap<Vec<u8>, u32>,
    made: HashMap<(u32, u32), u32>,
    pairs: Vec<(u32, u32)>,
}

impl Merges {
    fn new() -> Self {
        let ids = (0..=u8::MAX).map(|byte| (vec![byte], u32::from(byte))).collect();
        Self { ids, made: HashMap::new(), pairs: Vec::new() }
    }

    fn add(&mut self, left: u32, right: u32, token: Vec<u8>) -> Result<(), Failure> {
        let id = u32::try_from(self.pairs.len())?.checked_add(256).ok_or("too many merges")?;
        if self.ids.insert(token, id).is_some() {
            return Err(format!("merge {} makes a token that is there already", id - 256).into());
        }
        self.made.insert((left, right), id);
        self.pairs.push((left, right));
        Ok(())
    }

    /// The ids that these bytes are merged to.
    fn encode(&self, bytes: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
        let merged = |ids: &[u32], at: usize| {
            let pair = (*ids.get(at)?, *ids.get(at.checked_add(1)?)?);
            self.made.get(&pair).map(|&id| (id, at))
        };
        while let Some((id, at)) = (0..ids.len()).filter_map(|at| merged(&ids, at)).min() {
            ids.splice(at..at.saturating_add(2), [id]);
        }
        ids
    }
}

fn from_json(file: &[u8]) -> Result<VocabularySource, Failure> {
    let json: Value = serde_json::from_slice(file)?;
    let model = &json["model"];
    for (name, plain) in [
        ("dropout", Value::Null),
        ("unk_token", Value::Null),
        ("continuing_subword_prefix", "".into()),
        ("end_of_word_suffix", "".into()),
        ("byte_fallback", false.into()),
    ] {
        if !model[name].is_null() && model[name] != plain {
            return Err(format!("model.{name} is {}: not supported", model[name]).into());
        }
    }
    if model["type"] != "BPE" {
        return Err(format!("a model of type {}: only BPE is supported", model["type"]).into());
    }
    match &json["normalizer"] {
        Value::Null => {}
        it if it["type"] == "Sequence"
            && it["normalizers"].as_array().is_some_and(Vec::is_empty) => {}
        it if it["type"] == "NFC" => {
            warn("text is taken to be in normal form C; in any other the count is not exact");
        }
        it => return Err(format!("normalizer {it} is not supported").into()),
    }
    let rules = rules(&json["pre_tokenizer"])?;
    let added = json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    let added: Vec<_> = added.iter().map(added_token).collect::<Result<_, _>>()?;

    let alphabet: HashMap<char, u8> = (0..=u8::MAX).map(|byte| (letter(byte), byte)).collect();
    let bytes = |text: &str| -> Result<Vec<u8>, Failure> {
        let found = text.chars().map(|c| alphabet.get(&c).copied()).collect::<Option<_>>();
        found.ok_or(format!("{text:?} is not of the byte alphabet").into())
    };
    let mut merges = Merges::new();
    for merge in model["merges"].as_array().ok_or("no merges")? {
        let parts = match merge {
            Value::String(both) => both.split_once(' '),
            both => both[0].as_str().zip(both[1].as_str()),
        };
        let (left, right) = parts.ok_or(format!("merge {merge} is no pair"))?;
        let (left, right) = (bytes(left)?, bytes(right)?);
        let id = |part: &[u8]| merges.ids.get(part).copied().ok_or(format!("{merge} is too early"));
        let (left_id, right_id) = (id(&left)?, id(&right)?);
        merges.add(left_id, right_id, [left, right].concat())?;
    }
    // A piece that is a token is counted as one without merging. Where merging would not get there,
    // that is right only if the model itself takes whole pieces first.
    let takes_wholes = model["ignore_merges"] == true;
    let mut wholes = Vec::new();
    let is_added = |token: &str| added.iter().any(|added| added.bytes == token.as_bytes());
    for token in model["vocab"].as_object().ok_or("no vocabulary")?.keys() {
        if is_added(token) {
            continue;
        }
        let token = bytes(token)?;
        let is_reached = merges.encode(&token).len() == 1;
        if takes_wholes && !is_reached {
            wholes.push(token);
        } else if !is_reached && merges.ids.contains_key(&token) {
            return Err(format!("the merges of {token:?} do not lead to it: not supported").into());
        }
    }
    Ok(VocabularySource {
        name: String::new(),
        rules,
        classes: Vec::new(),
        added,
        wholes,
        merges: merges.pairs,
    })
}

/// The rules that a `pre_tokenizer` describes.
fn rules(description: &Value) -> Result<Rules, Failure> {
    let all = description["pretokenizers"].as_array().ok_or("the pre-tokenizer is no sequence")?;
    let (last, splits) = all.split_last().ok_or("no pre-tokenizers")?;
    if last["type"] != "ByteLevel"
        || last["use_regex"] != false
        || last["add_prefix_space"] != false
    {
        return Err(format!("pre-tokenizer {last} is not supported").into());
    }
    let mut patterns = Vec::new();
    for split in splits {
        let pattern = split["pattern"]["Regex"].as_str();
        if split["type"] != "Split" || split["behavior"] != "Isolated" || split["invert"] != false {
            return Err(format!("pre-tokenizer {split} is not supported").into());
        }
        patterns.push(pattern.ok_or("a split without a pattern")?);
    }
    if patterns == DEEPSEEK {
        return Ok(Rules { family: Family::DeepSeek, digits: 3, cjk: true, marks: false });
    }
    for (digits, marks) in [(1, false), (1, true), (3, false), (3, true)] {
        if patterns == [contractions(digits, marks)] {
            return Ok(Rules { family: Family::Contractions, digits, cjk: false, marks });
        }
    }
    Err(format!("the patterns {patterns:?} are not supported").into())
}

/// The pattern of the contractions family.
fn contractions(digits: u8, marks: bool) -> String {
    let numbers = if digits == 1 { r"\p{N}".into() } else { format!(r"\p{{N}}{{1,{digits}}}") };
    let (word, sign) = if marks {
        (r"[\p{L}\p{M}]", r"[^\s\p{L}\p{M}\p{N}]")
    } else {
        (r"\p{L}", r"[^\s\p{L}\p{N}]")
    };
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{word}+|{numbers}| ?{sign}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

fn added_token(token: &Value) -> Result<AddedToken, Failure> {
    for flag in ["single_word", "lstrip", "rstrip"] {
        if token[flag] == true {
            return Err(format!("added token {token}: {flag} is not supported").into());
        }
    }
    let text = token["content"].as_str().filter(|text| !text.is_empty());
    let bytes = text.ok_or(format!("added token {token} has no text"))?.into();
    Ok(AddedToken { bytes, second: token["normalized"] == true })
}

/// A rank file: a token in base 64 and its rank on every line. Two neighbours merge if together they
/// are a token, the smallest rank first; so the last merge of every token is the one that the merges
/// before it lead to.
fn from_ranks(file: &[u8], options: &Options) -> Result<VocabularySource, Failure> {
    if options.digits == 0 {
        return Err("a rank file needs --digits".into());
    }
    let mut tokens = Vec::new();
    for line in std::str::from_utf8(file)?.lines().filter(|line| !line.trim().is_empty()) {
        let (token, rank) = line.split_once(' ').ok_or("a line without a rank")?;
        tokens.push((rank.trim().parse::<u32>()?, base64(token)?));
    }
    tokens.sort_unstable();
    let mut merges = Merges::new();
    let mut wholes = Vec::new();
    for (_, token) in tokens {
        if token.len() < 2 {
            continue;
        }
        match *merges.encode(&token) {
            [left, right] => merges.add(left, right, token)?,
            _ => wholes.push(token),
        }
    }
    if !wholes.is_empty() {
        let count = wholes.len();
        warn(&format!(
            "{count} tokens are not made of two others: texts with them may be counted a token or two too high"
        ));
    }
    let added =
        options.added.iter().map(|text| AddedToken { bytes: text.clone().into(), second: false });
    Ok(VocabularySource {
        name: String::new(),
        rules: Rules {
            family: Family::Contractions,
            digits: options.digits,
            cjk: false,
            marks: options.marks,
        },
        classes: Vec::new(),
        added: added.collect(),
        wholes,
        merges: merges.pairs,
    })
}

fn base64(text: &str) -> Result<Vec<u8>, Failure> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0_u32);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(format!("{text:?} is not base 64").into()),
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xFF)?);
        }
    }
    Ok(bytes)
}

/// The visible character that stands for a byte in a `tokenizer.json`.
fn letter(byte: u8) -> char {
    let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..);
    if is_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !is_itself(other)).count();
    u32::try_from(before).ok().and_then(|before| char::from_u32(256 + before)).unwrap_or_default()
}

/// What every character is, as the counter's table wants it.
fn classes() -> Result<Vec<(u32, u8)>, Failure> {
    let mut flags = vec![0_u8; 0x11_0000];
    for (flag, class) in
        [(1, r"\p{L}"), (2, r"\p{M}"), (4, r"\p{N}"), (8, r"[\p{P}\p{S}]"), (16, r"\s")]
    {
        let hir = regex_syntax::parse(&format!(r"[{class}&&\p{{Age:{UNICODE}}}]"))?;
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
            return Err("a class that is none".into());
        };
        for range in class.ranges() {
            let codes = range.start() as usize..=range.end() as usize;
            flags.get_mut(codes).ok_or("beyond Unicode")?.iter_mut().for_each(|it| *it |= flag);
        }
    }
    let mut ranges: Vec<(u32, u8)> = Vec::new();
    for flag in flags {
        match ranges.last_mut() {
            Some((length, last)) if *last == flag => *length += 1,
            _ => ranges.push((1, flag)),
        }
    }
    Ok(ranges)
}

fn warn(text: &str) {
    #[expect(clippy::disallowed_macros, reason = "a tool for whoever builds")]
    {
        eprintln!("slogate-vocabulary: {text}");
    }
}
