//! The exact counter against the reference tokenizer, on texts made of the input.
//!
//! The first byte chooses how: the bytes as they are (what is no UTF-8 replaced), or a grammar that
//! builds the text from pieces in which the vocabulary's rules meet: digits, marks before letters,
//! white space of every kind, hanzi, marks that combine, added tokens whole and cut.
//!
//! The highest of them make a long text instead and send it through the template, in two parts that
//! are joined: what the template counts on the way must come to what the counter has for the whole.
//!
//! `SLOGATE_VOCABULARY` names the vocabulary file, `SLOGATE_TOKENIZER` the `tokenizer.json` it was
//! made from.
#![no_main]

use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use slogate_policy::request::{self, Endpoint};
use slogate_policy::tokens::{ExactCounter, Memo, Template, TokenCounter as _, Vocabulary};
use tokenizers::Tokenizer;

const PIECES: [&str; 64] = [
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\0",
    "\u{1f}",
    "\u{7f}",
    "\u{85}",
    "0",
    "12",
    "345",
    "6789",
    "٣",
    "½",
    "Ⅷ",
    "a",
    "the",
    "Hello",
    "ing",
    "don't",
    "HTTP",
    "é",
    "e\u{301}",
    "ß",
    "ǅ",
    "ا",
    "ש",
    "ক",
    "ไ",
    "가",
    "の",
    "カ",
    "ー",
    "一",
    "龥",
    "\u{9fa6}",
    "中文",
    "的",
    "𠀀",
    "，",
    "。",
    "「",
    ".",
    ",",
    "'",
    "\"",
    "-",
    "...",
    "(",
    "_",
    "$",
    "€",
    "😀",
    "👩‍👩‍👧",
    "🇩🇪",
    "<｜User｜>",
    "<｜end▁of▁sentence｜>",
];

/// First bytes from here on make a text long; few, as long ones take long. A bit makes it longer.
const LONG: u8 = 0xf0;
const LONGER: u8 = 0x08;

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else { return };
    let text = if choice % 2 == 0 {
        String::from_utf8_lossy(rest).into_owned()
    } else {
        rest.iter().map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect()
    };
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    let vocabulary = VOCABULARY.get_or_init(|| {
        let bytes = std::fs::read(path("SLOGATE_VOCABULARY")).expect("a file");
        Vocabulary::from_bytes(&bytes).expect("a vocabulary")
    });
    if *choice >= LONG {
        return in_a_prompt(vocabulary, *choice, &text);
    }
    static ORACLE: OnceLock<Tokenizer> = OnceLock::new();
    let oracle = ORACLE
        .get_or_init(|| Tokenizer::from_file(path("SLOGATE_TOKENIZER")).expect("a tokenizer.json"));
    let truth = oracle.encode(text.as_str(), false).expect("any text has tokens").len() as u64;
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(vocabulary, &mut memo, u64::MAX);
    counter.text(&text);
    // A piece over the cut is merged in parts: it says so, and is a token or two off.
    if counter.is_exact() {
        assert_eq!(counter.tokens(), truth, "{text:?}");
    }
    // The memo must not change a count, not even one that has served the texts before.
    let first = counter.tokens();
    static SHARED: Mutex<Option<Memo>> = Mutex::new(None);
    let mut shared = SHARED.lock().expect("one thread");
    for memo in [&mut memo, shared.get_or_insert_default()] {
        let mut again = ExactCounter::new(vocabulary, memo, u64::MAX);
        again.text(&text);
        assert_eq!(again.tokens(), first, "{text:?}");
    }
    // Nor must a limit that is not passed, and one that is must be told.
    let limit = u64::from(choice / 2);
    let mut limited = ExactCounter::new(vocabulary, &mut memo, limit);
    limited.text(&text);
    assert_eq!(limited.is_full(), first > limit, "{text:?}");
    if limited.is_exact() || first <= limit {
        assert_eq!(limited.tokens(), first, "{text:?}");
    }
});

/// Counts a long text in a user's message, where the template cuts it, and as a whole.
fn in_a_prompt(vocabulary: &Vocabulary, choice: u8, text: &str) {
    if text.is_empty() {
        return;
    }
    // More than the template counts in one step, or keeps at most.
    let size = if choice & LONGER == 0 { 70 * 1024 } else { 300 * 1024 };
    let long = text.repeat(size / text.len() + 1);
    let (first, second) = long.split_at(long.floor_char_boundary(size / 2));
    let escapes = choice & 2 != 0;
    let parts = [first, second].map(|part| {
        if !escapes {
            return serde_json::to_string(part).expect("text is JSON");
        }
        let units = part.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    });
    let [one, other] = &parts;
    let body = format!(
        r#"{{"chat_template_kwargs":{{"thinking":false}},"messages":[
            {{"role":"user","content":[{{"text":{one}}},{{"text":{other}}}]}}]}}"#
    );
    let read = request::read(Endpoint::ChatCompletions, body.as_bytes()).expect("a chat");
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(vocabulary, &mut memo, u64::MAX);
    let count = Template::DEEPSEEK_V4.count(&read, &mut counter);
    let mut memo = Memo::default();
    let mut counter = ExactCounter::new(vocabulary, &mut memo, u64::MAX);
    counter.text(&format!("{first}\n\n{second}"));
    if count.exact && counter.is_exact() {
        assert_eq!(count.text, counter.tokens(), "{text:?}");
    }
}

fn path(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"))
}
