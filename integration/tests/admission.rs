//! How requests come in: every framing, size and pace, and what of a client's headers is believed.

mod common;

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use common::{MODEL, PATIENCE, Raw, WORKERS};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use slogate_integration::harness::{Answer, Chat, Client, Gate, Piece, Script, Upstream};

async fn http2(gate: &Gate, chat: Chat) -> Result<Answer> {
    Client::http2(gate.addr()).await?.send(chat).await
}

/// This chat in pieces of so many bytes, so that its length is not known at its start.
fn cut(chat: &Chat, size: usize) -> Chat {
    let body = chat.bytes();
    let piece = |at: usize| body.slice(at..body.len().min(at + size));
    let pieces = (0..body.len()).step_by(size).map(|at| Piece::Data(piece(at)));
    chat.clone().pieces(pieces.collect())
}

#[tokio::test]
async fn a_body_of_one_megabyte_waits_and_is_served_in_every_framing() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(60))).await?;
        let policy = common::policy(1, &json!({"capacity": 10, "max_wait": "30s"}));
        let gate = common::gate(&upstream, workers, policy).start().await?;
        let first = common::crowd(gate.addr(), [Chat::new(MODEL)]);
        common::running(&upstream, 1).await?;
        let big = Chat::new(MODEL).content(&"a quiet town ".repeat(82_000));
        assert!((1_000_000..1_100_000).contains(&big.bytes().len()));
        let mut tasks = tokio::task::JoinSet::new();
        for (second, pieces) in [(false, false), (false, true), (true, false), (true, true)] {
            let chat = if pieces { cut(&big, 50_000) } else { big.clone() };
            let addr = gate.addr();
            tasks.spawn(async move {
                if second {
                    Client::http2(addr).await?.send(chat).await
                } else {
                    common::ask(addr, chat).await
                }
            });
        }
        let answers = common::answers(tasks).await?;
        for answer in &answers {
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
        let waited = |answer: &&Answer| answer.number("x-slogate-queue-ms") > Some(1.0);
        assert!(answers.iter().filter(waited).count() >= 3);
        let seen = upstream.seen();
        assert_eq!(seen.len(), 5);
        assert_eq!(seen.iter().filter(|seen| seen.body == big.bytes()).count(), 4);
        assert_eq!(upstream.peak(), 1);
        common::answers(first).await?;
        common::settled(&gate, 5).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_at_once_or_while_it_comes() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let mut policy = common::policy(1, &common::patient());
    policy["max_body_bytes"] = json!(200_000);
    let gate = common::gate(&upstream, 1, policy).start().await?;

    // By its announced length, before a byte of it was sent.
    let mut raw = Raw::connect(gate.addr()).await?;
    raw.write(common::head("content-length: 200001\r\n")).await?;
    let (status, body) = raw.answer().await?;
    assert_eq!(status, 413);
    assert!(body.contains("\"request_too_large\""), "{body}");

    // While it comes: the answer is there before the rest.
    let data = || Piece::Data(Bytes::from(vec![b' '; 50_000]));
    let endless = |many: usize| {
        let pieces = (0..many).flat_map(|_| [data(), Piece::Pause(Duration::from_millis(2))]);
        Chat::new(MODEL).pieces(pieces.chain([Piece::Pause(PATIENCE)]).collect())
    };
    let answer = common::ask(gate.addr(), endless(5)).await?;
    common::refused(&answer, 413, "request_too_large");
    let answer = http2(&gate, endless(5)).await?;
    common::refused(&answer, 413, "request_too_large");

    // Exactly at the limit it is taken.
    let mut text = Chat::new(MODEL).bytes().to_vec();
    text.resize(200_000, b' ');
    let fits = Chat::new(MODEL).body(text.clone());
    for answer in [
        common::ask(gate.addr(), fits.clone()).await?,
        common::ask(gate.addr(), cut(&fits, 30_000)).await?,
        http2(&gate, cut(&fits, 30_000)).await?,
    ] {
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    text.push(b' ');
    let exceeding = Chat::new(MODEL).body(text);
    for answer in [
        common::ask(gate.addr(), exceeding.clone()).await?,
        http2(&gate, exceeding.clone()).await?,
        http2(&gate, cut(&exceeding, 30_000)).await?,
    ] {
        common::refused(&answer, 413, "request_too_large");
    }
    let counts = common::settled(&gate, 9).await?;
    assert_eq!(common::outcome(&counts, "request_too_large"), 6);
    assert_eq!(common::outcome(&counts, "ok"), 3);
    Ok(())
}

#[tokio::test]
async fn trailers_end_a_body_too_also_while_the_pool_is_full() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(30))).await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()));
        let gate = gate.start().await?;
        let whole = Chat::new(MODEL).words(100);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("1"));
        trailers.insert("x-slogate-cluster", HeaderValue::from_static("vllm_deepseek_coder"));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let body = whole.bytes();
            let chat = whole.clone().pieces(vec![
                Piece::Data(body.slice(..100)),
                Piece::Data(body.slice(100..)),
                Piece::Trailers(trailers.clone()),
            ]);
            let addr = gate.addr();
            tasks.spawn(async move { Client::http2(addr).await?.send(chat).await });
        }
        for answer in common::answers(tasks).await? {
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
        assert!(upstream.seen().iter().all(|seen| seen.body == whole.bytes()));
        assert_eq!((upstream.peak(), upstream.answered()), (1, 8));

        // A body that is refused, and one that was sent with HTTP/1.1.
        let chat = Chat::new(MODEL)
            .pieces(vec![Piece::Data(Bytes::from_static(b"{")), Piece::Trailers(trailers)]);
        common::refused(&http2(&gate, chat).await?, 400, "invalid_request_error");
        let mut raw = Raw::connect(gate.addr()).await?;
        let body = String::from_utf8(whole.bytes().to_vec())?;
        raw.write(common::head("transfer-encoding: chunked\r\n")).await?;
        raw.write(format!("{:x}\r\n{body}\r\n0\r\nx-checksum: 1\r\n\r\n", body.len())).await?;
        assert_eq!(raw.answer().await?.0, 200);
        common::settled(&gate, 10).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_its_body_is_told_to_go_on() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, common::policy(1, &common::patient())).start().await?;
    let body = Chat::new(MODEL).bytes();
    let mut raw = Raw::connect(gate.addr()).await?;
    let lines = format!("content-length: {}\r\nexpect: 100-continue\r\n", body.len());
    raw.write(common::head(&lines)).await?;
    let go_on = raw.read_until(|text| text.contains("\r\n\r\n")).await?;
    assert!(go_on.starts_with("HTTP/1.1 100 "), "{go_on}");
    raw.write(&body).await?;
    assert_eq!(raw.answer().await?.0, 200);
    assert_eq!(upstream.seen()[0].body, body);
    Ok(())
}

#[tokio::test]
async fn an_inference_path_in_disguise_is_not_a_way_around_the_gate() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, common::policy(1, &common::patient())).start().await?;
    // Each is refused, or gated as what it means.
    for path in [
        "/v1/chat/complet%69ons",
        "/%76%31/chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1%5Cchat/completions",
        "/v1/chat/completions%0A",
        "/v1//chat/completions",
        "/v1/./chat/completions",
        "/v1/models/../chat/completions",
        "/v1/chat/completions%3Fa",
        "/invocation%73",
    ] {
        let answer = common::ask(gate.addr(), Chat::new(MODEL).path(path)).await?;
        let gated = answer.status == 200 && answer.header("x-slogate-model") == Some(MODEL);
        // The engine has no route for what is still encoded after one decoding.
        let other = path.ends_with("%3Fa");
        assert!(
            gated || other || answer.status.is_client_error() || answer.status == 307,
            "{path}: {answer:?}"
        );
        println!("{path}: {} {:?}", answer.status, answer.header("x-slogate-reason"));
    }
    for seen in upstream.seen().iter().filter(|seen| !seen.target.contains("%3Fa")) {
        assert!(!seen.target.contains('%'), "{}", seen.target);
    }
    let answer = common::ask(gate.addr(), Chat::new(MODEL).path("/v1/completions%0A")).await?;
    common::refused(&answer, 400, "invalid_request_error");
    let query = Chat::new(MODEL).path("/v1/chat/completions?a=%2e");
    assert_eq!(common::ask(gate.addr(), query).await?.header("x-slogate-model"), Some(MODEL));
    Ok(())
}

#[tokio::test]
async fn headers_of_the_gate_that_a_client_sends_do_nothing_on_any_path() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let other = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, common::policy(1, &common::patient()))
        .cluster("vllm_deepseek_coder", other.addr())
        .start()
        .await?;
    let names = ["x-slogate-cluster", "x-slogate-model", "x-slogate-tier-2", "X-SLOGATE-NEW"];
    let chats = [
        Chat::new(MODEL),
        Chat::get("/v1/chat/completions"),
        Chat::get("/v1/models"),
        Chat::new(MODEL).path("/tokenize"),
        Chat::new(MODEL).path("/"),
    ];
    for chat in &chats {
        for second in [false, true] {
            let chat = names.iter().fold(chat.clone(), |chat, name| {
                chat.header(name, "vllm_deepseek_coder").header(name, "vllm_deepseek_coder")
            });
            let chat = chat.header("x-slogate-max-wait-ms", "1000").header("x-kept", "1");
            let answer = if second {
                http2(&gate, chat).await?
            } else {
                common::ask(gate.addr(), chat).await?
            };
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
    }
    let seen = upstream.seen();
    assert_eq!((seen.len(), other.seen().len()), (2 * chats.len(), 0));
    for seen in &seen {
        assert_eq!(seen.header("x-kept"), Some("1"));
        let ours = |name: &&str| name.contains("slogate");
        let found: Vec<_> = seen.headers.keys().map(HeaderName::as_str).filter(ours).collect();
        assert!(found.is_empty(), "{}: {found:?}", seen.target);
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_not_json_by_its_headers_is_refused_without_being_read() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, common::policy(1, &common::patient())).start().await?;
    let body = Chat::new(MODEL).bytes();
    for line in
        ["content-type: text/plain", "content-encoding: gzip", "content-encoding: identity, br"]
    {
        let plain = "POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\n";
        let mut raw = Raw::connect(gate.addr()).await?;
        raw.write(format!("{plain}{line}\r\ncontent-length: {}\r\n\r\n", body.len())).await?;
        let (status, text) = raw.answer().await?;
        assert_eq!(status, 415, "{line}: {text}");
        assert!(text.contains("\"invalid_request_error\""), "{text}");
    }
    for line in
        ["", "content-type: Application/JSON; charset=utf-8\r\n", "content-encoding: identity\r\n"]
    {
        let plain = "POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\n";
        let mut raw = Raw::connect(gate.addr()).await?;
        raw.write(format!("{plain}{line}content-length: {}\r\n\r\n", body.len())).await?;
        raw.write(&body).await?;
        assert_eq!(raw.answer().await?.0, 200, "{line}");
    }
    assert_eq!(upstream.seen().len(), 3);
    common::settled(&gate, 6).await?;
    Ok(())
}

/// Envoy turns any refusal of such a request into gRPC's form, with its status in a header.
#[tokio::test]
async fn a_grpc_request_on_an_inference_path_is_refused() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, common::policy(1, &common::patient())).start().await?;
    let body = Chat::new(MODEL).bytes();
    let mut raw = Raw::connect(gate.addr()).await?;
    let head = common::head("").replace("application/json", "application/grpc");
    let head = head.replace("\r\n\r\n", &format!("\r\ncontent-length: {}\r\n\r\n", body.len()));
    raw.write(head).await?;
    let text = raw.read_until(|text| text.contains("\r\n\r\n")).await?;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("grpc-status: "), "{text}");
    assert!(!text.contains("grpc-status: 0"), "{text}");
    assert!(text.contains("x-slogate-reason: invalid_request_error"), "{text}");
    let stats = common::settled(&gate, 1).await?;
    assert_eq!(common::outcome(&stats, "invalid_request"), 1);
    assert!(upstream.seen().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_slow_upload_is_served_as_the_first_request_of_every_worker() -> Result<()> {
    let rounds = WORKERS.map(|workers| async move {
        let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()));
        let gate = gate.start().await?;
        let body = Chat::new(MODEL).words(50).bytes();
        let pause = Piece::Pause(Duration::from_millis(350));
        let slow = Chat::new(MODEL).pieces(vec![
            pause.clone(),
            Piece::Data(body.slice(..20)),
            pause.clone(),
            Piece::Data(body.slice(20..)),
            pause,
        ]);
        let mut uploads = tokio::task::JoinSet::new();
        for worker in 0..workers {
            let mut client = gate.client_on_worker(worker).await?;
            let slow = slow.clone();
            uploads.spawn(async move { client.send(slow).await });
        }
        for answer in common::answers(uploads).await? {
            assert_eq!(answer.status, 200, "{:?}", answer.body);
            assert!(answer.total() >= Duration::from_secs(1));
            // The time of the upload is the client's, not the gate's.
            assert!(answer.number("x-slogate-queue-ms") < Some(300.0), "{answer:?}");
        }
        // With a length, on HTTP/1.1 and as the head alone for most of the time.
        let mut raw = Raw::connect(gate.addr()).await?;
        raw.write(common::head(&format!("content-length: {}\r\n", body.len()))).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        raw.write(&body).await?;
        assert_eq!(raw.answer().await?.0, 200);
        assert_eq!(gate.stat("wasmcustom.slogate_flag_missing").await?, 0);
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(rounds).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_flag_is_reported_by_the_first_request_of_every_worker() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()))
            .allow_on_headers_stop_iteration(false)
            .start()
            .await?;
        let mut slowest = Duration::ZERO;
        let mut requests = 0;
        // The first of each worker finds out, later ones are told at once.
        for worker in 0..workers {
            let mut client = gate.client_on_worker(worker).await?;
            for _ in 0..3 {
                let start = Instant::now();
                let answer = client.send(Chat::new(MODEL).words(200)).await?;
                common::refused(&answer, 500, "gate_misconfigured");
                slowest = slowest.max(start.elapsed());
                requests += 1;
                if answer.header("connection") == Some("close") {
                    client = gate.client_on_worker(worker).await?;
                }
                assert_eq!(gate.stat("wasmcustom.slogate_flag_missing").await?, 1);
            }
        }
        println!("{workers} workers: slowest answer {slowest:.1?}");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        assert!(upstream.seen().is_empty());
        // What is not gated passes.
        assert_eq!(common::ask(gate.addr(), Chat::get("/v1/models")).await?.status, 200);
        let stats = common::settled(&gate, requests).await?;
        assert_eq!(common::outcome(&stats, "gate_error"), requests);
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_flag_is_noticed_in_every_framing() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let chat = Chat::new(MODEL).words(200);
    for (second, pieces) in [(false, true), (true, false), (true, true)] {
        let gate = common::gate(&upstream, 1, common::policy(1, &common::patient()))
            .allow_on_headers_stop_iteration(false)
            .start()
            .await?;
        for _ in 0..2 {
            let chat = if pieces { cut(&chat, 100) } else { chat.clone() };
            let start = Instant::now();
            let answer = if second {
                http2(&gate, chat).await?
            } else {
                common::ask(gate.addr(), chat).await?
            };
            common::refused(&answer, 500, "gate_misconfigured");
            assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        }
        assert_eq!(gate.stat("wasmcustom.slogate_flag_missing").await?, 1);
    }
    Ok(())
}
