//! The embedded store passes the conformance suite and returns the same results as the reference store.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use abide_store::conformance::differential::{ComparedStore, OperationGenerator};
use abide_store::conformance::{self, BackendUnderTest};
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::rows::{PrivateRows, StoreHealth};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, SyncMode};
use tempfile::TempDir;

/// Stores in temporary folders, which are deleted with this.
struct Embedded {
    sync: SyncMode,
    folders: std::sync::Mutex<Vec<TempDir>>,
}

impl Embedded {
    fn new(sync: SyncMode) -> Self {
        Self { sync, folders: std::sync::Mutex::default() }
    }

    fn options(&self) -> EmbeddedOptions {
        EmbeddedOptions { sync: self.sync, disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
    }
}

impl BackendUnderTest for Embedded {
    type Store = EmbeddedStore;

    async fn fresh(&self) -> EmbeddedStore {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path(), self.options()).unwrap();
        self.folders.lock().unwrap().push(folder);
        store
    }

    async fn reopen(&self, store: EmbeddedStore) -> Option<EmbeddedStore> {
        drop(store);
        let folder = self.folders.lock().unwrap().last()?.path().to_owned();
        Some(EmbeddedStore::open(&folder, self.options()).unwrap())
    }

    fn make_unknown(&self, store: &EmbeddedStore, applied: bool) -> bool {
        store.make_next_commit_unknown(applied);
        true
    }

    /// The store neither reads nor writes until it is reopened.
    async fn after_unknown(&self, store: &EmbeddedStore) {
        assert!(matches!(store.health(), StoreHealth::Unusable { .. }));
        store.reopen().await.unwrap();
    }
}

#[tokio::test]
async fn embedded_keeps_every_promise() {
    let report = conformance::run(&Embedded::new(SyncMode::EveryCommit)).await;
    println!("{report}");
    assert_eq!(report.failures(), []);
    let (passed, skipped) = report.counts();
    assert!(passed >= 50 && skipped == 0, "{passed} passed, {skipped} skipped");
}

/// The number of operations to compare; `ABIDE_DIFFERENTIAL_OPERATIONS` sets another.
fn operations() -> u64 {
    let given = std::env::var("ABIDE_DIFFERENTIAL_OPERATIONS").ok();
    given.map_or(20_000, |given| given.parse().expect("ABIDE_DIFFERENTIAL_OPERATIONS is a number"))
}

/// Runs the same random operations on memory, on memory as Azure and on embedded, which is reopened several times.
#[tokio::test]
async fn embedded_and_both_memories_return_the_same_results() {
    let subject = Embedded::new(SyncMode::OperatingSystem);
    let plain = MemoryStore::new(BackendProfile::PLAIN);
    let azure = MemoryStore::new(BackendProfile::AZURE);
    let mut left = ComparedStore::new(&plain);
    let mut right = ComparedStore::new(&azure);
    let mut embedded = subject.fresh().await;
    let total = operations();
    let mut done = 0;
    let mut generator = OperationGenerator::new(total);
    let mut known = ComparedStore::new(&embedded).into_known();
    while done < total {
        let mut middle = ComparedStore::with_known(&embedded, known);
        for step in 0..total.div_ceil(8).min(total - done) {
            // Every third step is a group that shares a sync: later operations of a group must see the earlier ones.
            let operations = if step % 3 == 0 { generator.group() } else { vec![generator.operation()] };
            let (a, b, c) = match operations.as_slice() {
                [one] => (vec![left.run(one).await], vec![middle.run(one).await], vec![right.run(one).await]),
                all => (
                    left.run_concurrently(all).await,
                    middle.run_concurrently(all).await,
                    right.run_concurrently(all).await,
                ),
            };
            assert_eq!(a, b, "memory and embedded differ at operation {done}: {operations:?}");
            assert_eq!(a, c, "memory and memory as Azure differ at operation {done}: {operations:?}");
            done += operations.len() as u64;
        }
        known = middle.into_known();
        embedded = subject.reopen(embedded).await.unwrap();
    }
    println!("{done} operations, zero differences");
}
