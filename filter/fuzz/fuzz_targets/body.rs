//! Any bytes as a body, for every endpoint: neither reading nor counting panics, and what passes means
//! the same to another reader of JSON.
//!
//! The first byte chooses the endpoint and whether the body is to be made long, the rest is the body.
//! The other reader is `serde_json`. It must take every body that the filter takes and find the same
//! model, messages and texts in it; and where the filter calls a body no JSON, it must refuse it too.
//!
//! What passes is rendered by both templates, for the estimate and for counters that are full after
//! any number of bytes. Until one is full, it must be given the same texts as one that never is.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize as _, IgnoredAny};
use serde_json::{Deserializer, Value};
use slogate_policy::request::{self, Endpoint, Read, RequestFacts};
use slogate_policy::tokens::{Count, Template, TokenCounter, WordPiece};

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::Invocations,
];

/// Refusals that say the body is no JSON at all, by a part of what they say. All others are of bodies
/// that other readers may well take.
const GRAMMAR: [&str; 6] = [
    "bad escape",
    "bad number",
    "bytes after the JSON document",
    "ends before its JSON document",
    "not valid JSON",
    "raw control character",
];

/// The bit of the first byte that makes a body long.
const LONG: u8 = 0x80;

/// What a long body's marks add, in bytes: more than the templates count in one step.
const RUN: usize = 33 * 1024;

/// Long bodies are cut here.
const MAX_BODY: usize = 4 * RUN;

/// When counters are full, in bytes: at once, soon, after one step of a template.
const LIMITS: [u64; 4] = [0, 1, 100, 32 * 1024];

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    let endpoint = ENDPOINTS[usize::from(choice & !LONG) % ENDPOINTS.len()];
    let body = if choice & LONG == 0 { Cow::Borrowed(body) } else { lengthen(body).into() };
    let body = body.as_ref();
    let _ = Endpoint::from_path(body);
    match request::read(endpoint, body) {
        Ok(read) => {
            let value = parse(body).expect("what passes is JSON");
            let mut texts = rendered(&Template::GENERIC, &read, body);
            if choice & LONG != 0 {
                // Long texts are counted in steps.
                texts = vec![texts.concat()];
            }
            let prompt = rendered(&Template::DEEPSEEK_V4, &read, body).concat();
            agrees(endpoint, body, &read.facts, &texts, &prompt, &value);
        }
        Err(error) => {
            let error = error.to_string();
            if GRAMMAR.iter().any(|part| error.contains(part)) {
                assert!(parse(body).is_none(), "refused as no JSON: {error}");
            }
        }
    }
});

/// A body in which a control byte from 1 to 8 stands for many copies of that many bytes before it. No
/// JSON text has such a byte, and few inputs would get long by themselves.
fn lengthen(body: &[u8]) -> Vec<u8> {
    let mut long = Vec::with_capacity(body.len());
    for &byte in body {
        let start = long.len().saturating_sub(usize::from(byte));
        if (1..=8).contains(&byte) && start < long.len() {
            let unit = long[start..].to_vec();
            long.extend(unit.repeat(RUN / unit.len()));
        } else {
            long.push(byte);
        }
        if long.len() > MAX_BODY {
            long.truncate(MAX_BODY);
            break;
        }
    }
    long
}

/// Counts a request in every way, and gives the texts it was counted by.
fn rendered(template: &Template, read: &Read<'_>, body: &[u8]) -> Vec<String> {
    let mut whole = Texts::up_to(u64::MAX);
    let truth = template.count(read, &mut whole);
    assert_eq!(truth.text, whole.bytes);
    assert!(truth.tokens() >= truth.text.max(truth.fixed));
    // What a body makes of the gate is in proportion to its size.
    assert!(whole.bytes <= 32 * body.len() as u64 + 1024, "{} bytes", whole.bytes);
    for limit in LIMITS {
        let mut texts = Texts::up_to(limit);
        let count = template.count(read, &mut texts);
        let careful = &texts.texts[..texts.before_full];
        assert_eq!(careful, &whole.texts[..texts.before_full], "full after {limit}");
        assert_eq!(count.fixed, truth.fixed, "full after {limit}");
        if !texts.is_full() {
            assert_eq!(count, truth, "full after {limit}");
        }
        assert!(!count.exact || truth.exact);
    }
    let mut estimate = WordPiece::default();
    let Count { text, exact, .. } = template.count(read, &mut estimate);
    assert!(!exact || text == 0, "an estimate is called exact");
    assert!(text <= whole.bytes, "{text} tokens of {} bytes", whole.bytes);
    whole.texts
}

/// Keeps the texts it is given, and counts bytes.
struct Texts {
    texts: Vec<String>,
    bytes: u64,
    limit: u64,
    /// How many texts came before it was full.
    before_full: usize,
}

impl Texts {
    fn up_to(limit: u64) -> Self {
        Self { texts: Vec::new(), bytes: 0, limit, before_full: 0 }
    }
}

impl TokenCounter for Texts {
    fn text(&mut self, text: &str) {
        assert!(!text.is_empty(), "no text is none");
        if !self.is_full() {
            self.before_full += 1;
        }
        self.texts.push(text.to_owned());
        self.bytes += text.len() as u64;
    }

    fn tokens(&self) -> u64 {
        self.bytes
    }

    fn is_exact(&self) -> bool {
        !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.limit
    }
}

/// The whole body as another reader takes it, of any depth.
fn parse(body: &[u8]) -> Option<Value> {
    let mut deserializer = Deserializer::from_slice(body);
    deserializer.disable_recursion_limit();
    let ignored = IgnoredAny::deserialize(&mut deserializer).and_then(|_| deserializer.end());
    ignored.ok()?;
    let mut deserializer = Deserializer::from_slice(body);
    deserializer.disable_recursion_limit();
    Some(Value::deserialize(&mut deserializer).expect("what can be skipped can be read"))
}

fn agrees(
    endpoint: Endpoint,
    body: &[u8],
    facts: &RequestFacts,
    texts: &[String],
    prompt: &str,
    value: &Value,
) {
    let model = value["model"].as_str().filter(|model| !model.is_empty());
    assert_eq!(facts.model.as_deref(), model);
    if let Some(span) = facts.model_span.clone() {
        let there: Value = serde_json::from_slice(&body[span]).expect("the model's value");
        assert_eq!(there, value["model"]);
    }
    assert!(facts.choices >= 1 && facts.prompts >= 1);
    if endpoint != Endpoint::ChatCompletions {
        return;
    }
    let messages = value["messages"].as_array().expect("required");
    assert_eq!(facts.messages, messages.len() as u64);
    if let Some(stream) = value["stream"].as_bool() {
        assert_eq!(facts.stream, stream);
    }
    // The texts of a long body are one.
    let has = |text: &str| match texts {
        [all] => all.contains(text),
        _ => text.is_empty() || texts.iter().any(|read| read == text),
    };
    for message in messages {
        let content = &message["content"];
        // Other texts are left out by a rule, at times.
        let rendered = message["role"] == "user" || message["role"] == "tool";
        let parts = content.as_array().into_iter().flatten();
        let plain = content.as_str().into_iter();
        for text in plain.chain(parts.clone().filter_map(Value::as_str)) {
            assert!(has(text), "a text is lost");
            assert!(!rendered || prompt.contains(text), "a text is lost to the template");
        }
        for text in parts.filter_map(|part| part["text"].as_str()) {
            assert!(has(text), "a part is lost");
            assert!(!rendered || prompt.contains(text), "a part is lost to the template");
        }
    }
}
