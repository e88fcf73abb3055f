//! Counts the prompts of requests from the standard input.
//!
//! Every line is the body of a request; the answer is a line with its prompt tokens and `exact` or
//! `estimate`. `--template NAME` takes another template than the generic one; `--exact FILE` counts
//! with a vocabulary file, and takes the template that goes with it, up to
//! `--limit N` tokens exactly. With `--texts` the answer is a
//! JSON object instead: the texts a counter is given and the tokens beside them, for comparison with
//! another tokenizer.
#![expect(
    clippy::disallowed_methods,
    reason = "a tool for maintainers; the ban on files is for the core"
)]

use std::error::Error;
use std::io::{self, BufRead, Write};

use slogate_policy::config::MIN_COUNT_LIMIT;
use slogate_policy::request::{self, Endpoint};
use slogate_policy::tokens::{ExactCounter, Memo, Template, TokenCounter, Vocabulary, WordPiece};

#[derive(Default)]
struct Texts(Vec<String>);

impl TokenCounter for Texts {
    fn text(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn tokens(&self) -> u64 {
        0
    }

    fn is_exact(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut template = Template::GENERIC;
    let mut texts = false;
    let mut vocabulary = None;
    let mut limit = MIN_COUNT_LIMIT;
    let mut memo = Memo::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--texts" => texts = true,
            "--template" => {
                let name = arguments.next().ok_or("--template needs a name")?;
                template = Template::of_tokenizer(&name);
            }
            "--limit" => limit = arguments.next().ok_or("--limit needs a number")?.parse()?,
            "--exact" => {
                let file = arguments.next().ok_or("--exact needs a file")?;
                let made = Vocabulary::from_bytes(&std::fs::read(file)?)?;
                template = Template::of_tokenizer(made.name());
                vocabulary = Some(made);
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        // One endpoint takes conversations and prompts.
        let line = line?;
        let read = match request::read(Endpoint::Invocations, line.as_bytes()) {
            Ok(read) => read,
            Err(error) => {
                writeln!(out, "error {error}")?;
                continue;
            }
        };
        if texts {
            let mut counter = Texts::default();
            let count = template.count(&read, &mut counter);
            let found = serde_json::json!({
                "fixed": count.fixed, "exact": count.exact, "texts": counter.0,
            });
            writeln!(out, "{found}")?;
        } else {
            let count = match &vocabulary {
                Some(vocabulary) => {
                    template.count(&read, &mut ExactCounter::new(vocabulary, &mut memo, limit))
                }
                None => template.count(&read, &mut WordPiece::default()),
            };
            let kind = if count.exact { "exact" } else { "estimate" };
            writeln!(out, "{} {kind}", count.tokens())?;
        }
    }
    out.flush()?;
    Ok(())
}
