//! The simulator's behaviour on the wire, against what was measured on a real vLLM 0.32.0.

#[path = "simulator/client.rs"]
mod client;
#[path = "simulator/faults.rs"]
mod faults;
#[path = "simulator/shapes.rs"]
mod shapes;

use std::time::Duration;

use client::{chat, get, post, send, send_raw, until};
use slogate_integration::sim::{Fault, Scheduling, Sim, SimConfig};

/// One sequence at a time, so that everything else queues.
fn one_at_a_time() -> SimConfig {
    SimConfig { max_num_seqs: 1, ..SimConfig::default() }
}

/// Sends chats one after the other, each when the one before has been taken.
fn chats_in_order(sim: &Sim, ids: &[&str], tokens: usize, more: &str) -> Vec<client::Sent> {
    let send_one = |id: &&str| {
        let before = sim.stats().received;
        let sent = chat(sim, id, tokens, more);
        until("the request is taken", || sim.stats().received > before);
        sent
    };
    ids.iter().map(send_one).collect()
}

#[test]
fn headers_of_a_stream_leave_before_it_queues_and_data_come_with_the_first_token() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let sent = chats_in_order(&sim, &["a", "b", "c"], 40, r#","stream":true"#);
    // With the engine stopped, every head arrives and no data do.
    for one in &sent {
        let mut head = [0; 4096];
        let n = one.socket.peek(&mut head).unwrap();
        let head = String::from_utf8_lossy(&head[..n]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n") && !head.contains("data:"), "{head}");
        assert!(head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
    }
    let readers: Vec<_> = sent.into_iter().map(client::Sent::read_in_background).collect();
    sim.fault(&Fault::None);
    for reader in readers {
        let answer = reader.join().unwrap();
        let first = &answer.events()[0]["choices"][0]["delta"];
        assert_eq!(first["role"], "assistant");
        assert_eq!(first["content"], "");
        assert!(answer.ends_with_done());
    }
    let log = sim.log();
    for pair in log.windows(2) {
        assert!(pair[1].started_ms >= pair[0].ended_ms, "{pair:?}");
    }
}

#[test]
fn headers_of_other_answers_come_with_the_end_and_in_order() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let sent = chats_in_order(&sim, &["a", "b", "c"], 40, "");
    for one in &sent {
        one.socket.set_nonblocking(true).unwrap();
        assert!(one.socket.peek(&mut [0]).is_err(), "something came before the end");
        one.socket.set_nonblocking(false).unwrap();
    }
    let readers: Vec<_> = sent.into_iter().map(client::Sent::read_in_background).collect();
    sim.fault(&Fault::None);
    for reader in readers {
        let answer = reader.join().unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("server"), Some("uvicorn"));
        assert_eq!(answer.header("vary"), Some("Origin"));
        assert_eq!(answer.json()["usage"]["completion_tokens"], 40);
    }
    assert_eq!(sim.start_order(), ["a", "b", "c"]);
    assert_eq!(sim.stats().peak_running, 1);
    assert_eq!(sim.stats().peak_in_flight, 3);
}

#[test]
fn lower_priorities_are_served_sooner_and_ties_by_arrival() {
    let sim =
        Sim::start(SimConfig { scheduling: Scheduling::Priority, ..one_at_a_time() }).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let mut sent = chats_in_order(&sim, &["first"], 5, "");
    // The first one runs before the others come, and is not pre-empted.
    sim.fault(&Fault::Slow { factor: 400.0, for_ms: None });
    sim.fault(&Fault::Hang { for_ms: Some(0) });
    until("the first one runs", || sim.stats().running == 1);
    for (id, priority) in [("A", 10), ("B", 10), ("C", 0), ("D", -5)] {
        sent.extend(chats_in_order(&sim, &[id], 5, &format!(r#","priority":{priority}"#)));
    }
    sim.fault(&Fault::None);
    for one in sent {
        assert_eq!(one.read().status, 200);
    }
    assert_eq!(sim.start_order(), ["first", "D", "C", "A", "B"]);
}

#[test]
fn under_fcfs_a_priority_is_accepted_and_ignored() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let mut sent = chats_in_order(&sim, &["a"], 5, r#","priority":5"#);
    sent.extend(chats_in_order(&sim, &["b"], 5, r#","priority":-5"#));
    sim.fault(&Fault::None);
    for one in sent {
        assert_eq!(one.read().status, 200);
    }
    assert_eq!(sim.start_order(), ["a", "b"]);
}

#[test]
fn a_client_that_leaves_frees_its_place_whether_it_ran_or_waited() {
    for more in ["", r#","stream":true"#] {
        let sim = Sim::start(one_at_a_time()).unwrap();
        let running = chat(&sim, "running", 100_000, more);
        until("it runs", || sim.stats().running == 1);
        let waiting = chat(&sim, "waiting", 100_000, more);
        until("it waits", || sim.stats().waiting == 1);
        drop(waiting);
        until("the waiting one is gone", || sim.stats().waiting == 0);
        assert_eq!(sim.stats().running, 1);
        drop(running);
        until("the running one is gone", || sim.stats().in_flight == 0);
        assert_eq!((sim.stats().aborted, sim.stats().served), (2, 0));
        let page = get(&sim, "/metrics").body;
        let aborts = page.lines().find(|line| line.contains(r#"finished_reason="abort""#));
        assert!(aborts.is_some_and(|line| line.ends_with(" 0.0")), "{aborts:?}");
    }
}

#[test]
fn a_half_closed_connection_gets_no_answer() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    let answer = chat(&sim, "half", 20, "").half_close().read();
    assert_eq!(answer.bytes, 0);
    until("it is aborted", || sim.stats().in_flight == 0);
}

#[test]
fn queue_caps_refuse_with_503_before_a_stream_begins() {
    let config = SimConfig { max_num_queued_reqs: Some(3), ..one_at_a_time() };
    let sim = Sim::start(config).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let too_many = chat(&sim, "n", 5, r#","n":4"#).read();
    assert_eq!(too_many.status, 503, "n counts each choice");
    let sent = chats_in_order(&sim, &["a", "b", "c"], 5, "");
    let refused = chat(&sim, "d", 5, r#","stream":true"#).read();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("retry-after"), None);
    let error = &refused.json()["error"];
    assert_eq!(error["type"], "Service Unavailable");
    assert!(error["param"].is_null());
    assert_eq!(error["code"], 503);
    sim.fault(&Fault::None);
    for one in sent {
        assert_eq!(one.read().status, 200);
    }
    assert_eq!(sim.stats().rejected, 2);
    let page = get(&sim, "/metrics").body;
    let line =
        r#"vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 2.0"#;
    assert!(page.contains(line), "{page}");
}

#[test]
fn the_token_cap_counts_prompt_tokens_that_are_not_yet_read() {
    let config = SimConfig { max_num_queued_tokens: Some(60), ..one_at_a_time() };
    let sim = Sim::start(config).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    // "user: hello\nassistant: " is 23 tokens.
    let sent = chats_in_order(&sim, &["a", "b"], 5, "");
    assert_eq!(chat(&sim, "c", 5, "").read().status, 503);
    sim.fault(&Fault::None);
    for one in sent {
        assert_eq!(one.read().json()["usage"]["prompt_tokens"], 23);
    }
    assert_eq!(chat(&sim, "d", 5, "").read().status, 200);
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_not_before() {
    let config = SimConfig { keep_alive: Duration::from_millis(300), ..SimConfig::default() };
    let sim = Sim::start(config).unwrap();
    let answer = send_raw(&sim, b"GET /health HTTP/1.1\r\nhost: sim\r\n\r\n").read();
    assert_eq!(answer.status, 200);
    assert!(answer.end_at >= Duration::from_millis(300), "{:?}", answer.end_at);
}

#[test]
fn a_http2_preface_is_refused_with_400() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    let answer = send_raw(&sim, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").read();
    assert_eq!(answer.status, 400);
}

#[test]
fn a_long_prompt_takes_longer_and_slows_the_others_in_its_batch() {
    let config =
        SimConfig { prefill_per_token: Duration::from_micros(100), ..SimConfig::default() };
    let sim = Sim::start(config).unwrap();
    let running = chat(&sim, "short", 60, "").read_in_background();
    until("it runs", || sim.stats().running == 1);
    let prompt = "x".repeat(5_000);
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":1}}"#);
    let long = send(&sim, "/v1/completions", &["x-request-id: long"], body.as_bytes()).read();
    assert!(long.end_at >= Duration::from_millis(500), "{:?}", long.end_at);
    let short = running.join().unwrap();
    assert!(short.end_at >= Duration::from_millis(500), "{:?}", short.end_at);
}

#[test]
fn every_series_that_readers_use_is_on_the_metrics_page() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    assert_eq!(post(&sim, "/v1/completions", r#"{"prompt":"hello","max_tokens":4}"#).status, 200);
    let answer = get(&sim, "/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=1.0.0; charset=utf-8"));
    let labels = r#"engine="0",model_name="tiny""#;
    for gauge in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"] {
        assert!(answer.body.contains(&format!("vllm:{gauge}{{{labels}}} 0.0")), "{gauge}");
    }
    for reason in ["capacity", "deferred"] {
        let line =
            format!("vllm:num_requests_waiting_by_reason{{{labels},reason=\"{reason}\"}} 0.0");
        assert!(answer.body.contains(&line), "{line}");
    }
    for reason in ["stop", "length", "abort", "error", "repetition"] {
        let line = format!("vllm:request_success_total{{{labels},finished_reason=\"{reason}\"}}");
        assert!(answer.body.contains(&line), "{line}");
    }
    let totals = [
        ("prompt_tokens", "5.0"),
        ("generation_tokens", "4.0"),
        ("prefix_cache_queries", "5.0"),
        ("prefix_cache_hits", "0.0"),
        ("num_preemptions", "0.0"),
    ];
    for (counter, value) in totals {
        let line = format!("vllm:{counter}_total{{{labels}}} {value}");
        assert!(answer.body.contains(&line), "{line}");
    }
    let histograms = [
        ("request_queue_time_seconds", "0.3", "7680.0"),
        ("e2e_request_latency_seconds", "0.3", "7680.0"),
        ("time_to_first_token_seconds", "0.001", "2560.0"),
        ("inter_token_latency_seconds", "0.01", "80.0"),
        ("request_time_per_output_token_seconds", "0.01", "80.0"),
        ("request_prefill_time_seconds", "0.3", "7680.0"),
        ("request_decode_time_seconds", "0.3", "7680.0"),
        ("request_inference_time_seconds", "0.3", "7680.0"),
        ("request_prompt_tokens", "1.0", "100000.0"),
        ("request_generation_tokens", "1.0", "100000.0"),
    ];
    for (name, least, most) in histograms {
        for bound in [least, most, "+Inf"] {
            let line = format!("vllm:{name}_bucket{{{labels},le=\"{bound}\"}}");
            assert!(answer.body.contains(&line), "{line}");
        }
        assert!(answer.body.contains(&format!("vllm:{name}_created{{{labels}}}")), "{name}");
        assert!(answer.body.contains(&format!("# TYPE vllm:{name} histogram")), "{name}");
    }
    assert!(answer.body.contains("vllm:cache_config_info{"));
}

#[test]
fn a_fixed_time_is_kept_whatever_the_lengths_and_the_company() {
    let time = Duration::from_millis(100);
    let config = SimConfig { max_num_seqs: 2, fixed_service: Some(time), ..SimConfig::default() };
    let sim = Sim::start(config).unwrap();
    let more = ["", r#","stream":true"#];
    let sent: Vec<_> = (0..4).map(|n| chat(&sim, "a", 1 + n * 40, more[n % 2])).collect();
    let readers: Vec<_> = sent.into_iter().map(client::Sent::read_in_background).collect();
    for reader in readers {
        assert_eq!(reader.join().unwrap().status, 200);
    }
    assert_eq!(sim.stats().peak_running, 2);
    for entry in sim.log() {
        let took = entry.ended_ms.unwrap() - entry.started_ms.unwrap();
        assert!((100.0..200.0).contains(&took), "{entry:?}");
    }
}
