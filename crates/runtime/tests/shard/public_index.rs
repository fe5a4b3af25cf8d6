//! The public index: it ends up equal to the shard's own state, has the error of a failed run, and drops purged runs.

use abide_ids::RunNumber;
use abide_runtime::{ShardReply, ShardRequest};
use abide_store::public::{PublicRow, PublicTables, PublicWrite};
use abide_store::rows::Batch;
use abide_store::tables::TableId;
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::{Duration, Message};
use serde_json::{Value, json};

use crate::harness::{ShardHarness, failure, instance_id, task_state};

fn row(harness: &ShardHarness, id: &str, run: u32) -> Option<PublicRow> {
    poll_ready(harness.store.get(&SCHEMA, &public_instances::key(id, RunNumber(run)))).unwrap()
}

fn status(harness: &ShardHarness, id: &str, run: u32) -> Option<String> {
    row(harness, id, run)?.text("Status").map(str::to_owned)
}

fn error(harness: &ShardHarness, id: &str, run: u32) -> Option<Value> {
    serde_json::from_str(row(harness, id, run)?.text("Error")?).ok()
}

fn waiting(next: &str) -> Value {
    json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": next})
}

fn kept_for_an_hour() -> ShardHarness {
    ShardHarness::with(|config| config.retention = Duration::hours(1))
}

#[test]
fn the_row_of_a_replaced_run_is_deleted_with_the_run() {
    let mut harness = kept_for_an_hour();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.complete_attempt();
    harness.advance_clock(1_800_000);
    harness.start("one", "a");
    harness.advance_clock(1_700_000);
    let both = (status(&harness, "a", 1), status(&harness, "a", 2));
    assert_eq!(both, (Some("Completed".to_owned()), Some("Running".to_owned())));
    harness.advance_clock(300_000);
    let second = (status(&harness, "a", 1), status(&harness, "a", 2));
    assert_eq!(second, (None, Some("Running".to_owned())));
    harness.complete_attempt();
    harness.advance_clock(4_000_000);
    assert_eq!((status(&harness, "a", 1), status(&harness, "a", 2)), (None, None));
    harness.check();
}

#[test]
fn two_expiries_of_one_run_remove_its_row_in_either_order() {
    let mut harness = kept_for_an_hour();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.finish_attempt(failure(false));
    harness.advance_clock(1_000);
    harness.send_message("a", Message::Rewind { reason: String::new() });
    harness.complete_attempt();
    harness.advance_clock(1_000);
    assert!(matches!(
        harness.request(ShardRequest::Restart { instance_id: instance_id("a") }),
        ShardReply::Started(_)
    ));
    harness.advance_clock(3_500_000);
    assert_eq!(status(&harness, "a", 1).as_deref(), Some("Completed"));
    harness.advance_clock(300_000);
    assert_eq!((status(&harness, "a", 1), status(&harness, "a", 2)), (None, Some("Running".to_owned())));
    harness.check();
}

#[test]
fn the_rows_of_a_chain_of_runs_expire_one_by_one_also_over_a_crash() {
    let mut harness = kept_for_an_hour();
    let states =
        json!({"Start": waiting("Next"), "Next": {"type": "continueAsNew", "input": {"id": "$.input.id"}}});
    harness.publish("chain", &states);
    harness.start("chain", "a");
    for _ in 0..5 {
        assert!(matches!(harness.raise("a", "go"), ShardReply::Accepted));
        harness.crash();
        harness.advance_clock(600_000);
    }
    let shown =
        |harness: &ShardHarness| (1..=6).filter_map(|run| status(harness, "a", run)).collect::<Vec<_>>();
    let continued = "ContinuedAsNew";
    assert_eq!(shown(&harness), [continued, continued, continued, continued, continued, "Running"]);
    harness.advance_clock(1_500_000);
    assert_eq!(shown(&harness), [continued, continued, continued, "Running"], "two ended over an hour ago");
    harness.advance_clock(3_600_000);
    assert_eq!(shown(&harness), ["Running"]);
    harness.check();
}

#[test]
fn a_row_written_before_a_crash_does_not_hide_later_states() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": waiting("End"), "End": {"type": "succeed"}}));
    let others: Vec<String> = (0..20).map(|number| format!("other-{number:02}")).collect();
    for id in &others {
        harness.start("wait", id);
    }
    harness.start("wait", "x");
    // The next owner writes all of them, this one last, and crashes before anything of it is durable.
    harness.crash();
    harness.advance_clock(100);
    assert_eq!(status(&harness, "x", 1).as_deref(), Some("Running"));
    // The owner after that writes this one first.
    harness.unavailable_instances = others.iter().map(|id| instance_id(id)).collect();
    harness.crash();
    assert!(matches!(harness.raise("x", "go"), ShardReply::Accepted));
    harness.advance_clock(5_000);
    harness.unavailable_instances.clear();
    harness.advance_clock(5_000);
    assert_eq!(status(&harness, "x", 1).as_deref(), Some("Completed"));
    assert_eq!(status(&harness, "other-07", 1).as_deref(), Some("Running"));
    harness.check();
}

#[test]
fn a_failed_run_has_its_error_in_the_index_whichever_owner_writes_it() {
    let expected = json!({"code": "Broken", "message": "it is", "state": "Start"});
    // Written by the owner that saw it fail; by the next owner; while another run replaces it; by the next owner after
    // that.
    for (crashes, restarts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut harness = ShardHarness::new();
        harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
        harness.start("one", "a");
        harness.finish_attempt(failure(false));
        if restarts {
            harness.start("one", "a");
        }
        if crashes {
            assert_eq!(row(&harness, "a", 1), None, "not yet");
            harness.crash();
        }
        harness.advance_clock(3_000);
        assert_eq!(status(&harness, "a", 1).as_deref(), Some("Failed"));
        assert_eq!(
            error(&harness, "a", 1),
            Some(expected.clone()),
            "crash {crashes}, another run {restarts}"
        );
        harness.send_message("a", Message::Rewind { reason: String::new() });
        harness.advance_clock(3_000);
        assert_eq!(error(&harness, "a", if restarts { 2 } else { 1 }), None, "it runs");
        harness.check();
    }
}

#[test]
fn a_long_error_is_cut_and_a_parked_run_has_its_reason() {
    let mut harness = ShardHarness::new();
    let states =
        json!({"Start": {"type": "task", "activity": "work", "next": "End"}, "End": {"type": "succeed"}});
    harness.publish("one", &states);
    harness.start("one", "a");
    let long = abide_dispatch::CallFailure::permanent("Long", "ö".repeat(2_000));
    harness.finish_attempt(abide_dispatch::AttemptResult::Failed(long));
    harness.advance_clock(3_000);
    let told = error(&harness, "a", 1).unwrap();
    let message = told["message"].as_str().unwrap();
    assert_eq!(message, format!("{}…", "ö".repeat(512)));
    harness.start("one", "b");
    let partition = harness.partition();
    let page = harness.keys(TableId::HistoryPage).pop().unwrap();
    let version = harness.store.read_now(&partition, &page).unwrap().unwrap().version;
    harness.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
    harness.crash();
    harness.advance_clock(3_000);
    assert_eq!(status(&harness, "b", 1).as_deref(), Some("Parked"));
    assert_eq!(error(&harness, "b", 1).unwrap()["code"], "Parked");
}

#[test]
fn a_write_that_arrives_after_a_purge_is_removed_when_the_tombstone_expires() {
    let mut harness = kept_for_an_hour();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.complete_attempt();
    harness.advance_clock(1_000);
    let shown = row(&harness, "a", 1).unwrap();
    assert!(matches!(
        harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }),
        ShardReply::Purged
    ));
    harness.advance_clock(1_000);
    assert_eq!(row(&harness, "a", 1), None);
    // A delayed write of a previous owner.
    poll_ready(harness.store.put(&SCHEMA, vec![PublicWrite::Put(shown)])).unwrap();
    harness.advance_clock(8 * 24 * 3_600_000);
    assert_eq!(row(&harness, "a", 1), None);
}

#[test]
fn leftovers_of_an_earlier_run_do_not_touch_the_row_of_a_later_run_with_its_number() {
    let mut harness = ShardHarness::with(|config| {
        config.retention = Duration::hours(1);
        config.idempotency_window = Duration::seconds(60);
    });
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.complete_attempt();
    harness.advance_clock(1_000);
    assert!(matches!(
        harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }),
        ShardReply::Purged
    ));
    harness.advance_clock(300_000);
    harness.start("one", "a");
    assert_eq!(harness.calls[0].1.metadata.execution_id, "a/1", "the tombstone has expired");
    harness.advance_clock(3_600_000);
    assert_eq!(status(&harness, "a", 1).as_deref(), Some("Running"));
    harness.complete_attempt();
    harness.advance_clock(1_000);
    assert_eq!(status(&harness, "a", 1).as_deref(), Some("Completed"));
    harness.check();
}
