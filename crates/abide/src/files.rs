//! Reading the author's files, with errors that name the file.

use std::path::{Path, PathBuf};

use abide_workflow::registry::RegistryError;
use abide_workflow::rehearse::MockError;
use abide_workflow::{Authored, Plan, Registry, Rejected};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: it is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}: {source}", path.display())]
    Registry { path: PathBuf, source: RegistryError },
    #[error("{}: {source}", path.display())]
    Mock { path: PathBuf, source: MockError },
    #[error("{}: {source}; `abide validate {}` says more", path.display(), path.display())]
    Invalid { path: PathBuf, source: Rejected },
}

/// No file of an author's is larger; a pipe that never ends is not read for ever.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    use std::io::Read;
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    Ok(text)
}

/// Reads the list of activities, if there is one.
pub(crate) fn registry(path: Option<&PathBuf>) -> Result<Option<Registry>, FileError> {
    let Some(path) = path else { return Ok(None) };
    let wrong = |source| FileError::Registry { path: path.clone(), source };
    Registry::parse(&read(path)?).map(Some).map_err(wrong)
}

/// Reads a definition that must be valid.
pub(crate) fn plan(path: &Path, registry: Option<&Registry>) -> Result<Plan, FileError> {
    let invalid = |source| FileError::Invalid { path: path.to_owned(), source };
    Ok(Authored::parse(&read(path)?).validate(registry).map_err(invalid)?.compile())
}
