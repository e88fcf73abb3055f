//! The timer of the shipped bootstrap that ends what stays held: it runs while a request is held,
//! whatever the client sends, and does not run once the request has gone to the engine.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use slogate_integration::harness::{Bootstrap, Chat, Client, Gate, Script, Upstream, eventually};

const PATIENCE: Duration = Duration::from_secs(10);
const HELD: Duration = Duration::from_secs(1);

/// The timer of the route `held`, shortened.
fn shorten(bootstrap: &mut Bootstrap) -> Result<()> {
    let routes = &mut bootstrap.manager()?["route_config"]["virtual_hosts"][0]["routes"];
    let held = routes.as_array_mut().into_iter().flatten().find(|route| route["name"] == "held");
    let held = held.expect("the bootstrap has a route `held`");
    assert_eq!(held["route"]["idle_timeout"], "35s");
    held["route"]["idle_timeout"] = json!(format!("{}s", HELD.as_secs()));
    Ok(())
}

#[tokio::test]
async fn a_request_that_stays_held_is_ended_and_one_that_runs_is_not() -> Result<()> {
    let upstream = Upstream::start(|_| Script::after(4 * HELD)).await?;
    let gate = Gate::builder()
        .cluster("vllm_deepseek_v4", upstream.addr())
        .policy(json!({
            "models": [{"name": "m", "cluster": "vllm_deepseek_v4", "max_in_flight": 1}],
            "size_classes": [{"name": "all"}],
            "tiers": [{"name": "t", "weight": 1, "queue": {"capacity": 10, "max_wait": "60s"}}],
        }))
        .edit(shorten)
        .start()
        .await?;
    let mut running = Client::http1(gate.addr()).await?;
    let running = tokio::spawn(async move { running.send(Chat::new("m")).await });
    eventually("the first request runs", PATIENCE, async || {
        Ok((upstream.running() == 1).then_some(()))
    })
    .await?;

    let honest = Chat::new("m");
    let forged = honest.clone().header("x-slogate-cluster", "vllm_deepseek_v4");
    let mut clients = Vec::new();
    for chat in [honest, forged] {
        let mut client = Client::http1(gate.addr()).await?;
        clients.push(tokio::spawn(async move { client.send(chat).await }));
    }
    for client in clients {
        let answer = client.await??;
        assert_eq!(answer.status, 504);
        assert!(answer.total() >= HELD && answer.total() < 3 * HELD, "{:?}", answer.total());
    }
    let answer = running.await??;
    assert_eq!(answer.status, 200);
    assert!(answer.total() >= 4 * HELD);
    assert_eq!(upstream.seen().len(), 1);
    Ok(())
}
