//! What an exact count costs: two policies that differ in `tokenizer` alone, the same bodies.
//!
//! Each body is another text. There are some hundreds of them, used in turn: far more than a counter
//! can remember from one to the next use of the same one. Texts are generated from word lists, or cut
//! at random from a file, where more of the vocabulary is used.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use slogate_integration::harness::{Bootstrap, Chat};
use slogate_integration::load::{self, Language, TextUnit};

use super::paired::Work;

/// Different bodies of each kind.
const BODIES: u64 = 256;

/// The shipped policy with this tokenizer for every model.
pub(crate) fn policy(tokenizer: &str) -> Result<Value> {
    let mut policy = Bootstrap::shipped()?.policy_value()?;
    let models = policy["models"].as_array_mut().context("the policy has no models")?;
    for model in models {
        model["tokenizer"] = json!(tokenizer);
    }
    Ok(policy)
}

/// The bodies whose counts are to be paid for, with their targets in microseconds.
pub(crate) fn works(
    english: Option<&PathBuf>,
    chinese: Option<&PathBuf>,
) -> Result<Vec<(Work, f64)>> {
    let works = [
        ("2k tokens of English", Language::English, english, 2_000, false, 60.0),
        ("8k tokens of English", Language::English, english, 8_000, false, 250.0),
        ("8k tokens of Chinese", Language::Chinese, chinese, 8_000, false, 900.0),
        ("8k tokens of Chinese, escaped", Language::Chinese, chinese, 8_000, true, 900.0),
    ];
    let mut out = Vec::new();
    for (name, language, file, tokens, escaped, target) in works {
        let text = file.map(|path| source(path)).transpose()?;
        let mut chats = Vec::new();
        for seed in 0..BODIES {
            let rng = &mut SmallRng::seed_from_u64(seed);
            let text = match &text {
                Some(text) => window(text, tokens, language, rng),
                None => load::text(language, TextUnit::Real, tokens, rng),
            };
            chats.push(Chat::new("deepseek-v4").body(body(&text, escaped)));
        }
        let name = name.to_owned();
        out.push((Work { name, chats: Arc::new(chats), units: 1, unit: "request" }, target));
    }
    Ok(out)
}

fn source(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// A part of a text that begins anywhere.
fn window(text: &str, tokens: usize, language: Language, rng: &mut SmallRng) -> String {
    let bytes = if language == Language::Chinese { tokens * 9 / 2 } else { tokens * 21 / 5 };
    let start = boundary(text, rng.random_range(0..=text.len().saturating_sub(bytes)));
    let end = boundary(text, start.saturating_add(bytes));
    text[start..end].to_owned()
}

/// The last end of a character up to here.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A chat of one message; escaped as Python's `json` writes it unless told otherwise.
pub(crate) fn body(text: &str, escaped: bool) -> Vec<u8> {
    let plain = json!({"model": "deepseek-v4", "messages": [{"role": "user", "content": text}]});
    let plain = plain.to_string();
    if !escaped {
        return plain.into_bytes();
    }
    let mut out = String::with_capacity(plain.len() * 2);
    for char in plain.chars() {
        if char.is_ascii() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.into_bytes()
}
