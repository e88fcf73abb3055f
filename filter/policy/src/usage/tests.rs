//! Usage is found wherever engines put it, over any cuts, and nowhere else.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

use super::*;
#[cfg(not(target_arch = "wasm32"))]
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The usage of an answer that comes in one piece.
fn read(form: Form, text: &str) -> (Option<u64>, Option<u64>) {
    in_pieces(form, &[text.as_bytes()])
}

fn in_pieces(form: Form, pieces: &[&[u8]]) -> (Option<u64>, Option<u64>) {
    let mut reader = UsageReader::default();
    if let (Form::Events, Some(first)) = (form, pieces.first()) {
        reader.look_at_first(first);
    }
    for piece in pieces {
        reader.feed(piece);
    }
    let usage = reader.usage(form);
    (usage.prompt_tokens, usage.completion_tokens)
}

const CHAT: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Say \"usage\": {\"prompt_tokens\": 9}","tool_calls":[]},"finish_reason":"stop"}],"service_tier":null,"usage":{"prompt_tokens":57,"total_tokens":61,"completion_tokens":4,"prompt_tokens_details":null},"prompt_logprobs":null,"kv_transfer_params":null}"#;

const STREAM: &str = concat!(
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    ": keep-alive\n\n",
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\"usage\\\":{\"}}]}\n\n",
    "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":57,\"total_tokens\":61,\"completion_tokens\":4}}\n\n",
    "data: [DONE]\n\n",
);

const MESSAGES: &str = concat!(
    "event: message_start\n",
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":40,\"output_tokens\":0,\"cache_read_input_tokens\":17}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

#[test]
fn usage_is_found_in_the_answers_of_every_endpoint() {
    let found = (Some(57), Some(4));
    assert_eq!(read(Form::Document, CHAT), found);
    assert_eq!(read(Form::Events, STREAM), found);
    assert_eq!(read(Form::Events, MESSAGES), found);
    for text in [
        r#"{"object":"response","output":[],"usage":{"input_tokens":57,"input_tokens_details":{"cached_tokens":9,"of":["]}\""]},"output_tokens":4,"total_tokens":61},"user":null}"#,
        r#"{"type":"message","usage":{"input_tokens":40,"output_tokens":4,"cache_read_input_tokens":16,"cache_creation_input_tokens":1}}"#,
        "{\n  \"choices\": [],\n  \"usage\": {\n    \"prompt_tokens\": 57,\n    \"cost\": -1.5e-3,\n    \"completion_tokens\": 4\n  }\n}\n",
    ] {
        assert_eq!(read(Form::Document, text), found, "{text}");
    }
    for usage in [
        r#"{"prompt_tokens":8,"total_tokens":8}"#,
        r#"{"prompt_tokens":8,"completion_tokens":null}"#,
    ] {
        let text =
            format!(r#"{{"object":"list","data":[{{"embedding":[0.1,-2e-3]}}],"usage":{usage}}}"#);
        assert_eq!(read(Form::Document, &text), (Some(8), None));
    }
    let event = "event: response.completed\ndata: {\"response\":{\"output\":[],\"usage\":{\"input_tokens\":57,\"output_tokens\":4}},\"type\":\"response.completed\"}\n\n";
    assert_eq!(read(Form::Events, event), found);
}

#[test]
fn the_last_of_continuous_usage_wins_also_where_the_stream_breaks_off() {
    let chunk = |done: u32| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{}}}}],\"usage\":{{\"prompt_tokens\":57,\"completion_tokens\":{done}}}}}\n\n"
        )
    };
    let stream: String = (0..300).map(chunk).collect();
    assert_eq!(read(Form::Events, &stream), (Some(57), Some(299)));
    for cut in stream.len() - 80..stream.len() {
        let (prompt, done) = read(Form::Events, stream.get(..cut).expect("ASCII"));
        assert_eq!(prompt, Some(57));
        assert!(done == Some(298) || done == Some(299), "{done:?}");
    }
}

#[test]
fn texts_and_arguments_cannot_pose_as_usage() {
    let none = (None, None);
    for text in [
        r#"{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":9}"}}]}"#,
        r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":9}}}]}"#,
        r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":9}}}],"usage":null}"#,
        r#"{"choices":[{"message":{"content":"usage"}}],"name":"usage"}"#,
        // Cut off: what it belongs to cannot be told.
        r#"{"a":{"usage":{"prompt_tokens":9}"#,
        r#"{"usage":{"prompt_tokens":9"#,
        r#"{"usage":{}}"#,
        r#"{"usage":{"total_tokens":9}}"#,
        r#"{"usage":[{"prompt_tokens":9}]}"#,
        r#"{"usage"#,
        "",
    ] {
        assert_eq!(read(Form::Document, text), none, "{text}");
    }
    let deep = r#"{"content":[{"input":{"usage":{"input_tokens":9}}}],"usage":{"input_tokens":5,"output_tokens":1},"x":{"usage":{"input_tokens":7}}}"#;
    assert_eq!(read(Form::Document, deep), (Some(5), Some(1)));
    let event = "data: {\"delta\":{\"a\":{\"usage\":{\"prompt_tokens\":9}}}}\n\n";
    assert_eq!(read(Form::Events, event), none);
}

#[test]
fn a_count_that_is_none_is_not_believed() {
    for count in ["-1", "1.5", "1e3", "\"9\"", "true", "[9]", "1000000000000000", "", "null", "09x"]
    {
        let text = format!(r#"{{"usage":{{"prompt_tokens":{count},"completion_tokens":4}}}}"#);
        assert_eq!(read(Form::Document, &text), (None, None), "{count}");
    }
    let text = r#"{"usage":{"prompt_tokens":999999999999999}}"#;
    assert_eq!(read(Form::Document, text), (Some(999_999_999_999_999), None));
}

#[test]
fn an_answer_may_be_long_and_its_usage_as_far_from_the_end_as_the_tail_is() {
    let content = "word ".repeat(100_000);
    let answer = |behind: usize| {
        format!(
            r#"{{"choices":["{content}"],"usage":{{"prompt_tokens":5}},"x":"{}"}}"#,
            "y".repeat(behind)
        )
    };
    for (behind, found) in [(0, Some(5)), (TAIL - 60, Some(5)), (TAIL, None)] {
        let text = answer(behind);
        let mut reader = UsageReader::default();
        for piece in text.as_bytes().chunks(1_000) {
            reader.feed(piece);
            assert!(reader.tail.len() <= 2 * TAIL);
        }
        assert_eq!(reader.usage(Form::Document).prompt_tokens, found, "{behind}");
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn cut(text: &[u8], places: &[usize]) -> Vec<Vec<u8>> {
    let mut places: Vec<_> = places.iter().map(|place| place % (text.len() + 1)).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| text[pair[0]..pair[1]].to_vec()).collect()
}

#[cfg(not(target_arch = "wasm32"))]
proptest! {
    #[test]
    fn cuts_change_nothing(
        document in any::<bool>(),
        filler in 0..9_000_usize,
        places in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let (form, text) = if document {
            let more = format!("{{\"filler\":\"{}\",", "f\\\"".repeat(filler / 3));
            (Form::Document, CHAT.replacen('{', &more, 1))
        } else {
            let event = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
            (Form::Events, event.repeat(filler / event.len()) + STREAM)
        };
        let pieces = cut(text.as_bytes(), &places);
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(in_pieces(form, &pieces), (Some(57), Some(4)));
    }

    #[test]
    fn no_bytes_do_harm(
        bytes in prop::collection::vec(
            prop_oneof![
                any::<u8>(),
                prop::sample::select(b"\"usage\":{}[],\\0123456789u\n".to_vec()),
            ],
            0..600,
        ),
        key in any::<bool>(),
        places in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let mut text = bytes.clone();
        if key {
            text.extend_from_slice(b"\"usage\":{\"prompt_tokens\":");
            text.extend_from_slice(&bytes);
        }
        let pieces = cut(&text, &places);
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        for form in [Form::Document, Form::Events] {
            let (prompt, _) = in_pieces(form, &pieces);
            prop_assert!(prompt.is_none_or(|prompt| prompt < 4_000_000_000_000_000));
        }
    }
}
