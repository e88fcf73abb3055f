//! Tests of the reader: single rules here, the table of odd bodies and the properties below.
#![allow(clippy::arithmetic_side_effects, reason = "a test may panic")]

mod lenient;
#[cfg(not(target_arch = "wasm32"))]
mod properties;
mod table;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::testing::Texts;
use crate::tokens::{Template, TokenCounter};

/// Reads a body and hands its texts to the counter, as for a model nothing is known of.
fn read(
    endpoint: Endpoint,
    body: &[u8],
    counter: &mut dyn TokenCounter,
) -> Result<RequestFacts, ReadError> {
    let read = super::read(endpoint, body)?;
    Template::GENERIC.count(&read, counter);
    // The other one must take everything too.
    Template::DEEPSEEK_V4.count(&read, &mut Texts::default());
    Ok(read.facts)
}

fn read_texts(endpoint: Endpoint, body: &str) -> (RequestFacts, Vec<String>) {
    let mut texts = Texts::default();
    let facts = read(endpoint, body.as_bytes(), &mut texts).unwrap();
    (facts, texts.0)
}

fn refuse(endpoint: Endpoint, body: &[u8]) -> ReadError {
    read(endpoint, body, &mut Texts::default()).unwrap_err()
}

#[test]
fn paths_are_inference_paths_only_when_written_plainly() {
    use PathMatch::{Disguised, Inference, Other};
    for (path, expected) in [
        ("/v1/chat/completions", Inference(Endpoint::ChatCompletions)),
        ("/v1/chat/completions?a=%2F#x", Inference(Endpoint::ChatCompletions)),
        ("/v1/completions", Inference(Endpoint::Completions)),
        ("/v1/embeddings", Inference(Endpoint::Embeddings)),
        ("/v1/responses", Inference(Endpoint::Responses)),
        ("/v1/messages", Inference(Endpoint::Messages)),
        ("/invocations", Inference(Endpoint::Invocations)),
        ("/v1/chat/completion%73", Disguised),
        ("/v1%2Fchat%2fcompletions?x", Disguised),
        ("/%69nvocations", Disguised),
        ("/v1/chat/completions%0A", Disguised),
        ("/v1/chat/completions#x", Disguised),
        ("http://host/v1/chat/completions", Disguised),
        ("http://host/v1/chat%2fcompletions", Disguised),
        ("/v1/chat/completions%250A", Other),
        ("/v1/chat/completions%0A%0A", Other),
        ("/v1/chat/completions/", Other),
        ("/V1/chat/completions", Other),
        ("/v1/chat/completion%5", Other),
        ("/v1/chat/completions%3Fx", Other),
        ("//v1/chat/completions", Other),
        ("/v1/models", Other),
        ("http://host", Other),
        ("*", Other),
        ("", Other),
    ] {
        assert_eq!(Endpoint::from_path(path.as_bytes()), expected, "{path}");
    }
}

#[test]
fn content_headers_are_checked() {
    let check = |media: &str, coding: Option<&str>| {
        check_content(Some(media.as_bytes()), coding.map(str::as_bytes))
            .map_err(|error| error.status())
    };
    assert_eq!(check_content(None, None), Ok(()));
    assert_eq!(check("application/json", None), Ok(()));
    assert_eq!(check("APPLICATION/JSON ; charset=x", Some("Identity")), Ok(()));
    assert_eq!(check("application/json", Some("")), Ok(()));
    for (media, coding) in [
        ("application/json", Some("gzip")),
        ("application/json", Some("identity, br")),
        ("text/plain", None),
        ("application/vnd.x+json", None),
        ("application/json, text/plain", None),
        ("", None),
    ] {
        assert_eq!(check(media, coding), Err(415), "{media} {coding:?}");
    }
}

#[test]
fn texts_of_a_chat_are_handed_over_decoded_and_in_order() {
    let (facts, texts) = read_texts(
        Endpoint::ChatCompletions,
        r#"{"model":"m","tools":[ {"type":"function", "function":{"name":"f"}} ,{}],"user":"no","messages":[
            {"role":"system","name":"no","content":"one"},
            {"content":[{"type":"text","text":"t\u0077o"},{"text":"three","type":"text"},"four",
              {"type":"image_url","image_url":{"url":"no"}},{"image_url":"no"},
              {"type":"input_audio","input_audio":{"data":"no","format":"wav"}},{"type":"video_url"}],"role":"user"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"no","type":"function",
              "function":{"name":"no","arguments":"{\"a\":5}"}}]},
            {"role":"tool","tool_call_id":"no","content":"six"},
            {"role":"user","content":"seven"}]}"#,
    );
    assert_eq!(
        texts,
        [
            r#"{"type":"function", "function":{"name":"f"}}"#,
            "{}",
            "one",
            "two",
            "three",
            "four",
            r#"{"a":5}"#,
            "six",
            "seven"
        ]
    );
    let expected = RequestFacts {
        model: Some("m".to_owned()),
        model_span: Some(9..12),
        choices: 1,
        prompts: 1,
        messages: 5,
        user_turns: 2,
        assistant_messages: 1,
        tools: 2,
        images: 2,
        audio: 1,
        video: 1,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
}

#[test]
fn texts_and_messages_beyond_the_limit_are_refused() {
    let body = |messages: usize| {
        let message = r#"{"role":"user","content":"a"}"#;
        format!(r#"{{"messages":[{}]}}"#, vec![message; messages].join(","))
    };
    let half = MAX_PIECES / 2;
    let read = super::read;
    assert!(read(Endpoint::ChatCompletions, body(half).as_bytes()).is_ok());
    let error = read(Endpoint::ChatCompletions, body(half + 1).as_bytes()).unwrap_err();
    assert_eq!(error.status(), 400);
    assert!(error.to_string().contains("65536"), "{error}");
    // Empty texts and token ids are none.
    let prompts = vec![r#""""#; MAX_PIECES + 1].join(",");
    assert!(read(Endpoint::Completions, format!(r#"{{"prompt":[{prompts}]}}"#).as_bytes()).is_ok());
}

#[test]
fn all_reasoning_counts_as_some_templates_keep_it() {
    let body = r#"{"messages":[{"role":"user","content":"a"},
        {"role":"assistant","reasoning":"old","content":"b"},{"role":"user","content":"c"},
        {"role":"assistant","content":"d","reasoning_content":"n\u0065w"}]}"#;
    let (_, texts) = read_texts(Endpoint::ChatCompletions, body);
    assert_eq!(texts, ["a", "old", "b", "c", "d", "new"]);
}

#[test]
fn what_changes_the_prompt_unseen_is_noted() {
    let unsure =
        |endpoint, body: &str| super::read(endpoint, body.as_bytes()).unwrap().switches.unsure;
    let chat = |part: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
        unsure(Endpoint::ChatCompletions, &body)
    };
    for known in [
        r#""a""#,
        r#"{"type":"text","text":"a"}"#,
        r#"{"text":"a"}"#,
        r#"{"refusal":"a","type":"refusal"}"#,
        r#"{"type":"image_url","image_url":{"url":"x"}}"#,
        r#"{"input_audio":{}}"#,
    ] {
        assert!(!chat(known), "{known}");
    }
    for odd in [
        r#"{"type":"tool_reference","tool_name":"a"}"#,
        r#"{"type":"new","text":"a"}"#,
        r#"{"new":"a"}"#,
        "{}",
        r#"{"type":"text","text":"a","video_url":"b"}"#,
    ] {
        assert!(chat(odd), "{odd}");
    }
    for (endpoint, body) in [
        (Endpoint::Embeddings, r#"{"input":"a""#),
        (Endpoint::Messages, r#"{"messages":[],"max_tokens":1"#),
        (Endpoint::Responses, r#"{"input":"a""#),
        (Endpoint::Completions, r#"{"prompt":"a""#),
    ] {
        assert!(unsure(endpoint, &format!(r#"{body},"truncate_prompt_tokens":5}}"#)), "{body}");
        assert!(!unsure(endpoint, &format!(r#"{body},"truncate_prompt_tokens":null}}"#)), "{body}");
    }
    assert!(unsure(Endpoint::Responses, r#"{"input":"a","previous_response_id":"r"}"#));
    assert!(!unsure(Endpoint::Responses, r#"{"input":"a","previous_response_id":null}"#));
}

#[test]
fn a_long_key_given_twice_is_refused_however_it_is_written() {
    for length in [100, 1023, 1024, 1025, 70_000] {
        let rest = "k".repeat(length - 2);
        let [one, other] = ["ab", r"\u0061b"].map(|lead| format!("{lead}{rest}"));
        let body = |second: &str| format!(r#"{{"prompt":"a","{one}":1,"{second}":2}}"#);
        assert!(super::read(Endpoint::Completions, body(&other).as_bytes()).is_err(), "{length}");
        assert!(super::read(Endpoint::Completions, body(&one).as_bytes()).is_err(), "{length}");
        let longer = format!("{other}k");
        assert!(super::read(Endpoint::Completions, body(&longer).as_bytes()).is_ok(), "{length}");
    }
}

#[test]
fn what_has_been_read_is_not_printed() {
    let read = super::read(Endpoint::Completions, br#"{"prompt":"secret"}"#).unwrap();
    let cursor = json::Cursor::new("secret");
    assert!(!format!("{read:?} {cursor:?}").contains("secret"));
}

#[test]
fn a_prompt_hidden_where_only_some_templates_look_is_counted() {
    let long = "long ".repeat(40);
    for field in [
        format!(r#""name":"{long}""#),
        format!(r#""tool_calls":[{{"function":{{"name":"{long}"}}}}]"#),
        format!(r#""tool_calls":[{{"id":"{long}"}}]"#),
    ] {
        let body = format!(r#"{{"messages":[{{"role":"assistant","content":"a",{field}}}]}}"#);
        let (_, texts) = read_texts(Endpoint::ChatCompletions, &body);
        assert!(texts.concat().contains(&long), "{field}");
    }
    for field in [
        format!(r#""chat_template_kwargs":{{"date":"{long}"}}"#),
        r#""chat_template_kwargs":{"keep":true}"#.to_owned(),
        format!(r#""documents":[{{"text":"{long}"}}]"#),
    ] {
        let body = format!(
            r#"{{"messages":[{{"role":"x","reasoning":"{long}"}},{{"role":"user"}}],{field}}}"#
        );
        let (_, texts) = read_texts(Endpoint::ChatCompletions, &body);
        assert!(texts.concat().contains(&long), "{field}");
    }
    let (_, texts) =
        read_texts(Endpoint::ChatCompletions, &format!(r#"{{"messages":[{{"role":"{long}"}}]}}"#));
    assert_eq!(texts, [long]);
}

#[test]
fn forwarded_token_ids_count_as_the_prompt_they_replace() {
    let body = r#"{"prompt":"a","kv_transfer_params":{"x":[9],"prompt_token_ids":[1,2,3]}}"#;
    let (facts, _) = read_texts(Endpoint::Completions, body);
    assert_eq!((facts.token_ids, facts.prompts), (3, 1));
    let body = br#"{"messages":[],"kv_transfer_params":{"prompt_token_ids":"x"}}"#;
    let error = refuse(Endpoint::ChatCompletions, body);
    assert_eq!(error.param(), Some("kv_transfer_params"));
}

#[test]
fn texts_of_the_messages_endpoint_include_system_blocks_and_tool_results() {
    let (facts, texts) = read_texts(
        Endpoint::Messages,
        r#"{"system":[{"type":"text","text":"s"}],"max_tokens":5,"messages":[
            {"role":"user","content":"u"},
            {"role":"assistant","content":[{"type":"tool_use","id":"no","name":"no","input":{"k":1}}]},
            {"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"r"}]},
              {"type":"tool_result","content":"q"},{"type":"image","source":{"data":"no"}}]}]}"#,
    );
    assert_eq!(texts, ["s", "u", r#"{"k":1}"#, "r", "q"]);
    assert_eq!((facts.images, facts.user_turns), (1, 2));
    assert_eq!(facts.max_output_tokens, Some(5));
}

#[test]
fn texts_of_a_response_include_instructions_and_items() {
    let (facts, texts) = read_texts(
        Endpoint::Responses,
        r#"{"instructions":"i","input":[{"role":"user","content":"u"},
            {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},
            {"type":"function_call","name":"no","arguments":"{}"},
            {"type":"function_call_output","output":"o"},{"type":"item_reference","id":"no"}]}"#,
    );
    assert_eq!(texts, ["i", "u", "s", "{}", "o"]);
    let counts = (facts.messages, facts.user_turns, facts.assistant_messages);
    assert_eq!(counts, (5, 2, 1));
}

#[test]
fn texts_of_prompts_and_inputs_are_handed_over() {
    let (_, texts) = read_texts(Endpoint::Completions, r#"{"prompt":["a","\n"],"input":"no"}"#);
    assert_eq!(texts, ["a", "\n"]);
    let (facts, texts) = read_texts(
        Endpoint::Embeddings,
        r#"{"input":[[{"role":"user","content":"a"}],[{"role":"user","content":"b"}]]}"#,
    );
    assert_eq!(texts, ["a", "b"]);
    assert_eq!((facts.prompts, facts.messages, facts.user_turns), (2, 2, 2));
    let (facts, _) = read_texts(
        Endpoint::Completions,
        r#"{"prompt":"","prompt_embeds":["x","y"],"max_tokens":3}"#,
    );
    assert_eq!(facts.output_cap(), Some(9));
}

#[test]
fn the_model_span_is_the_value_with_its_quotes() {
    for (value, model) in
        [(r#""deep\u0073eek""#, Some("deepseek")), ("null", None), (r#""""#, None)]
    {
        let body = format!(r#"{{"messages":[],"model" : {value} }}"#);
        let (facts, _) = read_texts(Endpoint::ChatCompletions, &body);
        assert_eq!(body.get(facts.model_span.unwrap()), Some(value));
        assert_eq!(facts.model.as_deref(), model);
    }
    let (facts, _) = read_texts(Endpoint::ChatCompletions, r#"{"messages":[]}"#);
    assert_eq!(facts.model_span, None);
}

#[test]
fn keys_behind_a_megabyte_of_text_are_read() {
    let text = "x".repeat(1 << 20);
    let body =
        format!(r#"{{"messages":[{{"content":"{text}","role":"user"}}],"model":"m","n":2}}"#);
    let (facts, texts) = read_texts(Endpoint::ChatCompletions, &body);
    assert_eq!((facts.model.as_deref(), facts.choices), (Some("m"), 2));
    assert_eq!(texts, [text]);
}

#[test]
fn a_key_is_found_to_be_repeated_however_many_there_are() {
    for repeated in [0, 22, 23, 24, 25, 60] {
        let keys: Vec<_> = (0..62).chain([repeated]).map(|k| format!(r#""k{k}":0"#)).collect();
        let body = format!(r#"{{"messages":[{{"role":"user",{}}}]}}"#, keys.join(","));
        let error = refuse(Endpoint::ChatCompletions, body.as_bytes());
        assert!(error.to_string().contains("twice"), "{repeated}: {error}");
    }
}

#[test]
fn a_special_byte_ends_a_plain_run_at_every_offset() {
    for lead in 0..40 {
        for (special, accepted) in [("\\u4e2d", true), ("é", true), ("\u{1f}", false)] {
            let text = format!("{}{special}{}", "y".repeat(lead), "z".repeat(19));
            let body = format!(r#"{{"prompt":"{text}"}}"#);
            let mut texts = Texts::default();
            let facts = read(Endpoint::Completions, body.as_bytes(), &mut texts);
            assert_eq!(facts.is_ok(), accepted, "{lead} {special:?}");
            if accepted {
                assert_eq!(texts.0, [text.replace("\\u4e2d", "中")]);
            }
        }
    }
}

#[test]
fn output_cap_saturates() {
    let facts = RequestFacts {
        max_output_tokens: Some(u64::MAX / 2),
        choices: 3,
        prompts: 2,
        ..RequestFacts::default()
    };
    assert_eq!(facts.output_cap(), Some(u64::MAX));
}

#[test]
fn a_body_in_another_encoding_is_told_so() {
    let wide: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for body in [&wide[..], &wide[1..], b"\xFF\xFE", b"\xEF\xBB\xBF{}"] {
        let error = refuse(Endpoint::ChatCompletions, body);
        assert!(error.to_string().contains("UTF-8"), "{body:?}");
    }
}

#[test]
fn a_refusal_never_quotes_the_client() {
    for body in [
        &br#"{"secret":1,"secret":2}"#[..],
        br#"{"model":"secret"}"#,
        br#"{"model":["secret"]}"#,
        b"{\"messages\":[{\"role\":\"secret\xff\"}]}",
        br#"{"stream":"secret"}"#,
        b"secret",
    ] {
        let error = refuse(Endpoint::ChatCompletions, body);
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
