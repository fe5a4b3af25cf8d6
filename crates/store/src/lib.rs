//! The storage seam: what the runtime asks of a backend, and what a backend may answer.
//!
//! Two kinds of tables, because they have two kinds of users: [`rows`] are private, versioned and committed atomically per
//! partition; [`public`] tables are queried by people and other programs and never read back by the runtime. [`tables`] has a
//! file for each table of either kind; [`memory`] is the reference every backend is compared with; [`conformance`] is what a
//! backend must show.
//!
//! This crate does not know workflows, and nothing above it knows a backend: no backend type appears in these signatures.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
pub mod notice;
pub mod public;
pub mod rows;
pub mod tables;

pub use notice::Tick;
pub use public::PublicTables;
pub use rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Row, Scan, StoreError, Version};

/// A whole store.
pub trait Store: PrivateRows + PublicTables {}

impl<S: PrivateRows + PublicTables> Store for S {}
