//! Inconsistencies that `fsck` must find, written into the store by the test.

use abide_ids::Timestamp;
use abide_runtime::fsck::FsckReport;
use abide_runtime::run::EntryChange;
use abide_runtime::{ShardReply, ShardRequest};
use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::calls::{CallRow, CallRowState};
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_store::tables::{TableId, decode, encode, instances};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::CommandId;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};

fn report(harness: &ShardHarness) -> FsckReport {
    poll_ready(abide_runtime::fsck::check(&*harness.store, &harness.definitions, harness.config.shard_count))
        .unwrap()
}

fn findings(harness: &ShardHarness) -> Vec<String> {
    report(harness).findings.into_iter().map(|finding| finding.problem).collect()
}

fn commit(harness: &ShardHarness, batch: &Batch) {
    assert!(matches!(harness.store.commit_now(&harness.partition(), batch), CommitOutcome::Committed(_)));
}

/// Writes a page with this change, as a turn without events would.
fn change(harness: &ShardHarness, id: &str, change: EntryChange) {
    let run = harness.run(id).unwrap();
    let page = HistoryPageRow {
        first_event: 0,
        event_count: 0,
        turn_at: Timestamp(0),
        events: Vec::new(),
        part_changes: vec![change],
        settled_calls: vec![],
        call_failures: vec![],
    };
    commit(
        harness,
        &Batch::checked().create(history_pages::key(run.row.run_id, run.last_page.next()), encode(&page)),
    );
}

fn drop_row(harness: &ShardHarness, key: &Key) {
    let version = harness.store.read_now(&harness.partition(), key).unwrap().unwrap().version;
    commit(harness, &Batch::checked().delete_if_at(key.clone(), version));
}

/// Loses a timer: its entry in the bookkeeping and its row.
fn lose_timer(harness: &ShardHarness, id: &str, command: CommandId) {
    let mut run = harness.run(id).unwrap();
    let lost =
        run.bookkeeping.timer_rows(run.row.run_id).find(|timer| timer.command == Some(command)).unwrap();
    drop_row(harness, &lost.key());
    let (_, cleared) = run.bookkeeping.clear_timer(command).unwrap();
    change(harness, id, cleared);
}

#[test]
fn an_event_whose_timeout_is_not_set_is_found() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}}));
    harness.start("wait", "a");
    harness.advance_clock(1_000);
    harness.check();
    let timer = *harness.run("a").unwrap().bookkeeping.timers.keys().next().unwrap();
    lose_timer(&harness, "a", timer);
    assert_eq!(findings(&harness), [format!("waits for timer {}, which was never set", timer.0)]);
}

#[test]
fn a_workflow_whose_own_timeout_is_not_set_is_found() {
    let mut harness = ShardHarness::new();
    let definition =
        json!({"$schema": "workflow-schema-v1.json", "id": "limited", "version": "1.0.0", "startAt": "Start",
        "configuration": {"timeout": "PT9H"}, "states": {"Start": task_state("End"), "End": {"type": "succeed"}}})
        .to_string();
    poll_ready(harness.definitions.publish(&definition, None, Timestamp(0))).unwrap();
    harness.start("limited", "a");
    harness.advance_clock(1_000);
    harness.check();
    let timer = *harness.run("a").unwrap().bookkeeping.timers.keys().next().unwrap();
    lose_timer(&harness, "a", timer);
    assert_eq!(findings(&harness), [format!("waits for timer {}, which was never set", timer.0)]);
}

#[test]
fn a_timer_without_its_row_is_found_also_the_stuck_timer() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "End"}, "End": {"type": "succeed"}}));
    harness.start("wait", "a");
    harness.advance_clock(1_000);
    let timers = harness.keys(TableId::Timer);
    assert_eq!(timers.len(), 2);
    for timer in &timers {
        drop_row(&harness, timer);
    }
    let found = findings(&harness);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|what| what.ends_with("has no row")), "{found:?}");
}

#[test]
fn a_failed_call_without_a_next_attempt_is_found_unless_its_run_is_suspended() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.advance_clock(1_000);
    let key = harness.keys(TableId::Call).remove(0);
    let row = harness.store.read_now(&harness.partition(), &key).unwrap().unwrap();
    let call =
        CallRow { state: CallRowState::FailedRetryable, not_before: None, ..decode(&row.value).unwrap() };
    commit(&harness, &Batch::checked().replace(key, row.version, encode(&call)));
    let found = findings(&harness);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("which failed and has no retry scheduled"), "{found:?}");
    harness.send_message("a", abide_workflow::Message::Suspend { reason: String::new() });
    harness.advance_clock(1_000);
    harness.check();
}

/// The row of a purged instance stays as a tombstone for days.
#[test]
fn what_was_purged_is_not_counted() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "End"}, "End": {"type": "succeed"}}));
    harness.publish("none", &json!({"Start": {"type": "succeed"}}));
    harness.start("wait", "a");
    harness.start("none", "b");
    harness.advance_clock(2_000);
    assert_eq!((report(&harness).instances, report(&harness).live), (2, 1));
    let purge = ShardRequest::Purge { instance_id: instance_id("b"), run_number: None };
    assert!(matches!(harness.request(purge), ShardReply::Purged));
    let after = report(&harness);
    assert_eq!((after.instances, after.live, after.findings), (1, 1, vec![]));
    assert_eq!(harness.keys(TableId::Instance).len(), 2, "the tombstone is there");
}

#[test]
fn damage_is_a_finding_and_hides_no_other() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "End"}, "End": {"type": "succeed"}}));
    for id in ["a", "b", "c"] {
        harness.start("wait", id);
    }
    harness.advance_clock(1_000);
    let whole = report(&harness);
    assert_eq!((whole.findings.len(), whole.instances), (0, 3));
    harness.store.inject_damage(&harness.partition(), instances::key("b"), instances::key("b"));
    let run = harness.run("c").unwrap();
    let timer = run.bookkeeping.timer_rows(run.row.run_id).next().unwrap();
    drop_row(&harness, &timer.key());
    let report = report(&harness);
    assert_eq!(report.instances, 2);
    let about =
        |wanted: &str| report.findings.iter().filter(|finding| finding.problem.contains(wanted)).count();
    assert_eq!(
        (about("cannot be read: injected damage"), about("has no row")),
        (1, 1),
        "{:#?}",
        report.findings
    );
}
