//! The load generator against simulators of known capacity.

#[path = "load/tools.rs"]
mod tools;

use std::time::Duration;

use slogate_integration::load::{
    Arrivals, Ended, LoadConfig, MixEntry, Mode, Protocol, Report, Section, TextUnit, TracePoint,
    run, run_until,
};
use slogate_integration::sim::{Counting, Fault, Sim, SimConfig};

/// One request at a time, 20 tokens of 2.5 ms: 20 requests a second.
fn twenty_per_second() -> SimConfig {
    SimConfig {
        max_num_seqs: 1,
        prefill_per_token: Duration::ZERO,
        per_request_metrics: true,
        ..SimConfig::default()
    }
}

fn entry(name: &str, fields: &str) -> MixEntry {
    format!("name={name},output=20,prompt=10-20,{fields}").parse().unwrap()
}

fn open(rate: f64, millis: u64) -> Mode {
    Mode::Open(Arrivals::Constant { rate, duration: Duration::from_millis(millis) })
}

fn assert_counts_add_up(section: &Section) {
    let ended = section.ok + section.refused_total() + section.failed_total();
    assert_eq!(section.sent, ended + section.unfinished, "{section:#?}");
}

#[tokio::test]
async fn above_capacity_latency_grows_with_the_schedule_and_no_request_is_left_out() {
    let sim = Sim::start(twenty_per_second()).unwrap();
    let config = LoadConfig {
        keep_records: true,
        ..LoadConfig::new(&sim.url(), open(40.0, 2_000), vec![entry("a", "")])
    };
    let report = run(config).await.unwrap();
    assert_eq!(report.all.sent, 80);
    assert_eq!(report.all.ok, 80);
    assert_counts_add_up(&report.all);
    // Twice the capacity for two seconds: the last one is answered two seconds after it was due,
    // and a client that had waited for answers would have seen 50 ms each time.
    assert!(report.all.total.max >= 1_900.0, "{:?}", report.all.total);
    assert!(report.all.total.p50 >= 900.0, "{:?}", report.all.total);
    let mut records = report.records;
    records.sort_by_key(|record| record.number);
    let mean = |part: &[slogate_integration::load::Record]| {
        part.iter().map(|record| record.total_ms).sum::<f64>() / part.len() as f64
    };
    let (first, last) = (mean(&records[..20]), mean(&records[60..]));
    assert!(last > first + 1_000.0, "{first} {last}");
    for (at, record) in records.iter().enumerate() {
        assert!((record.due_ms - at as f64 * 25.0).abs() < 1.0, "{record:?}");
        let wait = record.wait_ms().unwrap();
        assert!(wait <= record.total_ms, "{record:?}");
    }
    // A clock that rounded to milliseconds would show in the median.
    assert!(report.all.send_lag.p50 < 5.0, "{:?}", report.all.send_lag);
    assert_eq!(report.all.wait_unknown, 0);
    assert!((0.4..0.9).contains(&report.all.waited_over_share), "{:?}", report.all);
    assert_eq!(sim.stats().served, 80);
}

#[tokio::test]
async fn each_kind_of_request_is_counted_by_itself_and_refusals_by_reason() {
    let sim = Sim::start(SimConfig {
        max_num_queued_reqs: Some(2),
        counting: Counting::QuarterByte,
        ..twenty_per_second()
    })
    .unwrap();
    let mix = vec![
        entry("whole", "share=1,language=chinese"),
        entry("stream", "share=1,stream=true,language=code"),
        entry("unknown", "share=1,model=nope"),
    ];
    let config = LoadConfig::new(&sim.url(), open(60.0, 1_500), mix);
    let report = run(config).await.unwrap();
    assert_eq!(report.all.sent, 90);
    assert_counts_add_up(&report.all);
    let sums = |count: fn(&Section) -> u64| report.entries.iter().map(count).sum::<u64>();
    assert_eq!(sums(|section| section.sent), 90);
    assert_eq!(sums(|section| section.ok), report.all.ok);
    for name in ["whole", "stream"] {
        let section = report.entry(name).unwrap();
        assert_counts_add_up(section);
        assert!(section.ok > 0 && section.refused["engine_503"] > 0, "{section:#?}");
        assert_eq!(section.output_tokens, section.ok * 20);
    }
    assert!(report.entry("stream").unwrap().first_token.count > 0);
    assert_eq!(report.entry("whole").unwrap().first_token.count, 0);
    let unknown = report.entry("unknown").unwrap();
    assert_eq!(unknown.failed["engine_404"], unknown.sent);
    assert_eq!(sim.stats().rejected, report.all.refused_total());
}

#[tokio::test]
async fn a_closed_loop_keeps_its_clients_busy_and_never_more() {
    let sim = Sim::start(SimConfig { max_num_seqs: 8, ..twenty_per_second() }).unwrap();
    let mode = Mode::Closed { clients: 4, requests: 40, duration: None };
    let config = LoadConfig {
        keep_records: true,
        ..LoadConfig::new(&sim.url(), mode, vec![entry("a", "")])
    };
    let report = run(config).await.unwrap();
    assert_eq!((report.all.sent, report.all.ok), (40, 40));
    assert_eq!(sim.stats().peak_in_flight, 4);
    for client in 0..4 {
        let own = report.records.iter().filter(|record| record.client == Some(client)).count();
        assert!((8..=12).contains(&own), "{own}");
    }
    assert!(report.connections <= 8, "idle connections are used again: {}", report.connections);
}

#[tokio::test]
async fn clients_of_an_entry_send_that_entry_alone() {
    let sim = Sim::start(SimConfig { max_num_seqs: 8, ..twenty_per_second() }).unwrap();
    let mode = Mode::Closed { clients: 1, requests: 30, duration: None };
    let mix = vec![entry("one", "clients=1"), entry("three", "clients=3")];
    let config = LoadConfig { keep_records: true, ..LoadConfig::new(&sim.url(), mode, mix) };
    let report = run(config).await.unwrap();
    assert!(
        report.records.iter().all(|record| (record.entry == "one") == (record.client == Some(0)))
    );
    assert_eq!(sim.stats().peak_in_flight, 4);
}

#[tokio::test]
async fn a_trace_gives_times_and_lengths() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    let point =
        |millis, prompt, output| TracePoint { at: Duration::from_millis(millis), prompt, output };
    let points = vec![point(0, 100, 5), point(100, 200, 7), point(200, 50, 3)];
    let config = LoadConfig {
        unit: TextUnit::Byte,
        ..LoadConfig::new(&sim.url(), Mode::Open(Arrivals::Trace(points)), vec![entry("a", "")])
    };
    let report = run(config).await.unwrap();
    assert_eq!((report.all.ok, report.all.output_tokens), (3, 15));
    // The template adds "user: ", a line end and "assistant: ".
    let prompts: Vec<_> = sim.log().iter().map(|entry| entry.prompt_tokens - 18).collect();
    assert_eq!(prompts, [100, 200, 50]);
}

#[tokio::test]
async fn broken_answers_and_late_ones_are_failures_by_name() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    sim.fault(&Fault::Reset { count: 1, after_tokens: 2 });
    sim.fault(&Fault::Error { count: 1, after_tokens: 2 });
    sim.fault(&Fault::Status { count: 1, status: 429 });
    let mode = |requests| Mode::Closed { clients: 1, requests, duration: None };
    let mix = || vec![entry("a", "stream=true")];
    let report = run(LoadConfig::new(&sim.url(), mode(4), mix())).await.unwrap();
    assert_eq!(report.all.failed["cut_off"], 1);
    assert_eq!(report.all.failed["stream_error"], 1);
    assert_eq!(report.all.refused["engine_429"], 1);
    assert_eq!(report.all.ok, 1);
    sim.fault(&Fault::Hang { for_ms: None });
    let config = LoadConfig {
        timeout: Duration::from_millis(200),
        ..LoadConfig::new(&sim.url(), mode(1), mix())
    };
    assert_eq!(run(config).await.unwrap().all.failed["timeout"], 1);
}

#[tokio::test]
async fn a_run_that_is_stopped_reports_what_is_in_flight_as_unfinished() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    sim.fault(&Fault::Hang { for_ms: None });
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let config = LoadConfig::new(&sim.url(), open(100.0, 60_000), vec![entry("a", "")]);
    let running = tokio::spawn(run_until(config, stopped));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while sim.stats().in_flight < 10 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).unwrap();
    let report = running.await.unwrap().unwrap();
    assert!(report.interrupted && report.all.unfinished >= 10, "{report:#?}");
    assert_counts_add_up(&report.all);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_an_error_that_names_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = LoadConfig::new(&url, open(1.0, 100), vec![entry("a", "")]);
    let err = run(config).await.unwrap_err();
    assert!(format!("{err:#}").contains(&url), "{err:#}");
}

/// A gateway in miniature: speaks HTTP/2, tells its times in headers and trailers, refuses.
mod gateway {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_body_util::StreamBody;
    use hyper::body::{Body, Frame, Incoming};
    use hyper::header::HeaderValue;
    use hyper::{Request, Response};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    pub(super) async fn start() -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                let service = hyper::service::service_fn(|request| {
                    std::future::ready(Ok::<_, Infallible>(answer(&request)))
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(socket), service));
            }
        });
        address
    }

    fn answer(
        request: &Request<Incoming>,
    ) -> Response<impl Body<Data = Bytes, Error = Infallible> + use<>> {
        let tier = request.headers().get("x-slogate-tier").map(HeaderValue::as_bytes);
        let key = request.headers().get("authorization").map(HeaderValue::as_bytes);
        assert_eq!(key, Some(b"Bearer sk-a".as_slice()));
        let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
        let refused = tier == Some(b"economy".as_slice());
        let silent = tier == Some(b"silent".as_slice());
        let frames = if silent {
            vec![data("data: {\"metrics\":{\"queue_time_ms\":2.5}}\n\ndata: [DONE]\n\n")]
        } else if refused {
            vec![data(r#"{"error":{"code":"queue_full"}}"#)]
        } else {
            let trailers = [("x-slogate-queue-ms", "12.5"), ("x-slogate-exec-ms", "100")]
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            vec![
                data(": keep-alive\n\n"),
                data("data: {}\n\ndata: {\"metrics\":{\"queue_time_ms\":2.5}}\n\nda"),
                data("ta: [DONE]\n\n"),
                Ok(Frame::trailers(trailers.into_iter().collect())),
            ]
        };
        let frames = StreamBody::new(futures_util::stream::iter(frames));
        let response = if refused {
            Response::builder()
                .status(503)
                .header("content-type", "application/json")
                .header("x-slogate-reason", "queue_full")
                .header("server-timing", "queue;dur=800, exec;dur=0")
        } else {
            Response::builder().header("content-type", "text/event-stream")
        };
        let response = response.header("x-slogate-tier", "standard");
        response.body(frames).unwrap()
    }
}

#[tokio::test]
async fn the_gateways_times_and_reasons_are_read_from_headers_and_trailers() {
    let address = gateway::start().await;
    let mix = vec![
        entry("ok", "key=sk-a,stream=true,clients=1"),
        entry("refused", "key=sk-a,tier=economy,clients=1"),
        entry("silent", "key=sk-a,tier=silent,stream=true,clients=1"),
    ];
    let mode = Mode::Closed { clients: 2, requests: 30, duration: None };
    let config = LoadConfig {
        protocol: Protocol::H2 { streams: 8 },
        ..LoadConfig::new(&format!("http://{address}"), mode, mix)
    };
    let report: Report = run(config).await.unwrap();
    let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 0.1, "{found} {wanted}");
    let ok = report.entry("ok").unwrap();
    assert!(ok.ok == ok.sent && ok.sent > 0, "{ok:#?}");
    close(ok.gateway_wait.p50, 12.5);
    close(ok.engine_wait.p50, 2.5);
    close(ok.wait.p50, 15.0);
    close(ok.exec.p50, 100.0);
    let refused = report.entry("refused").unwrap();
    assert_eq!(refused.refused["queue_full"], refused.sent);
    assert_eq!(refused.waited_over, refused.sent, "refused after 800 ms is a wait over 700 ms");
    let silent = report.entry("silent").unwrap();
    assert_eq!(silent.wait_unknown, silent.sent, "half a wait is not a wait");
    // All may open one before any is open.
    assert!(report.connections <= 3, "{}", report.connections);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    assert!(!json.contains("sk-a"), "keys stay out of reports");
    assert!(report.records.iter().all(|record| record.ended != Ended::Ok));
}
