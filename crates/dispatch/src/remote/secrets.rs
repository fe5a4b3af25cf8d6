//! Secrets by reference: `{"secretRef": "env:NAME"}` and `{"secretRef": "file:/run/secrets/name"}`.
//!
//! Only references are declared, stored and shown; the value is read when a call needs it, so that a replaced value is
//! used at once. A value appears in no error, no log and no debug output. Knows nothing about what secrets are for.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::transport::CallFailure;

/// The longest secret, in bytes.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// The longest reference, in bytes.
const REFERENCE_BYTES_MAX: usize = 1024;
const FIELD: &str = "secretRef";

/// A reference to a secret. Safe to store and to show.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SecretRef(SecretLocation);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum SecretLocation {
    /// An environment variable of the process.
    Env(String),
    /// A file by its absolute path.
    File(String),
}

/// The value is not a reference to a secret. The value is not shown: it may be the secret itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {{\"secretRef\": \"env:NAME\"}} or {{\"secretRef\": \"file:/path\"}}")]
pub struct SecretRefError;

/// Why a secret is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// The environment variable does not exist.
    #[error("the secret {reference} is not set")]
    NotSet { reference: SecretRef },
    /// The configuration does not allow the reference.
    #[error("the configuration does not allow the secret {reference}")]
    NotAllowed { reference: SecretRef },
    /// The secret is empty or too long.
    #[error("the secret {reference} must have 1 to {SECRET_BYTES_MAX} bytes")]
    Size { reference: SecretRef },
    /// The value does not have the required form.
    #[error("the secret {reference} is not {expected}")]
    Unusable {
        reference: SecretRef,
        /// The required form.
        expected: &'static str,
    },
    /// The file cannot be read at the moment.
    #[error("the secret {reference} cannot be read: {kind}")]
    Unreadable {
        reference: SecretRef,
        /// The error of the operating system.
        kind: io::ErrorKind,
    },
}

impl From<SecretError> for CallFailure {
    /// Nothing was sent. A file may become readable again; the other errors need an operator.
    fn from(error: SecretError) -> Self {
        let code = "SecretUnavailable";
        let failure = match &error {
            SecretError::Unreadable { .. } => Self::retryable(code, error.to_string()),
            _ => Self::permanent(code, error.to_string()),
        };
        failure.with_not_sent()
    }
}

/// The value of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

/// The future of the value of a secret.
pub type SecretFuture<'s> = Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 's>>;

/// A source of secrets.
pub trait Secrets: Send + Sync + 'static {
    /// The current value of a secret.
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> SecretFuture<'s>;
}

/// The secrets that may be referred to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecretsConfig {
    /// The prefix that the names of environment variables must have; empty means any name.
    pub env_prefix: String,
    /// The folders whose files may be read, including their subfolders; empty means no files.
    pub folders: Vec<PathBuf>,
}

/// Secrets from the environment of the process and from files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemSecrets(Arc<SecretsConfig>);

impl SecretRef {
    /// Reads `{"secretRef": …}`, and nothing else.
    pub fn read(value: &Value) -> Result<Self, SecretRefError> {
        let fields = value.as_object().filter(|fields| fields.len() == 1);
        let text = fields.and_then(|fields| fields.get(FIELD)?.as_str());
        text.and_then(Self::parse).ok_or(SecretRefError)
    }

    /// Parses `env:NAME` or `file:/path`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > REFERENCE_BYTES_MAX || text.chars().any(char::is_control) {
            return None;
        }
        let is_name = |name: &&str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match text.split_once(':')? {
            ("env", name) => {
                Some(name).filter(is_name).map(|name| Self(SecretLocation::Env(name.to_owned())))
            }
            ("file", path) => Some(path)
                .filter(|path| path.starts_with('/'))
                .map(|path| Self(SecretLocation::File(path.to_owned()))),
            _ => None,
        }
    }

    /// The reference as JSON.
    pub fn to_json(&self) -> Value {
        json!({ FIELD: self.to_string() })
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SecretLocation::Env(name) => write!(f, "env:{name}"),
            SecretLocation::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl Secret {
    /// A secret with this value.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The value. The caller must neither show nor store it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl SystemSecrets {
    /// The secrets that the configuration allows.
    pub fn new(config: SecretsConfig) -> Self {
        Self(Arc::new(config))
    }
}

impl Secrets for SystemSecrets {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> SecretFuture<'s> {
        Box::pin(async move {
            match &reference.0 {
                SecretLocation::Env(name) => read_env(name, &self.0, reference),
                SecretLocation::File(path) => {
                    let path = path.clone();
                    let config = Arc::clone(&self.0);
                    let reference = reference.clone();
                    // The folder may be on a slow network.
                    let failed = SecretError::Unreadable {
                        reference: reference.clone(),
                        kind: io::ErrorKind::Interrupted,
                    };
                    let read = move || read_file(Path::new(&path), &config, &reference);
                    tokio::task::spawn_blocking(read).await.map_err(|_| failed)?
                }
            }
        })
    }
}

fn read_env(name: &str, config: &SecretsConfig, reference: &SecretRef) -> Result<Secret, SecretError> {
    if !name.starts_with(&config.env_prefix) {
        return Err(SecretError::NotAllowed { reference: reference.clone() });
    }
    let value = std::env::var_os(name).ok_or_else(|| SecretError::NotSet { reference: reference.clone() })?;
    check_size(value.into_encoded_bytes(), reference)
}

/// Reads a file. The path that its symbolic links lead to must be in one of the folders.
fn read_file(path: &Path, config: &SecretsConfig, reference: &SecretRef) -> Result<Secret, SecretError> {
    let unreadable =
        |error: io::Error| SecretError::Unreadable { reference: reference.clone(), kind: error.kind() };
    let not_allowed = || SecretError::NotAllowed { reference: reference.clone() };
    // Checked before the file system is touched: a path outside the folders is not looked up, so that an error does not
    // reveal whether it exists.
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if !is_plain || !config.folders.iter().any(|folder| path.starts_with(folder)) {
        return Err(not_allowed());
    }
    let path = path.canonicalize().map_err(unreadable)?;
    let folders = config.folders.iter().filter_map(|folder| folder.canonicalize().ok());
    if !folders.into_iter().any(|folder| path.starts_with(folder)) {
        return Err(not_allowed());
    }
    // Reading a pipe or a device could block.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(not_allowed());
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(unreadable)?;
    file.take(SECRET_BYTES_MAX as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
    // Editors end files with a line end that is not part of the secret.
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    check_size(bytes, reference)
}

fn check_size(bytes: Vec<u8>, reference: &SecretRef) -> Result<Secret, SecretError> {
    if bytes.is_empty() || bytes.len() > SECRET_BYTES_MAX {
        return Err(SecretError::Size { reference: reference.clone() });
    }
    Ok(Secret::new(bytes))
}

#[cfg(test)]
mod tests;
