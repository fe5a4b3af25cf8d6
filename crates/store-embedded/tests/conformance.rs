//! The embedded store keeps the seam's promises and answers as the reference store does.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use abide_store::conformance::differential::{Draw, Side};
use abide_store::conformance::{self, Subject};
use abide_store::memory::{MemoryStore, Personality};
use abide_store::rows::{Health, PrivateRows};
use abide_store_embedded::{EmbeddedStore, Options, SyncMode};
use tempfile::TempDir;

/// A store in a folder of its own, which goes with it.
struct Embedded {
    sync: SyncMode,
    folders: std::sync::Mutex<Vec<TempDir>>,
}

impl Embedded {
    fn new(sync: SyncMode) -> Self {
        Self { sync, folders: std::sync::Mutex::default() }
    }

    fn options(&self) -> Options {
        Options { sync: self.sync, disk_reserve_bytes: 0, ..Options::default() }
    }
}

impl Subject for Embedded {
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

    /// Nothing is answered until the store has been opened again.
    async fn after_unknown(&self, store: &EmbeddedStore) {
        assert!(matches!(store.health(), Health::Unusable { .. }));
        store.reopen().await.unwrap();
    }
}

#[tokio::test]
async fn embedded_keeps_every_promise() {
    let report = conformance::run(&Embedded::new(SyncMode::EveryCommit)).await;
    println!("{report}");
    assert_eq!(report.broken(), []);
    let (held, not_tried) = report.counts();
    assert!(held >= 50 && not_tried == 0, "{held} held, {not_tried} not tried");
}

/// How many operations are compared; more by `ABIDE_DIFFERENTIAL_OPERATIONS`.
fn operations() -> u64 {
    let given = std::env::var("ABIDE_DIFFERENTIAL_OPERATIONS").ok();
    given.map_or(20_000, |given| given.parse().expect("ABIDE_DIFFERENTIAL_OPERATIONS is a number"))
}

/// Memory, memory as Azure and embedded, which is closed and opened again now and then, under the same random operations.
#[tokio::test]
async fn embedded_and_both_memories_answer_alike() {
    let subject = Embedded::new(SyncMode::OperatingSystem);
    let (plain, azure) = (MemoryStore::new(Personality::PLAIN), MemoryStore::new(Personality::AZURE));
    let (mut left, mut right) = (Side::new(&plain), Side::new(&azure));
    let mut embedded = subject.fresh().await;
    let (total, mut done) = (operations(), 0);
    let mut draw = Draw::new(total);
    let mut known = Side::new(&embedded).into_known();
    while done < total {
        let mut middle = Side::knowing(&embedded, known);
        for step in 0..total.div_ceil(8).min(total - done) {
            // Every third step is a group that shares a sync: what comes later in it must see what came before.
            let operations = if step % 3 == 0 { draw.group() } else { vec![draw.operation()] };
            let (a, b, c) = match operations.as_slice() {
                [one] => {
                    (vec![left.play(one).await], vec![middle.play(one).await], vec![right.play(one).await])
                }
                all => (
                    left.play_together(all).await,
                    middle.play_together(all).await,
                    right.play_together(all).await,
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
