//! The public table of instances: it ends where the truth is, says why a run failed, and forgets what is forgotten.

use abide_runtime::{Reply, Request};
use abide_store::public::{PublicRow, PublicTables, PublicWrite};
use abide_store::rows::Batch;
use abide_store::tables::Table;
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_workflow::{Duration, Message};
use serde_json::{Value, json};

use crate::world::{World, failure, name, ready, task};

fn row(world: &World, id: &str, run: u32) -> Option<PublicRow> {
    ready(world.store.get(&SCHEMA, &public_instances::key(id, run))).unwrap()
}

fn status(world: &World, id: &str, run: u32) -> Option<String> {
    row(world, id, run)?.text("Status").map(str::to_owned)
}

fn error(world: &World, id: &str, run: u32) -> Option<Value> {
    serde_json::from_str(row(world, id, run)?.text("Error")?).ok()
}

fn waiting(next: &str) -> Value {
    json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": next})
}

fn kept_for_an_hour() -> World {
    World::with(|config| config.retention = Duration::hours(1))
}

#[test]
fn the_row_of_a_run_that_was_replaced_goes_with_the_run() {
    let mut world = kept_for_an_hour();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.complete();
    world.pass(1_800_000);
    world.start("one", "a");
    world.pass(1_700_000);
    let both = (status(&world, "a", 1), status(&world, "a", 2));
    assert_eq!(both, (Some("Completed".to_owned()), Some("Running".to_owned())));
    world.pass(300_000);
    let second = (status(&world, "a", 1), status(&world, "a", 2));
    assert_eq!(second, (None, Some("Running".to_owned())));
    world.complete();
    world.pass(4_000_000);
    assert_eq!((status(&world, "a", 1), status(&world, "a", 2)), (None, None));
    world.check();
}

#[test]
fn two_expiries_of_one_run_hide_its_last_state_whichever_comes_first() {
    let mut world = kept_for_an_hour();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.answer(failure(false));
    world.pass(1_000);
    world.order("a", Message::Rewind { reason: String::new() });
    world.complete();
    world.pass(1_000);
    assert!(matches!(world.ask(Request::Restart { instance_id: name("a") }), Reply::Started(_)));
    world.pass(3_500_000);
    assert_eq!(status(&world, "a", 1).as_deref(), Some("Completed"));
    world.pass(300_000);
    assert_eq!((status(&world, "a", 1), status(&world, "a", 2)), (None, Some("Running".to_owned())));
    world.check();
}

#[test]
fn the_rows_of_a_chain_of_runs_go_one_by_one_also_over_a_crash() {
    let mut world = kept_for_an_hour();
    let states =
        json!({"Start": waiting("Next"), "Next": {"type": "continueAsNew", "input": {"id": "$.input.id"}}});
    world.publish("chain", &states);
    world.start("chain", "a");
    for _ in 0..5 {
        assert!(matches!(world.raise("a", "go"), Reply::Accepted));
        world.crash();
        world.pass(600_000);
    }
    let shown = |world: &World| (1..=6).filter_map(|run| status(world, "a", run)).collect::<Vec<_>>();
    let continued = "ContinuedAsNew";
    assert_eq!(shown(&world), [continued, continued, continued, continued, continued, "Running"]);
    world.pass(1_500_000);
    assert_eq!(shown(&world), [continued, continued, continued, "Running"], "two ended over an hour ago");
    world.pass(3_600_000);
    assert_eq!(shown(&world), ["Running"]);
    world.check();
}

#[test]
fn what_an_owner_showed_before_it_died_does_not_hide_what_comes_after() {
    let mut world = World::new();
    world.publish("wait", &json!({"Start": waiting("End"), "End": {"type": "succeed"}}));
    let others: Vec<String> = (0..20).map(|number| format!("other-{number:02}")).collect();
    for id in &others {
        world.start("wait", id);
    }
    world.start("wait", "x");
    // The next owner shows all of them, this one last, and dies before anything of it is durable.
    world.crash();
    world.pass(100);
    assert_eq!(status(&world, "x", 1).as_deref(), Some("Running"));
    // The one after that shows this one first.
    world.away = others.iter().map(|id| name(id)).collect();
    world.crash();
    assert!(matches!(world.raise("x", "go"), Reply::Accepted));
    world.pass(5_000);
    world.away.clear();
    world.pass(5_000);
    assert_eq!(status(&world, "x", 1).as_deref(), Some("Completed"));
    assert_eq!(status(&world, "other-07", 1).as_deref(), Some("Running"));
    world.check();
}

#[test]
fn a_failed_run_says_why_in_public_whoever_shows_it() {
    let expected = json!({"code": "Broken", "message": "it is", "state": "Start"});
    // Shown by who saw it fail; by the next owner; while another run takes the id over; by the next owner, then.
    for (crashes, restarts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new();
        world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
        world.start("one", "a");
        world.answer(failure(false));
        if restarts {
            world.start("one", "a");
        }
        if crashes {
            assert_eq!(row(&world, "a", 1), None, "not yet");
            world.crash();
        }
        world.pass(3_000);
        assert_eq!(status(&world, "a", 1).as_deref(), Some("Failed"));
        assert_eq!(error(&world, "a", 1), Some(expected.clone()), "crash {crashes}, another run {restarts}");
        world.order("a", Message::Rewind { reason: String::new() });
        world.pass(3_000);
        assert_eq!(error(&world, "a", if restarts { 2 } else { 1 }), None, "it runs");
        world.check();
    }
}

#[test]
fn a_long_story_of_a_failure_is_cut_and_a_run_set_aside_says_so() {
    let mut world = World::new();
    let states =
        json!({"Start": {"type": "task", "activity": "work", "next": "End"}, "End": {"type": "succeed"}});
    world.publish("one", &states);
    world.start("one", "a");
    let long = abide_dispatch::Failure::for_good("Long", "ö".repeat(2_000));
    world.answer(abide_dispatch::Answer::Failed(long));
    world.pass(3_000);
    let told = error(&world, "a", 1).unwrap();
    let message = told["message"].as_str().unwrap();
    assert_eq!(message, format!("{}…", "ö".repeat(512)));
    world.start("one", "b");
    let (partition, page) = (world.partition(), world.keys(Table::Page).pop().unwrap());
    let version = world.store.read_now(&partition, &page).unwrap().unwrap().version;
    world.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
    world.crash();
    world.pass(3_000);
    assert_eq!(status(&world, "b", 1).as_deref(), Some("Parked"));
    assert_eq!(error(&world, "b", 1).unwrap()["code"], "Parked");
}

#[test]
fn a_write_that_comes_after_a_purge_is_undone_when_the_id_is_forgotten() {
    let mut world = kept_for_an_hour();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.complete();
    world.pass(1_000);
    let shown = row(&world, "a", 1).unwrap();
    assert!(matches!(world.ask(Request::Purge { instance_id: name("a"), run: None }), Reply::Purged));
    world.pass(1_000);
    assert_eq!(row(&world, "a", 1), None);
    // A former owner's, on its way for long.
    ready(world.store.put(&SCHEMA, vec![PublicWrite::Put(shown)])).unwrap();
    world.pass(8 * 24 * 3_600_000);
    assert_eq!(row(&world, "a", 1), None);
}

#[test]
fn what_is_left_of_a_former_life_of_an_id_does_not_touch_the_row_of_a_later_one() {
    let mut world = World::with(|config| {
        config.retention = Duration::hours(1);
        config.repeat_window = Duration::seconds(60);
    });
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.complete();
    world.pass(1_000);
    assert!(matches!(world.ask(Request::Purge { instance_id: name("a"), run: None }), Reply::Purged));
    world.pass(300_000);
    world.start("one", "a");
    assert_eq!(world.calls[0].1.metadata.execution_id, "a/1", "the id was forgotten");
    world.pass(3_600_000);
    assert_eq!(status(&world, "a", 1).as_deref(), Some("Running"));
    world.complete();
    world.pass(1_000);
    assert_eq!(status(&world, "a", 1).as_deref(), Some("Completed"));
    world.check();
}
