//! Copies of a data folder: made of one that no server uses, and put back where there is none.
//!
//! A copy is a data folder of its own: the store, and beside it how it is divided. Both ways it is made under another name and gets its own
//! when it is whole and on the disk, so what is there can be used.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use abide_store_embedded::{BackupError as StoreBackupError, EmbeddedStore, OpenError, Options};

use crate::check::{CheckError, check};
use crate::layout::{Layout, LayoutError};
use abide_runtime::fsck::Report;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there already; a copy never replaces anything.
    #[error("{} exists already, and nothing is ever replaced", folder.display())]
    Exists {
        /// Where the copy was to be.
        folder: PathBuf,
    },
    /// Somebody uses the copy that is to be put back.
    #[error("{} is in use by another process", folder.display())]
    InUse {
        /// The copy.
        folder: PathBuf,
    },
    /// How it is divided.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There is no store in it, or a server uses it, or it is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store's own part.
    #[error(transparent)]
    Store(#[from] StoreBackupError),
    /// What was put back could not be proved.
    #[error("what was copied cannot be used")]
    Check(#[from] CheckError),
    /// The operating system refused something.
    #[error("{} cannot be read or written", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Copies the data folder of a server that is not running. Every row is read through its checksum. `copied` hears of bytes.
pub fn backup(data: &Path, to: &Path, copied: impl FnMut(u64)) -> Result<(), BackupError> {
    free(to)?;
    let layout = Layout::read(data)?;
    let aside = aside(to);
    remove(&aside)?;
    let store = EmbeddedStore::open(data, Options::default())?;
    store.backup(&aside, copied)?;
    layout.settle(&aside)?;
    rename(&aside, to)
}

/// Puts a copy back where no data folder is, and proves it there before it gets its name. The copy is only read.
pub async fn restore(backup: &Path, data: &Path, copied: impl FnMut(u64)) -> Result<Report, BackupError> {
    free(data)?;
    Layout::read(backup)?;
    // Whoever serves from the copy itself changes it while it is read.
    let _lock = lock(backup)?;
    let aside = aside(data);
    remove(&aside)?;
    copy_folder(backup, &aside, &mut { copied })?;
    let report = check(&aside).await?;
    rename(&aside, data)?;
    Ok(report)
}

/// How many bytes there are to copy, as far as that can be told.
pub fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => size(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

fn free(folder: &Path) -> Result<(), BackupError> {
    match folder.symlink_metadata() {
        Ok(_) => Err(BackupError::Exists { folder: folder.to_owned() }),
        Err(_) => Ok(()),
    }
}

fn aside(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".making");
    name.into()
}

/// What an earlier try left.
fn remove(folder: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(folder, source)),
        _ => Ok(()),
    }
}

fn lock(folder: &Path) -> Result<File, BackupError> {
    let path = folder.join("LOCK");
    let file = File::open(&path).map_err(|source| failed(&path, source))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupError::InUse { folder: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(&path, source)),
    }
}

fn copy_folder(from: &Path, to: &Path, copied: &mut impl FnMut(u64)) -> Result<(), BackupError> {
    fs::create_dir_all(to).map_err(|source| failed(to, source))?;
    for entry in fs::read_dir(from).map_err(|source| failed(from, source))? {
        let entry = entry.map_err(|source| failed(from, source))?;
        let (source_path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|source| failed(&source_path, source))?;
        if kind.is_dir() {
            copy_folder(&source_path, &target, copied)?;
        } else if kind.is_file() {
            copy_file(&source_path, &target, copied).map_err(|source| failed(&target, source))?;
        }
    }
    sync(to)
}

fn copy_file(from: &Path, to: &Path, copied: &mut impl FnMut(u64)) -> io::Result<()> {
    const SLICE_BYTES: usize = 1024 * 1024;
    let (mut reader, mut writer) = (File::open(from)?, File::create_new(to)?);
    let mut slice = vec![0; SLICE_BYTES];
    loop {
        let bytes = reader.read(&mut slice)?;
        if bytes == 0 {
            return writer.sync_all();
        }
        writer.write_all(slice.get(..bytes).unwrap_or_default())?;
        copied(bytes as u64);
    }
}

/// Gives what is whole its name, for good.
fn rename(aside: &Path, to: &Path) -> Result<(), BackupError> {
    sync(aside)?;
    fs::rename(aside, to).map_err(|source| failed(to, source))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync(parent)
}

fn sync(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| failed(folder, source))
}

fn failed(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_owned(), source }
}
