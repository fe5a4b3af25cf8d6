//! What activities there are: those in process, those that the configuration declares, and those that were declared while the server ran.
//!
//! A change is checked against everything else that is declared, stored, and only then in force. What a definition needs of an activity is
//! looked at when it is published; a call uses what is in force when it leaves. Knows no request and no wire.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_dispatch::Activities;
use abide_dispatch::remote::{
    DeclarationError, Directory, DirectoryError, Everywhere, Outbound, RemoteDeclaration,
};
use abide_runtime::config::Targets;
use abide_runtime::declared::{
    DeclareError, Declared, DeclaredActivities, DeclaredVersion, Latest, Standing,
};
use abide_runtime::hands::Store;
use abide_store::rows::PartitionError;
use abide_workflow::Registry;
use abide_workflow::registry::RegistryError;
use tokio::sync::Mutex;

/// The activities of one server.
#[derive(Debug)]
pub struct Catalogue<S> {
    everywhere: Arc<Everywhere>,
    configured: BTreeSet<String>,
    stored: DeclaredActivities<S>,
    /// Changes one after another: each is checked against the ones before.
    changing: Mutex<()>,
}

/// Who says what an activity is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// It is a part of the server.
    Server,
    /// The configuration.
    Configuration,
    /// Whoever declared it while the server ran.
    Interface,
}

/// Why activities are not as somebody wants them.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It cannot be declared: it is a part of the server.
    #[error("{name:?} is an activity of the server itself; choose another name")]
    OfServer {
        /// Which.
        name: String,
    },
    /// It cannot be changed here.
    #[error("{name:?} is declared in the configuration, and is changed there")]
    Configured {
        /// Which.
        name: String,
    },
    /// It is not there.
    #[error("no activity {name:?} is declared")]
    Unknown {
        /// Which.
        name: String,
    },
    /// Others need it.
    #[error("activity {of:?} is compensated by {name:?}, which must stay as long")]
    Needed {
        /// Which.
        name: String,
        /// Whose compensation it is.
        of: String,
    },
    /// The declaration itself.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// It does not go with the others.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The configuration's declarations.
    #[error("configuration: {0}")]
    Configuration(#[from] DirectoryError),
    /// A partition's name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The store.
    #[error(transparent)]
    Store(#[from] DeclareError),
}

impl<S: Store> Catalogue<S> {
    /// Activities in process and those of the configuration. What is stored is not in force before it is [loaded](Self::load).
    pub fn new(
        store: &Arc<S>,
        local: Activities,
        outbound: Outbound,
        configured: &[RemoteDeclaration],
    ) -> Result<Self, CatalogueError> {
        let names: BTreeSet<String> = configured.iter().map(|one| one.activity.name.clone()).collect();
        if let Some(name) = names.iter().find(|name| local.contains(name)) {
            return Err(CatalogueError::OfServer { name: name.clone() });
        }
        let remote = Directory::new(outbound);
        remote.replace(configured.iter().cloned())?;
        let everywhere = Arc::new(Everywhere::new(local, Arc::new(remote)));
        Registry::parse(&everywhere.registry_json())?;
        let stored = DeclaredActivities::new(Arc::clone(store))?;
        Ok(Self { everywhere, configured: names, stored, changing: Mutex::default() })
    }

    /// Puts in force what was declared before. One that cannot be any more, because the configuration is another or nobody can read it, is
    /// told and left out: nobody could repair it if the server did not start.
    pub async fn load(&self) -> Result<(), CatalogueError> {
        let _changing = self.changing.lock().await;
        let standing = self.stored.all().await?;
        for lost in standing.lost {
            tracing::error!(lost, "among the declared activities is something that cannot be read");
        }
        for unreadable in standing.unreadable {
            let (version, error) = (unreadable.version, unreadable.reason);
            tracing::error!(activity = unreadable.name, version, %error, "declared before, and cannot be read");
        }
        for version in standing.in_force {
            let name = version.name.clone();
            if self.source(&name) != Source::Interface {
                tracing::warn!(
                    activity = name,
                    "declared before, and by the configuration or the server now"
                );
                continue;
            }
            let put = |declared: RemoteDeclaration| Ok(self.everywhere.remote().put(declared)?);
            if let Err(error) = read(&version).and_then(put) {
                tracing::error!(activity = name, %error, "declared before, and cannot be called any more");
            }
        }
        // Each that is left out may be what another one needs.
        while let Err(error) = Registry::parse(&self.registry()) {
            let RegistryError::UnknownCompensation { activity, .. } = &error else {
                return Err(error.into());
            };
            if !self.everywhere.remote().remove(activity) {
                return Err(error.into());
            }
            tracing::error!(activity, %error, "declared before, and cannot be called any more");
        }
        Ok(())
    }

    /// Who is called when an activity is.
    pub fn everywhere(&self) -> &Arc<Everywhere> {
        &self.everywhere
    }

    /// Where activities are, for the records of calls.
    pub fn targets(&self) -> Targets {
        let everywhere = Arc::clone(&self.everywhere);
        Targets::new(move |activity| everywhere.whereabouts(activity))
    }

    /// What definitions may name now, as the JSON text that validation reads.
    pub(crate) fn registry(&self) -> String {
        self.everywhere.registry_json()
    }

    /// Who says what this activity is, or would say it.
    pub(crate) fn source(&self, name: &str) -> Source {
        if self.everywhere.local().contains(name) {
            Source::Server
        } else if self.configured.contains(name) {
            Source::Configuration
        } else {
            Source::Interface
        }
    }

    /// Declares an activity: a new version, unless the one in force says the same.
    pub(crate) async fn put(
        &self,
        declaration: RemoteDeclaration,
        now: i64,
    ) -> Result<Declared, CatalogueError> {
        let _changing = self.changing.lock().await;
        let name = declaration.activity.name.clone();
        self.check_open(&name)?;
        self.everywhere.remote().check(&declaration)?;
        Registry::parse(&self.everywhere.registry_json_with(&name, Some(&declaration.activity)))?;
        let text = declaration.to_json().to_string();
        let declared = self.stored.declare(&name, Some(&text), now).await?;
        self.everywhere.remote().put(declaration)?;
        Ok(declared)
    }

    /// Takes a declared activity away. Calls under way end as they began; those to come fail for good.
    pub(crate) async fn remove(&self, name: &str, now: i64) -> Result<DeclaredVersion, CatalogueError> {
        let _changing = self.changing.lock().await;
        self.check_open(name)?;
        let there = self.stored.latest(name).await?;
        // What cannot be read may be there, and whoever wants it gone must be able to say so.
        if there.is_none_or(|latest| latest.is_ok_and(|latest| latest.activity.declaration.is_none())) {
            return Err(CatalogueError::Unknown { name: name.to_owned() });
        }
        match Registry::parse(&self.everywhere.registry_json_with(name, None)) {
            Err(RegistryError::UnknownCompensation { activity, .. }) => {
                return Err(CatalogueError::Needed { name: name.to_owned(), of: activity });
            }
            checked => checked?,
        };
        let declared = self.stored.declare(name, None, now).await?;
        self.everywhere.remote().remove(name);
        let (Declared::New(version) | Declared::Unchanged(version)) = declared;
        Ok(version)
    }

    /// One version that was declared while the server ran.
    pub(crate) async fn version(
        &self,
        name: &str,
        version: u64,
    ) -> Result<Option<DeclaredVersion>, CatalogueError> {
        Ok(self.stored.version(name, version).await?)
    }

    /// The last version that was declared while the server ran.
    pub(crate) async fn latest(&self, name: &str) -> Result<Option<Latest>, CatalogueError> {
        Ok(self.stored.latest(name).await?)
    }

    /// What was declared while the server ran.
    pub(crate) async fn standing(&self) -> Result<Standing, CatalogueError> {
        Ok(self.stored.all().await?)
    }

    /// Why a declaration that was stored is not in force; none if it may be any moment.
    pub(crate) fn why_not(&self, declaration: &RemoteDeclaration) -> Option<String> {
        if let Err(error) = self.everywhere.remote().check(declaration) {
            return Some(error.to_string());
        }
        let name = &declaration.activity.name;
        let checked = Registry::parse(&self.everywhere.registry_json_with(name, Some(&declaration.activity)));
        checked.err().map(|error| error.to_string())
    }

    fn check_open(&self, name: &str) -> Result<(), CatalogueError> {
        let name = || name.to_owned();
        match self.source(&name()) {
            Source::Server => Err(CatalogueError::OfServer { name: name() }),
            Source::Configuration => Err(CatalogueError::Configured { name: name() }),
            Source::Interface => Ok(()),
        }
    }
}

/// What was stored, which was checked before it was.
pub(crate) fn read(version: &DeclaredVersion) -> Result<RemoteDeclaration, CatalogueError> {
    let text = version.activity.declaration.as_deref().unwrap_or_default();
    let value = serde_json::from_str(text).unwrap_or_default();
    Ok(RemoteDeclaration::read(&value)?)
}
