//! Merging the symbols of one piece: always the pair that comes first in the vocabulary, of equal
//! ones the leftmost.
//!
//! Few symbols are merged by looking through all of them for every merge, which needs no memory and
//! stays in the cache; many by a heap of pairs, unless they are a few runs of equal ones (blanks,
//! rulers), which are merged run by run: a token comes later than its parts, so all pairs of the
//! smallest kind may be merged at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tables::{NONE, Pairs};

/// Up to here looking through all symbols is faster than a heap.
pub(super) const SHORT: usize = 40;

/// Working memory for long pieces, kept from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    /// The symbols the next call merges.
    pub(super) ids: Vec<u32>,
    symbols: Vec<Symbol>,
    runs: Vec<Run>,
    next_runs: Vec<Run>,
    /// Symbols that were merged by the heap and pairs of runs that were looked at, since the counter
    /// began: the work that a text can make dear.
    pub(super) steps: u64,
    /// Merged id and position, so that the smallest is the next merge.
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

/// A symbol and where its neighbours are; a list, as symbols go from the middle.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    /// What it becomes with the next one.
    merged: u32,
    previous: u32,
    next: u32,
}

/// Equal symbols in a row.
#[derive(Clone, Copy)]
struct Run {
    id: u32,
    length: usize,
}

/// More runs than this are left to the heap.
const MAX_RUNS: usize = 4;

/// How many symbols are left of these.
#[inline]
pub(super) fn merge(pairs: &Pairs, scratch: &mut Scratch) -> usize {
    if scratch.ids.len() <= SHORT {
        return short(pairs, &scratch.ids);
    }
    if find_runs(scratch) { by_runs(pairs, scratch) } else { long(pairs, scratch) }
}

/// Puts the runs into `runs`, if they are few.
fn find_runs(scratch: &mut Scratch) -> bool {
    let Scratch { ids, runs, .. } = scratch;
    runs.clear();
    for &id in &*ids {
        push(runs, id, 1);
        if runs.len() > MAX_RUNS {
            return false;
        }
    }
    true
}

#[inline]
fn push(runs: &mut Vec<Run>, id: u32, length: usize) {
    match runs.last_mut() {
        Some(last) if last.id == id => last.length = last.length.wrapping_add(length),
        _ if length == 0 => {}
        _ => runs.push(Run { id, length }),
    }
}

fn by_runs(pairs: &Pairs, scratch: &mut Scratch) -> usize {
    let Scratch { runs, next_runs, steps, .. } = scratch;
    loop {
        let mut best = NONE;
        let mut parts = (NONE, NONE);
        let mut before = NONE;
        for &Run { id, length } in &*runs {
            for (left, right) in [(before, id), (id, id)] {
                if left == NONE || (left == right && length < 2) {
                    continue;
                }
                let merged = pairs.get(left, right);
                if merged < best {
                    best = merged;
                    parts = (left, right);
                }
            }
            before = id;
        }
        *steps = steps.saturating_add((runs.len() as u64).saturating_mul(2));
        if best == NONE {
            return runs.iter().fold(0, |sum, run| sum.wrapping_add(run.length));
        }
        let (left, right) = parts;
        next_runs.clear();
        let mut at = 0;
        // Whether the first of the run went with the last of the one before.
        let mut is_taken = false;
        while let Some(&Run { id, length }) = runs.get(at) {
            at = at.wrapping_add(1);
            let length = length.saturating_sub(usize::from(is_taken));
            is_taken = false;
            if left == right && id == left {
                push(next_runs, best, length / 2);
                push(next_runs, id, length % 2);
            } else if left != right
                && id == left
                && length > 0
                && runs.get(at).is_some_and(|next| next.id == right)
            {
                is_taken = true;
                push(next_runs, id, length.saturating_sub(1));
                push(next_runs, best, 1);
            } else {
                push(next_runs, id, length);
            }
        }
        std::mem::swap(runs, next_runs);
    }
}

/// The same for up to `SHORT` symbols.
pub(super) fn short(pairs: &Pairs, ids: &[u32]) -> usize {
    // What the symbol becomes with the next one, above its id. Two pairs never become the same id,
    // so equal ones are equal pairs.
    let cell = |merged: u32, id: u32| u64::from(merged) << 32 | u64::from(id);
    let id_of = |cell: u64| u32::try_from(cell & u64::from(u32::MAX)).unwrap_or(NONE);
    let mut cells = [u64::MAX; SHORT];
    let mut count = ids.len().min(SHORT);
    let behind = ids.iter().skip(1).map(Some).chain([None]);
    for ((slot, &id), next) in cells.iter_mut().zip(ids).zip(behind) {
        *slot = cell(next.map_or(NONE, |&next| pairs.get(id, next)), id);
    }
    loop {
        let mut best = u64::MAX;
        let mut at = 0;
        for (index, &slot) in cells.get(..count).unwrap_or_default().iter().enumerate() {
            if slot < best {
                best = slot;
                at = index;
            }
        }
        let merged = u32::try_from(best >> 32).unwrap_or(NONE);
        if merged == NONE {
            return count;
        }
        let from = at.wrapping_add(1);
        // The symbol behind goes: all others move up by one.
        if let Some(tail @ [_, ..]) = cells.get_mut(from..count) {
            tail.copy_within(1.., 0);
        }
        count = count.wrapping_sub(1);
        let next = if from < count { cells.get(from).copied() } else { None };
        if let Some(slot) = cells.get_mut(at) {
            *slot = cell(next.map_or(NONE, |next| pairs.get(merged, id_of(next))), merged);
        }
        if let Some(slot) = cells.get_mut(at.wrapping_sub(1)) {
            let id = id_of(*slot);
            *slot = cell(pairs.get(id, merged), id);
        }
    }
}

fn long(pairs: &Pairs, scratch: &mut Scratch) -> usize {
    let Scratch { ids, symbols, heap, steps, .. } = scratch;
    let mut count = ids.len();
    *steps = steps.saturating_add(count as u64);
    let mut entries = std::mem::take(heap).into_vec();
    entries.clear();
    symbols.clear();
    let behind = ids.iter().skip(1).map(Some).chain([None]);
    for ((&id, next), at) in ids.iter().zip(behind).zip(0_u32..) {
        let merged = next.map_or(NONE, |&next| pairs.get(id, next));
        if merged != NONE {
            entries.push(Reverse((merged, at)));
        }
        let next = if next.is_some() { at.wrapping_add(1) } else { NONE };
        symbols.push(Symbol { id, merged, previous: at.wrapping_sub(1), next });
    }
    *heap = entries.into();
    while let Some(Reverse((merged, at))) = heap.pop() {
        let Some(&left) = symbols.get(at as usize) else { continue };
        // Entries of pairs that are gone stay in the heap.
        if left.merged != merged {
            continue;
        }
        let Some(right) = symbols.get_mut(left.next as usize) else { continue };
        right.merged = NONE;
        let next = right.next;
        count = count.saturating_sub(1);
        let mut with_next = NONE;
        if let Some(behind) = symbols.get_mut(next as usize) {
            behind.previous = at;
            with_next = pairs.get(merged, behind.id);
        }
        if let Some(left) = symbols.get_mut(at as usize) {
            *left = Symbol { id: merged, merged: with_next, previous: left.previous, next };
        }
        if with_next != NONE {
            heap.push(Reverse((with_next, at)));
        }
        if let Some(before) = symbols.get_mut(left.previous as usize) {
            before.merged = pairs.get(before.id, merged);
            if before.merged != NONE {
                heap.push(Reverse((before.merged, left.previous)));
            }
        }
    }
    count
}
