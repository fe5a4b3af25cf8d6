//! What can go wrong with definitions.

use abide_store::rows::StoreError;
use abide_store::tables::TableError;
use abide_workflow::Finding;
use abide_workflow::registry::RegistryError;
use semver::Version;

/// Why a definition could not be published, found or made the default.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It is not valid.
    #[error("the definition is refused")]
    Rejected {
        /// Why, with places.
        findings: Vec<Finding>,
    },
    /// The activities it was to be resolved with cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// This version is published with other content, and stays as it is.
    #[error("{id} {version} is published already, with other content: publish it under a new version")]
    OtherContent {
        /// Which definition.
        id: String,
        /// Which version.
        version: Version,
    },
    /// Nothing that fits is published.
    #[error("no version of {id} fits {wanted}")]
    Unknown {
        /// Which definition.
        id: String,
        /// What was asked for.
        wanted: String,
    },
    /// It is retired.
    #[error("{id} {version} is retired")]
    Retired {
        /// Which definition.
        id: String,
        /// Which version.
        version: Version,
    },
    /// It is the default, which cannot be retired.
    #[error("{id} {version} is the default version: make another one the default first")]
    IsDefault {
        /// Which definition.
        id: String,
        /// Which version.
        version: Version,
    },
    /// Others changed the same rows again and again.
    #[error("{id} is being changed by others; try again")]
    Busy {
        /// Which definition.
        id: String,
    },
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}
