//! A host in memory, shared by all instances of a test.
//!
//! It keeps the contract of Envoy's shared data, with its traps: a change that names version 0
//! always overwrites, and one of a value that is not there ignores the version. Messages lie in
//! one heap until the test delivers, delays or loses them. A hook runs after every read, so that a
//! test can let another instance act between an instance's read and its write.
#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use crate::ids::{PoolId, SlotId};
use crate::port::{Port, StoreError, Stored};
use crate::stats::StatId;
use crate::tokens::TokenCounter;

/// A handle of the one host; each instance has a copy.
#[derive(Clone, Default)]
pub(crate) struct Host(Rc<Inner>);

#[derive(Default)]
struct Inner {
    values: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    version: Cell<u32>,
    mail: RefCell<Vec<(SlotId, PoolId)>>,
    slots: RefCell<Vec<SlotId>>,
    counters: RefCell<HashMap<StatId, u64>>,
    gauges: RefCell<HashMap<StatId, u64>>,
    histograms: RefCell<HashMap<StatId, Vec<u64>>>,
    failing: Cell<bool>,
    refused: Cell<u64>,
    hook: RefCell<Option<Rc<dyn Fn()>>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// Lets reads and writes fail from now on, or not.
    pub(crate) fn fail(&self, failing: bool) {
        self.0.failing.set(failing);
    }

    /// Runs this after every read.
    pub(crate) fn hook(&self, hook: Option<Rc<dyn Fn()>>) {
        *self.0.hook.borrow_mut() = hook;
    }

    /// Takes all messages that were sent.
    pub(crate) fn mail(&self) -> Vec<(SlotId, PoolId)> {
        std::mem::take(&mut *self.0.mail.borrow_mut())
    }

    /// The numbers under which mailboxes were opened, in order.
    pub(crate) fn slots(&self) -> Vec<SlotId> {
        self.0.slots.borrow().clone()
    }

    /// The names of all values.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.values.borrow().keys().cloned().collect()
    }

    /// A value, empty where there is none.
    pub(crate) fn value(&self, key: &str) -> Vec<u8> {
        self.0.values.borrow().get(key).map(|(bytes, _)| bytes.clone()).unwrap_or_default()
    }

    /// Overwrites a value as another plugin might; `None` removes it.
    pub(crate) fn put(&self, key: &str, bytes: Option<&[u8]>) {
        let version = self.next_version();
        let mut values = self.0.values.borrow_mut();
        match bytes {
            Some(bytes) => drop(values.insert(key.to_owned(), (bytes.to_vec(), version))),
            None => drop(values.remove(key)),
        }
    }

    /// Conditional writes that lost their race so far.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.get()
    }

    /// A counter.
    pub(crate) fn counter(&self, stat: StatId) -> u64 {
        self.0.counters.borrow().get(&stat).copied().unwrap_or(0)
    }

    /// All counters.
    pub(crate) fn counters(&self) -> HashMap<StatId, u64> {
        self.0.counters.borrow().clone()
    }

    /// A gauge.
    pub(crate) fn gauge(&self, stat: StatId) -> Option<u64> {
        self.0.gauges.borrow().get(&stat).copied()
    }

    /// The samples of a histogram.
    pub(crate) fn samples(&self, stat: StatId) -> Vec<u64> {
        self.0.histograms.borrow().get(&stat).cloned().unwrap_or_default()
    }

    fn next_version(&self) -> u32 {
        self.0.version.set(self.0.version.get() + 1);
        self.0.version.get()
    }
}

impl Port for Host {
    fn load(&mut self, key: &str) -> Result<Stored, StoreError> {
        if self.0.failing.get() {
            return Err(StoreError::Host);
        }
        let found = self.0.values.borrow().get(key).cloned();
        let hook = self.0.hook.borrow().clone();
        if let Some(hook) = hook {
            hook();
        }
        let (bytes, version) = found.unwrap_or_default();
        Ok(Stored { bytes, version })
    }

    fn store(&mut self, key: &str, bytes: &[u8], version: u32) -> Result<bool, StoreError> {
        if self.0.failing.get() {
            return Err(StoreError::Host);
        }
        let found = self.0.values.borrow().get(key).map(|(_, version)| *version);
        if version != 0 && found.is_some_and(|found| found != version) {
            self.0.refused.set(self.0.refused.get() + 1);
            return Ok(false);
        }
        self.put(key, Some(bytes));
        Ok(true)
    }

    fn open_mailbox(&mut self, slot: SlotId) -> Result<(), StoreError> {
        self.0.slots.borrow_mut().push(slot);
        Ok(())
    }

    fn wake(&mut self, slot: SlotId, pool: PoolId) {
        self.0.mail.borrow_mut().push((slot, pool));
    }

    fn count(&mut self, stat: StatId, by: u64) {
        *self.0.counters.borrow_mut().entry(stat).or_insert(0) += by;
    }

    fn record(&mut self, stat: StatId, value: u64) {
        self.0.histograms.borrow_mut().entry(stat).or_default().push(value);
    }

    fn set(&mut self, stat: StatId, value: u64) {
        self.0.gauges.borrow_mut().insert(stat, value);
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(Cell<u64>);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Keeps the texts it is given, and counts each as one token.
#[derive(Debug, Default)]
pub(crate) struct Texts(pub(crate) Vec<String>);

impl TokenCounter for Texts {
    fn text(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn tokens(&self) -> u64 {
        self.0.len() as u64
    }

    fn is_exact(&self) -> bool {
        true
    }
}
