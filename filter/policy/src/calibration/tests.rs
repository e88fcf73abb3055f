//! Factors come to the truth and stay in their bounds; the shared value survives everything.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

use std::rc::Rc;

use super::shared::permille;
use super::*;
use crate::config::Policy;
use crate::stats::StatId;
use crate::testing::{Host, Rng};
use crate::tokens::kind::Sampler;
use crate::tokens::{TokenCounter as _, WordPiece};
#[cfg(not(target_arch = "wasm32"))]
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const ENGLISH: &str = "The river runs down to a quiet town and the people there live well. ";
const CHINESE: &str = "河水静静地流向小镇，那里的人们生活得很好。";
const FIGURES: &str = "3141592653 5897932384 6264338327 ";

fn estimate(text: &str) -> Estimate {
    let mut counter = WordPiece::default();
    let mut sampler = Sampler::new(&mut counter);
    sampler.text(text);
    let mix = sampler.mix();
    Estimate { mix, text: counter.tokens(), fixed: 4, ..Estimate::default() }
}

/// Learns from an answer that says so many hundredths of the estimate of the text.
fn teach(learned: &mut Learned, text: &str, percent: u64) {
    let mut estimate = estimate(text);
    estimate.apply(learned);
    learned.learn(&estimate, estimate.text * percent / 100 + 4);
}

/// What a text is multiplied by, in hundredths.
fn percent(learned: &Learned, text: &str) -> u64 {
    (u64::from(learned.factor(&estimate(text).mix)) * 100 + 32_768) / 65_536
}

fn policy(models: &[&str]) -> Policy {
    let models: Vec<_> = models
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","cluster":"c","max_in_flight":1}}"#))
        .collect();
    let text = format!(r#"{{"models":[{}],"tiers":[{{"name":"t"}}]}}"#, models.join(","));
    Policy::from_json(text.as_bytes()).expect("legal")
}

#[test]
fn a_model_that_nothing_is_known_of_gets_the_plain_estimate() {
    let mut estimate = estimate(ENGLISH);
    assert_eq!(estimate.apply(&Learned::default()), estimate.text + 4);
    assert_eq!(Learned::default().ratio(), None);
    assert_eq!(Learned::default().factors().count(), 0);
}

#[test]
fn thirty_answers_are_enough_for_each_kind_and_do_not_touch_the_others() {
    let (english, chinese, figures) = (ENGLISH.repeat(5), CHINESE.repeat(5), FIGURES.repeat(5));
    let mut learned = Learned::default();
    for _ in 0..30 {
        teach(&mut learned, &english, 130);
        teach(&mut learned, &figures, 250);
    }
    assert!(percent(&learned, &english).abs_diff(130) <= 2);
    assert!(percent(&learned, &figures).abs_diff(250) <= 3);
    assert_eq!(percent(&learned, &chinese), 100);
    // A mix is between: by how much of it each kind is.
    let mixed = percent(&learned, &(english + &figures));
    assert!((140..240).contains(&mixed), "{mixed}");
    let kinds: Vec<_> = learned.factors().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&Kind::Digits) && !kinds.contains(&Kind::Han), "{kinds:?}");
    // The last counts were right.
    assert!(learned.ratio().expect("learned").abs_diff(ONE) < ONE / 20);
}

#[test]
fn scatter_is_averaged_and_a_change_is_followed() {
    let text = CHINESE.repeat(8);
    let mut learned = Learned::default();
    let random = Rng::new(7);
    let run = |learned: &mut Learned, middle: u64, answers: u32| {
        for _ in 0..answers {
            teach(learned, &text, middle - 8 + random.below(17));
        }
        percent(learned, &text)
    };
    assert!(run(&mut learned, 120, 30).abs_diff(120) <= 4);
    assert!(run(&mut learned, 120, 300).abs_diff(120) <= 3);
    // Another tokenizer behind the same name.
    assert!(run(&mut learned, 80, 100).abs_diff(80) <= 4);
}

#[test]
fn what_cannot_be_true_teaches_nothing_and_what_is_far_off_stays_in_bounds() {
    let text = ENGLISH.repeat(4);
    for truth in [0, 1, 3, 1_000_000_000_000, u64::MAX] {
        let mut learned = Learned::default();
        let mut estimate = estimate(&text);
        estimate.apply(&learned);
        learned.learn(&estimate, truth);
        assert_eq!(learned, Learned::default(), "{truth}");
    }
    let mut learned = Learned::default();
    for _ in 0..200 {
        teach(&mut learned, &text, 1_000);
    }
    assert!((395..=400).contains(&percent(&learned, &text)));
    assert!(learned.ratio().expect("learned") > ONE * 2, "the gauge says what is not mended");
    for _ in 0..200 {
        teach(&mut learned, &text, 10);
    }
    // The few symbols among the words find back last.
    assert!((25..=40).contains(&percent(&learned, &text)));
}

#[test]
fn short_prompts_prices_and_exact_counts_are_not_learned_from() {
    let fresh = Learned::default();
    let long = estimate(&ENGLISH.repeat(4));
    let cases = [
        ("short", estimate("Hello"), false),
        ("an image", Estimate { priced: true, ..long }, false),
        ("exact", Estimate { own: true, ..long }, true),
        ("mostly ids", Estimate { fixed: 5_000, ..estimate("Hello") }, true),
    ];
    for (what, mut estimate, ratio) in cases {
        let mut learned = Learned::default();
        let given = estimate.apply(&learned);
        assert_eq!(given, estimate.text + estimate.fixed);
        for _ in 0..30 {
            learned.learn(&estimate, given * 2);
        }
        assert_eq!(learned.factors().count(), 0, "{what}");
        assert_eq!(learned.slots, fresh.slots, "{what}");
        // A tokenizer that is wrong shows all the same.
        assert_eq!(learned.ratio().map(permille), ratio.then_some(2_000), "{what}");
    }
    let mut exact = Estimate { own: true, ..long };
    let mut learned = Learned::default();
    for _ in 0..30 {
        teach(&mut learned, &ENGLISH.repeat(4), 200);
    }
    assert_eq!(exact.apply(&learned), long.text + 4, "an exact count is left alone");
}

/// Two instances of one gate.
fn pair(policy: &Policy, host: &Host) -> [Calibrations; 2] {
    [(); 2].map(|()| {
        let mut calibrations = Calibrations::default();
        calibrations.adopt("p/", policy, &mut host.clone());
        calibrations
    })
}

fn teach_one(calibrations: &mut Calibrations, answers: usize) {
    for _ in 0..answers {
        let mut estimate = estimate(&ENGLISH.repeat(4));
        calibrations.apply("m", &mut estimate);
        calibrations.learn("m", &estimate, estimate.text * 2 + 4);
    }
}

fn given(calibrations: &Calibrations) -> u64 {
    calibrations.apply("m", &mut estimate(&ENGLISH.repeat(4)))
}

#[test]
fn what_one_instance_learns_the_others_know_after_a_refresh() {
    let policy = policy(&["m"]);
    let mut host = Host::default();
    let [mut one, mut other] = pair(&policy, &host);
    let plain = given(&one);
    teach_one(&mut one, 15);
    teach_one(&mut other, 15);
    assert_eq!(given(&one), plain, "not before the refresh");
    one.refresh(&policy, &mut host);
    other.refresh(&policy, &mut host);
    one.refresh(&policy, &mut host);
    assert_eq!(given(&one), given(&other));
    assert!(given(&one).abs_diff(plain * 2 - 4) <= 3, "{} {plain}", given(&one));
    let factor = host.gauge(StatId::TokenFactor(0, Kind::Words)).expect("a gauge");
    assert!(factor.abs_diff(2_000) < 60, "{factor}");
    assert!(host.gauge(StatId::TokenRatio(0)).is_some());
    assert_eq!(host.gauge(StatId::TokenFactor(0, Kind::Han)), None);
    assert_eq!(host.counter(StatId::SharedStateErrors), 0);
}

#[test]
fn nothing_is_lost_when_two_write_at_once_and_what_is_kept_is_bounded() {
    let policy = policy(&["m"]);
    let mut host = Host::default();
    let [mut one, other] = pair(&policy, &host);
    teach_one(&mut one, 1);
    one.refresh(&policy, &mut host);
    teach_one(&mut one, 10);
    let other = Rc::new(std::cell::RefCell::new(other));
    teach_one(&mut other.borrow_mut(), 1_000);
    let hook: Rc<dyn Fn()> = {
        let (host, other) = (host.clone(), Rc::clone(&other));
        Rc::new(move || {
            host.hook(None);
            let policy = self::policy(&["m"]);
            other.borrow_mut().refresh(&policy, &mut host.clone());
        })
    };
    host.hook(Some(hook));
    one.refresh(&policy, &mut host);
    assert_eq!(host.refused(), 1);
    let key = host.keys().into_iter().find(|key| key.contains("tokens/m/")).expect("a value");
    let learned = Learned::decode(&host.value(&key)).expect("ours");
    assert_eq!(learned.answers as usize, 1 + 10 + MAX_PENDING);
}

#[test]
fn foreign_bytes_are_counted_and_replaced_and_a_failing_store_does_no_harm() {
    let policy = policy(&["m"]);
    let mut legal = Learned::default().encode();
    let mut broken: Vec<Vec<u8>> = vec![
        b"x".to_vec(),
        b"slc\x01".to_vec(),
        b"slc\x02".to_vec(),
        vec![0; BYTES],
        [legal.as_slice(), b"x"].concat(),
        legal[..BYTES - 1].to_vec(),
    ];
    legal[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    broken.push(legal);
    for bytes in broken {
        let mut host = Host::default();
        let [mut one, mut other] = pair(&policy, &host);
        teach_one(&mut one, 5);
        one.refresh(&policy, &mut host);
        let key = host.keys().into_iter().next().expect("a value");
        host.put(&key, Some(&bytes));
        one.refresh(&policy, &mut host);
        assert_eq!(host.counter(StatId::SharedStateErrors), 1, "{bytes:?}");
        assert_eq!(Learned::decode(&host.value(&key)), Some(Learned::default()));
        other.refresh(&policy, &mut host);
        assert_eq!(host.counter(StatId::SharedStateErrors), 1);

        host.fail(true);
        teach_one(&mut one, 5);
        one.refresh(&policy, &mut host);
        assert_eq!(host.counter(StatId::SharedStateErrors), 2);
        host.fail(false);
        one.refresh(&policy, &mut host);
        assert_eq!(host.counter(StatId::SharedStateErrors), 2);
    }
}

#[test]
fn a_push_keeps_what_is_known_and_zeroes_the_gauges_of_models_that_are_gone() {
    let (old, new) = (policy(&["m", "other"]), policy(&["first", "m"]));
    let mut host = Host::default();
    let [mut one, _] = pair(&old, &host);
    teach_one(&mut one, 30);
    one.refresh(&old, &mut host);
    let known = given(&one);
    one.adopt("p/", &new, &mut host);
    assert_eq!(given(&one), known);
    one.refresh(&new, &mut host);
    assert_eq!(given(&one), known);
    // The gauge has its new place.
    assert!(host.gauge(StatId::TokenRatio(1)).is_some());
    one.retire(&new, &new, &mut host);
    assert!(host.gauge(StatId::TokenRatio(1)) > Some(0));
    one.retire(&new, &policy(&["first"]), &mut host);
    assert_eq!(host.gauge(StatId::TokenRatio(1)), Some(0));
    assert_eq!(host.gauge(StatId::TokenFactor(1, Kind::Words)), Some(0));
}

#[cfg(not(target_arch = "wasm32"))]
proptest! {
    #[test]
    fn whatever_is_answered_the_value_stays_one_of_ours(
        answers in prop::collection::vec((0..4_usize, 0..200_usize, any::<u64>(), any::<bool>()), 0..60),
    ) {
        let texts = [ENGLISH, CHINESE, FIGURES, "{\"é\": [1, Ω]}\n"];
        let mut learned = Learned::default();
        for (text, times, truth, plausible) in answers {
            let mut estimate = estimate(&texts[text].repeat(times));
            let given = estimate.apply(&learned);
            learned.learn(&estimate, if plausible { truth % (given * 8 + 1) } else { truth });
            prop_assert_eq!(Learned::decode(&learned.encode()), Some(learned.clone()));
        }
    }

    #[test]
    fn no_bytes_are_taken_for_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..130)) {
        let mut framed = MAGIC.to_vec();
        framed.extend_from_slice(&bytes);
        for bytes in [bytes, framed] {
            if let Some(learned) = Learned::decode(&bytes) {
                prop_assert_eq!(learned.encode(), bytes);
            }
        }
    }
}
