//! A copy of one moment of a running store, as a store of its own.
//!
//! Every row is read through its checksum and written anew, so a backup is also a proof that the store could be read. It is made
//! beside its final name and renamed when complete: a backup that is there is whole. To restore one, open it, or copy its folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::folder::{Folder, OpenError, free_bytes};
use crate::options::Options;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there already; a backup never replaces anything.
    #[error("{} exists already", folder.display())]
    Exists {
        /// Where the backup was to be.
        folder: PathBuf,
    },
    /// The store cannot be read now.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// A row of the store cannot be read, or the copy cannot be written.
    #[error("copying stopped: {reason}")]
    Copy {
        /// What the engine said.
        reason: String,
    },
    /// The new store cannot be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The operating system refused something.
    #[error("{} cannot be written", folder.display())]
    Io {
        /// Where the backup was to be.
        folder: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

pub(crate) fn copy(
    from: &Engine,
    to: &Path,
    options: &Options,
    mut copied: impl FnMut(u64),
) -> Result<(), BackupError> {
    let failed = |source| BackupError::Io { folder: to.to_owned(), source };
    if to.exists() {
        return Err(BackupError::Exists { folder: to.to_owned() });
    }
    let mut aside = to.as_os_str().to_owned();
    aside.push(".partial");
    let aside = PathBuf::from(aside);
    if aside.exists() {
        std::fs::remove_dir_all(&aside).map_err(failed)?;
    }
    let folder = Folder::take(&aside)?;
    let (engine, _) = folder.open_engine(options)?;
    let engine_failed = |error: fjall::Error| BackupError::Copy { reason: error.to_string() };
    // The copy leaves the reserve alone too: it may be on the same disk.
    let room = |bytes| {
        copied(bytes);
        free_bytes(&aside).is_ok_and(|free| free >= options.disk_reserve_bytes.saturating_add(bytes))
    };
    from.copy_to(&engine, room).map_err(engine_failed)?;
    engine.inherit(from, from.token_key()).map_err(engine_failed)?;
    drop(engine);
    folder.mark_clean().map_err(failed)?;
    drop(folder);
    std::fs::rename(&aside, to).map_err(failed)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}
