//! Backup and restore of a data folder that no server uses, and backup of a running server's.
//!
//! A copy is a data folder of its own: the store and its layout file. Backup and restore both write to a staging folder
//! and rename it when it is complete and on disk, so a folder under its final name is always usable. Nothing existing
//! is ever replaced. Knows nothing about the rows of the store.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreBackupError, StoreImport, StoreOpenError};

use crate::data_check::{CheckError, check_data_folder};
use crate::data_layout::{Layout, LayoutError};
use crate::rest::BackupSource;
use abide_runtime::fsck::FsckReport;

/// Why a backup or restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target exists; a copy never replaces anything.
    #[error("{} already exists; nothing is ever replaced", folder.display())]
    Exists { folder: PathBuf },
    /// Another process uses the copy that is to be restored.
    #[error("{} is in use by another process", folder.display())]
    InUse { folder: PathBuf },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The folder has no store, a server uses it, or it is damaged.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error(transparent)]
    Store(#[from] StoreBackupError),
    /// The restored folder did not pass the check.
    #[error("the copy cannot be used")]
    Check(#[from] CheckError),
    #[error("{} cannot be read or written", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Copies the data folder of a server that is not running, for `abide backup`. The checksum of every row is verified.
/// Writes to the data folder only what opening a store writes, and nothing on a read-only medium. `copied` is called
/// with the bytes of each step.
pub fn backup(data: &Path, to: &Path, copied: impl FnMut(u64)) -> Result<(), BackupError> {
    ensure_absent(to)?;
    let layout = Layout::read(data)?;
    let staging = staging_path(to);
    remove_staging(&staging)?;
    let store = EmbeddedStore::open_to_read(data, EmbeddedOptions::default())?;
    store.backup(&staging, copied)?;
    layout.write_or_verify(&staging)?;
    move_into_place(&staging, to)
}

/// The store of a running server, which `GET /api/backup` copies.
#[derive(Debug)]
pub(crate) struct RunningStore {
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) layout: Layout,
}

impl BackupSource for RunningStore {
    fn export(&self, on_piece: &mut dyn FnMut(Vec<u8>) -> bool) -> Result<(), String> {
        let layout = self.layout.to_json().map_err(|error| error.to_string())?;
        self.store.export(&layout, on_piece).map_err(|error| error.to_string())
    }

    fn is_open(&self) -> bool {
        self.store.is_open()
    }
}

/// Makes a data folder of what `GET /api/backup` of a running server sends, for `abide backup --url`. Dropped before it
/// is finished, it leaves nothing.
#[derive(Debug)]
pub struct BackupReceiver {
    import: StoreImport,
    staging: PathBuf,
    to: PathBuf,
}

impl BackupReceiver {
    /// Starts a copy in a folder that does not exist.
    pub fn start(to: &Path) -> Result<Self, BackupError> {
        ensure_absent(to)?;
        let staging = staging_path(to);
        remove_staging(&staging)?;
        let import = StoreImport::start(&staging, EmbeddedOptions::default())?;
        Ok(Self { import, staging, to: to.to_owned() })
    }

    /// Takes the next bytes that the server sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        Ok(self.import.receive(bytes)?)
    }

    /// The server has sent everything: the copy gets its name, if it is complete.
    pub fn finish(self) -> Result<(), BackupError> {
        let layout = self.import.finish()?;
        Layout::from_json(&self.staging, &layout)?.write_or_verify(&self.staging)?;
        move_into_place(&self.staging, &self.to)
    }
}

/// Restores a copy to a place without a data folder, for `abide restore`, and checks it in its staging folder before it
/// gets its final name. The copy is only read.
pub async fn restore(backup: &Path, data: &Path, copied: impl FnMut(u64)) -> Result<FsckReport, BackupError> {
    ensure_absent(data)?;
    Layout::read(backup)?;
    // A server that runs on the copy itself would change it while it is read.
    let _lock = lock(backup)?;
    let staging = staging_path(data);
    remove_staging(&staging)?;
    copy_folder(backup, &staging, &mut { copied })?;
    let report = check_data_folder(&staging).await?;
    move_into_place(&staging, data)?;
    Ok(report)
}

/// The number of bytes that [`restore`] copies, as far as the entries can be read. Only for a progress display.
pub fn folder_size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => folder_size(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

fn ensure_absent(folder: &Path) -> Result<(), BackupError> {
    match folder.symlink_metadata() {
        Ok(_) => Err(BackupError::Exists { folder: folder.to_owned() }),
        Err(_) => Ok(()),
    }
}

fn staging_path(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".making");
    name.into()
}

/// Removes what an interrupted attempt left behind.
fn remove_staging(folder: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io_error(folder, source)),
        _ => Ok(()),
    }
}

/// Takes the store's own lock, shared: no server can open the copy while the file is held, but several restores can
/// read it.
fn lock(folder: &Path) -> Result<File, BackupError> {
    let path = folder.join("LOCK");
    let file = File::open(&path).map_err(|source| io_error(&path, source))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupError::InUse { folder: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io_error(&path, source)),
    }
}

/// Copies folders and regular files, durably; skips anything else, such as symbolic links.
fn copy_folder(from: &Path, to: &Path, copied: &mut impl FnMut(u64)) -> Result<(), BackupError> {
    // Whatever the permissions of the copy: only the owner of the data folder is to read it.
    let folder = fs::DirBuilder::new().recursive(true).mode(0o700).create(to);
    folder.map_err(|source| io_error(to, source))?;
    for entry in fs::read_dir(from).map_err(|source| io_error(from, source))? {
        let entry = entry.map_err(|source| io_error(from, source))?;
        let source_path = entry.path();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(|source| io_error(&source_path, source))?;
        if kind.is_dir() {
            copy_folder(&source_path, &target, copied)?;
        } else if kind.is_file() {
            copy_file(&source_path, &target, copied)?;
        }
    }
    sync_folder(to)
}

/// Copies one file, durably, and tells the progress. An existing target is an error. An error names the file that
/// failed; the next attempt removes a partial target with its staging folder.
fn copy_file(from: &Path, to: &Path, copied: &mut impl FnMut(u64)) -> Result<(), BackupError> {
    const SLICE_BYTES: usize = 1024 * 1024;
    let mut reader = File::open(from).map_err(|source| io_error(from, source))?;
    let writer = File::options().write(true).create_new(true).mode(0o600).open(to);
    let mut writer = writer.map_err(|source| io_error(to, source))?;
    let mut slice = vec![0; SLICE_BYTES];
    loop {
        let bytes = reader.read(&mut slice).map_err(|source| io_error(from, source))?;
        if bytes == 0 {
            return writer.sync_all().map_err(|source| io_error(to, source));
        }
        let filled = slice.get(..bytes).unwrap_or_default();
        writer.write_all(filled).map_err(|source| io_error(to, source))?;
        copied(bytes as u64);
    }
}

/// Gives the complete folder its final name, durably.
fn move_into_place(staging: &Path, to: &Path) -> Result<(), BackupError> {
    sync_folder(staging)?;
    fs::rename(staging, to).map_err(|source| io_error(to, source))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(parent)
}

fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| io_error(folder, source))
}

fn io_error(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_owned(), source }
}
