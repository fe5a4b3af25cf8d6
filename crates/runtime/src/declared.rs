//! Activities that are declared while the server runs: versions that are only ever added, the highest being in force.
//!
//! Rows of one partition that any node may write, each created once. What a declaration says is not known here; it is JSON text, the same
//! for the same declaration.

use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Partition, PartitionError, PrivateRows, StoreError};
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
/// Versions of one activity.
pub const VERSIONS_MAX: u64 = 10_000;
/// Attempts to write a version that others write at the same time, or whose outcome was unknown.
const ATTEMPTS_MAX: usize = 16;

impl<S: PrivateRows> DeclaredActivities<S> {
    /// The activities in this store.
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        Ok(Self { store, partition: Partition::new("activities")? })
    }

    /// The version of an activity that is in force, or with which it was taken away.
    pub async fn latest(&self, name: &str) -> Result<Option<DeclaredVersion>, DeclareError> {
        let scan = activities::versions(name).backwards().at_most(1);
        let page = self.store.scan(&self.partition, scan).await?;
        let row = page.rows.first();
        row.map(|row| read(&row.key, &row.value)).transpose()
    }

    /// One version of an activity.
    pub async fn version(&self, name: &str, version: u64) -> Result<Option<DeclaredVersion>, DeclareError> {
        let row = self.store.read(&self.partition, &activities::key(name, version)).await?;
        row.map(|row| read(&row.key, &row.value)).transpose()
    }

    /// Every activity that is in force, by name.
    pub async fn all(&self) -> Result<Vec<DeclaredVersion>, DeclareError> {
        let mut latest: Vec<DeclaredVersion> = Vec::new();
        let mut next = Some(activities::all());
        while let Some(scan) = next {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                let found = read(&row.key, &row.value)?;
                // A name's versions follow each other, the last of them in force.
                latest.pop_if(|before| before.name == found.name);
                latest.push(found);
            }
            next = page.next;
        }
        latest.retain(|version| version.activity.declaration.is_some());
        Ok(latest)
    }

    /// Declares an activity, or takes it away: a new version, unless the one in force says the same.
    pub async fn declare(
        &self,
        name: &str,
        declaration: Option<&str>,
        now: i64,
    ) -> Result<Declared, DeclareError> {
        for _ in 0..ATTEMPTS_MAX {
            let latest = self.latest(name).await?;
            let said = latest.as_ref().and_then(|latest| latest.activity.declaration.as_deref());
            if let Some(latest) = &latest
                && said == declaration
            {
                return Ok(Declared::Unchanged(latest.clone()));
            }
            // Only one that is not in force takes a place.
            if said.is_none() && self.all().await?.len() >= ACTIVITIES_MAX {
                return Err(DeclareError::TooMany);
            }
            let version = latest.map_or(0, |latest| latest.version) + 1;
            if version > VERSIONS_MAX {
                return Err(DeclareError::TooManyVersions);
            }
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

fn read(key: &abide_store::rows::Key, value: &[u8]) -> Result<DeclaredVersion, DeclareError> {
    let (name, version) = activities::read_key(key)?;
    Ok(DeclaredVersion { name, version, activity: decode(value)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_store::memory::{MemoryStore, Personality};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the reference store answers at once"),
        }
    }

    fn declared() -> (Arc<MemoryStore>, DeclaredActivities<MemoryStore>) {
        let store = Arc::new(MemoryStore::new(Personality::PLAIN));
        (Arc::clone(&store), DeclaredActivities::new(store).unwrap())
    }

    fn version(declared: &Declared) -> u64 {
        match declared {
            Declared::New(version) | Declared::Unchanged(version) => version.version,
        }
    }

    #[test]
    fn each_change_is_a_version_and_the_same_again_is_none() {
        let (_, activities) = declared();
        let declare = |text| ready(activities.declare("a", text, 7)).unwrap();
        assert!(matches!(declare(Some("1")), Declared::New(DeclaredVersion { version: 1, .. })));
        assert!(matches!(declare(Some("1")), Declared::Unchanged(DeclaredVersion { version: 1, .. })));
        assert_eq!(version(&declare(Some("2"))), 2);
        let first = ready(activities.version("a", 1)).unwrap().unwrap();
        assert_eq!(first.activity.declaration.as_deref(), Some("1"), "what was in force stays readable");
        assert_eq!(ready(activities.latest("a")).unwrap().unwrap().version, 2);
    }

    #[test]
    fn what_was_taken_away_is_not_listed_and_comes_back_as_a_later_version() {
        let (_, activities) = declared();
        ready(activities.declare("ab", Some("other"), 1)).unwrap();
        ready(activities.declare("a", Some("1"), 1)).unwrap();
        ready(activities.declare("a", None, 2)).unwrap();
        let names = |activities: &DeclaredActivities<MemoryStore>| -> Vec<(String, u64)> {
            ready(activities.all()).unwrap().into_iter().map(|found| (found.name, found.version)).collect()
        };
        assert_eq!(names(&activities), [("ab".to_owned(), 1)]);
        assert_eq!(version(&ready(activities.declare("a", Some("1"), 3)).unwrap()), 3);
        assert_eq!(names(&activities), [("a".to_owned(), 3), ("ab".to_owned(), 1)]);
    }

    #[test]
    fn a_declaration_of_unknown_outcome_is_looked_at_again_and_is_one_version() {
        let (store, activities) = declared();
        for (applied, expected) in [(true, 1), (false, 2)] {
            store.make_next_commit_unknown(applied);
            let text = format!("{applied}");
            assert_eq!(version(&ready(activities.declare("a", Some(&text), 1)).unwrap()), expected);
        }
    }

    #[test]
    fn taking_away_what_never_was_changes_nothing_that_is_listed() {
        let (_, activities) = declared();
        ready(activities.declare("a", None, 1)).unwrap();
        assert_eq!(ready(activities.all()).unwrap(), []);
    }
}
