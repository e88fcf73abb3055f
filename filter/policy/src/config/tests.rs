//! What a policy may say, and that every fault is found.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const WHOLE: &str = r#"{
  "models": [
    {"name": "deepseek-v4", "aliases": ["deepseek-ai/DeepSeek-V4"], "cluster": "v4",
     "max_in_flight": 64.0, "tokenizer": "estimate", "class_clusters": {"long": "v4_long"}},
    {"name": "lite", "cluster": "lite", "max_in_flight": 8,
     "class_clusters": {"long": {"cluster": "lite_long", "max_in_flight": 2}}}],
  "default_model": "lite",
  "size_classes": [{"name": "short", "max_tokens": 512}, {"name": "long", "max_in_flight": 16}],
  "tiers": [
    {"name": "realtime", "weight": 8, "max_in_flight": 100,
     "queue": {"capacity": 200, "max_wait": "500ms"},
     "slo": {"objective": "0.99", "total": "400ms", "first_token": "200ms"}},
    {"name": "economy", "queue": {"capacity": 1000, "max_wait": "30s", "max_bytes": 1000}}],
  "keys": {"unknown": {"tier": "economy"}, "entries": [
    {"id": "shop", "tier": "realtime",
     "sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]}
}"#;

fn paths(text: &str) -> Vec<String> {
    match Policy::from_json(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| fault.path).collect(),
    }
}

#[test]
fn a_whole_policy_is_read_with_its_units_and_references() {
    let policy = Policy::from_json(WHOLE.as_bytes()).expect("legal");
    assert_eq!(policy.model("deepseek-ai/DeepSeek-V4"), Some(0));
    assert_eq!(policy.default_model, Some(1));
    assert_eq!(policy.tiers[0].max_wait, Duration::from_millis(500));
    assert_eq!(policy.tiers[1].weight, 1);
    assert_eq!(policy.class_of(512), 0);
    assert_eq!(policy.class_of(513), 1);
    let keys: Vec<_> = policy.pools.iter().map(|pool| pool.key.as_str()).collect();
    assert_eq!(keys, ["deepseek-v4", "deepseek-v4/long", "lite", "lite/long"]);
    let limits: Vec<_> = policy.pools.iter().map(|pool| pool.limits.max_in_flight).collect();
    assert_eq!(limits, [64, 16, 8, 2]);
    let (pool, lane) = policy.place(0, 1, 0).expect("there");
    assert_eq!((pool.cluster.as_str(), lane.class), ("v4_long", ClassId::of("long")));
    let secret = crate::keys::hash(b"secret");
    assert_eq!(policy.keys.find(&secret), Some(0));
}

#[test]
fn every_fault_is_reported_at_once_with_its_path() {
    let found = paths(
        r#"{"models": [{"name": "a/b", "cluster": 7, "max_in_flight": 0, "speed": 1}],
            "size_classes": [{"name": "s"}, {"name": "l", "max_tokens": 5}],
            "tiers": [{"name": "t", "weight": "8", "queue": {"capacity": -1, "max_wait": "5"}},
                      {"name": "t"}],
            "keys": {"entries": [{"id": "k", "tier": "nobody", "sha256": "zz"}]},
            "other_paths": "maybe", "default_model": "x", "breaker": {}}"#,
    );
    for path in [
        "models[0].name",
        "models[0].cluster",
        "models[0].max_in_flight",
        "models[0].speed",
        "size_classes[0].max_tokens",
        "size_classes[1].max_tokens",
        "tiers[0].weight",
        "tiers[0].queue.capacity",
        "tiers[0].queue.max_wait",
        "tiers[1].name",
        "keys.entries[0].tier",
        "keys.entries[0].sha256",
        "other_paths",
        "default_model",
        "breaker",
    ] {
        assert!(found.iter().any(|at| at == path), "{path} not in {found:?}");
    }
    assert_eq!(found.len(), 15, "{found:?}");
}

#[test]
fn what_is_required_is_asked_for_once() {
    let found = paths(r#"{"models": [{}], "tiers": [{"name": "t", "queue": {}}]}"#);
    assert_eq!(
        found,
        [
            "tiers[0].queue.capacity",
            "tiers[0].queue.max_wait",
            "models[0].name",
            "models[0].cluster",
            "models[0].max_in_flight"
        ]
    );
}

#[test]
fn text_that_is_not_a_policy_is_one_fault_without_its_content() {
    for text in ["", "[]", "null", "{", "\"secret\"", "{\"models\": 1, \"tiers\": 2}"] {
        let faults = Policy::from_json(text.as_bytes()).expect_err("not a policy");
        assert!(!faults.is_empty());
        assert!(faults.iter().all(|fault| !fault.problem.contains("secret")));
    }
}

#[test]
fn unknown_keys_have_the_last_tier_unless_the_policy_rejects_them() {
    let policy = |keys: &str| {
        let text = format!(
            r#"{{"models": [{{"name": "m", "cluster": "c", "max_in_flight": 1}}],
                "tiers": [{{"name": "a"}}, {{"name": "b"}}] {keys}}}"#
        );
        Policy::from_json(text.as_bytes()).expect("legal").keys.unknown
    };
    assert_eq!(policy(""), Some(1));
    assert_eq!(policy(r#", "keys": {"unknown": {"reject": true}}"#), None);
    assert_eq!(policy(r#", "keys": {"unknown": {"tier": "a"}}"#), Some(0));
}

#[test]
fn durations_need_a_unit_and_stay_between_a_millisecond_and_an_hour() {
    let policy = |wait: &str| {
        let text = format!(
            r#"{{"models": [{{"name": "m", "cluster": "c", "max_in_flight": 1}}],
                "tiers": [{{"name": "a", "queue": {{"capacity": 1, "max_wait": "{wait}"}}}}]}}"#
        );
        Policy::from_json(text.as_bytes()).ok().map(|policy| policy.tiers[0].max_wait)
    };
    assert_eq!(policy("1h"), Some(Duration::from_secs(3600)));
    assert_eq!(policy("2m"), Some(Duration::from_secs(120)));
    for wrong in ["5", "0s", "2h", "1.5s", "-1s", "s", "99999999999999999999s", "é"] {
        assert_eq!(policy(wrong), None, "{wrong}");
    }
}

#[test]
fn a_struct_and_its_json_are_the_same_policy() {
    use prost::Message;
    use prost_types::{ListValue, Struct, Value, value::Kind};

    fn encoded(value: &serde_json::Value) -> Value {
        let kind = match value {
            serde_json::Value::Null => Kind::NullValue(0),
            serde_json::Value::Bool(flag) => Kind::BoolValue(*flag),
            serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().expect("f64")),
            serde_json::Value::String(text) => Kind::StringValue(text.clone()),
            serde_json::Value::Array(items) => {
                Kind::ListValue(ListValue { values: items.iter().map(encoded).collect() })
            }
            serde_json::Value::Object(_) => Kind::StructValue(structure(value)),
        };
        Value { kind: Some(kind) }
    }
    fn structure(value: &serde_json::Value) -> Struct {
        let fields = value.as_object().expect("object").iter();
        Struct { fields: fields.map(|(name, value)| (name.clone(), encoded(value))).collect() }
    }

    let value: serde_json::Value = serde_json::from_str(WHOLE).expect("JSON");
    let bytes = structure(&value).encode_to_vec();
    let from_struct = Policy::from_configuration(&bytes).expect("legal");
    let from_json = Policy::from_configuration(WHOLE.as_bytes()).expect("legal");
    assert_eq!(from_struct.digest, from_json.digest);
    assert_eq!(from_struct.pools, from_json.pools);
    for end in 1..bytes.len() {
        assert!(Policy::from_configuration(&bytes[..end]).is_err(), "cut at {end}");
    }
}

fn with_model(fields: &str) -> String {
    format!(
        r#"{{"models": [{{"name": "m", "cluster": "c", "max_in_flight": 1, {fields}}}],
            "tiers": [{{"name": "t"}}]}}"#
    )
}

#[test]
fn a_template_is_taken_from_its_base_and_changed_field_by_field() {
    let template = |fields: &str| {
        let policy = Policy::from_json(with_model(fields).as_bytes()).expect("legal");
        policy.models[0].template.clone()
    };
    assert_eq!(template(r#""tokenizer": "estimate""#), Template::GENERIC);
    assert_eq!(template(r#""template": {"like": "deepseek-v4"}"#), Template::DEEPSEEK_V4);
    let changed = template(
        r#""template": {"like": "deepseek-v4", "tools": 300, "thinking": false, "image_tokens": 0,
                        "reasoning_effort": "max"}"#,
    );
    let effort = Some(crate::request::Effort::Max);
    let expected =
        Template { tools: 300, thinking: false, image: 0, effort, ..Template::DEEPSEEK_V4 };
    assert_eq!(changed, expected);
}

#[test]
fn faults_of_tokenizer_and_template_are_reported_together() {
    let found = paths(&with_model(
        r#""tokenizer": "no-such-vocabulary",
           "template": {"like": "x", "start": -1, "thinking": 1, "reasoning_effort": "huge", "bos": 1}"#,
    ));
    let fields = ["tokenizer", "template.like", "template.start", "template.thinking"];
    let fields = fields.into_iter().chain(["template.reasoning_effort", "template.bos"]);
    let expected: Vec<_> = fields.map(|field| format!("models[0].{field}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn an_exact_count_goes_on_past_the_largest_bound() {
    let limit = |classes: &str| {
        let text = with_model(r#""aliases": []"#);
        let text = text.replacen('{', &format!(r#"{{"size_classes": {classes}, "#), 1);
        Policy::from_json(text.as_bytes()).expect("legal").count_limit
    };
    assert_eq!(limit(r#"[{"name": "a"}]"#), MIN_COUNT_LIMIT);
    assert_eq!(limit(r#"[{"name": "a", "max_tokens": 20000}, {"name": "b"}]"#), 20_001);
}
