//! Reads the author's files and JSON arguments. Every error names the file or the argument.

use std::path::{Path, PathBuf};

use abide_workflow::json::{self, JsonError};
use abide_workflow::registry::RegistryError;
use abide_workflow::rehearse::MockError;
use abide_workflow::{ParsedDefinition, Plan, Registry, ValidationError};
use serde_json::Value;

/// Why a file cannot be used. The message includes the reason, so no error has a source: it would be printed twice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: std::io::Error },
    #[error("{}: the file is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}: {reason}", path.display())]
    Registry { path: PathBuf, reason: RegistryError },
    #[error("{}: {reason}", path.display())]
    Mock { path: PathBuf, reason: MockError },
    #[error("{}: the file is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, text: String, reason: ValidationError },
    #[error("{what}: {reason}")]
    Json { what: String, reason: JsonError },
}

/// The largest accepted file, so that an endless pipe is not read for ever.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    use std::io::Read;
    let unreadable = |reason: std::io::Error| match reason.kind() {
        std::io::ErrorKind::InvalidData => FileError::NotText { path: path.to_owned() },
        _ => FileError::Io { path: path.to_owned(), reason },
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    // Some editors put a byte order mark at the start of a file.
    if let Some(rest) = text.strip_prefix('\u{feff}') {
        return Ok(rest.to_owned());
    }
    Ok(text)
}

/// Parses a JSON argument: the text itself, `@FILE`, or `@-` for standard input. `what` names the argument.
pub(crate) fn parse_json_argument(what: &str, argument: &str) -> Result<Value, FileError> {
    let (what, text) = match argument.strip_prefix('@') {
        None => (what.to_owned(), argument.to_owned()),
        Some("-") => ("standard input".to_owned(), read(Path::new("/dev/stdin"))?),
        Some(path) => (path.to_owned(), read(Path::new(path))?),
    };
    json::parse(&text).map_err(|reason| FileError::Json { what, reason })
}

/// Reads the list of activities, if there is one.
pub(crate) fn read_registry(path: Option<&PathBuf>) -> Result<Option<Registry>, FileError> {
    let Some(path) = path else { return Ok(None) };
    let invalid = |reason| FileError::Registry { path: path.clone(), reason };
    Registry::parse(&read(path)?).map(Some).map_err(invalid)
}

/// Reads a definition that must be valid.
pub(crate) fn read_plan(path: &Path, registry: Option<&Registry>) -> Result<Plan, FileError> {
    let text = read(path)?;
    match ParsedDefinition::parse(&text).validate(registry) {
        Ok(validated) => Ok(validated.compile()),
        Err(reason) => Err(FileError::Invalid { path: path.to_owned(), text, reason }),
    }
}
