//! A megabyte that was made to be expensive: what it costs, and how long others have to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use slogate_integration::harness::{Chat, Client, Gate};

use super::count::body;

/// Bytes of a text.
const SIZE: usize = 1 << 20;

/// Requests of each kind that are measured.
const REQUESTS: u32 = 24;

/// The bodies by name.
pub(crate) fn bodies() -> Vec<(&'static str, Bytes)> {
    let filled = |piece: &str| piece.repeat(SIZE / piece.len());
    let plain = |piece: &str| Bytes::from(body(&filled(piece), false));
    let inside = |key: &str, value: String| {
        Bytes::from(format!(
            r#"{{"model":"deepseek-v4","messages":[{{"role":"user","content":"x"}}],"{key}":{value}}}"#
        ))
    };
    let faces = filled(r"\ud83d\ude00");
    let faces =
        format!(r#"{{"model":"deepseek-v4","messages":[{{"role":"user","content":"{faces}"}}]}}"#);
    // As deep as is read, again and again; the body's own object is one level.
    let nest = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let nests = |levels: usize| vec![nest(levels); SIZE / (2 * levels + 1)].join(",");
    vec![
        ("no break", plain("a")),
        ("no break, random letters", Bytes::from(body(&letters(), false))),
        ("blanks", plain(" ")),
        ("blanks of all lengths", Bytes::from(body(&gaps(), false))),
        ("a repeated part of an added token", plain("‹｜place▁holder▁no▁")),
        ("one hanzi", plain("字")),
        ("escaped surrogates", Bytes::from(faces)),
        (
            "numbers of a tool",
            inside(
                "tools",
                format!(
                    r#"[{{"type":"function","function":{{"name":"f","parameters":[{}1]}}}}]"#,
                    "1.2345678901234e300,".repeat(SIZE / 20)
                ),
            ),
        ),
        ("deep nesting, not read", inside("metadata", format!("[{}]", nests(126)))),
        (
            "deep nesting, read",
            inside(
                "tools",
                format!(
                    r#"[{{"type":"function","function":{{"name":"f","x":[{}]}}}}]"#,
                    nests(120)
                ),
            ),
        ),
    ]
}

/// Runs of blanks none of which is as long as another.
fn gaps() -> String {
    let mut text = String::with_capacity(SIZE + 6_144);
    for length in (3_000..6_143).cycle() {
        text.push('a');
        text.extend(std::iter::repeat_n(' ', length));
        if text.len() >= SIZE {
            return text;
        }
    }
    text
}

/// Letters without a break and without a pattern.
fn letters() -> String {
    let mut state = 0x9E37_79B9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..SIZE).map(|_| next()).collect()
}

/// Milliseconds of one kind of body in one Envoy.
#[derive(Debug)]
pub(crate) struct Cost {
    /// CPU time of Envoy a request.
    pub(crate) cpu: f64,
    /// The longest wait of another client on the same worker.
    pub(crate) block: f64,
}

/// Sends a body some times, one after another, while another client asks for little.
pub(crate) async fn measure(gate: &Gate, body: &Bytes) -> Result<Cost> {
    let mut client = Client::http1(gate.addr()).await?;
    let chat = Chat::new("deepseek-v4").body(body.clone());
    for _ in 0..3 {
        send(&mut client, &chat).await?;
    }
    let before = gate.cpu_time()?;
    for _ in 0..REQUESTS {
        send(&mut client, &chat).await?;
    }
    let cpu = gate.cpu_time()?.saturating_sub(before) / REQUESTS;
    // Again, with company: its own CPU time must not count above.
    let stop = Arc::new(AtomicBool::new(false));
    let mut other = Client::http1(gate.addr()).await?;
    let watch = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let sent = Instant::now();
                send(&mut other, &Chat::new("deepseek-v4")).await?;
                longest = longest.max(sent.elapsed());
            }
            Ok::<_, anyhow::Error>(longest)
        }
    });
    for _ in 0..REQUESTS {
        send(&mut client, &chat).await?;
    }
    stop.store(true, Ordering::Relaxed);
    let block = watch.await??;
    Ok(Cost { cpu: cpu.as_secs_f64() * 1e3, block: block.as_secs_f64() * 1e3 })
}

async fn send(client: &mut Client, chat: &Chat) -> Result<()> {
    let answer = client.send(chat.clone()).await?;
    if answer.status != 200 {
        bail!("status {} instead of an answer", answer.status);
    }
    Ok(())
}
