//! Scripted faults, and what a real server shows in each case.

use std::net::TcpStream;

use slogate_integration::sim::{Fault, Sim, SimConfig};

use super::client::{chat, get, post, until};
use super::one_at_a_time;

const ENGINE_DIED: &str = "EngineCore encountered an issue";

fn sim() -> Sim {
    Sim::start(SimConfig::default()).unwrap()
}

#[test]
fn an_engine_that_dies_mid_stream_ends_it_with_an_error_event_and_done() {
    let sim = sim();
    sim.fault(&Fault::Error { count: 1, after_tokens: 3 });
    let answer = chat(&sim, "a", 20, r#","stream":true"#).read();
    assert_eq!(answer.status, 200);
    let events = answer.events();
    assert_eq!(events.len(), 1 + 3 + 1);
    assert_eq!(events[4]["error"]["code"], 500);
    assert!(answer.ends_with_done() && !answer.reset);
    assert_eq!(chat(&sim, "b", 5, "").read().status, 200, "only one was scripted");
    assert_eq!((sim.stats().failed, sim.stats().served), (1, 1));
}

#[test]
fn an_engine_that_dies_under_another_request_gives_500() {
    let sim = sim();
    sim.fault(&Fault::Error { count: 1, after_tokens: 3 });
    let answer = chat(&sim, "a", 20, "").read();
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()["error"]["type"], "InternalServerError");
    assert!(answer.body.contains(ENGINE_DIED));
}

#[test]
fn a_scripted_reset_resets_the_connection() {
    let sim = sim();
    sim.fault(&Fault::Reset { count: 2, after_tokens: 2 });
    let stream = chat(&sim, "a", 20, r#","stream":true"#).read();
    assert!(stream.reset && stream.status == 200 && !stream.ends_with_done(), "{stream:?}");
    let other = chat(&sim, "b", 20, "").read();
    assert!(other.reset && other.bytes == 0, "{other:?}");
}

#[test]
fn scripted_statuses_hold_for_their_count() {
    let sim = sim();
    let answer = post(&sim, "/sim/fault", r#"{"kind":"status","count":2,"status":503}"#);
    assert_eq!(answer.status, 200);
    let statuses = [0; 3].map(|_| chat(&sim, "a", 2, "").read().status);
    assert_eq!(statuses, [503, 503, 200]);
}

#[test]
fn a_hanging_engine_looks_idle_and_healthy() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    let sent = chat(&sim, "a", 200, "");
    until("it runs", || sim.stats().running == 1);
    sim.fault(&Fault::Hang { for_ms: None });
    let page = get(&sim, "/metrics").body;
    assert!(page.contains(r#"vllm:num_requests_running{engine="0",model_name="tiny"} 0.0"#));
    assert_eq!(get(&sim, "/health").status, 200);
    assert_eq!(sim.stats().in_flight, 1);
    sim.fault(&Fault::None);
    assert_eq!(sent.read().status, 200);
}

#[test]
fn a_dying_server_fails_what_is_in_flight_and_refuses_connections() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    let stream = chat(&sim, "a", 100_000, r#","stream":true"#);
    until("it runs", || sim.stats().running == 1);
    let queued = chat(&sim, "b", 5, "");
    until("it waits", || sim.stats().waiting == 1);
    sim.fault(&Fault::Die);
    let stream = stream.read();
    assert_eq!(stream.events().last().unwrap()["error"]["code"], 500);
    assert!(stream.ends_with_done());
    assert_eq!(queued.read().status, 500);
    until("connections are refused", || TcpStream::connect(sim.addr()).is_err());
    until("it is closed", || !sim.is_open());
}

#[test]
fn a_draining_server_stays_healthy_finishes_its_work_and_fails_the_rest() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    let running = chat(&sim, "a", 200, "");
    until("it runs", || sim.stats().running == 1);
    let queued = chat(&sim, "b", 5, "");
    until("it waits", || sim.stats().waiting == 1);
    sim.fault(&Fault::Drain { timeout_ms: Some(30_000) });
    assert_eq!(get(&sim, "/health").status, 200);
    let late = chat(&sim, "c", 5, r#","stream":true"#).read();
    assert_eq!(late.status, 500);
    assert!(late.body.contains("cannot schedule new futures after shutdown"));
    assert_eq!(running.read().status, 200);
    assert_eq!(queued.read().status, 200);
    until("it is closed", || !sim.is_open());
    assert!(TcpStream::connect(sim.addr()).is_err());
}

#[test]
fn a_drain_without_time_fails_what_is_in_flight() {
    let sim = Sim::start(one_at_a_time()).unwrap();
    let running = chat(&sim, "a", 100_000, "");
    until("it runs", || sim.stats().running == 1);
    sim.fault(&Fault::Drain { timeout_ms: None });
    let answer = running.read();
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains(ENGINE_DIED));
    until("it is closed", || !sim.is_open());
}

#[test]
fn faults_that_make_no_sense_are_refused_with_a_reason() {
    let sim = sim();
    for fault in ["{", "{}", r#"{"kind":"slow","factor":0}"#, r#"{"kind":"status","status":200}"#] {
        assert_eq!(post(&sim, "/sim/fault", fault).status, 400, "{fault}");
    }
}
