//! The storage seam: what the runtime asks of a backend, and what a backend may answer.
//!
//! Two kinds of tables, because they have two kinds of users: [`rows`] are private, versioned and committed atomically per
//! partition; [`public`] tables are queried by people and other programs and never read back by the runtime.
//!
//! This crate does not know workflows, and nothing above it knows a backend: no backend type appears in these signatures.

pub mod commit;
pub mod public;
pub mod rows;

pub use commit::{Batch, CommitId, CommitOutcome, Expectation, Write};
pub use public::{PublicRow, PublicTables};
pub use rows::{Key, Limits, Partition, PrivateRows, Row, ScanRange, StoreError, Version};
