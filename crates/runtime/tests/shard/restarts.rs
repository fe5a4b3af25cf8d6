//! What survives a crash: timers, children, unfinished turns, events; and what going down in order does.

use std::collections::BTreeMap;

use abide_runtime::event::CallId;
use abide_runtime::post::{self, Post};
use abide_runtime::{Event, Notice, Refused, Reply, Request, Stopped};
use abide_store::rows::{Batch, CommitOutcome, Limits};
use abide_store::tables::dispatches::{Dispatch, DispatchState};
use abide_store::tables::{Table, decode, encode, heads, inbox};
use abide_workflow::{CommandId, Message};
use serde_json::json;

use crate::world::{EPOCH_MS, World, failure, name, task};

fn wait(duration: &str) -> serde_json::Value {
    json!({"Start": {"type": "wait", "waitType": "duration", "duration": duration, "next": "End"}, "End": {"type": "succeed"}})
}

#[test]
fn a_timer_fires_once_also_when_it_was_due_while_nobody_was_there() {
    let mut world = World::new();
    world.publish("wait", &wait("PT10M"));
    world.start("wait", "a");
    world.pass(20_000);
    assert_eq!(world.shard.instances_in_memory(), 0, "a run that waits need not stay in memory");
    world.crash();
    world.pass(570_000);
    assert_eq!(world.status("a"), "Running");
    world.pass(11_000);
    assert_eq!(world.status("a"), "Completed");
    assert_eq!(world.keys(Table::Timer), []);
    world.check();
}

#[test]
fn overdue_timers_are_taken_up_at_their_rate_and_fresh_work_does_not_wait_for_them() {
    let mut world = World::with(|config| config.overdue_per_second = 10);
    world.publish("wait", &wait("PT1M"));
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    for number in 0..100 {
        world.start("wait", &format!("w-{number:03}"));
    }
    // Nobody is there when they become due.
    world.config.incarnation += 1;
    world.jump(120_000);
    world.crash();
    let ended =
        |world: &World| (0..100).filter(|n| world.status(&format!("w-{n:03}")) == "Completed").count();
    world.pass(2_000);
    assert!((15..=25).contains(&ended(&world)), "{}", ended(&world));
    world.start("one", "fresh");
    assert_eq!(world.calls.len(), 1);
    world.pass(9_000);
    assert_eq!(ended(&world), 100);
    world.check();
}

/// Runs of several branches, each in its second call when the process dies: what is delivered again, and after how many milliseconds.
fn overdue_calls(per_second: u32) -> Vec<(u64, CallId)> {
    let branch = json!({"startAt": "One", "states": {"One": task("Two"), "Two": task("Done"), "Done": {"type": "succeed"}}});
    let states = json!({"Start": {"type": "parallel", "branches": vec![branch; BRANCHES], "next": "End"}, "End": {"type": "succeed"}});
    let mut world = World::with(|config| config.overdue_per_second = per_second);
    world.publish("wide", &states);
    for run in 0..RUNS {
        world.start("wide", &format!("w-{run}"));
    }
    // The last branches first, two of each run at the same moment: the calls of a run are not next to each other, and not in the order of their
    // branches.
    world.calls.make_contiguous().sort_by_key(|(id, _)| std::cmp::Reverse(id.command));
    for _ in 0..BRANCHES / 2 {
        (0..RUNS * 2).for_each(|_| drop(world.complete()));
        world.pass(100);
    }
    assert_eq!(world.calls.len(), RUNS * BRANCHES);
    world.jump(60_000);
    world.crash();
    let mut taken = Vec::new();
    for ms in 0..10_000 {
        taken.extend(world.calls.drain(..).map(|(id, _)| (ms, id)));
        world.pass(1);
    }
    world.check();
    taken
}

const RUNS: usize = 5;
const BRANCHES: usize = 6;

#[test]
fn overdue_calls_are_taken_up_at_their_rate_in_the_order_of_their_commands_and_always_alike() {
    let taken = overdue_calls(10);
    assert_eq!(taken.len(), RUNS * BRANCHES, "each of them once: {taken:?}");
    for (before, (ms, id)) in taken.iter().enumerate() {
        assert!(before as u64 <= ms / 100, "{id:?} after {ms} ms and {before} others");
    }
    assert!(taken.last().is_some_and(|(ms, _)| *ms <= 4_000), "nor much slower: {taken:?}");
    let mut instances: BTreeMap<&str, Vec<CommandId>> = BTreeMap::new();
    for (_, id) in &taken {
        assert_eq!(id.attempt, 1, "{id:?}");
        instances.entry(id.instance_id.as_str()).or_default().push(id.command);
    }
    assert_eq!(instances.len(), RUNS);
    for (id, commands) in instances {
        assert!(commands.is_sorted_by(|one, next| one < next), "{id}: {commands:?}");
    }
    assert!(!taken.is_sorted_by_key(|(_, id)| id.instance_id.as_str()), "one instance after the other");
    assert_eq!(taken, overdue_calls(10), "another time");
}

/// A message for nobody: it is looked up, found to be for nobody, and deleted.
fn leave_message(world: &World, number: u64) {
    let waiting = inbox::Waiting {
        instance_id: format!("nobody-{number}"),
        received_at: EPOCH_MS - 1,
        message: post::encode(&Post::Continue { run: 7 }),
    };
    let batch = Batch::checked().create(inbox::key(1_000_000 + number), encode(&waiting));
    world.store.commit_now(&world.partition(), &batch);
}

#[test]
fn messages_found_after_a_restart_are_taken_up_at_their_rate_and_leave_clients_their_room() {
    let mut world = World::with(|config| {
        config.overdue_per_second = 10;
        config.waiting_max = 8;
    });
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    (0..100).for_each(|number| leave_message(&world, number));
    world.jump(60_000);
    world.crash();
    let left = |world: &World| world.keys(Table::Inbox).len();
    assert!(left(&world) > 90, "{}", left(&world));
    for number in 0..8 {
        world.start("one", &format!("i-{number}"));
    }
    world.pass(3_000);
    assert!((60..=80).contains(&left(&world)), "{}", left(&world));
    world.pass(10_000);
    assert_eq!(left(&world), 0);
    world.check();
}

#[test]
fn a_message_found_after_a_restart_comes_before_what_is_sent_later() {
    let mut world = World::with(|config| config.overdue_per_second = 1);
    world.publish("child", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    world.publish("parent", &json!({"Start": {"type": "workflow", "workflow": "child", "next": "End"}, "End": {"type": "succeed"}}));
    // The process dies when the child is promised and has not begun.
    let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
    world.outcomes.extend([None, Some(lost)]);
    world.start("parent", "p");
    assert!(world.run("p~1.1").is_none());
    assert_eq!(world.keys(Table::Inbox).len(), 1);
    (0..3).for_each(|number| leave_message(&world, number));
    world.outcomes.clear();
    world.jump(60_000);
    world.crash();
    assert!(world.run("p~1.1").is_none(), "it waits for its turn");
    world.order("p", Message::Terminate { reason: String::new() });
    world.pass(10_000);
    assert_eq!((world.status("p").as_str(), world.status("p~1.1").as_str()), ("Terminated", "Terminated"));
    world.check();
}

#[test]
fn a_timer_that_is_not_wanted_any_more_leaves_nothing_behind_also_after_a_reload() {
    let mut world = World::new();
    let states = json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}});
    world.publish("wait", &states);
    world.start("wait", "a");
    assert_eq!(world.keys(Table::Timer).len(), 2, "its timeout, and when it counts as stuck");
    world.crash();
    assert!(matches!(world.raise("a", "go"), Reply::Accepted));
    assert_eq!(world.keys(Table::Timer), []);
    assert!(matches!(world.raise("a", "go"), Reply::Refused(Refused::Message(_))), "it has ended");
    assert!(matches!(world.raise("b", "go"), Reply::Refused(Refused::NotFound { .. })));
    world.check();
}

#[test]
fn a_run_is_called_stuck_once_with_what_it_waits_for() {
    let mut world = World::new();
    let states = json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}});
    let definition = json!({"$schema": "workflow-schema-v1.json", "id": "slow", "version": "1.0.0", "startAt": "Start",
        "configuration": {"stuckAfter": "PT1H"}, "states": states});
    crate::world::ready(world.definitions.publish(
        &definition.to_string(),
        None,
        abide_workflow::Timestamp(0),
    ))
    .unwrap();
    world.start("slow", "a");
    world.pass(3_590_000);
    world.crash();
    let stuck = |world: &World| {
        world
            .notices
            .iter()
            .filter_map(|n| if let Notice::Stuck { why, .. } = n { Some(why.clone()) } else { None })
            .collect::<Vec<_>>()
    };
    assert_eq!(stuck(&world), Vec::<String>::new());
    world.pass(20_000);
    assert_eq!(stuck(&world).len(), 1);
    assert!(stuck(&world)[0].contains("event go since"), "{:?}", stuck(&world));
    world.crash();
    world.pass(7_200_000);
    assert_eq!(stuck(&world).len(), 1, "told once");
    world.check();
}

fn times_stuck(world: &World) -> usize {
    world.notices.iter().filter(|notice| matches!(notice, Notice::Stuck { .. })).count()
}

#[test]
fn a_run_that_is_always_in_a_short_call_is_called_stuck_all_the_same() {
    let mut world = World::new();
    let again = json!({"type": "choice", "default": "Start", "choices":
        [{"when": {"path": "$.state.x.last", "op": "eq", "value": true}, "next": "End"}]});
    let states = json!({"Start": task("Again"), "Again": again, "End": {"type": "succeed"}});
    world.publish_with("busy", &json!({"stuckAfter": "PT1M"}), &states);
    world.start("busy", "a");
    for _ in 0..6 {
        assert_eq!((times_stuck(&world), world.keys(Table::Timer)), (0, vec![]), "it is young");
        world.pass(9_000);
        world.complete();
    }
    for _ in 0..20 {
        world.pass(9_000);
        world.complete();
    }
    assert_eq!(times_stuck(&world), 1);
    world.crash();
    world.pass(9_000);
    world.check();
    world.answer(abide_dispatch::Answer::Completed(json!({"last": true}).into()));
    assert_eq!((times_stuck(&world), world.status("a").as_str()), (1, "Completed"));
    world.check();
}

#[test]
fn a_run_whose_first_delivery_waits_and_waits_is_called_stuck() {
    // Runs that rest stay in memory, or do not.
    for resting_bytes_max in [usize::MAX, 0] {
        let mut world = World::with(|config| config.resting_bytes_max = resting_bytes_max);
        let states = json!({"Start": task("End"), "End": {"type": "succeed"}});
        world.publish_with("slow", &json!({"stuckAfter": "PT10M"}), &states);
        world.start("slow", "a");
        world.pass(590_000);
        assert_eq!(times_stuck(&world), 0);
        assert_eq!(world.keys(Table::Timer).len(), 1);
        world.check();
        world.pass(20_000);
        assert_eq!(times_stuck(&world), 1);
        world.pass(3_600_000);
        world.complete();
        assert_eq!((times_stuck(&world), world.status("a").as_str()), (1, "Completed"));
        world.check();
    }
}

#[test]
fn a_child_is_started_once_and_its_end_reaches_its_parent_once_whatever_crashes() {
    for crash_at in 0..12 {
        let mut world = World::new();
        world.publish("parent", &json!({"Start": {"type": "workflow", "workflow": "child", "input": {"id": 1}, "output": "$.state.x", "next": "End"}, "End": {"type": "succeed", "output": "$.state.x"}}));
        world.publish(
            "child",
            &json!({"Start": task("End"), "End": {"type": "succeed", "output": "$.state.x"}}),
        );
        // Every commit from this one on is lost until the process dies.
        let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
        for _ in 0..crash_at {
            world.outcomes.push_back(None);
        }
        world.outcomes.push_back(Some(lost));
        let request = world.start_request("parent", "p", None);
        let ticket = world.ask_later(request);
        while !world.calls.is_empty() && world.outcomes.iter().any(Option::is_some) {
            world.complete();
        }
        let acknowledged = world.reply_to(ticket).is_some();
        world.outcomes.clear();
        world.crash();
        if !acknowledged && world.run("p").is_none() {
            world.start("parent", "p");
        }
        world.pass(2_000);
        while !world.calls.is_empty() {
            world.complete();
        }
        world.pass(2_000);
        assert_eq!(world.status("p"), "Completed", "crash at commit {crash_at}");
        world.check();
    }
}

#[test]
fn a_parent_whose_child_cannot_be_is_told_and_children_end_with_their_parent() {
    let mut world = World::new();
    world.publish("child", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    let parent = |workflow: &str| json!({"Start": {"type": "workflow", "workflow": workflow, "next": "End"}, "End": {"type": "succeed"}});
    world.publish("lonely", &parent("nobody"));
    world.publish("parent", &parent("child"));
    world.start("lonely", "a");
    assert_eq!(world.status("a"), "Failed");
    world.start("parent", "p");
    assert_eq!(world.status("p~1.1"), "Running");
    world.order("p", Message::Terminate { reason: String::new() });
    assert_eq!((world.status("p").as_str(), world.status("p~1.1").as_str()), ("Terminated", "Terminated"));
    world.check();
}

#[test]
fn a_long_fan_out_goes_on_after_a_crash_in_its_middle() {
    let mut world = World::with(|config| {
        config.run.turn.commands_max = 40;
        config.run.turn.steps_max = 10;
    });
    world.publish("map", &json!({"Start": {"type": "map", "items": "$.input.items", "output": "$.state.all", "next": "End", "iterator": {
        "startAt": "Do", "states": {"Do": task("Done"), "Done": {"type": "succeed", "output": "$.state.x"}}}},
        "End": {"type": "succeed", "output": "$.state.all"}}));
    let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
    world.outcomes.extend([None, None, Some(lost)]);
    let mut request = world.start_request("map", "a", None);
    if let Request::Start(start) = &mut request {
        let items: Vec<u32> = (0..200).collect();
        start.input = json!({"id": "a", "items": items}).into();
    }
    world.ask_later(request);
    assert!(world.calls.len() < 200, "{}", world.calls.len());
    world.outcomes.clear();
    world.crash();
    world.pass(1_000);
    assert_eq!(world.calls.len(), 200);
    (0..200).for_each(|_| drop(world.complete()));
    world.pass(1_000);
    assert_eq!(world.status("a"), "Completed");
    world.check();
}

#[test]
fn going_down_in_order_takes_nothing_new_records_what_was_not_sent_and_gives_the_shard_up() {
    let mut world = World::new();
    world.publish("two", &json!({"Start": task("B"), "B": task("End"), "End": {"type": "succeed"}}));
    world.start("two", "a");
    world.tell(Event::Drain);
    assert_eq!(world.stopped, None, "a call is out");
    let request = world.start_request("two", "b", None);
    assert!(matches!(world.ask(request), Reply::Refused(Refused::Draining)));
    world.complete();
    assert_eq!(world.stopped, Some(Stopped::Drained));
    assert_eq!(world.calls.len(), 0, "the second call was not made");
    let head = world.store.read_now(&world.partition(), &heads::key()).unwrap().unwrap();
    assert_eq!(decode::<heads::Head>(&head.value).unwrap().owner, "");
    let key = world.keys(Table::Dispatch).remove(0);
    let call: Dispatch =
        decode(&world.store.read_now(&world.partition(), &key).unwrap().unwrap().value).unwrap();
    assert_eq!((call.state, call.attempt), (DispatchState::Pending, 0));
    world.crash();
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 0, "it was surely not sent");
    world.complete();
    assert_eq!(world.status("a"), "Completed");
}

#[test]
fn a_run_of_many_turns_is_folded_and_loads_as_it_was() {
    let mut world = World::new();
    let states = json!({
        "Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.last", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.state.last", "op": "eq", "value": "end"}, "next": "End"}], "default": "Start"},
        "End": {"type": "succeed"}});
    world.publish("long", &states);
    world.start("long", "a");
    for _ in 0..100 {
        world.raise("a", "go");
    }
    let run = world.run("a").unwrap();
    assert!(run.row.folded_turn > 60, "{}", run.row.folded_turn);
    assert!(run.unfolded.len() < 10);
    world.crash();
    let payload = json!("end").into();
    world.order("a", Message::EventRaised { name: "go".to_owned(), payload });
    assert_eq!(world.status("a"), "Completed");
    world.check();
}

#[test]
fn failures_of_one_branch_do_not_disturb_another_run() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.start("one", "b");
    world.answer(failure(false));
    world.complete();
    assert_eq!((world.status("a").as_str(), world.status("b").as_str()), ("Failed", "Completed"));
    let purged = world.ask(Request::Purge { instance_id: name("a"), run: None });
    assert!(matches!(purged, Reply::Purged));
}

#[test]
fn calls_that_wait_through_many_orderly_restarts_are_neither_poison_nor_counted() {
    for (failed, dropped) in [(0, false), (0, true), (1, true)] {
        let mut world = World::new();
        world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
        world.start("one", "a");
        for _ in 0..failed {
            world.answer(failure(true));
            world.pass(60_000);
        }
        for _ in 0..7 {
            let (id, call) = world.calls.pop_front().unwrap();
            assert_eq!((call.metadata.retry_attempt, call.ask_first), (failed, false));
            if dropped {
                world.pass(20_000);
                assert_eq!(world.shard.instances_in_memory(), 0);
            }
            world.tell_all([Event::Drain, Event::Withdrawn(id)]);
            assert_eq!(world.stopped.take(), Some(Stopped::Drained), "nothing is out any more");
            world.crash();
            world.pass(1_000);
        }
        world.complete();
        assert_eq!(world.status("a"), "Completed");
        assert_eq!(world.settled("a")[0].attempt, failed);
        world.pass(1_000);
        world.check();
    }
}

#[test]
fn a_call_that_was_answered_or_sent_again_is_not_taken_back() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    let (first, _) = world.calls.front().cloned().unwrap();
    world.answer(failure(true));
    world.pass(60_000);
    let (second, _) = world.calls.front().cloned().unwrap();
    assert_eq!((first.attempt, second.attempt), (0, 1));
    world.tell(Event::Withdrawn(first));
    let row = world.run("a").unwrap().calls.remove(0).dispatch;
    assert_eq!((row.state, row.unsent), (DispatchState::Sent, false));
    world.tell_all([
        Event::Answered(second.clone(), abide_dispatch::Answer::Completed(json!(1).into())),
        Event::Withdrawn(second),
    ]);
    assert_eq!(world.status("a"), "Completed");
    world.pass(1_000);
    world.check();
}

#[test]
fn a_shard_is_given_up_with_the_last_of_what_it_writes_and_not_before() {
    let mut world = World::on(Limits::AZURE, |_| {});
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    for number in 0..250 {
        world.start("one", &format!("a{number}"));
    }
    let owner = |world: &World| {
        let head = world.store.read_now(&world.partition(), &heads::key()).unwrap().unwrap();
        decode::<heads::Head>(&head.value).unwrap().owner
    };
    // The second of several commits does not get through: whoever looks now sees an owner.
    world.outcomes.extend([None, Some(CommitOutcome::Unavailable { reason: "away".to_owned() })]);
    let waiting: Vec<Event> = world.calls.drain(..).map(|(id, _)| Event::Withdrawn(id)).collect();
    assert_eq!(waiting.len(), 250);
    world.tell_all([Event::Drain].into_iter().chain(waiting));
    assert_eq!((owner(&world).as_str(), &world.stopped), ("node-1", &None));
    world.pass(10_000);
    assert_eq!((owner(&world).as_str(), &world.stopped), ("", &Some(Stopped::Drained)));
    for key in world.keys(Table::Dispatch) {
        let row = world.store.read_now(&world.partition(), &key).unwrap().unwrap();
        let call: Dispatch = decode(&row.value).unwrap();
        assert_eq!((call.state, call.unsent), (DispatchState::FailedRetryable, true));
    }
    world.crash();
    world.pass(10_000);
    assert_eq!(world.calls.len(), 250);
}

#[test]
fn what_was_taken_back_is_delivered_by_an_owner_whose_clock_is_behind() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    let (id, _) = world.calls.pop_front().unwrap();
    world.tell_all([Event::Drain, Event::Withdrawn(id)]);
    world.ahead_ms = -3_600_000;
    world.crash();
    world.pass(1_000);
    world.complete();
    assert_eq!(world.status("a"), "Completed");
}
