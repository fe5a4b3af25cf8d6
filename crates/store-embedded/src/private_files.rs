//! Files and folders that only their owner can enter, read and change.
//!
//! Payloads may contain what nobody else on the machine is to see. Other users' files are left alone.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::folder::remove_if_exists;

pub(crate) const PRIVATE_FOLDER: u32 = 0o700;
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// Creates a file that only its owner can read, in place of an earlier one.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    remove_if_exists(path)?;
    File::options().create_new(true).write(true).mode(PRIVATE_FILE).open(path)
}

/// Creates a folder that only its owner can enter, with the folders above it.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Leaves a folder and all in it with the permissions of their owner alone, if it is there.
pub(crate) fn take_permissions_below(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            take_permissions_below(&entry.path())?;
        } else {
            take_permissions(&entry.path())?;
        }
    }
    take_permissions(folder)
}

/// Leaves a file or folder with the permissions of its owner alone, if it is there. Does not follow links.
pub(crate) fn take_permissions(path: &Path) -> io::Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    let mode = about.permissions().mode();
    if about.is_symlink() || mode & 0o077 == 0 {
        return Ok(());
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}
