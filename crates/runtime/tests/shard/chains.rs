//! Runs that continue as new, one after the other: no event is lost, and what spins is set aside.

use abide_runtime::{Notice, Refused, Reply};
use abide_store::rows::{CommitOutcome, Limits};
use abide_store::tables::Table;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::world::{World, task};

fn suspend() -> Message {
    Message::Suspend { reason: String::new() }
}

fn resume() -> Message {
    Message::Resume { reason: String::new() }
}

fn terminate() -> Message {
    Message::Terminate { reason: "enough".to_owned() }
}

/// One event per run.
fn publish_loop(world: &World) {
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    let again = json!({"type": "continueAsNew", "input": {"large": "$.input.large"}});
    world.publish("loop", &json!({"Start": gate, "Again": again}));
}

fn publish_spinner(world: &World) {
    world.publish("spinner", &json!({"Start": {"type": "continueAsNew", "input": {}}}));
}

fn large(bytes: usize) -> Value {
    json!({"large": "x".repeat(bytes)})
}

/// Raises events for a run that is suspended.
fn raise_all(world: &mut World, events: usize) {
    assert!(matches!(world.order("a", suspend()), Reply::Accepted));
    for _ in 0..events {
        assert!(matches!(world.raise("a", "go"), Reply::Accepted));
    }
}

/// The run waits for the next event, and has taken as many as were raised.
fn assert_taken(world: &World, events: u32) {
    let run = world.run("a").unwrap();
    assert_eq!((run.row.run_number, run.instance.untaken_events()), (events + 1, Vec::new()));
    assert_eq!((world.status("a").as_str(), &world.stopped), ("Running", &None));
    world.check();
}

#[test]
fn every_event_of_a_loop_is_taken_however_many_were_raised_while_it_was_suspended() {
    // Small ones all go into one commit; with large inputs that takes several.
    for bytes in [10, 500_000] {
        let mut world = World::new();
        publish_loop(&world);
        world.start_with("loop", "a", large(bytes));
        raise_all(&mut world, 20);
        assert!(matches!(world.order("a", resume()), Reply::Accepted));
        assert_taken(&world, 20);
        assert!(matches!(world.raise("a", "go"), Reply::Accepted));
        world.crash();
        assert_taken(&world, 21);
    }
}

#[test]
fn no_event_is_lost_between_runs_whichever_commit_is_the_last_before_a_crash() {
    // Several runs go into one commit, and all of them into several.
    for crash_at in 0..12 {
        let mut world = World::on(Limits::LEAST, |_| {});
        publish_loop(&world);
        world.start_with("loop", "a", large(100_000));
        raise_all(&mut world, 20);
        world.outcomes.extend((0..crash_at).map(|_| None));
        world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "dying".to_owned() }));
        let order =
            abide_runtime::Request::Deliver { instance_id: crate::world::name("a"), message: resume() };
        world.ask_later(order);
        world.outcomes.clear();
        world.crash();
        if world.status("a") == "Suspended" {
            world.order("a", resume());
        }
        assert_taken(&world, 20);
    }
}

#[test]
fn a_run_that_spins_is_set_aside_with_a_reason_and_can_be_ended() {
    let mut world = World::new();
    publish_spinner(&world);
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("spinner", "a");
    let reason = world.parked("a").unwrap();
    assert!(reason.contains("continued as new"), "{reason}");
    let told = |notice: &&Notice| matches!(notice, Notice::Parked { .. });
    assert_eq!(world.notices.iter().filter(told).count(), 1);
    for _ in 0..2 {
        assert!(matches!(world.raise("a", "go"), Reply::Refused(Refused::Parked { .. })));
        world.check();
        world.crash();
        assert_eq!(world.parked("a").as_ref(), Some(&reason), "a restart does not move it");
    }
    let before = world.run("a").unwrap().row.run_number;
    assert!(matches!(world.order("a", resume()), Reply::Accepted));
    assert!(world.run("a").unwrap().row.run_number > before, "who resumes it has looked at it");
    assert_eq!(world.parked("a").as_ref(), Some(&reason));
    world.check();
    assert!(matches!(world.order("a", terminate()), Reply::Accepted));
    assert_eq!((world.status("a").as_str(), world.parked("a")), ("Terminated", None));
    assert_eq!(world.keys(Table::Inbox), [], "no note to go on is left");
    world.check();
    world.start("one", "a");
    world.complete();
    assert_eq!(world.status("a"), "Completed", "its id can be used again");
    world.pass(2_000);
    world.check();
}

#[test]
fn a_child_that_spins_can_be_ended_and_its_parent_is_told() {
    let mut world = World::new();
    publish_spinner(&world);
    let child = json!({"type": "workflow", "workflow": "spinner", "next": "End"});
    world.publish("parent", &json!({"Start": child, "End": {"type": "succeed"}}));
    world.start("parent", "p");
    let child = "p~1.1";
    assert!(world.parked(child).is_some());
    world.crash();
    assert_eq!(world.status("p"), "Running");
    assert!(matches!(world.order(child, terminate()), Reply::Accepted));
    assert_eq!(world.status("p"), "Failed");
    world.check();
}
