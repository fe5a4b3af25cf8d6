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

/// Copies a store into a new folder. `copied` is called with the bytes of each step.
pub(crate) fn copy(
    from: &Engine,
    to: &Path,
    options: &EmbeddedOptions,
    mut copied: impl FnMut(u64),
) -> Result<(), StoreBackupError> {
    let aside = staging_path(to)?;
    let folder = StoreFolder::lock(&aside)?;
    let (engine, _) = folder.open_engine(options)?;
    from.read_slices(|keyspace, rows| {
        let bytes = rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        copied(bytes);
        check_space(&aside, options, bytes)?;
        engine.write_rows(keyspace, rows.iter().map(|(key, value)| (&**key, &**value)))
    })?;
    engine.finish_copy(from.incarnation(), Some(&from.token_key().expose()))?;
    move_into_place(folder, engine, &aside, to)
}

/// The name of a copy while it is made. What an interrupted attempt left there is removed. Fails if there is a folder
/// where the copy is to be.
pub(crate) fn staging_path(to: &Path) -> Result<PathBuf, StoreBackupError> {
    if to.exists() {
        return Err(StoreBackupError::Exists { folder: to.to_owned() });
    }
    let mut aside = to.as_os_str().to_owned();
    aside.push(".partial");
    let aside = PathBuf::from(aside);
    if aside.exists() {
        let failed = |source| StoreBackupError::Io { folder: aside.clone(), source };
        std::fs::remove_dir_all(&aside).map_err(failed)?;
    }
    Ok(aside)
}

/// A copy keeps the disk reserve free too: it may be on the disk of the store.
pub(crate) fn check_space(
    folder: &Path,
    options: &EmbeddedOptions,
    bytes: u64,
) -> Result<(), StoreBackupError> {
    let needed = options.disk_reserve_bytes.saturating_add(bytes);
    if free_bytes(folder).is_ok_and(|free| free >= needed) {
        return Ok(());
    }
    Err(StoreBackupError::Copy { reason: "no disk space is left".to_owned() })
}

/// Closes a complete copy and gives it its name.
pub(crate) fn move_into_place(
    folder: StoreFolder,
    engine: Engine,
    aside: &Path,
    to: &Path,
) -> Result<(), StoreBackupError> {
    let failed = |source| StoreBackupError::Io { folder: to.to_owned(), source };
    drop(engine);
    folder.mark_clean().map_err(failed)?;
    folder.make_private().map_err(failed)?;
    drop(folder);
    std::fs::rename(aside, to).map_err(failed)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}
