//! The file a vocabulary is kept in: what it holds, how it is written, how it is read.
//!
//! Little endian throughout:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `slgvocab` |
//! | 4 | version of this format |
//! | 1 + n | name of the vocabulary |
//! | 3 | rules: family, digits in a group, flags |
//! | 4 + n | number of class ranges; each a varint of (length << 5, flags) |
//! | 4 + n | number of added tokens; each its flags, bytes shared with the one before, rest |
//! | 4 + n | number of whole-piece tokens, each like an added token |
//! | 4 + 6 n | number of merges, each the two ids that become one |
//! | 8 | checksum of everything before |
//!
//! Ids are the format's own: 0 to 255 are the bytes, merge `k` makes 256 + `k`. A count needs no
//! more, and the model's ids would only make the file larger. The format is read by the version of
//! the crate that wrote it, so another version is refused rather than translated.

use super::VocabularyError;
use super::classes::{CODE_POINTS, Flags, GIVEN};

const MAGIC: [u8; 8] = *b"slgvocab";
/// Changes with every change of the format.
const VERSION: u32 = 1;

/// Ids have 21 bits in the table of pairs.
pub(super) const MAX_IDS: u32 = 1 << 21;
/// More bytes than any token of a real vocabulary has.
pub(super) const MAX_TOKEN_BYTES: usize = 1024;
const MAX_ADDED: u32 = 1 << 16;
const MAX_ADDED_BYTES: usize = 1 << 20;

/// Which splitting rules a vocabulary was trained with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Numbers, then Chinese and Japanese, then an ordered choice: `DeepSeek` V3 and later.
    DeepSeek,
    /// One pattern with English contractions: `cl100k`, Llama 3, Qwen.
    Contractions,
}

/// How text is cut into the pieces that are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The pattern.
    pub family: Family,
    /// Numbers in a group at most, 1 to 255.
    pub digits: u8,
    /// Whether runs of hanzi and kana are split off first (`DeepSeek` family).
    pub cjk: bool,
    /// Whether combining marks count as letters (contractions family; the other always does so).
    pub marks: bool,
}

/// A token that is cut out of the text before it is split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddedToken {
    /// Its text.
    pub bytes: Vec<u8>,
    /// Whether it is looked for after the others, in what they leave (`normalized` in a
    /// `tokenizer.json`).
    pub second: bool,
}

/// A vocabulary as data: what a file holds.
#[derive(Clone)]
pub struct VocabularySource {
    /// Up to 255 bytes.
    pub name: String,
    /// How text is split.
    pub rules: Rules,
    /// Number of code points in a row and what they are, from U+0000 on: 1 letter, 2 mark, 4 number,
    /// 8 punctuation or symbol, 16 white space.
    pub classes: Vec<(u32, u8)>,
    /// Tokens cut out first.
    pub added: Vec<AddedToken>,
    /// Tokens that no merge leads to and that only a piece equal to them becomes.
    pub wholes: Vec<Vec<u8>>,
    /// Pairs of ids, in the order of merging; pair `k` becomes id 256 + `k`.
    pub merges: Vec<(u32, u32)>,
}

impl std::fmt::Debug for VocabularySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VocabularySource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl VocabularySource {
    /// The file. What does not fit the format (a name over 255 bytes, an id over 24 bits) is cut
    /// short, and reading it back says so.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(self.merges.len().saturating_mul(6).saturating_add(65_536));
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.push(u8::try_from(self.name.len()).unwrap_or(u8::MAX));
        out.extend(self.name.bytes().take(usize::from(u8::MAX)));
        let Rules { family, digits, cjk, marks } = self.rules;
        let family = match family {
            Family::DeepSeek => 1,
            Family::Contractions => 2,
        };
        out.extend([family, digits, u8::from(cjk) | u8::from(marks) << 1]);
        put_count(&mut out, self.classes.len());
        for &(length, flags) in &self.classes {
            put_varint(&mut out, length << 5 | u32::from(flags & GIVEN));
        }
        let mut added: Vec<_> =
            self.added.iter().map(|token| (&*token.bytes, u8::from(token.second))).collect();
        put_texts(&mut out, &mut added);
        let mut wholes: Vec<_> = self.wholes.iter().map(|bytes| (&**bytes, 0)).collect();
        put_texts(&mut out, &mut wholes);
        put_count(&mut out, self.merges.len());
        for &(left, right) in &self.merges {
            out.extend(left.to_le_bytes().iter().take(3));
            out.extend(right.to_le_bytes().iter().take(3));
        }
        let sum = checksum(&out);
        out.extend(sum.to_le_bytes());
        out
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value & 0x7F | 0x80).to_le_bytes()[0]);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_texts(out: &mut Vec<u8>, texts: &mut [(&[u8], u8)]) {
    texts.sort_unstable();
    put_count(out, texts.len());
    let mut last: &[u8] = &[];
    for &(text, flags) in &*texts {
        let shared = text.iter().zip(last).take_while(|(a, b)| a == b).count();
        out.push(flags);
        put_varint(out, u32::try_from(shared).unwrap_or(u32::MAX));
        let rest = text.get(shared..).unwrap_or_default();
        put_varint(out, u32::try_from(rest.len()).unwrap_or(u32::MAX));
        out.extend(rest);
        last = text;
    }
}

/// A checksum against a file that was cut or mixed up; it proves nothing about who wrote it.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let sum = words.iter().fold(0, |sum, &word| mix(sum, u64::from_le_bytes(word)));
    let sum = tail.iter().fold(sum, |sum, &byte| mix(sum, u64::from(byte)));
    mix(sum, bytes.len() as u64)
}

/// Reads a file from its start; the merges stay where they are.
#[derive(Clone)]
pub(super) struct Blob<'b> {
    pub(super) name: &'b str,
    pub(super) rules: Rules,
    pub(super) classes: Vec<(u32, Flags)>,
    pub(super) added: Vec<AddedToken>,
    pub(super) wholes: Vec<Vec<u8>>,
    merges: &'b [[u8; 6]],
    pub(super) checksum: u64,
}

impl<'b> Blob<'b> {
    /// Everything in the file, each part checked by itself. Whether the merges fit each other, the
    /// tables find out.
    pub(super) fn read(file: &'b [u8]) -> Result<Self, VocabularyError> {
        let mut header = Reader(file);
        if header.array::<8>().ok() != Some(MAGIC) {
            return Err(VocabularyError::NotAVocabulary);
        }
        let version = header.u32()?;
        if version != VERSION {
            return Err(VocabularyError::Version { found: version, known: VERSION });
        }
        let (body, sum) = file.split_last_chunk::<8>().ok_or(VocabularyError::Truncated)?;
        let checksum = u64::from_le_bytes(*sum);
        if self::checksum(body) != checksum {
            return Err(VocabularyError::Checksum);
        }
        let mut reader = Reader(body);
        reader.take(12)?;
        let length = reader.u8()?;
        let name = std::str::from_utf8(reader.take(usize::from(length))?)
            .map_err(|_| VocabularyError::Name)?;
        let rules = reader.rules()?;
        let classes = reader.classes()?;
        let added = reader
            .texts()?
            .into_iter()
            .map(|(bytes, flags)| AddedToken { bytes, second: flags & 1 != 0 })
            .collect();
        let wholes = reader.texts()?.into_iter().map(|(bytes, _)| bytes).collect();
        let count = reader.u32()?;
        if count > MAX_IDS.saturating_sub(256) {
            return Err(VocabularyError::TooLarge { what: "merges", count });
        }
        let merges = reader.take((count as usize).saturating_mul(6))?;
        if !reader.0.is_empty() {
            return Err(VocabularyError::Trailing { bytes: reader.0.len() });
        }
        Ok(Self { name, rules, classes, added, wholes, merges: merges.as_chunks().0, checksum })
    }

    /// Pairs of ids in the order of merging.
    pub(super) fn merges(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'b> {
        self.merges.iter().map(|&[a, b, c, d, e, f]| {
            (u32::from_le_bytes([a, b, c, 0]), u32::from_le_bytes([d, e, f, 0]))
        })
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], VocabularyError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(VocabularyError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], VocabularyError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(VocabularyError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, VocabularyError> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, VocabularyError> {
        self.array().map(u32::from_le_bytes)
    }

    fn varint(&mut self) -> Result<u32, VocabularyError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(VocabularyError::Length)
    }

    fn rules(&mut self) -> Result<Rules, VocabularyError> {
        let [family, digits, flags] = self.array()?;
        let family = match family {
            1 => Family::DeepSeek,
            2 => Family::Contractions,
            _ => return Err(VocabularyError::Rules),
        };
        if digits == 0 || flags > 3 {
            return Err(VocabularyError::Rules);
        }
        Ok(Rules { family, digits, cjk: flags & 1 != 0, marks: flags & 2 != 0 })
    }

    fn classes(&mut self) -> Result<Vec<(u32, Flags)>, VocabularyError> {
        let count = self.u32()?;
        let mut classes = Vec::new();
        let mut total = 0_u32;
        for _ in 0..count {
            let value = self.varint()?;
            let length = value >> 5;
            total = total.saturating_add(length);
            if length == 0 || total > CODE_POINTS {
                return Err(VocabularyError::Classes);
            }
            classes.push((length, (value & u32::from(GIVEN)).to_le_bytes()[0]));
        }
        Ok(classes)
    }

    fn texts(&mut self) -> Result<Vec<(Vec<u8>, u8)>, VocabularyError> {
        let count = self.u32()?;
        if count > MAX_ADDED {
            return Err(VocabularyError::TooLarge { what: "added tokens", count });
        }
        let mut texts: Vec<(Vec<u8>, u8)> = Vec::new();
        let mut total = 0_usize;
        for _ in 0..count {
            let flags = self.u8()?;
            let shared = self.varint()? as usize;
            let last = texts.last().map_or(&[][..], |(last, _)| last);
            let mut bytes = last.get(..shared).ok_or(VocabularyError::Length)?.to_vec();
            let rest = self.varint()? as usize;
            bytes.extend(self.take(rest)?);
            total = total.saturating_add(bytes.len());
            if bytes.is_empty() || bytes.len() > MAX_TOKEN_BYTES || total > MAX_ADDED_BYTES {
                return Err(VocabularyError::Length);
            }
            texts.push((bytes, flags));
        }
        Ok(texts)
    }
}
