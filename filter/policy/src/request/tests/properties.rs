//! Properties over made-up requests and over bytes that are none.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::{Texts, read};
use crate::request::{Endpoint, RequestFacts};

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::Invocations,
];

/// Choices that need not shrink well: how a value is written, not what it is.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn blank(&mut self) -> &'static str {
        ["", "", "", " ", "\n\t", "\r\n"][usize::try_from(self.roll(6)).unwrap()]
    }

    /// A string literal, each character in one of the ways it may be written.
    fn string(&mut self, text: &str) -> String {
        let mut out = String::from('"');
        for char in text.chars() {
            let short = match char {
                '"' => Some("\\\""),
                '\\' => Some("\\\\"),
                '/' => Some("\\/"),
                '\n' => Some("\\n"),
                '\t' => Some("\\t"),
                _ => None,
            };
            let must = char < ' ' || char == '"' || char == '\\';
            match (self.roll(8), short) {
                (0..=5, _) if !must => out.push(char),
                (0..=6, Some(short)) => out.push_str(short),
                (roll, _) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let digits = if roll % 2 == 0 {
                            format!("{unit:04x}")
                        } else {
                            format!("{unit:04X}")
                        };
                        out.push_str("\\u");
                        out.push_str(&digits);
                    }
                }
            }
        }
        out.push('"');
        out
    }

    /// An object of the members, in any order.
    fn object(&mut self, mut members: Vec<(&str, String)>) -> String {
        for last in (1..members.len()).rev() {
            let other = usize::try_from(self.roll(last as u64 + 1)).unwrap();
            members.swap(last, other);
        }
        let mut texts = Vec::new();
        for (key, value) in members {
            let key = self.string(key);
            let (a, b, c) = (self.blank(), self.blank(), self.blank());
            texts.push(format!("{a}{key}{b}:{c}{value}"));
        }
        let end = self.blank();
        format!("{{{}{end}}}", texts.join(","))
    }

    fn list(&mut self, values: &[String]) -> String {
        let blank = self.blank();
        format!("[{blank}{}{blank}]", values.join(&format!("{blank},")))
    }

    fn whole(&mut self, value: u64) -> String {
        match self.roll(5) {
            0 => format!("{value}.0"),
            1 => format!("{value}e0"),
            2 => format!("\" {value} \""),
            3 => format!("\"+{value}.00\""),
            _ => value.to_string(),
        }
    }

    fn boolean(&mut self, value: bool) -> String {
        let words = if value {
            ["true", "\"Yes\"", "1", "1.0", "\"t\""]
        } else {
            ["false", "\"OFF\"", "0", "null", "\"n\""]
        };
        words[usize::try_from(self.roll(5)).unwrap()].to_owned()
    }

    /// A value of a field that nobody reads.
    fn noise(&mut self, depth: u32) -> String {
        match self.roll(if depth > 4 { 4 } else { 6 }) {
            0 => "null".to_owned(),
            1 => "-1.5E+3".to_owned(),
            2 => self.string("\u{1F600}noise\"\\"),
            3 => "true".to_owned(),
            4 => {
                let inner = [self.noise(depth + 1), self.noise(depth + 1)];
                self.list(&inner)
            }
            _ => {
                let inner = vec![("model", self.noise(depth + 1)), ("", self.noise(depth + 1))];
                self.object(inner)
            }
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

#[derive(Clone, Debug)]
struct Message {
    role: &'static str,
    texts: Vec<String>,
    parts: bool,
    images: u64,
}

fn message() -> impl Strategy<Value = Message> {
    let roles = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    (roles, vec(text(), 1..4), any::<bool>(), 0..3_u64).prop_map(
        |(role, mut texts, parts, images)| {
            if !parts {
                texts.truncate(1);
            }
            let images = if parts { images } else { 0 };
            Message { role, texts, parts, images }
        },
    )
}

fn write_message(dice: &mut Dice, message: &Message) -> String {
    let content = if message.parts {
        let mut parts = Vec::new();
        for text in &message.texts {
            let members = vec![("type", dice.string("text")), ("text", dice.string(text))];
            parts.push(dice.object(members));
        }
        for _ in 0..message.images {
            let members = vec![("type", dice.string("image_url")), ("image_url", dice.noise(0))];
            parts.push(dice.object(members));
        }
        dice.list(&parts)
    } else {
        dice.string(&message.texts[0])
    };
    let members =
        vec![("role", dice.string(message.role)), ("content", content), ("x", dice.noise(0))];
    dice.object(members)
}

/// Runs of user and tool messages, counted the plain way.
fn turns(messages: &[Message]) -> usize {
    let asks = |m: &Message| m.role == "user" || m.role == "tool";
    messages.chunk_by(|a, b| asks(a) == asks(b)).filter(|run| asks(&run[0])).count()
}

prop_compose! {
    /// A chat request, its facts and its texts.
    fn chat()(
        messages in vec(message(), 0..6),
        model in prop::option::of(text()),
        cap in prop::option::of(1..100_000_u64),
        choices in prop::option::of(1..9_u64),
        stream in any::<bool>(),
        usage in any::<bool>(),
        seed in 1..u64::MAX,
    ) -> (String, RequestFacts, Vec<String>) {
        let dice = &mut Dice(seed);
        let written: Vec<_> = messages.iter().map(|m| write_message(dice, m)).collect();
        let mut members = vec![
            ("messages", dice.list(&written)),
            ("stream", dice.boolean(stream)),
            ("metadata", dice.noise(0)),
            ("temperature", dice.noise(0)),
        ];
        let options = vec![("include_usage", dice.boolean(usage))];
        members.push(("stream_options", dice.object(options)));
        if let Some(model) = &model {
            members.push(("model", dice.string(model)));
        }
        if let Some(cap) = cap {
            let (name, other) = if dice.roll(2) == 0 {
                ("max_tokens", ("max_completion_tokens", "null".to_owned()))
            } else {
                ("max_completion_tokens", ("max_tokens", dice.whole(cap + 1)))
            };
            members.push((name, dice.whole(cap)));
            members.push(other);
        }
        if let Some(choices) = choices {
            members.push(("n", dice.whole(choices)));
        }
        let body = dice.object(members);
        let facts = RequestFacts {
            model: model.filter(|m| !m.is_empty()),
            stream,
            include_usage: usage,
            max_output_tokens: cap,
            choices: choices.unwrap_or(1),
            prompts: 1,
            messages: messages.len() as u64,
            user_turns: turns(&messages) as u64,
            assistant_messages: messages.iter().filter(|m| m.role == "assistant").count() as u64,
            images: messages.iter().map(|m| m.images).sum(),
            ..RequestFacts::default()
        };
        let texts = messages.into_iter().flat_map(|m| m.texts);
        // An empty text is none.
        let texts = texts.filter(|text| !text.is_empty()).collect();
        (body, facts, texts)
    }
}

proptest! {
    #[test]
    fn a_written_chat_reads_back_as_what_it_was_made_from((body, expected, texts) in chat()) {
        let mut read_texts = Texts::default();
        let mut facts = read(Endpoint::ChatCompletions, body.as_bytes(), &mut read_texts).unwrap();
        if let Some(span) = facts.model_span.take() {
            let model: String = serde_json::from_slice(&body.as_bytes()[span]).unwrap();
            prop_assert_eq!(model, expected.model.clone().unwrap_or_default());
        }
        prop_assert_eq!(facts, expected);
        prop_assert_eq!(read_texts.0, texts);
    }

    #[test]
    fn bytes_never_panic(body in vec(any::<u8>(), 0..200), endpoint in prop::sample::select(&ENDPOINTS[..])) {
        let _ = read(endpoint, &body, &mut Texts::default());
        let _ = Endpoint::from_path(&body);
    }

    #[test]
    fn json_like_bytes_never_panic(
        pieces in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\\", "\\u", "d83d", "null", "true", "1", "-", "e", ".", " ",
            "\"messages\":[{\"role\":\"user\",\"content\":", "\"model\":", "\"prompt\":[", "\"a\"", "\"input\":",
        ]), 0..40),
        endpoint in prop::sample::select(&ENDPOINTS[..]),
    ) {
        let body = pieces.concat();
        if read(endpoint, body.as_bytes(), &mut Texts::default()).is_ok() {
            prop_assert!(serde_json::from_str::<IgnoredAny>(&body).is_ok());
        }
    }

    #[test]
    fn a_changed_chat_that_passes_is_still_json_with_the_same_model(
        (body, _, _) in chat(),
        changes in vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), prop::sample::select(&b"\"\\{}[],:0e"[..])]), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut body = body.into_bytes();
        for (index, byte) in changes {
            let at = index.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        if let Ok(facts) = read(Endpoint::ChatCompletions, &body, &mut Texts::default()) {
            prop_assert!(serde_json::from_slice::<IgnoredAny>(&body).is_ok());
            // A number that the filter does not read may be too large for this parser.
            if let Ok(value) = serde_json::from_slice::<serde_json::Value>(&body) {
                let model = value["model"].as_str().filter(|model| !model.is_empty());
                prop_assert_eq!(facts.model.as_deref(), model);
                prop_assert_eq!(facts.messages, value["messages"].as_array().unwrap().len() as u64);
            }
        }
    }

    #[test]
    fn every_start_of_a_chat_is_refused((body, _, _) in chat(), cut in any::<prop::sample::Index>()) {
        let end = cut.index(body.len());
        prop_assert!(read(Endpoint::ChatCompletions, &body.as_bytes()[..end], &mut Texts::default()).is_err());
    }
}
