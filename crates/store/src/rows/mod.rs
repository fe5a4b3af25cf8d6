//! Private rows: `(partition, key) → (value, version)`, the only storage the runtime decides on.
//!
//! A logical table is a key prefix, so that all rows of a partition may live in one physical table. Nothing in this folder
//! knows what a key or a value means; [`crate::tables`] does.

mod batch;
mod damage;
mod key;
mod limits;
mod outcome;
mod scan;

use std::future::Future;
use std::sync::Arc;

pub use batch::{Batch, BatchError, Expect, Fence, Write};
pub use damage::{Damage, Passed, scan_past_damage};
pub use key::{Key, Partition, PartitionError, Row, Version};
pub use limits::{Capabilities, Durability, Health, Limits};
pub use outcome::{CommitOutcome, Receipt, StoreError};
pub use scan::{Direction, Scan, ScanPage};

use crate::notice::Tick;

/// Reads and fenced, atomic writes of one namespace.
///
/// What every implementation promises is in [`crate::conformance`], promise by promise.
pub trait PrivateRows: Send + Sync {
    /// What this backend can take, and how far it goes before it acknowledges.
    fn capabilities(&self) -> Capabilities;

    /// Whether commits and reads can be answered now; the reason if not. For readiness probes, not for deciding.
    fn health(&self) -> Health;

    /// One row as last committed, or `None`. Never a row whose commit might still be lost.
    fn read(
        &self,
        partition: &Partition,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// A page of rows of a key range, in key order. All rows of one page are of one moment.
    fn scan(
        &self,
        partition: &Partition,
        scan: Scan,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Applies the batch as a whole or not at all. Durable when it answers `Committed`, never before.
    ///
    /// A caller that stops waiting has not stopped the commit: its outcome is as unknown as [`CommitOutcome::Unknown`].
    fn commit(
        &self,
        partition: &Partition,
        batch: impl Into<Arc<Batch>> + Send,
    ) -> impl Future<Output = CommitOutcome> + Send;

    /// Resolves when the partition may have changed since `seen`, with what to pass next time; at once for [`Tick::START`].
    ///
    /// A hint: it may come for nothing, and a backend may only be able to guess. Never the only trigger of work.
    fn changed(&self, partition: &Partition, seen: Tick) -> impl Future<Output = Tick> + Send;
}
