//! The table of ambiguous, hostile and odd bodies, shared with the tests in a real Envoy.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use serde_json::Value;

use super::{Texts, read};
use crate::request::{Endpoint, PathMatch, ReadError};

const TABLE: &str = include_str!("../../../../../integration/tests/data/bodies.json");

fn rows() -> Vec<Value> {
    serde_json::from_str(TABLE).unwrap()
}

fn body(row: &Value) -> Vec<u8> {
    match row["body_base64"].as_str() {
        Some(text) => from_base64(text),
        None => row["body"].as_str().unwrap().as_bytes().to_vec(),
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter(|&b| b != b'=');
    let digits = digits.map(|b| alphabet.iter().position(|&a| a == b).unwrap());
    let (mut out, mut bits, mut held) = (Vec::new(), 0, 0);
    for digit in digits {
        held = (held << 6) | digit;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((held >> bits) & 0xFF).unwrap());
        }
    }
    out
}

fn endpoint(row: &Value) -> Endpoint {
    match Endpoint::from_path(row["endpoint"].as_str().unwrap().as_bytes()) {
        PathMatch::Inference(endpoint) => endpoint,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_body_of_the_table_gets_its_documented_answer() {
    let rows = rows();
    assert!(rows.len() >= 60);
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        let result = read(endpoint(row), &body(row), &mut Texts::default());
        let status = result.as_ref().map_or_else(ReadError::status, |_| 200);
        assert_eq!(u64::from(status), row["status"], "{name}: {result:?}");
        match result {
            Ok(facts) => {
                assert_eq!(facts.model.as_deref(), row["model"].as_str(), "{name}");
                for (key, value) in [
                    ("stream", Value::from(facts.stream)),
                    ("choices", facts.choices.into()),
                    ("max_output_tokens", facts.max_output_tokens.into()),
                    ("prompts", facts.prompts.into()),
                    ("token_ids", facts.token_ids.into()),
                    ("output_cap", facts.output_cap().into()),
                ] {
                    if let Some(expected) = row.get(key) {
                        assert_eq!(&value, expected, "{name}: {key}");
                    }
                }
            }
            Err(error) => {
                if let Some(param) = row.get("param") {
                    assert_eq!(error.param(), param.as_str(), "{name}: {error}");
                }
            }
        }
    }
}

#[test]
fn every_start_of_every_body_of_the_table_is_refused() {
    for row in rows() {
        let body = body(&row);
        // Long rows repeat themselves; their first part has seen it all.
        for end in 0..body.len().min(400) {
            let start = &body[..end];
            let whole = body[end..].iter().all(|b| b" \t\r\n".contains(b));
            let result = read(endpoint(&row), start, &mut Texts::default());
            assert!(result.is_err() || whole || row["status"] != 200, "{row} {end}");
        }
    }
}
