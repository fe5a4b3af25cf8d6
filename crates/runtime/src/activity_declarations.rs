//! Stores the activities that are declared while the server runs. Versions are only ever added; the highest is in
//! force.
//!
//! The rows of one partition, which any node may write, are each created once. The meaning of a declaration is not
//! known here: it is JSON text, and equal declarations have equal text. The server's activity catalogue is the only
//! caller: it checks a declaration before it is stored, and keeps those in force in memory for the calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PartitionError, PrivateRows, StoreError};
use abide_store::tables::activity_declarations::{self, ActivityDeclarationRow};
use abide_store::tables::{TableError, decode, encode};
use abide_workflow::Timestamp;

/// The declared activities of one store.
#[derive(Debug)]
pub struct ActivityDeclarations<S> {
    store: Arc<S>,
    partition: Partition,
}

/// One version of an activity's declaration, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclarationVersion {
    pub name: String,
    pub version: u64,
    pub activity: ActivityDeclarationRow,
}

/// An activity whose last version cannot be read. It can be declared again, or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableDeclaration {
    pub name: String,
    pub version: u64,
    pub reason: TableError,
}

/// The last version of an activity, if it can be read.
pub type LatestDeclaration = Result<DeclarationVersion, UnreadableDeclaration>;

/// All declarations, as far as they can be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeclarationList {
    /// The declarations in force, ordered by name.
    pub in_force: Vec<DeclarationVersion>,
    /// Activities whose last version cannot be read: they may be in force or removed.
    pub unreadable: Vec<UnreadableDeclaration>,
    /// Damage that cannot be assigned to an activity, as the store and the table describe it.
    pub unidentified: Vec<String>,
}

/// The outcome of declaring an activity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeclareOutcome {
    /// This version was added.
    New(DeclarationVersion),
    /// This version, which is in force, is the same.
    Unchanged(DeclarationVersion),
}

/// The reason why an activity could not be read or declared.
#[derive(Debug, thiserror::Error)]
pub enum DeclareError {
    /// Other nodes kept declaring it.
    #[error("concurrent change of the activity's declaration; try again")]
    Busy,
    /// The limit of declared activities is reached.
    #[error("limit of {max} declared activities reached", max = ACTIVITIES_MAX)]
    TooMany,
    /// The limit of versions of one activity is reached.
    #[error("limit of {max} versions of the activity reached", max = VERSIONS_MAX)]
    TooManyVersions,
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The most declared activities in one store.
pub const ACTIVITIES_MAX: usize = 1_000;
/// The most versions of one activity; one more may remove it.
pub const VERSIONS_MAX: u64 = 10_000;
/// Tries to write a version that other nodes write at the same time, or whose write had an unknown outcome.
const ATTEMPTS_MAX: usize = 16;

impl<S: PrivateRows> ActivityDeclarations<S> {
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        Ok(Self { store, partition: Partition::new("activities")? })
    }

    /// The last version of an activity: the one in force, or the one that removed it.
    pub async fn latest(&self, name: &str) -> Result<Option<LatestDeclaration>, DeclareError> {
        let scan = activity_declarations::versions_of(name).backwards().limit(1);
        let page = self.store.scan(&self.partition, scan).await?;
        page.rows.first().map(|row| Ok(read_row(&row.key, &row.value)?)).transpose()
    }

    /// One version of an activity, in force or not; the version that removed it has no text. An error if it cannot be
    /// read.
    pub async fn version(
        &self,
        name: &str,
        version: u64,
    ) -> Result<Option<DeclarationVersion>, DeclareError> {
        let row = self.store.read(&self.partition, &activity_declarations::key(name, version)).await?;
        let declaration = row.map(|row| read_row(&row.key, &row.value)).transpose()?;
        Ok(declaration.transpose().map_err(|unreadable| unreadable.reason)?)
    }

    /// All declarations, for the start of the server, for the API and for the limit of activities. Costs one read for
    /// every activity ever declared, however many versions it has.
    pub async fn list(&self) -> Result<DeclarationList, DeclareError> {
        let mut declarations = DeclarationScan::default();
        let mut scan = activity_declarations::all();
        // Scanned backwards: the first row of a name is its last version.
        loop {
            let page = match self.store.scan(&self.partition, scan.clone().backwards().limit(1)).await {
                Ok(page) => page,
                Err(damage @ StoreError::Corrupt { .. }) => {
                    declarations.unidentified.push(damage.to_string());
                    self.scan_up_to_damage(&mut declarations).await?;
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(row) = page.rows.first() else { break };
            scan = match declarations.add_row(&row.key, &row.value) {
                Some(name) => activity_declarations::names_before(&name),
                None => scan.backwards().resume_after(row.key.clone()),
            };
        }
        Ok(declarations.into_list())
    }

    /// Adds the activities before the damage that stopped [`Self::list`], whose scan comes from the end. Reads from the
    /// start until the scan meets damage from that side, too; what lies between two damaged places is not found.
    async fn scan_up_to_damage(&self, declarations: &mut DeclarationScan) -> Result<(), DeclareError> {
        let mut scan = activity_declarations::all();
        loop {
            let page = match self.store.scan(&self.partition, scan.clone().limit(1)).await {
                Ok(page) => page,
                Err(StoreError::Corrupt { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(row) = page.rows.first() else { return Ok(()) };
            let Ok((name, _)) = activity_declarations::read_key(&row.key) else {
                scan = scan.resume_after(row.key.clone());
                continue;
            };
            match self
                .store
                .scan(&self.partition, activity_declarations::versions_of(&name).backwards().limit(1))
                .await
            {
                Ok(last) => {
                    drop(last.rows.first().and_then(|row| declarations.add_row(&row.key, &row.value)))
                }
                Err(StoreError::Corrupt { .. }) => declarations
                    .unidentified
                    .push(format!("the last version of activity {name:?} is damaged")),
                Err(error) => return Err(error.into()),
            }
            scan = activity_declarations::names_after(&name);
        }
    }

    /// Declares an activity, or removes it if there is no text: adds a version, unless the last one is the same. The
    /// caller has checked the declaration and puts it in force afterwards.
    pub async fn declare(
        &self,
        name: &str,
        declaration: Option<&str>,
        now: Timestamp,
    ) -> Result<DeclareOutcome, DeclareError> {
        for _ in 0..ATTEMPTS_MAX {
            let (last_version, last_declaration) = match self.latest(name).await? {
                Some(Ok(latest)) if latest.activity.declaration.as_deref() == declaration => {
                    return Ok(DeclareOutcome::Unchanged(latest));
                }
                Some(Ok(latest)) => (latest.version, latest.activity.declaration),
                // Its text cannot be read, so a new version is added in any case.
                Some(Err(unreadable)) => (unreadable.version, None),
                None => (0, None),
            };
            // Removing makes room, so the limits do not apply to it.
            if declaration.is_some() {
                if last_declaration.is_none() && self.list().await?.in_force.len() >= ACTIVITIES_MAX {
                    return Err(DeclareError::TooMany);
                }
                if last_version >= VERSIONS_MAX {
                    return Err(DeclareError::TooManyVersions);
                }
            }
            let version = last_version.saturating_add(1);
            let activity =
                ActivityDeclarationRow { declaration: declaration.map(str::to_owned), declared_at: now };
            let batch = Batch::checked().create(activity_declarations::key(name, version), encode(&activity));
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => {
                    return Ok(DeclareOutcome::New(DeclarationVersion {
                        name: name.to_owned(),
                        version,
                        activity,
                    }));
                }
                CommitOutcome::Unavailable { reason } => {
                    return Err(StoreError::Unavailable { reason }.into());
                }
                // Read and try again: the request describes a state, so applying it twice is the same as once.
                _ => {}
            }
        }
        Err(DeclareError::Busy)
    }
}

/// The rows a scan has read so far, in any order.
#[derive(Default)]
struct DeclarationScan {
    by_name: BTreeMap<String, LatestDeclaration>,
    unidentified: Vec<String>,
}

impl DeclarationScan {
    /// Adds the last row of a name and returns the name; none if the row belongs to no activity.
    fn add_row(&mut self, key: &Key, value: &[u8]) -> Option<String> {
        match read_row(key, value) {
            Ok(latest) => {
                let name = latest.as_ref().map_or_else(|one| &one.name, |one| &one.name).clone();
                self.by_name.insert(name.clone(), latest);
                Some(name)
            }
            Err(error) => {
                self.unidentified.push(error.to_string());
                None
            }
        }
    }

    fn into_list(self) -> DeclarationList {
        let mut list = DeclarationList { unidentified: self.unidentified, ..DeclarationList::default() };
        for latest in self.by_name.into_values() {
            match latest {
                Ok(version) if version.activity.declaration.is_some() => list.in_force.push(version),
                Ok(_) => {}
                Err(unreadable) => list.unreadable.push(unreadable),
            }
        }
        list
    }
}

/// Decodes a row; an error if it belongs to no activity.
fn read_row(key: &Key, value: &[u8]) -> Result<LatestDeclaration, TableError> {
    let (name, version) = activity_declarations::read_key(key)?;
    Ok(match decode(value) {
        Ok(activity) => Ok(DeclarationVersion { name, version, activity }),
        Err(reason) => Err(UnreadableDeclaration { name, version, reason }),
    })
}

#[cfg(test)]
mod tests;
