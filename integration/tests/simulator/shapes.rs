//! Bodies and headers of answers: errors, usage, ids, and the other APIs.

use serde_json::Value;
use slogate_integration::sim::{Fault, Sim, SimConfig};

use super::client::{chat, get, post, send, until};
use super::{chats_in_order, one_at_a_time};

const CHAT: &str = "/v1/chat/completions";

fn sim() -> Sim {
    Sim::start(SimConfig { max_model_len: 2048, ..SimConfig::default() }).unwrap()
}

/// A chat body with further fields.
fn body(more: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"max_tokens":2{more}}}"#)
}

#[test]
fn errors_have_the_engines_status_type_and_param() {
    let sim = sim();
    let long =
        body(&format!(r#","messages":[{{"role":"user","content":"{}"}}]"#, "x".repeat(3000)));
    let cases = [
        (r#"{"model":!"#.to_owned(), 400, "Bad Request", "body.9"),
        (r#"{"model":"tiny"}"#.to_owned(), 400, "Bad Request", "body.messages"),
        (r#"{"messages":3}"#.to_owned(), 400, "Bad Request", "body.messages"),
        (body(r#","priority":1.5"#), 400, "Bad Request", "body.priority"),
        (body(r#","priority":null"#), 400, "Bad Request", "body.priority"),
        (body(r#","priority":"high""#), 400, "Bad Request", "body.priority"),
        (body(r#","priority":9223372036854775808"#), 400, "Bad Request", "body.priority"),
        (body(r#","model":"nope""#), 404, "NotFoundError", "model"),
        (long, 400, "BadRequestError", "input_tokens"),
        (body(r#","max_tokens":4000"#), 400, "BadRequestError", "max_tokens"),
        (body(r#","temperature":-1"#), 400, "BadRequestError", "temperature"),
        (
            body(r#","stream_options":{"include_usage":true}"#),
            400,
            "BadRequestError",
            "stream_options",
        ),
        ("[]".to_owned(), 400, "Bad Request", "body"),
        ("null".to_owned(), 400, "Bad Request", "body"),
    ];
    for (body, status, kind, param) in cases {
        let answer = post(&sim, CHAT, &body);
        assert_eq!(answer.status, status, "{body:.80}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], kind, "{body:.80}");
        assert_eq!(error["param"], param, "{body:.80}");
        assert_eq!(error["code"], status, "{body:.80}");
    }
    let unknown = post(&sim, CHAT, &body(r#","model":"nope""#)).json();
    let message = unknown["error"]["message"].as_str().unwrap();
    assert_eq!(message, "The model `nope` does not exist. Valid aliases: tiny, tiny-alias.");
}

#[test]
fn the_web_frameworks_own_errors_have_another_shape() {
    let sim = sim();
    let missing = get(&sim, "/v1/nothing");
    assert_eq!((missing.status, missing.body.as_str()), (404, r#"{"detail":"Not Found"}"#));
    let method = get(&sim, CHAT);
    assert_eq!((method.status, method.body.as_str()), (405, r#"{"detail":"Method Not Allowed"}"#));
}

#[test]
fn only_one_content_type_is_taken() {
    let sim = sim();
    let status = |media: &str| {
        let line = format!("content-type: {media}");
        send(&sim, CHAT, &[&line], body("").as_bytes()).read().status
    };
    assert_eq!(status("application/json; charset=utf-8"), 200);
    assert_eq!(status("application/json; charset=utf-16"), 200);
    assert_eq!(status("APPLICATION/JSON"), 200);
    assert_eq!(status("text/plain"), 400);
    assert_eq!(status("application/vnd.x+json"), 400);
}

#[test]
fn bodies_are_read_as_generously_as_the_engine_reads_them() {
    let sim = sim();
    let accepted = [
        body(r#","max_tokens":2.0"#),
        body(r#","max_tokens":2e0"#),
        body(r#","max_tokens":"2""#),
        body(r#","max_tokens":9,"max_completion_tokens":2"#),
        body(r#","model":null"#),
        body(r#","model":"""#),
        body(r#","stream":"false""#),
        body(r#","stream":0"#),
        body(r#","priority":true"#),
        body(r#","unknown":{"a":[1]}"#),
        body(r#","model":"nope","mod\u0065l":"tiny-alias""#),
        body(&format!(r#","metadata":{}{}"#, "[".repeat(900), "]".repeat(900))),
    ];
    for body in accepted {
        let answer = post(&sim, CHAT, &body);
        assert_eq!(answer.status, 200, "{body:.120}");
        assert_eq!(answer.json()["usage"]["completion_tokens"], 2, "{body:.120}");
        assert_eq!(answer.json()["model"], "tiny", "the first served name stands in every answer");
    }
    let longer =
        body(&format!(r#","messages":[{{"role":"user","content":"{}"}}]"#, "x".repeat(300)));
    let prompt = &post(&sim, CHAT, &longer).json()["usage"]["prompt_tokens"];
    assert_eq!(*prompt, 318, "the second messages count");
    let utf16: Vec<u8> = body("").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(send(&sim, CHAT, &[], &utf16).read().status, 200);
    let refused = [
        body(r#","temperature":NaN"#),
        body(r#","a":1"#) + " x",
        body(&format!(r#","max_tokens":{}"#, "9".repeat(5000))),
        body(r#","model":"\ud800""#),
        body(&format!(r#","metadata":{}"#, "[".repeat(100_000))),
        String::new(),
    ];
    for body in refused {
        assert_eq!(post(&sim, CHAT, &body).status, 400, "{body:.120}");
    }
}

/// Events with a usage key, and the last usage.
fn usage_of(events: &[Value]) -> (usize, Option<&Value>) {
    let usages: Vec<_> = events.iter().filter_map(|event| event.get("usage")).collect();
    (usages.len(), usages.last().copied())
}

#[test]
fn usage_is_in_a_stream_only_as_asked_for() {
    let sim = sim();
    let events = |options: &str| {
        let answer = post(&sim, CHAT, &body(&format!(r#","stream":true,"n":2{options}"#)));
        assert!(answer.ends_with_done());
        answer.events()
    };
    // Two role chunks and two tokens for each of two choices.
    let plain = events("");
    assert_eq!((plain.len(), usage_of(&plain).0), (6, 0));
    let alone = events(r#","stream_options":{"continuous_usage_stats":true}"#);
    assert_eq!(usage_of(&alone).0, 0);
    let asked = events(r#","stream_options":{"include_usage":true}"#);
    let (count, last) = usage_of(&asked);
    assert_eq!((asked.len(), count), (7, 1));
    assert_eq!(last.unwrap()["completion_tokens"], 4, "both choices together");
    assert_eq!(asked[6]["choices"], Value::Array(vec![]));
    let always =
        events(r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#);
    assert_eq!(usage_of(&always).0, 7);
    assert_eq!(always[0]["usage"]["completion_tokens"], 0, "the role chunk");
}

#[test]
fn usage_can_be_forced_into_every_chunk() {
    let config = SimConfig { force_include_usage: true, ..SimConfig::default() };
    let sim = Sim::start(config).unwrap();
    let events = post(&sim, CHAT, &body(r#","stream":true"#)).events();
    assert_eq!(usage_of(&events).0, events.len());
}

#[test]
fn the_queue_time_is_told_where_it_is_switched_on() {
    let sim = Sim::start(SimConfig { per_request_metrics: true, ..one_at_a_time() }).unwrap();
    sim.fault(&Fault::Slow { factor: 10.0, for_ms: None });
    let mut sent = chats_in_order(&sim, &["first", "whole"], 8, "");
    let options = r#","stream":true,"stream_options":{"include_usage":true}"#;
    sent.extend(chats_in_order(&sim, &["stream"], 2, options));
    let mut answers: Vec<_> = sent.into_iter().map(super::client::Sent::read).collect();
    let stream = answers.pop().unwrap().events().pop().unwrap();
    for (metrics, id) in [(&answers[1].json()["metrics"], "whole"), (&stream["metrics"], "stream")]
    {
        let entry = sim.log().into_iter().find(|entry| entry.id == id).unwrap();
        let waited = entry.started_ms.unwrap() - entry.arrived_ms;
        let told = metrics["queue_time_ms"].as_f64().unwrap();
        assert!((told - waited).abs() < 5.0, "{told} {waited}");
        assert!(metrics["time_to_first_token_ms"].as_f64().unwrap() > told);
    }
}

#[test]
fn comment_lines_keep_a_waiting_stream_alive() {
    let period = std::time::Duration::from_millis(50);
    let sim = Sim::start(SimConfig { sse_keep_alive: Some(period), ..one_at_a_time() }).unwrap();
    sim.fault(&Fault::Hang { for_ms: Some(400) });
    let answer = chat(&sim, "a", 2, r#","stream":true"#).read();
    let comments = answer.body.matches(": keep-alive\n\n").count();
    assert!((2..=8).contains(&comments), "{}", answer.body);
    assert!(answer.body.starts_with(": keep-alive"), "{}", answer.body);
}

#[test]
fn a_request_id_becomes_the_bodys_id_and_a_header_only_on_demand() {
    let sim = sim();
    let answer = chat(&sim, "abc", 2, "").read();
    assert_eq!(answer.json()["id"], "chatcmpl-abc");
    assert_eq!(answer.json()["request_id"], "abc");
    assert_eq!(answer.header("x-request-id"), None);
    let sim = Sim::start(SimConfig { request_id_headers: true, ..SimConfig::default() }).unwrap();
    assert_eq!(chat(&sim, "abc", 2, "").read().header("x-request-id"), Some("abc"));
    assert_eq!(post(&sim, CHAT, "{").header("x-request-id").unwrap().len(), 32);
}

#[test]
fn the_load_report_rides_on_whole_answers_only() {
    let sim = sim();
    let report = |format: &str, more: &str| {
        let line = format!("endpoint-load-metrics-format: {format}");
        let answer = send(&sim, CHAT, &[&line], body(more).as_bytes()).read();
        answer.header("endpoint-load-metrics").map(str::to_owned)
    };
    let text = "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0";
    assert_eq!(report("TEXT", "").as_deref(), Some(text));
    let json =
        r#"JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}"#;
    assert_eq!(report("json", "").as_deref(), Some(json));
    assert_eq!(report("BIN", ""), None);
    assert_eq!(report("TEXT", r#","stream":true"#), None);
}

#[test]
fn a_key_guards_the_paths_under_v1_alone() {
    let sim =
        Sim::start(SimConfig { api_key: Some("secret".into()), ..SimConfig::default() }).unwrap();
    let refused = post(&sim, CHAT, &body(""));
    assert_eq!((refused.status, refused.body.as_str()), (401, r#"{"error":"Unauthorized"}"#));
    let key = ["authorization: Bearer secret"];
    assert_eq!(send(&sim, CHAT, &key, body("").as_bytes()).read().status, 200);
    assert_eq!(post(&sim, "/invocations", &body("")).status, 200, "a full inference route");
    for path in ["/health", "/metrics", "/load", "/version", "/ping"] {
        assert_eq!(get(&sim, path).status, 200, "{path}");
    }
}

#[test]
fn the_other_apis_answer_in_their_own_shapes() {
    let sim = sim();
    let completion = post(&sim, "/v1/completions", r#"{"prompt":[1,2,3],"max_tokens":3}"#).json();
    assert_eq!(completion["object"], "text_completion");
    assert_eq!(completion["usage"]["prompt_tokens"], 3);
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
    let embedding = post(&sim, "/v1/embeddings", r#"{"input":["ab","cde"]}"#).json();
    assert_eq!(embedding["usage"]["prompt_tokens"], 5);
    assert!(embedding["data"][0]["embedding"].is_array());
    let response = post(&sim, "/v1/responses", r#"{"input":"hello","max_output_tokens":4}"#).json();
    assert_eq!(response["usage"]["output_tokens"], 4);
    let message = body("").replace("\"hi\"", r#"[{"type":"text","text":"hi"}]"#);
    let message = post(&sim, "/v1/messages", &message).json();
    assert_eq!(message["stop_reason"], "max_tokens");
    let events = post(&sim, "/v1/messages", &body(r#","stream":true"#)).body;
    assert!(events.starts_with("event: message_start\n") && events.contains("event: message_stop"));
    let tokenized = post(&sim, "/tokenize", r#"{"prompt":"hello"}"#).json();
    assert_eq!(tokenized["count"], 5);
    let models = get(&sim, "/v1/models").json();
    assert_eq!(models["data"][1]["id"], "tiny-alias");
    assert_eq!(get(&sim, "/load").body, r#"{"server_load":0}"#);
}

#[test]
fn an_answer_without_a_cap_stops_at_the_configured_length() {
    let sim = Sim::start(SimConfig { output_tokens: 7, ..SimConfig::default() }).unwrap();
    let answer = post(&sim, CHAT, r#"{"messages":[{"role":"user","content":"hi"}]}"#).json();
    assert_eq!(answer["usage"]["completion_tokens"], 7);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_captured_request_is_kept_byte_for_byte() {
    let sim = Sim::start(SimConfig { capture: true, ..SimConfig::default() }).unwrap();
    let sent = body(r#", "x" : [ 1 ]"#);
    assert_eq!(send(&sim, CHAT, &["x-mark: yes"], sent.as_bytes()).read().status, 200);
    until("it is logged", || sim.stats().served == 1);
    let seen = sim.log().pop().and_then(|entry| entry.seen).unwrap();
    assert_eq!(seen.body, sent.as_bytes());
    assert!(seen.headers.contains(&("x-mark".into(), "yes".into())));
}
