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

/// Counts the events of a stream that carry something, over any cuts: all but the closing `[DONE]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    count: u64,
    line: Line,
}

/// Where a stream stands in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of `data:` have been seen.
    Field(usize),
    /// Behind `data:`, before anything but blanks.
    Value,
    /// The rest does not matter.
    Rest,
}

impl Default for Line {
    fn default() -> Self {
        Self::Field(0)
    }
}

impl Events {
    /// Takes the next bytes.
    pub fn feed(&mut self, chunk: &[u8]) {
        const FIELD: &[u8] = b"data:";
        for byte in chunk {
            self.line = match (self.line, byte) {
                (_, b'\n' | b'\r') => Line::default(),
                (Line::Field(seen), byte) if FIELD.get(seen) == Some(byte) => {
                    let seen = seen.saturating_add(1);
                    if seen == FIELD.len() { Line::Value } else { Line::Field(seen) }
                }
                (Line::Value, b' ') => Line::Value,
                // What carries something is an object; the closing word begins with a bracket.
                (Line::Value, b'{') => {
                    self.count = self.count.saturating_add(1);
                    Line::Rest
                }
                _ => Line::Rest,
            };
        }
    }

    /// Output tokens that were delivered, as far as events tell: engines send one a token, behind a
    /// first event that has none.
    pub fn tokens(&self) -> u64 {
        self.count.saturating_sub(1)
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

    #[test]
    fn a_token_is_an_event_behind_the_first_however_the_stream_is_cut() {
        let stream = b"data: {\"role\"}\n\n: data: {no}\n\ndata:{1}\r\n\r\nevent: x\ndata: {2}\n\n\
                       data: [DONE]\n\n";
        for cut in 0..stream.len() {
            let mut events = Events::default();
            events.feed(&stream[..cut]);
            events.feed(&stream[cut..]);
            assert_eq!(events.tokens(), 2, "cut at {cut}");
        }
        assert_eq!(Events::default().tokens(), 0);
    }
}
