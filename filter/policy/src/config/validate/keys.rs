//! `keys`: who may come in.

use std::collections::HashMap;

use super::{bounded, label};
use crate::config::reader::{Faults, Fields};
use crate::config::{KeyEntry, Keys, Tier};
use crate::ids::FlowId;

const MAX_KEYS: usize = 100_000;

pub(super) fn keys(fields: &mut Fields, tiers: &[Tier], faults: &mut Faults) -> Keys {
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
    if let Some(mut rule) = keys.object("unknown", faults) {
        if rule.flag("reject", faults) == Some(true) {
            if rule.take("tier").is_some() {
                faults.add(rule.path("tier"), "must be absent where reject is true");
            }
            unknown = None;
        } else {
            unknown = tier_of(&mut rule, faults);
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
        let hash = entry.need("sha256", faults).and_then(|entry| entry.text("sha256", faults));
        if let Some(hash) = hash.as_deref().map(sha256) {
            let problem = match hash.map(|hash| by_hash.insert(hash, index)) {
                None => {
                    "must be 64 hexadecimal digits: the SHA-256 of the key, never the key itself"
                }
                Some(Some(_)) => "is the hash of another entry too",
                Some(None) => "",
            };
            if !problem.is_empty() {
                faults.add(entry.path("sha256"), problem);
            }
        }
        let flow = FlowId::of(&id);
        if let Some(other) = flows.insert(flow, id.clone()) {
            let problem = if other == id { "is there twice" } else { "has the hash of another id" };
            faults.add(entry.path("id"), problem);
        }
        entry.finish(faults);
        entries.push(KeyEntry { id, flow, tier });
    }
    keys.finish(faults);
    Keys { unknown, entries, by_hash }
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
