//! The folder of an embedded store: its lock, its format and its creation.
//!
//! ```text
//! LOCK      locked while a process has the store open
//! FORMAT    the version of everything beside it
//! CLEAN     where the journal ended, if the store was closed cleanly
//! SYNCED    how far the journals were synced while it was open; since format 2
//! engine/   the engine's own files; created as engine.new/ and renamed when complete
//! ```
//!
//! Only the user of the server can enter the folder and read its files.
//!
//! It does not know the rows. The engine is opened only after its files were checked, and a store that is refused stays
//! unchanged.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::journal_follower::JournalFollower;
use crate::journal_recovery::{self, FileDamage, JournalExtent, JournalRecovery, JournalRecoveryError};
use crate::length_recorder::LengthRecorder;
use crate::manifest;
use crate::options::EmbeddedOptions;
use crate::private_files::{
    PRIVATE_FILE, create_private_folder, new_file, take_permissions, take_permissions_below,
};
use crate::synced_lengths::{JournalLength, SyncedLengths};

/// The format that this program writes, and the highest it opens.
const FORMAT: u32 = 2;
/// The format of stores without a record of synced lengths. Opening such a store raises its format.
const FORMAT_WITHOUT_LENGTHS: u32 = 1;

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
        create_private_folder(path).map_err(failed)?;
        let is_new = !path.join("FORMAT").try_exists().map_err(failed)?;
        if is_new && has_foreign_files(path).map_err(failed)? {
            return Err(StoreOpenError::NotAStore { folder: path.to_owned() });
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(path.join("LOCK"));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreOpenError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let folder = Self { path: path.to_owned(), _lock: lock };
        folder.format()?;
        Ok(folder)
    }

    /// The format of the store, or `None` if it has not been created completely.
    fn format(&self) -> Result<Option<u32>, StoreOpenError> {
        let file = self.path.join("FORMAT");
        let bytes = read_if_exists(&file).map_err(|source| open_error(&self.path, source))?;
        let Some(bytes) = bytes else { return Ok(None) };
        match String::from_utf8_lossy(&bytes).trim().parse::<u32>() {
            Ok(format @ FORMAT_WITHOUT_LENGTHS..=FORMAT) => Ok(Some(format)),
            Ok(found) if found > FORMAT => {
                Err(StoreOpenError::NewerFormat { folder: self.path.clone(), found })
            }
            _ => {
                let reason = "it does not contain a format number".to_owned();
                Err(StoreOpenError::Damaged { file, at: 0, reason })
            }
        }
    }

    /// Takes the permissions of the group and of others from the folder and its files: an earlier release left them, or
    /// whoever created the folder; and the engine creates its files with the permissions of the
    /// process. What belongs to another user stays as it is; the folder's owner decides then.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        for name in OWN_FILES.iter().chain(&["abide.json"]) {
            take_permissions(&self.path.join(name))?;
        }
        take_permissions_below(&self.engine_path())?;
        take_permissions(&self.path)
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

    fn synced_lengths_path(&self) -> PathBuf {
        self.path.join("SYNCED")
    }

    /// The record of synced lengths; `None` if the store is of a release that wrote none, or is to be opened without.
    fn synced_lengths(&self, format: u32, salvage: bool) -> Result<Option<SyncedLengths>, StoreOpenError> {
        let file = self.synced_lengths_path();
        match SyncedLengths::read(&file).map_err(|source| open_error(&self.path, source))? {
            Some(synced) => Ok(Some(synced)),
            None if format == FORMAT_WITHOUT_LENGTHS || salvage => Ok(None),
            None => {
                let reason = "the record of how far the journals were synced is missing or broken".to_owned();
                Err(StoreOpenError::Damaged { file, at: 0, reason })
            }
        }
    }

    /// Opens the engine after recovering its journals; creates a new one in a new folder.
    pub(crate) fn open_engine(
        &self,
        options: &EmbeddedOptions,
    ) -> Result<(Engine, JournalRecovery), StoreOpenError> {
        let failed = |source| open_error(&self.path, source);
        let format = match self.format()? {
            Some(format) => format,
            None => self.create(options)?,
        };
        let clean = read_if_exists(&self.clean_marker_path())
            .map_err(failed)?
            .and_then(|bytes| JournalExtent::from_text(&String::from_utf8_lossy(&bytes)));
        // Nothing of the engine is changed before everything that can be checked was checked.
        if let Some(damage) = manifest::check(&self.engine_path()).map_err(failed)? {
            return Err(self.journal_error(JournalRecoveryError::Damaged(damage)));
        }
        let synced = self.synced_lengths(format, options.salvage)?;
        let journals = synced.as_ref().map_or(&[][..], |synced| &synced.journals);
        let recovered =
            journal_recovery::recover(&self.engine_path(), clean.as_ref(), journals, options.salvage);
        let (recovery, lengths) = recovered.map_err(|error| self.journal_error(error))?;
        // From here on the journal may end elsewhere: the marker must be gone before the first commit.
        remove_if_exists(&self.clean_marker_path()).map_err(failed)?;
        sync_folder(&self.path).map_err(failed)?;
        let mut engine =
            Engine::open(&self.engine_path(), options).map_err(|error| self.engine_error(error))?;
        let recorder = self.start_recorder(synced, lengths, options).map_err(failed)?;
        engine.attach_recorder(recorder);
        if format != FORMAT {
            self.write_format().map_err(failed)?;
        }
        self.make_private().map_err(failed)?;
        Ok((engine, recovery))
    }

    /// Records the present lengths of the journals, all of it synced, and starts to record what follows.
    fn start_recorder(
        &self,
        synced: Option<SyncedLengths>,
        lengths: Vec<JournalLength>,
        options: &EmbeddedOptions,
    ) -> io::Result<LengthRecorder> {
        let mut follower = JournalFollower::new(&self.engine_path(), lengths);
        follower.follow()?;
        let synced = match synced {
            Some(mut synced) => {
                synced.write(follower.lengths())?;
                synced
            }
            None => SyncedLengths::create(&self.synced_lengths_path(), follower.lengths())?,
        };
        LengthRecorder::start(follower, synced, options.sync)
    }

    fn write_format(&self) -> io::Result<()> {
        write_synced(&self.path.join("FORMAT"), format!("{FORMAT}\n").as_bytes())
    }

    /// Records where the journal of the closed engine ends.
    pub(crate) fn mark_clean(&self) -> io::Result<()> {
        let Some(extent) = journal_recovery::extent(&self.engine_path())? else { return Ok(()) };
        write_synced(&self.clean_marker_path(), extent.to_text().as_bytes())
    }

    /// Creates the engine under another name and renames it when it is complete, so that a crash leaves either none or
    /// a complete one. Returns the format.
    fn create(&self, options: &EmbeddedOptions) -> Result<u32, StoreOpenError> {
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
        let mut follower = JournalFollower::new(&self.engine_path(), Vec::new());
        follower.follow().map_err(failed)?;
        SyncedLengths::create(&self.synced_lengths_path(), follower.lengths()).map_err(failed)?;
        self.write_format().map_err(failed)?;
        Ok(FORMAT)
    }

    fn journal_error(&self, error: JournalRecoveryError) -> StoreOpenError {
        match error {
            JournalRecoveryError::Io(source) => open_error(&self.path, source),
            JournalRecoveryError::Damaged(FileDamage { file, at, reason }) => {
                StoreOpenError::Damaged { file, at, reason: reason.into_owned() }
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

pub(crate) fn open_error(folder: &Path, source: io::Error) -> StoreOpenError {
    let folder = folder.to_owned();
    if is_disk_full(&source) {
        StoreOpenError::DiskFull { folder }
    } else {
        StoreOpenError::Io { folder, source }
    }
}

/// The files beside the engine's folder.
const OWN_FILES: [&str; 4] = ["LOCK", "FORMAT", "CLEAN", "SYNCED"];

/// An incomplete store contains only these names; any other file in a folder without FORMAT belongs to something else.
fn has_foreign_files(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let aside = ["FORMAT.new", "CLEAN.new", "SYNCED.new", "engine.new", "engine", "lost+found"];
        if !OWN_FILES.iter().chain(&aside).any(|ours| name == *ours) {
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

pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file under another name and renames it when it is on the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = new_file(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
