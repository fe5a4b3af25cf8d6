//! Private rows: `(partition, key) → (value, version)`, the only storage that the runtime bases decisions on.
//!
//! A logical table is a key prefix, so all rows of a partition may be in one physical table. Nothing in this folder
//! knows what a key or a value means; [`crate::tables`] does.

mod batch;
mod damage;
mod fence;
mod key;
mod limits;
mod outcome;
mod scan;

use std::future::Future;
use std::sync::Arc;

pub use batch::{Batch, BatchError, Precondition, RowWrite};
pub use damage::{DamagedRange, TolerantPage, scan_past_damage};
pub use fence::Fence;
pub use key::{Key, Partition, PartitionError, Row, RowVersion};
pub use limits::{Capabilities, Durability, StoreHealth, StoreLimits};
pub use outcome::{CommitOutcome, CommitReceipt, StoreError};
pub use scan::{Direction, Scan, ScanPage};

use crate::change_notify::ChangeTick;

/// Reads and fenced, atomic writes of one namespace.
///
/// [`crate::conformance`] lists and checks the promises of every implementation.
pub trait PrivateRows: Send + Sync {
    /// The limits of this backend, and the durability of an acknowledged commit.
    fn capabilities(&self) -> Capabilities;

    /// The present state of the store, for readiness probes. Callers must not base decisions on it.
    fn health(&self) -> StoreHealth;

    /// Reads one row as last committed, or `None`. Never returns a row whose commit might still be lost.
    fn read(
        &self,
        partition: &Partition,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// Reads one page of a key range, in key order. All rows of a page are from the same point in time.
    fn scan(
        &self,
        partition: &Partition,
        scan: Scan,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Applies the batch as a whole or not at all. The batch is durable when this returns `Committed`.
    ///
    /// Dropping the future does not stop the commit: its outcome is then as unknown as [`CommitOutcome::Unknown`].
    fn commit(
        &self,
        partition: &Partition,
        batch: impl Into<Arc<Batch>> + Send,
    ) -> impl Future<Output = CommitOutcome> + Send;

    /// Resolves when the partition may have changed since `seen`, with the tick to pass next time. Resolves at once for
    /// [`ChangeTick::START`].
    ///
    /// This is a hint: it may resolve without a change, and some backends can only guess. It must never be the only
    /// trigger of work.
    fn wait_for_change(
        &self,
        partition: &Partition,
        seen: ChangeTick,
    ) -> impl Future<Output = ChangeTick> + Send;
}
