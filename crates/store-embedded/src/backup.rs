//! A backup: a copy of a running store as of one point in time, as a store of its own.
//!
//! Every row is read through its checksum and written anew, so a backup also proves that the store could be read. It is
//! created under another name beside its final one and renamed when complete, so an existing backup is complete. To
//! restore one, open it, or copy its folder. Schedules and the deletion of old backups are not known here.

use std::io;
use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::folder::{StoreFolder, StoreOpenError, free_bytes};
use crate::options::EmbeddedOptions;

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreBackupError {
    /// The target exists; a backup never replaces anything.
    #[error("{} exists already", folder.display())]
    Exists { folder: PathBuf },
    /// The store cannot be read now.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: String },
    /// A row of the store cannot be read, or the copy cannot be written.
    #[error("copying the store failed: {reason}")]
    Copy { reason: String },
    /// The new store cannot be created.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The operating system reported an error.
    #[error("{} cannot be written", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

pub(crate) fn copy(
    from: &Engine,
    to: &Path,
    options: &EmbeddedOptions,
    mut copied: impl FnMut(u64),
) -> Result<(), StoreBackupError> {
    let failed = |source| StoreBackupError::Io { folder: to.to_owned(), source };
    if to.exists() {
        return Err(StoreBackupError::Exists { folder: to.to_owned() });
    }
    let mut aside = to.as_os_str().to_owned();
    aside.push(".partial");
    let aside = PathBuf::from(aside);
    if aside.exists() {
        std::fs::remove_dir_all(&aside).map_err(failed)?;
    }
    let folder = StoreFolder::lock(&aside)?;
    let (engine, _) = folder.open_engine(options)?;
    let engine_failed = |error: fjall::Error| StoreBackupError::Copy { reason: error.to_string() };
    // The copy keeps the disk reserve free too: it may be on the same disk.
    let has_space = |bytes| {
        copied(bytes);
        free_bytes(&aside).is_ok_and(|free| free >= options.disk_reserve_bytes.saturating_add(bytes))
    };
    from.copy_to(&engine, has_space).map_err(engine_failed)?;
    engine.inherit_identity(from, from.token_key()).map_err(engine_failed)?;
    drop(engine);
    folder.mark_clean().map_err(failed)?;
    folder.make_private().map_err(failed)?;
    drop(folder);
    std::fs::rename(&aside, to).map_err(failed)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}
