//! A vocabulary ready for counting.

use super::added::AddedTokens;
use super::blob::{AddedToken, Blob, MAX_IDS, MAX_TOKEN_BYTES, Rules};
use super::classes::Classes;
use super::hanzi::Hanzi;
use super::tables::{Pairs, Wholes};

/// Bytes of all tokens together at most; real vocabularies have one or two millions.
const MAX_TOTAL_BYTES: usize = 1 << 24;

/// Why bytes are no vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VocabularyError {
    /// Does not begin as a vocabulary file does.
    NotAVocabulary,
    /// Written in another format.
    Version {
        /// The format's version in the file.
        found: u32,
        /// The one that is understood.
        known: u32,
    },
    /// Ends too soon.
    Truncated,
    /// Its checksum is not that of its bytes.
    Checksum,
    /// The name is not UTF-8.
    Name,
    /// Splitting rules that are not known.
    Rules,
    /// Class ranges that cover more than Unicode or nothing.
    Classes,
    /// A length is out of range.
    Length,
    /// More entries than the tables can hold.
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: u32,
    },
    /// Bytes behind the end.
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A merge of what is not there yet, of what is merged already, or into too long a token.
    Merge {
        /// The id it should make.
        id: u32,
    },
}

impl std::fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAVocabulary => f.write_str("not a vocabulary file"),
            Self::Version { found, known } => {
                write!(f, "vocabulary format {found}, this version reads {known}")
            }
            Self::Truncated => f.write_str("vocabulary file ends too soon"),
            Self::Checksum => f.write_str("checksum of the vocabulary file is wrong"),
            Self::Name => f.write_str("name of the vocabulary is not UTF-8"),
            Self::Rules => f.write_str("unknown splitting rules"),
            Self::Classes => f.write_str("character classes out of range"),
            Self::Length => f.write_str("length out of range"),
            Self::TooLarge { what, count } => write!(f, "{count} {what} are too many"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes behind the end"),
            Self::Merge { id } => write!(f, "impossible merge for id {id}"),
        }
    }
}

impl std::error::Error for VocabularyError {}

/// The tables of one vocabulary, about 5.4 MB for one of 128,000 tokens.
pub struct Vocabulary {
    name: String,
    /// Tells vocabularies apart.
    pub(super) checksum: u64,
    pub(super) rules: Rules,
    pub(super) classes: Classes,
    pub(super) pairs: Pairs,
    pub(super) wholes: Wholes,
    /// Bytes of the longest token.
    pub(super) longest: usize,
    pub(super) hanzi: Option<Hanzi>,
    /// Those cut out first, and those cut out of what the first leave.
    pub(super) added: [AddedTokens; 2],
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Builds the tables from a vocabulary file; some ten milliseconds.
    ///
    /// # Errors
    /// The bytes are no vocabulary file of this version, or a damaged one.
    pub fn from_bytes(file: &[u8]) -> Result<Self, VocabularyError> {
        let blob = Blob::read(file)?;
        let rules = blob.rules;
        let added = |second: bool| {
            let chosen = blob.added.iter().filter(move |token| token.second == second);
            AddedTokens::new(chosen.map(|AddedToken { bytes, .. }| &**bytes))
        };
        let added = [added(false), added(true)];
        let merges = blob.merges().len();
        let wholes = Wholes::with_capacity(
            merges.saturating_add(blob.wholes.len()).saturating_add(256),
            merges.saturating_mul(7).min(MAX_TOTAL_BYTES),
        );
        let mut vocabulary = Self {
            name: blob.name.to_owned(),
            checksum: blob.checksum,
            rules,
            classes: Classes::new(&blob.classes, rules),
            pairs: Pairs::with_capacity(blob.merges().len()),
            wholes,
            longest: 1,
            hanzi: rules.cjk.then(Hanzi::new),
            added,
        };
        vocabulary.merges(&blob)?;
        for token in &blob.wholes {
            vocabulary.wholes.insert(token);
            vocabulary.longest = vocabulary.longest.max(token.len());
        }
        Ok(vocabulary)
    }

    /// Enters the merges and the tokens they make.
    fn merges(&mut self, blob: &Blob<'_>) -> Result<(), VocabularyError> {
        // Where the bytes of each token end among those of all.
        let mut ends: Vec<u32> = Vec::with_capacity(blob.merges().len().saturating_add(256));
        for (byte, end) in (0..=u8::MAX).zip(1..) {
            self.wholes.insert(&[byte]);
            ends.push(end);
        }
        let mut token = Vec::with_capacity(MAX_TOKEN_BYTES);
        for ((left, right), id) in blob.merges().zip(256..MAX_IDS) {
            token.clear();
            for part in [left, right] {
                let before =
                    part.checked_sub(1).map_or(Some(&0), |before| ends.get(before as usize));
                let end = ends.get(part as usize);
                let (Some(&start), Some(&end)) = (before, end) else {
                    return Err(VocabularyError::Merge { id });
                };
                let bytes = self.wholes.bytes().get(start as usize..end as usize);
                token.extend(bytes.unwrap_or_default());
            }
            let total = self.wholes.bytes().len().saturating_add(token.len());
            if token.len() > MAX_TOKEN_BYTES || total > MAX_TOTAL_BYTES {
                return Err(VocabularyError::Merge { id });
            }
            ends.push(u32::try_from(total).unwrap_or(u32::MAX));
            self.pairs.insert(left, right, id)?;
            self.wholes.insert(&token);
            self.longest = self.longest.max(token.len());
            if let Some(hanzi) = &mut self.hanzi {
                hanzi.learn(&token, id);
            }
        }
        Ok(())
    }

    /// What the file says it is, such as `deepseek-v4`.
    pub fn name(&self) -> &str {
        &self.name
    }
}
