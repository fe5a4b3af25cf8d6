//! Retention and purge: how long runs are kept, and how they are deleted.

use abide_ids::RunNumber;
use abide_runtime::{RequestError, ShardReply, ShardRequest};
use abide_store::public::PublicTables;
use abide_store::tables::{TableId, public_instances};
use abide_testkit::shard_driver::poll_ready;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};

fn one(harness: &mut ShardHarness, id: &str) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", id);
}

fn public(harness: &ShardHarness, id: &str, run: u32) -> Option<String> {
    let key = public_instances::key(id, RunNumber(run));
    let row = poll_ready(harness.store.get(&public_instances::SCHEMA, &key)).unwrap()?;
    row.text("Status").map(str::to_owned)
}

#[test]
fn the_public_row_follows_soon_and_survives_a_crash_before_it_was_written() {
    let mut harness = ShardHarness::new();
    one(&mut harness, "a");
    assert_eq!(public(&harness, "a", 1), None, "not yet");
    harness.crash();
    harness.advance_clock(100);
    assert_eq!(public(&harness, "a", 1).as_deref(), Some("Running"));
    harness.complete_attempt();
    harness.advance_clock(100);
    assert_eq!(public(&harness, "a", 1).as_deref(), Some("Completed"));
    harness.advance_clock(2_000);
    assert_eq!(harness.keys(TableId::Outbox), []);
    harness.check();
}

#[test]
fn a_purge_is_one_commit_and_the_other_rows_are_collected_later() {
    let mut harness = ShardHarness::new();
    one(&mut harness, "a");
    let live = harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None });
    assert!(matches!(live, ShardReply::Refused(RequestError::AlreadyRunning { .. })));
    harness.complete_attempt();
    harness.advance_clock(2_000);
    let commits = harness.commits;
    assert!(matches!(
        harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }),
        ShardReply::Purged
    ));
    assert_eq!(harness.commits - commits, 1);
    assert!(matches!(
        harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }),
        ShardReply::Refused(RequestError::NotFound { .. })
    ));
    harness.advance_clock(120_000);
    assert_eq!((harness.keys(TableId::HistoryPage), harness.keys(TableId::Part)), (vec![], vec![]));
    assert_eq!(public(&harness, "a", 1), None);
    harness.check();
    harness.start("one", "a");
    assert_eq!(harness.calls[0].1.metadata.execution_id, "a/2", "a new run is not mistaken for the old one");
    harness.complete_attempt();
    harness.advance_clock(5_000);
    harness.check();
}

#[test]
fn a_client_learns_that_an_instance_is_gone_only_when_that_is_durable() {
    let mut harness = ShardHarness::new();
    one(&mut harness, "a");
    harness.complete_attempt();
    harness.advance_clock(2_000);
    let away = abide_store::rows::CommitOutcome::Unavailable { reason: "away".to_owned() };
    harness.outcomes.push_back(Some(away));
    let first = harness
        .request_without_waiting(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None });
    let second = harness
        .request_without_waiting(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None });
    assert!(harness.reply_to(second).is_none(), "a crash may still undo the first purge");
    harness.advance_clock(1_000);
    assert!(matches!(harness.reply_to(first), Some(ShardReply::Purged)));
    assert!(matches!(harness.reply_to(second), Some(ShardReply::Refused(RequestError::NotFound { .. }))));
}

#[test]
fn an_ended_run_is_kept_for_its_retention_and_then_leaves_no_trace() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut harness, "a");
    harness.complete_attempt();
    harness.advance_clock(3_500_000);
    assert_eq!(harness.status("a"), "Completed");
    harness.crash();
    harness.advance_clock(300_000);
    assert_eq!(harness.keys(TableId::HistoryPage), []);
    assert!(matches!(harness.raise("a", "go"), ShardReply::Refused(RequestError::NotFound { .. })));
    assert_eq!(public(&harness, "a", 1), None);
    harness.advance_clock(8 * 24 * 3_600_000);
    assert_eq!((harness.keys(TableId::Instance), harness.keys(TableId::Expiry)), (vec![], vec![]));
    harness.check();
}

#[test]
fn a_run_that_ended_under_a_fast_clock_is_kept_longer_but_not_forever() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut harness, "a");
    harness.wall_clock_ahead_ms = 1_800_000;
    harness.complete_attempt();
    // The next owner's clock is right; it writes the end of the run to the index, and its expiry.
    harness.wall_clock_ahead_ms = 0;
    harness.crash();
    harness.advance_clock(3_700_000);
    assert_eq!(harness.status("a"), "Completed");
    harness.advance_clock(1_800_000);
    assert_eq!((harness.keys(TableId::HistoryPage), public(&harness, "a", 1)), (vec![], None));
    harness.check();
}

#[test]
fn a_failed_run_that_was_rewound_is_not_purged_by_the_expiry_of_its_first_end() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut harness, "a");
    harness.finish_attempt(crate::harness::failure(false));
    harness.advance_clock(1_000);
    harness.send_message("a", abide_workflow::Message::Rewind { reason: String::new() });
    harness.advance_clock(3_700_000);
    assert_eq!(harness.status("a"), "Running");
    harness.complete_attempt();
    harness.advance_clock(3_000_000);
    assert_eq!(harness.status("a"), "Completed");
    harness.advance_clock(1_000_000);
    assert_eq!(harness.keys(TableId::HistoryPage), []);
    harness.check();
}

/// Three ends: long ago, of a run that was replaced since, and half an hour ago. A restart with a retention of an hour
/// instead of thirty days deletes the first two at once and the third in time.
#[test]
fn a_shorter_retention_applies_to_runs_that_have_ended() {
    let mut harness = ShardHarness::new();
    one(&mut harness, "old");
    harness.complete_attempt();
    harness.start("one", "again");
    harness.complete_attempt();
    harness.advance_clock(1_000);
    harness.start("one", "again");
    harness.advance_clock(2 * 3_600_000);
    harness.complete_attempt();
    harness.advance_clock(1_800_000);
    let expiries = harness.keys(TableId::Expiry);
    harness.crash();
    harness.advance_clock(120_000);
    assert_eq!(harness.keys(TableId::Expiry), expiries, "with the same retention nothing is moved");

    harness.config.retention = abide_workflow::Duration::hours(1);
    harness.crash();
    harness.advance_clock(120_000);
    assert_eq!((public(&harness, "old", 1), public(&harness, "again", 1)), (None, None));
    assert_eq!(public(&harness, "again", 2).as_deref(), Some("Completed"), "its hour is not over");
    harness.check();
    harness.advance_clock(1_800_000);
    assert_eq!((public(&harness, "again", 2), harness.keys(TableId::HistoryPage)), (None, vec![]));
    harness.check();
}

/// The review is interrupted by a crash before anything of it is durable: the next owner begins it anew.
#[test]
fn a_review_of_the_retention_that_is_interrupted_begins_anew() {
    let mut harness = ShardHarness::new();
    one(&mut harness, "a");
    harness.complete_attempt();
    harness.advance_clock(2 * 3_600_000);
    harness.config.retention = abide_workflow::Duration::hours(1);
    harness.crash();
    harness.crash();
    harness.advance_clock(120_000);
    assert_eq!((public(&harness, "a", 1), harness.keys(TableId::HistoryPage)), (None, vec![]));
    harness.check();
}

#[test]
fn a_longer_retention_applies_to_runs_that_have_ended() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut harness, "a");
    harness.complete_attempt();
    harness.advance_clock(1_000);
    harness.config.retention = abide_workflow::Duration::hours(3);
    harness.crash();
    harness.advance_clock(2 * 3_600_000);
    assert_eq!(harness.status("a"), "Completed");
    harness.advance_clock(3_700_000);
    assert_eq!(public(&harness, "a", 1), None);
    harness.check();
}
