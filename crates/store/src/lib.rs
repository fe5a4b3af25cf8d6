//! The storage interface: what the runtime requires of a backend, and the outcomes a backend may return.
//!
//! There are two kinds of tables, because they have two kinds of users. [`rows`] are private, versioned and committed
//! atomically per partition. [`public`] tables are queried by people and other programs, and the runtime never reads
//! them back. [`tables`] has one file for each table of either kind. [`memory`] is the reference store that every
//! backend is compared with. [`conformance`] is the suite that every backend must pass.
//!
//! This crate does not know workflows, and the crates above it do not know backends: no backend type appears in these
//! signatures.

pub mod change_notify;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
pub mod public;
pub mod rows;
pub mod tables;

pub use change_notify::ChangeTick;
pub use public::PublicTables;
pub use rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Row, RowVersion, Scan, StoreError};

/// A complete backend: private rows and public tables.
pub trait Store: PrivateRows + PublicTables + 'static {}

impl<S: PrivateRows + PublicTables + 'static> Store for S {}
