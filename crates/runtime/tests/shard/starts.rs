//! Beginning runs: once per id, once per key, in as few rows as promised.

use abide_runtime::{Event, Refused, Repeat, Reply, Request};
use abide_store::rows::CommitOutcome;
use serde_json::json;

use crate::world::{World, name, task};

fn steps(world: &World) {
    let states = json!({"Start": task("B"), "B": task("C"), "C": task("End"), "End": {"type": "succeed", "output": "$.state.x"}});
    world.publish("steps", &states);
}

#[test]
fn three_steps_are_17_rows_in_four_commits_and_3_rows_later_within_6_kib() {
    let mut world = World::new();
    steps(&world);
    let (commits, rows, bytes) = (world.commits, world.rows, world.bytes);
    world.start("steps", "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e");
    for _ in 0..3 {
        world.complete();
    }
    assert_eq!(world.status("0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e"), "Completed");
    assert_eq!((world.commits - commits, world.rows - rows), (4, 17));
    // What is deleted and kept in mind afterwards rides in later commits: a deletion, an expiry, their head.
    world.pass(5_000);
    let (rows, bytes) = (world.rows - rows, world.bytes - bytes);
    println!("{rows} rows, {bytes} bytes");
    assert!(rows == 17 + 3 && bytes <= 6 * 1024, "{rows} rows, {bytes} bytes");
    world.check();
}

#[test]
fn of_many_starts_of_one_id_one_begins_and_the_others_are_told_who_lives() {
    let mut world = World::new();
    steps(&world);
    let tickets: Vec<_> = (0..64).map(|_| world.next_ticket()).collect();
    let requests: Vec<_> = tickets
        .iter()
        .map(|ticket| Event::Asked(*ticket, world.start_request("steps", "one", None)))
        .collect();
    world.tell_all(requests);
    let replies: Vec<Reply> = tickets.into_iter().map(|ticket| world.reply_to(ticket).unwrap()).collect();
    let begun = replies.iter().filter(|reply| matches!(reply, Reply::Started(_))).count();
    let live = |reply: &&Reply| matches!(reply, Reply::Refused(Refused::Live { run, .. }) if run.0 == 1);
    assert_eq!((begun, replies.iter().filter(live).count()), (1, 63));
}

#[test]
fn a_refusal_that_speaks_of_a_run_waits_until_the_run_is_durable() {
    let mut world = World::new();
    steps(&world);
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
    let request = world.start_request("steps", "one", None);
    let first = world.ask_later(request);
    let request = world.start_request("steps", "one", None);
    let second = world.ask_later(request);
    assert!(world.replies.is_empty(), "{:?}", world.replies);
    world.pass(1_000);
    assert!(matches!(world.reply_to(first), Some(Reply::Started(_))));
    assert!(matches!(world.reply_to(second), Some(Reply::Refused(Refused::Live { .. }))));
}

#[test]
fn a_start_that_comes_again_with_its_key_is_answered_as_before_for_as_long_as_promised() {
    let mut world = World::new();
    steps(&world);
    let repeat = Repeat::new([1; 32], [2; 32]);
    let started = |world: &mut World, repeat| {
        let request = world.start_request("steps", "one", Some(repeat));
        world.ask(request)
    };
    let Reply::Started(first) = started(&mut world, repeat) else { panic!("not started") };
    let again = |world: &mut World, when: &str| match started(world, repeat) {
        Reply::Started(again) => assert_eq!(again, first, "{when}"),
        other => panic!("{when}: {other:?}"),
    };
    again(&mut world, "in memory");
    world.crash();
    again(&mut world, "after a crash");
    (0..3).for_each(|_| drop(world.complete()));
    again(&mut world, "after the end");
    let other = Repeat { payload: [3; 32], ..repeat };
    assert!(matches!(started(&mut world, other), Reply::Refused(Refused::KeyReused)));
    world.pass(8 * 24 * 3_600_000);
    let Reply::Started(later) = started(&mut world, repeat) else { panic!("not started") };
    assert_eq!(later.run.0, 2, "the window is over and the run has ended");
    world.check();
}

#[test]
fn a_key_is_recognised_though_the_run_was_loaded_for_something_else() {
    let mut world = World::new();
    world.publish("wait", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    let repeat = Some(Repeat::new([1; 32], [2; 32]));
    let request = world.start_request("wait", "one", repeat);
    world.ask(request);
    world.crash();
    world.raise("one", "other");
    let request = world.start_request("wait", "one", repeat);
    assert!(matches!(world.ask(request), Reply::Started(_)));
}

#[test]
fn an_id_may_be_started_again_when_its_run_has_ended_and_the_new_run_is_new_work() {
    let mut world = World::new();
    steps(&world);
    world.start("steps", "one");
    let first = (0..3).map(|_| world.complete().metadata).collect::<Vec<_>>();
    world.start("steps", "one");
    let second = (0..3).map(|_| world.complete().metadata).collect::<Vec<_>>();
    assert_eq!(world.run("one").unwrap().row.run_number, 2);
    for (first, second) in first.iter().zip(&second) {
        assert_ne!(first.idempotency_key, second.idempotency_key);
        assert_eq!((first.execution_id.as_str(), second.execution_id.as_str()), ("one/1", "one/2"));
    }
    let restarted = world.ask(Request::Restart { instance_id: name("one") });
    assert!(matches!(restarted, Reply::Started(started) if started.run.0 == 3));
    assert!(matches!(
        world.ask(Request::Restart { instance_id: name("one") }),
        Reply::Refused(Refused::Live { .. })
    ));
    world.pass(1_000);
    world.check();
}

#[test]
fn who_waits_for_the_end_is_told_when_it_is_durable() {
    let mut world = World::new();
    steps(&world);
    world.start("steps", "one");
    let waiting = world.ask_later(Request::AwaitEnd { instance_id: name("one"), run: None });
    world.complete();
    world.complete();
    assert!(world.replies.is_empty());
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
    world.complete();
    assert!(world.replies.is_empty(), "the last commit has failed");
    world.pass(1_000);
    let Some(Reply::Ended(view)) = world.reply_to(waiting) else { panic!("not told") };
    assert_eq!(view.output, Some(json!({"ok": true}).into()));
    assert!(
        matches!(world.ask(Request::AwaitEnd { instance_id: name("one"), run: None }), Reply::Ended(_)),
        "from the store"
    );
    assert!(matches!(
        world.ask(Request::AwaitEnd { instance_id: name("two"), run: None }),
        Reply::Refused(Refused::NotFound { .. })
    ));
}
