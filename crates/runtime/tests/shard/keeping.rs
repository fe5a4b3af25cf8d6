//! How long things are kept, and how they go.

use abide_runtime::{Refused, Reply, Request};
use abide_store::public::PublicTables;
use abide_store::tables::{Table, public_instances};
use serde_json::json;

use crate::world::{World, name, ready, task};

fn one(world: &mut World, id: &str) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", id);
}

fn public(world: &World, id: &str, run: u32) -> Option<String> {
    let key = public_instances::key(id, run);
    let row = ready(world.store.get(&public_instances::SCHEMA, &key)).unwrap()?;
    row.text("Status").map(str::to_owned)
}

#[test]
fn the_public_row_follows_the_truth_within_moments_and_survives_a_crash_before_it_was_written() {
    let mut world = World::new();
    one(&mut world, "a");
    assert_eq!(public(&world, "a", 1), None, "not yet");
    world.crash();
    world.pass(100);
    assert_eq!(public(&world, "a", 1).as_deref(), Some("Running"));
    world.complete();
    world.pass(100);
    assert_eq!(public(&world, "a", 1).as_deref(), Some("Completed"));
    world.pass(2_000);
    assert_eq!(world.keys(Table::Outbox), []);
    world.check();
}

#[test]
fn a_purge_is_one_commit_that_forgets_and_the_rest_is_swept() {
    let mut world = World::new();
    one(&mut world, "a");
    let live = world.ask(Request::Purge { instance_id: name("a"), run: None });
    assert!(matches!(live, Reply::Refused(Refused::Live { .. })));
    world.complete();
    world.pass(2_000);
    let commits = world.commits;
    assert!(matches!(world.ask(Request::Purge { instance_id: name("a"), run: None }), Reply::Purged));
    assert_eq!(world.commits - commits, 1);
    assert!(matches!(
        world.ask(Request::Purge { instance_id: name("a"), run: None }),
        Reply::Refused(Refused::NotFound { .. })
    ));
    world.pass(120_000);
    assert_eq!((world.keys(Table::Page), world.keys(Table::Part)), (vec![], vec![]));
    assert_eq!(public(&world, "a", 1), None);
    world.check();
    world.start("one", "a");
    assert_eq!(world.calls[0].1.metadata.execution_id, "a/2", "a new run is not taken for the old one");
    world.complete();
    world.pass(5_000);
    world.check();
}

#[test]
fn nobody_is_told_that_an_instance_is_gone_before_that_is_durable() {
    let mut world = World::new();
    one(&mut world, "a");
    world.complete();
    world.pass(2_000);
    let away = abide_store::rows::CommitOutcome::Unavailable { reason: "away".to_owned() };
    world.outcomes.push_back(Some(away));
    let first = world.ask_later(Request::Purge { instance_id: name("a"), run: None });
    let second = world.ask_later(Request::Purge { instance_id: name("a"), run: None });
    assert!(world.reply_to(second).is_none(), "the first one may still be undone by a crash");
    world.pass(1_000);
    assert!(matches!(world.reply_to(first), Some(Reply::Purged)));
    assert!(matches!(world.reply_to(second), Some(Reply::Refused(Refused::NotFound { .. }))));
}

#[test]
fn an_ended_run_is_kept_for_its_time_and_then_gone_without_a_trace() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut world, "a");
    world.complete();
    world.pass(3_500_000);
    assert_eq!(world.status("a"), "Completed");
    world.crash();
    world.pass(300_000);
    assert_eq!(world.keys(Table::Page), []);
    assert!(matches!(world.raise("a", "go"), Reply::Refused(Refused::NotFound { .. })));
    assert_eq!(public(&world, "a", 1), None);
    world.pass(8 * 24 * 3_600_000);
    assert_eq!((world.keys(Table::Instance), world.keys(Table::Expiry)), (vec![], vec![]));
    world.check();
}

#[test]
fn a_run_that_ended_by_a_clock_ahead_of_its_time_is_kept_longer_and_not_for_ever() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut world, "a");
    world.ahead_ms = 1_800_000;
    world.complete();
    // The next owner's clock is right; it shows the run's end and says how long it is kept.
    world.ahead_ms = 0;
    world.crash();
    world.pass(3_700_000);
    assert_eq!(world.status("a"), "Completed");
    world.pass(1_800_000);
    assert_eq!((world.keys(Table::Page), public(&world, "a", 1)), (vec![], None));
    world.check();
}

#[test]
fn a_failed_run_that_was_rewound_is_not_purged_by_the_expiry_of_its_first_end() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&mut world, "a");
    world.answer(crate::world::failure(false));
    world.pass(1_000);
    world.order("a", abide_workflow::Message::Rewind { reason: String::new() });
    world.pass(3_700_000);
    assert_eq!(world.status("a"), "Running");
    world.complete();
    world.pass(3_000_000);
    assert_eq!(world.status("a"), "Completed");
    world.pass(1_000_000);
    assert_eq!(world.keys(Table::Page), []);
    world.check();
}
