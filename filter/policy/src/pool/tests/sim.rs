//! Several instances of one pool in virtual time, with clients that ask again once served.
//!
//! An operation of another instance may run between an instance's read and its write: whatever is
//! due next in the simulation then runs inside the hook of the host.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::{Rc, Weak};

use super::super::ledger::Ledger;
use super::super::turn::{Arrival, Arrived};
use super::super::{Change, Pool};
use crate::config::{ClassRule, PoolLimits, TierRule};
use crate::ids::{ClassId, FlowId, Lane, MILLI, Nanos, PoolId, SlotId, StreamId, TierId};
use crate::members;
use crate::testing::{Host, Rng};

pub(super) const KEY: &str = "pool/m";
const TICK: Nanos = 20 * MILLI;
/// How often an instance looks at its queues by itself.
const REFRESH: Nanos = 250 * MILLI;

/// A client with one request at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    /// The instance it is connected to.
    pub(super) node: usize,
    pub(super) lane: Lane,
    pub(super) flow: FlowId,
    pub(super) cost: u64,
    /// How long the engine takes.
    pub(super) hold: Nanos,
    pub(super) max_wait: Nanos,
    /// After this wait it leaves.
    pub(super) patience: Option<Nanos>,
    /// Pause before it asks again, at most; the true one is random.
    pub(super) think: Nanos,
}

impl Client {
    pub(super) fn new(tier: &str, flow: u32) -> Self {
        Self {
            node: 0,
            lane: lane(tier, "all"),
            flow: FlowId(flow),
            cost: 100,
            hold: 50 * MILLI,
            max_wait: 3_600_000 * MILLI,
            patience: None,
            think: 0,
        }
    }
}

pub(super) fn lane(tier: &str, class: &str) -> Lane {
    Lane { tier: TierId::of(tier), class: ClassId::of(class) }
}

/// Limits with these tiers (name, weight, cap) and classes (name, cap).
pub(super) fn limits(
    max_in_flight: u32,
    tiers: &[(&str, u32, Option<u32>)],
    classes: &[(&str, Option<u32>)],
) -> PoolLimits {
    let tiers = tiers.iter().map(|&(name, weight, max_in_flight)| TierRule {
        id: TierId::of(name),
        weight,
        max_in_flight,
        capacity: 10_000,
        max_bytes: 1 << 40,
    });
    let classes = classes
        .iter()
        .map(|&(name, max_in_flight)| ClassRule { id: ClassId::of(name), max_in_flight });
    PoolLimits { max_in_flight, tiers: tiers.collect(), classes: classes.collect() }
}

/// What became of one client so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    pub(super) served: u64,
    pub(super) tokens: u64,
    pub(super) waits: Vec<Nanos>,
    pub(super) left: u64,
    pub(super) refused: u64,
    pub(super) full: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Finish(usize, u32),
    Leave(usize, u32),
    Arrive(usize),
    Tick(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Away,
    Waiting { since: Nanos },
    Running { since: Nanos },
}

pub(super) struct Sim {
    pub(super) host: Host,
    pub(super) rng: Rng,
    pub(super) pools: Vec<RefCell<Option<(SlotId, Pool)>>>,
    pub(super) clients: Vec<Client>,
    pub(super) fates: RefCell<Vec<Fate>>,
    pub(super) limits: RefCell<PoolLimits>,
    states: RefCell<Vec<(State, u32)>>,
    heap: RefCell<BinaryHeap<Reverse<(Nanos, u64, Event)>>>,
    sequence: Cell<u64>,
    pub(super) now: Cell<Nanos>,
    /// This instance does nothing until then.
    pub(super) stuck: Cell<Option<(usize, Nanos)>>,
    /// What happens now may break limits: they are not checked.
    pub(super) unlimited: Cell<bool>,
    /// Predictions are noted.
    pub(super) predicting: Cell<bool>,
    /// Nobody asks any more.
    closing: Cell<bool>,
    /// Per cent of messages that are lost.
    pub(super) loss: Cell<u64>,
    /// Predicted and true wait of every request that waited.
    pub(super) predictions: RefCell<Vec<(Nanos, Nanos)>>,
    foreseen: RefCell<Vec<Option<Nanos>>>,
    /// Most concurrent requests.
    pub(super) peak: Cell<u32>,
    /// Every request served, in order: client, when it had come and when it began.
    pub(super) order: RefCell<Vec<(usize, Nanos, Nanos)>>,
}

impl Sim {
    pub(super) fn new(
        nodes: usize,
        limits: PoolLimits,
        clients: Vec<Client>,
        seed: u64,
    ) -> Rc<Self> {
        let host = Host::default();
        members::create("members", &mut host.clone()).expect("stored");
        let pools = (0..nodes)
            .map(|node| {
                let mut pool = Pool::new(PoolId(1), KEY.to_owned(), "c", limits.clone());
                pool.create(&mut host.clone()).expect("stored");
                RefCell::new(Some((SlotId(u32::try_from(node).expect("few") + 1), pool)))
            })
            .collect();
        let count = clients.len();
        let sim = Rc::new(Self {
            host,
            rng: Rng::new(seed),
            pools,
            fates: RefCell::new(vec![Fate::default(); count]),
            states: RefCell::new(vec![(State::Away, 0); count]),
            clients,
            limits: RefCell::new(limits),
            heap: RefCell::default(),
            sequence: Cell::new(0),
            now: Cell::new(0),
            closing: Cell::new(false),
            predicting: Cell::new(false),
            stuck: Cell::new(None),
            unlimited: Cell::new(false),
            loss: Cell::new(0),
            predictions: RefCell::default(),
            foreseen: RefCell::new(vec![None; count]),
            peak: Cell::new(0),
            order: RefCell::default(),
        });
        for client in 0..count {
            // Clients come one after the other, so that no two wait since the same moment.
            sim.at(sim.rng.below(20 * MILLI), Event::Arrive(client));
        }
        for node in 0..nodes {
            sim.at(sim.rng.below(TICK), Event::Tick(node));
        }
        sim
    }

    /// Lets other instances act between an instance's read and its write, in this share of reads.
    pub(super) fn interleave(self: &Rc<Self>, percent: u64) {
        let sim: Weak<Self> = Rc::downgrade(self);
        let depth = Rc::new(Cell::new(0));
        self.host.hook(Some(Rc::new(move || {
            let Some(sim) = sim.upgrade() else { return };
            if depth.get() < 3 && sim.rng.percent(percent) {
                depth.set(depth.get() + 1);
                sim.step();
                depth.set(depth.get() - 1);
            }
        })));
    }

    fn at(&self, time: Nanos, event: Event) {
        self.sequence.set(self.sequence.get() + 1);
        self.heap.borrow_mut().push(Reverse((time, self.sequence.get(), event)));
    }

    /// Runs what is due until this time; checks the limits after each step.
    pub(super) fn run_until(&self, end: Nanos) {
        while self.next_time().is_some_and(|time| time <= end) {
            self.step();
            self.check();
        }
        self.now.set(end);
    }

    /// Forgets what was measured so far.
    pub(super) fn measure_from_now(&self) {
        self.fates.borrow_mut().iter_mut().for_each(|fate| *fate = Fate::default());
        self.order.borrow_mut().clear();
        self.predictions.borrow_mut().clear();
    }

    /// Sends all clients away once they are served, and runs until nothing happens any more.
    pub(super) fn drain(&self) {
        self.closing.set(true);
        self.run_until(self.now.get() + 3_600_000 * MILLI);
    }

    fn next_time(&self) -> Option<Nanos> {
        self.heap.borrow().peek().map(|Reverse((time, ..))| *time)
    }

    pub(super) fn step(&self) {
        let next = self.heap.borrow_mut().pop();
        let Some(Reverse((time, _, event))) = next else { return };
        let node = match event {
            Event::Wake(node) | Event::Tick(node) => node,
            Event::Finish(client, _) | Event::Leave(client, _) | Event::Arrive(client) => {
                self.clients[client].node
            }
        };
        if let Some((stuck, until)) = self.stuck.get()
            && stuck == node
            && time < until
        {
            self.at(until, event);
            return;
        }
        let Ok(mut place) = self.pools[node].try_borrow_mut() else {
            // Its instance is in the middle of something: it comes right after.
            self.at(time, event);
            return;
        };
        self.now.set(self.now.get().max(time));
        let Some((slot, pool)) = place.as_mut() else {
            // The instance died, and its clients with it.
            return;
        };
        let slot = *slot;
        let mut port = self.host.clone();
        let promoted = match event {
            Event::Wake(_) => pool.look(slot, &mut port),
            Event::Tick(_) => {
                if !self.closing.get() || !pool.is_idle() {
                    self.at(time + TICK, event);
                }
                let refresh = time / REFRESH != time.saturating_sub(TICK) / REFRESH;
                if pool.has_spare() || (refresh && (pool.waits() || pool.is_stale())) {
                    pool.look(slot, &mut port)
                } else {
                    Vec::new()
                }
            }
            Event::Arrive(_) if self.closing.get() => Vec::new(),
            Event::Arrive(client) => self.arrive(client, slot, pool),
            Event::Finish(client, turn) => self.finish(client, turn, slot, pool),
            Event::Leave(client, turn) => self.leave(client, turn, slot, pool),
        };
        for stream in promoted {
            self.start(usize::try_from(stream.0).expect("small"));
        }
        drop(place);
        self.deliver();
    }

    fn deliver(&self) {
        for (slot, _) in self.host.mail() {
            let known = usize::try_from(slot.0).is_ok_and(|slot| slot <= self.pools.len());
            if known && !self.rng.percent(self.loss.get()) {
                let delay = 100_000 + self.rng.below(600_000);
                let node = usize::try_from(slot.0 - 1).expect("small");
                self.at(self.now.get() + delay, Event::Wake(node));
            }
        }
    }

    fn arrive(&self, client: usize, slot: SlotId, pool: &mut Pool) -> Vec<StreamId> {
        let who = self.clients[client];
        let now = self.now.get();
        let arrival = Arrival {
            lane: who.lane,
            rank: 0,
            flow: who.flow,
            cost: who.cost,
            bytes: 100,
            now,
            max_wait: who.max_wait,
        };
        let stream = StreamId(u32::try_from(client).expect("few"));
        let mut port = self.host.clone();
        // Who may not wait at all is told the wait that is predicted.
        let waits = pool.ledger(&mut port).is_ok_and(|ledger| {
            ledger.is_some_and(|ledger| ledger.in_flight() >= self.limits.borrow().max_in_flight)
        });
        if waits && self.predicting.get() {
            let probe = Arrival { max_wait: 0, ..arrival };
            let change = pool.arrive(slot, stream, probe, &mut port).expect("stored");
            let Some(Arrived::TooLong { predicted }) = change.arrived else { panic!("it waits") };
            self.foreseen.borrow_mut()[client] = Some(predicted);
        }
        let arrived = pool.arrive(slot, stream, arrival, &mut port);
        let Ok(Change { promoted, arrived }) = arrived else {
            self.at(self.now.get() + 10 * MILLI, Event::Arrive(client));
            return Vec::new();
        };
        match arrived.expect("an arrival has a fate") {
            Arrived::Admitted => {
                self.states.borrow_mut()[client].0 = State::Waiting { since: now };
                self.start(client);
            }
            Arrived::Queued { .. } => {
                let mut states = self.states.borrow_mut();
                states[client].0 = State::Waiting { since: now };
                states[client].1 += 1;
                if let Some(patience) = who.patience {
                    self.at(now + patience, Event::Leave(client, states[client].1));
                }
            }
            Arrived::Full { .. } => {
                self.fates.borrow_mut()[client].full += 1;
                self.at(self.now.get() + 20 * MILLI, Event::Arrive(client));
            }
            Arrived::TooLong { .. } => {
                self.fates.borrow_mut()[client].refused += 1;
                self.at(self.now.get() + 20 * MILLI, Event::Arrive(client));
            }
        }
        promoted
    }

    fn start(&self, client: usize) {
        let now = self.now.get();
        let mut states = self.states.borrow_mut();
        let (state, turn) = &mut states[client];
        let State::Waiting { since } = *state else { panic!("only a waiter gets a permit") };
        *state = State::Running { since: now };
        *turn += 1;
        let who = &self.clients[client];
        self.at(now + who.hold, Event::Finish(client, *turn));
        let fate = &mut self.fates.borrow_mut()[client];
        fate.served += 1;
        fate.tokens += who.cost;
        fate.waits.push(now - since);
        if let Some(foreseen) = self.foreseen.borrow_mut()[client].take() {
            self.predictions.borrow_mut().push((foreseen, now - since));
        }
        self.order.borrow_mut().push((client, since, now));
    }

    fn finish(&self, client: usize, turn: u32, slot: SlotId, pool: &mut Pool) -> Vec<StreamId> {
        let who = &self.clients[client];
        let (State::Running { since }, true) = ({
            let (state, now) = self.states.borrow()[client];
            (state, now == turn)
        }) else {
            return Vec::new();
        };
        self.states.borrow_mut()[client].0 = State::Away;
        let now = self.now.get();
        self.at(now + self.rng.below(who.think + 1), Event::Arrive(client));
        pool.release(slot, who.lane, now - since, now, &mut self.host.clone())
    }

    fn leave(&self, client: usize, turn: u32, slot: SlotId, pool: &mut Pool) -> Vec<StreamId> {
        let who = &self.clients[client];
        let (state, now) = self.states.borrow()[client];
        if now != turn || !matches!(state, State::Waiting { .. }) {
            return Vec::new();
        }
        self.states.borrow_mut()[client].0 = State::Away;
        self.fates.borrow_mut()[client].left += 1;
        self.at(self.now.get() + self.rng.below(who.think + 1), Event::Arrive(client));
        let stream = StreamId(u32::try_from(client).expect("few"));
        pool.leave(slot, stream, &mut self.host.clone())
    }

    /// Requests that run now, by what the clients know.
    pub(super) fn running(&self, of: impl Fn(&Lane) -> bool) -> u32 {
        let states = self.states.borrow();
        let clients = self.clients.iter().zip(states.iter());
        let running = clients
            .filter(|(who, (state, _))| of(&who.lane) && matches!(state, State::Running { .. }));
        u32::try_from(running.count()).expect("few")
    }

    /// Requests that wait now, by what the clients know.
    pub(super) fn waiting(&self, of: impl Fn(&Lane) -> bool) -> usize {
        let states = self.states.borrow();
        let clients = self.clients.iter().zip(states.iter());
        clients
            .filter(|(who, (state, _))| of(&who.lane) && matches!(state, State::Waiting { .. }))
            .count()
    }

    /// No limit is exceeded over all instances.
    fn check(&self) {
        if self.unlimited.get() {
            return;
        }
        let limits = self.limits.borrow();
        let all = self.running(|_| true);
        self.peak.set(self.peak.get().max(all));
        assert!(all <= limits.max_in_flight, "{all} of {} permits", limits.max_in_flight);
        for rule in &limits.tiers {
            let most = rule.max_in_flight.unwrap_or(u32::MAX);
            assert!(self.running(|lane| lane.tier == rule.id) <= most, "a tier is over its limit");
        }
        for rule in &limits.classes {
            let most = rule.max_in_flight.unwrap_or(u32::MAX);
            assert!(self.running(|lane| lane.class == rule.id) <= most, "a class is over");
        }
    }

    /// Delivers what is under way; then no permit may be free that a waiter could have.
    pub(super) fn check_no_permit_is_idle(&self) {
        while !self.quiet() {
            self.step();
        }
        let limits = self.limits.borrow();
        if self.running(|_| true) >= limits.max_in_flight {
            return;
        }
        for rule in &limits.tiers {
            let tier_full =
                self.running(|lane| lane.tier == rule.id) >= rule.max_in_flight.unwrap_or(u32::MAX);
            for class in &limits.classes {
                let class_full = self.running(|lane| lane.class == class.id)
                    >= class.max_in_flight.unwrap_or(u32::MAX);
                let waiting = self.waiting(|lane| lane.tier == rule.id && lane.class == class.id);
                assert!(tier_full || class_full || waiting == 0, "a permit is idle");
            }
        }
    }

    /// Whether no message is under way.
    fn quiet(&self) -> bool {
        !self.heap.borrow().iter().any(|Reverse((.., event))| matches!(event, Event::Wake(_)))
    }

    /// All instances take up new limits.
    pub(super) fn adopt(&self, limits: &PoolLimits) {
        *self.limits.borrow_mut() = limits.clone();
        for place in &self.pools {
            if let Some((_, pool)) = place.borrow_mut().as_mut() {
                pool.limit("c", limits.clone());
            }
        }
    }

    /// An instance dies, and its clients with it.
    pub(super) fn kill(&self, node: usize) {
        *self.pools[node].borrow_mut() = None;
        let mut states = self.states.borrow_mut();
        for (client, state) in self.clients.iter().zip(states.iter_mut()) {
            if client.node == node {
                state.0 = State::Away;
            }
        }
    }

    /// Does what living instances do every second: say that they live, and look who does not.
    pub(super) fn purge(&self) {
        let now = self.now.get();
        let mut port = self.host.clone();
        let acts = |node: &usize| self.stuck.get().is_none_or(|(stuck, _)| stuck != *node);
        for node in (0..self.pools.len()).filter(acts) {
            let slot = self.pools[node].borrow().as_ref().map(|(slot, _)| *slot);
            if slot.is_some() {
                members::beat("members", slot, now, &mut port).expect("stored");
            }
        }
        for node in (0..self.pools.len()).filter(acts) {
            let place = &self.pools[node];
            if let Some((slot, pool)) = place.borrow_mut().as_mut() {
                pool.purge(&mut |port| members::look("members", now, port), &mut port)
                    .expect("stored");
                for stream in pool.look(*slot, &mut port) {
                    self.start(usize::try_from(stream.0).expect("small"));
                }
            }
        }
        self.deliver();
    }

    /// The ledger as it is stored.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger::decode(&self.host.value(KEY)).expect("a ledger")
    }

    /// The share of served tokens by a number that each client is given.
    pub(super) fn shares(&self, group: impl Fn(&Client) -> u32) -> BTreeMap<u32, f64> {
        let fates = self.fates.borrow();
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for (client, fate) in self.clients.iter().zip(fates.iter()) {
            *sums.entry(group(client)).or_default() += fate.tokens as f64;
        }
        let all: f64 = sums.values().sum();
        sums.into_iter().map(|(group, sum)| (group, sum / all)).collect()
    }

    /// The mean wait of some clients, in milliseconds.
    pub(super) fn mean_wait(&self, of: impl Fn(&Client) -> bool) -> f64 {
        let fates = self.fates.borrow();
        let picked = self.clients.iter().zip(fates.iter()).filter(|(client, _)| of(client));
        let waits: Vec<Nanos> = picked.flat_map(|(_, fate)| fate.waits.iter().copied()).collect();
        waits.iter().sum::<Nanos>() as f64 / waits.len().max(1) as f64 / MILLI as f64
    }
}
