//! The table of ambiguous, hostile and odd bodies, through a real Envoy and past Python's reader.
//!
//! Each row is sent in every framing: its answer may not depend on how the bytes were cut.

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use common::{CLUSTER, MODEL, PATIENCE};
use serde_json::{Value, json};
use slogate_integration::harness::{Answer, Chat, Client, Gate, Piece, Script, Upstream};

const TABLE: &str = include_str!("data/bodies.json");

/// Reads one JSON line a body, writes one a reading. `json.loads` is the engine's own first step;
/// the coercions behind it are those of its lax models.
const READER: &str = r#"
import base64, json, sys

def lax_bool(value):
    if isinstance(value, str):
        text = value.lower()
        if text in ("1", "true", "t", "yes", "y", "on"):
            return True
        if text in ("0", "false", "f", "no", "n", "off"):
            return False
        raise ValueError("no bool")
    if value in (0, 1):
        return bool(value)
    raise ValueError("no bool")

def lax_int(value):
    if isinstance(value, bool):
        return int(value)
    number = float(value) if isinstance(value, str) and "." in value else value
    if isinstance(number, str):
        return int(number.strip())
    if number != int(number):
        raise ValueError("no int")
    return int(number)

for line in sys.stdin:
    row = json.loads(line)
    body = json.loads(base64.b64decode(row["body"]))
    path = row["path"]
    seen = {"model": body.get("model") or None}
    if path != "/v1/embeddings":
        stream = body.get("stream")
        seen["stream"] = False if stream is None else lax_bool(stream)
    chat = path == "/v1/chat/completions" or (path == "/invocations" and body.get("messages"))
    names = ["max_output_tokens"] if path == "/v1/responses" else ["max_tokens"]
    if chat:
        names.insert(0, "max_completion_tokens")
    caps = [body[name] for name in names if body.get(name) is not None]
    completion = path == "/v1/completions" or (path == "/invocations" and not chat)
    # Its own default where a completion names none.
    seen["cap"] = lax_int(caps[0]) if caps else (16 if completion else None)
    print(json.dumps(seen), flush=True)
"#;

fn rows() -> Result<Vec<Value>> {
    Ok(serde_json::from_str(TABLE)?)
}

fn body(row: &Value) -> Result<Bytes> {
    Ok(match row["body_base64"].as_str() {
        Some(text) => BASE64_STANDARD.decode(text)?.into(),
        None => row["body"].as_str().context("a body")?.to_owned().into(),
    })
}

/// Every name that a row with an answer of 200 asks for is one of the model's.
fn policy(rows: &[Value]) -> Value {
    let mut names: Vec<_> = rows.iter().filter_map(|row| row["model"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| *name != MODEL);
    let mut policy = common::policy(1000, &common::patient());
    policy["models"][0]["aliases"] = json!(names);
    policy["default_model"] = json!(MODEL);
    policy
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    Length,
    Chunked,
    Http2,
}

async fn send(gate: &Gate, row: &Value, framing: Framing) -> Result<Answer> {
    let body = body(row)?;
    let chat = Chat::new(MODEL).path(row["endpoint"].as_str().context("an endpoint")?);
    match framing {
        Framing::Length => common::ask(gate.addr(), chat.body(body)).await,
        Framing::Chunked | Framing::Http2 => {
            let (head, tail) = (body.slice(..body.len() / 2), body.slice(body.len() / 2..));
            let pieces = [head, tail].into_iter().filter(|piece| !piece.is_empty());
            let chat = chat.pieces(pieces.map(Piece::Data).collect());
            match framing {
                Framing::Http2 => Client::http2(gate.addr()).await?.send(chat).await,
                _ => common::ask(gate.addr(), chat).await,
            }
        }
    }
}

/// What Python reads in each of these bodies.
fn python(bodies: &[(&str, &Bytes)]) -> Result<Vec<Value>> {
    let mut lines = String::new();
    for (path, body) in bodies {
        lines += &json!({"path": path, "body": BASE64_STANDARD.encode(body)}).to_string();
        lines.push('\n');
    }
    let mut child = Command::new("python3")
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting python3")?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().expect("the writer")?;
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[tokio::test]
async fn every_body_of_the_table_gets_its_answer_and_python_reads_what_the_gate_read() -> Result<()>
{
    let rows = rows()?;
    assert!(rows.len() >= 60);
    let upstream = Upstream::start(|_| Script::after(Duration::ZERO)).await?;
    let gate = common::gate(&upstream, 1, policy(&rows)).start().await?;
    let mut passed = Vec::new();
    for row in &rows {
        for framing in [Framing::Length, Framing::Chunked, Framing::Http2] {
            let what = format!("{} ({framing:?})", row["name"]);
            let answer = send(&gate, row, framing).await.context(what.clone())?;
            assert_eq!(answer.status.as_u16(), row["status"], "{what}: {:?}", answer.body);
            if row["status"] == 200 {
                assert_eq!(answer.header("x-slogate-model"), Some(MODEL), "{what}");
                passed.push(row);
            } else {
                let param = common::refused(&answer, 400, "invalid_request_error");
                assert!(
                    row.get("param").is_none_or(|expected| param == *expected),
                    "{what}: {param}"
                );
            }
        }
    }

    let seen = upstream.seen();
    assert_eq!(seen.len(), passed.len());
    let mut sent = Vec::new();
    for (row, seen) in passed.iter().zip(&seen) {
        assert_eq!(seen.body, body(row)?, "{}", row["name"]);
        assert_eq!(seen.target, format!("POST {}", row["endpoint"].as_str().unwrap_or_default()));
        sent.push((row["endpoint"].as_str().context("an endpoint")?, &seen.body));
    }
    let readings = python(&sent)?;
    assert_eq!(
        readings.len(),
        passed.len(),
        "python3 gave up on {}",
        passed[readings.len()]["name"]
    );
    for (row, reading) in passed.iter().zip(&readings) {
        let name = &row["name"];
        assert_eq!(reading["model"], row["model"], "{name}");
        if let Some(stream) = reading.get("stream") {
            assert_eq!(*stream, row["stream"], "{name}");
        }
        if let Some(cap) = row.get("max_output_tokens")
            && row["endpoint"] != "/v1/embeddings"
        {
            assert_eq!(reading["cap"], *cap, "{name}");
        }
    }
    let stats = common::settled(&gate, 3 * rows.len() as u64).await?;
    assert_eq!(common::outcome(&stats, "ok"), passed.len() as u64);
    let log = gate.wait_for_log(3 * rows.len(), PATIENCE).await?;
    assert_eq!(log.iter().filter(|line| line["cluster"] == CLUSTER).count(), passed.len());
    println!(
        "{} rows x 3 framings: {} passed unchanged and read alike by python3, {} refused",
        rows.len(),
        passed.len(),
        3 * rows.len() - passed.len()
    );
    Ok(())
}
