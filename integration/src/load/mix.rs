//! What the load is made of: kinds of requests, each with its share.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use rand::Rng;
use serde::{Deserialize, Serialize};

/// The language of made-up prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English words.
    #[default]
    English,
    /// Chinese characters.
    Chinese,
    /// Program text.
    Code,
}

/// A whole number drawn evenly from `from..=to`; written `200`, `100-300`, or `[100, 300]` in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawSpan", into = "(usize, usize)")]
pub struct Span {
    from: usize,
    to: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawSpan {
    One(usize),
    Both(usize, usize),
    Text(String),
}

impl TryFrom<RawSpan> for Span {
    type Error = anyhow::Error;

    fn try_from(raw: RawSpan) -> anyhow::Result<Self> {
        match raw {
            RawSpan::One(number) => Self::new(number, number),
            RawSpan::Both(from, to) => Self::new(from, to),
            RawSpan::Text(text) => text.parse(),
        }
    }
}

impl From<Span> for (usize, usize) {
    fn from(span: Span) -> Self {
        (span.from, span.to)
    }
}

impl FromStr for Span {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let number = |part: &str| {
            let part = part.trim();
            part.parse().with_context(|| format!("`{part}` is not a number of tokens"))
        };
        Self::new(number(from)?, number(to)?)
    }
}

impl Span {
    /// A span of token counts.
    ///
    /// # Errors
    /// `from` is 0 or above `to`.
    pub fn new(from: usize, to: usize) -> anyhow::Result<Self> {
        if from == 0 || from > to {
            bail!("`{from}-{to}` is not a span of token counts (such as 100-300)");
        }
        Ok(Self { from, to })
    }

    /// Draws one number.
    pub fn draw(self, rng: &mut impl Rng) -> usize {
        rng.random_range(self.from..=self.to)
    }
}

/// One kind of request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixEntry {
    /// Name in the report.
    pub name: String,
    /// Share of the requests, in any unit: shares are divided by their sum.
    #[serde(default = "one")]
    pub share: f64,
    /// API key, sent as a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of `x-slogate-tier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Model; absent sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Prompt tokens.
    #[serde(default = "default_prompt")]
    pub prompt: Span,
    /// Output tokens.
    #[serde(default = "default_output")]
    pub output: Span,
    /// Whether the answer is a stream.
    #[serde(default)]
    pub stream: bool,
    /// Language of the prompt.
    #[serde(default)]
    pub language: Language,
    /// In a closed loop: this many clients send this kind and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// Further request headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Without the key, which is a secret.
impl std::fmt::Debug for MixEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MixEntry")
            .field("name", &self.name)
            .field("share", &self.share)
            .field("tier", &self.tier)
            .field("model", &self.model)
            .field("prompt", &self.prompt)
            .field("output", &self.output)
            .field("stream", &self.stream)
            .field("language", &self.language)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

fn one() -> f64 {
    1.0
}

fn default_prompt() -> Span {
    Span { from: 100, to: 300 }
}

fn default_output() -> Span {
    Span { from: 16, to: 16 }
}

impl MixEntry {
    /// An entry with a name and the defaults: 100 to 300 prompt tokens, 16 output tokens, English.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            share: one(),
            key: None,
            tier: None,
            model: None,
            prompt: default_prompt(),
            output: default_output(),
            stream: false,
            language: Language::default(),
            clients: None,
            headers: BTreeMap::new(),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if !(self.share.is_finite() && self.share > 0.0) {
            bail!("mix entry `{}`: share must be above 0", self.name);
        }
        if self.clients == Some(0) {
            bail!("mix entry `{}`: clients must be at least 1", self.name);
        }
        Ok(())
    }
}

impl FromStr for MixEntry {
    type Err = anyhow::Error;

    /// Reads the form of the flag: `name=short,share=0.7,key=sk-a,tier=realtime,prompt=100-300`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut entry = Self::named("");
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .with_context(|| format!("`{part}` is not of the form name=value"))?;
            let value = value.trim();
            match name.trim() {
                "name" => value.clone_into(&mut entry.name),
                "share" => entry.share = value.parse().context("share is a number")?,
                "key" => entry.key = Some(value.to_owned()),
                "tier" => entry.tier = Some(value.to_owned()),
                "model" => entry.model = Some(value.to_owned()),
                "prompt" => entry.prompt = value.parse()?,
                "output" => entry.output = value.parse()?,
                "stream" => entry.stream = value.parse().context("stream is true or false")?,
                "language" => {
                    entry.language = serde_json::from_value(value.into())
                        .context("language is english, chinese or code")?;
                }
                "clients" => entry.clients = Some(value.parse().context("clients is a number")?),
                other => bail!(
                    "unknown field `{other}`; there are name, share, key, tier, model, prompt, \
                     output, stream, language, clients"
                ),
            }
        }
        if entry.name.is_empty() {
            bail!("name is missing");
        }
        entry.check()?;
        Ok(entry)
    }
}

/// Reads a mix from a JSON file: a list of entries.
///
/// # Errors
/// The file cannot be read, or an entry is not valid.
pub fn read_mix(path: &Path) -> anyhow::Result<Vec<MixEntry>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let entries: Vec<MixEntry> =
        serde_json::from_str(&text).with_context(|| format!("{name} is not a mix"))?;
    entries.iter().try_for_each(MixEntry::check).with_context(|| name.to_string())?;
    if entries.is_empty() {
        bail!("{name}: the mix has no entries");
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_and_its_json_mean_the_same() {
        let flag: MixEntry =
            "name=a,share=0.7,key=k,tier=t,model=m,prompt=1-2,output=3,stream=true,language=code"
                .parse()
                .unwrap();
        let json: MixEntry = serde_json::from_str(
            r#"{"name":"a","share":0.7,"key":"k","tier":"t","model":"m","prompt":"1-2","output":3,
                "stream":true,"language":"code"}"#,
        )
        .unwrap();
        assert_eq!(serde_json::to_value(&flag).unwrap(), serde_json::to_value(&json).unwrap());
    }

    #[test]
    fn a_key_does_not_show_in_debug_output() {
        let entry: MixEntry = "name=a,key=sk-secret".parse().unwrap();
        assert!(!format!("{entry:?}").contains("secret"));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["", "name=", "share=0,name=a", "name=a,prompt=9-1", "name=a,colour=red"] {
            assert!(text.parse::<MixEntry>().is_err(), "{text}");
        }
    }
}
