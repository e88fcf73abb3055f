//! The harness itself, with Envoy and without the filter: what the other tests rely on.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use serde_json::json;
use slogate_integration::harness::{
    Answer, Chat, Client, Ending, Gate, Piece, Script, Upstream, eventually,
};

const MODEL: &str = "deepseek-v4";
const PATIENCE: Duration = Duration::from_secs(10);

async fn bare(upstream: &Upstream, workers: usize) -> Result<Gate> {
    Gate::builder()
        .without_filter()
        .workers(workers)
        .cluster("vllm_deepseek_v4", upstream.addr())
        .start()
        .await
}

async fn ask(gate: &Gate, chat: Chat) -> Result<Answer> {
    Client::http1(gate.addr()).await?.send(chat).await
}

#[tokio::test]
async fn a_request_passes_and_is_seen_by_engine_stats_and_log() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::from_millis(20))).await?;
    let gate = bare(&upstream, 1).await?;
    let chat = Chat::new(MODEL).words(20).key("k").header("x-tag", "a");
    let sent = chat.bytes();

    let answer = ask(&gate, chat).await?;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()?["usage"]["completion_tokens"], 1);
    assert!(answer.total() >= Duration::from_millis(20));

    let seen = upstream.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].target, "POST /v1/chat/completions");
    assert_eq!(seen[0].body, sent);
    assert_eq!(seen[0].field("model"), Some(json!(MODEL)));
    assert_eq!(seen[0].header("x-tag"), Some("a"));
    assert!(seen[0].completed);
    let name = "cluster.vllm_deepseek_v4.upstream_rq_total";
    assert_eq!(gate.wait_for_stat(name, PATIENCE, |count| count > 0).await?, 1);
    assert!(gate.prometheus().await?.contains("envoy_cluster_upstream_rq_total"));
    let log = gate.wait_for_log(1, PATIENCE).await?;
    assert_eq!(log[0]["status"], 200);
    assert_eq!(log[0]["cluster"], "vllm_deepseek_v4");
    Ok(())
}

#[tokio::test]
async fn a_client_copy_of_the_cluster_header_does_not_reach_the_engine() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = bare(&upstream, 1).await?;
    for path in ["/v1/chat/completions", "/tokenize"] {
        let chat = Chat::new(MODEL).path(path).header("x-slogate-cluster", "elsewhere");
        assert_eq!(ask(&gate, chat).await?.status, 200);
    }
    assert!(upstream.seen().iter().all(|seen| seen.header("x-slogate-cluster").is_none()));
    Ok(())
}

#[tokio::test]
async fn every_log_line_is_json_whatever_becomes_of_the_request() -> Result<()> {
    let upstream = Upstream::start(|seen| match seen.header("x-play") {
        Some("reset") => Script::after(Duration::ZERO).without_body().ending(Ending::Reset),
        _ => Script::after(Duration::from_secs(60)),
    })
    .await?;
    let gate = bare(&upstream, 1).await?;
    assert_eq!(ask(&gate, Chat::new(MODEL).header("x-play", "reset")).await?.status, 503);
    assert_eq!(ask(&gate, Chat::new(MODEL).path("/v1%2fchat/completions")).await?.status, 400);
    let quoted = Chat::new(MODEL).path("/v1/\"chat\"").header("x-play", "reset");
    assert_eq!(ask(&gate, quoted).await?.status, 503);
    assert_eq!(
        ask(&gate, Chat::new(MODEL).header("x_slogate_tier", "realtime")).await?.status,
        400
    );
    let left = tokio::time::timeout(Duration::from_millis(200), ask(&gate, Chat::new(MODEL))).await;
    assert!(left.is_err());

    let log = gate.wait_for_log(5, PATIENCE).await?;
    let statuses: Vec<_> = log.iter().filter_map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [503, 400, 503, 400, 0]);
    assert_eq!(log[4]["flags"], "DC");
    Ok(())
}

#[tokio::test]
async fn the_peak_at_the_engine_is_the_number_of_requests_side_by_side() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::from_millis(300))).await?;
    let gate = bare(&upstream, 2).await?;
    let client = Client::http2(gate.addr()).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let mut client = client.share().expect("HTTP/2");
        tasks
            .spawn(async move { client.send(Chat::new(MODEL).field("seed", json!(number))).await });
    }
    while let Some(answer) = tasks.join_next().await {
        assert_eq!(answer??.status, 200);
    }
    assert_eq!(upstream.peak(), 6);
    assert_eq!((upstream.running(), upstream.answered()), (0, 6));
    Ok(())
}

#[tokio::test]
async fn requests_one_after_another_are_never_seen_side_by_side() -> Result<()> {
    let upstream = Upstream::start(|seen| match seen.order % 2 {
        0 => Script::after(Duration::ZERO),
        _ => Script::tokens(3, Duration::from_millis(1)),
    })
    .await?;
    let gate = bare(&upstream, 1).await?;
    let mut client = Client::http1(gate.addr()).await?;
    for _ in 0..200 {
        assert_eq!(client.send(Chat::new(MODEL)).await?.status, 200);
    }
    assert_eq!(upstream.peak(), 1);
    Ok(())
}

#[tokio::test]
async fn a_stream_arrives_piece_by_piece_and_unchanged() -> Result<()> {
    let gap = Duration::from_millis(60);
    let upstream = Upstream::start(move |_| {
        Script::stream([
            (gap, Bytes::from_static(b": waiting\n\n")),
            (gap, Bytes::from_static(b"data: {\"n\":1}\n\n")),
            (gap, Bytes::from_static(b"data: [DONE]\n\n")),
        ])
    })
    .await?;
    let gate = bare(&upstream, 1).await?;
    let answer = ask(&gate, Chat::new(MODEL).stream()).await?;
    assert_eq!(answer.body, &b": waiting\n\ndata: {\"n\":1}\n\ndata: [DONE]\n\n"[..]);
    assert_eq!(answer.pieces.len(), 3);
    assert!(answer.headers_at - answer.sent < gap, "headers leave before the first piece");
    assert!(answer.first_data().expect("data") >= gap);
    assert!(answer.total() >= 3 * gap);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_told_from_a_whole_one() -> Result<()> {
    let upstream =
        Upstream::start(|_| Script::tokens(2, Duration::ZERO).ending(Ending::Reset)).await?;
    let gate = bare(&upstream, 1).await?;
    let answer = ask(&gate, Chat::new(MODEL).stream()).await?;
    assert!(answer.broken.is_some());
    assert!(!upstream.seen()[0].completed);
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_at_the_engine() -> Result<()> {
    let upstream =
        Upstream::start(|_| Script::tokens(1, Duration::ZERO).ending(Ending::Hang)).await?;
    let gate = bare(&upstream, 1).await?;
    let mut client = Client::http1(gate.addr()).await?;
    let answer = client.begin(Chat::new(MODEL).stream()).await?;
    assert_eq!(upstream.running(), 1);
    drop(answer);
    drop(client);
    eventually(
        "the engine notices",
        PATIENCE,
        async || Ok((upstream.running() == 0).then_some(())),
    )
    .await?;
    assert_eq!(upstream.answered(), 0);
    Ok(())
}

#[tokio::test]
async fn a_body_in_pieces_with_trailers_arrives_whole() -> Result<()> {
    let upstream = Upstream::start(|seen| Script::bytes(seen.body.clone())).await?;
    let gate = bare(&upstream, 1).await?;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("1"));
    let chat = Chat::new(MODEL).pieces(vec![
        Piece::Data(Bytes::from_static(b"{\"model\":")),
        Piece::Pause(Duration::from_millis(10)),
        Piece::Data(Bytes::from_static(b"\"m\"}")),
        Piece::Trailers(trailers),
    ]);
    let answer = Client::http2(gate.addr()).await?.send(chat).await?;
    assert_eq!(answer.json()?, json!({"model": "m"}));
    Ok(())
}

#[tokio::test]
async fn connections_are_steered_to_the_worker_that_is_asked_for() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = bare(&upstream, 2).await?;
    let before = gate.accepted().await?;
    assert_eq!(before.len(), 2);
    let mut clients = Vec::new();
    for worker in [0, 0, 1] {
        clients.push(gate.client_on_worker(worker).await?);
    }
    for client in &mut clients {
        assert_eq!(client.send(Chat::new(MODEL)).await?.status, 200);
    }
    let after = gate.accepted().await?;
    assert!(after[0] - before[0] >= 2 && after[1] - before[1] >= 1, "{before:?} {after:?}");
    assert!(gate.client_on_worker(2).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_that_envoy_refuses_is_reported_with_its_reason() {
    let refused = Gate::builder()
        .without_filter()
        .edit(|bootstrap| {
            bootstrap.manager()?["no_such_field"] = json!(1);
            Ok(())
        })
        .start()
        .await
        .expect_err("Envoy takes an unknown field");
    assert!(format!("{refused:#}").contains("no_such_field"), "{refused:#}");
}

#[tokio::test]
async fn what_envoy_has_used_is_read_from_the_process() -> Result<()> {
    let upstream = Upstream::start_forgetful(|_| Script::after(Duration::ZERO)).await?;
    let gate = bare(&upstream, 1).await?;
    let before = gate.cpu_time()?;
    let mut client = Client::http1(gate.addr()).await?;
    eventually("Envoy uses CPU time", PATIENCE, async || {
        client.send(Chat::new(MODEL)).await?;
        Ok((gate.cpu_time()? > before).then_some(()))
    })
    .await?;
    assert!(gate.resident_bytes()? > 10_000_000);
    assert!(upstream.answered() > 0 && upstream.seen().is_empty());
    Ok(())
}
