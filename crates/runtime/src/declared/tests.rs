//! Versions, what is read of them, and what cannot be.

use super::*;
use abide_store::memory::{MemoryStore, Personality};
use abide_store::notice::Tick;
use abide_store::rows::{Capabilities, Health, Row, Scan, ScanPage};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    assert_eq!(ready(activities.latest("a")).unwrap().unwrap().unwrap().version, 2);
}

#[test]
fn what_was_taken_away_is_not_listed_and_comes_back_as_a_later_version() {
    let (_, activities) = declared();
    ready(activities.declare("ab", Some("other"), 1)).unwrap();
    ready(activities.declare("a", Some("1"), 1)).unwrap();
    ready(activities.declare("a", None, 2)).unwrap();
    let names = |activities: &DeclaredActivities<MemoryStore>| -> Vec<(String, u64)> {
        ready(activities.all())
            .unwrap()
            .in_force
            .into_iter()
            .map(|found| (found.name, found.version))
            .collect()
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
    assert_eq!(ready(activities.all()).unwrap(), Standing::default());
}

fn store_row(store: &MemoryStore, key: Key, value: &[u8]) {
    let partition = Partition::new("activities").unwrap();
    let outcome = store.commit_now(&partition, &Batch::checked().create(key, value.to_vec()));
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

fn listed(activities: &DeclaredActivities<impl PrivateRows>) -> Vec<(String, u64)> {
    let standing = ready(activities.all()).unwrap();
    standing.in_force.into_iter().map(|found| (found.name, found.version)).collect()
}

#[test]
fn what_cannot_be_read_is_told_and_hides_nothing_else() {
    let (store, activities) = declared();
    for name in ["a", "b", "c"] {
        ready(activities.declare(name, Some("1"), 1)).unwrap();
    }
    store_row(&store, activities::key("b", 2), b"no such format");
    let strange = [activities::key("bb", 1).as_bytes(), b"?"].concat();
    store_row(&store, Key::new(strange), b"");
    assert_eq!(listed(&activities), [("a".to_owned(), 1), ("c".to_owned(), 1)]);
    let standing = ready(activities.all()).unwrap();
    let unreadable: Vec<_> = standing.unreadable.iter().map(|one| (one.name.as_str(), one.version)).collect();
    assert_eq!((unreadable, standing.lost.len()), (vec![("b", 2)], 1), "{:?}", standing.lost);

    assert_eq!(version(&ready(activities.declare("b", Some("1"), 2)).unwrap()), 3, "it is declared anew");
    store_row(&store, activities::key("c", 2), b"");
    assert_eq!(version(&ready(activities.declare("c", None, 2)).unwrap()), 3, "it is taken away");
    assert_eq!(listed(&activities), [("a".to_owned(), 1), ("b".to_owned(), 3)]);
}

#[test]
fn damage_hides_what_is_damaged_and_not_what_is_on_either_side_of_it() {
    let (store, activities) = declared();
    for name in ["a", "b", "c", "d", "e"] {
        ready(activities.declare(name, Some("1"), 1)).unwrap();
    }
    let partition = Partition::new("activities").unwrap();
    store.damage(&partition, activities::key("c", 1), activities::key("c", 1));
    let standing = ready(activities.all()).unwrap();
    assert!(!standing.lost.is_empty());
    let names: Vec<String> = standing.in_force.into_iter().map(|found| found.name).collect();
    assert!(names.contains(&"a".to_owned()) && names.contains(&"e".to_owned()), "{names:?}");
}

/// The reference store, counting the rows that scans brought.
#[derive(Debug)]
struct Counted(MemoryStore, AtomicUsize);

impl PrivateRows for Counted {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.0.read(partition, key).await
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        let page = self.0.scan(partition, scan).await?;
        self.1.fetch_add(page.rows.len(), Ordering::Relaxed);
        Ok(page)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        self.0.commit(partition, batch).await
    }

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.0.changed(partition, seen).await
    }
}

#[test]
fn reading_what_is_in_force_costs_by_activities_and_not_by_versions() {
    let store = Arc::new(Counted(MemoryStore::new(Personality::PLAIN), AtomicUsize::new(0)));
    let activities = DeclaredActivities::new(Arc::clone(&store)).unwrap();
    for number in 0..200 {
        for name in ["a", "aa", "b"] {
            ready(activities.declare(name, Some(&number.to_string()), 1)).unwrap();
        }
    }
    store.1.store(0, Ordering::Relaxed);
    assert_eq!(listed(&activities), ["a", "aa", "b"].map(|name| (name.to_owned(), 200)));
    assert_eq!(store.1.load(Ordering::Relaxed), 3);
}

#[test]
fn what_has_as_many_versions_as_it_may_can_still_be_taken_away() {
    let (store, activities) = declared();
    let full = DeclaredActivity { declaration: Some("1".to_owned()), declared_at: 1 };
    store_row(&store, activities::key("a", VERSIONS_MAX), &encode(&full));
    assert!(matches!(ready(activities.declare("a", Some("2"), 2)), Err(DeclareError::TooManyVersions)));
    assert_eq!(version(&ready(activities.declare("a", None, 2)).unwrap()), VERSIONS_MAX + 1);
    assert_eq!(listed(&activities), []);
    assert!(matches!(ready(activities.declare("a", Some("2"), 3)), Err(DeclareError::TooManyVersions)));
}
