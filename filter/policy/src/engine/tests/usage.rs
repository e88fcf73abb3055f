//! Answers teach the engine what prompts cost.

use super::*;
use crate::tokens::kind::Kind;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn body(stream: bool, asks: bool) -> Vec<u8> {
    let words = "the river runs down to a quiet town ".repeat(10);
    let options = if asks { r#","stream_options":{"include_usage":true}"# } else { "" };
    format!(
        r#"{{"model":"big","stream":{stream}{options},"messages":[{{"role":"user","content":"{words}"}}]}}"#
    )
    .into_bytes()
}

impl Gate {
    /// The header with the count, of an answer with these pieces that is then complete.
    fn answered(&mut self, body: &[u8], status: u16, event_stream: bool, pieces: &[&str]) -> u64 {
        let stream = self.admitted("shop-key", body);
        let stamp = self.respond(stream, status, event_stream);
        let mut watch = stamp.watch;
        for piece in pieces {
            match watch {
                Watch::Nothing => {}
                Watch::Beginning => watch = self.data(stream, piece.as_bytes()),
                Watch::Tails => self.engine.tail(stream, piece.as_bytes(), piece.len()),
            }
        }
        let line = self.end(stream, Ending::Complete);
        assert_eq!(line["context_exact"], false);
        assert_eq!(header(&stamp.headers, "x-slogate-prompt-tokens-estimated"), Some("true"));
        let count = header(&stamp.headers, "x-slogate-prompt-tokens").expect("a count");
        assert_eq!(line["context_len"].to_string(), count);
        count.parse().expect("a number")
    }

    fn refreshed(&mut self) {
        self.pass(REFRESH);
        self.tick();
    }
}

fn document(tokens: &str) -> String {
    format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{tokens},"completion_tokens":1}}}}"#)
}

fn event(tokens: &str) -> String {
    format!("data: {}\n\ndata: [DONE]\n\n", document(tokens))
}

#[test]
fn the_count_comes_to_what_engines_say_from_documents_and_streams() {
    for stream in [false, true] {
        let mut gate = Gate::new(&policy(1, ""));
        let plain = gate.answered(&body(stream, stream), 200, stream, &[]);
        let truth = (plain * 2).to_string();
        for _ in 0..30 {
            let answer = if stream { event(&truth) } else { document(&truth) };
            let (start, end) = answer.split_at(answer.len() / 2);
            gate.answered(&body(stream, true), 200, stream, &["", "data: {}\n\n", start, end]);
        }
        assert_eq!(gate.answered(&body(stream, stream), 200, stream, &[]), plain);
        gate.refreshed();
        let learned = gate.answered(&body(stream, stream), 200, stream, &[]);
        assert!(learned.abs_diff(plain * 2) <= plain / 20, "{plain} {learned}");
        assert!(gate.host.gauge(StatId::TokenFactor(0, Kind::Words)).is_some());
        // While nothing was written, the first counts were half the truth.
        let ratio = gate.host.gauge(StatId::TokenRatio(0)).expect("a gauge");
        assert!((1_900..=2_000).contains(&ratio), "{ratio}");
        for _ in 0..100 {
            let answer = if stream { event(&truth) } else { document(&truth) };
            gate.answered(&body(stream, true), 200, stream, &["data: {}\n\n", &answer]);
            gate.refreshed();
        }
        let ratio = gate.host.gauge(StatId::TokenRatio(0)).expect("a gauge");
        assert!(ratio.abs_diff(1_000) < 30, "{ratio}");
        gate.assert_empty();
    }
}

#[test]
fn a_stream_that_will_not_tell_is_not_looked_at_after_its_first_token() {
    let mut gate = Gate::new(&policy(1, ""));
    for (asks, next) in [(false, Watch::Nothing), (true, Watch::Tails)] {
        let stream = gate.admitted("shop-key", &body(true, asks));
        assert_eq!(gate.respond(stream, 200, true).watch, Watch::Beginning);
        assert_eq!(gate.data(stream, b"data: {}\n\n"), next);
        gate.end(stream, Ending::Complete);
    }
    let stream = gate.admitted("shop-key", &body(false, false));
    assert_eq!(gate.respond(stream, 200, false).watch, Watch::Tails);
    gate.end(stream, Ending::Complete);
    let head = Head { path: b"/v1/responses", ..head("shop-key") };
    let (stream, _) = gate.begin(&head);
    gate.decide(stream, br#"{"model":"big","stream":true,"input":"Hello there"}"#);
    gate.respond(stream, 200, true);
    assert_eq!(gate.data(stream, b"event: response.created\n"), Watch::Tails);
    gate.end(stream, Ending::Complete);
}

#[test]
fn errors_lies_and_silence_teach_nothing() {
    let mut gate = Gate::new(&policy(1, ""));
    let plain = gate.answered(&body(false, false), 200, false, &["{}"]);
    for tokens in ["1000000000000", "-5", "\"200\"", "0", "1e3", "18446744073709551616", "null"] {
        for _ in 0..5 {
            gate.answered(&body(false, false), 200, false, &[&document(tokens)]);
            gate.answered(&body(true, true), 200, true, &["data: {}\n\n", &event(tokens)]);
        }
    }
    for status in [400, 422, 500, 503] {
        let stamp = {
            let stream = gate.admitted("shop-key", &body(false, false));
            let stamp = gate.respond(stream, status, false);
            gate.end(stream, Ending::Complete);
            stamp
        };
        assert_eq!(stamp.watch, Watch::Nothing);
    }
    gate.refreshed();
    assert_eq!(gate.answered(&body(false, false), 200, false, &[]), plain);
    assert_eq!(gate.host.gauge(StatId::TokenRatio(0)), None);
    assert_eq!(gate.host.counter(StatId::SharedStateErrors), 0);
}

#[test]
fn a_push_keeps_what_was_learned_and_requests_of_the_old_policy_still_teach() {
    let old = policy(1, "");
    let new = policy(1, r#", "expected_output_tokens": 7"#);
    let mut gate = Gate::new(&old);
    let plain = gate.answered(&body(false, false), 200, false, &[]);
    let truth = document(&(plain * 2).to_string());
    for _ in 0..29 {
        gate.answered(&body(false, false), 200, false, &[&truth]);
    }
    let running = gate.admitted("shop-key", &body(false, false));
    gate.engine.retire(&new, &mut gate.host.clone());
    gate.engine.adopt(Rc::clone(&new), &mut gate.host.clone());
    gate.respond(running, 200, false);
    gate.engine.tail(running, truth.as_bytes(), truth.len());
    gate.end(running, Ending::Complete);
    gate.refreshed();
    let learned = gate.answered(&body(false, false), 200, false, &[]);
    assert!(learned.abs_diff(plain * 2) <= plain / 20, "{plain} {learned}");
    // Another instance of the same process knows it too, without an answer of its own.
    let mut other = Gate::on(gate.host.clone(), &new);
    other.refreshed();
    assert_eq!(other.answered(&body(false, false), 200, false, &[]), learned);
}
