//! A policy is pushed while requests wait: all are answered, the new limits hold, nothing leaks.

mod common;

use std::time::Duration;

use anyhow::Result;
use common::{CLUSTER, MODEL, PATIENCE, WORKERS};
use serde_json::{Value, json};
use slogate_integration::harness::{Chat, Client, Gate, Push, Script, Upstream, eventually};

/// Waits until every worker serves under a policy with so many permits: any of them may be the one
/// that sets the gauge, so it must stay at that for longer than all of them need to set it.
async fn in_force(gate: &Gate, permits: u64) -> Result<()> {
    let mut steady = 0;
    eventually("the pushed limits are in force", PATIENCE, async || {
        let limit = gate.stats().await?.sum("slogate_in_flight_limit", &[("model", MODEL)]);
        steady = if limit == permits { steady + 1 } else { 0 };
        // Tries are at least 20 ms apart in the end, gauges are set every 250 ms.
        Ok((steady > 20).then_some(()))
    })
    .await
}

/// Names of the filter's stats, histograms included.
async fn names(gate: &Gate) -> Result<Vec<String>> {
    let page = gate.admin_get("/stats").await?;
    let ours = page.lines().filter(|line| line.starts_with("wasmcustom."));
    Ok(ours.map(|line| line.rsplit_once(": ").unwrap_or((line, "")).0.to_owned()).collect())
}

#[tokio::test]
async fn fifty_waiting_requests_are_answered_and_the_new_limits_hold() -> Result<()> {
    for workers in WORKERS {
        for (before, after) in [(2, 6), (6, 2)] {
            let upstream = Upstream::start(|_| Script::after(Duration::from_millis(50))).await?;
            let policy = |permits| common::policy(permits, &common::patient());
            let gate = common::gate(&upstream, workers, policy(before)).discovered();
            let mut gate = gate.start().await?;
            let crowd = common::crowd(gate.addr(), vec![Chat::new(MODEL); 50 + before as usize]);
            // How many wait falls as they are served: it is enough that nearly all still do.
            gate.wait_for_stats("requests wait", PATIENCE, |stats| {
                stats.sum("slogate_queue_depth", &[]) >= 20
            })
            .await?;
            assert_eq!(gate.push_policy(&policy(after)).await?, Push::Taken);
            let crowd = common::answers(crowd).await?;
            assert!(crowd.iter().all(|answer| answer.status == 200));
            let during = upstream.peak();
            assert!(during <= before.max(after) as usize, "{during}");

            in_force(&gate, u64::from(after)).await?;
            upstream.forget();
            let later =
                common::answers(common::crowd(gate.addr(), vec![Chat::new(MODEL); 30])).await?;
            assert!(later.iter().all(|answer| answer.status == 200));
            assert_eq!(upstream.peak(), after as usize);
            println!("{workers} workers, {before} to {after} permits: peak {during}, then {after}");
            common::settled(&gate, 80 + u64::from(before)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn waiters_of_a_tier_or_model_that_is_gone_are_still_answered() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(150))).await?;
        let tiers = json!([
            {"name": "high", "weight": 4, "queue": common::patient()},
            {"name": "low", "weight": 1, "queue": common::patient()},
        ]);
        let model = |name: &str| json!({"name": name, "cluster": CLUSTER, "max_in_flight": 1});
        let old = json!({
            "models": [model(MODEL), model("old")],
            "tiers": tiers,
            "keys": {"unknown": {"tier": "high"}},
        });
        let new = json!({"models": [model(MODEL)], "tiers": [tiers[0]]});
        let gate = common::gate(&upstream, workers, old).discovered();
        let mut gate = gate.start().await?;
        let low = |model: &str| Chat::new(model).header("x-slogate-tier", "low");
        let chats = [Chat::new(MODEL), Chat::new("old"), low(MODEL), low("old")];
        let all = chats.iter().cycle().take(4 * 4).cloned();
        let crowd = common::crowd(gate.addr(), all);
        common::waiting(&gate, 14).await?;
        assert_eq!(gate.push_policy(&new).await?, Push::Taken);
        let crowd = common::answers(crowd).await?;
        for answer in &crowd {
            assert_eq!(answer.status, 200, "{:?}", answer.body);
            // It was served as what it came in as.
            assert!(answer.header("x-slogate-tier").is_some());
        }
        let of = |name, value| crowd.iter().filter(|a| a.header(name) == Some(value)).count();
        assert_eq!((of("x-slogate-tier", "low"), of("x-slogate-model", "old")), (8, 8));
        assert_eq!(upstream.peak(), 2);
        let answer = common::ask(gate.addr(), Chat::new("old")).await?;
        common::refused(&answer, 404, "model_not_found");
        let answer = common::ask(gate.addr(), low(MODEL)).await?;
        common::refused(&answer, 400, "invalid_request_error");
        let stats = common::settled(&gate, 18).await?;
        // Those that ended when their names were gone have the label that says so.
        let unknown = stats.sum("slogate_requests", &[("tier", "unknown"), ("outcome", "ok")]);
        assert_eq!(unknown, 8, "{}", common::filter_stats(&stats));
    }
    Ok(())
}

#[tokio::test]
async fn a_bad_push_changes_nothing() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(30))).await?;
        let good = common::policy(2, &common::patient());
        let mut gate = common::gate(&upstream, workers, good.clone()).discovered().start().await?;
        common::ask(gate.addr(), Chat::new(MODEL)).await?;
        let digest =
            |stats: &slogate_integration::harness::Stats| stats.sum("slogate_policy_digest", &[]);
        let before = gate.stats().await?;
        let mut misspelt = good.clone();
        misspelt["models"][0]["max_inflight"] = json!(9);
        let mut many = good.clone();
        many["models"][0]["max_in_flight"] = json!(-1);
        many["tiers"][0]["queue"]["max_wait"] = json!("soon");
        many["default_model"] = json!("nobody");
        let crowd = common::crowd(gate.addr(), vec![Chat::new(MODEL); 30]);
        common::running(&upstream, 2).await?;
        let bad = [misspelt, many, json!({}), json!({"models": [], "tiers": []})];
        for bad in &bad {
            assert_eq!(gate.push_policy(bad).await?, Push::Refused, "{bad}");
        }
        for answer in common::answers(crowd).await? {
            assert_eq!(answer.status, 200);
        }
        let after = gate.stats().await?;
        assert_eq!(digest(&before), digest(&after));
        let name = "extension_config_discovery.http_filter.slogate.update_rejected";
        assert_eq!(after.get(name) - before.get(name), bad.len() as u64);
        for _ in 0..2 * workers {
            assert_eq!(common::ask(gate.addr(), Chat::new(MODEL)).await?.status, 200);
        }
        assert_eq!(upstream.peak(), 2);
        // A good one is taken afterwards.
        assert_eq!(gate.push_policy(&common::policy(3, &common::patient())).await?, Push::Taken);
        in_force(&gate, 3).await?;
        assert_ne!(digest(&before), digest(&gate.stats().await?));
        common::settled(&gate, 31 + 2 * workers as u64).await?;
    }
    Ok(())
}

#[tokio::test]
async fn twenty_pushes_make_no_more_vms_and_no_more_stats() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(5))).await?;
        let policy = |permits| common::policy(permits, &common::patient());
        let mut gate = common::gate(&upstream, workers, policy(1)).discovered().start().await?;
        let crowd = async |gate: &Gate| {
            let crowd = common::crowd(gate.addr(), vec![Chat::new(MODEL); 8]);
            anyhow::Ok(common::answers(crowd).await?.iter().all(|answer| answer.status == 200))
        };
        assert!(crowd(&gate).await?);
        common::settled(&gate, 8).await?;
        let vms = gate.stat("wasm.wasm_vm_count").await?;
        let before = names(&gate).await?;
        assert!(vms > 0 && before.len() > 8, "{vms} {before:?}");
        for round in 0..20 {
            assert_eq!(gate.push_policy(&policy(2 + round % 2)).await?, Push::Taken);
            assert!(crowd(&gate).await?);
        }
        common::settled(&gate, 21 * 8).await?;
        assert_eq!(names(&gate).await?, before);
        let stats = gate
            .wait_for_stats("no VM is left over", PATIENCE, |stats| {
                stats.get("wasm.wasm_vm_count") <= vms
            })
            .await?;
        println!(
            "{workers} workers: {} VMs, {} stats",
            stats.get("wasm.wasm_vm_count"),
            before.len()
        );
        assert_eq!(stats.get("wasm.wasm_vm_count"), vms);
    }
    Ok(())
}

#[tokio::test]
async fn workers_hand_permits_over_to_each_other_after_pushes() -> Result<()> {
    for workers in [2, 4] {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(20))).await?;
        let policy = |permits: u32, wait: &str| -> Value {
            common::policy(permits, &json!({"capacity": 100, "max_wait": wait}))
        };
        let mut gate =
            common::gate(&upstream, workers, policy(1, "30s")).discovered().start().await?;
        let mut clients = Vec::new();
        for worker in 0..workers {
            clients.push(gate.client_on_worker(worker).await?);
        }
        let mut asked = 0;
        for round in 0..4 {
            if round > 0 {
                let wait = ["31s", "32s"][round % 2];
                assert_eq!(gate.push_policy(&policy(1, wait)).await?, Push::Taken);
            }
            let mut tasks = tokio::task::JoinSet::new();
            for mut client in clients.drain(..) {
                tasks.spawn(async move {
                    for _ in 0..12 {
                        assert_eq!(client.send(Chat::new(MODEL)).await?.status, 200);
                    }
                    anyhow::Ok::<Client>(client)
                });
            }
            for client in tasks.join_all().await {
                clients.push(client?);
            }
            let seen = upstream.seen();
            let gaps = seen[asked..]
                .windows(2)
                .filter_map(|pair| Some((pair[1].started - pair[0].ended?).as_secs_f64() * 1e3));
            let mut gaps: Vec<_> = gaps.collect();
            asked = seen.len();
            let median = common::median(&mut gaps);
            let worst = gaps.last().copied().unwrap_or_default();
            println!(
                "{workers} workers, after {round} pushes: hand-over {median:.1} ms, worst {worst:.1}"
            );
            // Without a message it takes until the other looks by itself, a quarter of a second.
            assert!(median < 20.0, "{gaps:?}");
            assert!(gaps[gaps.len() * 9 / 10] < 100.0, "{gaps:?}");
        }
        assert_eq!(upstream.peak(), 1);
    }
    Ok(())
}
