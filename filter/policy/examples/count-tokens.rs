//! Counts tokens of texts from the standard input, for `scripts/token-error.sh`.
//!
//! Every line is a JSON object with a `text`; the answer is its estimate on a line, or with
//! `--features` what the estimate is made of, as a JSON object. With `--time` it is one line for
//! all: nanoseconds per byte, the best of several passes. `--exact FILE` counts with a vocabulary
//! instead of estimating, `--limit N` ends that early. With `--each` the answer is for every text the
//! count, its bytes and the best time in nanoseconds, of a memo that has not seen it.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool for maintainers; the ban on clocks and files is for the core"
)]

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use serde::Deserialize;
use slogate_policy::tokens::{
    ExactCounter, Memo, TokenCounter, Vocabulary, WordPiece, word_piece_features,
};

#[derive(Deserialize)]
struct Line {
    text: String,
}

/// What the answers are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Count,
    Features,
    Time,
    Each,
}

/// Counts one text after the other.
struct Counting {
    vocabulary: Option<Vocabulary>,
    memo: Memo,
    limit: u64,
}

impl Counting {
    fn count(&mut self, text: &str) -> u64 {
        let Some(vocabulary) = &self.vocabulary else {
            let mut counter = WordPiece::default();
            counter.text(text);
            return counter.tokens();
        };
        let mut counter = ExactCounter::new(vocabulary, &mut self.memo, self.limit);
        counter.text(text);
        counter.tokens()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut counting = Counting { vocabulary: None, memo: Memo::default(), limit: u64::MAX };
    let mut mode = Mode::Count;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--features" => mode = Mode::Features,
            "--time" => mode = Mode::Time,
            "--each" => mode = Mode::Each,
            "--exact" => {
                counting.vocabulary = Some(Vocabulary::from_bytes(&std::fs::read(value()?)?)?);
            }
            "--limit" => counting.limit = value()?.parse()?,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut texts = Vec::new();
    for line in io::stdin().lock().lines() {
        let Line { text } = serde_json::from_str(&line?)?;
        match mode {
            Mode::Count => writeln!(out, "{}", counting.count(&text))?,
            Mode::Features => {
                let found: serde_json::Map<_, _> = word_piece_features(&text)
                    .into_iter()
                    .map(|(name, amount)| (name, amount.into()))
                    .collect();
                writeln!(out, "{}", serde_json::Value::Object(found))?;
            }
            Mode::Time => texts.push(text),
            Mode::Each => {
                // Enough for a Wasm engine to have optimised.
                let passes = 30.max(3_000_000_usize.checked_div(text.len()).unwrap_or(0));
                let best = (0..passes).map(|_| {
                    counting.memo = Memo::default();
                    let start = Instant::now();
                    let count = counting.count(std::hint::black_box(&text));
                    (start.elapsed(), count)
                });
                let (time, count) = best.min().unwrap_or_default();
                writeln!(out, "{count} {} {}", text.len(), time.as_nanos())?;
            }
        }
    }
    if !texts.is_empty() {
        writeln!(out, "{:.2}", nanoseconds_per_byte(&mut counting, &texts))?;
    }
    out.flush()?;
    Ok(())
}

/// Best of many passes over all texts: the machine may be busy with something else, and a Wasm
/// engine needs some to warm up.
fn nanoseconds_per_byte(counting: &mut Counting, texts: &[String]) -> f64 {
    let bytes: usize = texts.iter().map(String::len).sum();
    let mut pass = || {
        let start = Instant::now();
        for text in texts {
            std::hint::black_box(counting.count(std::hint::black_box(text)));
        }
        start.elapsed().as_secs_f64()
    };
    let passes = 20.max(20_000_000_usize.checked_div(bytes).unwrap_or(0));
    let best = (0..passes).map(|_| pass()).fold(f64::INFINITY, f64::min);
    best * 1e9 / bytes as f64
}
