//! Checks the data folder of a server that is not running.

use std::path::Path;
use std::sync::Arc;

use abide_runtime::definitions::Definitions;
use abide_runtime::fsck::{self, FsckError, Report};
use abide_runtime::placement::ShardCount;
use abide_store::rows::PartitionError;
use abide_store_embedded::{EmbeddedStore, OpenError, Options};

use crate::layout::{Layout, LayoutError};

/// Why a data folder could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is no store in it, or a server uses it, or the store itself is damaged.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// How it is divided.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// It is divided into an impossible number of shards.
    #[error("it is divided into {shards} shards, which cannot be")]
    Shards {
        /// How many.
        shards: u32,
    },
    /// A partition's name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The check itself.
    #[error(transparent)]
    Fsck(#[from] FsckError),
}

/// Opens the store, which must be there and be used by nobody, and checks every shard. Writes nothing but what opening a store writes.
pub async fn check(folder: &Path) -> Result<Report, CheckError> {
    let Layout { shards } = Layout::read(folder)?;
    let count = ShardCount::new(shards).ok_or(CheckError::Shards { shards })?;
    let store = Arc::new(EmbeddedStore::open(folder, Options::default())?);
    let definitions = Definitions::new(Arc::clone(&store))?;
    Ok(fsck::check(&*store, &definitions, count).await?)
}
