//! A working copy of a store on a read-only medium: opening an engine writes, so it is opened elsewhere.
//!
//! The sorted files, almost all of a store, are never changed: the copy links to them. Journals and manifests are
//! copied. The copy is in the system's folder for temporary files, only its owner can enter it, and it is removed with
//! this value. The original is only read.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::folder::{StoreOpenError, open_error};
use crate::private_files::{PRIVATE_FILE, PRIVATE_FOLDER};

#[derive(Debug)]
pub(crate) struct WorkingCopy {
    original: PathBuf,
    path: PathBuf,
    /// Held, shared, as long as the copy is used: nobody may change the original meanwhile.
    _lock: File,
}

/// False if the store's folder is known to be read-only for this process.
pub(crate) fn is_writable(folder: &Path) -> bool {
    match File::options().write(true).open(folder.join("LOCK")) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
        }
    }
}

impl WorkingCopy {
    pub(crate) fn make(folder: &Path) -> Result<Self, StoreOpenError> {
        let failed = |source| open_error(folder, source);
        let original = folder.canonicalize().map_err(failed)?;
        let lock = File::open(original.join("LOCK")).map_err(failed)?;
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreOpenError::InUse { folder: folder.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let number = getrandom::u64().map_err(|error| failed(io::Error::other(error.to_string())))?;
        let path = std::env::temp_dir().join(format!("abide-working-copy-{number:016x}"));
        let made = Self { original: original.clone(), path: path.clone(), _lock: lock };
        copy_folder(&original, &path).map_err(|source| open_error(&path, source))?;
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same error with the place in the original.
    pub(crate) fn name_original(&self, error: StoreOpenError) -> StoreOpenError {
        match error {
            StoreOpenError::Damaged { file, at, reason } => {
                let original = file.strip_prefix(&self.path).map(|inside| self.original.join(inside));
                StoreOpenError::Damaged { file: original.unwrap_or(file), at, reason }
            }
            StoreOpenError::NewerFormat { found, .. } => {
                StoreOpenError::NewerFormat { folder: self.original.clone(), found }
            }
            StoreOpenError::NotAStore { .. } => StoreOpenError::NotAStore { folder: self.original.clone() },
            other => other,
        }
    }
}

impl Drop for WorkingCopy {
    fn drop(&mut self) {
        // Links are removed, not what they lead to. What cannot be removed stays among the temporary files.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// Copies a folder; sorted files become links.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(PRIVATE_FOLDER).create(to)?;
    let is_tables = from.file_name().is_some_and(|name| name == "tables");
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // A mounted disk has this folder, and it is not the store's.
            if entry.file_name() != "lost+found" {
                copy_folder(&source, &target)?;
            }
        } else if kind.is_file() && is_tables {
            std::os::unix::fs::symlink(&source, &target)?;
        } else if kind.is_file() {
            let mut file = File::options().create_new(true).write(true).mode(PRIVATE_FILE).open(&target)?;
            io::copy(&mut File::open(&source)?, &mut file)?;
        }
    }
    Ok(())
}
