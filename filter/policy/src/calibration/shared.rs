//! What was learned about all models, shared by the instances of the process.
//!
//! An instance gathers what answers taught it and writes it with the refresh, by compare-and-set, so
//! that a request costs no call into the host; it reads the value then too. The gauges are set from
//! the shared value, so every instance sets the same.

use rustc_hash::FxHashMap;

use super::{Estimate, Learned, ONE, Observation};
use crate::config::{Model, Policy, Tokenizer};
use crate::port::{Port, StoreError};
use crate::stats::StatId;

/// Answers that one instance keeps between two refreshes.
pub const MAX_PENDING: usize = 64;

const TRIES: u32 = 100;

/// In thousandths, as gauges have it.
pub(super) fn permille(parts: u32) -> u64 {
    let rounded = u64::from(parts).saturating_mul(1_000).saturating_add(u64::from(ONE / 2));
    rounded >> ONE.trailing_zeros()
}

/// One model's part in one instance.
#[derive(Debug, Default)]
struct Calibration {
    key: String,
    /// As it was at the last refresh.
    learned: Learned,
    /// The version of the stored value that `learned` is; `None`: none was read.
    version: Option<u32>,
    /// What came since.
    pending: Vec<Observation>,
}

impl Calibration {
    /// Makes the value where it is missing, before the first race for it can be.
    fn create(&self, port: &mut dyn Port) -> Result<(), StoreError> {
        let stored = port.load(&self.key)?;
        if stored.version == 0 && stored.bytes.is_empty() {
            port.store(&self.key, &Learned::default().encode(), 0)?;
        }
        Ok(())
    }

    /// Writes what is pending and reads what others wrote. Whether the value changed.
    fn refresh(&mut self, port: &mut dyn Port) -> Result<bool, StoreError> {
        let pending = std::mem::take(&mut self.pending);
        for _ in 0..TRIES {
            let stored = port.load(&self.key)?;
            if pending.is_empty() && self.version == Some(stored.version) {
                return Ok(false);
            }
            let read = Learned::decode(&stored.bytes);
            let foreign = read.is_none() && !stored.bytes.is_empty();
            port.count(StatId::SharedStateErrors, foreign.into());
            let mut learned = read.unwrap_or_default();
            if pending.is_empty() && !foreign {
                self.learned = learned;
                self.version = Some(stored.version);
                return Ok(true);
            }
            for seen in &pending {
                learned.take(seen);
            }
            if port.store(&self.key, &learned.encode(), stored.version)? {
                self.learned = learned;
                // The version it has now is not told; the next refresh reads it.
                self.version = None;
                return Ok(true);
            }
        }
        Err(StoreError::Contended)
    }
}

/// What was learned about every model of the policy, as one instance has it.
#[derive(Debug, Default)]
pub struct Calibrations(FxHashMap<String, Calibration>);

impl Calibrations {
    /// Takes up the models of a policy. What is known of a model is kept while its tokenizer stays.
    pub fn adopt(&mut self, prefix: &str, policy: &Policy, port: &mut dyn Port) {
        let mut known = std::mem::take(&mut self.0);
        for model in &policy.models {
            let key = format!("{prefix}tokens/{}/{}", model.name, tokenizer(model));
            let old = known.remove(&model.name).filter(|old| old.key == key);
            // Gauges are named by the new policy: they are set anew.
            let calibration = match old {
                Some(old) => Calibration { version: None, ..old },
                None => Calibration { key, ..Calibration::default() },
            };
            let created = calibration.create(port);
            port.count(StatId::SharedStateErrors, created.is_err().into());
            self.0.insert(model.name.clone(), calibration);
        }
    }

    /// Sets and returns the tokens of a prompt for this model.
    pub fn apply(&self, model: &str, estimate: &mut Estimate) -> u64 {
        match self.0.get(model) {
            Some(known) => estimate.apply(&known.learned),
            None => estimate.apply(&Learned::default()),
        }
    }

    /// Takes the engine's count of a prompt of this model.
    pub fn learn(&mut self, model: &str, estimate: &Estimate, truth: u64) {
        let Some(known) = self.0.get_mut(model) else { return };
        if known.pending.len() < MAX_PENDING
            && let Some(seen) = estimate.observe(truth)
        {
            known.pending.push(seen);
        }
    }

    /// Shares what was learned, takes up what others have learned, and sets the gauges.
    pub fn refresh(&mut self, policy: &Policy, port: &mut dyn Port) {
        for (index, model) in policy.models.iter().enumerate() {
            let Some(known) = self.0.get_mut(&model.name) else { continue };
            match known.refresh(port) {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(ratio) = known.learned.ratio() {
                        port.set(StatId::TokenRatio(index), permille(ratio));
                    }
                    for (kind, factor) in known.learned.factors() {
                        port.set(StatId::TokenFactor(index, kind), permille(factor));
                    }
                }
                Err(_) => port.count(StatId::SharedStateErrors, 1),
            }
        }
    }

    /// Sets the gauges to zero of models that the next policy has no longer, or counts with another
    /// tokenizer. To be called while stats are named by the policy that serves.
    pub fn retire(&self, policy: &Policy, next: &Policy, port: &mut dyn Port) {
        for (index, model) in policy.models.iter().enumerate() {
            let same = |other: &&Model| other.name == model.name;
            let stays = next.models.iter().find(same);
            let Some(known) = self.0.get(&model.name) else { continue };
            if stays.is_some_and(|next| tokenizer(next) == tokenizer(model)) {
                continue;
            }
            if known.learned.ratio().is_some() {
                port.set(StatId::TokenRatio(index), 0);
            }
            for (kind, _) in known.learned.factors() {
                port.set(StatId::TokenFactor(index, kind), 0);
            }
        }
    }
}

/// The name of the tokenizer that counts for a model.
fn tokenizer(model: &Model) -> &str {
    match &model.tokenizer {
        Tokenizer::Estimate => "estimate",
        Tokenizer::Vocabulary(name) => name,
    }
}
