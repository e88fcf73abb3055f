//! From the text of a policy to a [`Policy`].

mod keys;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::reader::{Fault, Faults, Fields};
use super::{
    ClassRule, DEFAULT_EXPECTED_OUTPUT, DEFAULT_MAX_BODY_BYTES, DEFAULT_QUEUE_BYTES,
    MIN_COUNT_LIMIT, Model, OtherPaths, Policy, PoolLimits, PoolPolicy, SizeClass, Slo, Tier,
    TierRule, Tokenizer,
};
use crate::ids::{ClassId, PoolId, TierId};
use crate::tokens::Template;

/// Most permits of anything: far above what one process can hold open, far below overflow.
const MAX_PERMITS: u32 = 1_000_000;
/// Most entries of a list of names: labels are made from them, and stats never go away.
const MAX_MODELS: usize = 256;
const MAX_TIERS: usize = 16;
const MAX_CLASSES: usize = 16;
/// Longest alias: what a client may send as `model`.
const MAX_ALIAS_BYTES: usize = 256;
const MAX_LABEL_BYTES: usize = 64;

/// A model before its pools are known.
struct RawModel {
    name: String,
    aliases: Vec<String>,
    cluster: String,
    tokenizer: Tokenizer,
    template: Template,
    max_in_flight: u32,
    class_clusters: Vec<(usize, String, Option<u32>)>,
}

pub(super) fn policy(value: Value) -> Result<Policy, Vec<Fault>> {
    let mut faults = Faults::default();
    let digest = digest(&value);
    let mut fields = Fields::new(value, "", &mut faults);

    let (classes, class_rules) = classes(&mut fields, &mut faults);
    let (tiers, tier_rules) = tiers(&mut fields, &mut faults);
    let raw_models = models(&mut fields, &classes, &mut faults);
    let keys = keys::keys(&mut fields, &tiers, &mut faults);
    let default_model_name = fields.text("default_model", &mut faults);
    let other_paths = match fields.text("other_paths", &mut faults).as_deref() {
        None | Some("pass") => OtherPaths::Pass,
        Some("deny") => OtherPaths::Deny,
        Some(_) => {
            faults.add("other_paths", "must be pass or deny");
            OtherPaths::Pass
        }
    };
    let max_body_bytes = fields
        .number("max_body_bytes", 1_024, 64 * 1024 * 1024, &mut faults)
        .unwrap_or(DEFAULT_MAX_BODY_BYTES);
    let expected_output_tokens = fields
        .number("expected_output_tokens", 1, 1_000_000, &mut faults)
        .unwrap_or(DEFAULT_EXPECTED_OUTPUT);
    let queue_status = match fields.number("queue_status", 429, 503, &mut faults) {
        None | Some(503) => 503,
        Some(429) => 429,
        Some(_) => {
            faults.add("queue_status", "must be 503 or 429");
            503
        }
    };

    let model_names = model_names(&raw_models, &mut faults);
    let default_model = default_model_name.and_then(|name| {
        let found = model_names.get(&name).copied();
        if found.is_none() {
            faults.add("default_model", "names no model of this policy");
        }
        found
    });
    let (models, pools) = pools(raw_models, &classes, &class_rules, &tier_rules, &mut faults);
    fields.finish(&mut faults);
    if !faults.0.is_empty() {
        return Err(faults.0);
    }
    let largest = classes.iter().filter_map(|class| class.max_tokens).max().unwrap_or(0);
    Ok(Policy {
        count_limit: u64::from(largest).saturating_add(1).max(MIN_COUNT_LIMIT),
        models,
        classes,
        tiers,
        keys,
        pools,
        default_model,
        other_paths,
        max_body_bytes,
        expected_output_tokens,
        queue_status,
        digest,
        model_names,
    })
}

fn digest(value: &Value) -> u64 {
    // Objects keep their fields in order, so the text does not depend on how the policy came.
    let hash = Sha256::digest(value.to_string());
    hash.iter().take(6).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// A name that may stand in a label.
fn label(fields: &mut Fields, field: &'static str, faults: &mut Faults) -> Option<String> {
    let name = fields.need(field, faults)?.text(field, faults)?;
    let legal = (1..=MAX_LABEL_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !legal {
        faults.add(
            fields.path(field),
            "must be 1 to 64 letters, digits, '-', '_' or '.', because it is a label of stats \
             (a served name with other characters can be an alias)",
        );
        return None;
    }
    Some(name)
}

fn cluster(fields: &mut Fields, faults: &mut Faults) -> Option<String> {
    let name = fields.need("cluster", faults)?.text("cluster", faults)?;
    legal_cluster(name, &fields.path("cluster"), faults)
}

fn legal_cluster(name: String, path: &str, faults: &mut Faults) -> Option<String> {
    let legal = (1..=256).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !legal {
        faults.add(path, "must be the name of an Envoy cluster, 1 to 256 visible ASCII characters");
    }
    legal.then_some(name)
}

/// Notes names that are there twice, or that differ and have one hash.
fn unique<'a>(
    list: &str,
    names: impl Iterator<Item = &'a str>,
    id: fn(&str) -> u32,
    faults: &mut Faults,
) {
    let mut seen = HashMap::new();
    for (index, name) in names.enumerate() {
        match seen.insert(id(name), name) {
            Some(other) if other == name => {
                faults.add(format!("{list}[{index}].name"), format!("{name} is there twice"));
            }
            Some(other) => faults.add(
                format!("{list}[{index}].name"),
                format!("{name} has the same hash as {other}; choose another name"),
            ),
            None => {}
        }
    }
}

fn bounded(items: &mut Vec<Value>, most: usize, path: &str, faults: &mut Faults) {
    if items.len() > most {
        faults.add(path, format!("has {} entries; at most {most} are allowed", items.len()));
        items.truncate(most);
    }
}

fn classes(fields: &mut Fields, faults: &mut Faults) -> (Vec<SizeClass>, Vec<ClassRule>) {
    let mut items = fields.list("size_classes", faults);
    bounded(&mut items, MAX_CLASSES, "size_classes", faults);
    let last = items.len().saturating_sub(1);
    let mut classes: Vec<SizeClass> = Vec::new();
    let mut rules = Vec::new();
    let mut largest = 0;
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("size_classes[{index}]");
        let mut class = Fields::new(item, &path, faults);
        let name = label(&mut class, "name", faults);
        let max_tokens = class.number("max_tokens", 1, 100_000_000, faults);
        let max_in_flight = class.number("max_in_flight", 1, MAX_PERMITS, faults);
        let bound_path = class.path("max_tokens");
        match max_tokens {
            Some(_) if index == last => {
                faults.add(bound_path, "must be absent: the last size class has no bound");
            }
            None if index < last => {
                faults.add(bound_path, "is required in all size classes but the last");
            }
            Some(bound) if bound <= largest => {
                faults.add(bound_path, "must be larger than that of the size class before");
            }
            Some(bound) => largest = bound,
            None => {}
        }
        class.finish(faults);
        let name = name.unwrap_or_else(|| format!("?{index}"));
        let id = ClassId::of(&name);
        rules.push(ClassRule { id, max_in_flight });
        classes.push(SizeClass { name, id, max_tokens });
    }
    if classes.is_empty() {
        let id = ClassId::of("all");
        rules.push(ClassRule { id, max_in_flight: None });
        classes.push(SizeClass { name: "all".to_owned(), id, max_tokens: None });
    }
    unique("size_classes", classes.iter().map(|c| c.name.as_str()), |n| ClassId::of(n).0, faults);
    (classes, rules)
}

fn tiers(fields: &mut Fields, faults: &mut Faults) -> (Vec<Tier>, Vec<TierRule>) {
    let mut items = fields.list("tiers", faults);
    bounded(&mut items, MAX_TIERS, "tiers", faults);
    if items.is_empty() {
        faults.add("tiers", "needs at least one tier");
    }
    let mut tiers: Vec<Tier> = Vec::new();
    let mut rules = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let mut tier = Fields::new(item, &format!("tiers[{index}]"), faults);
        let name = label(&mut tier, "name", faults).unwrap_or_else(|| format!("?{index}"));
        let id = TierId::of(&name);
        let weight = tier.number("weight", 1, 1_000, faults).unwrap_or(1);
        let max_in_flight = tier.number("max_in_flight", 1, MAX_PERMITS, faults);
        let mut rule = TierRule { id, weight, max_in_flight, capacity: 0, max_bytes: 0 };
        let mut max_wait = Duration::ZERO;
        if let Some(mut queue) = tier.object("queue", faults) {
            let capacity = queue
                .need("capacity", faults)
                .and_then(|queue| queue.number("capacity", 0, 1_000_000, faults));
            rule.capacity = capacity.unwrap_or(0);
            rule.max_bytes = u64::from(
                queue.number("max_bytes", 0, u32::MAX, faults).unwrap_or(DEFAULT_QUEUE_BYTES),
            );
            let wait =
                queue.need("max_wait", faults).and_then(|queue| queue.duration("max_wait", faults));
            max_wait = wait.unwrap_or_default();
            queue.finish(faults);
        }
        let slo = tier.object("slo", faults).map(|mut slo| {
            let objective = slo.fraction("objective", faults).unwrap_or(0.99);
            let total = slo.duration("total", faults);
            let first_token = slo.duration("first_token", faults);
            if total.is_none() && first_token.is_none() {
                faults.add(slo.path("total"), "or first_token is required");
            }
            slo.finish(faults);
            Slo { objective, total, first_token }
        });
        tier.finish(faults);
        rules.push(rule);
        tiers.push(Tier { name, id, weight, max_wait, slo });
    }
    unique("tiers", tiers.iter().map(|t| t.name.as_str()), |n| TierId::of(n).0, faults);
    (tiers, rules)
}

fn models(fields: &mut Fields, classes: &[SizeClass], faults: &mut Faults) -> Vec<RawModel> {
    let mut items = fields.list("models", faults);
    bounded(&mut items, MAX_MODELS, "models", faults);
    if items.is_empty() {
        faults.add("models", "needs at least one model");
    }
    let mut models = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let mut model = Fields::new(item, &format!("models[{index}]"), faults);
        let name = label(&mut model, "name", faults).unwrap_or_else(|| format!("?{index}"));
        let mut aliases = Vec::new();
        for (at, alias) in model.list("aliases", faults).into_iter().enumerate() {
            match alias {
                Value::String(alias) if (1..=MAX_ALIAS_BYTES).contains(&alias.len()) => {
                    aliases.push(alias);
                }
                _ => faults.add(
                    format!("{}[{at}]", model.path("aliases")),
                    "must be a string of 1 to 256 bytes",
                ),
            }
        }
        let cluster = cluster(&mut model, faults).unwrap_or_default();
        let (tokenizer, template) = tokens::tokens(&mut model, faults);
        let max_in_flight = model
            .need("max_in_flight", faults)
            .and_then(|model| model.number("max_in_flight", 1, MAX_PERMITS, faults));
        let class_clusters = class_clusters(&mut model, classes, faults);
        model.finish(faults);
        models.push(RawModel {
            name,
            aliases,
            cluster,
            tokenizer,
            template,
            max_in_flight: max_in_flight.unwrap_or(1),
            class_clusters,
        });
    }
    unique("models", models.iter().map(|m| m.name.as_str()), |n| PoolId::of(n).0, faults);
    models
}

/// `class_clusters: {CLASS: CLUSTER}`, or `{CLASS: {cluster, max_in_flight}}`.
fn class_clusters(
    model: &mut Fields,
    classes: &[SizeClass],
    faults: &mut Faults,
) -> Vec<(usize, String, Option<u32>)> {
    let Some(fields) = model.object("class_clusters", faults) else { return Vec::new() };
    let mut found = Vec::new();
    let base = model.path("class_clusters");
    for (class, value) in fields.into_entries() {
        let path = format!("{base}.{class}");
        let (name, limit) = match value {
            Value::String(name) => (legal_cluster(name, &path, faults), None),
            other => {
                let mut entry = Fields::new(other, &path, faults);
                let name = cluster(&mut entry, faults);
                let limit = entry.number("max_in_flight", 1, MAX_PERMITS, faults);
                entry.finish(faults);
                (name, limit)
            }
        };
        match classes.iter().position(|known| known.name == class) {
            Some(index) => found.extend(name.map(|name| (index, name, limit))),
            None => faults.add(path, "names no size class of this policy"),
        }
    }
    found
}

fn model_names(models: &[RawModel], faults: &mut Faults) -> HashMap<String, usize> {
    let mut names = HashMap::new();
    for (index, model) in models.iter().enumerate() {
        names.insert(model.name.clone(), index);
    }
    for (index, model) in models.iter().enumerate() {
        for (at, alias) in model.aliases.iter().enumerate() {
            if names.insert(alias.clone(), index).is_some() {
                faults.add(
                    format!("models[{index}].aliases[{at}]"),
                    "is the name or an alias of another model, or there twice",
                );
            }
        }
    }
    names
}

fn pools(
    raw: Vec<RawModel>,
    classes: &[SizeClass],
    class_rules: &[ClassRule],
    tier_rules: &[TierRule],
    faults: &mut Faults,
) -> (Vec<Model>, Vec<PoolPolicy>) {
    let mut models = Vec::new();
    let mut pools: Vec<PoolPolicy> = Vec::new();
    let mut ids = HashSet::new();
    for (index, model) in raw.into_iter().enumerate() {
        let mut add = |key: String, cluster: String, max_in_flight: u32| {
            let id = PoolId::of(&key);
            if !ids.insert(id) {
                faults.add(
                    format!("models[{index}]"),
                    format!("the pool {key} has the same hash as another; choose another name"),
                );
            }
            let limits = PoolLimits {
                max_in_flight,
                tiers: tier_rules.to_vec(),
                classes: class_rules.to_vec(),
            };
            pools.push(PoolPolicy { id, key, model: index, cluster, limits });
            pools.len().saturating_sub(1)
        };
        let main = add(model.name.clone(), model.cluster, model.max_in_flight);
        let mut by_class = vec![main; classes.len()];
        for (class, cluster, limit) in model.class_clusters {
            let own = class_rules.get(class).and_then(|rule| rule.max_in_flight);
            let limit = limit.or(own).unwrap_or(model.max_in_flight);
            let name = classes.get(class).map_or("", |class| class.name.as_str());
            let pool = add(format!("{}/{name}", model.name), cluster, limit);
            if let Some(place) = by_class.get_mut(class) {
                *place = pool;
            }
        }
        models.push(Model {
            name: model.name,
            tokenizer: model.tokenizer,
            template: model.template,
            pools: by_class,
        });
    }
    (models, pools)
}
