//! The activities of a server: built-in ones, those declared in the configuration, and those declared through the API.
//!
//! A change is checked against all other declarations, then stored, and only then in force. A definition is checked
//! against the activities when it is published; a call uses the declaration in force when it is sent. Knows no HTTP
//! request and no wire format.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_dispatch::remote::{
    DeclarationError, Outbound, RemoteDeclaration, RemoteRegistry, RemoteRegistryError,
};
use abide_dispatch::{ActivityRouter, LocalActivities};
use abide_runtime::activity_declarations::{
    ActivityDeclarations, DeclarationList, DeclarationVersion, DeclareError, DeclareOutcome,
    LatestDeclaration,
};
use abide_runtime::config::ActivityTargets;
use abide_store::Store;
use abide_store::rows::PartitionError;
use abide_workflow::registry::RegistryError;
use abide_workflow::{Registry, Timestamp};
use tokio::sync::Mutex;

/// The activities of one server.
#[derive(Debug)]
pub struct ActivityCatalogue<S> {
    activity_router: Arc<ActivityRouter>,
    configured: BTreeSet<String>,
    declared: ActivityDeclarations<S>,
    /// Serialises changes, because each is checked against the ones before it.
    change_lock: Mutex<()>,
}

/// Where an activity is declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ActivitySource {
    /// It is built into the server.
    Server,
    Configuration,
    /// Through the API, while the server ran.
    Api,
}

/// Why a declaration was rejected, or could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The name belongs to an activity that is built into the server.
    #[error("activity {name:?} is built into the server; choose another name")]
    BuiltIn { name: String },
    /// The API cannot change an activity of the configuration.
    #[error("activity {name:?} is declared in the configuration; change it there")]
    Configured { name: String },
    #[error("no activity {name:?} is declared")]
    Unknown { name: String },
    #[error("cannot remove {name:?}: {of:?} uses it as its compensation")]
    NeededAsCompensation {
        name: String,
        /// The activity that is compensated by `name`.
        of: String,
    },
    /// The declaration itself is invalid.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// The declaration is inconsistent with the other activities.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The configuration declares an invalid activity.
    #[error("configuration: {0}")]
    Configuration(#[from] RemoteRegistryError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Store(#[from] DeclareError),
}

impl<S: Store> ActivityCatalogue<S> {
    /// The built-in activities and those of the configuration, checked against each other. Stored declarations take
    /// effect only when they are [loaded](Self::load).
    pub fn new(
        store: &Arc<S>,
        local: LocalActivities,
        outbound: Outbound,
        configured: &[RemoteDeclaration],
    ) -> Result<Self, CatalogueError> {
        let names: BTreeSet<String> = configured.iter().map(|one| one.activity.name.clone()).collect();
        if let Some(name) = names.iter().find(|name| local.contains(name)) {
            return Err(CatalogueError::BuiltIn { name: name.clone() });
        }
        let remote = RemoteRegistry::new(outbound);
        remote.replace(configured.iter().cloned())?;
        let activity_router = Arc::new(ActivityRouter::new(local, Arc::new(remote)));
        Registry::parse(&activity_router.registry_json())?;
        let declared = ActivityDeclarations::new(Arc::clone(store))?;
        Ok(Self { activity_router, configured: names, declared, change_lock: Mutex::default() })
    }

    /// Puts the stored declarations in force; the composition root calls it once, before the node starts. A declaration
    /// that is unreadable, or no longer valid under the present configuration, is logged and left out, but stays
    /// stored: it can only be repaired through a server that runs.
    pub async fn load(&self) -> Result<(), CatalogueError> {
        let _changing = self.change_lock.lock().await;
        let stored = self.declared.list().await?;
        for row in stored.unidentified {
            tracing::error!(row, "a row among the stored activity declarations cannot be read");
        }
        for unreadable in stored.unreadable {
            let version = unreadable.version;
            let error = unreadable.reason;
            tracing::error!(activity = unreadable.name, version, %error, "stored declaration cannot be read");
        }
        for version in stored.in_force {
            let name = version.name.clone();
            if self.source(&name) != ActivitySource::Api {
                tracing::warn!(
                    activity = name,
                    "stored declaration ignored: the name is now taken by the configuration or a built-in"
                );
                continue;
            }
            let put = |declared: RemoteDeclaration| Ok(self.activity_router.remote().put(declared)?);
            if let Err(error) = stored_declaration(&version).and_then(put) {
                tracing::error!(activity = name, %error, "stored declaration ignored: it is no longer valid");
            }
        }
        // An activity that was left out may be the compensation of another one.
        while let Err(error) = Registry::parse(&self.registry_json()) {
            let RegistryError::UnknownCompensation { activity, .. } = &error else {
                return Err(error.into());
            };
            if !self.activity_router.remote().remove(activity) {
                return Err(error.into());
            }
            tracing::error!(activity, %error, "stored declaration ignored: it is no longer valid");
        }
        Ok(())
    }

    pub fn activity_router(&self) -> &Arc<ActivityRouter> {
        &self.activity_router
    }

    /// The target label of each activity, for the records of calls. Shards look it up call by call, so later changes of
    /// declarations apply.
    pub fn targets(&self) -> ActivityTargets {
        let router = Arc::clone(&self.activity_router);
        ActivityTargets::new(move |activity| router.target_label(activity))
    }

    /// The activities that definitions may name now, as the JSON text that validation reads.
    pub(crate) fn registry_json(&self) -> String {
        self.activity_router.registry_json()
    }

    /// Where this activity is declared. For an unknown name: where it could be declared.
    pub(crate) fn source(&self, name: &str) -> ActivitySource {
        if self.activity_router.local().contains(name) {
            ActivitySource::Server
        } else if self.configured.contains(name) {
            ActivitySource::Configuration
        } else {
            ActivitySource::Api
        }
    }

    /// Declares an activity: a new version, unless the version in force has the same content. The caller must let it
    /// run to its end: dropped after the commit, it would leave the stored declaration out of force.
    pub(crate) async fn put(
        &self,
        declaration: RemoteDeclaration,
        now: Timestamp,
    ) -> Result<DeclareOutcome, CatalogueError> {
        let _changing = self.change_lock.lock().await;
        let name = declaration.activity.name.clone();
        self.check_declarable(&name)?;
        self.activity_router.remote().check(&declaration)?;
        Registry::parse(&self.activity_router.registry_json_with(&name, Some(&declaration.activity)))?;
        let text = declaration.to_json().to_string();
        let declared = self.declared.declare(&name, Some(&text), now).await?;
        self.activity_router.remote().put(declaration)?;
        Ok(declared)
    }

    /// Removes a declared activity: stores a version without a declaration. Calls in flight finish unchanged; later
    /// calls fail permanently. As with [`Self::put`], the caller must let it run to its end.
    pub(crate) async fn remove(
        &self,
        name: &str,
        now: Timestamp,
    ) -> Result<DeclarationVersion, CatalogueError> {
        let _changing = self.change_lock.lock().await;
        self.check_declarable(name)?;
        let latest = self.declared.latest(name).await?;
        // A declaration that cannot be read may exist, and the operator must be able to remove it.
        if latest.is_none_or(|latest| latest.is_ok_and(|latest| latest.activity.declaration.is_none())) {
            return Err(CatalogueError::Unknown { name: name.to_owned() });
        }
        match Registry::parse(&self.activity_router.registry_json_with(name, None)) {
            Err(RegistryError::UnknownCompensation { activity, .. }) => {
                return Err(CatalogueError::NeededAsCompensation { name: name.to_owned(), of: activity });
            }
            checked => checked?,
        };
        let declared = self.declared.declare(name, None, now).await?;
        self.activity_router.remote().remove(name);
        let (DeclareOutcome::New(version) | DeclareOutcome::Unchanged(version)) = declared;
        Ok(version)
    }

    /// One stored version of an activity declared through the API, whether or not it is in force.
    pub(crate) async fn version(
        &self,
        name: &str,
        version: u64,
    ) -> Result<Option<DeclarationVersion>, CatalogueError> {
        Ok(self.declared.version(name, version).await?)
    }

    /// The latest stored version of an activity declared through the API: a declaration, or the version that removed
    /// it.
    pub(crate) async fn latest(&self, name: &str) -> Result<Option<LatestDeclaration>, CatalogueError> {
        Ok(self.declared.latest(name).await?)
    }

    /// All stored declarations that were not removed, and those that cannot be read. One that [`Self::load`] left out
    /// is among them.
    pub(crate) async fn declared_activities(&self) -> Result<DeclarationList, CatalogueError> {
        Ok(self.declared.list().await?)
    }

    /// Why a stored declaration is not in force; none if nothing prevents it.
    pub(crate) fn unusable_reason(&self, declaration: &RemoteDeclaration) -> Option<String> {
        if let Err(error) = self.activity_router.remote().check(declaration) {
            return Some(error.to_string());
        }
        let name = &declaration.activity.name;
        let checked =
            Registry::parse(&self.activity_router.registry_json_with(name, Some(&declaration.activity)));
        checked.err().map(|error| error.to_string())
    }

    fn check_declarable(&self, name: &str) -> Result<(), CatalogueError> {
        let name = || name.to_owned();
        match self.source(&name()) {
            ActivitySource::Server => Err(CatalogueError::BuiltIn { name: name() }),
            ActivitySource::Configuration => Err(CatalogueError::Configured { name: name() }),
            ActivitySource::Api => Ok(()),
        }
    }
}

/// The declaration of a stored version. It was checked before it was stored.
pub(crate) fn stored_declaration(version: &DeclarationVersion) -> Result<RemoteDeclaration, CatalogueError> {
    let text = version.activity.declaration.as_deref().unwrap_or_default();
    let value = serde_json::from_str(text).unwrap_or_default();
    Ok(RemoteDeclaration::read(&value)?)
}
