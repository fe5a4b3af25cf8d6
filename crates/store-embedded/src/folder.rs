//! The folder of an embedded store: whose it is, in which format, and how it comes into being.
//!
//! ```text
//! LOCK      held while a process has the store open
//! FORMAT    the version of everything beside it
//! CLEAN     where the journal ended, if the store was closed in order
//! engine/   the engine's own files; made as engine.new/ and renamed when complete
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::engine::Engine;
use crate::journal::{self, Damage, Extent, SettleError, Settled};
use crate::manifest;
use crate::options::Options;

/// The format this program writes, and the highest it opens.
const FORMAT: u32 = 1;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error("{} is in use by another process; one process at a time can open a store", folder.display())]
    InUse {
        /// The store's folder.
        folder: PathBuf,
    },
    /// A folder with other things in it.
    #[error("{} is not a store: it has files but no FORMAT", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
    },
    /// Made by a newer program.
    #[error("{} has format {found}; this program opens up to {FORMAT}: use a newer one", folder.display())]
    NewerFormat {
        /// The store's folder.
        folder: PathBuf,
        /// The format found.
        found: u32,
    },
    /// Stored bytes are not what was written. Nothing was changed.
    #[error("{} is damaged at byte {at}: {reason}", file.display())]
    Damaged {
        /// Which file, or the engine's folder if the engine does not say.
        file: PathBuf,
        /// Where in it.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// The disk is full.
    #[error("no space is left for {}", folder.display())]
    DiskFull {
        /// The store's folder.
        folder: PathBuf,
    },
    /// The operating system refused something.
    #[error("{} cannot be opened", folder.display())]
    Io {
        /// The store's folder.
        folder: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// An open folder; the lock is held as long as this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, making it if there is none.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| open_error(path, source);
        fs::create_dir_all(path).map_err(failed)?;
        let format = read_if_there(&path.join("FORMAT")).map_err(failed)?;
        if format.is_none() && has_foreign_files(path).map_err(failed)? {
            return Err(OpenError::NotAStore { folder: path.to_owned() });
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join("LOCK"));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if let Some(bytes) = format {
            match String::from_utf8_lossy(&bytes).trim().parse::<u32>() {
                Ok(FORMAT) => {}
                Ok(found) if found > FORMAT => {
                    return Err(OpenError::NewerFormat { folder: path.to_owned(), found });
                }
                _ => {
                    let reason = "it does not name a format".to_owned();
                    return Err(OpenError::Damaged { file: path.join("FORMAT"), at: 0, reason });
                }
            }
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    fn clean(&self) -> PathBuf {
        self.path.join("CLEAN")
    }

    /// Opens the engine, after its journal has been settled; makes a new one in a new folder.
    pub(crate) fn open_engine(&self, options: &Options) -> Result<(Engine, Settled), OpenError> {
        let failed = |source| open_error(&self.path, source);
        if !self.path.join("FORMAT").exists() {
            self.create(options)?;
        }
        let clean = read_if_there(&self.clean())
            .map_err(failed)?
            .and_then(|bytes| Extent::from_text(&String::from_utf8_lossy(&bytes)));
        // Nothing of the engine is touched before all of it that can be checked has been.
        if let Some(damage) = manifest::check(&self.engine()).map_err(failed)? {
            return Err(self.settle_error(SettleError::Damaged(damage)));
        }
        let settled = journal::settle(&self.engine(), clean.as_ref(), options.salvage);
        let settled = settled.map_err(|error| self.settle_error(error))?;
        // From here on the journal may end elsewhere: the mark has to be gone before the first commit.
        remove_if_there(&self.clean()).map_err(failed)?;
        sync_folder(&self.path).map_err(failed)?;
        let engine = Engine::open(&self.engine(), options).map_err(|error| self.engine_error(error))?;
        Ok((engine, settled))
    }

    /// Notes where the journal of the closed engine ends.
    pub(crate) fn mark_clean(&self) -> io::Result<()> {
        let Some(extent) = journal::extent(&self.engine())? else { return Ok(()) };
        write_synced(&self.clean(), &extent.to_text())
    }

    /// Makes the engine aside and moves it in place when it is complete, so that a crash leaves either none or a whole one.
    fn create(&self, options: &Options) -> Result<(), OpenError> {
        let failed = |source| open_error(&self.path, source);
        let aside = self.path.join("engine.new");
        if !self.engine().exists() {
            if aside.exists() {
                fs::remove_dir_all(&aside).map_err(failed)?;
            }
            let engine = Engine::open(&aside, options).map_err(|error| self.engine_error(error))?;
            drop(engine);
            fs::rename(&aside, self.engine()).map_err(failed)?;
        }
        sync_folder(&self.path).map_err(failed)?;
        write_synced(&self.path.join("FORMAT"), &format!("{FORMAT}\n")).map_err(failed)
    }

    fn settle_error(&self, error: SettleError) -> OpenError {
        match error {
            SettleError::Io(source) => open_error(&self.path, source),
            SettleError::Damaged(Damage { file, at, reason }) => {
                OpenError::Damaged { file, at, reason: reason.to_owned() }
            }
        }
    }

    fn engine_error(&self, error: fjall::Error) -> OpenError {
        match error {
            fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
                open_error(&self.path, source)
            }
            fjall::Error::Locked => OpenError::InUse { folder: self.path.clone() },
            other => OpenError::Damaged { file: self.engine(), at: 0, reason: other.to_string() },
        }
    }
}

/// Free bytes of the file system the folder is on.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn open_error(folder: &Path, source: io::Error) -> OpenError {
    let folder = folder.to_owned();
    if is_disk_full(&source) { OpenError::DiskFull { folder } } else { OpenError::Io { folder, source } }
}

/// A half-made store has nothing but these; anything else in a folder without FORMAT is somebody else's.
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

/// A file's bytes, or `None` if there is no such file.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
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
