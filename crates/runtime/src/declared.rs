//! Activities that are declared while the server runs: versions that are only ever added, the highest being in force.
//!
//! Rows of one partition that any node may write, each created once. What a declaration says is not known here; it is JSON text, the same
//! for the same declaration.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PartitionError, PrivateRows, StoreError};
use abide_store::tables::activities::{self, DeclaredActivity};
use abide_store::tables::{TableError, decode, encode};

/// The declared activities of one store.
#[derive(Debug)]
pub struct DeclaredActivities<S> {
    store: Arc<S>,
    partition: Partition,
}

/// A version of an activity, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredVersion {
    /// The activity.
    pub name: String,
    /// Which version.
    pub version: u64,
    /// What was declared.
    pub activity: DeclaredActivity,
}

/// An activity whose last version cannot be read. It can be declared anew, or taken away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The activity.
    pub name: String,
    /// Which version.
    pub version: u64,
    /// What is wrong with it.
    pub reason: TableError,
}

/// The last version of an activity, if it can be read.
pub type Latest = Result<DeclaredVersion, Unreadable>;

/// What is declared, as far as it can be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Every activity that is in force, by name.
    pub in_force: Vec<DeclaredVersion>,
    /// Those that nobody can tell of whether they are.
    pub unreadable: Vec<Unreadable>,
    /// Rows that are not those of any activity, as the store and the table tell of them.
    pub lost: Vec<String>,
}

/// What declaring an activity came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Declared {
    /// This version is new.
    New(DeclaredVersion),
    /// This version said so already.
    Unchanged(DeclaredVersion),
}

/// Why an activity could not be read or declared.
#[derive(Debug, thiserror::Error)]
pub enum DeclareError {
    /// Others declared it again and again.
    #[error("the activity is being declared by others; try again")]
    Busy,
    /// There are as many as there may be.
    #[error("there are {max} declared activities already", max = ACTIVITIES_MAX)]
    TooMany,
    /// An activity has as many versions as it may.
    #[error("the activity has {max} versions already", max = VERSIONS_MAX)]
    TooManyVersions,
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Declared activities of one store.
pub const ACTIVITIES_MAX: usize = 1_000;
/// Versions of one activity; one more may take it away.
pub const VERSIONS_MAX: u64 = 10_000;
/// Attempts to write a version that others write at the same time, or whose outcome was unknown.
const ATTEMPTS_MAX: usize = 16;

impl<S: PrivateRows> DeclaredActivities<S> {
    /// The activities in this store.
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        Ok(Self { store, partition: Partition::new("activities")? })
    }

    /// The version of an activity that is in force, or with which it was taken away.
    pub async fn latest(&self, name: &str) -> Result<Option<Latest>, DeclareError> {
        let scan = activities::versions(name).backwards().at_most(1);
        let page = self.store.scan(&self.partition, scan).await?;
        page.rows.first().map(|row| Ok(read(&row.key, &row.value)?)).transpose()
    }

    /// One version of an activity.
    pub async fn version(&self, name: &str, version: u64) -> Result<Option<DeclaredVersion>, DeclareError> {
        let row = self.store.read(&self.partition, &activities::key(name, version)).await?;
        let found = row.map(|row| read(&row.key, &row.value)).transpose()?;
        Ok(found.transpose().map_err(|unreadable| unreadable.reason)?)
    }

    /// What is declared. Costs a read for every activity there ever was, however many versions it has.
    pub async fn all(&self) -> Result<Standing, DeclareError> {
        let mut found = Found::default();
        let mut scan = activities::all();
        // From behind: the first row that is met of a name is its last version.
        loop {
            let page = match self.store.scan(&self.partition, scan.clone().backwards().at_most(1)).await {
                Ok(page) => page,
                Err(damage @ StoreError::Corrupt { .. }) => {
                    found.lost.push(damage.to_string());
                    self.before_damage(&mut found).await?;
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(row) = page.rows.first() else { break };
            scan = match found.take(&row.key, &row.value) {
                Some(name) => activities::before(&name),
                None => scan.backwards().after(row.key.clone()),
            };
        }
        Ok(found.standing())
    }

    /// What can be read from the other end, until that comes to the damage as well.
    async fn before_damage(&self, found: &mut Found) -> Result<(), DeclareError> {
        let mut scan = activities::all();
        loop {
            let page = match self.store.scan(&self.partition, scan.clone().at_most(1)).await {
                Ok(page) => page,
                Err(StoreError::Corrupt { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(row) = page.rows.first() else { return Ok(()) };
            let Ok((name, _)) = activities::read_key(&row.key) else {
                scan = scan.after(row.key.clone());
                continue;
            };
            match self.store.scan(&self.partition, activities::versions(&name).backwards().at_most(1)).await {
                Ok(last) => drop(last.rows.first().and_then(|row| found.take(&row.key, &row.value))),
                Err(StoreError::Corrupt { .. }) => found.lost.push(format!("the last version of {name:?}")),
                Err(error) => return Err(error.into()),
            }
            scan = activities::after(&name);
        }
    }

    /// Declares an activity, or takes it away: a new version, unless the one in force says the same.
    pub async fn declare(
        &self,
        name: &str,
        declaration: Option<&str>,
        now: i64,
    ) -> Result<Declared, DeclareError> {
        for _ in 0..ATTEMPTS_MAX {
            let (before, said) = match self.latest(name).await? {
                Some(Ok(latest)) if latest.activity.declaration.as_deref() == declaration => {
                    return Ok(Declared::Unchanged(latest));
                }
                Some(Ok(latest)) => (latest.version, latest.activity.declaration),
                // Whatever it said, it is said anew.
                Some(Err(unreadable)) => (unreadable.version, None),
                None => (0, None),
            };
            // What is taken away makes room: it is never too much.
            if declaration.is_some() {
                if said.is_none() && self.all().await?.in_force.len() >= ACTIVITIES_MAX {
                    return Err(DeclareError::TooMany);
                }
                if before >= VERSIONS_MAX {
                    return Err(DeclareError::TooManyVersions);
                }
            }
            let version = before.saturating_add(1);
            let activity = DeclaredActivity { declaration: declaration.map(str::to_owned), declared_at: now };
            let batch = Batch::checked().create(activities::key(name, version), encode(&activity));
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => {
                    return Ok(Declared::New(DeclaredVersion { name: name.to_owned(), version, activity }));
                }
                CommitOutcome::Unavailable { reason } => {
                    return Err(StoreError::Unavailable { reason }.into());
                }
                // Looked at again: what is asked for is a state, so doing it twice is doing it once.
                _ => {}
            }
        }
        Err(DeclareError::Busy)
    }
}

/// What a walk over the rows has found, in any order.
#[derive(Default)]
struct Found {
    by_name: BTreeMap<String, Latest>,
    lost: Vec<String>,
}

impl Found {
    /// Takes the last row of a name, and says which; none if the row is nobody's.
    fn take(&mut self, key: &Key, value: &[u8]) -> Option<String> {
        match read(key, value) {
            Ok(latest) => {
                let name = latest.as_ref().map_or_else(|one| &one.name, |one| &one.name).clone();
                self.by_name.insert(name.clone(), latest);
                Some(name)
            }
            Err(error) => {
                self.lost.push(error.to_string());
                None
            }
        }
    }

    fn standing(self) -> Standing {
        let mut standing = Standing { lost: self.lost, ..Standing::default() };
        for latest in self.by_name.into_values() {
            match latest {
                Ok(version) if version.activity.declaration.is_some() => standing.in_force.push(version),
                Ok(_) => {}
                Err(unreadable) => standing.unreadable.push(unreadable),
            }
        }
        standing
    }
}

/// A row; an error if it is nobody's.
fn read(key: &Key, value: &[u8]) -> Result<Latest, TableError> {
    let (name, version) = activities::read_key(key)?;
    Ok(match decode(value) {
        Ok(activity) => Ok(DeclaredVersion { name, version, activity }),
        Err(reason) => Err(Unreadable { name, version, reason }),
    })
}

#[cfg(test)]
mod tests;
