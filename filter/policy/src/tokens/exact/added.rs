//! Finds the tokens that are cut out of a text before it is split.
//!
//! A tree over their bytes gives the longest one at a place. Hostile text cannot make it slow: a
//! place where none can begin costs an eighth of a step, and where many begin alike ("<｜place...")
//! the next one can begin only behind what they share.

/// Added tokens that are looked for together.
#[derive(Default)]
pub(super) struct AddedTokens {
    nodes: Vec<Node>,
    /// The bytes that a token begins with.
    first: Vec<u8>,
    /// Bits of the bytes that are second in a token, all of them where one has no second.
    second: [u64; 4],
}

#[derive(Clone, Copy)]
struct Node {
    byte: u8,
    /// Whether a token ends here.
    ends: bool,
    /// Places in `nodes`; zero is none.
    child: u32,
    sibling: u32,
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

impl AddedTokens {
    /// With these tokens, none of them empty.
    pub(super) fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut tree = Self {
            nodes: vec![Node { byte: 0, ends: false, child: 0, sibling: 0 }],
            first: vec![],
            second: [0; 4],
        };
        for token in tokens {
            tree.insert(token);
        }
        tree
    }

    fn insert(&mut self, token: &[u8]) {
        if let Some(first) = token.first().filter(|first| !self.first.contains(first)) {
            self.first.push(*first);
        }
        match token.get(1) {
            Some(&second) => {
                if let Some(bits) = self.second.get_mut(usize::from(second >> 6)) {
                    *bits |= 1 << (second & 63);
                }
            }
            None => self.second = [u64::MAX; 4],
        }
        let mut at = 0;
        for &byte in token {
            at = self.child(at, byte).unwrap_or_else(|| {
                let new = u32::try_from(self.nodes.len()).unwrap_or_default();
                let mut sibling = 0;
                if let Some(node) = self.nodes.get_mut(at as usize) {
                    sibling = node.child;
                    node.child = new;
                }
                self.nodes.push(Node { byte, ends: false, child: 0, sibling });
                new
            });
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.ends = true;
        }
    }

    fn child(&self, at: u32, byte: u8) -> Option<u32> {
        let mut child = self.nodes.get(at as usize)?.child;
        while child != 0 {
            let node = self.nodes.get(child as usize)?;
            if node.byte == byte {
                return Some(child);
            }
            child = node.sibling;
        }
        None
    }

    /// Start and end of the first token at or behind `from`; of those that begin there the longest.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let mut at = from;
        loop {
            at = at.checked_add(self.skip(bytes.get(at..)?)?)?;
            // Again and again the first byte of a token is cheap, too.
            while let Some(byte) = bytes.get(at).filter(|byte| self.first.contains(byte)) {
                let second = bytes.get(at.wrapping_add(1)).copied().unwrap_or(*byte);
                let bits = self.second.get(usize::from(second >> 6)).copied().unwrap_or_default();
                if bits >> (second & 63) & 1 != 0
                    && let Some(length) = self.longest(bytes.get(at..)?)
                {
                    return Some((at, at.wrapping_add(length)));
                }
                at = at.wrapping_add(1);
            }
        }
    }

    /// How far it is to the next byte a token begins with.
    fn skip(&self, bytes: &[u8]) -> Option<usize> {
        let one_of = |byte: &u8| self.first.contains(byte);
        let [a, b] = match *self.first {
            [] => return None,
            [a] => [a, a],
            [a, b] => [a, b],
            _ => return bytes.iter().position(one_of),
        };
        let (words, tail) = bytes.as_chunks::<8>();
        let (a, b) = (LOW.wrapping_mul(u64::from(a)), LOW.wrapping_mul(u64::from(b)));
        let mut length = 0_usize;
        for &word in words {
            let word = u64::from_le_bytes(word);
            let found = has_zero(word ^ a) | has_zero(word ^ b);
            if found != 0 {
                return Some(length.wrapping_add((found.trailing_zeros() / 8) as usize));
            }
            length = length.wrapping_add(8);
        }
        Some(length.wrapping_add(tail.iter().position(one_of)?))
    }

    fn longest(&self, bytes: &[u8]) -> Option<usize> {
        let mut found = None;
        let mut at = 0;
        for (&byte, length) in bytes.iter().zip(1..) {
            let Some(next) = self.child(at, byte) else { break };
            at = next;
            if self.nodes.get(at as usize).is_some_and(|node| node.ends) {
                found = Some(length);
            }
        }
        found
    }
}

/// High bits of which the lowest is that of the first zero byte; none if there is no zero.
#[inline]
const fn has_zero(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}
