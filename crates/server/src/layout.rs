//! How a data folder is divided, written once beside the store: `abide.json`.
//!
//! Another number of shards would look for every instance in the wrong place, so it is refused. The file is made after the store, which
//! takes no folder with files of others for a new one, and before anything is written into the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "abide.json";

/// What is fixed when a store is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layout {
    pub(crate) shards: u32,
}

/// Why a data folder cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It is divided in another way.
    #[error(
        "{} is divided into {made} shards, which is fixed; store.shards is {configured}: set it to {made}, or use another folder",
        folder.display()
    )]
    OtherShards {
        /// The data folder.
        folder: PathBuf,
        /// What it was made with.
        made: u32,
        /// What is configured.
        configured: u32,
    },
    /// The file says nothing that can be understood.
    #[error("{} cannot be understood: {reason}", file.display())]
    Damaged {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{} cannot be read or written", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl Layout {
    /// The layout of a store that is there.
    pub(crate) fn read(folder: &Path) -> Result<Self, LayoutError> {
        let file = folder.join(FILE);
        let text =
            fs::read_to_string(&file).map_err(|source| LayoutError::Io { file: file.clone(), source })?;
        serde_json::from_str(&text).map_err(|error| LayoutError::Damaged { file, reason: error.to_string() })
    }

    /// Writes the layout of a new store, or checks that an old one has it.
    pub(crate) fn settle(self, folder: &Path) -> Result<(), LayoutError> {
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
            let (folder, made, configured) = (folder.to_owned(), made.shards, self.shards);
            return Err(LayoutError::OtherShards { folder, made, configured });
        }
        Ok(())
    }

    /// Written aside and moved into place when it is on the disk, so that a crash leaves either none or a whole one. Nobody else writes:
    /// the store's lock is held.
    fn write(self, folder: &Path, file: &Path) -> io::Result<()> {
        let aside = file.with_extension("json.new");
        let mut written = OpenOptions::new().write(true).create(true).truncate(true).open(&aside)?;
        let mut text = serde_json::to_vec(&self)?;
        text.push(b'\n');
        written.write_all(&text)?;
        written.sync_all()?;
        fs::rename(&aside, file)?;
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_the_number_of_shards_it_was_made_with() {
        let folder = tempfile::tempdir().unwrap();
        Layout { shards: 16 }.settle(folder.path()).unwrap();
        Layout { shards: 16 }.settle(folder.path()).unwrap();
        let error = Layout { shards: 8 }.settle(folder.path()).unwrap_err();
        assert!(matches!(error, LayoutError::OtherShards { made: 16, configured: 8, .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "{\"shards\":16}\n");
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{\"shards\":").unwrap();
        let error = Layout { shards: 16 }.settle(folder.path()).unwrap_err();
        assert!(matches!(error, LayoutError::Damaged { .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "{\"shards\":");
    }
}
