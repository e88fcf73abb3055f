//! The README and the shipped bootstrap against the code: what is documented exists, what exists is
//! documented.
//!
//! Lists that the code has as values are compared as values. Codes of refusals and names of headers
//! are literals in the code, so they are looked for in its text.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test may fail"
)]

use std::collections::BTreeSet;

use serde_json::Value;
use slogate_policy::config::Policy;
use slogate_policy::engine::LOG_FIELDS;
use slogate_policy::outcome::Outcome;
use slogate_policy::stats::{STATS, StatKind};

const README: &str = include_str!("../../../README.md");
const BOOTSTRAP: &str = include_str!("../../../envoy/envoy.yaml");

/// Where refusals are made and headers are read and written.
const SOURCES: &[&str] = &[
    include_str!("../src/engine/mod.rs"),
    include_str!("../src/engine/entry.rs"),
    include_str!("../src/engine/upkeep.rs"),
    include_str!("../src/engine/answer.rs"),
    include_str!("../src/engine/key_quota.rs"),
    include_str!("../src/quota/headers.rs"),
    include_str!("../src/refusal.rs"),
    include_str!("../../plugin/src/stream.rs"),
    include_str!("../../plugin/src/apply.rs"),
];

/// The text under a heading of the second level.
fn section(heading: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("\n## {heading}\n")).expect(heading);
    rest.split("\n## ").next().unwrap_or_default()
}

/// The cells of the rows of all tables in a text, without their heads.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let body = |at: &usize| {
        let is_head = lines.get(at + 1).is_some_and(|next| next.starts_with("|--"));
        lines[*at].starts_with('|') && !lines[*at].starts_with("|--") && !is_head
    };
    let cells = |at: usize| {
        lines[at].trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    (0..lines.len()).filter(body).map(cells).collect()
}

/// What a text has between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// String literals of the sources that satisfy this.
fn literals(holds: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let all = SOURCES.iter().flat_map(|source| {
        // Comments may hold quotation marks of their own.
        source.lines().filter(|line| !line.trim_start().starts_with("//"))
    });
    all.flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(|text| holds(text))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_stat_is_in_the_table_with_its_type_and_labels_and_no_other_is() {
    let documented: BTreeSet<_> = rows(section("Stats"))
        .into_iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), row[1].clone(), row[2].clone()))
        .collect();
    let kind = |kind| match kind {
        StatKind::Counter => "counter",
        StatKind::Gauge => "gauge",
        StatKind::Histogram => "histogram",
    };
    let existing: BTreeSet<_> = STATS
        .iter()
        .map(|spec| (spec.name.to_owned(), kind(spec.kind).to_owned(), spec.labels.join(", ")))
        .collect();
    assert_eq!(documented, existing);
}

#[test]
fn every_outcome_is_listed_and_no_other_is() {
    let (_, list) = section("Stats").split_once("\nOutcomes: ").expect("a list of outcomes");
    let list = list.split("\n\n").next().unwrap_or_default();
    let documented: BTreeSet<_> = quoted(list).collect();
    let existing: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.label()).collect();
    assert_eq!(documented, existing);
}

#[test]
fn every_code_of_the_table_of_refusals_is_one_of_the_code_and_the_other_way_round() {
    let documented: BTreeSet<_> = rows(section("Refusals"))
        .into_iter()
        .map(|row| row[2].trim_matches('`').to_owned())
        .collect();
    let of_codes = |text: &str| documented.contains(text);
    assert_eq!(documented, literals(of_codes));
    // A refusal is made by naming its outcome, its status and its code.
    let mut made = BTreeSet::new();
    for source in SOURCES {
        for call in source.split("Refusal::new(").skip(1) {
            let call = call.split(';').next().unwrap_or_default();
            made.extend(call.split('"').nth(1).map(str::to_owned));
        }
    }
    made.retain(|text| !text.is_empty() && !text.contains([' ', '-']));
    assert!(made.len() > 5, "{made:?}");
    assert_eq!(made.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_header_of_the_gate_is_in_a_table_and_no_other_is() {
    let is_ours =
        |text: &str| text.len() > 10 && text.starts_with("x-slogate-") && !text.contains(' ');
    let tables = rows(section("Headers"));
    let mut documented: BTreeSet<String> = tables
        .iter()
        .flat_map(|row| quoted(&row[0]))
        .filter(|name| is_ours(name))
        .map(str::to_owned)
        .collect();
    // It is Envoy's and the filter's own matter, and explained below the table.
    assert!(quoted(section("Headers")).any(|name| name == "x-slogate-cluster"));
    documented.insert("x-slogate-cluster".to_owned());
    assert_eq!(documented, literals(is_ours));
    // The others of the tables are in the code too.
    for name in tables.iter().flat_map(|row| quoted(&row[0])) {
        let name = name.split(':').next().unwrap_or_default();
        let text = |quote: &str| format!("{quote}{name}\"");
        let is_used = |source: &&str| source.contains(&text("\"")) || source.contains(&text("b\""));
        assert!(SOURCES.iter().any(is_used), "{name} is not in the code");
    }
}

#[test]
fn the_policy_of_the_readme_is_legal() {
    let (_, rest) = section("The policy").split_once("```yaml\n").expect("an example");
    let example = rest.split("```").next().unwrap_or_default();
    assert!(example.contains("sha256: \"…\""));
    let example = example.replace('…', &"0".repeat(64));
    let value: Value = serde_saphyr::from_str(&example).expect("YAML");
    let policy = Policy::from_json(value.to_string().as_bytes()).expect("a legal policy");
    assert_eq!(policy.models.len(), 2);
}

#[test]
fn the_policy_of_the_bootstrap_is_legal_and_its_tags_take_every_label_apart() {
    let document: Value = serde_saphyr::from_str(BOOTSTRAP).expect("YAML");
    let filter = document
        .pointer(
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/0",
        )
        .expect("the filter");
    let policy = filter.pointer("/typed_config/config/configuration/value").expect("a policy");
    let policy = Policy::from_json(policy.to_string().as_bytes()).expect("a legal policy");
    assert_eq!(policy.keys.entries.len(), 2);

    let tags = document.pointer("/stats_config/stats_tags").and_then(Value::as_array);
    let tags: BTreeSet<_> =
        tags.expect("tags").iter().filter_map(|tag| tag["tag_name"].as_str()).collect();
    for label in STATS.iter().flat_map(|spec| spec.labels) {
        assert!(tags.contains(label), "the bootstrap has no tag {label}");
    }
}

#[test]
fn every_field_of_the_log_line_is_in_the_table_and_no_other_is() {
    let documented: BTreeSet<_> = rows(section("Access log"))
        .iter()
        .flat_map(|row| quoted(&row[0]).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let written: BTreeSet<_> = LOG_FIELDS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(documented, written);
}
