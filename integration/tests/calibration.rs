//! What answers say their prompts cost corrects the estimate, in every worker.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use common::{MODEL, PATIENCE, WORKERS};
use serde_json::json;
use slogate_integration::harness::{
    Answer, Chat, Client, Gate, Push, Script, Seen, Upstream, eventually,
};

/// Answers with the usage the request's header asks for, or none; a stream in pieces cut anywhere.
fn answer(seen: &Seen) -> Script {
    let status = seen.header("x-status").and_then(|status| status.parse().ok()).unwrap_or(200);
    let usage = seen.header("x-prompt-tokens").map_or("null".to_owned(), |tokens| {
        format!(r#"{{"prompt_tokens":{tokens},"total_tokens":9,"completion_tokens":3}}"#)
    });
    // A text that poses as usage.
    let content = r#"{"content":"\"usage\":{\"prompt_tokens\":77}"}"#;
    if seen.field("stream") != Some(json!(true)) {
        let body = format!(
            r#"{{"choices":[{{"message":{content}}}],"usage":{usage},"prompt_logprobs":null}}"#
        );
        return Script::bytes(body).status(status);
    }
    let token = format!("data: {{\"choices\":[{{\"delta\":{content}}}]}}\n\n");
    let mut text = ": keep-alive\n\n".to_owned() + &token.repeat(5);
    if usage != "null" {
        text += "data: {\"choices\":[],\"usage\":";
        text += &usage;
        text += "}\n\n";
    }
    text += "data: [DONE]\n\n";
    let size = 40 + seen.order % 100;
    let pieces: Vec<_> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
    Script::stream(pieces.into_iter().map(|piece| (Duration::from_millis(1), piece))).status(status)
}

/// About three hundred tokens; the answer says so many.
fn chat(tokens: Option<&str>, stream: bool) -> Chat {
    let mut chat = Chat::new(MODEL).words(300);
    if stream {
        chat = chat.stream().field("stream_options", json!({"include_usage": true}));
    }
    match tokens {
        Some(tokens) => chat.header("x-prompt-tokens", tokens),
        None => chat,
    }
}

fn count(answer: &Answer) -> Result<u64> {
    assert_eq!(answer.header("x-slogate-prompt-tokens-estimated"), Some("true"));
    let count = answer.header("x-slogate-prompt-tokens").context("no count")?;
    Ok(count.parse()?)
}

async fn asked(addr: SocketAddr, tokens: Option<&str>, stream: bool) -> Result<u64> {
    let answer = common::ask(addr, chat(tokens, stream)).await?;
    assert_eq!((answer.status.as_u16(), &answer.broken), (200, &None));
    count(&answer)
}

/// Waits until the count is within 4 % of the truth in each worker.
async fn known_everywhere(gate: &Gate, workers: usize, truth: u64) -> Result<u64> {
    let mut asked = 0;
    for worker in 0..workers {
        let mut client: Client = gate.client_on_worker(worker).await?;
        eventually("the worker knows", PATIENCE, async || {
            asked += 1;
            let found = count(&client.send(chat(None, false)).await?)?;
            Ok((found.abs_diff(truth) * 25 <= truth).then_some(()))
        })
        .await?;
    }
    Ok(asked)
}

#[tokio::test]
async fn thirty_answers_correct_the_estimate_in_every_worker_and_a_push_keeps_it() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(answer).await?;
        let policy = common::policy(16, &common::patient());
        let gate = common::gate(&upstream, workers, policy.clone()).discovered();
        let mut gate = gate.start().await?;
        let addr = gate.addr();

        // No usage, lies and errors change nothing.
        let plain = asked(addr, None, false).await?;
        assert!((250..400).contains(&plain), "{plain}");
        let truth = plain * 2;
        let text = truth.to_string();
        let mut requests = 1;
        for stream in [false, true] {
            for lie in ["1000000000000", "-7", "\"600\"", "6e2", "0", "[600]"] {
                assert_eq!(asked(addr, Some(lie), stream).await?, plain);
                requests += 1;
            }
            for _ in 0..3 {
                let chat = chat(Some(&text), stream).header("x-status", "400");
                assert_eq!(common::ask(addr, chat).await?.status, 400);
                assert_eq!(asked(addr, None, stream).await?, plain);
                requests += 2;
            }
        }

        for order in 0..30 {
            asked(addr, Some(&text), order % 2 == 0).await?;
            requests += 1;
        }
        requests += known_everywhere(&gate, workers, truth).await?;
        let labels = [("model", MODEL), ("kind", "words")];
        let factor = gate.stats().await?.sum("slogate_token_factor_permille", &labels);
        assert!(factor.abs_diff(2_000) < 60, "{factor}");

        // The steady ratio is that of the counts given out: now they are right, it comes to 1.
        let mut answers = 0;
        let ratio = eventually("the ratio is steady", PATIENCE, async || {
            for _ in 0..5 {
                asked(addr, Some(&text), answers % 2 == 0).await?;
                answers += 1;
            }
            let ratio =
                gate.stats().await?.sum("slogate_token_ratio_permille", &[("model", MODEL)]);
            assert!(ratio > 900, "{ratio}");
            Ok((ratio.abs_diff(1_000) < 50).then_some(ratio))
        })
        .await?;
        requests += answers;

        let mut pushed = policy;
        pushed["expected_output_tokens"] = json!(7);
        assert_eq!(gate.push_policy(&pushed).await?, Push::Taken);
        let found = asked(addr, None, false).await?;
        assert!(found.abs_diff(truth) * 25 <= truth, "{found} {truth}");
        requests += 1;
        println!(
            "{workers} workers: estimate {plain}, truth {truth}, count {found}, factor {factor}, \
             ratio {ratio} after {answers} more"
        );
        let stats = common::settled(&gate, requests).await?;
        assert_eq!(common::outcome(&stats, "ok"), requests - 6);
        let log = gate.wait_for_log(usize::try_from(requests)?, PATIENCE).await?;
        assert!(log.iter().all(|line| line["context_exact"] == false), "{log:#?}");
    }
    Ok(())
}
