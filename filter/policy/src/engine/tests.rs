//! What becomes of requests, from the first header to the last byte.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

mod chaos;
mod counting;
mod key_quota;
mod usage;

use serde_json::Value;

use super::upkeep::REFRESH;
use super::*;
use crate::ids::MILLI;
use crate::keys;
use crate::outcome::Outcome;
use crate::stats::{ExecPhase, Objective, StatKind};
use crate::testing::Host;
use crate::timing::Moment;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SECOND: Nanos = 1_000 * MILLI;
const START: Nanos = 1_790_000_000 * SECOND;

fn sha256(key: &str) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("a nibble");
    keys::hash(key.as_bytes()).iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// Two models, the second without a place for `long` prompts of the first; three tiers.
fn policy(permits: u32, more: &str) -> Rc<Policy> {
    let text = format!(
        r#"{{"models": [
            {{"name": "big", "cluster": "big_cluster", "max_in_flight": {permits},
              "class_clusters": {{"long": {{"cluster": "big_long", "max_in_flight": 1}}}}}},
            {{"name": "lite", "cluster": "lite_cluster", "max_in_flight": 1}}],
          "size_classes": [{{"name": "short", "max_tokens": 100}}, {{"name": "long"}}],
          "max_body_bytes": 100000,
          "tiers": [
            {{"name": "realtime", "weight": 8, "queue": {{"capacity": 2, "max_wait": "500ms"}},
              "slo": {{"objective": 0.99, "total": "400ms", "first_token": "200ms"}}}},
            {{"name": "economy", "weight": 1, "queue": {{"capacity": 4, "max_wait": "2s"}}}}],
          "keys": {{"unknown": {{"reject": true}}, "entries": [
            {{"id": "shop", "tier": "realtime", "sha256": "{}"}},
            {{"id": "batch", "tier": "economy", "sha256": "{}"}}]}}
          {more}}}"#,
        sha256("shop-key"),
        sha256("batch-key")
    );
    Rc::new(Policy::from_json(text.as_bytes()).expect("legal"))
}

fn chat(model: &str) -> Vec<u8> {
    format!(
        r#"{{"model":"{model}","max_tokens":10,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    )
    .into_bytes()
}

fn long_chat(model: &str) -> Vec<u8> {
    let words = "word ".repeat(1_000);
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{words}"}}]}}"#)
        .into_bytes()
}

fn head(key: &str) -> Head<'_> {
    Head {
        method: b"POST",
        path: b"/v1/chat/completions?x=1",
        key: Some(key.as_bytes()),
        content_type: Some(b"application/json; charset=utf-8"),
        request_id: Some(b"id-1"),
        ..Head::default()
    }
}

/// One instance, with a clock.
struct Gate {
    engine: Engine,
    host: Host,
    now: Nanos,
    next: u32,
    /// What the last ending brought about for others.
    freed: Vec<Action>,
}

impl Gate {
    fn new(policy: &Rc<Policy>) -> Self {
        Self::on(Host::default(), policy)
    }

    fn on(host: Host, policy: &Rc<Policy>) -> Self {
        let engine =
            Engine::new("slogate/", Rc::clone(policy), Vocabularies::default(), &mut host.clone());
        Self { engine, host, now: 10 * SECOND, next: 0, freed: Vec::new() }
    }

    fn moment(&self) -> Moment {
        Moment { mono: self.now, wall: START + self.now }
    }

    fn pass(&mut self, time: Nanos) {
        self.now += time;
    }

    fn begin(&mut self, head: &Head<'_>) -> (StreamId, Begin) {
        self.next += 1;
        let stream = StreamId(self.next);
        (stream, {
            let now = self.moment();
            self.engine.begin(stream, head, || now)
        })
    }

    fn decide(&mut self, stream: StreamId, body: &[u8]) -> Verdict {
        let now = self.moment();
        self.engine.decide(stream, body, now, &mut self.host.clone()).0
    }

    fn ask(&mut self, key: &str, body: &[u8]) -> (StreamId, Verdict) {
        let (stream, begin) = self.begin(&head(key));
        assert_eq!(begin, Begin::Hold);
        let verdict = self.decide(stream, body);
        (stream, verdict)
    }

    fn admitted(&mut self, key: &str, body: &[u8]) -> StreamId {
        let (stream, verdict) = self.ask(key, body);
        assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
        stream
    }

    fn queued(&mut self, key: &str, body: &[u8]) -> StreamId {
        let (stream, verdict) = self.ask(key, body);
        assert_eq!(verdict, Verdict::Enqueue);
        stream
    }

    fn refused(&mut self, key: &str, body: &[u8]) -> (StreamId, Refusal) {
        let (stream, verdict) = self.ask(key, body);
        let Verdict::Refuse(refusal) = verdict else { panic!("not refused: {verdict:?}") };
        (stream, refusal)
    }

    fn respond(&mut self, stream: StreamId, status: u16, event_stream: bool) -> Stamp {
        let now = self.moment();
        self.engine.respond(stream, status, event_stream, now).expect("known")
    }

    fn data(&mut self, stream: StreamId, chunk: &[u8]) -> Watch {
        let now = self.moment();
        self.engine.data(stream, chunk, now)
    }

    /// Ends a request and returns its log line.
    fn end(&mut self, stream: StreamId, ending: Ending) -> Value {
        let now = self.moment();
        let ended = self.engine.end(stream, ending, now, &mut self.host.clone());
        let (line, actions) = ended.expect("known");
        let line = serde_json::from_str(&format!("{{\"a\":1{line}}}")).expect("JSON");
        self.freed = actions;
        line
    }

    fn actions(&self) -> &[Action] {
        &self.freed
    }

    fn tick(&mut self) -> Vec<Action> {
        let now = self.moment();
        self.engine.tick(now, &mut self.host.clone())
    }

    fn outcomes(&self) -> Vec<(Outcome, u64)> {
        let mut found: Vec<_> = self
            .host
            .counters()
            .into_iter()
            .filter_map(|(stat, count)| match stat {
                StatId::Requests(.., outcome) => Some((outcome, count)),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found
    }

    fn slo(&self, objective: Objective) -> (u64, u64) {
        let good = self.host.counter(StatId::SloGood(0, objective));
        (good, self.host.counter(StatId::SloTotal(0, objective)))
    }

    /// Nothing is left of anything.
    fn assert_empty(&self) {
        assert_eq!(self.engine.requests(), 0);
        assert!(self.engine.deadlines.is_empty());
        assert!(self.engine.pools.values().all(|pool| pool.is_idle() && !pool.is_stale()));
        for key in self.host.keys().iter().filter(|key| key.contains("pool/")) {
            let ledger = crate::pool::ledger::Ledger::decode(&self.host.value(key));
            let ledger = ledger.expect("a ledger");
            assert_eq!((ledger.rows.len(), ledger.flows.len(), ledger.virtual_time), (0, 0, 0));
        }
    }
}

fn header<'a>(headers: &'a [(&'static str, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
}

/// Runs one request to its end by one road; returns its outcome's label.
fn road(name: &str) -> (&'static str, Gate) {
    let policy = policy(1, "");
    let mut gate = Gate::new(&policy);
    let expected = match name {
        "left while reading" => {
            let (stream, _) = gate.begin(&head("shop-key"));
            gate.end(stream, Ending::ClientLeft);
            "left_waiting"
        }
        "answered by a timer of Envoy while reading" => {
            let (stream, _) = gate.begin(&head("shop-key"));
            gate.respond(stream, 504, false);
            gate.end(stream, Ending::Complete);
            "gate_error"
        }
        "over Envoy's own body limit" => {
            let (stream, _) = gate.begin(&head("shop-key"));
            gate.respond(stream, 413, false);
            gate.end(stream, Ending::Complete);
            "request_too_large"
        }
        "left while waiting" | "answered by a timer of Envoy while waiting" => {
            let first = gate.admitted("shop-key", &chat("big"));
            let waiter = gate.queued("shop-key", &chat("big"));
            let left = name == "left while waiting";
            if left {
                gate.end(waiter, Ending::ClientLeft);
            } else {
                gate.respond(waiter, 504, false);
                gate.end(waiter, Ending::Complete);
            }
            assert_eq!(gate.outcomes().len(), 1, "{:?}", gate.outcomes());
            gate.respond(first, 200, false);
            gate.end(first, Ending::Complete);
            assert_eq!(gate.actions(), []);
            if left { "left_waiting" } else { "queue_timeout" }
        }
        "left while running" => {
            let stream = gate.admitted("shop-key", &chat("big"));
            gate.end(stream, Ending::ClientLeft);
            "left_running"
        }
        "answered" | "refused by the engine" | "failed by the engine" | "cut" => {
            let stream = gate.admitted("shop-key", &chat("big"));
            let (status, outcome) = match name {
                "refused by the engine" => (422, "client_error"),
                "failed by the engine" => (503, "engine_error"),
                "cut" => (200, "engine_error"),
                _ => (200, "ok"),
            };
            gate.respond(stream, status, false);
            gate.data(stream, b"{}");
            let ending = if name == "cut" { Ending::EngineCut } else { Ending::Complete };
            gate.end(stream, ending);
            outcome
        }
        "no answer at all" => {
            let stream = gate.admitted("shop-key", &chat("big"));
            gate.end(stream, Ending::Complete);
            "engine_error"
        }
        _ => panic!("no such road"),
    };
    (expected, gate)
}

#[test]
fn a_request_ends_in_one_outcome_by_whatever_road() {
    for name in [
        "left while reading",
        "answered by a timer of Envoy while reading",
        "over Envoy's own body limit",
        "left while waiting",
        "answered by a timer of Envoy while waiting",
        "left while running",
        "answered",
        "refused by the engine",
        "failed by the engine",
        "cut",
        "no answer at all",
    ] {
        let (expected, gate) = road(name);
        gate.assert_empty();
        let outcomes = gate.outcomes();
        let found = outcomes.iter().filter(|(outcome, _)| outcome.label() == expected);
        assert_eq!(found.map(|(_, count)| count).sum::<u64>(), 1, "{name}: {outcomes:?}");
        let all: u64 = outcomes.iter().map(|(_, count)| count).sum();
        assert_eq!(all, u64::from(gate.next), "{name}: {outcomes:?}");
    }
}

#[test]
fn what_is_refused_by_its_head_has_an_outcome_too() {
    let deny = policy(1, r#", "other_paths": "deny""#);
    let shop = head("shop-key");
    for (what, head, status, outcome) in [
        ("an unknown key", head("guess"), 401, Outcome::InvalidApiKey),
        ("no key", Head { key: None, ..shop }, 401, Outcome::InvalidApiKey),
        ("no body", Head { end_of_stream: true, ..shop }, 400, Outcome::InvalidRequest),
        ("another model", Head { overrides_model: true, ..shop }, 400, Outcome::InvalidRequest),
        ("gzip", Head { content_encoding: Some(b"gzip"), ..shop }, 415, Outcome::InvalidRequest),
        ("no such tier", Head { tier: Some(b"gold"), ..shop }, 400, Outcome::InvalidRequest),
        ("a bad wait", Head { max_wait_ms: Some(b"1s"), ..shop }, 400, Outcome::InvalidRequest),
        (
            "a disguise",
            Head { path: b"/v1/chat%2Fcompletions", ..shop },
            400,
            Outcome::InvalidRequest,
        ),
        ("another path", Head { path: b"/metrics", ..shop }, 404, Outcome::InvalidRequest),
        ("a wrong method", Head { method: b"GET", ..shop }, 404, Outcome::InvalidRequest),
    ] {
        let mut gate = Gate::new(&deny);
        let (stream, begin) = gate.begin(&head);
        let Begin::Refuse(refusal) = begin else { panic!("{what}: {begin:?}") };
        assert_eq!(refusal.status, status, "{what}");
        gate.end(stream, Ending::Complete);
        assert_eq!(gate.outcomes(), [(outcome, 1)], "{what}");
        gate.assert_empty();
    }
    let mut gate = Gate::new(&policy(1, ""));
    let (stream, begin) = gate.begin(&Head { path: b"/metrics", ..shop });
    assert_eq!(begin, Begin::Pass);
    assert_eq!(gate.engine.requests(), 0);
    let now = gate.moment();
    assert_eq!(gate.engine.end(stream, Ending::Complete, now, &mut gate.host.clone()), None);
}

#[test]
fn what_is_refused_by_its_body_has_an_outcome_too() {
    for (body, status, code, outcome) in [
        (&b"no json"[..], 400, "invalid_request_error", Outcome::InvalidRequest),
        (br#"{"messages":[]}"#, 400, "invalid_request_error", Outcome::InvalidRequest),
        (
            br#"{"model":"gpt","messages":[{"role":"user","content":"x"}]}"#,
            404,
            "model_not_found",
            Outcome::ModelNotFound,
        ),
        (
            br#"{"messages":[{"role":"user","content":"x"}]}"#,
            400,
            "invalid_request_error",
            Outcome::InvalidRequest,
        ),
    ] {
        let mut gate = Gate::new(&policy(1, ""));
        let (stream, refusal) = gate.refused("shop-key", body);
        assert_eq!((refusal.status, refusal.code), (status, code));
        // A second decision changes nothing.
        assert!(matches!(gate.decide(stream, &chat("big")), Verdict::Refuse(_)));
        gate.end(stream, Ending::Complete);
        assert_eq!(gate.outcomes(), [(outcome, 1)]);
        gate.assert_empty();
    }
    let mut gate = Gate::new(&policy(1, r#", "default_model": "lite""#));
    let body = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    assert!(
        matches!(gate.ask("shop-key", body).1, Verdict::Admit(cluster) if *cluster == *"lite_cluster")
    );
}

#[test]
fn a_body_over_the_limit_is_refused_while_it_comes() {
    let mut gate = Gate::new(&policy(1, ""));
    let (stream, _) = gate.begin(&head("shop-key"));
    let now = gate.moment();
    assert_eq!(gate.engine.body_grows(stream, 100_000, || now), None);
    let refusal = gate.engine.body_grows(stream, 100_001, || now).expect("too large");
    assert_eq!((refusal.status, refusal.code), (413, "request_too_large"));
    assert_eq!(gate.engine.body_grows(stream, 100_002, || now), None, "refused once");
    gate.end(stream, Ending::Complete);
    assert_eq!(gate.outcomes(), [(Outcome::RequestTooLarge, 1)]);
    gate.assert_empty();
}

#[test]
fn a_waiter_is_let_through_when_a_permit_comes_back_and_refused_when_its_time_is_over() {
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("shop-key", &chat("big"));
    let second = gate.queued("shop-key", &chat("big"));
    let third = gate.queued("shop-key", &chat("big"));
    let (full, refusal) = gate.refused("shop-key", &chat("big"));
    assert_eq!((refusal.status, refusal.code), (503, "queue_full"));
    assert_eq!(header(&refusal.all_headers(), "x-slogate-tier"), Some("realtime"));
    gate.end(full, Ending::Complete);
    gate.pass(120 * MILLI);
    gate.respond(first, 200, false);
    gate.end(first, Ending::Complete);
    let admitted = Action { stream: second, verdict: Verdict::Admit(Rc::from("big_cluster")) };
    assert_eq!(gate.actions(), [admitted]);

    gate.pass(379 * MILLI);
    assert_eq!(gate.tick(), []);
    gate.pass(MILLI);
    let actions = gate.tick();
    let [Action { stream, verdict: Verdict::Refuse(refusal) }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!((*stream, refusal.status, refusal.code), (third, 503, "queue_timeout"));
    let headers = refusal.all_headers();
    assert_eq!(header(&headers, "x-slogate-queue-ms"), Some("500.000"));
    assert_eq!(header(&headers, "server-timing"), Some("queue;dur=500.000"));
    assert_eq!(header(&headers, "x-slogate-reason"), Some("queue_timeout"));
    assert!(header(&headers, "retry-after").is_some());
    let line = gate.end(third, Ending::Complete);
    assert_eq!((&line["outcome"], &line["queue_ms"]), (&"queue_timeout".into(), &500.0.into()));
    assert_eq!(line["exec_ms"], Value::Null);
    gate.respond(second, 200, false);
    gate.end(second, Ending::Complete);
    gate.assert_empty();
    let all = [(Outcome::Ok, 2), (Outcome::QueueTimeout, 1), (Outcome::QueueFull, 1)];
    assert_eq!(gate.outcomes(), all);
}

#[test]
fn who_would_wait_too_long_is_told_at_once_but_not_before_a_permit_came_back() {
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("shop-key", &chat("big"));
    let second = gate.queued("shop-key", &chat("big"));
    gate.pass(450 * MILLI);
    gate.respond(first, 200, false);
    gate.end(first, Ending::Complete);
    let third = gate.queued("shop-key", &chat("big"));
    let (fourth, _) = gate.begin(&Head { max_wait_ms: Some(b"100"), ..head("shop-key") });
    let Verdict::Refuse(refusal) = gate.decide(fourth, &chat("big")) else { panic!("it waits") };
    assert_eq!(refusal.code, "queue_wait_too_long");
    let headers = refusal.all_headers();
    assert_eq!(header(&headers, "x-slogate-predicted-wait-ms"), Some("450.000"));
    assert_eq!(header(&headers, "retry-after-ms"), Some("350"));
    for stream in [second, third, fourth] {
        gate.end(stream, Ending::ClientLeft);
    }
    gate.assert_empty();
}

#[test]
fn a_client_can_lower_its_tier_and_shorten_its_wait_but_neither_the_other_way() {
    for (key, tier, wait, expected) in [
        ("shop-key", Some(&b"economy"[..]), None, ("economy", 2_000)),
        ("batch-key", Some(b"realtime"), None, ("economy", 2_000)),
        ("shop-key", None, Some(&b"100"[..]), ("realtime", 100)),
        ("shop-key", None, Some(b"60000"), ("realtime", 500)),
    ] {
        let mut gate = Gate::new(&policy(1, ""));
        let first = gate.admitted("shop-key", &chat("big"));
        let (stream, _) = gate.begin(&Head { tier, max_wait_ms: wait, ..head(key) });
        assert_eq!(gate.decide(stream, &chat("big")), Verdict::Enqueue);
        gate.pass(expected.1 * MILLI - 1);
        assert_eq!(gate.tick(), []);
        gate.pass(1);
        assert_eq!(gate.tick().len(), 1);
        let line = gate.end(stream, Ending::Complete);
        assert_eq!(line["tier"], expected.0);
        gate.end(first, Ending::Complete);
        gate.assert_empty();
    }
}

#[test]
fn a_class_with_a_cluster_of_its_own_has_permits_of_its_own() {
    let mut gate = Gate::new(&policy(1, ""));
    let short = gate.admitted("shop-key", &chat("big"));
    let (long, verdict) = gate.ask("shop-key", &long_chat("big"));
    assert_eq!(verdict, Verdict::Admit(Rc::from("big_long")));
    let waiter = gate.queued("shop-key", &long_chat("big"));
    gate.end(short, Ending::ClientLeft);
    assert_eq!(gate.actions(), []);
    gate.end(long, Ending::ClientLeft);
    let admitted = Action { stream: waiter, verdict: Verdict::Admit(Rc::from("big_long")) };
    assert_eq!(gate.actions(), [admitted]);
    gate.end(waiter, Ending::ClientLeft);
    gate.assert_empty();
}

#[test]
fn times_add_up_in_headers_log_and_stats() {
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("batch-key", &chat("big"));
    let (stream, _) = gate.begin(&head("shop-key"));
    gate.pass(7 * MILLI);
    assert_eq!(gate.decide(stream, &chat("big")), Verdict::Enqueue);
    gate.pass(30 * MILLI);
    gate.end(first, Ending::EngineCut);
    gate.pass(20 * MILLI);
    let stamp = gate.respond(stream, 200, true);
    let header = |name| header(&stamp.headers, name);
    assert_eq!(header("server-timing"), Some("queue;dur=30.000"));
    assert_eq!(header("x-slogate-queue-ms"), Some("30.000"));
    assert_eq!(header("x-slogate-exec-ms"), None);
    assert_eq!(
        (header("x-slogate-tier"), header("x-slogate-class")),
        (Some("realtime"), Some("short"))
    );
    assert_eq!(header("x-slogate-model"), Some("big"));
    assert!(stamp.watch == Watch::Beginning && header("x-slogate-prompt-tokens").is_some());
    gate.pass(10 * MILLI);
    assert_eq!(gate.data(stream, b": waiting\n\n"), Watch::Beginning, "a comment is no token");
    gate.pass(40 * MILLI);
    assert_eq!(gate.data(stream, b"data: {}\n\n"), Watch::Nothing);
    gate.pass(100 * MILLI);
    let line = gate.end(stream, Ending::Complete);
    let of = |name: &str| line[name].as_str().expect("text").to_owned();
    // The gate counts the wait from the last byte of the body, 30.007 s past the minute.
    assert!(of("queue_start").ends_with("30.007Z"), "{line}");
    assert!(of("exec_start").ends_with("30.037Z"), "{line}");
    assert!(of("first_token").ends_with("30.107Z"), "{line}");
    assert!(of("finish_time").ends_with("30.207Z"), "{line}");
    assert_eq!((line["queue_ms"].as_f64(), line["exec_ms"].as_f64()), (Some(30.0), Some(170.0)));
    assert_eq!((&line["key"], &line["request_id"]), (&"shop".into(), &"id-1".into()));
    assert_eq!(gate.host.samples(StatId::QueueLatency(0, 0)), [0, 30]);
    let inference = |phase| gate.host.samples(StatId::InferenceLatency(0, 0, phase));
    assert_eq!(inference(ExecPhase::FirstToken), [70]);
    assert_eq!(inference(ExecPhase::EndToEnd), [170]);
    // 200 ms in all, 100 ms to the first token; the promise is 400 and 200.
    assert_eq!((gate.slo(Objective::Total), gate.slo(Objective::FirstToken)), ((1, 1), (1, 1)));
    gate.assert_empty();
}

#[test]
fn an_answer_that_is_no_stream_carries_its_execution_time() {
    let mut gate = Gate::new(&policy(1, ""));
    let stream = gate.admitted("shop-key", &chat("lite"));
    gate.pass(12_345_678);
    let stamp = gate.respond(stream, 200, false);
    assert_eq!(header(&stamp.headers, "server-timing"), Some("queue;dur=0.000, exec;dur=12.345"));
    assert_eq!(header(&stamp.headers, "x-slogate-exec-ms"), Some("12.345"));
    gate.end(stream, Ending::Complete);
}

#[test]
fn an_error_of_the_engine_has_no_first_token() {
    let mut gate = Gate::new(&policy(1, ""));
    let stream = gate.admitted("shop-key", &chat("big"));
    gate.respond(stream, 500, false);
    gate.data(stream, b"{\"error\":1}");
    let line = gate.end(stream, Ending::Complete);
    assert_eq!(line["first_token"], Value::Null);
    assert_eq!(
        gate.host.samples(StatId::InferenceLatency(0, 0, ExecPhase::FirstToken)),
        [0_u64; 0]
    );
    assert_eq!((gate.slo(Objective::Total), gate.slo(Objective::FirstToken)), ((0, 1), (0, 1)));
}

#[test]
fn the_promise_is_counted_for_what_the_service_did_and_not_for_what_clients_did() {
    // How the request ends, after how long, and good and total for each of the two objectives.
    let cases = [
        (200, Ending::Complete, 100, 300, (1, 1), (1, 1)),
        (200, Ending::Complete, 100, 500, (0, 1), (1, 1)),
        (200, Ending::Complete, 300, 350, (1, 1), (0, 1)),
        (404, Ending::Complete, 100, 100, (0, 0), (0, 0)),
        (503, Ending::Complete, 100, 100, (0, 1), (0, 1)),
        (200, Ending::EngineCut, 100, 100, (0, 1), (0, 1)),
        (200, Ending::ClientLeft, 100, 300, (0, 0), (1, 1)),
        (200, Ending::ClientLeft, 100, 500, (0, 1), (1, 1)),
    ];
    for (status, ending, first, total, all, token) in cases {
        let mut gate = Gate::new(&policy(1, ""));
        let stream = gate.admitted("shop-key", &chat("big"));
        gate.pass(first * MILLI);
        gate.respond(stream, status, false);
        gate.data(stream, b"{");
        gate.pass((total - first) * MILLI);
        gate.end(stream, ending);
        let found = (gate.slo(Objective::Total), gate.slo(Objective::FirstToken));
        assert_eq!(found, (all, token), "{status} {ending:?} {first} {total}");
    }
    // Refusals for want of capacity break the promise; a client that leaves early does not.
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("batch-key", &chat("big"));
    let waiters = [gate.queued("shop-key", &chat("big")), gate.queued("shop-key", &chat("big"))];
    let (full, _) = gate.refused("shop-key", &chat("big"));
    gate.end(full, Ending::Complete);
    assert_eq!((gate.slo(Objective::Total), gate.slo(Objective::FirstToken)), ((0, 1), (0, 1)));
    gate.pass(150 * MILLI);
    gate.end(waiters[0], Ending::ClientLeft);
    assert_eq!((gate.slo(Objective::Total), gate.slo(Objective::FirstToken)), ((0, 1), (0, 1)));
    gate.pass(150 * MILLI);
    gate.end(waiters[1], Ending::ClientLeft);
    assert_eq!((gate.slo(Objective::Total), gate.slo(Objective::FirstToken)), ((0, 1), (0, 2)));
    gate.end(first, Ending::Complete);
    gate.assert_empty();
}

#[test]
fn the_log_line_is_json_whatever_the_request_id_is() {
    for id in [
        &b"\"},\"outcome\":\"ok\n\x00\x1f\\"[..],
        "\u{2028}\u{feff}\u{1F600}".as_bytes(),
        b"\xff\xfe",
        b"",
    ] {
        let mut gate = Gate::new(&policy(1, ""));
        let (stream, _) = gate.begin(&Head { request_id: Some(id), ..head("shop-key") });
        let line = gate.end(stream, Ending::ClientLeft);
        assert_eq!(line["outcome"], "left_waiting");
        let expected = std::str::from_utf8(id).ok().filter(|id| !id.is_empty());
        assert_eq!(line["request_id"].as_str(), expected);
        assert_eq!(line["queue_ms"].as_f64(), Some(0.0));
        let fields = line.as_object().expect("an object");
        assert!(LOG_FIELDS.iter().all(|field| fields.contains_key(*field)));
        // One more is there before them.
        assert_eq!(fields.len(), LOG_FIELDS.len() + 1);
    }
}

#[test]
fn a_missing_flag_refuses_the_held_request_and_every_later_one_until_a_push() {
    let policy = policy(1, "");
    let mut gate = Gate::new(&policy);
    let (stream, _) = gate.begin(&head("shop-key"));
    let now = gate.moment();
    let refusal = gate.engine.flag_is_missing(stream, now, &mut gate.host.clone());
    let refusal = refusal.expect("it was held");
    assert_eq!((refusal.status, refusal.code), (500, "gate_misconfigured"));
    assert_eq!(gate.host.gauge(StatId::FlagMissing), Some(1));
    gate.end(stream, Ending::Complete);
    let (stream, begin) = gate.begin(&head("shop-key"));
    assert!(matches!(begin, Begin::Refuse(refusal) if refusal.code == "gate_misconfigured"));
    gate.end(stream, Ending::Complete);
    assert_eq!(gate.outcomes(), [(Outcome::GateError, 2)]);
    gate.engine.adopt(Rc::clone(&policy), &mut gate.host.clone());
    assert_eq!(gate.begin(&head("shop-key")).1, Begin::Hold);
    assert_eq!(gate.host.gauge(StatId::FlagMissing), Some(0));
}

#[test]
fn a_store_that_fails_refuses_newcomers_and_gives_back_what_ended_meanwhile() {
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("shop-key", &chat("big"));
    let second = gate.queued("shop-key", &chat("big"));
    gate.host.fail(true);
    let (third, refusal) = gate.refused("shop-key", &chat("big"));
    assert_eq!((refusal.status, refusal.code), (503, "gate_error"));
    gate.end(third, Ending::Complete);
    gate.end(first, Ending::EngineCut);
    assert_eq!(gate.actions(), []);
    gate.pass(300 * MILLI);
    assert_eq!(gate.tick(), []);
    gate.host.fail(false);
    gate.pass(150 * MILLI);
    assert_eq!(gate.tick(), []);
    gate.pass(100 * MILLI - 1);
    let actions = gate.tick();
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert_eq!(actions[0].stream, second);
    assert!(gate.host.counter(StatId::SharedStateErrors) > 0);
    gate.end(second, Ending::ClientLeft);
    gate.assert_empty();
}

#[test]
fn a_push_leaves_waiters_their_place_and_counts_under_the_names_of_the_new_policy() {
    let mut gate = Gate::new(&policy(1, ""));
    let first = gate.admitted("batch-key", &chat("big"));
    let waiting = gate.queued("batch-key", &chat("big"));
    let gone = gate.admitted("batch-key", &chat("lite"));
    let gone_too = gate.queued("batch-key", &chat("lite"));
    // The models change places, lite goes, and so does the tier realtime.
    let text = format!(
        r#"{{"models": [{{"name": "new", "cluster": "new", "max_in_flight": 1}},
                        {{"name": "big", "cluster": "moved", "max_in_flight": 2}}],
            "tiers": [{{"name": "economy", "queue": {{"capacity": 4, "max_wait": "2s"}}}}],
            "keys": {{"entries": [{{"id": "batch", "tier": "economy", "sha256": "{}"}}]}}}}"#,
        sha256("batch-key")
    );
    let pushed = Rc::new(Policy::from_json(text.as_bytes()).expect("legal"));
    gate.engine.adopt(Rc::clone(&pushed), &mut gate.host.clone());
    let actions = gate.tick();
    let admitted = Action { stream: waiting, verdict: Verdict::Admit(Rc::from("moved")) };
    assert_eq!(actions, [admitted], "the second permit of the new policy");
    for stream in [first, waiting] {
        gate.respond(stream, 200, false);
        gate.end(stream, Ending::Complete);
    }
    assert_eq!(gate.host.counter(StatId::Requests(1, 0, Outcome::Ok)), 2);
    gate.respond(gone, 200, false);
    gate.end(gone, Ending::Complete);
    assert_eq!(gate.actions().len(), 1, "a model that went serves who waited");
    gate.respond(gone_too, 200, false);
    gate.end(gone_too, Ending::Complete);
    let unknown = StatId::Requests(crate::stats::UNKNOWN, 0, Outcome::Ok);
    assert_eq!(gate.host.counter(unknown), 2);
    gate.pass(SECOND);
    gate.tick();
    assert_eq!(gate.engine.pools.len(), pushed.pools.len());
    gate.assert_empty();
}

#[test]
fn a_pool_that_went_is_remembered_until_the_store_knows_that_it_is_empty() {
    let mut gate = Gate::new(&policy(1, ""));
    let stream = gate.admitted("batch-key", &chat("lite"));
    let only_big = br#"{"models": [{"name": "big", "cluster": "c", "max_in_flight": 1}],
                        "tiers": [{"name": "economy"}]}"#;
    let pushed = Rc::new(Policy::from_json(only_big).expect("legal"));
    gate.engine.adopt(pushed, &mut gate.host.clone());
    gate.host.fail(true);
    gate.end(stream, Ending::ClientLeft);
    gate.pass(300 * MILLI);
    gate.tick();
    gate.host.fail(false);
    gate.pass(300 * MILLI);
    gate.tick();
    gate.assert_empty();
}

#[test]
fn rows_that_are_not_true_go_away_while_the_instance_is_idle() {
    let mut gate = Gate::new(&policy(1, ""));
    let stream = gate.admitted("shop-key", &chat("big"));
    let old = gate.host.value("slogate/pool/big");
    gate.end(stream, Ending::ClientLeft);
    gate.host.put("slogate/pool/big", Some(&old));
    gate.pass(members::BEAT);
    gate.tick();
    gate.assert_empty();
}

#[test]
fn gauges_show_all_instances() {
    let host = Host::default();
    let policy = policy(2, "");
    let mut gates = [Gate::on(host.clone(), &policy), Gate::on(host.clone(), &policy)];
    let first = gates[0].admitted("shop-key", &chat("big"));
    let second = gates[1].admitted("shop-key", &chat("big"));
    let third = gates[1].queued("shop-key", &chat("big"));
    // An instance that has seen no request sets the same.
    let mut idle = Gate::on(host.clone(), &policy);
    idle.tick();
    assert_eq!(host.gauge(StatId::InFlight(0)), Some(2));
    assert_eq!(host.gauge(StatId::InFlightLimit(0)), Some(3));
    assert_eq!(host.gauge(StatId::QueueDepth(0, 0)), Some(1));
    assert_eq!(host.gauge(StatId::QueueDepth(1, 0)), Some(0));
    assert_eq!(host.gauge(StatId::QueueCapacity(0, 0)), Some(4));
    // Who begins to wait calls in what others may have to spare.
    assert_eq!(host.mail(), [(host.slots()[0], PoolId::of("big"))]);
    let now = gates[0].moment();
    gates[0].engine.woken(&[PoolId::of("big")], now, &mut host.clone());
    gates[0].end(first, Ending::ClientLeft);
    assert_eq!(host.mail(), [(host.slots()[1], PoolId::of("big"))]);
    let now = gates[1].moment();
    let actions = gates[1].engine.woken(&[PoolId::of("big")], now, &mut host.clone());
    assert_eq!(actions.len(), 1);
    for stream in [second, third] {
        gates[1].end(stream, Ending::ClientLeft);
    }
    gates[1].tick();
    idle.pass(REFRESH);
    idle.tick();
    assert_eq!(host.gauge(StatId::InFlight(0)), Some(0));
    assert!(host.counters().keys().all(|stat| stat.spec().kind == StatKind::Counter));
    gates[0].assert_empty();
    gates[1].assert_empty();
}

#[test]
fn an_instance_that_slept_takes_nobody_for_dead() {
    let policy = policy(3, "");
    let host = Host::default();
    let mut gates = [Gate::on(host.clone(), &policy), Gate::on(host.clone(), &policy)];
    for gate in &mut gates {
        gate.admitted("shop-key", &chat("big"));
        gate.tick();
    }
    for gate in &mut gates {
        gate.now += 2 * crate::members::SILENCE;
    }
    gates[0].tick();
    assert_eq!(host.gauge(StatId::InFlight(0)), Some(2));
    gates[1].tick();
    gates[0].pass(2 * SECOND);
    assert_eq!(host.gauge(StatId::InFlight(0)), Some(2));
}

#[test]
fn gauges_of_names_that_a_push_takes_away_go_to_zero_and_no_others() {
    let mut gate = Gate::new(&policy(1, ""));
    let held = ["big", "lite"].map(|model| gate.admitted("batch-key", &chat(model)));
    gate.queued("batch-key", &chat("big"));
    gate.tick();
    let next = br#"{"models": [{"name": "big", "cluster": "c", "max_in_flight": 1}],
                    "tiers": [{"name": "economy"}]}"#;
    let next = Policy::from_json(next).expect("legal");
    gate.engine.retire(&next, &mut gate.host.clone());
    let of = |stat| gate.host.gauge(stat).expect("set");
    for (big, lite) in [
        (of(StatId::InFlight(0)), of(StatId::InFlight(1))),
        (of(StatId::InFlightLimit(0)), of(StatId::InFlightLimit(1))),
        (of(StatId::QueueCapacity(0, 1)), of(StatId::QueueCapacity(1, 1))),
        (of(StatId::QueueDepth(0, 1)), of(StatId::QueueCapacity(0, 0))),
    ] {
        assert!(big > 0 && lite == 0, "{big} {lite}");
    }
    assert_eq!(held.len(), 2);
}

#[test]
fn a_body_whose_announced_length_is_over_the_limit_is_not_awaited() {
    let mut gate = Gate::new(&policy(1, ""));
    for (length, held) in [(&b"100000"[..], true), (b"100001", false), (b"none", true)] {
        let (stream, begin) =
            gate.begin(&Head { content_length: Some(length), ..head("shop-key") });
        assert_eq!(begin == Begin::Hold, held, "{begin:?}");
        gate.end(stream, Ending::Complete);
    }
    assert_eq!(gate.outcomes(), [(Outcome::LeftWaiting, 2), (Outcome::RequestTooLarge, 1)]);
}
