//! The log line of a request: its fields, their sums, and the client's own clock beside them.

mod common;

use std::time::Duration;

use anyhow::{Context as _, Result};
use common::{CLUSTER, MODEL, PATIENCE, Raw, WORKERS};
use serde_json::{Value, json};
use slogate_integration::harness::{
    Answer, Chat, Client, Ending, Script, Upstream, workspace_root,
};

/// The fields that the README's table has.
fn documented() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(workspace_root().join("README.md"))?;
    let (_, section) = text.split_once("\n## Access log\n").context("no section on the log")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = rows.flat_map(|cell| cell.split(',').map(|name| name.trim().replace('`', "")));
    Ok(names.collect())
}

struct Times {
    queue_start: f64,
    exec_start: f64,
    first_token: f64,
    finish: f64,
    queue: f64,
    exec: f64,
}

fn times(line: &Value) -> Times {
    let at = |name: &str| common::unix_millis(line[name].as_str().unwrap_or_default());
    let of = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
    Times {
        queue_start: at("queue_start"),
        exec_start: at("exec_start"),
        first_token: at("first_token"),
        finish: at("finish_time"),
        queue: of("queue_ms"),
        exec: of("exec_ms"),
    }
}

fn find<'a>(log: &'a [Value], answer: &Answer) -> Result<&'a Value> {
    let id = answer.header("x-request-id").context("x-request-id")?;
    log.iter().find(|line| line["request_id"] == id).context("no line with this id")
}

#[tokio::test]
async fn a_line_has_the_documented_fields_adds_up_and_agrees_with_the_client() -> Result<()> {
    let fields = documented()?;
    assert!(fields.len() >= 13, "{fields:?}");
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(20))).await?;
        let mut policy = common::policy(2, &common::patient());
        policy["keys"] = json!({
            "unknown": {"tier": "t"},
            "entries": [{"id": "shop", "tier": "t", "sha256": common::sha256("sk-1")}],
        });
        let gate = common::gate(&upstream, workers, policy).start().await?;
        let chat = Chat::new(MODEL).words(40).key("sk-1");
        let before = common::now_millis();
        let crowd = common::crowd(gate.addr(), vec![chat; 24]);
        let sent = common::now_millis();
        let answers = common::answers(crowd).await?;
        let after = common::now_millis();
        let log = gate.wait_for_log(answers.len(), PATIENCE).await?;
        assert_eq!(log.len(), answers.len());
        let (mut totals, mut heads, mut waited) = (Vec::new(), Vec::new(), 0);
        for answer in &answers {
            assert_eq!(answer.status, 200);
            let line = find(&log, answer)?;
            for field in &fields {
                assert!(!line[field].is_null(), "{field}: {line}");
            }
            assert_eq!(line["key"], "shop");
            assert_eq!((&line["outcome"], &line["status"]), (&json!("ok"), &json!(200)));
            assert_eq!((&line["model"], &line["tier"]), (&json!(MODEL), &json!("t")));
            assert_eq!(line["cluster"], CLUSTER);
            assert_eq!(
                Some(line["class"].as_str().unwrap_or_default()),
                answer.header("x-slogate-class")
            );
            let tokens = line["context_len"].as_f64();
            assert_eq!(tokens, answer.number("x-slogate-prompt-tokens"));
            assert!(tokens > Some(40.0) && tokens < Some(80.0), "{line}");

            let t = times(line);
            assert!(t.queue_start <= t.exec_start, "{line}");
            assert!(t.exec_start <= t.first_token && t.first_token <= t.finish, "{line}");
            assert!(t.queue_start >= before - 1.0 && t.finish <= after + 1.0, "{line}");
            // Times are cut to whole ms, differences are not.
            assert!((t.exec_start - t.queue_start - t.queue).abs() < 1.0 + 1e-6, "{line}");
            assert!((t.finish - t.exec_start - t.exec).abs() < 1.0 + 1e-6, "{line}");
            assert_eq!(answer.number("x-slogate-queue-ms"), Some(t.queue));
            let head = answer.number("x-slogate-exec-ms").context("x-slogate-exec-ms")?;
            assert!((20.0..=t.exec).contains(&head), "{head} {line}");
            let timing = format!("queue;dur={:.3}, exec;dur={head:.3}", t.queue);
            assert_eq!(answer.header("server-timing"), Some(timing.as_str()));
            waited += i32::from(t.queue >= 15.0);

            totals.push((answer.total().as_secs_f64() * 1e3 - t.queue - t.exec).abs());
            let headers = (answer.headers_at - answer.sent).as_secs_f64() * 1e3;
            heads.push((headers - t.queue - head).abs());
        }
        assert!(waited >= 20, "only {waited} of {} waited", answers.len());
        let (totals, heads) = (common::median(&mut totals), common::median(&mut heads));
        println!(
            "{workers} workers: off the client's clock by {totals:.2} ms (log), {heads:.2} ms (headers), medians; sent within {:.1} ms",
            sent - before
        );
        assert!(totals < 5.0, "{totals}");
        assert!(heads < 5.0, "{heads}");
        common::settled(&gate, answers.len() as u64).await?;
    }
    Ok(())
}

/// One after another, so that the client's clock has nothing of the other clients in it.
#[tokio::test]
async fn wall_times_are_those_of_the_client() -> Result<()> {
    for workers in WORKERS {
        let upstream = Upstream::start(|_| Script::after(Duration::from_millis(5))).await?;
        let gate = common::gate(&upstream, workers, common::policy(2, &common::patient()));
        let gate = gate.start().await?;
        let mut client = Client::http1(gate.addr()).await?;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for count in 1..=21 {
            let start = common::now_millis();
            let answer = client.send(Chat::new(MODEL)).await?;
            let end = common::now_millis();
            let log = gate.wait_for_log(count, PATIENCE).await?;
            let t = times(find(&log, &answer)?);
            starts.push((t.queue_start - start).abs());
            ends.push((end - t.finish).abs());
        }
        let (start, end) = (common::median(&mut starts), common::median(&mut ends));
        println!("{workers} workers: queue_start {start:.2} ms, finish_time {end:.2} ms off");
        assert!(start < 5.0 && end < 5.0, "{start} {end}");
    }
    Ok(())
}

#[tokio::test]
async fn requests_that_do_not_end_well_have_a_line_with_what_is_known() -> Result<()> {
    let upstream =
        Upstream::start(|_| Script::after(Duration::ZERO).without_body().ending(Ending::Hang))
            .await?;
    let queue = json!({"capacity": 1, "max_wait": "100ms"});
    let gate = common::gate(&upstream, 1, common::policy(1, &queue)).start().await?;
    let held = common::crowd(gate.addr(), [Chat::new(MODEL)]);
    common::running(&upstream, 1).await?;
    let timed_out = common::ask(gate.addr(), Chat::new(MODEL)).await?;
    common::refused_for_now(&timed_out, 503, "queue_timeout");
    let unreadable = common::ask(gate.addr(), Chat::new(MODEL).body("{")).await?;
    let unknown = common::ask(gate.addr(), Chat::new("other")).await?;
    drop(held);
    common::settled(&gate, 4).await?;
    let log = gate.wait_for_log(4, PATIENCE).await?;

    let line = find(&log, &timed_out)?;
    assert_eq!((&line["outcome"], &line["model"]), (&json!("queue_timeout"), &json!(MODEL)));
    assert_eq!(timed_out.number("x-slogate-queue-ms"), line["queue_ms"].as_f64());
    assert!(line["queue_ms"].as_f64() >= Some(100.0) && line["context_len"].is_number(), "{line}");
    assert_eq!(line["details"], "slogate_queue_timeout");
    for name in ["exec_start", "first_token", "exec_ms"] {
        assert!(line.get(name).is_some_and(Value::is_null), "{name}: {line}");
    }
    let line = find(&log, &unreadable)?;
    assert_eq!((&line["outcome"], &line["model"]), (&json!("invalid_request"), &Value::Null));
    assert_eq!(line["tier"], "t");
    assert_eq!(find(&log, &unknown)?["outcome"], "model_not_found");
    let left = log.iter().find(|line| line["outcome"] == "left_running").context("left_running")?;
    assert_eq!((&left["status"], &left["flags"]), (&json!(0), &json!("DC")));
    assert!(left["exec_ms"].is_number() && left["first_token"].is_null(), "{left}");
    Ok(())
}

#[tokio::test]
async fn a_hostile_request_id_cannot_break_the_line_or_the_answer() -> Result<()> {
    for keep in [false, true] {
        let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
        let gate = common::gate(&upstream, 1, common::policy(1, &common::patient()))
            .edit(move |bootstrap| {
                bootstrap.manager()?["preserve_external_request_id"] = json!(keep);
                Ok(())
            })
            .start()
            .await?;
        let ids: [&[u8]; 6] = [
            br#"a","outcome":"ok","x":""#,
            br"back\slash\",
            b"\"",
            "\u{6cb3}\u{2028}".as_bytes(),
            b"\xff\xfe\x80",
            b"tab\there {} \\u0000 </script>",
        ];
        for id in ids {
            for body in [Chat::new(MODEL).bytes(), "{".into()] {
                let mut raw = Raw::connect(gate.addr()).await?;
                raw.write("POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\nx-request-id: ")
                    .await?;
                raw.write(id).await?;
                raw.write(format!("\r\ncontent-length: {}\r\n\r\n", body.len())).await?;
                raw.write(&body).await?;
                let (status, text) = raw.answer().await?;
                let answer: Value = serde_json::from_str(&text).context(text.clone())?;
                let bad = body.len() == 1;
                assert_eq!(status, if bad { 400 } else { 200 }, "{text}");
                assert_eq!(answer.get("error").is_some(), bad, "{text}");
            }
        }
        // Lines that are not JSON are an error of this call.
        let log = gate.wait_for_log(2 * ids.len(), PATIENCE).await?;
        assert_eq!(log.len(), 2 * ids.len());
        for (at, line) in log.iter().enumerate() {
            let expected = if at % 2 == 0 { "ok" } else { "invalid_request" };
            assert_eq!(line["outcome"], expected, "{line}");
            let sent = std::str::from_utf8(ids[at / 2]).ok();
            let kept = sent.is_some() && line["request_id"].as_str() == sent;
            println!("keep={keep} {}", line["request_id"]);
            assert!(kept == (keep && sent.is_some()), "{line}");
        }
    }
    Ok(())
}
