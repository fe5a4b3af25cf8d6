//! The folder of an embedded store: its lock, its format and its creation.
//!
//! ```text
//! LOCK      locked while a process has the store open
//! FORMAT    the version of everything beside it
//! CLEAN     where the journal ended, if the store was closed cleanly
//! engine/   the engine's own files; created as engine.new/ and renamed when complete
//! ```
//!
//! It does not know the rows. The engine is opened only after its files were checked, and a store that is refused stays
//! unchanged.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::journal_recovery::{self, FileDamage, JournalExtent, JournalRecovery, JournalRecoveryError};
use crate::manifest;
use crate::options::EmbeddedOptions;

/// The format that this program writes, and the highest it opens.
const FORMAT: u32 = 1;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// Another process, or another part of this one, has it open.
    #[error("{} is in use by another process; one process at a time can open a store", folder.display())]
    InUse { folder: PathBuf },
    /// The folder contains other files.
    #[error("{} is not a store: it has files but no FORMAT", folder.display())]
    NotAStore { folder: PathBuf },
    /// A newer program created the store.
    #[error("{} has format {found}; this program opens up to format {FORMAT}: use a newer release", folder.display())]
    NewerFormat { folder: PathBuf, found: u32 },
    /// Stored bytes are not those that were written. Nothing was changed.
    #[error("{} is damaged at byte {at}: {reason}", file.display())]
    Damaged {
        /// The damaged file, or the engine's folder if the engine does not name a file.
        file: PathBuf,
        at: usize,
        reason: String,
    },
    #[error("no disk space is left for {}", folder.display())]
    DiskFull { folder: PathBuf },
    /// The operating system reported an error.
    #[error("{} cannot be opened", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

/// A locked folder. The lock is released when this is dropped.
#[derive(Debug)]
pub(crate) struct StoreFolder {
    path: PathBuf,
    _lock: File,
}

impl StoreFolder {
    /// Locks the folder; creates it if there is none.
    pub(crate) fn lock(path: &Path) -> Result<Self, StoreOpenError> {
        let failed = |source| open_error(path, source);
        fs::create_dir_all(path).map_err(failed)?;
        let format = read_if_exists(&path.join("FORMAT")).map_err(failed)?;
        if format.is_none() && has_foreign_files(path).map_err(failed)? {
            return Err(StoreOpenError::NotAStore { folder: path.to_owned() });
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join("LOCK"));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreOpenError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if let Some(bytes) = format {
            match String::from_utf8_lossy(&bytes).trim().parse::<u32>() {
                Ok(FORMAT) => {}
                Ok(found) if found > FORMAT => {
                    return Err(StoreOpenError::NewerFormat { folder: path.to_owned(), found });
                }
                _ => {
                    let reason = "it does not contain a format number".to_owned();
                    return Err(StoreOpenError::Damaged { file: path.join("FORMAT"), at: 0, reason });
                }
            }
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn engine_path(&self) -> PathBuf {
        self.path.join("engine")
    }

    fn clean_marker_path(&self) -> PathBuf {
        self.path.join("CLEAN")
    }

    /// Opens the engine after recovering its journals; creates a new one in a new folder.
    pub(crate) fn open_engine(
        &self,
        options: &EmbeddedOptions,
    ) -> Result<(Engine, JournalRecovery), StoreOpenError> {
        let failed = |source| open_error(&self.path, source);
        if !self.path.join("FORMAT").exists() {
            self.create(options)?;
        }
        let clean = read_if_exists(&self.clean_marker_path())
            .map_err(failed)?
            .and_then(|bytes| JournalExtent::from_text(&String::from_utf8_lossy(&bytes)));
        // Nothing of the engine is changed before everything that can be checked was checked.
        if let Some(damage) = manifest::check(&self.engine_path()).map_err(failed)? {
            return Err(self.journal_error(JournalRecoveryError::Damaged(damage)));
        }
        let recovery = journal_recovery::recover(&self.engine_path(), clean.as_ref(), options.salvage);
        let recovery = recovery.map_err(|error| self.journal_error(error))?;
        // From here on the journal may end elsewhere: the marker must be gone before the first commit.
        remove_if_exists(&self.clean_marker_path()).map_err(failed)?;
        sync_folder(&self.path).map_err(failed)?;
        let engine = Engine::open(&self.engine_path(), options).map_err(|error| self.engine_error(error))?;
        Ok((engine, recovery))
    }

    /// Records where the journal of the closed engine ends.
    pub(crate) fn mark_clean(&self) -> io::Result<()> {
        let Some(extent) = journal_recovery::extent(&self.engine_path())? else { return Ok(()) };
        write_synced(&self.clean_marker_path(), &extent.to_text())
    }

    /// Creates the engine under another name and renames it when it is complete, so that a crash leaves either none or
    /// a complete one.
    fn create(&self, options: &EmbeddedOptions) -> Result<(), StoreOpenError> {
        let failed = |source| open_error(&self.path, source);
        let aside = self.path.join("engine.new");
        if !self.engine_path().exists() {
            if aside.exists() {
                fs::remove_dir_all(&aside).map_err(failed)?;
            }
            let engine = Engine::open(&aside, options).map_err(|error| self.engine_error(error))?;
            drop(engine);
            fs::rename(&aside, self.engine_path()).map_err(failed)?;
        }
        sync_folder(&self.path).map_err(failed)?;
        write_synced(&self.path.join("FORMAT"), &format!("{FORMAT}\n")).map_err(failed)
    }

    fn journal_error(&self, error: JournalRecoveryError) -> StoreOpenError {
        match error {
            JournalRecoveryError::Io(source) => open_error(&self.path, source),
            JournalRecoveryError::Damaged(FileDamage { file, at, reason }) => {
                StoreOpenError::Damaged { file, at, reason: reason.to_owned() }
            }
        }
    }

    fn engine_error(&self, error: fjall::Error) -> StoreOpenError {
        match error {
            fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
                open_error(&self.path, source)
            }
            fjall::Error::Locked => StoreOpenError::InUse { folder: self.path.clone() },
            other => StoreOpenError::Damaged { file: self.engine_path(), at: 0, reason: other.to_string() },
        }
    }
}

/// The free bytes of the file system that the folder is on.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn open_error(folder: &Path, source: io::Error) -> StoreOpenError {
    let folder = folder.to_owned();
    if is_disk_full(&source) {
        StoreOpenError::DiskFull { folder }
    } else {
        StoreOpenError::Io { folder, source }
    }
}

/// An incomplete store contains only these names; any other file in a folder without FORMAT belongs to something else.
fn has_foreign_files(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !["LOCK", "CLEAN", "FORMAT.new", "CLEAN.new", "engine.new", "engine", "lost+found"]
            .iter()
            .any(|ours| name == *ours)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The bytes of a file, or `None` if it does not exist.
pub(crate) fn read_if_exists(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    fs::write(&aside, text)?;
    File::open(&aside)?.sync_all()?;
    fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
