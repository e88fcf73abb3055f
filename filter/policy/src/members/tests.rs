//! Who lives, under races, silence and foreign bytes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::testing::{Host, Rng};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const KEY: &str = "members";

fn join(host: &Host, now: Nanos) -> SlotId {
    beat(KEY, None, now, &mut host.clone()).expect("stored").0
}

fn who_lives(host: &Host, now: Nanos) -> Members {
    look(KEY, now, &mut host.clone()).expect("stored")
}

#[test]
fn an_instance_that_is_silent_is_dead_and_lives_again_under_its_number_when_it_speaks() {
    let host = Host::default();
    create(KEY, &mut host.clone()).expect("stored");
    let (slow, steady) = (join(&host, 0), join(&host, 0));
    assert_ne!(slow, steady);
    beat(KEY, Some(steady), SILENCE, &mut host.clone()).expect("stored");
    assert!(who_lives(&host, SILENCE).lives(slow), "silent, but not for too long");
    assert!(!who_lives(&host, SILENCE + 1).lives(slow));
    assert!(who_lives(&host, SILENCE + 1).lives(steady));
    let (same, members) = beat(KEY, Some(slow), 2 * SILENCE, &mut host.clone()).expect("stored");
    assert_eq!(same, slow);
    assert!(members.lives(slow));
    assert_ne!(join(&host, 2 * SILENCE), slow, "its number is not given out again");
}

#[test]
fn numbers_are_given_out_once_however_joins_race() {
    let host = Host::default();
    create(KEY, &mut host.clone()).expect("stored");
    let given: Rc<RefCell<Vec<SlotId>>> = Rc::default();
    let (rng, inner, list) = (Rng::new(1), host.clone(), Rc::clone(&given));
    host.hook(Some(Rc::new(move || {
        if rng.percent(40) {
            let slot = join(&inner, 0);
            list.borrow_mut().push(slot);
        }
    })));
    for _ in 0..50 {
        let slot = join(&host, 0);
        given.borrow_mut().push(slot);
    }
    let given = given.borrow();
    let distinct: BTreeSet<_> = given.iter().collect();
    assert!(host.refused() > 0, "there was no race");
    assert_eq!(distinct.len(), given.len());
}

#[test]
fn foreign_bytes_neither_kill_who_lives_nor_give_out_a_number_again() {
    for foreign in [Some(&b"4"[..]), Some(b""), Some(b"slm\x01\x00"), None] {
        let host = Host::default();
        create(KEY, &mut host.clone()).expect("stored");
        let first = join(&host, 1_000 * MILLI);
        let second = join(&host, 1_000 * MILLI);
        let now = 600_000 * MILLI;
        host.put(KEY, foreign);
        assert!(who_lives(&host, now).lives(second));
        let third = join(&host, now);
        assert!(third != first && third != second, "{third:?} is taken");
        beat(KEY, Some(first), now + BEAT, &mut host.clone()).expect("stored");
        assert!(who_lives(&host, now + BEAT).lives(second), "it had no time to speak");
        // The second never speaks again.
        for beats in 2..=6 {
            beat(KEY, Some(first), now + beats * BEAT, &mut host.clone()).expect("stored");
        }
        let members = who_lives(&host, now + 6 * BEAT);
        assert!(members.lives(first) && !members.lives(second));
    }
}

#[test]
fn a_store_that_fails_is_reported_and_changes_nothing() {
    let host = Host::default();
    create(KEY, &mut host.clone()).expect("stored");
    let slot = join(&host, 0);
    let before = host.value(KEY);
    host.fail(true);
    assert_eq!(beat(KEY, Some(slot), 1, &mut host.clone()).err(), Some(StoreError::Host));
    assert_eq!(create(KEY, &mut host.clone()), Err(StoreError::Host));
    host.fail(false);
    assert_eq!(host.value(KEY), before);
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #[test]
    fn any_bytes_can_be_stored_and_the_next_beat_heals_them(bytes: Vec<u8>, prefix: bool) {
        let host = Host::default();
        let mut stored = if prefix { MAGIC.to_vec() } else { Vec::new() };
        stored.extend(bytes);
        host.put(KEY, Some(&stored));
        let slot = join(&host, 9);
        let members = Members::decode(&host.value(KEY)).expect("healed");
        proptest::prop_assert!(members.rows.contains(&(slot, 9)));
    }
}
