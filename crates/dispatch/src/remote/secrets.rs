//! Secrets by reference: `{"secretRef": "env:NAME"}` and `{"secretRef": "file:/run/secrets/name"}`.
//!
//! What is declared, stored and shown is the reference; the value is read when a call needs it, so that one that was replaced is used at
//! once. A value is in no error, no log and no debug output. Knows nothing of what secrets are for.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::transport::Failure;

/// Bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a reference.
const REFERENCE_BYTES_MAX: usize = 1024;
const FIELD: &str = "secretRef";

/// Where a secret is. Safe to store and to show.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SecretRef(Place);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// A variable of the process.
    Env(String),
    /// A file by its absolute path.
    File(String),
}

/// Not a reference to a secret. Does not say what was there instead: it may be the secret itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{{\"secretRef\": \"env:NAME\"}} or {{\"secretRef\": \"file:/path\"}} is expected")]
pub struct NotAReference;

/// Why a secret cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// There is no such variable.
    #[error("the secret {reference} is not set")]
    NotSet {
        /// Which.
        reference: SecretRef,
    },
    /// Nobody allowed it in the configuration.
    #[error("the secret {reference} is outside of what the configuration allows")]
    NotAllowed {
        /// Which.
        reference: SecretRef,
    },
    /// Nothing, or too much.
    #[error("the secret {reference} must have 1 to {SECRET_BYTES_MAX} bytes")]
    Size {
        /// Which.
        reference: SecretRef,
    },
    /// It has something in it that cannot be there.
    #[error("the secret {reference} is not {expected}")]
    Unusable {
        /// Which.
        reference: SecretRef,
        /// What it should be.
        expected: &'static str,
    },
    /// The operating system does not give it out now.
    #[error("the secret {reference} cannot be read: {kind}")]
    Unreadable {
        /// Which.
        reference: SecretRef,
        /// What the operating system said.
        kind: io::ErrorKind,
    },
}

impl From<SecretError> for Failure {
    /// Nothing was sent. A file may come back; the rest needs people.
    fn from(error: SecretError) -> Self {
        let code = "SecretUnavailable";
        let failure = match &error {
            SecretError::Unreadable { .. } => Self::retryable(code, error.to_string()),
            _ => Self::for_good(code, error.to_string()),
        };
        failure.with_not_sent()
    }
}

/// A secret's value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

/// The value to come.
pub type Revealing<'s> = Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 's>>;

/// Gives out secrets.
pub trait Secrets: Send + Sync + 'static {
    /// The value that the reference leads to now.
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> Revealing<'s>;
}

/// What may be referred to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecretsConfig {
    /// What the names of variables must begin with; nothing given means any.
    pub env_prefix: String,
    /// Folders whose files, also in folders below, may be read; none given means none.
    pub folders: Vec<PathBuf>,
}

/// Secrets from the process's environment and from files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemSecrets(Arc<SecretsConfig>);

impl SecretRef {
    /// Reads `{"secretRef": …}`, and nothing but that.
    pub fn read(value: &Value) -> Result<Self, NotAReference> {
        let fields = value.as_object().filter(|fields| fields.len() == 1);
        let text = fields.and_then(|fields| fields.get(FIELD)?.as_str());
        text.and_then(Self::parse).ok_or(NotAReference)
    }

    /// Reads `env:NAME` or `file:/path`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > REFERENCE_BYTES_MAX || text.chars().any(char::is_control) {
            return None;
        }
        let is_name = |name: &&str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match text.split_once(':')? {
            ("env", name) => Some(name).filter(is_name).map(|name| Self(Place::Env(name.to_owned()))),
            ("file", path) => {
                Some(path).filter(|path| path.starts_with('/')).map(|path| Self(Place::File(path.to_owned())))
            }
            _ => None,
        }
    }

    /// As it is written in JSON.
    pub fn to_json(&self) -> Value {
        json!({ FIELD: self.to_string() })
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Env(name) => write!(f, "env:{name}"),
            Place::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl Secret {
    /// A value from elsewhere.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The value. Whoever asks keeps it to himself.
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
    /// Secrets within what is configured.
    pub fn new(config: SecretsConfig) -> Self {
        Self(Arc::new(config))
    }
}

impl Secrets for SystemSecrets {
    fn reveal<'s>(&'s self, reference: &'s SecretRef) -> Revealing<'s> {
        Box::pin(async move {
            match &reference.0 {
                Place::Env(name) => of_env(name, &self.0, reference),
                Place::File(path) => {
                    let (path, config, reference) = (path.clone(), Arc::clone(&self.0), reference.clone());
                    // A folder may be on a network that is slow today.
                    let failed = SecretError::Unreadable {
                        reference: reference.clone(),
                        kind: io::ErrorKind::Interrupted,
                    };
                    let read = move || of_file(Path::new(&path), &config, &reference);
                    tokio::task::spawn_blocking(read).await.map_err(|_| failed)?
                }
            }
        })
    }
}

fn of_env(name: &str, config: &SecretsConfig, reference: &SecretRef) -> Result<Secret, SecretError> {
    if !name.starts_with(&config.env_prefix) {
        return Err(SecretError::NotAllowed { reference: reference.clone() });
    }
    let value = std::env::var_os(name).ok_or_else(|| SecretError::NotSet { reference: reference.clone() })?;
    sized(value.into_encoded_bytes(), reference)
}

/// A file is where its links lead to, and that must be in one of the folders.
fn of_file(path: &Path, config: &SecretsConfig, reference: &SecretRef) -> Result<Secret, SecretError> {
    let unreadable =
        |error: io::Error| SecretError::Unreadable { reference: reference.clone(), kind: error.kind() };
    let not_allowed = || SecretError::NotAllowed { reference: reference.clone() };
    // Before anything is touched: what is outside by its text is not even looked for, so nobody learns whether it is there.
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if !is_plain || !config.folders.iter().any(|folder| path.starts_with(folder)) {
        return Err(not_allowed());
    }
    let path = path.canonicalize().map_err(unreadable)?;
    let folders = config.folders.iter().filter_map(|folder| folder.canonicalize().ok());
    if !folders.into_iter().any(|folder| path.starts_with(folder)) {
        return Err(not_allowed());
    }
    // A pipe or a device would be waited for.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(not_allowed());
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(unreadable)?;
    file.take(SECRET_BYTES_MAX as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
    // Editors end files with a line end that nobody means.
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    sized(bytes, reference)
}

fn sized(bytes: Vec<u8>, reference: &SecretRef) -> Result<Secret, SecretError> {
    if bytes.is_empty() || bytes.len() > SECRET_BYTES_MAX {
        return Err(SecretError::Size { reference: reference.clone() });
    }
    Ok(Secret::new(bytes))
}

#[cfg(test)]
mod tests;
