//! The embedded backend: a store in a folder, open in one process at a time.
//!
//! ```text
//!  commit(), put() ──► queue, bounded by bytes ──► committer thread ──► one journal write, one fdatasync ──► replies
//!  read(), scan(), query() ──► engine, on the caller's thread; only synced rows are visible
//! ```
//!
//! The engine is fjall, an LSM tree in Rust. docs/adr/0008 gives the reasons, and what this crate adds to the engine:
//! group commit ([`committer`]), checks of the journals and manifests before the engine is opened
//! ([`journal_recovery`], [`manifest`]), a record of how far the journals were synced ([`length_recorder`]), a reserve
//! of disk space, and no replies while an outcome is unknown. No type of the engine is visible outside this crate.

mod backup;
mod buffer_reclaimer;
mod committer;
mod engine;
mod engine_error;
mod export;
mod folder;
mod group_commit;
mod journal_follower;
mod journal_frames;
mod journal_recovery;
mod length_recorder;
mod manifest;
mod options;
mod pending_reply;
mod private_files;
mod public_tables;
mod state;
mod store;
mod synced_lengths;
mod working_copy;

pub use backup::StoreBackupError;
pub use export::StoreImport;
pub use folder::StoreOpenError;
pub use journal_recovery::JournalRecovery;
pub use options::{EmbeddedOptions, SyncMode};
pub use store::EmbeddedStore;
