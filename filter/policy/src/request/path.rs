//! Which endpoint a path names.
//!
//! The engine decodes `%XX` before it routes, Envoy does not: a path that only becomes an inference
//! path by decoding would pass the gate as something else. It is recognised so that it can be refused.

/// An inference endpoint of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/invocations`, which takes a chat, a completion or an embedding body
    Invocations,
}

/// What a request path is to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// An inference path, written plainly.
    Inference(Endpoint),
    /// Not an inference path as written, but one to the engine, which decodes it first.
    Disguised,
    /// Anything else.
    Other,
}

impl Endpoint {
    /// Reads the `:path` as received, its query still on it.
    pub fn from_path(path: &[u8]) -> PathMatch {
        let end = path.iter().position(|&b| b == b'?' || b == b'#');
        let plain = path.get(..end.unwrap_or(path.len())).unwrap_or_default();
        // Some HTTP parsers cut a fragment off, some keep it as part of the path.
        let fragment = end.and_then(|end| path.get(end)) == Some(&b'#');
        match Self::literal(&plain.iter().copied()) {
            Some(_) if fragment => PathMatch::Disguised,
            Some(endpoint) => PathMatch::Inference(endpoint),
            None if Self::literal(&Decoded(without_host(plain))).is_some() => PathMatch::Disguised,
            None => PathMatch::Other,
        }
    }

    fn literal(path: &(impl Iterator<Item = u8> + Clone)) -> Option<Self> {
        [
            ("/v1/chat/completions", Self::ChatCompletions),
            ("/v1/completions", Self::Completions),
            ("/v1/embeddings", Self::Embeddings),
            ("/v1/responses", Self::Responses),
            ("/v1/messages", Self::Messages),
            ("/invocations", Self::Invocations),
        ]
        .into_iter()
        .find_map(|(text, endpoint)| path.clone().eq(text.bytes()).then_some(endpoint))
    }
}

/// The path of a target in absolute form (`http://host/path`), any other target as it is.
fn without_host(target: &[u8]) -> &[u8] {
    let Some(scheme) = target.windows(3).position(|w| w == b"://") else {
        return target;
    };
    if target.first() == Some(&b'/') {
        return target;
    }
    let rest = target.get(scheme.saturating_add(3)..).unwrap_or_default();
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    rest.get(slash..).unwrap_or_default()
}

/// The bytes of a path with each `%XX` decoded, once; a `%` without two digits stays. One line feed
/// at the end is dropped, because the engine's router takes such a path for the one without it.
#[derive(Clone, Debug)]
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        let mut byte = first;
        self.0 = rest;
        if first == b'%'
            && let [high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            byte = (high << 4) | low;
            self.0 = after;
        }
        if byte == b'\n' && self.0.is_empty() {
            return None;
        }
        Some(byte)
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
