//! The reference store passes the conformance suite in both profiles, and the suite detects a store with a planted
//! fault.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod lying;

use abide_store::conformance::differential::{ComparedStore, OperationGenerator};
use abide_store::conformance::{self, BackendUnderTest};
use abide_store::memory::{BackendProfile, FaultRates, MemoryStore};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows};
use lying::{Lie, Lying};

/// The reference store with this profile.
struct Reference(BackendProfile);

impl BackendUnderTest for Reference {
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

async fn keeps_every_promise(profile: BackendProfile) {
    let report = conformance::run(&Reference(profile)).await;
    println!("{report}");
    assert_eq!(report.failures(), []);
    let (passed, skipped) = report.counts();
    assert!(
        passed >= 45 && skipped == 4,
        "{passed} passed, {skipped} skipped; only the recovery checks may be"
    );
}

#[tokio::test]
async fn memory_keeps_every_promise() {
    keeps_every_promise(BackendProfile::PLAIN).await;
}

#[tokio::test]
async fn memory_as_azure_keeps_every_promise() {
    keeps_every_promise(BackendProfile::AZURE).await;
}

/// Each planted fault fails a check of the promise that it breaks.
#[tokio::test]
async fn every_planted_fault_is_detected() {
    let mut table = String::new();
    for (lie, promise) in Lie::ALL {
        let report = conformance::run(&Lying::subject(lie)).await;
        let failures = report.failures();
        table.push_str(&format!("{lie:?}: {} checks failed\n", failures.len()));
        for (promise, check, how) in &failures {
            table.push_str(&format!("    {promise}: {}: {how:.100}\n", check.replace('_', " ")));
        }
        assert!(
            failures.iter().any(|(of, ..)| *of == promise),
            "{lie:?} failed no check of {promise}:\n{table}"
        );
    }
    println!("{table}");
    let honest = conformance::run(&Lying::subject(Lie::None)).await;
    assert_eq!(honest.failures(), [], "the wrapper without a fault passes");
}

#[tokio::test]
async fn plain_memory_and_memory_as_azure_return_the_same_results() {
    let plain = MemoryStore::new(BackendProfile::PLAIN);
    let azure = MemoryStore::new(BackendProfile::AZURE);
    let mut left = ComparedStore::new(&plain);
    let mut right = ComparedStore::new(&azure);
    let mut generator = OperationGenerator::new(1);
    for number in 0..20_000 {
        let operation = generator.operation();
        let a = left.run(&operation).await;
        let b = right.run(&operation).await;
        assert_eq!(a, b, "operation {number}: {operation:?}");
    }
}

fn create(number: u32) -> Batch {
    Batch::checked().create(Key::new(number.to_be_bytes()), vec![])
}

/// Runs a thousand creations, counts the outcomes and the unknown ones that were applied, and checks which rows exist.
fn answers(seed: u64) -> ([usize; 4], usize) {
    let faults =
        FaultRates { seed, conflict_per_mille: 50, unavailable_per_mille: 100, unknown_per_mille: 200 };
    let store = MemoryStore::new(BackendProfile { faults: Some(faults), ..BackendProfile::PLAIN });
    let partition = Partition::new("p").unwrap();
    let mut counts = [0; 4];
    let mut unknown_applied = 0;
    for number in 0..1_000 {
        let outcome = store.commit_now(&partition, &create(number));
        let exists = loop {
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
            0 => assert!(exists),
            3 => unknown_applied += usize::from(exists),
            _ => assert!(!exists, "a commit that was reported as not applied was applied"),
        }
    }
    (counts, unknown_applied)
}

#[test]
fn injected_faults_follow_the_seed_and_report_the_true_outcome() {
    let (counts, unknown_applied) = answers(1);
    assert_eq!((counts, unknown_applied), answers(1), "the same seed gives the same outcomes");
    assert_ne!(counts, answers(2).0);
    let [committed, conflict, unavailable, unknown] = counts;
    assert!(committed > 500 && conflict > 20 && unavailable > 50 && unknown > 100, "{counts:?}");
    assert!(unknown_applied > 30 && unknown_applied < unknown - 30, "{unknown_applied} of {unknown}");
}

#[tokio::test]
async fn a_waiter_of_an_unchanged_partition_keeps_waiting() {
    use std::future::Future;
    let store = MemoryStore::default();
    let p = Partition::new("p").unwrap();
    let q = Partition::new("q").unwrap();
    let tick = store.wait_for_change(&p, abide_store::ChangeTick::START).await;
    let mut waiting = std::pin::pin!(store.wait_for_change(&p, tick));
    store.commit_now(&q, &create(1));
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(waiting.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "another partition's commit woke it");
    store.commit_now(&p, &create(1));
    waiting.await;
}
