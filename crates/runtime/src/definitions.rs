//! Stores and compiles published definitions: immutable per version, one version of each the default, compiled once.
//!
//! Every change is a compare-and-set on the rows of one partition that any node may write. To check a row that a change
//! does not need to write, the row is written unchanged: stores check only the rows they write. Runs are not known
//! here: the caller that retires a version must check elsewhere whether runs still use it.

mod error;
mod retirement;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::rows::{
    Batch, CommitOutcome, Key, Partition, PartitionError, PrivateRows, Scan, StoreError,
};
use abide_store::tables::default_versions::{self, DefaultVersionRow};
use abide_store::tables::definitions::{self, DefinitionRow, DefinitionVersion};
use abide_store::tables::{TableError, TableRow, decode, encode};
use abide_workflow::{ParsedDefinition, Plan, Registry, Timestamp};
use semver::{Version, VersionReq};

pub use error::DefinitionError;
pub use retirement::RetireOutcome;

/// The definitions of one store.
#[derive(Debug)]
pub struct Definitions<S> {
    store: Arc<S>,
    partition: Partition,
    plan_cache: Mutex<HashMap<(String, Version), Arc<Plan>>>,
    /// Plans of default versions. Used only if no other process can change the defaults.
    default_plan_cache: Mutex<HashMap<String, Arc<Plan>>>,
    cache_generation: AtomicU64,
}

/// The outcome of publishing a definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishOutcome {
    /// The version was published.
    New,
    /// The version was already published, with the same content.
    Identical,
}

/// Tries to change rows that other nodes change at the same time, or whose change had an unknown outcome.
const ATTEMPTS_MAX: usize = 16;
/// The most plans a cache holds. The cache of all versions is cleared when it is full.
const PLAN_CACHE_MAX: usize = 1_000;
/// Stored as the activities of a definition that was published without a registry.
const NO_REGISTRY: &str = "";

impl<S: PrivateRows> Definitions<S> {
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        let partition = Partition::new("definitions")?;
        Ok(Self {
            store,
            partition,
            plan_cache: Mutex::default(),
            default_plan_cache: Mutex::default(),
            cache_generation: AtomicU64::new(0),
        })
    }

    /// Publishes a definition, resolved against these activities, which are stored with it. The first version of an id
    /// becomes its default. A published version is left as it is.
    pub async fn publish(
        &self,
        text: &str,
        registry: Option<&str>,
        now: Timestamp,
    ) -> Result<(Arc<Plan>, PublishOutcome), DefinitionError> {
        let plan = Arc::new(compile(text, registry)?);
        let id = plan.id().to_owned();
        let version = plan.version().clone();
        let row = DefinitionRow {
            content_digest: plan.hash().0,
            json: text.as_bytes().to_vec(),
            activities: registry.unwrap_or(NO_REGISTRY).as_bytes().to_vec(),
            published_at: now,
            retired_at: None,
        };
        let key = definition_key(&id, &version);
        let mut may_be_written = false;
        for _ in 0..ATTEMPTS_MAX {
            if let Some((stored, _)) = self.read::<DefinitionRow>(&key).await? {
                if stored.content_digest != row.content_digest {
                    return Err(DefinitionError::ContentMismatch { id, version });
                }
                // After an unknown outcome the stored row may be ours.
                let is_ours = may_be_written && stored == row;
                return Ok((plan, if is_ours { PublishOutcome::New } else { PublishOutcome::Identical }));
            }
            let mut batch = Batch::checked().create(key.clone(), encode(&row));
            let default = default_versions::key(&id);
            if self.read::<DefaultVersionRow>(&default).await?.is_none() {
                let first = DefaultVersionRow { version: version.to_string(), changed_at: now };
                batch = batch.create(default, encode(&first));
            }
            let outcome = self.store.commit(&self.partition, batch).await;
            self.invalidate_default(&id);
            match outcome {
                CommitOutcome::Committed(_) => return Ok((plan, PublishOutcome::New)),
                outcome => may_be_written |= is_outcome_unknown(outcome)?,
            }
        }
        Err(DefinitionError::Busy { id })
    }

    /// Makes a published version the default: new runs that ask for no version use it. Live runs keep theirs.
    pub async fn set_default(
        &self,
        id: &str,
        version: &Version,
        now: Timestamp,
    ) -> Result<(), DefinitionError> {
        let (key, default) = (definition_key(id, version), default_versions::key(id));
        for _ in 0..ATTEMPTS_MAX {
            let Some((row, published)) = self.read::<DefinitionRow>(&key).await? else {
                return Err(DefinitionError::NotFound { id: id.to_owned(), wanted: version.to_string() });
            };
            if row.retired_at.is_some() {
                return Err(DefinitionError::Retired { id: id.to_owned(), version: version.clone() });
            }
            let changed = DefaultVersionRow { version: version.to_string(), changed_at: now };
            // The definition is written unchanged: it must not be retired in the meantime.
            let batch = Batch::checked().replace(key.clone(), published, encode(&row));
            let batch = match self.read::<DefaultVersionRow>(&default).await? {
                Some((stored, _)) if stored.version == changed.version => return Ok(()),
                Some((_, before)) => batch.replace(default.clone(), before, encode(&changed)),
                None => batch.create(default.clone(), encode(&changed)),
            };
            let outcome = self.store.commit(&self.partition, batch).await;
            self.invalidate_default(id);
            match outcome {
                CommitOutcome::Committed(_) => return Ok(()),
                outcome => drop(is_outcome_unknown(outcome)?),
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// The plan for a new run: of the default version, or of the highest version in the range that is not retired. The
    /// server calls it for the starts of clients; the driver of a shard, for children and for runs that events start.
    pub async fn resolve(&self, id: &str, range: Option<&VersionReq>) -> Result<Arc<Plan>, DefinitionError> {
        if range.is_some() || self.store.capabilities().shared {
            return self.resolve_uncached(id, range).await;
        }
        if let Some(plan) = self.default_plan_cache.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            return Ok(Arc::clone(plan));
        }
        let generation = self.cache_generation.load(Ordering::SeqCst);
        let plan = self.resolve_uncached(id, None).await?;
        let mut defaults = self.default_plan_cache.lock().unwrap_or_else(PoisonError::into_inner);
        // Not cached if a default was changed during the read.
        if self.cache_generation.load(Ordering::SeqCst) == generation && defaults.len() < PLAN_CACHE_MAX {
            defaults.insert(id.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }

    /// Forgets the cached default after a commit that may have changed it, whatever its outcome. The generation keeps a
    /// [`Self::resolve`] that began before from caching what it has read.
    fn invalidate_default(&self, id: &str) {
        let mut defaults = self.default_plan_cache.lock().unwrap_or_else(PoisonError::into_inner);
        self.cache_generation.fetch_add(1, Ordering::SeqCst);
        defaults.remove(id);
    }

    async fn resolve_uncached(
        &self,
        id: &str,
        range: Option<&VersionReq>,
    ) -> Result<Arc<Plan>, DefinitionError> {
        let wanted = || range.map_or_else(|| "the default version".to_owned(), ToString::to_string);
        let not_found = || DefinitionError::NotFound { id: id.to_owned(), wanted: wanted() };
        let version = match range {
            None => {
                let default = self.read::<DefaultVersionRow>(&default_versions::key(id)).await?;
                default.and_then(|(default, _)| Version::parse(&default.version).ok())
            }
            Some(range) => {
                let is_usable = |(version, row): &(Version, DefinitionRow)| {
                    range.matches(version) && row.retired_at.is_none()
                };
                self.versions(id).await?.into_iter().filter(is_usable).map(|(version, _)| version).max()
            }
        };
        self.load_plan(id, &version.ok_or_else(not_found)?).await
    }

    /// The plan of a published version, compiled from the stored definition and the activities stored with it, and then
    /// cached. Runs are loaded with it, so retired versions have one too. The digest covers the definition, not the
    /// activities.
    pub async fn load_plan(&self, id: &str, version: &Version) -> Result<Arc<Plan>, DefinitionError> {
        let cache_key = (id.to_owned(), version.clone());
        if let Some(plan) = self.plan_cache.lock().unwrap_or_else(PoisonError::into_inner).get(&cache_key) {
            return Ok(Arc::clone(plan));
        }
        let row = self.row(id, version).await?;
        let damaged = |reason: &str| TableError::InvalidValue {
            table: DefinitionRow::TABLE,
            reason: reason.to_owned(),
        };
        let text = |bytes| String::from_utf8(bytes).map_err(|_| damaged("not UTF-8"));
        let plan = Arc::new(compile(&text(row.json)?, Some(&text(row.activities)?))?);
        if plan.hash().0 != row.content_digest {
            return Err(damaged("the stored definition does not match its digest").into());
        }
        let mut cache = self.plan_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= PLAN_CACHE_MAX {
            cache.clear();
        }
        cache.insert(cache_key, Arc::clone(&plan));
        Ok(plan)
    }

    /// The stored row of a published version.
    pub async fn row(&self, id: &str, version: &Version) -> Result<DefinitionRow, DefinitionError> {
        let not_found = || DefinitionError::NotFound { id: id.to_owned(), wanted: version.to_string() };
        let row = self.read::<DefinitionRow>(&definition_key(id, version)).await?;
        row.map(|(row, _)| row).ok_or_else(not_found)
    }

    /// Ids of definitions in order, starting with `from`, at most `ids_max`.
    pub async fn ids(&self, from: &str, ids_max: usize) -> Result<Vec<String>, DefinitionError> {
        let mut scan = default_versions::all().limit(ids_max);
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

    /// All published versions of a definition, retired ones included, with their stored rows.
    pub async fn versions(&self, id: &str) -> Result<Vec<(Version, DefinitionRow)>, DefinitionError> {
        let mut versions = Vec::new();
        let mut next: Option<Scan> = Some(definitions::versions_of(id));
        while let Some(scan) = next {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                let (_, version) = definitions::read_key(&row.key)?;
                versions.push((to_semver(&version), decode(&row.value)?));
            }
            next = page.next;
        }
        Ok(versions)
    }

    async fn read<T: TableRow>(
        &self,
        key: &Key,
    ) -> Result<Option<(T, abide_store::rows::RowVersion)>, DefinitionError> {
        let row = self.store.read(&self.partition, key).await?;
        Ok(row.map(|row| decode(&row.value).map(|value| (value, row.version))).transpose()?)
    }
}

/// Decides how to go on after a commit that did not succeed. An error ends the attempts. Otherwise the rows are read
/// again: true if the change may have been applied, false after a conflict.
fn is_outcome_unknown(outcome: CommitOutcome) -> Result<bool, StoreError> {
    match outcome {
        CommitOutcome::Unknown { .. } => Ok(true),
        CommitOutcome::Committed(_) | CommitOutcome::Conflict(_) | CommitOutcome::Fenced => Ok(false),
        CommitOutcome::Unavailable { reason } => Err(StoreError::Unavailable { reason }),
        CommitOutcome::InvalidBatch(error) => Err(StoreError::Unavailable { reason: error.to_string() }),
    }
}

/// Compiles the text of a definition, new or stored; rejects it with its findings if it is not valid. An empty registry
/// is none: this is how it is stored.
fn compile(text: &str, registry: Option<&str>) -> Result<Plan, DefinitionError> {
    let registry = registry.filter(|registry| *registry != NO_REGISTRY).map(Registry::parse).transpose()?;
    match ParsedDefinition::parse(text).validate(registry.as_ref()) {
        Ok(validated) => Ok(validated.compile()),
        Err(rejected) => Err(DefinitionError::Rejected { findings: rejected.findings }),
    }
}

fn definition_key(id: &str, version: &Version) -> Key {
    let prerelease = (!version.pre.is_empty()).then(|| version.pre.to_string());
    let Version { major, minor, patch, .. } = *version;
    definitions::key(id, &DefinitionVersion { major, minor, patch, prerelease })
}

fn to_semver(stored: &DefinitionVersion) -> Version {
    let mut version = Version::new(stored.major, stored.minor, stored.patch);
    version.pre =
        stored.prerelease.as_deref().and_then(|pre| semver::Prerelease::new(pre).ok()).unwrap_or_default();
    version
}
