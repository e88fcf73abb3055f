//! Who is refused by the queue, when, and with which words; and who must not be.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use common::{CLUSTER, MODEL, PATIENCE, WORKERS};
use serde_json::{Value, json};
use slogate_integration::harness::{Answer, Chat, Client, Ending, Gate, Script, Upstream};
use tokio::task::JoinSet;

/// Never answers a request of a chat, answers all else at once.
async fn hanging() -> Result<Upstream> {
    Upstream::start(|seen| {
        let script = Script::after(Duration::ZERO);
        if seen.target.starts_with("POST /v1/chat") {
            script.without_body().ending(Ending::Hang)
        } else {
            script
        }
    })
    .await
}

/// A request that holds a permit until it is dropped.
async fn hold(gate: &Gate, upstream: &Upstream) -> Result<JoinSet<Result<Answer>>> {
    let before = upstream.running();
    let held = common::crowd(gate.addr(), [Chat::new(MODEL)]);
    common::running(upstream, before + 1).await?;
    Ok(held)
}

#[tokio::test]
async fn a_wait_ends_when_the_tier_says_so_and_the_answer_says_when_to_come_back() -> Result<()> {
    let rounds = WORKERS.map(|workers| async move {
        let upstream = hanging().await?;
        let queue = json!({"capacity": 100, "max_wait": "2s"});
        let gate = common::gate(&upstream, workers, common::policy(1, &queue)).start().await?;
        let held = hold(&gate, &upstream).await?;
        let lateness = common::Lateness::watch();
        let late = common::crowd(gate.addr(), vec![Chat::new(MODEL); 16]);
        let mut waits = Vec::new();
        let late = common::answers(late).await?;
        let lateness = lateness.worst();
        for answer in late {
            common::refused_for_now(&answer, 503, "queue_timeout");
            let told = answer.number("x-slogate-queue-ms").expect("x-slogate-queue-ms");
            assert!((2000.0..2100.0 + lateness.as_secs_f64() * 1e3).contains(&told), "{told}");
            waits.push(answer.total());
        }
        waits.sort();
        let (first, last) = (waits[0], waits[waits.len() - 1]);
        println!("{workers} workers: {first:.1?} to {last:.1?}, timers {lateness:.1?} late");
        assert!(first >= Duration::from_secs(2), "{first:?}");
        assert!(last <= Duration::from_millis(2100) + lateness, "{last:?} {lateness:?}");
        drop(held);
        let stats = common::settled(&gate, 17).await?;
        assert_eq!(common::outcome(&stats, "queue_timeout"), 16);
        assert_eq!(common::outcome(&stats, "left_running"), 1);
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(rounds).await?;
    Ok(())
}

#[tokio::test]
async fn who_would_wait_too_long_is_told_at_once() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(100))).await?;
        let policy = common::policy(1, &common::patient());
        let gate = common::gate(&upstream, workers, policy).start().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut crowd = JoinSet::new();
        for _ in 0..6 {
            let (addr, stop) = (gate.addr(), Arc::clone(&stop));
            crowd.spawn(async move {
                let mut client = Client::http1(addr).await?;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.send(Chat::new(MODEL)).await?.status, 200);
                }
                anyhow::Ok(())
            });
        }
        // The mean time a permit is held must be known.
        gate.wait_for_stats("some were served", PATIENCE, |stats| {
            common::outcome(stats, "ok") >= 3 && stats.sum("slogate_queue_depth", &[]) >= 3
        })
        .await?;
        let mut client = Client::http1(gate.addr()).await?;
        let mut times = Vec::new();
        for _ in 0..101 {
            let chat = Chat::new(MODEL).header("x-slogate-max-wait-ms", "50");
            let answer = client.send(chat).await?;
            common::refused_for_now(&answer, 503, "queue_wait_too_long");
            let predicted = answer.number("x-slogate-predicted-wait-ms").expect("a prediction");
            assert!((50.0..2000.0).contains(&predicted), "{predicted}");
            times.push(answer.total().as_secs_f64() * 1e3);
        }
        let median = common::median(&mut times);
        println!("{workers} workers: early refusal in {median:.2} ms (median of {})", times.len());
        assert!(median < 5.0, "{median}");
        stop.store(true, Ordering::Relaxed);
        while let Some(client) = crowd.join_next().await {
            client??;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_client_can_shorten_its_wait_and_not_lengthen_it() -> Result<()> {
    for workers in WORKERS {
        let upstream = hanging().await?;
        let queue = json!({"capacity": 100, "max_wait": "600ms"});
        let gate = common::gate(&upstream, workers, common::policy(1, &queue)).start().await?;
        let _held = hold(&gate, &upstream).await?;
        let asks = [("150", 150.0), ("599", 599.0), ("60000", 600.0), ("4294967295", 600.0)];
        let chats = asks.map(|(ms, _)| Chat::new(MODEL).header("x-slogate-max-wait-ms", ms));
        let mut waits: Vec<_> = common::answers(common::crowd(gate.addr(), chats))
            .await?
            .iter()
            .map(|answer| {
                common::refused_for_now(answer, 503, "queue_timeout");
                answer.number("x-slogate-queue-ms").expect("x-slogate-queue-ms")
            })
            .collect();
        waits.sort_by(f64::total_cmp);
        for (wait, (_, expected)) in waits.iter().zip(asks) {
            // Both sides on one clock; the upper bound is only to tell the cases apart.
            assert!((expected..expected + 400.0).contains(wait), "{waits:?}");
        }
        let none = Chat::new(MODEL).header("x-slogate-max-wait-ms", "0");
        common::refused_for_now(&common::ask(gate.addr(), none).await?, 503, "queue_wait_too_long");
        for wrong in ["", "-1", "1.5", "soon", "4294967296"] {
            let chat = Chat::new(MODEL).header("x-slogate-max-wait-ms", wrong);
            common::refused(&common::ask(gate.addr(), chat).await?, 400, "invalid_request_error");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_client_can_lower_its_tier_and_not_raise_it() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
        let policy = json!({
            "models": [{"name": MODEL, "cluster": CLUSTER, "max_in_flight": 1}],
            "tiers": [{"name": "high", "weight": 8}, {"name": "middle", "weight": 3}, {"name": "low"}],
            "keys": {
                "unknown": {"tier": "middle"},
                "entries": [{"id": "gold", "tier": "high", "sha256": common::sha256("gold-key")}],
            },
        });
        let gate = common::gate(&upstream, workers, policy).start().await?;
        for (key, asked, served) in [
            ("gold-key", None, "high"),
            ("gold-key", Some("middle"), "middle"),
            ("gold-key", Some("low"), "low"),
            ("gold-key", Some("high"), "high"),
            ("other", None, "middle"),
            ("other", Some("high"), "middle"),
            ("other", Some("low"), "low"),
        ] {
            let mut chat = Chat::new(MODEL).key(key);
            if let Some(tier) = asked {
                chat = chat.header("x-slogate-tier", tier);
            }
            let answer = common::ask(gate.addr(), chat).await?;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("x-slogate-tier"), Some(served), "{key} {asked:?}");
        }
        let chat = Chat::new(MODEL).header("x-slogate-tier", "highest");
        common::refused(&common::ask(gate.addr(), chat).await?, 400, "invalid_request_error");
    }
    Ok(())
}

#[tokio::test]
async fn a_queue_that_is_full_in_entries_or_bytes_takes_nobody() -> Result<()> {
    for workers in WORKERS {
        let upstream = hanging().await?;
        let queue = json!({"capacity": 4, "max_wait": "30s", "max_bytes": 100_000});
        let gate = common::gate(&upstream, workers, common::policy(1, &queue)).start().await?;
        let _held = hold(&gate, &upstream).await?;

        // In bytes: two of 60 kB are too many, and a small one still fits.
        let big = Chat::new(MODEL).words(12_000);
        assert!((50_001..100_000).contains(&big.bytes().len()));
        let first = common::crowd(gate.addr(), [big.clone()]);
        common::waiting(&gate, 1).await?;
        for _ in 0..4 {
            let answer = common::ask(gate.addr(), big.clone()).await?;
            common::refused_for_now(&answer, 503, "queue_full");
        }
        let small = common::crowd(gate.addr(), [Chat::new(MODEL)]);
        common::waiting(&gate, 2).await?;

        // In entries. Who leaves makes room.
        let two = common::crowd(gate.addr(), vec![Chat::new(MODEL); 2]);
        common::waiting(&gate, 4).await?;
        for _ in 0..4 {
            let answer = common::ask(gate.addr(), Chat::new(MODEL)).await?;
            common::refused_for_now(&answer, 503, "queue_full");
        }
        drop(first);
        common::waiting(&gate, 3).await?;
        let _again = common::crowd(gate.addr(), [big]);
        let stats = common::waiting(&gate, 4).await?;
        assert_eq!(common::outcome(&stats, "queue_full"), 8);
        assert_eq!(common::outcome(&stats, "left_waiting"), 1);
        drop((small, two));
    }
    Ok(())
}

#[tokio::test]
async fn refusals_that_come_from_waiting_have_the_status_of_the_policy() -> Result<()> {
    let upstream = hanging().await?;
    let mut policy = common::policy(1, &json!({"capacity": 1, "max_wait": "500ms"}));
    policy["queue_status"] = json!(429);
    let gate = common::gate(&upstream, 1, policy).start().await?;
    let _held = hold(&gate, &upstream).await?;
    let waiter = common::crowd(gate.addr(), [Chat::new(MODEL)]);
    common::waiting(&gate, 1).await?;
    let full = common::ask(gate.addr(), Chat::new(MODEL)).await?;
    common::refused_for_now(&full, 429, "queue_full");
    common::refused_for_now(&common::answers(waiter).await?[0], 429, "queue_timeout");
    Ok(())
}

#[tokio::test]
async fn what_is_not_an_inference_request_passes_although_the_pool_is_full() -> Result<()> {
    for workers in WORKERS {
        let upstream = hanging().await?;
        let gate = common::gate(&upstream, workers, common::policy(1, &common::patient()));
        let gate = gate.start().await?;
        let _held = hold(&gate, &upstream).await?;
        let chats = [
            Chat::get("/v1/chat/completions"),
            Chat::get("/v1/models"),
            Chat::get("/health"),
            Chat::new(MODEL).path("/tokenize").body("not JSON"),
            Chat::new(MODEL).path("/v1/chat/completions/").body("{}"),
            Chat::new(MODEL).path("/v1/embeddings/more"),
        ];
        for chat in chats {
            // Two of them are the engine's to hang on: only that they get there counts.
            let before = upstream.seen().len();
            let passing = common::crowd(gate.addr(), [chat.clone()]);
            slogate_integration::harness::eventually(
                "it reaches the engine",
                PATIENCE,
                async || Ok((upstream.seen().len() > before).then_some(())),
            )
            .await?;
            let seen = upstream.seen();
            if !seen[before].target.starts_with("POST /v1/chat") {
                let answer = &common::answers(passing).await?[0];
                assert_eq!(answer.status, 200);
                let stamps =
                    |name: &&str| name.starts_with("x-slogate-") || *name == "server-timing";
                assert!(!answer.headers.keys().any(|name| stamps(&name.as_str())), "{answer:?}");
                assert_eq!(seen[before].body, chat.bytes());
            }
        }
        assert_eq!(gate.stats().await?.sum("slogate_requests", &[]), 0);
    }
    Ok(())
}

#[tokio::test]
async fn other_paths_are_denied_where_the_policy_says_so() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let mut policy = common::policy(1, &common::patient());
    policy["other_paths"] = json!("deny");
    let gate = common::gate(&upstream, 1, policy).start().await?;
    for chat in [
        Chat::get("/v1/models"),
        Chat::get("/v1/chat/completions"),
        Chat::new(MODEL).path("/tokenize"),
        Chat::new(MODEL).path("/"),
    ] {
        common::refused(&common::ask(gate.addr(), chat).await?, 404, "not_found");
    }
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(common::ask(gate.addr(), Chat::new(MODEL)).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_model_is_found_by_name_alias_or_default_or_not_at_all() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let mut policy = common::policy(1, &common::patient());
    policy["models"][0]["aliases"] = json!(["org/M"]);
    let nameless = Chat::new(MODEL).body(r#"{"messages":[{"role":"user","content":"hi"}]}"#);
    {
        let gate = common::gate(&upstream, 1, policy.clone()).start().await?;
        for model in ["other", "M", "m ", "org"] {
            let answer = common::ask(gate.addr(), Chat::new(model)).await?;
            assert_eq!(common::refused(&answer, 404, "model_not_found"), "model");
        }
        let answer = common::ask(gate.addr(), nameless.clone()).await?;
        assert_eq!(common::refused(&answer, 400, "invalid_request_error"), "model");
        let answer = common::ask(gate.addr(), Chat::new("org/M")).await?;
        assert_eq!((answer.status.as_u16(), answer.header("x-slogate-model")), (200, Some(MODEL)));
        let stats = common::settled(&gate, 6).await?;
        assert_eq!(stats.sum("slogate_requests", &[("model", "unknown")]), 5);
        assert_eq!(common::outcome(&stats, "model_not_found"), 4);
    }
    policy["default_model"] = json!(MODEL);
    let gate = common::gate(&upstream, 1, policy).start().await?;
    let answer = common::ask(gate.addr(), nameless.clone()).await?;
    assert_eq!((answer.status.as_u16(), answer.header("x-slogate-model")), (200, Some(MODEL)));
    let seen = upstream.seen();
    assert_eq!(seen[0].field("model"), Some(json!("org/M")));
    assert_eq!(seen[1].body, nameless.bytes());
    Ok(())
}

#[tokio::test]
async fn a_key_counts_in_each_of_its_headers_and_others_are_turned_away() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let mut policy = common::policy(1, &common::patient());
    policy["keys"] = json!({
        "unknown": {"reject": true},
        "entries": [{"id": "shop", "tier": "t", "sha256": common::sha256("sk-1")}],
    });
    let gate = common::gate(&upstream, 1, policy).start().await?;
    let headers: &[&[(&str, &str)]] = &[
        &[("authorization", "Bearer sk-1")],
        &[("authorization", "bearer  sk-1 ")],
        &[("x-api-key", "sk-1")],
        &[("api-key", "sk-1")],
        &[("authorization", "Basic c2s6MQ=="), ("x-api-key", "sk-1")],
        &[("authorization", "Bearer sk-1"), ("x-api-key", "sk-2")],
    ];
    let with = |headers: &[(&str, &str)]| {
        headers.iter().fold(Chat::new(MODEL), |chat, (name, value)| chat.header(name, value))
    };
    for headers in headers {
        let answer = common::ask(gate.addr(), with(headers)).await?;
        assert_eq!(answer.status, 200, "{headers:?}");
    }
    let unknown: &[&[(&str, &str)]] = &[
        &[],
        &[("authorization", "Bearer sk-2")],
        &[("authorization", "sk-1")],
        &[("authorization", "Bearer sk-2"), ("x-api-key", "sk-1")],
        &[("x-api-key", "SK-1")],
        &[("api-key", "")],
    ];
    for headers in unknown {
        let answer = common::ask(gate.addr(), with(headers)).await?;
        common::refused(&answer, 401, "invalid_api_key");
    }
    let log = gate.wait_for_log(headers.len() + unknown.len(), PATIENCE).await?;
    assert!(log[..headers.len()].iter().all(|line| line["key"] == "shop"));
    assert!(log[headers.len()..].iter().all(|line| line["key"] == Value::Null));
    let text = format!("{log:?}{}{}", gate.log(), gate.admin_get("/stats").await?);
    assert!(!text.to_lowercase().contains("sk-1"), "a key is printed somewhere");
    Ok(())
}
