//! Texts written for these tests, with their true counts by the tokenizer of `DeepSeek`, and the
//! properties a caller relies on.
#![allow(clippy::arithmetic_side_effects, reason = "a test may panic")]

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn estimate(text: &str) -> u64 {
    let mut counter = WordPiece::default();
    counter.text(text);
    counter.tokens()
}

/// Whether `estimate` is within `percent` of `truth`.
fn is_near(estimate: u64, truth: u64, percent: u64) -> bool {
    estimate.abs_diff(truth) * 100 <= truth * percent
}

const ENGLISH: &str = r#"A gateway that lets every request through at once does nobody a favour. The model answers a fixed number of prompts at a time; whoever comes later waits inside the engine, where nothing can be said about order or patience. We hold such requests at the door instead, count how long their prompts are, and let the short and urgent ones pass first. If the wait would be longer than the caller is willing to accept, we say so immediately and suggest when to come back.

Last Tuesday's outage taught us three things: dashboards lie when they average, retries multiply the load they try to escape, and "unlimited" is never a configuration value one should be able to type."#;

const CHINESE: &str = "网关如果让所有请求立刻通过，对谁都没有好处。模型同时只能处理固定数量的提示词，后到的请求只好在引擎内部排队，既无法保证顺序，也不知道还要等多久。所以我们把请求先留在门口，计算提示词的长度，让简短而紧急的请求优先通过。如果等待时间超过了用户愿意接受的范围，我们会马上告诉他，并建议什么时候再来。

上周二的故障让我们明白了三件事：平均值会掩盖问题，重试会放大负载，而“不限制”绝不应该成为一个可以填写的配置项。";

const CODE: &str = r#"/// Takes the waiter that is next, or `None` when nobody waits.
pub fn pop(&mut self, now: Duration) -> Option<Waiter> {
    while let Some(first) = self.heap.peek() {
        if first.deadline <= now {
            // Too late for this one: its caller has already been told.
            self.expired += 1;
            self.heap.pop();
            continue;
        }
        return self.heap.pop().map(|entry| entry.waiter);
    }
    None
}

def share(weights: dict[str, float], total: int) -> dict[str, int]:
    """Splits `total` by weight; what rounding leaves over goes to the heaviest."""
    whole = sum(weights.values()) or 1.0
    parts = {name: int(total * w / whole) for name, w in weights.items()}
    heaviest = max(weights, key=weights.get)
    parts[heaviest] += total - sum(parts.values())
    return parts"#;

const JSON: &str = r#"{
  "type": "function",
  "function": {
    "name": "find_connections",
    "description": "Finds train connections between two stations.",
    "parameters": {
      "type": "object",
      "properties": {
        "from": {"type": "string", "description": "Name of the station to start from"},
        "to": {"type": "string", "description": "Name of the station to go to"},
        "departure": {"type": "string", "format": "date-time"},
        "max_changes": {"type": "integer", "minimum": 0, "default": 3}
      },
      "required": ["from", "to"]
    }
  }
}
[{"id":40213,"line":"RE7","price":18.90,"seats":[12,14,15],"platform":null,"delayed":false},{"id":40218,"line":"ICE 1045","price":64.50,"seats":[],"platform":"9a","delayed":true}]"#;

const NUMBERS: &str = "time,node,requests,p50_ms,p99_ms,errors
2031-03-07T09:15:00Z,10.12.0.31,18234,41.7,286.03,0
2031-03-07T09:16:00Z,10.12.0.31,18911,42.2,301.55,2
2031-03-07T09:17:00Z,10.12.0.32,17502,39.9,275.40,0
2031-03-07T09:18:00Z,10.12.0.32,20177,55.1,712.96,14
| 1024 | 2048 | 4096 | 8192 |
| 0.125 | 0.250 | 0.500 | 1.000 |
  3.14159   2.71828   1.41421   0.57721";

#[test]
fn estimate_is_within_a_tenth_of_the_truth_for_every_kind_of_text() {
    for (kind, text, truth) in [
        ("English", ENGLISH, 138),
        ("Chinese", CHINESE, 113),
        ("code", CODE, 220),
        ("JSON", JSON, 225),
        ("numbers", NUMBERS, 212),
    ] {
        let estimate = estimate(text);
        assert!(is_near(estimate, truth, 10), "{kind}: {estimate} for {truth}");
    }
}

#[test]
fn escaped_looking_text_is_not_taken_for_what_it_stands_for() {
    // A body that was not unescaped would cost far more; the caller has to hand over plain text.
    let escaped = CHINESE.escape_unicode().to_string();
    assert!(estimate(&escaped) > 2 * estimate(CHINESE));
}

#[test]
fn nothing_costs_nothing() {
    assert_eq!(WordPiece::default().tokens(), 0);
    assert_eq!(estimate(""), 0);
}

#[test]
fn one_word_costs_one_token() {
    for word in ["a", "token", " the", "7", "\n", "."] {
        assert_eq!(estimate(word), 1, "{word:?}");
    }
}

#[test]
fn texts_add_up() {
    let mut counter = WordPiece::default();
    let parts = [ENGLISH, CHINESE, CODE, JSON, NUMBERS];
    for part in parts {
        counter.text(part);
    }
    let sum: u64 = parts.iter().map(|part| estimate(part)).sum();
    // Each was rounded on its own.
    assert!(counter.tokens().abs_diff(sum) <= 3, "{} for {sum}", counter.tokens());
}

#[test]
fn ruler_of_one_character_costs_little() {
    for ruler in ["-", "=", "_", "*", "#", ".", " ", "\n", "─", "…"] {
        let estimate = estimate(&ruler.repeat(6400));
        assert!((50..=220).contains(&estimate), "{ruler:?}: {estimate}");
    }
}

#[test]
fn table_made_of_dashes_costs_what_its_cells_cost() {
    let row = format!("| {} | {} |\n", "-".repeat(200), "-".repeat(200));
    // Twelve a row in truth.
    let estimate = estimate(&row.repeat(100));
    assert!((800..=2400).contains(&estimate), "{estimate}");
}

#[test]
fn long_word_costs_less_than_its_letters_and_more_than_a_word() {
    for letter in ["a", "Q", "é", "字"] {
        let estimate = estimate(&letter.repeat(2000));
        assert!((200..=2600).contains(&estimate), "{letter}: {estimate}");
    }
}

#[test]
fn digits_cost_a_token_for_three() {
    assert!(is_near(estimate(&"1234567890".repeat(300)), 1000, 3));
}

#[test]
fn camel_case_costs_its_parts() {
    assert!(estimate("getElementByIdentifier") >= 3);
    assert!(estimate("HTTPServerFactory") >= 3);
    assert!(estimate("getElementByIdentifier") > estimate("unbelievably"));
}

#[test]
fn text_in_any_script_costs_at_least_a_fifth_of_its_characters() {
    for text in [
        "Съешь ещё этих мягких французских булок",
        "Привіт, як справи сьогодні",
        "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
        "نص حكيم له سر قاطع وذو شأن عظيم",
        "דג סקרן שט בים מאוכזב",
        "다람쥐 헌 쳇바퀴에 타고파",
        "いろはにほへとちりぬるを",
        "ऋषियों को सताने वाले दुष्ट",
        "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
        "ქართული ენა და ანბანი",
        "🚀🎉👋🏽👨‍👩‍👧",
    ] {
        let (estimate, characters) = (estimate(text), text.chars().count() as u64);
        assert!(estimate * 5 >= characters, "{text}: {estimate}");
        assert!(estimate <= characters * 2, "{text}: {estimate}");
    }
}

#[test]
fn more_text_costs_more() {
    for text in [ENGLISH, CHINESE, CODE, JSON, NUMBERS] {
        let cuts = text.char_indices().map(|(at, _)| at).step_by(40);
        let counts: Vec<_> = cuts.map(|at| estimate(text.split_at(at).0)).collect();
        assert!(counts.is_sorted(), "{counts:?}");
    }
}

#[test]
fn features_explain_the_estimate() {
    let found = word_piece_features(CODE);
    assert_eq!(found.len(), Feature::ALL.len());
    let units: u64 = Feature::ALL
        .iter()
        .zip(&found)
        .map(|(feature, (_, amount))| feature.weight() * u64::from(*amount))
        .sum();
    assert_eq!((units + UNIT / 2) / UNIT, estimate(CODE));
}

/// Scans with blocks of prose and without and compares everything that is found.
fn assert_blocks_find_the_same(text: &str) {
    let empty = || Found(vec![0; Feature::ALL.len()]);
    let Found(with) = scan::scan_by::<_, true>(text, empty());
    let Found(without) = scan::scan_by::<_, false>(text, empty());
    for ((feature, with), without) in Feature::ALL.iter().zip(with).zip(without) {
        assert_eq!(with, without, "{feature:?} in {text:?}");
    }
}

#[test]
fn blocks_of_prose_find_what_single_steps_find() {
    for text in [ENGLISH, CHINESE, CODE, JSON, NUMBERS] {
        for (at, _) in text.char_indices() {
            assert_blocks_find_the_same(text.split_at(at).1);
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::{assert_blocks_find_the_same, estimate};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn blocks_of_prose_find_what_single_steps_find_in_any_text(
            text in "([a-z]{1,9}[ ,.'\n-]{1,2}|[A-Z][a-z]{0,14}|[ (][0-9]{1,4}|[A-Za-z0-9 .,;\n]|\\PC|[\t\r\n]| ){0,80}"
        ) {
            assert_blocks_find_the_same(&text);
        }

        #[test]
        fn blocks_of_prose_find_what_single_steps_find_in_prose(
            text in "(([A-Za-z]?[a-z]{0,11}|[0-9]{1,3})([ ]|[,.:] |['/.]|[.]?\n{1,2} ?| [(\"])){0,90}"
        ) {
            assert_blocks_find_the_same(&text);
        }
    }

    proptest! {
        #[test]
        fn estimate_is_never_above_the_bytes(text in any::<String>()) {
            prop_assert!(estimate(&text) <= text.len() as u64);
        }

        #[test]
        fn cutting_a_text_changes_its_estimate_little(
            (text, at) in "([a-zA-Z]{1,12}[ .,:\n]{1,2}|[0-9]{1,9}|[一-龥]{1,5}|[а-яё ]{1,9}){0,60}"
                .prop_flat_map(|text| { let end = text.len(); (Just(text), 0..=end) })
        ) {
            prop_assume!(text.is_char_boundary(at));
            let (head, tail) = text.split_at(at);
            let (whole, parts) = (estimate(&text), estimate(head) + estimate(tail));
            // Language is guessed from what came before, and a cut word costs a token or two more.
            prop_assert!(whole.abs_diff(parts) <= 5 + whole / 4, "{whole} and {parts}");
        }

        #[test]
        fn every_character_costs_something_and_is_passed_over(character in any::<char>()) {
            let text = character.to_string().repeat(3);
            prop_assert!(estimate(&text) >= 1);
        }
    }
}
