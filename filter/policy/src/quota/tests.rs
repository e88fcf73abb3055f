#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

use super::*;
use crate::testing::Host;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SECOND: Nanos = 1_000_000_000;
const OWNER: FlowId = FlowId::of("shop");

fn limits(per_second: u64, burst: u64, per_minute: u64, at_once: u32) -> KeyLimits {
    KeyLimits {
        requests: Some(Allowance::requests(per_second * 1_000, burst)),
        tokens: Some(Allowance::tokens(per_minute)),
        max_in_flight: Some(at_once),
    }
}

/// One instance; all of one test share the host.
struct Instance {
    quotas: Quotas,
    slot: SlotId,
    host: Host,
}

impl Instance {
    fn new(slot: u32, host: &Host) -> Self {
        let gate = Self { quotas: Quotas::new("t/"), slot: SlotId(slot), host: host.clone() };
        let owners = [(OWNER, limits(10, 10, 600, 10))].into_iter();
        gate.quotas.create(owners, 0, &mut host.clone()).expect("the store works");
        gate
    }

    fn ask(
        &mut self,
        limits: KeyLimits,
        tokens: u64,
        now: Nanos,
    ) -> Result<(Reservation, Standing), (Broken, Standing)> {
        let ask = Ask { owner: OWNER, limits, slot: self.slot, tokens, now };
        let key = "t/members".to_owned();
        let mut members = |port: &mut dyn Port| crate::members::look(&key, now, port);
        let asked = self.quotas.reserve(ask, &mut members, &mut self.host);
        let (decided, standing) = asked.expect("the store works");
        match decided {
            Ok(reservation) => Ok((reservation, standing)),
            Err(broken) => Err((broken, standing)),
        }
    }

    fn settle(&mut self, reservation: Reservation, cost: u64, now: Nanos) {
        self.quotas.settle(reservation, cost, self.slot, now, &mut self.host).expect("works");
    }

    fn give_back(&mut self, reservation: Reservation, now: Nanos) {
        self.quotas.give_back(reservation, self.slot, now, &mut self.host).expect("works");
    }

    fn alive(&mut self, now: Nanos) {
        crate::members::beat("t/members", Some(self.slot), now, &mut self.host).expect("works");
    }

    fn account(&self) -> Account {
        Account::decode(&self.host.value(&self.quotas.key(OWNER))).expect("an account")
    }
}

#[test]
fn a_request_over_one_limit_uses_up_none_of_the_others() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    gate.alive(0);
    let rule = limits(1, 2, 100, 1);
    let (held, before) = gate.ask(rule, 40, 0).expect("fits");
    // Too many at once, although there are requests and tokens.
    let (broken, standing) = gate.ask(rule, 40, 0).expect_err("one at once");
    assert_eq!((broken, standing), (Broken::InFlight, before));
    gate.settle(held, 40, 0);
    // Too many tokens: the request is not counted either.
    let (broken, standing) = gate.ask(rule, 70, 0).expect_err("60 tokens are left");
    assert_eq!(broken, Broken::Tokens { after: Some(6 * SECOND) });
    assert_eq!(standing, before);
    assert_eq!(gate.ask(rule, 101, 0).expect_err("never").0, Broken::Tokens { after: None });
    let (held, _) = gate.ask(rule, 60, 0).expect("the second of the burst");
    gate.settle(held, 60, 0);
    assert_eq!(gate.ask(rule, 0, 0).expect_err("burst").0, Broken::Requests { after: SECOND });
}

#[test]
fn calls_in_parallel_do_not_get_past_the_limit() {
    let host = Host::default();
    let rule = limits(10, 10, 1_000_000, 1_000);
    let mut gates: Vec<Instance> = (1..=4).map(|slot| Instance::new(slot, &host)).collect();
    // Another instance takes one between every read and write of the first.
    let other = std::cell::RefCell::new(Instance::new(9, &host));
    let taken = std::rc::Rc::new(std::cell::Cell::new(0));
    let (count, busy) = (taken.clone(), std::cell::Cell::new(false));
    host.hook(Some(std::rc::Rc::new(move || {
        if !busy.replace(true) {
            count.set(count.get() + u32::from(other.borrow_mut().ask(rule, 1, 5).is_ok()));
            busy.set(false);
        }
    })));
    let mut admitted = 0;
    for turn in 0..100 {
        admitted += u32::from(gates[turn % 4].ask(rule, 1, 5).is_ok());
    }
    host.hook(None);
    assert_eq!(admitted + taken.get(), 10);
    assert!(taken.get() > 0 && host.refused() > 0, "they did race");
}

#[test]
fn what_came_to_nothing_is_given_back_whole() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    let rule = limits(1, 5, 600, 5);
    let (held, _) = gate.ask(rule, 100, 0).expect("fits");
    let full = Account::full(&rule, 0);
    gate.give_back(held, 0);
    assert_eq!(gate.account(), full);
}

#[test]
fn the_truth_is_charged_to_the_token_in_both_directions() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    let rule = limits(100, 100, 600, 5);
    for (reserved, cost) in [(100, 40), (100, 160), (50, 50), (0, 10)] {
        let (held, _) = gate.ask(rule, reserved, 0).expect("fits");
        gate.settle(held, cost, 0);
    }
    let (_, standing) = gate.ask(rule, 0, 0).expect("fits");
    assert_eq!(standing.tokens.expect("limited").remaining, 600 - 260);
    // Below zero: the next waits until the debt is paid.
    let (held, _) = gate.ask(rule, 340, 0).expect("fits");
    gate.settle(held, 400, 0);
    let (broken, _) = gate.ask(rule, 0, 0).expect_err("in debt");
    assert_eq!(broken, Broken::Tokens { after: Some(6 * SECOND) });
    assert!(gate.ask(rule, 0, 6 * SECOND).is_ok());
}

#[test]
fn the_share_of_an_instance_that_is_gone_comes_back() {
    let host = Host::default();
    let (mut dead, mut gate) = (Instance::new(1, &host), Instance::new(2, &host));
    let rule = limits(100, 100, 600, 2);
    dead.alive(SECOND);
    for _ in 0..2 {
        let held = dead.ask(rule, 1, SECOND).expect("fits");
        drop(held);
    }
    gate.alive(3 * SECOND);
    assert_eq!(gate.ask(rule, 1, 3 * SECOND).expect_err("may live").0, Broken::InFlight);
    gate.alive(9 * SECOND);
    assert!(gate.ask(rule, 1, 9 * SECOND).is_ok());
}

#[test]
fn foreign_bytes_are_counted_and_replaced() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    let rule = limits(100, 100, 600, 2);
    let (held, _) = gate.ask(rule, 1, 0).expect("fits");
    host.put(&gate.quotas.key(OWNER), Some(b"something else"));
    let (other, _) = gate.ask(rule, 1, 0).expect("one more");
    assert_eq!(host.counter(StatId::SharedStateErrors), 1);
    // This instance's own two are known again.
    assert_eq!(gate.ask(rule, 1, 0).expect_err("two at once").0, Broken::InFlight);
    gate.settle(held, 1, 0);
    gate.settle(other, 1, 0);
    assert_eq!(gate.account().in_flight(), 0);
}

#[test]
fn an_end_that_could_not_be_written_does_not_lock_the_key_out() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    let rule = limits(100, 100, 600, 1);
    let (held, _) = gate.ask(rule, 1, 0).expect("fits");
    host.fail(true);
    let failed = gate.quotas.settle(held, 1, gate.slot, 0, &mut host.clone());
    assert_eq!(failed, Err(StoreError::Host));
    host.fail(false);
    assert!(gate.ask(rule, 1, 0).is_ok());
}

#[test]
fn a_failing_store_takes_nothing() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    host.fail(true);
    let ask = Ask { owner: OWNER, limits: limits(1, 1, 1, 1), slot: SlotId(1), tokens: 1, now: 0 };
    let mut nobody = |_: &mut dyn Port| Ok(Members::default());
    let failed = gate.quotas.reserve(ask, &mut nobody, &mut host.clone());
    assert_eq!(failed, Err(StoreError::Host));
    host.fail(false);
    assert!(gate.ask(limits(1, 1, 1, 1), 1, 0).is_ok());
}

#[test]
fn accounts_are_read_back_and_nothing_else_is() {
    let host = Host::default();
    let mut gate = Instance::new(1, &host);
    drop(gate.ask(limits(3, 3, 60, 2), 7, 11).expect("fits"));
    let bytes = host.value(&gate.quotas.key(OWNER));
    let account = Account::decode(&bytes).expect("an account");
    let mut again = Vec::new();
    account.encode(&mut again);
    assert_eq!(again, bytes);
    let whole = bytes.len() - 8;
    for end in (0..bytes.len()).filter(|end| *end != whole) {
        assert_eq!(Account::decode(&bytes[..end]), None, "cut at {end}");
    }
}

/// The same in virtual time, for any script.
#[cfg(not(target_arch = "wasm32"))]
mod scripts {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Ask { gate: usize, tokens: u64 },
        End { pick: usize, cost: Option<u64> },
        Wait { nanos: u64 },
        Push { rule: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3_usize, 0..400_u64).prop_map(|(gate, tokens)| Step::Ask { gate, tokens }),
            3 => (any::<usize>(), prop::option::of(0..600_u64))
                .prop_map(|(pick, cost)| Step::End { pick, cost }),
            2 => (0..2 * SECOND).prop_map(|nanos| Step::Wait { nanos }),
            1 => (0..3_usize).prop_map(|rule| Step::Push { rule }),
        ]
    }

    proptest! {
        #[test]
        fn no_bucket_exceeds_its_bound_and_all_reservations_end(
            steps in prop::collection::vec(step(), 1..200)
        ) {
            let rules = [limits(5, 3, 1_000, 4), limits(50, 9, 300, 2), KeyLimits {
                max_in_flight: Some(3), ..KeyLimits::default()
            }];
            let host = Host::default();
            let mut gates: Vec<Instance> = (1..=3).map(|s| Instance::new(s, &host)).collect();
            for gate in &mut gates {
                gate.alive(0);
            }
            let (mut rule, mut now) = (rules[0], 0);
            let (mut held, mut admitted) = (Vec::new(), 0_u64);
            let mut pushed = false;
            for step in steps {
                match step {
                    Step::Ask { gate, tokens } => {
                        for gate in &mut gates {
                            gate.alive(now);
                        }
                        match gates[gate].ask(rule, tokens, now) {
                            Ok((reservation, _)) => {
                                held.push((gate, reservation));
                                admitted += 1;
                            }
                            Err((Broken::Tokens { after: Some(after) }, _)) => {
                                prop_assert!(after > 0);
                            }
                            Err(_) => {}
                        }
                    }
                    Step::End { pick, cost } if !held.is_empty() => {
                        let (gate, reservation) = held.swap_remove(pick % held.len());
                        if let Some(cost) = cost {
                            gates[gate].settle(reservation, cost, now);
                        } else {
                            admitted -= 1;
                            gates[gate].give_back(reservation, now);
                        }
                    }
                    Step::End { .. } => {}
                    Step::Wait { nanos } => now += nanos,
                    Step::Push { rule: next } => {
                        pushed |= rules[next] != rule;
                        rule = rules[next];
                    }
                }
                if host.value(&gates[0].quotas.key(OWNER)).is_empty() {
                    continue;
                }
                let mut account = gates[0].account();
                account.refill(&rule, now);
                prop_assert_eq!(account.in_flight() as usize, held.len());
                let standing = account.standing(&rule);
                for left in [standing.requests, standing.tokens].into_iter().flatten() {
                    prop_assert!(left.remaining <= left.limit);
                }
                if !pushed {
                    // What was let in, never more than burst and rate allow.
                    prop_assert!(admitted as f64 <= 3.0 + 5.0 * now as f64 / 1e9 + 1e-6);
                }
            }
            for (gate, reservation) in held.drain(..) {
                gates[gate].settle(reservation, 0, now);
            }
            if !host.value(&gates[0].quotas.key(OWNER)).is_empty() {
                prop_assert_eq!(gates[0].account().in_flight(), 0);
            }
        }
    }
}
