//! Earlier runs of an instance: found by their run number until their retention ends, and no longer.

use abide_ids::IdempotencyKey;
use abide_runtime::run::{CallReader, RunReadError, RunReader, SettledCallCursor};
use abide_runtime::{RequestError, ShardReply, ShardRequest};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::expiries::{ExpiryRow, ExpiryTarget};
use abide_store::tables::{TableId, decode, encode};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::{Duration, RunNumber};
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};

/// A workflow with one call.
fn publish(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

fn restart(harness: &mut ShardHarness) {
    assert!(matches!(
        harness.request(ShardRequest::Restart { instance_id: instance_id("a") }),
        ShardReply::Started(_)
    ));
}

/// The keys of the settled calls of a run, if the run is found.
fn calls(harness: &ShardHarness, run: u32) -> Option<Vec<IdempotencyKey>> {
    let partition = harness.partition();
    let reader = RunReader { store: &*harness.store, definitions: &*harness.definitions };
    let reader = CallReader { run_reader: reader, partition: &partition };
    let run = poll_ready(reader.find_run(&instance_id("a"), Some(RunNumber(run)))).unwrap()?;
    let settled = poll_ready(reader.settled_calls(&run, SettledCallCursor::FIRST, usize::MAX)).unwrap();
    Some(settled.calls.into_iter().map(|(_, call)| call.idempotency_key).collect())
}

/// The numbers of the runs that are found, of the first few.
fn found(harness: &ShardHarness) -> Vec<u32> {
    (1..6).filter(|run| calls(harness, *run).is_some()).collect()
}

#[test]
fn the_calls_of_every_run_are_found_by_its_number_also_after_a_crash() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "a");
    let mut keys = vec![harness.complete_attempt().metadata.idempotency_key];
    for _ in 0..2 {
        restart(&mut harness);
        keys.push(harness.complete_attempt().metadata.idempotency_key);
    }
    for crashed in [false, true] {
        for (run, key) in (1..).zip(&keys) {
            let [call] = calls(&harness, run).unwrap()[..] else { panic!("run {run} has one call") };
            assert_eq!(call.to_string(), *key, "run {run}");
        }
        assert_eq!(found(&harness), [1, 2, 3], "{crashed}");
        harness.crash();
        harness.advance_clock(2_000);
    }
    harness.check();
}

#[test]
fn runs_that_continued_as_new_are_found() {
    let mut harness = ShardHarness::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    harness.publish("loop", &json!({"Start": gate, "Again": {"type": "continueAsNew", "input": {}}}));
    harness.start("loop", "a");
    for _ in 0..3 {
        harness.raise("a", "go");
    }
    assert_eq!(found(&harness), [1, 2, 3, 4]);
    harness.advance_clock(2_000);
    harness.check();
}

#[test]
fn an_earlier_run_is_found_until_its_retention_ends() {
    let mut harness = ShardHarness::with(|config| config.retention = Duration::hours(1));
    publish(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    harness.advance_clock(1_800_000);
    restart(&mut harness);
    harness.complete_attempt();
    assert_eq!(found(&harness), [1, 2]);
    harness.advance_clock(1_900_000);
    assert_eq!((found(&harness), harness.keys(TableId::EarlierRun)), (vec![2], vec![]));
    harness.check();
    harness.advance_clock(1_800_000);
    assert_eq!((found(&harness), harness.keys(TableId::HistoryPage)), (vec![], vec![]));
    harness.check();
}

#[test]
fn purging_an_instance_purges_its_earlier_runs() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    for _ in 0..3 {
        restart(&mut harness);
        harness.complete_attempt();
    }
    harness.advance_clock(2_000);
    assert_eq!(harness.keys(TableId::EarlierRun).len(), 3);
    assert!(matches!(
        harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }),
        ShardReply::Purged
    ));
    harness.crash();
    harness.advance_clock(120_000);
    assert_eq!(
        (found(&harness), harness.keys(TableId::EarlierRun), harness.keys(TableId::HistoryPage)),
        (vec![], vec![], vec![])
    );
    let public = abide_store::tables::public_instances::key("a", RunNumber(2));
    let schema = &abide_store::tables::public_instances::SCHEMA;
    let row = poll_ready(abide_store::public::PublicTables::get(&*harness.store, schema, &public)).unwrap();
    assert!(row.is_none(), "{row:?}");
    harness.check();
}

#[test]
fn runs_started_after_a_purge_are_not_mistaken_for_those_before_it() {
    let mut harness = ShardHarness::new();
    harness.publish("short", &json!({"Start": {"type": "succeed"}}));
    harness.start("short", "a");
    restart(&mut harness);
    harness.advance_clock(2_000);
    // All of it is in one commit, before anything can have been collected.
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "away".to_owned() }));
    let purged = harness
        .request_without_waiting(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None });
    for _ in 0..3 {
        let start = harness.start_request("short", "a", None);
        harness.request_without_waiting(start);
    }
    harness.advance_clock(120_000);
    assert!(matches!(harness.reply_to(purged), Some(ShardReply::Purged)));
    assert_eq!(found(&harness), [3, 4, 5]);
    assert_eq!(harness.keys(TableId::EarlierRun).len(), 2);
    harness.check();
}

/// The request that purges an earlier run.
fn earlier(harness: &ShardHarness, run: u32) -> ShardRequest {
    let reader = RunReader { store: &*harness.store, definitions: &*harness.definitions };
    let found = poll_ready(reader.find_run(&harness.partition(), &instance_id("a"), Some(RunNumber(run))))
        .unwrap()
        .unwrap();
    ShardRequest::PurgeEarlierRun {
        instance_id: instance_id("a"),
        run_number: found.run_number,
        run_id: found.run_id,
    }
}

#[test]
fn an_earlier_run_is_purged_by_its_number_and_no_other_with_it() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    for _ in 0..2 {
        restart(&mut harness);
        harness.complete_attempt();
    }
    let purge = |run| ShardRequest::Purge { instance_id: instance_id("a"), run_number: run };
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "away".to_owned() }));
    let purged = harness.request_without_waiting(earlier(&harness, 2));
    assert!(harness.reply_to(purged).is_none(), "it is not durable yet");
    harness.advance_clock(120_000);
    assert!(matches!(harness.reply_to(purged), Some(ShardReply::Purged)));
    assert_eq!(found(&harness), [1, 3]);
    let current = harness.request(earlier(&harness, 3));
    assert!(
        matches!(current, ShardReply::Refused(RequestError::NotFound { .. })),
        "it is no earlier one: {current:?}"
    );
    let gone = harness.request(purge(Some(RunNumber(2))));
    assert!(matches!(gone, ShardReply::Refused(RequestError::NotFound { .. })), "{gone:?}");
    // The last one by its number: the runs before it are not purged with it, and can still be.
    assert!(matches!(harness.request(purge(Some(RunNumber(3)))), ShardReply::Purged));
    harness.advance_clock(120_000);
    assert_eq!(found(&harness), [1]);
    assert!(matches!(harness.request(purge(None)), ShardReply::Refused(RequestError::NotFound { .. })));
    harness.advance_clock(120_000);
    assert_eq!((found(&harness), harness.keys(TableId::EarlierRun)), (vec![], vec![]));
    harness.check();
}

#[test]
fn a_reused_run_number_leads_to_its_newest_run_and_purging_leaves_none() {
    let mut harness = ShardHarness::with(|config| config.idempotency_window = Duration::hours(1));
    publish(&harness);
    harness.start("one", "a");
    let first = harness.complete_attempt().metadata.idempotency_key;
    restart(&mut harness);
    harness.complete_attempt();
    let purge = |run| ShardRequest::Purge { instance_id: instance_id("a"), run_number: run };
    assert!(matches!(harness.request(purge(Some(RunNumber(2)))), ShardReply::Purged));
    harness.advance_clock(2 * 3_600_000);
    assert_eq!((found(&harness), harness.keys(TableId::Instance)), (vec![1], vec![]));
    harness.start("one", "a");
    harness.complete_attempt();
    let call = calls(&harness, 1).unwrap()[0];
    assert_eq!(call.to_string(), first, "keys are those of the same execution");
    assert!(matches!(harness.request(purge(None)), ShardReply::Purged));
    harness.advance_clock(120_000);
    assert_eq!(
        (found(&harness), harness.keys(TableId::EarlierRun), harness.keys(TableId::HistoryPage)),
        (vec![], vec![], vec![])
    );
    harness.check();
}

#[test]
fn an_expiry_without_the_run_number_leaves_nothing_behind() {
    let mut harness = ShardHarness::with(|config| config.retention = Duration::hours(1));
    publish(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    harness.advance_clock(2_000);
    // As an older version wrote it.
    let partition = harness.partition();
    let key = harness.keys(TableId::Expiry).remove(0);
    let row = harness.store.read_now(&partition, &key).unwrap().unwrap();
    let ExpiryTarget::RetainedRuns { runs: ended, .. } = decode::<ExpiryRow>(&row.value).unwrap().target
    else {
        panic!("{row:?}")
    };
    let what = ExpiryTarget::EndedRunsUnnumbered(vec![("a".to_owned(), ended[0].run_id)]);
    let batch = Batch::checked().replace(key, row.version, encode(&ExpiryRow { target: what }));
    harness.store.commit_now(&partition, &batch);
    harness.crash();
    harness.start("one", "a");
    assert_eq!(harness.keys(TableId::EarlierRun).len(), 1);
    harness.complete_attempt();
    harness.advance_clock(3_700_000);
    assert_eq!(harness.keys(TableId::EarlierRun), []);
    harness.check();
}

#[test]
fn damage_in_an_earlier_run_concerns_that_run_only() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    restart(&mut harness);
    let partition = harness.partition();
    let key = harness.keys(TableId::EarlierRun).remove(0);
    harness.store.inject_damage(&partition, key.clone(), key);
    let reader = RunReader { store: &*harness.store, definitions: &*harness.definitions };
    let find = |run| poll_ready(reader.find_run(&partition, &instance_id("a"), Some(RunNumber(run))));
    assert!(matches!(find(1), Err(RunReadError::Unreadable(_))));
    assert!(find(2).unwrap().is_some());
}
