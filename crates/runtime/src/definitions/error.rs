//! The errors of publishing, resolving and retiring definitions.

use abide_store::rows::StoreError;
use abide_store::tables::TableError;
use abide_workflow::Finding;
use abide_workflow::registry::RegistryError;
use semver::Version;

/// The reason why a definition could not be published, found, retired or made the default.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The definition is not valid.
    #[error("invalid definition")]
    Rejected {
        /// The problems, each with its place.
        findings: Vec<Finding>,
    },
    /// The activities it was to be resolved against cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// This version is already published with different content, which stays as it is.
    #[error("{id} {version} is already published with different content: publish it under a new version")]
    ContentMismatch { id: String, version: Version },
    /// No published version matches.
    #[error("no version of {id} matches {wanted}")]
    NotFound {
        id: String,
        /// The requested version or range.
        wanted: String,
    },
    #[error("{id} {version} is retired")]
    Retired { id: String, version: Version },
    /// The default version cannot be retired.
    #[error("{id} {version} is the default version: make another one the default first")]
    IsDefault { id: String, version: Version },
    /// Other nodes kept changing the same rows.
    #[error("concurrent change of {id}; try again")]
    Busy { id: String },
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}
