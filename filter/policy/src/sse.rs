//! When the first token of an event stream was there.
//!
//! Engines send comment lines (`: keep-alive`) while a request still waits in them. Only a line
//! that is not a comment is an event, and only an event can carry a token.

/// Looks for the first line of a stream that is neither empty nor a comment, over any cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstEvent {
    /// At the start of a line.
    #[default]
    LineStart,
    /// Inside a comment.
    Comment,
    /// The first event has begun.
    Seen,
}

impl FirstEvent {
    /// Takes the next bytes; true where the first event has begun by now.
    pub fn feed(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            *self = match (*self, byte) {
                (Self::Seen, _) => return true,
                (_, b'\n' | b'\r') => Self::LineStart,
                (Self::LineStart, b':') | (Self::Comment, _) => Self::Comment,
                (Self::LineStart, _) => Self::Seen,
            };
        }
        *self == Self::Seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn comments_are_not_events_however_they_are_cut() {
        let stream = b": keep-alive\n\n: again: data: no\r\n\r\ndata: {}\n\n";
        let first = stream.iter().position(|byte| *byte == b'd').expect("there");
        // "data: no" inside a comment comes before: find the true one from the end.
        let first = first.max(stream.len() - b"data: {}\n\n".len());
        for cut in 0..stream.len() {
            let mut watch = FirstEvent::default();
            assert_eq!(watch.feed(&stream[..cut]), cut > first, "cut at {cut}");
            assert!(watch.feed(&stream[cut..]));
        }
    }
}
