//! What engines teach about an estimate: the factor from a counter's tokens to a model's own.
//!
//! An estimate is made for one vocabulary, or counted with one, and wrong for every other by a
//! factor that differs by kind of text: the digits of one model are worth twice the estimate, its
//! Greek half. The engine says what each prompt was really worth, so each model has one factor for
//! each [`Kind`] of text, and a prompt's factor is their mean by the shares of its kinds.
//!
//! **How it learns.** An answer's ratio of truth to estimate is one equation about the factors of the
//! kinds its prompt is made of, and is known only to about a twelfth. Each factor carries a *doubt*
//! (a variance): what an answer was off is laid on the kinds by doubt and share, and lessens the
//! doubt, as a Kalman filter without cross terms does. For prompts of one kind this is an average
//! that moves by `max(1/n, 1/20)`, so thirty answers are enough to begin with, and it follows when
//! the traffic changes. Digits start with more doubt than all others: whether a vocabulary takes
//! them singly or by threes is what vocabularies differ in most.
//!
//! **What is not learned from**: prompts of few tokens, where the template weighs more than the text;
//! images and sound, whose price is the policy's; whatever else was guessed; counts with the
//! model's own vocabulary; ratios
//! that no vocabulary can have. Factors stay between a quarter and four.
//!
//! Beside the factors there is the steady **ratio** of truth to the count that was given out, factor
//! included and exact counts too. It is near 1 unless the tokenizer or the template is wrong.
//!
//! **Shared by the workers.** All of it is one small value per model and tokenizer in the shared store,
//! see [`Calibrations`]. Bytes that are not ours are counted and replaced.
//!
//! Trade-offs: the prompt's template is taken as known, so a wrong one is learned as a wrong factor
//! for short prompts. Learning lags by up to one refresh. At most [`MAX_PENDING`] answers between two
//! refreshes are learned from. Who can make an engine lie can shift the factors of its model within
//! their bounds.

mod shared;

use crate::tokens::kind::{KINDS, Kind, Mix};

pub use shared::{Calibrations, MAX_PENDING};

/// The factor 1. Factors and ratios are whole numbers of this part.
pub const ONE: u32 = 1 << 16;
/// The smallest factor.
pub const MIN_FACTOR: u32 = ONE / 4;
/// The largest factor.
pub const MAX_FACTOR: u32 = ONE * 4;

/// Tokens of text below which a prompt teaches nothing.
const MIN_TEXT: u64 = 16;
/// A count so many times the plain estimate, or so small a part of it, is no truth about this prompt.
const ABSURD: u32 = 16;
/// Bounds of the steady ratio.
const MIN_RATIO: u32 = ONE / 64;
const MAX_RATIO: u32 = ONE * 64;

/// Doubts are variances, whole numbers of this part.
const DOUBT: u32 = 1 << 24;
/// What a factor may be off before anything is known: a fifth.
const START: u32 = DOUBT / 20;
/// The same for digits: two thirds.
const START_DIGITS: u32 = DOUBT / 2;
/// How far the ratio of one answer is from what its kinds say: the twelfth that is left of the error
/// when the factors are right, squared.
const NOISE: u64 = 100_000;
/// Tokens of text at which chance and template add as much again.
const SHORT: u64 = 64;
/// A doubt never gets smaller, so that the last twenty answers always count.
const LEAST: u32 = 5_000;

const MAGIC: [u8; 4] = *b"slc\x01";
/// Bytes of the stored value.
const BYTES: usize = 4 + KINDS * 8 + 8;

/// What was learned about one kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    factor: u32,
    doubt: u32,
}

/// What was learned about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    slots: [Slot; KINDS],
    ratio: u32,
    answers: u32,
}

impl Default for Learned {
    fn default() -> Self {
        let mut slots = [Slot { factor: ONE, doubt: START }; KINDS];
        if let Some(digits) = slots.get_mut(Kind::Digits as usize) {
            digits.doubt = START_DIGITS;
        }
        Self { slots, ratio: ONE, answers: 0 }
    }
}

/// A prompt's count, and all that is needed to learn from the engine's count of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// The kinds of its texts.
    pub mix: Mix,
    /// Tokens of its texts as the counter gave them.
    pub text: u64,
    /// Tokens of everything else: the template, token ids, images, sound.
    pub fixed: u64,
    /// The model's own vocabulary counted: no factor is applied.
    pub own: bool,
    /// The engine will count the same.
    pub exact: bool,
    /// It holds what is priced or guessed instead of counted, so that it teaches nothing.
    pub priced: bool,
    /// The tokens given out, once [`Estimate::apply`] has set them.
    pub given: u64,
}

impl Estimate {
    /// Sets and returns the tokens of the whole prompt.
    pub fn apply(&mut self, learned: &Learned) -> u64 {
        let factor = if self.own { ONE } else { learned.factor(&self.mix) };
        let text = u128::from(self.text).saturating_mul(factor.into());
        let rounded = text.saturating_add(u128::from(ONE / 2)) >> ONE.trailing_zeros();
        let text = u64::try_from(rounded).unwrap_or(u64::MAX);
        self.given = text.saturating_add(self.fixed);
        self.given
    }

    /// What the engine's count says about this one. `None`: nothing.
    fn observe(&self, truth: u64) -> Option<Observation> {
        let plain = self.text.saturating_add(self.fixed);
        if self.priced || plain < MIN_TEXT {
            return None;
        }
        // Held against what no factor has touched: a factor that is far off must find back.
        let absurd = u64::from(ABSURD);
        let most = plain.saturating_mul(absurd);
        if truth > most || truth.saturating_mul(absurd) < plain {
            return None;
        }
        let learns = !self.own && self.text >= MIN_TEXT && !self.mix.is_empty();
        let of_text = truth.checked_sub(self.fixed).filter(|_| learns);
        Some(Observation {
            mix: self.mix,
            tokens: self.text,
            text: of_text.map(|truth| ratio(truth, self.text, MIN_FACTOR, MAX_FACTOR)),
            given: ratio(truth, self.given, MIN_RATIO, MAX_RATIO),
        })
    }
}

/// The ratio of two counts in parts of [`ONE`], within these bounds.
fn ratio(truth: u64, count: u64, least: u32, most: u32) -> u32 {
    let ratio = u128::from(truth).saturating_mul(ONE.into()).checked_div(count.into());
    let ratio = ratio.and_then(|ratio| u32::try_from(ratio).ok()).unwrap_or(most);
    ratio.clamp(least, most)
}

/// What one answer taught.
#[derive(Debug, Clone, Copy)]
struct Observation {
    mix: Mix,
    tokens: u64,
    /// Truth to estimate of the texts, where that teaches something.
    text: Option<u32>,
    /// Truth to the count that was given out.
    given: u32,
}

impl Learned {
    /// The factor for texts of these kinds, in parts of [`ONE`].
    pub fn factor(&self, mix: &Mix) -> u32 {
        let (mut sum, mut whole) = (0_u64, 0_u64);
        for (slot, share) in self.slots.iter().zip(mix.shares()) {
            let share = u64::from(share);
            sum = sum.saturating_add(share.saturating_mul(slot.factor.into()));
            whole = whole.saturating_add(share);
        }
        let mean = sum.checked_div(whole).and_then(|mean| u32::try_from(mean).ok());
        mean.unwrap_or(ONE).clamp(MIN_FACTOR, MAX_FACTOR)
    }

    /// The steady ratio of truth to the count that was given out, in parts of [`ONE`]; `None` before
    /// the first answer.
    pub fn ratio(&self) -> Option<u32> {
        (self.answers > 0).then_some(self.ratio)
    }

    /// The factors of the kinds that something was learned about.
    pub fn factors(&self) -> impl Iterator<Item = (Kind, u32)> + '_ {
        let fresh = Self::default().slots;
        let slots = self.slots.iter().zip(fresh).zip(Kind::ALL);
        let learned = slots.filter(|((slot, fresh), _)| **slot != *fresh);
        learned.map(|((slot, _), kind)| (*kind, slot.factor))
    }

    /// Takes the engine's count of a prompt.
    pub fn learn(&mut self, estimate: &Estimate, truth: u64) {
        if let Some(seen) = estimate.observe(truth) {
            self.take(&seen);
        }
    }

    fn take(&mut self, seen: &Observation) {
        self.answers = self.answers.saturating_add(1);
        let step = i64::from(self.answers.min(20));
        let off = i64::from(seen.given).saturating_sub(self.ratio.into());
        self.ratio = moved(self.ratio, off.checked_div(step).unwrap_or(0), MIN_RATIO, MAX_RATIO);
        if let Some(ratio) = seen.text {
            self.take_text(&seen.mix, ratio, seen.tokens);
        }
    }

    /// One step of the filter. Shares are 1024ths, so a product of two of them is `>> 20` too large.
    fn take_text(&mut self, mix: &Mix, ratio: u32, tokens: u64) {
        let off = i64::from(ratio).saturating_sub(self.factor(mix).into());
        let noise =
            NOISE.saturating_add(NOISE.saturating_mul(SHORT).checked_div(tokens).unwrap_or(0));
        let part = |slot: &Slot, share: u32| {
            u64::from(slot.doubt).saturating_mul(share.into()).saturating_mul(share.into()) >> 20
        };
        let parts = self.slots.iter().zip(mix.shares()).map(|(slot, share)| part(slot, share));
        let all = parts.fold(noise, u64::saturating_add);
        let wide = i64::try_from(all << 10).unwrap_or(i64::MAX);
        for (slot, share) in self.slots.iter_mut().zip(mix.shares()) {
            let lay = i64::from(slot.doubt).saturating_mul(share.into()).saturating_mul(off);
            let by = lay.checked_div(wide).unwrap_or(0);
            let sure = u64::from(slot.doubt).saturating_mul(part(slot, share)).checked_div(all);
            slot.factor = moved(slot.factor, by, MIN_FACTOR, MAX_FACTOR);
            let sure = u32::try_from(sure.unwrap_or(0)).unwrap_or(0);
            slot.doubt = slot.doubt.saturating_sub(sure).max(LEAST);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        for slot in &self.slots {
            out.extend_from_slice(&slot.factor.to_le_bytes());
            out.extend_from_slice(&slot.doubt.to_le_bytes());
        }
        out.extend_from_slice(&self.ratio.to_le_bytes());
        out.extend_from_slice(&self.answers.to_le_bytes());
        out
    }

    /// `None` where the bytes are not ours, or say what cannot have been learned.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut word = || {
            let (word, tail) = rest.split_first_chunk::<4>()?;
            rest = tail;
            Some(u32::from_le_bytes(*word))
        };
        let mut learned = Self::default();
        for slot in &mut learned.slots {
            *slot = Slot { factor: word()?, doubt: word()? };
            let legal = (MIN_FACTOR..=MAX_FACTOR).contains(&slot.factor)
                && (LEAST..=START_DIGITS).contains(&slot.doubt);
            legal.then_some(())?;
        }
        learned.ratio = word()?;
        learned.answers = word()?;
        let legal = (MIN_RATIO..=MAX_RATIO).contains(&learned.ratio);
        (legal && rest.is_empty()).then_some(learned)
    }
}

fn moved(value: u32, by: i64, least: u32, most: u32) -> u32 {
    let moved = i64::from(value).saturating_add(by).clamp(least.into(), most.into());
    u32::try_from(moved).unwrap_or(value)
}

#[cfg(test)]
mod tests;
