//! Several instances, random clients, lost and late messages, pushes and foreign bytes: whatever
//! happens, each request has one outcome and nothing is left.

use std::collections::BTreeMap;

use super::*;
use crate::testing::Rng;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// What the client and the engine behind the gate know of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Held,
    Waiting,
    Running,
    Refused,
}

struct World {
    host: Host,
    gates: Vec<Gate>,
    rng: Rng,
    seen: BTreeMap<(usize, StreamId), Seen>,
    late: Vec<(SlotId, PoolId)>,
    begun: u64,
}

impl World {
    fn new(instances: usize, seed: u64) -> Self {
        let host = Host::default();
        let policy = policy(3, "");
        let gates = (0..instances).map(|_| Gate::on(host.clone(), &policy)).collect();
        let rng = Rng::new(seed);
        Self { host, gates, rng, seen: BTreeMap::new(), late: Vec::new(), begun: 0 }
    }

    fn act(&mut self, at: usize, actions: Vec<Action>) {
        for action in actions {
            let seen = self.seen.get_mut(&(at, action.stream)).expect("a known request");
            assert_eq!(*seen, Seen::Waiting, "{action:?}");
            *seen = match action.verdict {
                Verdict::Admit(_) => Seen::Running,
                Verdict::Refuse(_) => Seen::Refused,
                Verdict::Enqueue => panic!("it waits already"),
            };
        }
    }

    fn arrive(&mut self, at: usize) {
        let key = if self.rng.percent(50) { "shop-key" } else { "batch-key" };
        let body = match self.rng.below(10) {
            0 => b"no json".to_vec(),
            1..=2 => long_chat("big"),
            3..=5 => chat("lite"),
            _ => chat("big"),
        };
        self.begun += 1;
        let gate = &mut self.gates[at];
        let (stream, begin) = gate.begin(&head(key));
        assert_eq!(begin, Begin::Hold);
        self.seen.insert((at, stream), Seen::Held);
        if self.rng.percent(5) {
            return;
        }
        let now = gate.moment();
        let (verdict, actions) = gate.engine.decide(stream, &body, now, &mut gate.host.clone());
        let seen = match verdict {
            Verdict::Admit(_) => Seen::Running,
            Verdict::Enqueue => Seen::Waiting,
            Verdict::Refuse(_) => Seen::Refused,
        };
        self.seen.insert((at, stream), seen);
        self.act(at, actions);
    }

    fn finish(&mut self) {
        let pick = usize::try_from(self.rng.below(self.seen.len() as u64)).expect("small");
        let Some((&(at, stream), &seen)) = self.seen.iter().nth(pick) else { return };
        let ending = match (seen, self.rng.below(10)) {
            // Most waiters stay.
            (Seen::Waiting, 2..) => return,
            (Seen::Held | Seen::Waiting, _) | (Seen::Running, 0) => Ending::ClientLeft,
            (Seen::Running, 1) => Ending::EngineCut,
            _ => Ending::Complete,
        };
        self.end(at, stream, seen, ending);
    }

    fn end(&mut self, at: usize, stream: StreamId, seen: Seen, ending: Ending) {
        let gate = &mut self.gates[at];
        if seen == Seen::Running && ending != Ending::ClientLeft {
            gate.respond(stream, 200, false);
        }
        self.seen.remove(&(at, stream));
        gate.end(stream, ending);
        let actions = std::mem::take(&mut gate.freed);
        self.act(at, actions);
    }

    fn deliver(&mut self, loss: u64) {
        self.late.extend(self.host.mail());
        while !self.late.is_empty() && self.rng.percent(70) {
            let pick = usize::try_from(self.rng.below(self.late.len() as u64)).expect("small");
            let (slot, pool) = self.late.swap_remove(pick);
            if self.rng.percent(loss) {
                continue;
            }
            for at in 0..self.gates.len() {
                let gate = &mut self.gates[at];
                if gate.engine.slot == Some(slot) {
                    let now = gate.moment();
                    let actions = gate.engine.woken(&[pool], now, &mut gate.host.clone());
                    self.act(at, actions);
                }
            }
        }
    }

    fn pass(&mut self, time: Nanos) {
        for at in 0..self.gates.len() {
            self.gates[at].pass(time);
            let actions = self.gates[at].tick();
            self.act(at, actions);
        }
    }

    fn foreign(&mut self) {
        let keys = self.host.keys();
        let pick = usize::try_from(self.rng.below(keys.len() as u64)).expect("small");
        let Some(key) = keys.get(pick) else { return };
        let mut bytes = self.host.value(key);
        match self.rng.below(4) {
            0 => return self.host.put(key, None),
            1 => bytes.truncate(usize::try_from(self.rng.below(40)).expect("small")),
            2 => {
                let at = usize::try_from(self.rng.below(bytes.len() as u64)).expect("small");
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.rng.below(8);
                }
            }
            _ => bytes = b"something else".to_vec(),
        }
        self.host.put(key, Some(&bytes));
    }

    /// What runs on the cluster of `big` by what the engines behind the gate see.
    fn check_limits(&self) {
        let running = |at: usize, stream: &StreamId| {
            let request = self.gates[at].engine.requests.get(stream)?;
            request.job.as_ref().map(|job| job.pool)
        };
        let mut sums: BTreeMap<PoolId, u32> = BTreeMap::new();
        for ((at, stream), seen) in &self.seen {
            if *seen == Seen::Running {
                let pool = running(*at, stream).expect("a job that runs");
                *sums.entry(pool).or_default() += 1;
            }
        }
        for (pool, most) in [("big", 3), ("big/long", 1), ("lite", 1)] {
            let running = sums.get(&PoolId::of(pool)).copied().unwrap_or(0);
            assert!(running <= most, "{running} run in {pool}, {most} may");
        }
    }

    /// Ends all requests and lets time pass: nothing may be left.
    fn close(&mut self) {
        for ((at, stream), _) in self.seen.clone() {
            let Some(seen) = self.seen.get(&(at, stream)).copied() else { continue };
            self.end(at, stream, seen, Ending::ClientLeft);
        }
        for _ in 0..14 {
            self.pass(members::BEAT / 2);
        }
        let counted: u64 = self.gates[0].outcomes().iter().map(|(_, count)| count).sum();
        assert_eq!(counted, self.begun);
        for gate in &self.gates {
            gate.assert_empty();
        }
    }
}

fn run(instances: usize, seed: u64, steps: u32, loss: u64, foreign: bool) {
    let mut world = World::new(instances, seed);
    let instances = u64::try_from(instances).expect("few");
    for _ in 0..steps {
        let at = usize::try_from(world.rng.below(instances)).expect("few");
        match world.rng.below(100) {
            0..45 => world.arrive(at),
            45..85 => world.finish(),
            85 => {
                let pushed = policy(3, r#", "queue_status": 429"#);
                let gate = &mut world.gates[at];
                gate.engine.adopt(pushed, &mut gate.host.clone());
            }
            86 if foreign => world.foreign(),
            _ => {
                let time = world.rng.below(60) * MILLI;
                world.pass(time);
            }
        }
        world.deliver(loss);
        if !foreign {
            world.check_limits();
        }
    }
    world.close();
}

#[test]
fn limits_hold_and_nothing_is_left_whatever_clients_do_and_messages_are_lost() {
    for (instances, seed) in [(1, 1), (2, 2), (4, 3)] {
        run(instances, seed, 600, 20, false);
    }
}

#[test]
fn foreign_bytes_at_any_time_leave_nothing_behind() {
    for (instances, seed) in [(1, 4), (2, 5), (4, 6)] {
        run(instances, seed, 600, 20, true);
    }
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn any_run_ends_with_one_outcome_each_and_nothing_left(
        instances in 1_usize..5, seed: u64, loss in 0_u64..60, foreign: bool
    ) {
        run(instances, seed, 150, loss, foreign);
    }
}
