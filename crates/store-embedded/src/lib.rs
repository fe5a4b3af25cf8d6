//! The embedded backend: a folder that one process at a time keeps everything in.
//!
//! ```text
//!  commit(), put() ──► queue, bounded by bytes ──► committer thread ──► one journal write, one fdatasync ──► answers
//!  read(), scan(), query() ──► engine, on the caller's thread; nothing that is not synced can be seen
//! ```
//!
//! The engine is fjall, an LSM tree in Rust; docs/adr/0008 says why, and what is done here because of it: merging commits into
//! one sync ([`committer`]), checking its journal and its manifests before it is opened ([`journal`], [`manifest`]), reserving disk
//! space, and refusing to answer while an outcome is unknown. No type of the engine is visible outside this crate.

mod answer;
mod backup;
mod buffers;
mod committer;
mod engine;
mod folder;
mod frames;
mod group;
mod journal;
mod manifest;
mod options;
mod public;
mod state;
mod store;

pub use backup::BackupError;
pub use folder::OpenError;
pub use journal::Settled;
pub use options::{Options, SyncMode};
pub use store::EmbeddedStore;
