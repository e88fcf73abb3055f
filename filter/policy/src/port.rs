//! What the core needs from its host, as one trait.

use crate::ids::{PoolId, SlotId};
use crate::stats::StatId;

/// The host's store did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The host returned a status that means neither success nor conflict.
    Host,
    /// Others changed the value every time this instance tried to.
    Contended,
}

/// A value of the shared store, with the number that a conditional change must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The bytes; empty where there is no such value yet.
    pub bytes: Vec<u8>,
    /// The version to name in [`Port::store`]; 0 where there is no such value yet.
    pub version: u32,
}

/// The host, as the core sees it.
pub trait Port {
    /// Reads a value that all instances of the process share.
    ///
    /// # Errors
    /// [`StoreError::Host`] where the host refuses.
    fn load(&mut self, key: &str) -> Result<Stored, StoreError>;

    /// Writes a shared value if nobody has since `version`. False: somebody has.
    ///
    /// # Errors
    /// [`StoreError::Host`] where the host refuses.
    fn store(&mut self, key: &str, bytes: &[u8], version: u32) -> Result<bool, StoreError>;

    /// Opens this instance's mailbox, so that [`Port::wake`] of others reaches it.
    ///
    /// # Errors
    /// [`StoreError::Host`] where the host refuses.
    fn open_mailbox(&mut self, slot: SlotId) -> Result<(), StoreError>;

    /// Tells another instance to look at a pool. May be lost: the other looks by itself in a while.
    fn wake(&mut self, slot: SlotId, pool: PoolId);

    /// Adds to a counter.
    fn count(&mut self, stat: StatId, by: u64);

    /// Records a value in a histogram.
    fn record(&mut self, stat: StatId, value: u64);

    /// Sets a gauge.
    fn set(&mut self, stat: StatId, value: u64);
}
