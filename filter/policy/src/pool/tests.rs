//! What holds over all instances of a pool, whatever happens in between.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

mod sim;

use super::*;
use crate::ids::{FlowId, MILLI, TierId};
use sim::{Client, Sim, lane, limits};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SECOND: Nanos = 1_000 * MILLI;
const TIERS: &[(&str, u32, Option<u32>)] =
    &[("realtime", 8, None), ("standard", 3, None), ("economy", 1, None)];
const ALL: &[(&str, Option<u32>)] = &[("all", None)];

/// How clients are spread over instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    Even,
    /// Each tier on an instance of its own.
    ByTier,
}

/// 30 clients in each tier, with so many keys each.
fn three_tiers(keys: [u32; 3], nodes: usize, spread: Spread) -> Vec<Client> {
    let mut clients = Vec::new();
    for (at, (tier, ..)) in TIERS.iter().enumerate() {
        for client in 0..30_u32 {
            let flow = u32::try_from(at).expect("small") * 100 + client % keys[at];
            let node = if spread == Spread::ByTier { at } else { clients.len() };
            clients.push(Client { node: node % nodes, ..Client::new(tier, flow) });
        }
    }
    clients
}

fn near(value: f64, ideal: f64, tolerance: f64, what: &str) {
    assert!((value - ideal).abs() <= ideal * tolerance, "{what}: {value:.4}, ideal {ideal:.4}");
}

fn by_tier(client: &Client) -> u32 {
    let at = TIERS.iter().position(|(tier, ..)| TierId::of(tier) == client.lane.tier);
    u32::try_from(at.expect("known")).expect("small")
}

#[test]
fn tiers_share_by_weight_wherever_their_clients_are_and_however_many_keys_they_have() {
    for (keys, nodes, spread) in [
        ([1, 1, 1], 1, Spread::Even),
        ([1, 1, 1], 4, Spread::Even),
        ([1, 1, 1], 2, Spread::ByTier),
        ([1, 1, 1], 4, Spread::ByTier),
        ([1, 4, 10], 4, Spread::Even),
        ([10, 4, 1], 4, Spread::ByTier),
    ] {
        let clients = three_tiers(keys, nodes, spread);
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), clients, 7);
        sim.interleave(10);
        sim.run_until(5 * SECOND);
        sim.measure_from_now();
        sim.run_until(25 * SECOND);
        let shares = sim.shares(by_tier);
        for (tier, ideal) in [(0, 8.0 / 12.0), (1, 3.0 / 12.0), (2, 1.0 / 12.0)] {
            near(shares[&tier], ideal, 0.1, "share of a tier");
        }
    }
}

#[test]
fn a_greedy_key_waits_behind_itself_and_leaves_the_others_their_share() {
    for nodes in [1, 2, 4] {
        let mut clients: Vec<Client> = Vec::new();
        for flow in (0..40).map(|_| 0).chain((1..=4).flat_map(|flow| [flow, flow])) {
            let node = clients.len() % nodes;
            clients.push(Client { node, ..Client::new("realtime", flow) });
        }
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), clients, 3);
        sim.interleave(10);
        sim.run_until(5 * SECOND);
        sim.measure_from_now();
        sim.run_until(30 * SECOND);
        let shares = sim.shares(|client| client.flow.0);
        let (greedy, others) =
            (sim.mean_wait(|client| client.flow.0 == 0), sim.mean_wait(|client| client.flow.0 > 0));
        for flow in 0..=4 {
            near(shares[&flow], 0.2, 0.1, "share of a key");
        }
        assert!(others < greedy / 4.0, "mean waits {others} and {greedy} ms");
    }
}

#[test]
fn a_key_with_longer_requests_gets_as_many_tokens_not_as_many_requests() {
    for nodes in [1, 4] {
        let clients = (0..40_u32).map(|at| {
            let long = u64::from(at % 2) * 7 + 1;
            let node = usize::try_from(at / 2).expect("small") % nodes;
            let (cost, hold) = (100 * long, 20 * MILLI * long);
            Client { node, cost, hold, ..Client::new("standard", at % 2) }
        });
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), clients.collect(), 5);
        sim.run_until(10 * SECOND);
        sim.measure_from_now();
        sim.run_until(60 * SECOND);
        let shares = sim.shares(|client| client.flow.0);
        near(shares[&0], 0.5, 0.1, "share of the key with short requests");
    }
}

#[test]
fn equal_clients_wait_equally_long() {
    for nodes in [1, 2, 4] {
        let clients =
            (0..48).map(|at| Client { node: at % nodes, ..Client::new("standard", 0) }).collect();
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), clients, 11);
        sim.interleave(10);
        sim.run_until(2 * SECOND);
        sim.measure_from_now();
        sim.run_until(12 * SECOND);
        let mean = sim.mean_wait(|_| true);
        let fates = sim.fates.borrow();
        let waits = fates.iter().flat_map(|fate| fate.waits.iter().copied());
        let slowest = waits.max().unwrap_or(0) as f64 / MILLI as f64;
        let served: u64 = fates.iter().map(|fate| fate.served).sum();
        assert!(slowest <= mean * 1.25, "slowest {slowest}, mean {mean} ms");
        assert!(fates.iter().all(|fate| fate.served > 0));
        // Each permit serves 20 requests a second; a hand-over to another instance takes 0.4 ms.
        assert!(served >= 4 * 20 * 10 * 97 / 100, "{served} of 800");
    }
}

#[test]
fn a_key_whose_waiters_leave_is_served_like_one_whose_waiters_stay() {
    for nodes in [1, 2] {
        let clients = (0..60_u32).map(|at| {
            let node = usize::try_from(at).expect("small") / 2 % nodes;
            // Waits are near 700 ms; the clients of one key have no patience for that.
            let patience = (at % 2 == 1).then_some(400 * MILLI);
            Client { node, patience, think: 10 * MILLI, ..Client::new("standard", at % 2) }
        });
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), clients.collect(), 13);
        sim.run_until(5 * SECOND);
        sim.measure_from_now();
        sim.run_until(30 * SECOND);
        let shares = sim.shares(|client| client.flow.0);
        let left: u64 = sim.fates.borrow().iter().map(|fate| fate.left).sum();
        assert!(left > 500, "{left} left");
        near(shares[&1], 0.5, 0.1, "share of the key whose waiters leave");
    }
}

/// Equal clients of two tiers, spread evenly over instances.
fn two_tiers(count: usize, nodes: usize) -> Vec<Client> {
    (0..count)
        .map(|at| {
            let tier = if (at / nodes).is_multiple_of(2) { "realtime" } else { "economy" };
            Client { node: at % nodes, ..Client::new(tier, u32::try_from(at % 5).expect("small")) }
        })
        .collect()
}

fn assert_empty(sim: &Sim) {
    let ledger = sim.ledger();
    assert_eq!((ledger.rows.len(), ledger.flows.len(), ledger.virtual_time), (0, 0, 0));
    for place in &sim.pools {
        if let Some((_, pool)) = place.borrow().as_ref() {
            assert!(pool.is_idle() && !pool.waits() && !pool.is_stale());
            assert!(pool.local.is_swept());
        }
    }
}

#[test]
fn a_lost_message_is_made_up_for_by_the_tick_and_nothing_leaks() {
    for nodes in [2, 4] {
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), two_tiers(40, nodes), 17);
        sim.loss.set(50);
        sim.interleave(20);
        sim.run_until(20 * SECOND);
        assert!(sim.fates.borrow().iter().all(|fate| fate.served > 2));
        sim.drain();
        assert_empty(&sim);
    }
}

#[test]
fn the_share_of_an_instance_that_died_comes_back_after_the_silence() {
    let sim = Sim::new(2, limits(4, TIERS, ALL), two_tiers(24, 2), 19);
    sim.run_until(3 * SECOND);
    sim.kill(0);
    for second in 4..=10 {
        sim.run_until(second * SECOND);
        sim.purge();
    }
    assert!(sim.ledger().rows.iter().all(|row| row.slot == SlotId(2)));
    sim.check_no_permit_is_idle();
    sim.measure_from_now();
    sim.run_until(20 * SECOND);
    let served: u64 = sim.fates.borrow().iter().map(|fate| fate.served).sum();
    assert!(served >= 780, "{served} of 800 by the instance that lives");
    sim.drain();
    assert_empty(&sim);
}

#[test]
fn foreign_bytes_in_a_ledger_heal_and_those_who_waited_are_not_overtaken() {
    let old = {
        let sim = Sim::new(2, limits(4, TIERS, ALL), two_tiers(24, 2), 23);
        sim.run_until(SECOND);
        sim.host.value(sim::KEY)
    };
    let all = [Some(&b"4"[..]), Some(b""), None, Some(old.as_slice())];
    for (foreign, nodes) in all.iter().flat_map(|foreign| [(*foreign, 1), (*foreign, 2)]) {
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), two_tiers(24, nodes), 23);
        sim.unlimited.set(true);
        sim.run_until(10 * SECOND);
        sim.host.put(sim::KEY, foreign);
        sim.purge();
        // All instances look at their queues within a quarter of a second.
        sim.run_until(11 * SECOND);
        sim.unlimited.set(false);
        sim.measure_from_now();
        sim.run_until(21 * SECOND);
        sim.check_no_permit_is_idle();
        let mean = sim.mean_wait(|client| client.lane.tier == TierId::of("economy"));
        let waits: Vec<Nanos> =
            sim.fates.borrow().iter().flat_map(|fate| fate.waits.clone()).collect();
        let slowest = waits.iter().copied().max().unwrap_or(0) as f64 / MILLI as f64;
        let served = waits.len();
        assert!(served >= 780, "{served} of 800");
        assert!(slowest < mean * 2.0, "slowest {slowest}, mean of its tier {mean} ms");
        sim.drain();
        assert_empty(&sim);
    }
}

#[test]
fn an_instance_that_was_stuck_and_taken_for_dead_writes_its_rows_anew_and_is_served() {
    // As many clients on the other instance as there are permits, or more.
    for others in [4_usize, 12] {
        let client = |at: usize| {
            let node = usize::from(at >= 12);
            Client { node, ..Client::new("standard", u32::try_from(node).expect("small")) }
        };
        let sim = Sim::new(2, limits(4, TIERS, ALL), (0..12 + others).map(client).collect(), 29);
        sim.purge();
        sim.run_until(10 * SECOND);
        sim.purge();
        sim.unlimited.set(true);
        sim.stuck.set(Some((0, 17 * SECOND)));
        for second in 11..=16 {
            sim.run_until(second * SECOND);
            sim.purge();
        }
        assert!(sim.ledger().rows.iter().all(|row| row.slot == SlotId(2)), "it is not dead");
        sim.run_until(17 * SECOND);
        sim.stuck.set(None);
        sim.purge();
        sim.run_until(17 * SECOND + 300 * MILLI);
        sim.unlimited.set(false);
        sim.measure_from_now();
        sim.run_until(22 * SECOND);
        let shares = sim.shares(|client| client.flow.0);
        near(shares[&0], 0.5, 0.1, "share of the instance that came back");
        sim.drain();
        assert_empty(&sim);
    }
}

#[test]
fn a_key_is_served_oldest_first_over_all_instances() {
    let clients = (0..40).map(|at| Client {
        node: at % 4,
        think: 30 * MILLI,
        hold: if at.is_multiple_of(3) { 90 * MILLI } else { 40 * MILLI },
        ..Client::new("standard", u32::try_from(at % 2).expect("small"))
    });
    let sim = Sim::new(4, limits(4, TIERS, ALL), clients.collect(), 31);
    sim.run_until(20 * SECOND);
    let order = sim.order.borrow();
    for flow in [FlowId(0), FlowId(1)] {
        let of_flow = order.iter().filter(|(client, ..)| sim.clients[*client].flow == flow);
        let mut latest = (0, 0);
        for (_, since, began) in of_flow {
            // A hand-over to another instance is under way for less than a millisecond.
            let fair = *since >= latest.0 || *began < latest.1 + MILLI;
            assert!(fair, "came at {since}, began at {began}, after {latest:?}");
            latest = latest.max((*since, *began));
        }
    }
}

#[test]
fn the_wait_is_predicted_within_half_of_the_true_one_under_saturation() {
    for (what, keys) in [("one key", [1, 1, 1]), ("several keys", [3, 5, 2])] {
        for tiers in 1..=3_u32 {
            let clients = three_tiers(keys, 2, Spread::Even);
            let of_tiers = clients.into_iter().filter(|client| by_tier(client) < tiers);
            let sim = Sim::new(2, limits(4, TIERS, ALL), of_tiers.collect(), 37);
            sim.run_until(15 * SECOND);
            sim.measure_from_now();
            sim.predicting.set(true);
            sim.run_until(35 * SECOND);
            let pairs = sim.predictions.borrow();
            let ratios = pairs.iter().map(|(said, was)| *said as f64 / (*was).max(1) as f64);
            let mut ratios: Vec<f64> = ratios.collect();
            ratios.sort_by(f64::total_cmp);
            let at = |percent: usize| ratios[ratios.len() * percent / 100];
            assert!(at(5) > 1.0 / 1.5 && at(95) < 1.5, "{what}, {tiers} tiers");
        }
    }
}

#[test]
fn nobody_is_refused_early_before_a_permit_came_back_and_then_whoever_would_wait_too_long() {
    let clients = (0..40).map(|at| Client {
        max_wait: 200 * MILLI,
        node: at % 2,
        ..Client::new("standard", 0)
    });
    let sim = Sim::new(2, limits(4, TIERS, ALL), clients.collect(), 41);
    sim.run_until(40 * MILLI);
    assert!(sim.fates.borrow().iter().all(|fate| fate.refused == 0));
    sim.run_until(2 * SECOND);
    sim.measure_from_now();
    sim.run_until(12 * SECOND);
    let fates = sim.fates.borrow();
    assert!(fates.iter().map(|fate| fate.refused).sum::<u64>() > 100);
    let slowest = fates.iter().flat_map(|fate| fate.waits.iter().copied()).max();
    assert!(slowest <= Some(300 * MILLI), "{slowest:?}");
    let served: u64 = fates.iter().map(|fate| fate.served).sum();
    assert!(served >= 780, "early refusal left permits idle: {served} of 800");
}

#[test]
fn a_queue_holds_no_more_entries_and_bytes_than_its_tier_allows_over_all_instances() {
    for (capacity, max_bytes) in [(10, u64::MAX), (1_000, 1_050)] {
        let mut limits = limits(4, TIERS, ALL);
        for rule in &mut limits.tiers {
            (rule.capacity, rule.max_bytes) = (capacity, max_bytes);
        }
        let sim = Sim::new(4, limits, two_tiers(80, 4), 43);
        sim.interleave(20);
        for step in 1..200 {
            sim.run_until(step * 10 * MILLI);
            for tier in ["realtime", "economy"] {
                let waiting = sim.waiting(|lane| lane.tier == TierId::of(tier));
                assert!(waiting <= 10, "{waiting} wait in {tier}");
            }
        }
        assert!(sim.fates.borrow().iter().map(|fate| fate.full).sum::<u64>() > 10);
        sim.drain();
        assert_empty(&sim);
    }
}

#[test]
fn a_class_or_tier_at_its_limit_holds_nobody_else_back() {
    let classes = [("short", None), ("long", Some(1))];
    let tiers = [("realtime", 8, Some(3)), ("economy", 1, None)];
    let clients = (0..40).map(|at| {
        let (tier, class) = [
            ("realtime", "short"),
            ("realtime", "long"),
            ("economy", "short"),
            ("economy", "long"),
        ][at / 4 % 4];
        Client { node: at % 4, lane: lane(tier, class), ..Client::new(tier, 0) }
    });
    let sim = Sim::new(4, limits(6, &tiers, &classes), clients.collect(), 47);
    sim.interleave(10);
    for step in 1..100 {
        sim.run_until(step * 33 * MILLI);
        sim.check_no_permit_is_idle();
    }
    assert_eq!(sim.peak.get(), 6);
    // One permit for long requests, three for realtime: the rest is for short economy requests.
    let served = |wanted| {
        let fates = sim.fates.borrow();
        let of = sim.clients.iter().zip(fates.iter()).filter(|(who, _)| who.lane == wanted);
        of.map(|(_, fate)| fate.served).sum::<u64>()
    };
    assert!(served(lane("economy", "short")) > 100);
    assert!(served(lane("realtime", "long")) > 0 && served(lane("economy", "long")) > 0);
    sim.drain();
    assert_empty(&sim);
}

#[test]
fn new_limits_hold_for_those_who_wait_already() {
    let sim = Sim::new(2, limits(6, TIERS, ALL), two_tiers(40, 2), 53);
    sim.run_until(SECOND);
    let order = |sim: &Sim| sim.order.borrow().len();
    let served = order(&sim);
    sim.unlimited.set(true);
    sim.adopt(&limits(2, &[("realtime", 8, Some(1))], ALL));
    sim.run_until(SECOND + 60 * MILLI);
    // What ran has ended: from now on no more than two run, one of them realtime, and the tier
    // that the new limits do not know drains.
    sim.unlimited.set(false);
    sim.run_until(3 * SECOND);
    assert!(order(&sim) - served >= 76, "{} in two seconds", order(&sim) - served);
    sim.adopt(&limits(8, TIERS, ALL));
    sim.run_until(3 * SECOND + 300 * MILLI);
    sim.check_no_permit_is_idle();
    assert_eq!(sim.running(|_| true), 8);
    sim.drain();
    assert_empty(&sim);
}

#[test]
fn a_store_that_fails_for_a_while_loses_nothing() {
    for nodes in [1, 2] {
        let sim = Sim::new(nodes, limits(4, TIERS, ALL), two_tiers(24, nodes), 59);
        sim.run_until(SECOND);
        // Permits come back that cannot be given back; arrivals are refused and come again.
        sim.host.fail(true);
        sim.run_until(SECOND + 400 * MILLI);
        sim.host.fail(false);
        sim.run_until(2 * SECOND);
        sim.check_no_permit_is_idle();
        sim.drain();
        assert_empty(&sim);
    }
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn limits_hold_no_permit_is_idle_and_nothing_leaks_for_any_clients(
        seed: u64,
        nodes in 1_usize..5,
        permits in 1_u32..8,
        caps in (proptest::option::of(1_u32..4), proptest::option::of(1_u32..4)),
        loss in 0_u64..50,
        count in 1_usize..40,
    ) {
        // One cap of each kind at most: with both, a permit is kept for who needs two.
        let tiers = [("realtime", 8, caps.0), ("economy", 1, None)];
        let classes = [("short", None), ("long", caps.1.filter(|_| caps.0.is_none()))];
        let rng = crate::testing::Rng::new(seed);
        let clients = (0..count).map(|_| {
            let tier = if rng.percent(50) { "realtime" } else { "economy" };
            let class = if rng.percent(60) { "short" } else { "long" };
            Client {
                node: usize::try_from(rng.below(nodes as u64)).expect("few"),
                lane: lane(tier, class),
                flow: FlowId(u32::try_from(rng.below(4)).expect("few")),
                cost: 1 + rng.below(10_000),
                hold: rng.below(80) * MILLI,
                max_wait: if rng.percent(50) { 300 * MILLI } else { 3_600 * SECOND },
                patience: rng.percent(30).then_some(rng.below(300) * MILLI),
                think: rng.below(100) * MILLI + MILLI,
            }
        });
        let sim = Sim::new(nodes, limits(permits, &tiers, &classes), clients.collect(), seed);
        sim.interleave(20);
        sim.run_until(500 * MILLI);
        sim.check_no_permit_is_idle();
        sim.loss.set(loss);
        sim.run_until(1_500 * MILLI);
        sim.drain();
        assert_empty(&sim);
    }
}
