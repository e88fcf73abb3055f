//! Whatever ends a request, and in whichever phase: one outcome, and nothing is left over.

mod common;

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use common::{CLUSTER, MODEL, PATIENCE, Raw, WORKERS};
use serde_json::json;
use slogate_integration::harness::{
    Chat, Client, Ending, Piece, Script, Seen, Stats, Upstream, eventually,
};

/// Answers at once, or as the request's `x-play` asks.
async fn engine() -> Result<Upstream> {
    Upstream::start(|seen| {
        let script = Script::after(Duration::ZERO);
        match seen.header("x-play") {
            Some("hang") => script.without_body().ending(Ending::Hang),
            Some("hang in the answer") => Script::tokens(1, Duration::ZERO).ending(Ending::Hang),
            Some("reset") => script.without_body().ending(Ending::Reset),
            Some("500") => script.status(500),
            Some("400") => script.status(400),
            _ => script,
        }
    })
    .await
}

fn play(what: &str) -> Chat {
    Chat::new(MODEL).header("x-play", what)
}

#[tokio::test]
async fn a_client_that_leaves_in_any_phase_is_one_outcome_and_leaves_nothing() -> Result<()> {
    for workers in WORKERS {
        let upstream = engine().await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()));
        let gate = gate.start().await?;
        let body = Chat::new(MODEL).bytes();
        let half = body.slice(..body.len() / 2);
        let rounds = 4;
        let (mut waiting, mut running) = (0, 0);
        for _ in 0..rounds {
            // The head alone, and half of the body, in both protocols.
            for sent in [&b""[..], &half[..]] {
                let mut raw = Raw::connect(gate.addr()).await?;
                raw.write(common::head(&format!("content-length: {}\r\n", body.len()))).await?;
                raw.write(sent).await?;
                gate.wait_for_stat("http.gateway.downstream_rq_active", PATIENCE, |now| now > 0)
                    .await?;
                drop(raw);
                waiting += 1;
                common::counted(&gate, "left_waiting", waiting).await?;

                let mut pieces =
                    vec![Piece::Data(Bytes::copy_from_slice(sent)), Piece::Pause(PATIENCE)];
                if sent.is_empty() {
                    pieces.remove(0);
                }
                let mut client = Client::http2(gate.addr()).await?;
                let chat = Chat::new(MODEL).pieces(pieces);
                let sending = tokio::spawn(async move { client.send(chat).await });
                gate.wait_for_stat("http.gateway.downstream_rq_active", PATIENCE, |now| now > 0)
                    .await?;
                sending.abort();
                waiting += 1;
                common::counted(&gate, "left_waiting", waiting).await?;
            }

            // While it waits, and while it runs.
            let held = common::crowd(gate.addr(), [play("hang")]);
            common::running(&upstream, 1).await?;
            let shared = Client::http2(gate.addr()).await?;
            let waiters = common::crowd(gate.addr(), vec![play("hang"); 3]);
            let mut second = tokio::task::JoinSet::new();
            for _ in 0..3 {
                let mut client = shared.share().expect("HTTP/2");
                second.spawn(async move { client.send(play("hang")).await });
            }
            common::waiting(&gate, 6).await?;
            drop((waiters, second));
            waiting += 6;
            common::counted(&gate, "left_waiting", waiting).await?;
            drop(held);
            running += 1;
            common::counted(&gate, "left_running", running).await?;
            common::running(&upstream, 0).await?;

            // While the answer comes.
            let mut client = Client::http1(gate.addr()).await?;
            let answer = client.begin(play("hang in the answer")).await?;
            drop((answer, client));
            running += 1;
            common::counted(&gate, "left_running", running).await?;
            common::running(&upstream, 0).await?;
        }
        let stats = common::settled(&gate, waiting + running).await?;
        assert_eq!(stats.sum("slogate_requests", &[("outcome", "ok")]), 0);
        // The one permit is there.
        assert_eq!(common::ask(gate.addr(), Chat::new(MODEL)).await?.status, 200);
        assert_eq!(upstream.peak(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn half_of_the_queue_leaving_frees_its_places_and_harms_nobody() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|seen| {
            let first = if seen.order == 0 { 600 } else { 10 };
            Script::after(Duration::from_millis(first))
        })
        .await?;
        let queue = json!({"capacity": 40, "max_wait": "20s"});
        let gate = common::gate(&upstream, workers, common::policy(1, &queue)).start().await?;
        let held = common::crowd(gate.addr(), [Chat::new(MODEL)]);
        common::running(&upstream, 1).await?;
        let leaving = common::crowd(gate.addr(), vec![Chat::new(MODEL); 20]);
        let staying = common::crowd(gate.addr(), vec![Chat::new(MODEL); 20]);
        common::waiting(&gate, 40).await?;
        common::refused_for_now(
            &common::ask(gate.addr(), Chat::new(MODEL)).await?,
            503,
            "queue_full",
        );
        drop(leaving);
        common::counted(&gate, "left_waiting", 20).await?;
        // At once: while the first one still runs, as many fit again.
        let again = common::crowd(gate.addr(), vec![Chat::new(MODEL); 20]);
        for crowd in [held, staying, again] {
            for answer in common::answers(crowd).await? {
                assert_eq!(answer.status, 200, "{:?}", answer.body);
            }
        }
        let stats = common::settled(&gate, 62).await?;
        assert_eq!(common::outcome(&stats, "ok"), 41);
        assert_eq!(upstream.peak(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn an_engine_that_fails_in_any_way_gives_the_permit_back() -> Result<()> {
    for workers in WORKERS {
        let upstream = engine().await?;
        let mut policy = common::policy(1, &common::patient());
        let dead = json!({"name": "dead", "cluster": "vllm_dead", "max_in_flight": 1});
        let lost = json!({"name": "lost", "cluster": "no_such_cluster", "max_in_flight": 1});
        policy["models"].as_array_mut().expect("a list").extend([dead, lost]);
        // A port that was free a moment ago and has no listener.
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let gate = common::gate(&upstream, workers, policy).cluster("vllm_dead", port);
        let gate = gate.start().await?;
        for (chat, status, outcome) in [
            (play("reset"), 503, "engine_error"),
            (play("500"), 500, "engine_error"),
            (play("400"), 400, "client_error"),
            (Chat::new("dead"), 503, "engine_error"),
            (Chat::new("lost"), 503, "engine_error"),
        ] {
            let before = common::outcome(&gate.stats().await?, outcome);
            let crowd = common::crowd(gate.addr(), vec![chat; 6]);
            for answer in common::answers(crowd).await? {
                assert_eq!(answer.status, status, "{:?}", answer.body);
                assert!(answer.header("x-slogate-reason").is_none());
            }
            common::counted(&gate, outcome, before + 6).await?;
        }
        common::settled(&gate, 30).await?;
        assert_eq!(common::ask(gate.addr(), Chat::new(MODEL)).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_envoys_own_timers_end_is_one_outcome_and_leaves_nothing() -> Result<()> {
    for workers in WORKERS {
        let upstream = engine().await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()))
            .edit(|bootstrap| {
                let manager = bootstrap.manager()?;
                manager["request_timeout"] = json!("0.3s");
                for route in manager["route_config"]["virtual_hosts"][0]["routes"]
                    .as_array_mut()
                    .expect("routes")
                {
                    if route["name"] == "held" {
                        route["route"]["idle_timeout"] = json!("0.5s");
                    }
                }
                Ok(())
            })
            .start()
            .await?;
        // A body that never comes: Envoy's answer, not the gate's.
        let mut raw = Raw::connect(gate.addr()).await?;
        raw.write(common::head("content-length: 50\r\n")).await?;
        assert_eq!(raw.answer().await?.0, 408);
        // A request held for longer than the back-stop.
        let held = common::crowd(gate.addr(), [play("hang")]);
        common::running(&upstream, 1).await?;
        let stopped = common::ask(gate.addr(), Chat::new(MODEL)).await?;
        assert_eq!(stopped.status, 504);
        drop(held);
        common::settled(&gate, 3).await?;
        assert_eq!(common::ask(gate.addr(), Chat::new(MODEL)).await?.status, 200);
    }
    Ok(())
}

/// Most requests that ran side by side at the engine and were answered whole. One whose client left
/// has given its permit back before the engine notices, so its end there says nothing.
fn peak_of_answered(seen: &[Seen]) -> usize {
    let answered = seen.iter().filter(|seen| seen.completed);
    let spans: Vec<_> = answered.filter_map(|seen| Some((seen.started, seen.ended?))).collect();
    let at = |moment| spans.iter().filter(|(from, to)| (*from..*to).contains(&moment)).count();
    spans.iter().map(|(from, _)| at(*from)).max().unwrap_or(0)
}

#[tokio::test]
async fn outcomes_add_up_over_a_mixed_crowd() -> Result<()> {
    for workers in WORKERS {
        let upstream = engine().await?;
        let queue = json!({"capacity": 8, "max_wait": "300ms"});
        let gate = common::gate(&upstream, workers, common::policy(2, &queue)).start().await?;
        let vms = gate.stat("wasm.wasm_vm_count").await?;
        let mut crowd = tokio::task::JoinSet::new();
        for number in 0..240_u32 {
            let addr = gate.addr();
            crowd.spawn(async move {
                let chat = match number % 8 {
                    0 => play("reset"),
                    1 => play("hang"),
                    2 => Chat::new("other"),
                    3 => Chat::new(MODEL).body("{"),
                    4 => play("400"),
                    5 => Chat::new(MODEL).stream(),
                    _ => Chat::new(MODEL).words(30),
                };
                let patience = Duration::from_millis(40 + u64::from(number % 7) * 30);
                let mut client = if number % 3 == 0 {
                    Client::http2(addr).await?
                } else {
                    Client::http1(addr).await?
                };
                anyhow::Ok(tokio::time::timeout(patience, client.send(chat)).await.is_ok())
            });
        }
        for sent in crowd.join_all().await {
            sent?;
        }
        let all = |stats: &Stats| stats.get("http.gateway.downstream_rq_total");
        let requests = eventually("nothing is open", PATIENCE, async || {
            let stats = gate.stats().await?;
            Ok((stats.get("http.gateway.downstream_rq_active") == 0).then(|| all(&stats)))
        })
        .await?;
        let stats = common::settled(&gate, requests).await?;
        println!("{workers} workers, {requests} requests:\n{}", common::filter_stats(&stats));
        assert!(peak_of_answered(&upstream.seen()) <= 2);
        assert_eq!(gate.stat("wasm.wasm_vm_count").await?, vms);
        let log = gate.wait_for_log(usize::try_from(requests)?, PATIENCE).await?;
        assert!(log.iter().all(|line| line["outcome"].is_string() && line["cluster"] != "x"));
        let at_engine = log.iter().filter(|line| line["cluster"] == CLUSTER).count();
        assert!(at_engine >= upstream.answered());
    }
    Ok(())
}
