//! A short cut for runs of hanzi: merging starts at characters instead of bytes.
//!
//! Within a run nearly every merge is inside one character or joins whole ones. As a token always
//! comes later in the vocabulary than its parts, doing the merges inside characters first changes
//! nothing, unless a token holds a part of one character and some of its neighbour. A vocabulary
//! has a handful of such **awkward** tokens; where one of them could stand, the run is merged from its
//! bytes.

use std::ops::RangeInclusive;

use super::classes::HANZI;
use super::tables::{NONE, Pairs};

/// Marks, in the table of ids, a character that an awkward token may end in.
const WATCHED: u32 = 1 << 31;

/// The characters that are tokens, and where the short cut is none.
pub(super) struct Hanzi {
    /// By code point from U+4E00: the id, zero where the character is no token.
    ids: Vec<u32>,
    awkward: Vec<Awkward>,
}

/// A token across a boundary: ends of the character before, characters behind.
struct Awkward {
    before: Vec<u8>,
    behind: RangeInclusive<u32>,
}

const FIRST: u32 = *HANZI.start();
const COUNT: usize = 0x9FA5 - 0x4E00 + 1;

impl Hanzi {
    pub(super) fn new() -> Self {
        Self { ids: vec![0; COUNT], awkward: Vec::new() }
    }

    /// Takes note of a token.
    pub(super) fn learn(&mut self, bytes: &[u8], id: u32) {
        // Most tokens are neither a character nor across one.
        if !bytes.first().is_some_and(|first| (0x80..=0xE9).contains(first)) {
            return;
        }
        if let Some(code) = exact_code(bytes) {
            if let Some(entry) = self.ids.get_mut(code.wrapping_sub(FIRST) as usize) {
                *entry |= id;
            }
        } else if let Some((before, behind)) = crossing(bytes) {
            for code in behind.clone() {
                if let Some(entry) = self.ids.get_mut(code.wrapping_sub(FIRST) as usize) {
                    *entry |= WATCHED;
                }
            }
            self.awkward.push(Awkward { before: before.to_vec(), behind });
        }
    }

    /// Puts the symbols that the merging of a run of hanzi can start from into `ids`, and says
    /// whether it can: not where an awkward token may stand, nor in what is no run of hanzi.
    #[inline]
    pub(super) fn symbols(&self, pairs: &Pairs, run: &[u8], ids: &mut Vec<u32>) -> bool {
        ids.clear();
        let (characters, rest) = run.as_chunks::<3>();
        if !rest.is_empty() {
            return false;
        }
        let mut before: &[u8] = &[];
        for character in characters {
            let code = code_of(*character);
            let Some(&entry) = self.ids.get(code.wrapping_sub(FIRST) as usize) else {
                return false;
            };
            if entry & WATCHED != 0 && self.is_awkward(before, code) {
                return false;
            }
            match entry & !WATCHED {
                0 => spell(pairs, *character, ids),
                id => ids.push(id),
            }
            before = character;
        }
        true
    }

    fn is_awkward(&self, before: &[u8], code: u32) -> bool {
        self.awkward
            .iter()
            .any(|token| token.behind.contains(&code) && before.ends_with(&token.before))
    }
}

/// The symbols of a character that is no token: its bytes, two of them merged if they can be.
fn spell(pairs: &Pairs, [a, b, c]: [u8; 3], ids: &mut Vec<u32>) {
    let [a, b, c] = [a, b, c].map(u32::from);
    let (left, right) = (pairs.get(a, b), pairs.get(b, c));
    if left == NONE && right == NONE {
        ids.extend([a, b, c]);
    } else if left < right {
        ids.extend([left, c]);
    } else {
        ids.extend([a, right]);
    }
}

fn code_of([a, b, c]: [u8; 3]) -> u32 {
    u32::from(a & 0x0F) << 12 | u32::from(b & 0x3F) << 6 | u32::from(c & 0x3F)
}

fn is_lead(byte: u8) -> bool {
    // Of U+4000 to U+9FFF.
    (0xE4..=0xE9).contains(&byte)
}

fn is_tail(byte: u8) -> bool {
    (0x80..=0xBF).contains(&byte)
}

/// The hanzi that these bytes are.
fn exact_code(bytes: &[u8]) -> Option<u32> {
    let character: [u8; 3] = bytes.try_into().ok()?;
    let [a, b, c] = character;
    let code = code_of(character);
    (is_lead(a) && is_tail(b) && is_tail(c) && HANZI.contains(&code)).then_some(code)
}

/// Where a token that a run of hanzi may hold crosses from one character to the next, unless it is
/// whole characters or inside one: the bytes before and the characters that may be behind.
fn crossing(token: &[u8]) -> Option<(&[u8], RangeInclusive<u32>)> {
    let (before, rest) = token.split_at_checked(token.iter().position(|&b| is_lead(b))?)?;
    if before.len() > 2 || !before.iter().all(|&byte| is_tail(byte)) {
        return None;
    }
    let (characters, part) = rest.as_chunks::<3>();
    if !characters.iter().all(|character| exact_code(character).is_some()) {
        return None;
    }
    if let Some((&lead, tail)) = part.split_first()
        && !(is_lead(lead) && tail.iter().all(|&byte| is_tail(byte)))
    {
        return None;
    }
    let behind = |start: &[u8]| {
        let bound = |fill: u8| {
            let mut bytes = start.iter().copied().chain([fill; 3]);
            code_of([(); 3].map(|()| bytes.next().unwrap_or(fill)))
        };
        bound(0x80)..=bound(0xBF)
    };
    match (before, characters.last()) {
        ([_, ..], _) => Some((before, behind(rest.get(..rest.len().min(3))?))),
        ([], Some(last)) if !part.is_empty() => Some((last, behind(part))),
        _ => None,
    }
}
