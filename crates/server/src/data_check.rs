//! Checks the data folder of a server that is not running. The checks themselves are those of the runtime's `fsck`.

use std::path::Path;
use std::sync::Arc;

use abide_runtime::definitions::Definitions;
use abide_runtime::fsck::{self, FsckError, FsckReport};
use abide_runtime::placement::ShardCount;
use abide_store::rows::PartitionError;
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreOpenError};

use crate::data_layout::{Layout, LayoutError};

/// Why a data folder could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder has no store, a server uses it, or the store itself is damaged.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("invalid shard count {shards}")]
    InvalidShardCount { shards: u32 },
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Fsck(#[from] FsckError),
}

/// Opens the store, which must exist and not be in use, and checks every shard. For `abide fsck`, and for a restored
/// copy before it gets its final name. Writes only what opening a store writes, and nothing on a read-only medium.
pub async fn check_data_folder(folder: &Path) -> Result<FsckReport, CheckError> {
    let Layout { shards } = Layout::read(folder)?;
    let count = ShardCount::new(shards).ok_or(CheckError::InvalidShardCount { shards })?;
    let store = Arc::new(EmbeddedStore::open_to_read(folder, EmbeddedOptions::default())?);
    let definitions = Definitions::new(Arc::clone(&store))?;
    Ok(fsck::check(&*store, &definitions, count).await?)
}
