//! `keys`: who may come in.

use std::collections::HashMap;

use serde_json::Value;

use super::{bounded, label};
use crate::config::reader::{Faults, Fields};
use crate::config::{KeyEntry, Keys, Tier, UNLISTED};
use crate::ids::FlowId;
use crate::quota::{Allowance, KeyLimits};

const MAX_KEYS: usize = 100_000;
/// Hashes of one entry: the key in use and, while keys are changed, the next.
const MAX_HASHES: usize = 2;
/// The largest `tokens_per_minute`: far above any engine, and its product with a minute's
/// nanoseconds fits in 64 bits.
const MAX_TOKENS_PER_MINUTE: u32 = 300_000_000;

pub(super) fn keys(
    fields: &mut Fields,
    tiers: &[Tier],
    models: &HashMap<String, usize>,
    faults: &mut Faults,
) -> Keys {
    let tier_of = |fields: &mut Fields, faults: &mut Faults| {
        let name = fields.need("tier", faults)?.text("tier", faults)?;
        let found = tiers.iter().position(|tier| tier.name == name);
        if found.is_none() {
            faults.add(fields.path("tier"), "names no tier of this policy");
        }
        found
    };
    let Some(mut keys) = fields.object("keys", faults) else {
        // Without a word on keys everybody has the last tier: the lowest by custom.
        return Keys { unknown: tiers.len().checked_sub(1), ..Keys::default() };
    };
    let mut unknown = tiers.len().checked_sub(1);
    let (mut unknown_limits, mut unknown_models) = (KeyLimits::default(), None);
    if let Some(mut rule) = keys.object("unknown", faults) {
        if rule.flag("reject", faults) == Some(true) {
            if rule.take("tier").is_some() {
                faults.add(rule.path("tier"), "must be absent where reject is true");
            }
            unknown = None;
        } else {
            unknown = tier_of(&mut rule, faults);
            unknown_limits = limits(&mut rule, faults);
            unknown_models = allowed(&mut rule, models, faults);
        }
        rule.finish(faults);
    }
    let mut items = keys.list("entries", faults);
    bounded(&mut items, MAX_KEYS, "keys.entries", faults);
    let mut entries: Vec<KeyEntry> = Vec::new();
    let mut by_hash = HashMap::new();
    let mut flows = HashMap::new();
    for (index, item) in items.into_iter().enumerate() {
        let mut entry = Fields::new(item, &format!("keys.entries[{index}]"), faults);
        let id = label(&mut entry, "id", faults).unwrap_or_else(|| format!("?{index}"));
        let tier = tier_of(&mut entry, faults).unwrap_or(0);
        for (path, hash) in hashes(&mut entry, faults) {
            let problem = match sha256(&hash).map(|hash| by_hash.insert(hash, index)) {
                None => {
                    "must be 64 hexadecimal digits: the SHA-256 of the key, never the key itself"
                }
                Some(Some(_)) => "is there twice, or is the hash of another entry too",
                Some(None) => continue,
            };
            faults.add(path, problem);
        }
        let limits = limits(&mut entry, faults);
        let models = allowed(&mut entry, models, faults);
        let flow = FlowId::of(&id);
        if flow == UNLISTED {
            faults.add(entry.path("id"), "has the hash of a name the gate needs itself");
        } else if let Some(other) = flows.insert(flow, id.clone()) {
            let problem = if other == id { "is there twice" } else { "has the hash of another id" };
            faults.add(entry.path("id"), problem);
        }
        entry.finish(faults);
        entries.push(KeyEntry { id, flow, tier, limits, models });
    }
    keys.finish(faults);
    Keys { unknown, unknown_limits, unknown_models, entries, by_hash }
}

/// `sha256`: one hash or, while a key is replaced by another, two. Each with its path.
fn hashes(entry: &mut Fields, faults: &mut Faults) -> Vec<(String, String)> {
    let path = entry.path("sha256");
    let Some(given) = entry.need("sha256", faults).and_then(|entry| entry.take("sha256")) else {
        return Vec::new();
    };
    let items = match given {
        Value::Array(items) if (1..=MAX_HASHES).contains(&items.len()) => items,
        Value::Array(_) => {
            faults.add(path, format!("must be one hash or a list of 1 to {MAX_HASHES}"));
            return Vec::new();
        }
        one => return vec![(path, text(one))],
    };
    let numbered = items.into_iter().enumerate();
    numbered.map(|(at, item)| (format!("{path}[{at}]"), text(item))).collect()
}

/// Anything but a string is no hash either.
fn text(value: Value) -> String {
    if let Value::String(text) = value { text } else { String::new() }
}

/// The three quotas; each that is absent does not limit.
fn limits(fields: &mut Fields, faults: &mut Faults) -> KeyLimits {
    let rate = fields.rate("requests_per_second", faults);
    let burst = fields.number("burst", 1, 1_000_000, faults);
    if burst.is_some() && rate.is_none() {
        faults.add(fields.path("burst"), "needs requests_per_second");
    }
    // Without a burst a second's worth may come at once, and at least one request.
    let requests = rate.map(|rate| {
        let burst = burst.map_or_else(|| rate.div_ceil(1_000), u64::from);
        Allowance::requests(rate, burst)
    });
    let tokens = fields.number("tokens_per_minute", 1, MAX_TOKENS_PER_MINUTE, faults);
    KeyLimits {
        requests,
        tokens: tokens.map(|tokens| Allowance::tokens(u64::from(tokens))),
        max_in_flight: fields.number("max_in_flight", 1, 1_000_000, faults),
    }
}

/// `models`: the names of those that may be asked for.
fn allowed(
    fields: &mut Fields,
    models: &HashMap<String, usize>,
    faults: &mut Faults,
) -> Option<Vec<usize>> {
    let path = fields.path("models");
    let names = fields.take("models")?;
    let Value::Array(names) = names else {
        faults.add(path, "must be a list of names of models");
        return None;
    };
    let mut found = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        match models.get(&text(name)) {
            Some(model) => found.push(*model),
            None => faults.add(format!("{path}[{at}]"), "names no model of this policy"),
        }
    }
    Some(found)
}

fn sha256(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut hash = [0_u8; 32];
    for (byte, pair) in hash.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` would take a sign.
        if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}
