//! The layout of a data folder, written once to `abide.json` beside the store.
//!
//! A different number of shards would look for every instance in the wrong shard, so it is rejected. The server creates
//! the file after the store, because the store accepts no folder with foreign files as a new one, and before anything
//! is written into the store. A backup gets it once its copy of the store is complete. Knows nothing about the store's
//! own files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "abide.json";

/// The settings that are fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layout {
    pub(crate) shards: u32,
}

/// Why a data folder cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error(
        "{} has {made} shards, which cannot be changed, but store.shards is {configured}: set it to {made} or use another folder",
        folder.display()
    )]
    ShardCountMismatch {
        folder: PathBuf,
        /// The number of shards the store was created with.
        made: u32,
        configured: u32,
    },
    #[error("{} is damaged: {reason}", file.display())]
    Damaged { file: PathBuf, reason: String },
    #[error("{} cannot be read or written", file.display())]
    Io { file: PathBuf, source: io::Error },
}

impl Layout {
    /// The layout of an existing store.
    pub(crate) fn read(folder: &Path) -> Result<Self, LayoutError> {
        let file = folder.join(FILE);
        let text =
            fs::read_to_string(&file).map_err(|source| LayoutError::Io { file: file.clone(), source })?;
        serde_json::from_str(&text).map_err(|error| LayoutError::Damaged { file, reason: error.to_string() })
    }

    /// The content of the file.
    pub(crate) fn to_json(self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self)
    }

    /// The layout in the content of another folder's file, for this folder.
    pub(crate) fn from_json(folder: &Path, json: &[u8]) -> Result<Self, LayoutError> {
        let damaged = |error: serde_json::Error| LayoutError::Damaged {
            file: folder.join(FILE),
            reason: error.to_string(),
        };
        serde_json::from_slice(json).map_err(damaged)
    }

    /// Writes the layout if the folder has none, or verifies that it has this one. A folder without the file is taken
    /// for new.
    pub(crate) fn write_or_verify(self, folder: &Path) -> Result<(), LayoutError> {
        let file = folder.join(FILE);
        let failed = |source| LayoutError::Io { file: file.clone(), source };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.write(folder, &file).map_err(failed);
            }
            Err(error) => return Err(failed(error)),
        };
        let made: Self = serde_json::from_str(&text)
            .map_err(|error| LayoutError::Damaged { file: file.clone(), reason: error.to_string() })?;
        if made != self {
            let folder = folder.to_owned();
            let made = made.shards;
            let configured = self.shards;
            return Err(LayoutError::ShardCountMismatch { folder, made, configured });
        }
        Ok(())
    }

    /// Writes a temporary file and renames it when it is on disk, so that a crash leaves either no file or a complete
    /// one. There is no concurrent writer: the server holds the store's lock, and nothing else uses an unfinished
    /// backup.
    fn write(self, folder: &Path, file: &Path) -> io::Result<()> {
        let temporary = file.with_extension("json.new");
        let mut options = OpenOptions::new();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut text = self.to_json()?;
        text.push(b'\n');
        written.write_all(&text)?;
        written.sync_all()?;
        fs::rename(&temporary, file)?;
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_the_shard_count_it_was_created_with() {
        let folder = tempfile::tempdir().unwrap();
        Layout { shards: 16 }.write_or_verify(folder.path()).unwrap();
        Layout { shards: 16 }.write_or_verify(folder.path()).unwrap();
        let error = Layout { shards: 8 }.write_or_verify(folder.path()).unwrap_err();
        assert!(matches!(error, LayoutError::ShardCountMismatch { made: 16, configured: 8, .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "{\"shards\":16}\n");
    }

    #[test]
    fn a_damaged_layout_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{\"shards\":").unwrap();
        let error = Layout { shards: 16 }.write_or_verify(folder.path()).unwrap_err();
        assert!(matches!(error, LayoutError::Damaged { .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "{\"shards\":");
    }
}
