//! Streams: not a byte is changed, the first token is timed right, and any end frees the permit.

mod common;

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use common::{MODEL, PATIENCE, WORKERS};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use slogate_integration::harness::{
    Answer, Chat, Client, Ending, Gate, Script, Upstream, eventually,
};
use tokio::task::JoinSet;

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\u{6cb3}\"}}]}\n\n";

/// A stream with comments before and between its events, cut anywhere.
fn cut_at_random(seed: u64) -> (Vec<(Duration, Bytes)>, Vec<u8>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = ": keep-alive\n\n: data: not yet\r\n\r\n".repeat(random.random_range(0..3));
    for _ in 0..random.random_range(1..40) {
        if random.random_bool(0.2) {
            text += ": still here\n\n";
        }
        text += TOKEN;
    }
    text += "data: [DONE]\n\n";
    let whole = text.into_bytes();
    let (mut pieces, mut rest) = (Vec::new(), &whole[..]);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(random.random_range(1..=rest.len().min(200)));
        let pause = if random.random_bool(0.3) { random.random_range(0..4) } else { 0 };
        pieces.push((Duration::from_millis(pause), Bytes::copy_from_slice(piece)));
        rest = after;
    }
    (pieces, whole)
}

/// The log line of an answer.
async fn line_of(gate: &Gate, lines: usize, answer: &Answer) -> Result<Value> {
    let log = gate.wait_for_log(lines, PATIENCE).await?;
    let id = answer.header("x-request-id").context("x-request-id")?;
    log.into_iter().find(|line| line["request_id"] == id).context("no line with this id")
}

/// Milliseconds from one time of a log line to another.
fn between(line: &Value, from: &str, to: &str) -> f64 {
    let at = |name: &str| common::unix_millis(line[name].as_str().unwrap_or_default());
    at(to) - at(from)
}

#[tokio::test]
async fn a_stream_arrives_byte_for_byte_however_it_is_cut() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|seen| {
            let seed = seen.header("x-seed").and_then(|seed| seed.parse().ok()).unwrap_or(0);
            Script::stream(cut_at_random(seed).0)
        })
        .await?;
        let gate = common::gate(&upstream, workers, common::policy(16, &common::patient()));
        let gate = gate.start().await?;
        let mut streams = JoinSet::new();
        for seed in 0..60_u64 {
            let addr = gate.addr();
            streams.spawn(async move {
                let chat = Chat::new(MODEL).stream().header("x-seed", &seed.to_string());
                let mut client = match seed % 2 {
                    0 => Client::http1(addr).await?,
                    _ => Client::http2(addr).await?,
                };
                anyhow::Ok((seed, client.send(chat).await?))
            });
        }
        while let Some(stream) = streams.join_next().await {
            let (seed, answer) = stream??;
            assert_eq!((answer.status.as_u16(), &answer.broken), (200, &None));
            assert_eq!(answer.body, cut_at_random(seed).1, "seed {seed}");
            assert!(answer.number("x-slogate-queue-ms").is_some());
            // It is not over when its headers leave.
            assert!(answer.header("x-slogate-exec-ms").is_none());
            assert!(!answer.header("server-timing").unwrap_or_default().contains("exec"));
        }
        assert!(upstream.peak() <= 16);
        let stats = common::settled(&gate, 60).await?;
        assert_eq!(common::outcome(&stats, "ok"), 60);
    }
    Ok(())
}

#[tokio::test]
async fn the_first_token_is_timed_as_the_client_saw_it_and_comments_are_none() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|seen| {
            let pause = Duration::from_millis(15);
            let comment = Bytes::from_static(b": keep-alive\n\n");
            // Half a line is a token that has begun only where it is no comment.
            let half = Bytes::from_static(b": data: {}");
            let rest = Bytes::from_static(b" data: {}\n\n");
            let comments = match seen.order % 3 {
                0 => vec![],
                1 => vec![(pause, comment.clone()), (pause, comment)],
                _ => vec![(pause, half), (pause, rest)],
            };
            let tokens = [
                (pause, Bytes::from_static(TOKEN.as_bytes())),
                (pause, Bytes::from_static(b"data: [DONE]\n\n")),
            ];
            Script::stream(comments.into_iter().chain(tokens))
        })
        .await?;
        let gate = common::gate(&upstream, workers, common::policy(16, &common::patient()));
        let gate = gate.start().await?;
        let (mut errors, mut early) = (Vec::new(), Vec::new());
        for count in 1..=45 {
            let answer = common::ask(gate.addr(), Chat::new(MODEL).stream()).await?;
            let token = |piece: &&(_, Bytes)| piece.1.starts_with(b"data:");
            let first = answer.pieces.iter().find(token).context("no token came")?.0;
            let client = (first - answer.sent).as_secs_f64() * 1e3;
            let line = line_of(&gate, count, &answer).await?;
            let logged = between(&line, "exec_start", "first_token");
            errors.push((logged - client).abs());
            // Each comment came 15 ms before the next piece: taken for a token, it would show here.
            early.push(client - logged);
            assert!(between(&line, "first_token", "finish_time") >= 14.0, "{line}");
        }
        let worst = early.iter().copied().fold(0.0, f64::max);
        let median = common::median(&mut errors);
        println!("{workers} workers: first token off by {median:.2} ms (median), {worst:.2} early");
        assert!(median < 5.0, "{errors:?}");
        assert!(worst < 14.0 || common::median(&mut early) < 5.0);
        // Histograms reach the page with a flush.
        eventually("45 first tokens are counted", PATIENCE, async || {
            let page = gate.prometheus().await?;
            let counted = page.lines().any(|line| {
                line.starts_with("slogate_inference_latency_ms_count")
                    && line.contains("phase=\"first_token\"")
                    && line.ends_with(" 45")
            });
            Ok(counted.then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_engine_that_dies_in_a_stream_is_counted_and_its_permit_is_free() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|seen| match seen.header("x-play") {
            Some("stream") => Script::tokens(3, Duration::from_millis(2)).ending(Ending::Reset),
            Some("head") => Script::after(Duration::ZERO).without_body().ending(Ending::Reset),
            _ => Script::tokens(3, Duration::from_millis(1)),
        })
        .await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()));
        let gate = gate.start().await?;
        let chats = |play: &str| vec![Chat::new(MODEL).stream().header("x-play", play); 10];
        for answer in common::answers(common::crowd(gate.addr(), chats("stream"))).await? {
            assert_eq!(answer.status, 200);
            assert!(answer.broken.is_some());
        }
        for answer in common::answers(common::crowd(gate.addr(), chats("head"))).await? {
            assert_eq!(answer.status, 503);
            assert!(answer.header("x-slogate-reason").is_none());
        }
        for answer in common::answers(common::crowd(gate.addr(), chats("on"))).await? {
            assert_eq!((answer.status.as_u16(), &answer.broken), (200, &None));
        }
        let stats = common::settled(&gate, 30).await?;
        let log = gate.wait_for_log(30, PATIENCE).await?;
        assert_eq!(common::outcome(&stats, "engine_error"), 20, "{log:#?}");
        assert_eq!(common::outcome(&stats, "ok"), 10);
        assert_eq!(upstream.peak(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_in_a_stream_is_counted_and_its_permit_is_free() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|seen| match seen.header("x-play") {
            Some("hang") => Script::tokens(2, Duration::ZERO).ending(Ending::Hang),
            _ => Script::tokens(3, Duration::from_millis(1)),
        })
        .await?;
        let queue = json!({"capacity": 10, "max_wait": "20s"});
        let gate = common::gate(&upstream, workers, common::policy(1, &queue)).start().await?;
        for round in 0..6 {
            let chat = Chat::new(MODEL).stream().header("x-play", "hang");
            let mut client = match round % 2 {
                0 => Client::http1(gate.addr()).await?,
                _ => Client::http2(gate.addr()).await?,
            };
            let answer = client.begin(chat).await?;
            assert_eq!(answer.status(), 200);
            let next = common::crowd(gate.addr(), [Chat::new(MODEL).stream()]);
            common::waiting(&gate, 1).await?;
            drop((answer, client));
            let next = &common::answers(next).await?[0];
            assert_eq!((next.status.as_u16(), &next.broken), (200, &None));
        }
        let stats = common::settled(&gate, 12).await?;
        assert_eq!(common::outcome(&stats, "left_running"), 6, "{}", common::filter_stats(&stats));
        assert_eq!(common::outcome(&stats, "ok"), 6);
    }
    Ok(())
}
