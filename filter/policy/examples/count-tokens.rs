//! Counts tokens of texts from the standard input, for `scripts/token-error.sh`.
//!
//! Every line is a JSON object with a `text`; the answer is its estimate on a line, or with
//! `--features` what the estimate is made of, as a JSON object. With `--time` it is one line for
//! all: nanoseconds per byte, the best of several passes.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool for maintainers; the ban on clocks is for the core"
)]

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use serde::Deserialize;
use slogate_policy::tokens::{TokenCounter, WordPiece, word_piece_features};

#[derive(Deserialize)]
struct Line {
    text: String,
}

fn estimate(text: &str) -> u64 {
    let mut counter = WordPiece::default();
    counter.text(text);
    counter.tokens()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut texts = Vec::new();
    for line in io::stdin().lock().lines() {
        let Line { text } = serde_json::from_str(&line?)?;
        match mode.as_deref() {
            None => writeln!(out, "{}", estimate(&text))?,
            Some("--features") => {
                let found: serde_json::Map<_, _> = word_piece_features(&text)
                    .into_iter()
                    .map(|(name, amount)| (name, amount.into()))
                    .collect();
                writeln!(out, "{}", serde_json::Value::Object(found))?;
            }
            Some("--time") => texts.push(text),
            Some(other) => return Err(format!("unknown option {other}").into()),
        }
    }
    if !texts.is_empty() {
        writeln!(out, "{:.2}", nanoseconds_per_byte(&texts))?;
    }
    out.flush()?;
    Ok(())
}

/// Best of many passes over all texts: the machine may be busy with something else, and a Wasm
/// engine needs some to warm up.
fn nanoseconds_per_byte(texts: &[String]) -> f64 {
    let bytes: usize = texts.iter().map(String::len).sum();
    let pass = || {
        let start = Instant::now();
        for text in texts {
            std::hint::black_box(estimate(std::hint::black_box(text)));
        }
        start.elapsed().as_secs_f64()
    };
    let passes = 20.max(20_000_000_usize.checked_div(bytes).unwrap_or(0));
    let best = (0..passes).map(|_| pass()).fold(f64::INFINITY, f64::min);
    best * 1e9 / bytes as f64
}
