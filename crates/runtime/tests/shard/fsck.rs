//! What `fsck` must find, planted by hand.

use abide_runtime::fsck::Report;
use abide_runtime::run::Change;
use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::dispatches::{Dispatch, DispatchState};
use abide_store::tables::pages::{self, Page};
use abide_store::tables::{Table, decode, encode, instances};
use abide_workflow::CommandId;
use serde_json::json;

use crate::world::{World, ready, task};

fn report(world: &World) -> Report {
    ready(abide_runtime::fsck::check(&*world.store, &world.definitions, world.config.shards)).unwrap()
}

fn findings(world: &World) -> Vec<String> {
    report(world).findings.into_iter().map(|finding| finding.what).collect()
}

fn commit(world: &World, batch: &Batch) {
    assert!(matches!(world.store.commit_now(&world.partition(), batch), CommitOutcome::Committed(_)));
}

/// As if the run had written this in a turn that told nothing.
fn change(world: &World, id: &str, change: Change) {
    let run = world.run(id).unwrap();
    let page = Page {
        first_event: 0,
        events_count: 0,
        at: 0,
        events: Vec::new(),
        changes: vec![change],
        settled: vec![],
        troubled: vec![],
    };
    commit(world, &Batch::checked().create(pages::key(run.row.run, run.last_page + 1), encode(&page)));
}

fn drop_row(world: &World, key: &Key) {
    let version = world.store.read_now(&world.partition(), key).unwrap().unwrap().version;
    commit(world, &Batch::checked().delete_at(key.clone(), version));
}

/// A timer is lost: the runtime forgot it, and its row is gone.
fn lose_timer(world: &World, id: &str, command: CommandId) {
    let mut run = world.run(id).unwrap();
    let lost = run.book.timer_rows(run.row.run).find(|timer| timer.number == command.0).unwrap();
    drop_row(world, &lost.key());
    let (_, cleared) = run.book.clear_timer(command).unwrap();
    change(world, id, cleared);
}

#[test]
fn an_event_whose_timeout_is_not_set_is_found() {
    let mut world = World::new();
    world.publish("wait", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}}));
    world.start("wait", "a");
    world.pass(1_000);
    world.check();
    let timer = *world.run("a").unwrap().book.timers.keys().next().unwrap();
    lose_timer(&world, "a", timer);
    assert_eq!(findings(&world), [format!("it waits for timer {}, which was never set", timer.0)]);
}

#[test]
fn a_workflow_whose_own_timeout_is_not_set_is_found() {
    let mut world = World::new();
    let definition =
        json!({"$schema": "workflow-schema-v1.json", "id": "limited", "version": "1.0.0", "startAt": "Start",
        "configuration": {"timeout": "PT9H"}, "states": {"Start": task("End"), "End": {"type": "succeed"}}})
        .to_string();
    ready(world.definitions.publish(&definition, None, abide_workflow::Timestamp(0))).unwrap();
    world.start("limited", "a");
    world.pass(1_000);
    world.check();
    let timer = *world.run("a").unwrap().book.timers.keys().next().unwrap();
    lose_timer(&world, "a", timer);
    assert_eq!(findings(&world), [format!("it waits for timer {}, which was never set", timer.0)]);
}

#[test]
fn a_timer_without_its_row_is_found_also_the_one_that_looks_after_the_run() {
    let mut world = World::new();
    world.publish("wait", &json!({"Start": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "End"}, "End": {"type": "succeed"}}));
    world.start("wait", "a");
    world.pass(1_000);
    let timers = world.keys(Table::Timer);
    assert_eq!(timers.len(), 2);
    for timer in &timers {
        drop_row(&world, timer);
    }
    let found = findings(&world);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|what| what.ends_with("has no row")), "{found:?}");
}

#[test]
fn a_call_that_failed_and_is_not_made_again_is_found_unless_its_run_is_suspended() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.pass(1_000);
    let key = world.keys(Table::Dispatch).remove(0);
    let row = world.store.read_now(&world.partition(), &key).unwrap().unwrap();
    let call =
        Dispatch { state: DispatchState::FailedRetryable, not_before: None, ..decode(&row.value).unwrap() };
    commit(&world, &Batch::checked().replace(key, row.version, encode(&call)));
    let found = findings(&world);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("which failed and is not made again"), "{found:?}");
    world.order("a", abide_workflow::Message::Suspend { reason: String::new() });
    world.pass(1_000);
    world.check();
}

#[test]
fn damage_is_a_finding_and_hides_no_other() {
    let mut world = World::new();
    world.publish("wait", &json!({"Start": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "End"}, "End": {"type": "succeed"}}));
    for id in ["a", "b", "c"] {
        world.start("wait", id);
    }
    world.pass(1_000);
    let whole = report(&world);
    assert_eq!((whole.findings.len(), whole.instances), (0, 3));
    world.store.damage(&world.partition(), instances::key("b"), instances::key("b"));
    let run = world.run("c").unwrap();
    let timer = run.book.timer_rows(run.row.run).next().unwrap();
    drop_row(&world, &timer.key());
    let report = report(&world);
    assert_eq!(report.instances, 2);
    let about = |wanted: &str| report.findings.iter().filter(|finding| finding.what.contains(wanted)).count();
    assert_eq!((about("cannot be read: by order"), about("has no row")), (1, 1), "{:#?}", report.findings);
}
