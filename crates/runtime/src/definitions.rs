//! Published definitions: immutable per version, one of them the default, compiled once.
//!
//! Everything is compare-and-set on the rows of one partition that any node may write. A check on a row that a change does not need
//! to write is made by writing it unchanged: stores check only what they write. Knows nothing of runs; who retires a version asks
//! elsewhere whether it is still in use.

mod error;
mod retirement;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::rows::{
    Batch, CommitOutcome, Key, Partition, PartitionError, PrivateRows, Scan, StoreError,
};
use abide_store::tables::default_versions::{self, DefaultVersion};
use abide_store::tables::definitions::{self, Definition, DefinitionVersion};
use abide_store::tables::{Stored, TableError, decode, encode};
use abide_workflow::{Authored, Plan, Registry, Timestamp};
use semver::{Version, VersionReq};

pub use error::DefinitionError;
pub use retirement::Retirement;

/// The definitions of one store.
#[derive(Debug)]
pub struct Definitions<S> {
    store: Arc<S>,
    partition: Partition,
    compiled: Mutex<HashMap<(String, Version), Arc<Plan>>>,
    /// Plans of default versions, where nobody else can change which those are.
    defaults: Mutex<HashMap<String, Arc<Plan>>>,
    changes: AtomicU64,
}

/// What became of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publication {
    /// It is there now.
    New,
    /// It was there already, with the same content.
    Identical,
}

/// Attempts to change rows that others change at the same time, or whose outcome was unknown.
const ATTEMPTS_MAX: usize = 16;
/// Compiled plans kept; all are dropped when there would be more.
const COMPILED_MAX: usize = 1_000;
/// The activities of a definition that was published without a registry.
const NO_REGISTRY: &str = "";

impl<S: PrivateRows> Definitions<S> {
    /// The definitions in this store.
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        let partition = Partition::new("definitions")?;
        Ok(Self {
            store,
            partition,
            compiled: Mutex::default(),
            defaults: Mutex::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// Publishes a definition, resolved with these activities; the first version of an id becomes its default.
    pub async fn publish(
        &self,
        text: &str,
        registry: Option<&str>,
        now: Timestamp,
    ) -> Result<(Arc<Plan>, Publication), DefinitionError> {
        let plan = Arc::new(compile(text, registry.unwrap_or(NO_REGISTRY))?);
        let (id, version) = (plan.id().to_owned(), plan.version().clone());
        let row = Definition {
            hash: plan.hash().0,
            json: text.as_bytes().to_vec(),
            activities: registry.unwrap_or(NO_REGISTRY).as_bytes().to_vec(),
            published_at: now.0,
            retired_at: None,
        };
        let key = definition_key(&id, &version);
        let mut asked = false;
        for _ in 0..ATTEMPTS_MAX {
            if let Some((there, _)) = self.read::<Definition>(&key).await? {
                if there.hash != row.hash {
                    return Err(DefinitionError::OtherContent { id, version });
                }
                // After an unknown outcome it may be ours.
                let ours = asked && there == row;
                return Ok((plan, if ours { Publication::New } else { Publication::Identical }));
            }
            let mut batch = Batch::checked().create(key.clone(), encode(&row));
            let default = default_versions::key(&id);
            if self.read::<DefaultVersion>(&default).await?.is_none() {
                let first = DefaultVersion { version: version.to_string(), changed_at: now.0 };
                batch = batch.create(default, encode(&first));
            }
            let outcome = self.store.commit(&self.partition, batch).await;
            self.forget_default(&id);
            match outcome {
                CommitOutcome::Committed(_) => return Ok((plan, Publication::New)),
                outcome => asked |= again(outcome)?,
            }
        }
        Err(DefinitionError::Busy { id })
    }

    /// Makes a published version the default.
    pub async fn set_default(
        &self,
        id: &str,
        version: &Version,
        now: Timestamp,
    ) -> Result<(), DefinitionError> {
        let (key, default) = (definition_key(id, version), default_versions::key(id));
        for _ in 0..ATTEMPTS_MAX {
            let Some((row, published)) = self.read::<Definition>(&key).await? else {
                return Err(DefinitionError::Unknown { id: id.to_owned(), wanted: version.to_string() });
            };
            if row.retired_at.is_some() {
                return Err(DefinitionError::Retired { id: id.to_owned(), version: version.clone() });
            }
            let changed = DefaultVersion { version: version.to_string(), changed_at: now.0 };
            // The definition is written unchanged: it must not be retired meanwhile.
            let batch = Batch::checked().replace(key.clone(), published, encode(&row));
            let batch = match self.read::<DefaultVersion>(&default).await? {
                Some((there, _)) if there.version == changed.version => return Ok(()),
                Some((_, before)) => batch.replace(default.clone(), before, encode(&changed)),
                None => batch.create(default.clone(), encode(&changed)),
            };
            let outcome = self.store.commit(&self.partition, batch).await;
            self.forget_default(id);
            match outcome {
                CommitOutcome::Committed(_) => return Ok(()),
                outcome => drop(again(outcome)?),
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// The plan a new run starts with: of the default version, or of the highest in a range that is not retired.
    pub async fn pick(&self, id: &str, range: Option<&VersionReq>) -> Result<Arc<Plan>, DefinitionError> {
        if range.is_some() || self.store.capabilities().shared {
            return self.look_for(id, range).await;
        }
        if let Some(plan) = self.defaults.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            return Ok(Arc::clone(plan));
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let plan = self.look_for(id, None).await?;
        let mut defaults = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        // Not if it was changed while it was being read.
        if self.changes.load(Ordering::SeqCst) == changes && defaults.len() < COMPILED_MAX {
            defaults.insert(id.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }

    fn forget_default(&self, id: &str) {
        let mut defaults = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, Ordering::SeqCst);
        defaults.remove(id);
    }

    async fn look_for(&self, id: &str, range: Option<&VersionReq>) -> Result<Arc<Plan>, DefinitionError> {
        let wanted = || range.map_or_else(|| "its default".to_owned(), ToString::to_string);
        let unknown = || DefinitionError::Unknown { id: id.to_owned(), wanted: wanted() };
        let version = match range {
            None => {
                let default = self.read::<DefaultVersion>(&default_versions::key(id)).await?;
                default.and_then(|(default, _)| Version::parse(&default.version).ok())
            }
            Some(range) => {
                let fits = |(version, row): &(Version, Definition)| {
                    range.matches(version) && row.retired_at.is_none()
                };
                self.versions(id).await?.into_iter().filter(fits).map(|(version, _)| version).max()
            }
        };
        self.plan(id, &version.ok_or_else(unknown)?).await
    }

    /// The plan of a published version, compiled as it was published.
    pub async fn plan(&self, id: &str, version: &Version) -> Result<Arc<Plan>, DefinitionError> {
        let name = (id.to_owned(), version.clone());
        if let Some(plan) = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Arc::clone(plan));
        }
        let row = self.stored(id, version).await?;
        let damaged =
            |reason: &str| TableError::Value { table: Definition::TABLE, reason: reason.to_owned() };
        let text = |bytes| String::from_utf8(bytes).map_err(|_| damaged("it is not text"));
        let plan = Arc::new(compile(&text(row.json)?, &text(row.activities)?)?);
        if plan.hash().0 != row.hash {
            return Err(damaged("it compiles to another content than was published").into());
        }
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(name, Arc::clone(&plan));
        Ok(plan)
    }

    /// A published version as it is stored.
    pub async fn stored(&self, id: &str, version: &Version) -> Result<Definition, DefinitionError> {
        let unknown = || DefinitionError::Unknown { id: id.to_owned(), wanted: version.to_string() };
        let row = self.read::<Definition>(&definition_key(id, version)).await?;
        row.map(|(row, _)| row).ok_or_else(unknown)
    }

    /// Ids of definitions in their order, from this one on, at most so many.
    pub async fn ids(&self, from: &str, ids_max: usize) -> Result<Vec<String>, DefinitionError> {
        let mut scan = default_versions::all().at_most(ids_max);
        scan.from = Bound::Included(default_versions::key(from));
        let mut ids = Vec::new();
        let mut next = Some(scan);
        while let Some(scan) = next.filter(|_| ids.len() < ids_max) {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                ids.push(default_versions::read_key(&row.key)?);
            }
            next = page.next;
        }
        ids.truncate(ids_max);
        Ok(ids)
    }

    /// Every published version of a definition, as stored.
    pub async fn versions(&self, id: &str) -> Result<Vec<(Version, Definition)>, DefinitionError> {
        let mut found = Vec::new();
        let mut next: Option<Scan> = Some(definitions::versions_of(id));
        while let Some(scan) = next {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                let (_, version) = definitions::read_key(&row.key)?;
                found.push((semantic(&version), decode(&row.value)?));
            }
            next = page.next;
        }
        Ok(found)
    }

    async fn read<T: Stored>(
        &self,
        key: &Key,
    ) -> Result<Option<(T, abide_store::rows::Version)>, DefinitionError> {
        let row = self.store.read(&self.partition, key).await?;
        Ok(row.map(|row| decode(&row.value).map(|value| (value, row.version))).transpose()?)
    }
}

/// Whether to look again: after a conflict, or (true) after an outcome that only looking again can tell.
fn again(outcome: CommitOutcome) -> Result<bool, StoreError> {
    match outcome {
        CommitOutcome::Unknown { .. } => Ok(true),
        CommitOutcome::Committed(_) | CommitOutcome::Conflict(_) | CommitOutcome::Fenced => Ok(false),
        CommitOutcome::Unavailable { reason } => Err(StoreError::Unavailable { reason }),
        CommitOutcome::Refused(error) => Err(StoreError::Unavailable { reason: error.to_string() }),
    }
}

fn compile(text: &str, registry: &str) -> Result<Plan, DefinitionError> {
    let registry = if registry == NO_REGISTRY { None } else { Some(Registry::parse(registry)?) };
    match Authored::parse(text).validate(registry.as_ref()) {
        Ok(validated) => Ok(validated.compile()),
        Err(rejected) => Err(DefinitionError::Rejected { findings: rejected.findings }),
    }
}

fn definition_key(id: &str, version: &Version) -> Key {
    let prerelease = (!version.pre.is_empty()).then(|| version.pre.to_string());
    let Version { major, minor, patch, .. } = *version;
    definitions::key(id, &DefinitionVersion { major, minor, patch, prerelease })
}

fn semantic(stored: &DefinitionVersion) -> Version {
    let mut version = Version::new(stored.major, stored.minor, stored.patch);
    version.pre =
        stored.prerelease.as_deref().and_then(|pre| semver::Prerelease::new(pre).ok()).unwrap_or_default();
    version
}
