//! Quotas of keys, through the whole engine.

use super::*;
use crate::ids::FlowId;
use crate::stats::QuotaLimit;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// One model with these permits and a queue of one; the key `shop-key` with this quota.
fn limited(permits: u32, quota: &str) -> Rc<Policy> {
    let text = format!(
        r#"{{"models": [{{"name": "big", "cluster": "c", "max_in_flight": {permits}}}],
          "tiers": [{{"name": "t", "queue": {{"capacity": 1, "max_wait": "2s"}}}}],
          "keys": {{"unknown": {{"tier": "t", "requests_per_second": 1, "models": []}}, "entries": [
            {{"id": "shop", "tier": "t", "sha256": "{}", {quota}}}]}}}}"#,
        sha256("shop-key")
    );
    Rc::new(Policy::from_json(text.as_bytes()).expect("legal"))
}

#[test]
fn a_burst_gets_in_and_the_rest_is_told_when_to_come_back() {
    let mut gate = Gate::new(&limited(1_000, r#""requests_per_second": 10, "burst": 10"#));
    let verdicts: Vec<_> = (0..100).map(|_| gate.ask("shop-key", &chat("big")).1).collect();
    let admitted = verdicts.iter().filter(|v| matches!(v, Verdict::Admit(_))).count();
    assert_eq!(admitted, 10);
    let (_, refusal) = gate.refused("shop-key", &chat("big"));
    assert_eq!((refusal.status, refusal.code), (429, "rate_limit_exceeded"));
    assert_eq!(refusal.retry_after_ms, Some(100));
    assert_eq!(header(&refusal.headers, "x-ratelimit-remaining-requests"), Some("0"));
    let stat = StatId::QuotaRefusals(0, QuotaLimit::Requests);
    assert_eq!(gate.host.counter(stat), 91);
    gate.pass(99 * MILLI);
    gate.refused("shop-key", &chat("big"));
    gate.pass(MILLI);
    gate.admitted("shop-key", &chat("big"));
}

#[test]
fn who_is_refused_by_a_later_step_has_used_up_nothing() {
    let quota = r#""requests_per_second": 1, "burst": 3, "tokens_per_minute": 60000"#;
    let mut gate = Gate::new(&limited(1, quota));
    let runs = gate.admitted("shop-key", &chat("big"));
    let waits = gate.queued("shop-key", &chat("big"));
    // Each would take the last request of the burst.
    for _ in 0..5 {
        let (stream, refusal) = gate.refused("shop-key", &chat("big"));
        assert_eq!(refusal.code, "queue_full");
        gate.end(stream, Ending::Complete);
    }
    gate.end(waits, Ending::ClientLeft);
    gate.queued("shop-key", &chat("big"));
    // It is let through, and the third of the burst waits.
    gate.end(runs, Ending::Complete);
    assert_eq!(gate.actions().len(), 1);
    gate.queued("shop-key", &chat("big"));
    let (_, refusal) = gate.refused("shop-key", &chat("big"));
    assert_eq!(refusal.code, "rate_limit_exceeded");
}

#[test]
fn what_runs_and_waits_counts_as_at_once_and_comes_back_after_any_ending() {
    let mut gate = Gate::new(&limited(1, r#""max_in_flight": 2, "requests_per_second": 1000"#));
    for ending in [Ending::Complete, Ending::EngineCut, Ending::ClientLeft] {
        let first = gate.admitted("shop-key", &chat("big"));
        let second = gate.queued("shop-key", &chat("big"));
        let (third, refusal) = gate.refused("shop-key", &chat("big"));
        assert_eq!((refusal.status, refusal.code), (429, "concurrency_limit_exceeded"));
        assert_eq!(refusal.retry_after_ms, None);
        gate.end(third, Ending::Complete);
        gate.end(first, ending);
        gate.end(second, ending);
    }
    let waits = gate.admitted("shop-key", &chat("big"));
    gate.queued("shop-key", &chat("big"));
    gate.pass(2 * SECOND);
    // The deadline: the one that waits has its answer and holds nothing.
    let actions = gate.tick();
    assert_eq!(actions.len(), 1);
    gate.queued("shop-key", &chat("big"));
    gate.end(waits, Ending::Complete);
}

#[test]
fn tokens_are_reserved_and_settled_with_what_was_delivered() {
    let quota = r#""tokens_per_minute": 1000"#;
    let mut gate = Gate::new(&limited(10, quota));
    let left = |gate: &mut Gate| {
        let (stream, _) = gate.ask("shop-key", &chat("big"));
        let now = gate.moment();
        let stamp = gate.engine.respond(stream, 400, false, now).expect("known");
        let found = stamp.headers.iter().find(|(n, _)| *n == "x-ratelimit-remaining-tokens");
        let left: u64 = found.expect("there").1.parse().expect("a number");
        gate.end(stream, Ending::Complete);
        left
    };
    let whole = left(&mut gate);
    // The engine refused it: nothing was used up.
    assert_eq!(left(&mut gate), whole);
    let stream = gate.admitted("shop-key", &chat("big"));
    let prompt = 1_000 - 10 - whole;
    gate.end(stream, Ending::ClientLeft);
    assert_eq!(left(&mut gate), whole - prompt);
}

#[test]
fn a_request_that_can_never_fit_is_told_not_to_come_back() {
    let mut gate = Gate::new(&limited(10, r#""tokens_per_minute": 12"#));
    let (_, refusal) = gate.refused("shop-key", &long_chat("big"));
    assert_eq!((refusal.code, refusal.retry_after_ms), ("token_limit_exceeded", None));
    assert_eq!(header(&refusal.headers, "x-should-retry"), Some("false"));
}

#[test]
fn a_key_asks_only_for_models_it_may_have() {
    let mut gate = Gate::new(&limited(10, r#""models": ["big"]"#));
    gate.admitted("shop-key", &chat("big"));
    let (_, refusal) = gate.refused("other-key", &chat("big"));
    assert_eq!((refusal.status, refusal.code), (403, "model_forbidden"));
}

#[test]
fn a_push_that_changes_a_quota_holds_for_what_runs_already() {
    let mut gate = Gate::new(&limited(10, r#""tokens_per_minute": 1000"#));
    let stream = gate.admitted("shop-key", &chat("big"));
    let next = limited(10, r#""tokens_per_minute": 100, "max_in_flight": 2"#);
    gate.engine.adopt(next, &mut gate.host.clone());
    gate.admitted("shop-key", &chat("big"));
    let (_, refusal) = gate.refused("shop-key", &chat("big"));
    assert_eq!(refusal.code, "concurrency_limit_exceeded");
    gate.end(stream, Ending::Complete);
    gate.admitted("shop-key", &chat("big"));
}

#[test]
fn a_stream_is_charged_what_the_engine_says_or_else_what_came() {
    let body = |more: &str| {
        format!(
            r#"{{"model":"big","stream":true,"max_tokens":100{more},
                 "messages":[{{"role":"user","content":"Hi"}}]}}"#
        )
        .into_bytes()
    };
    let usage = r#","stream_options":{"include_usage":true}"#;
    let left = |gate: &Gate| {
        let key = "slogate/quota/";
        let account = gate.host.keys().into_iter().find(|found| {
            found.starts_with(key) && found.ends_with(&format!("{:08x}", FlowId::of("shop").0))
        });
        gate.host.value(&account.expect("an account"))
    };
    // The same bucket in the end: ten tokens of output, told, seen, or seen before the cut.
    let mut found = Vec::new();
    for (more, told, ending) in [
        (usage, true, Ending::Complete),
        ("", false, Ending::Complete),
        (usage, false, Ending::ClientLeft),
        ("", false, Ending::EngineCut),
    ] {
        let mut gate = Gate::new(&limited(10, r#""tokens_per_minute": 1000"#));
        let stream = gate.admitted("shop-key", &body(more));
        gate.respond(stream, 200, true);
        assert_eq!(gate.data(stream, b"data: {\"role\":1}\n\n"), Watch::Beginning);
        for _ in 0..10 {
            assert_eq!(gate.data(stream, b"data: {\"content\":1}\n\n"), Watch::Beginning);
        }
        if told {
            let prompt = gate.engine.requests[&stream].job.as_ref().expect("read").prompt_tokens();
            let usage = format!(
                "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\
                 \"completion_tokens\":10}}}}\n\ndata: [DONE]\n\n"
            );
            gate.data(stream, usage.as_bytes());
        }
        gate.end(stream, ending);
        found.push(left(&gate));
    }
    assert!(found.iter().all(|account| *account == found[0]), "{found:?}");
}

#[test]
fn an_answer_whose_usage_is_out_of_sight_is_charged_by_its_length() {
    let left = |answer: &str, cap: &str| {
        let mut gate = Gate::new(&limited(10, r#""tokens_per_minute": 100000"#));
        let body =
            format!(r#"{{"model":"big"{cap},"messages":[{{"role":"user","content":"Hi"}}]}}"#);
        let stream = gate.admitted("shop-key", body.as_bytes());
        gate.respond(stream, 200, false);
        gate.engine.tail(stream, answer.as_bytes(), answer.len());
        gate.end(stream, Ending::Complete);
        let (stream, _) = gate.ask("shop-key", &chat("big"));
        let stamp = gate.respond(stream, 400, false);
        let found = header(&stamp.headers, "x-ratelimit-remaining-tokens").expect("limited");
        found.parse::<u64>().expect("a number")
    };
    let long = format!(r#"{{"choices":[{{"text":"{}"}}]}}"#, "word".repeat(1_000));
    let none = left("", "");
    assert_eq!(none - left(&long, ""), long.len() as u64 / 4);
    assert_eq!(none - left(&long, r#","max_tokens":7"#), 7);
    let told = r#"{"usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
    assert!(left(told, "") > none - 20);
}
