//! Estimates with learning, for `scripts/token-error.sh --learn`.
//!
//! Every line of the standard input is a JSON object with a `text` and its true number of tokens,
//! `truth`, and where another counter than the word-piece estimate is to be corrected, that one's
//! `count`. The answer is the corrected number, made before the truth is shown, on a line. After
//! `--freeze N` lines nothing more is learned.

use std::error::Error;
use std::io::{self, BufRead, Write};

use serde::Deserialize;
use slogate_policy::calibration::{Estimate, Learned};
use slogate_policy::tokens::kind::Sampler;
use slogate_policy::tokens::{TokenCounter, WordPiece};

#[derive(Deserialize)]
struct Line {
    text: String,
    truth: u64,
    count: Option<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let freeze = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => usize::MAX,
        (Some("--freeze"), Some(lines)) => lines.parse()?,
        _ => return Err("usage: learn-tokens [--freeze LINES] < lines".into()),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut learned = Learned::default();
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let Line { text, truth, count } = serde_json::from_str(&line?)?;
        let mut counter = WordPiece::default();
        let mut sampler = Sampler::new(&mut counter);
        sampler.text(&text);
        let mix = sampler.mix();
        let text = count.unwrap_or_else(|| counter.tokens());
        let mut estimate = Estimate { mix, text, ..Estimate::default() };
        writeln!(out, "{}", estimate.apply(&learned))?;
        if index < freeze {
            learned.learn(&estimate, truth);
        }
    }
    out.flush()?;
    Ok(())
}
