//! The reference store keeps the seam's promises, in both personalities, and a store that lies is caught.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod lying;

use abide_store::conformance::differential::{Draw, Side};
use abide_store::conformance::{self, Subject};
use abide_store::memory::{Faults, MemoryStore, Personality};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows};
use lying::{Lie, Lying};

/// The reference store as it is.
struct Reference(Personality);

impl Subject for Reference {
    type Store = MemoryStore;

    async fn fresh(&self) -> MemoryStore {
        MemoryStore::new(self.0)
    }

    async fn reopen(&self, _: MemoryStore) -> Option<MemoryStore> {
        None
    }

    fn make_unknown(&self, store: &MemoryStore, applied: bool) -> bool {
        store.make_next_commit_unknown(applied);
        true
    }
}

async fn keeps_every_promise(personality: Personality) {
    let report = conformance::run(&Reference(personality)).await;
    println!("{report}");
    assert_eq!(report.broken(), []);
    let (held, not_tried) = report.counts();
    assert!(held >= 45 && not_tried == 4, "{held} held, {not_tried} not tried: all but recovery");
}

#[tokio::test]
async fn memory_keeps_every_promise() {
    keeps_every_promise(Personality::PLAIN).await;
}

#[tokio::test]
async fn memory_as_azure_keeps_every_promise() {
    keeps_every_promise(Personality::AZURE).await;
}

/// Each planted bug is found, by a check of the promise it breaks.
#[tokio::test]
async fn every_lie_is_found() {
    let mut table = String::new();
    for (lie, promise) in Lie::ALL {
        let report = conformance::run(&Lying::subject(lie)).await;
        let broken = report.broken();
        table.push_str(&format!("{lie:?}: {} checks broken\n", broken.len()));
        for (promise, check, how) in &broken {
            table.push_str(&format!("    {promise}: {}: {how:.100}\n", check.replace('_', " ")));
        }
        assert!(
            broken.iter().any(|(of, ..)| *of == promise),
            "{lie:?} was not found under {promise}:\n{table}"
        );
    }
    println!("{table}");
    let honest = conformance::run(&Lying::subject(Lie::None)).await;
    assert_eq!(honest.broken(), [], "the wrapper itself is honest");
}

#[tokio::test]
async fn plain_memory_and_memory_as_azure_answer_alike() {
    let (plain, azure) = (MemoryStore::new(Personality::PLAIN), MemoryStore::new(Personality::AZURE));
    let (mut left, mut right) = (Side::new(&plain), Side::new(&azure));
    let mut draw = Draw::new(1);
    for number in 0..20_000 {
        let operation = draw.operation();
        let (a, b) = (left.play(&operation).await, right.play(&operation).await);
        assert_eq!(a, b, "operation {number}: {operation:?}");
    }
}

fn create(number: u32) -> Batch {
    Batch::checked().create(Key::new(number.to_be_bytes()), vec![])
}

/// Plays a thousand creations and counts the answers; checks what was really applied.
fn answers(seed: u64) -> ([usize; 4], usize) {
    let faults = Faults { seed, conflict: 50, unavailable: 100, unknown: 200 };
    let store = MemoryStore::new(Personality { faults: Some(faults), ..Personality::PLAIN });
    let partition = Partition::new("p").unwrap();
    let (mut counts, mut unknown_applied) = ([0; 4], 0);
    for number in 0..1_000 {
        let outcome = store.commit_now(&partition, &create(number));
        let there = loop {
            if let Ok(row) = store.read_now(&partition, &Key::new(number.to_be_bytes())) {
                break row.is_some();
            }
        };
        let kind = match outcome {
            CommitOutcome::Committed(_) => 0,
            CommitOutcome::Conflict(_) => 1,
            CommitOutcome::Unavailable { .. } => 2,
            CommitOutcome::Unknown { .. } => 3,
            other => panic!("{other:?}"),
        };
        counts[kind] += 1;
        match kind {
            0 => assert!(there),
            3 => unknown_applied += usize::from(there),
            _ => assert!(!there, "a commit that was surely not applied was"),
        }
    }
    (counts, unknown_applied)
}

#[test]
fn faults_come_by_seed_and_mean_what_they_say() {
    let (counts, unknown_applied) = answers(1);
    assert_eq!((counts, unknown_applied), answers(1), "the same seed gives the same answers");
    assert_ne!(counts, answers(2).0);
    let [committed, conflict, unavailable, unknown] = counts;
    assert!(committed > 500 && conflict > 20 && unavailable > 50 && unknown > 100, "{counts:?}");
    assert!(unknown_applied > 30 && unknown_applied < unknown - 30, "{unknown_applied} of {unknown}");
}

#[tokio::test]
async fn a_waiter_of_a_quiet_partition_keeps_waiting() {
    use std::future::Future;
    let store = MemoryStore::default();
    let (p, q) = (Partition::new("p").unwrap(), Partition::new("q").unwrap());
    let tick = store.changed(&p, abide_store::Tick::START).await;
    let mut waiting = std::pin::pin!(store.changed(&p, tick));
    store.commit_now(&q, &create(1));
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(waiting.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "another partition's commit woke it");
    store.commit_now(&p, &create(1));
    waiting.await;
}
