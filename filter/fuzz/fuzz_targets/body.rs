//! Any bytes as a body, for every endpoint: reading never panics, and what passes means the same to
//! another reader of JSON.
//!
//! The first byte chooses the endpoint, the rest is the body. The other reader is `serde_json`. It
//! must take every body that the filter takes and find the same model, messages and texts in it; and
//! where the filter calls a body no JSON, it must refuse it too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize as _, IgnoredAny};
use serde_json::{Deserializer, Value};
use slogate_policy::request::{self, Endpoint, ReadError, RequestFacts};
use slogate_policy::tokens::{TokenCounter, WordPiece};

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

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    let endpoint = ENDPOINTS[usize::from(*choice) % ENDPOINTS.len()];
    let _ = Endpoint::from_path(body);
    let mut texts = Texts::default();
    match read(endpoint, body, &mut texts) {
        Ok(facts) => {
            let value = parse(body).expect("what passes is JSON");
            agrees(endpoint, body, &facts, &texts.0, &value);
        }
        Err(error) => {
            let error = error.to_string();
            if GRAMMAR.iter().any(|part| error.contains(part)) {
                assert!(parse(body).is_none(), "refused as no JSON: {error}");
            }
        }
    }
});

/// Reads a body and collects its texts.
fn read(endpoint: Endpoint, body: &[u8], texts: &mut Texts) -> Result<RequestFacts, ReadError> {
    request::read(endpoint, body, texts)
}

/// Keeps the texts it is given, and estimates them besides.
#[derive(Default)]
struct Texts(Vec<String>, WordPiece);

impl TokenCounter for Texts {
    fn text(&mut self, text: &str) {
        self.1.text(text);
        assert!(
            self.1.tokens()
                <= self.0.iter().map(String::len).sum::<usize>() as u64 + text.len() as u64
        );
        self.0.push(text.to_owned());
    }

    fn tokens(&self) -> u64 {
        self.1.tokens()
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

fn agrees(endpoint: Endpoint, body: &[u8], facts: &RequestFacts, texts: &[String], value: &Value) {
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
    for content in messages.iter().map(|message| &message["content"]) {
        let parts = content.as_array().into_iter().flatten();
        let plain = content.as_str().into_iter();
        for text in plain.chain(parts.clone().filter_map(Value::as_str)) {
            assert!(text.is_empty() || texts.iter().any(|read| read == text), "a text is lost");
        }
        for text in parts.filter_map(|part| part["text"].as_str()) {
            assert!(text.is_empty() || texts.iter().any(|read| read == text), "a part is lost");
        }
    }
}
