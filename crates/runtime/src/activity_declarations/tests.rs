//! Versions of declared activities: how they are added, listed and removed, and what damage hides.

use super::*;
use abide_store::change_notify::ChangeTick;
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::rows::{Capabilities, Row, Scan, ScanPage, StoreHealth};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the reference store is never pending"),
    }
}

fn declared() -> (Arc<MemoryStore>, ActivityDeclarations<MemoryStore>) {
    let store = Arc::new(MemoryStore::new(BackendProfile::PLAIN));
    (Arc::clone(&store), ActivityDeclarations::new(store).unwrap())
}

fn version(declared: &DeclareOutcome) -> u64 {
    match declared {
        DeclareOutcome::New(version) | DeclareOutcome::Unchanged(version) => version.version,
    }
}

#[test]
fn each_change_adds_a_version_and_an_equal_declaration_adds_none() {
    let (_, activities) = declared();
    let declare = |text| ready(activities.declare("a", text, Timestamp(7))).unwrap();
    assert!(matches!(declare(Some("1")), DeclareOutcome::New(DeclarationVersion { version: 1, .. })));
    assert!(matches!(declare(Some("1")), DeclareOutcome::Unchanged(DeclarationVersion { version: 1, .. })));
    assert_eq!(version(&declare(Some("2"))), 2);
    let first = ready(activities.version("a", 1)).unwrap().unwrap();
    assert_eq!(first.activity.declaration.as_deref(), Some("1"), "earlier versions stay readable");
    assert_eq!(ready(activities.latest("a")).unwrap().unwrap().unwrap().version, 2);
}

#[test]
fn a_removed_activity_is_not_listed_and_can_be_declared_again_as_a_later_version() {
    let (_, activities) = declared();
    ready(activities.declare("ab", Some("other"), Timestamp(1))).unwrap();
    ready(activities.declare("a", Some("1"), Timestamp(1))).unwrap();
    ready(activities.declare("a", None, Timestamp(2))).unwrap();
    let names = |activities: &ActivityDeclarations<MemoryStore>| -> Vec<(String, u64)> {
        ready(activities.list())
            .unwrap()
            .in_force
            .into_iter()
            .map(|declaration| (declaration.name, declaration.version))
            .collect()
    };
    assert_eq!(names(&activities), [("ab".to_owned(), 1)]);
    assert_eq!(version(&ready(activities.declare("a", Some("1"), Timestamp(3))).unwrap()), 3);
    assert_eq!(names(&activities), [("a".to_owned(), 3), ("ab".to_owned(), 1)]);
}

#[test]
fn a_declaration_of_unknown_outcome_is_read_again_and_adds_one_version() {
    let (store, activities) = declared();
    for (applied, expected) in [(true, 1), (false, 2)] {
        store.make_next_commit_unknown(applied);
        let text = format!("{applied}");
        assert_eq!(version(&ready(activities.declare("a", Some(&text), Timestamp(1))).unwrap()), expected);
    }
}

#[test]
fn removing_an_undeclared_activity_changes_nothing_in_the_list() {
    let (_, activities) = declared();
    ready(activities.declare("a", None, Timestamp(1))).unwrap();
    assert_eq!(ready(activities.list()).unwrap(), DeclarationList::default());
}

fn store_row(store: &MemoryStore, key: Key, value: &[u8]) {
    let partition = Partition::new("activities").unwrap();
    let outcome = store.commit_now(&partition, &Batch::checked().create(key, value.to_vec()));
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

fn listed(activities: &ActivityDeclarations<impl PrivateRows>) -> Vec<(String, u64)> {
    let list = ready(activities.list()).unwrap();
    list.in_force.into_iter().map(|declaration| (declaration.name, declaration.version)).collect()
}

#[test]
fn an_unreadable_declaration_is_reported_and_hides_nothing_else() {
    let (store, activities) = declared();
    for name in ["a", "b", "c"] {
        ready(activities.declare(name, Some("1"), Timestamp(1))).unwrap();
    }
    store_row(&store, activity_declarations::key("b", 2), b"no such format");
    let strange = [activity_declarations::key("bb", 1).as_bytes(), b"?"].concat();
    store_row(&store, Key::new(strange), b"");
    assert_eq!(listed(&activities), [("a".to_owned(), 1), ("c".to_owned(), 1)]);
    let list = ready(activities.list()).unwrap();
    let unreadable: Vec<_> = list.unreadable.iter().map(|one| (one.name.as_str(), one.version)).collect();
    assert_eq!((unreadable, list.unidentified.len()), (vec![("b", 2)], 1), "{:?}", list.unidentified);

    assert_eq!(
        version(&ready(activities.declare("b", Some("1"), Timestamp(2))).unwrap()),
        3,
        "it can be declared again"
    );
    store_row(&store, activity_declarations::key("c", 2), b"");
    assert_eq!(version(&ready(activities.declare("c", None, Timestamp(2))).unwrap()), 3, "it can be removed");
    assert_eq!(listed(&activities), [("a".to_owned(), 1), ("b".to_owned(), 3)]);
}

#[test]
fn damage_does_not_hide_the_declarations_on_either_side_of_it() {
    let (store, activities) = declared();
    for name in ["a", "b", "c", "d", "e"] {
        ready(activities.declare(name, Some("1"), Timestamp(1))).unwrap();
    }
    let partition = Partition::new("activities").unwrap();
    store.inject_damage(&partition, activity_declarations::key("c", 1), activity_declarations::key("c", 1));
    let list = ready(activities.list()).unwrap();
    assert!(!list.unidentified.is_empty());
    let names: Vec<String> = list.in_force.into_iter().map(|declaration| declaration.name).collect();
    assert!(names.contains(&"a".to_owned()) && names.contains(&"e".to_owned()), "{names:?}");
}

/// The reference store, counting the rows that scans returned.
#[derive(Debug)]
struct Counted(MemoryStore, AtomicUsize);

impl PrivateRows for Counted {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn health(&self) -> StoreHealth {
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

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.0.wait_for_change(partition, seen).await
    }
}

#[test]
fn the_cost_of_listing_depends_on_the_activities_and_not_on_their_versions() {
    let store = Arc::new(Counted(MemoryStore::new(BackendProfile::PLAIN), AtomicUsize::new(0)));
    let activities = ActivityDeclarations::new(Arc::clone(&store)).unwrap();
    for number in 0..200 {
        for name in ["a", "aa", "b"] {
            ready(activities.declare(name, Some(&number.to_string()), Timestamp(1))).unwrap();
        }
    }
    store.1.store(0, Ordering::Relaxed);
    assert_eq!(listed(&activities), ["a", "aa", "b"].map(|name| (name.to_owned(), 200)));
    assert_eq!(store.1.load(Ordering::Relaxed), 3);
}

#[test]
fn an_activity_at_the_limit_of_versions_can_still_be_removed() {
    let (store, activities) = declared();
    let full = ActivityDeclarationRow { declaration: Some("1".to_owned()), declared_at: Timestamp(1) };
    store_row(&store, activity_declarations::key("a", VERSIONS_MAX), &encode(&full));
    assert!(matches!(
        ready(activities.declare("a", Some("2"), Timestamp(2))),
        Err(DeclareError::TooManyVersions)
    ));
    assert_eq!(version(&ready(activities.declare("a", None, Timestamp(2))).unwrap()), VERSIONS_MAX + 1);
    assert_eq!(listed(&activities), []);
    assert!(matches!(
        ready(activities.declare("a", Some("2"), Timestamp(3))),
        Err(DeclareError::TooManyVersions)
    ));
}
