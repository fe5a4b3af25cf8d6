//! Requests that come again under a client's key: done once, answered alike, for as long as promised.

use abide_runtime::{Done, Event, Refused, Repeat, Reply, Request, Ticket};
use abide_store::rows::CommitOutcome;
use abide_store::tables::Table;
use abide_workflow::{Message, RunNumber, Timestamp};
use serde_json::json;

use crate::world::{EPOCH_MS, World, name, task};

const WINDOW_MS: u64 = 7 * 24 * 3_600_000;

fn key(number: u8) -> Repeat {
    Repeat::new([number; 32], [1; 32])
}

fn once(repeat: Repeat, request: Request) -> Request {
    Request::Once(repeat, Box::new(request))
}

fn go(id: &str) -> Request {
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!({}).into() };
    Request::Deliver { instance_id: name(id), message }
}

fn terminate(id: &str) -> Request {
    Request::Deliver { instance_id: name(id), message: Message::Terminate { reason: "enough".to_owned() } }
}

/// Waits for the event three times.
fn three_waits(world: &World) {
    let wait =
        |next: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": next});
    let states = json!({"Start": wait("Second"), "Second": wait("Third"), "Third": wait("End"), "End": {"type": "succeed"}});
    world.publish("waits", &states);
}

/// The next commit fails at first, so that all reads come before it is durable.
fn hold_back(world: &mut World) {
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
}

/// Where the run is.
fn stands_in(world: &World, id: &str) -> Option<String> {
    let run = world.run(id)?;
    run.instance.current_states(&run.plan).first().map(|state| state.state.to_string())
}

/// Answers that are kept.
fn kept(world: &World) -> usize {
    world.keys(Table::Dedupe).len()
}

#[test]
fn an_event_that_comes_again_with_its_key_is_taken_once_for_as_long_as_promised() {
    let mut world = World::new();
    three_waits(&world);
    world.start("waits", "a");
    let until = Timestamp(EPOCH_MS + i64::try_from(WINDOW_MS).unwrap());
    for when in ["first", "again", "after a crash"] {
        if when == "after a crash" {
            world.crash();
        }
        let reply = world.ask(once(key(1), go("a")));
        assert!(matches!(reply, Reply::Once(Done::Accepted, told) if told == until), "{when}: {reply:?}");
        assert_eq!(stands_in(&world, "a").as_deref(), Some("Second"), "{when}");
    }
    let other = Repeat { payload: [2; 32], ..key(1) };
    assert!(matches!(world.ask(once(other, go("a"))), Reply::Refused(Refused::KeyReused)));
    assert!(matches!(world.ask(once(key(2), go("a"))), Reply::Once(..)), "another key is another event");
    assert_eq!(stands_in(&world, "a").as_deref(), Some("Third"));
    world.pass(WINDOW_MS + 120_000);
    assert_eq!(kept(&world), 0, "what has expired is swept");
    assert!(matches!(world.ask(once(key(1), go("a"))), Reply::Once(..)));
    assert_eq!(world.status("a"), "Completed", "after the window it is a new event");
    assert!(matches!(world.ask(once(key(1), go("a"))), Reply::Once(..)), "also when its run has ended");
    world.check();
}

#[test]
fn copies_that_overtake_each_other_before_anything_is_durable_are_taken_once() {
    let mut world = World::new();
    three_waits(&world);
    world.start("waits", "a");
    let keys = [1, 2, 1, 2, 1];
    let tickets: Vec<Ticket> = keys.iter().map(|_| world.next_ticket()).collect();
    let events: Vec<Event> = tickets
        .iter()
        .zip(keys)
        .map(|(ticket, number)| Event::Asked(*ticket, once(key(number), go("a"))))
        .collect();
    hold_back(&mut world);
    world.tell_all(events);
    assert!(world.replies.is_empty(), "{:?}", world.replies);
    world.pass(1_000);
    for ticket in tickets {
        let reply = world.reply_to(ticket).unwrap();
        assert!(matches!(reply, Reply::Once(Done::Accepted, _)), "{reply:?}");
    }
    assert_eq!(stands_in(&world, "a").as_deref(), Some("Third"));
    world.check();
}

#[test]
fn a_start_is_answered_to_its_own_key_whoever_else_wanted_the_id_meanwhile() {
    let mut world = World::new();
    three_waits(&world);
    let tickets: Vec<Ticket> = (0..3).map(|_| world.next_ticket()).collect();
    let events: Vec<Event> = tickets
        .iter()
        .zip([1, 2, 1])
        .map(|(ticket, number)| Event::Asked(*ticket, world.start_request("waits", "a", Some(key(number)))))
        .collect();
    hold_back(&mut world);
    world.tell_all(events);
    assert!(world.replies.is_empty(), "{:?}", world.replies);
    world.pass(1_000);
    let replies: Vec<Reply> = tickets.into_iter().map(|ticket| world.reply_to(ticket).unwrap()).collect();
    assert!(matches!(&replies[0], Reply::Started(started) if started.repeat_until.is_some()));
    assert!(matches!(&replies[1], Reply::Refused(Refused::Live { .. })));
    let (Reply::Started(first), Reply::Started(again)) = (&replies[0], &replies[2]) else {
        panic!("{replies:?}")
    };
    assert_eq!(first, again);
}

#[test]
fn what_was_refused_is_not_kept_and_may_succeed_later() {
    let mut world = World::new();
    three_waits(&world);
    assert!(matches!(world.ask(once(key(1), go("a"))), Reply::Refused(Refused::NotFound { .. })));
    world.start("waits", "a");
    assert!(matches!(world.ask(once(key(1), go("a"))), Reply::Once(..)));
    assert!(matches!(world.ask(once(key(2), terminate("a"))), Reply::Once(..)));
    assert!(matches!(world.ask(once(key(3), go("a"))), Reply::Refused(Refused::Message(_))));
    assert_eq!(kept(&world), 2);
    world.pass(1_000);
    world.check();
}

#[test]
fn orders_that_come_again_with_their_key_are_done_once() {
    let mut world = World::new();
    three_waits(&world);
    world.start("waits", "a");
    for _ in 0..2 {
        let reply = world.ask(once(key(1), terminate("a")));
        assert!(matches!(reply, Reply::Once(Done::Accepted, _)), "{reply:?}");
    }
    for _ in 0..2 {
        let reply = world.ask(once(key(2), Request::Restart { instance_id: name("a") }));
        assert!(matches!(&reply, Reply::Started(started) if started.run.0 == 2), "{reply:?}");
    }
    world.ask(terminate("a"));
    let again = world.ask(once(key(2), Request::Restart { instance_id: name("a") }));
    assert!(matches!(again, Reply::Started(started) if started.run.0 == 2), "no third run");
    assert_eq!(world.status("a"), "Terminated");
    for when in ["first", "again", "after a crash"] {
        if when == "after a crash" {
            world.crash();
        }
        let reply = world.ask(once(key(3), Request::Purge { instance_id: name("a"), run: None }));
        assert!(matches!(reply, Reply::Once(Done::Purged, _)), "{when}: {reply:?}");
    }
    world.start("waits", "a");
    world.ask(terminate("a"));
    world.ask(once(key(3), Request::Purge { instance_id: name("a"), run: None }));
    assert_eq!(world.status("a"), "Terminated", "what was purged before is not this run");
    world.pass(1_000);
    world.check();
}

#[test]
fn an_instance_that_its_key_names_is_not_begun_again_when_the_answer_is_no_longer_kept() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    let named = Repeat { names_instance: true, ..key(1) };
    let start = |world: &mut World| {
        let request = world.start_request("one", "k-1", Some(named));
        world.ask(request)
    };
    assert!(matches!(start(&mut world), Reply::Started(_)));
    world.complete();
    world.pass(WINDOW_MS - 1_000);
    assert!(matches!(start(&mut world), Reply::Started(started) if started.run.0 == 1), "within the window");
    world.pass(120_000);
    for _ in 0..2 {
        let reply = start(&mut world);
        assert!(matches!(reply, Reply::Refused(Refused::KeyExpired { .. })), "{reply:?}");
    }
    assert_eq!((world.run("k-1").unwrap().row.run_number, world.calls.len()), (1, 0));
    // Nothing is known of it any more when it was kept long enough and purged.
    world.pass(60 * 24 * 3_600_000);
    assert!(matches!(start(&mut world), Reply::Started(_)));
}

#[test]
fn who_waits_for_one_run_is_not_told_of_another() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    let request = world.start_request("one", "a", Some(key(1)));
    world.ask(request);
    world.complete();
    world.start("one", "a");
    let (again, waits) = (world.next_ticket(), world.next_ticket());
    let mut request = world.start_request("one", "a", Some(key(1)));
    if let Request::Start(start) = &mut request {
        start.await_end = Some(waits);
    }
    world.tell(Event::Asked(again, request));
    assert!(matches!(world.reply_to(again), Some(Reply::Started(started)) if started.run.0 == 1));
    let told = world.reply_to(waits);
    assert!(matches!(told, Some(Reply::Refused(Refused::NotCurrent { .. }))), "{told:?}");
    let other = Request::AwaitEnd { instance_id: name("a"), run: Some(RunNumber(2)) };
    let waits = world.ask_later(other);
    world.complete();
    assert!(matches!(world.reply_to(waits), Some(Reply::Ended(view)) if view.run.0 == 2));
}

#[test]
fn an_answer_can_be_recalled_without_beginning_anything() {
    let mut world = World::new();
    three_waits(&world);
    let recall = |repeat| Request::Recall { instance_id: name("a"), repeat };
    assert!(matches!(world.ask(recall(key(1))), Reply::Refused(Refused::NotFound { .. })));
    let request = world.start_request("waits", "a", Some(key(1)));
    let Reply::Started(started) = world.ask(request) else { panic!("not started") };
    for when in ["in memory", "after a crash"] {
        let Reply::Started(recalled) = world.ask(recall(key(1))) else { panic!("{when}: not recalled") };
        assert_eq!(recalled, started, "{when}");
        world.crash();
    }
    let other = Repeat { payload: [9; 32], ..key(1) };
    assert!(matches!(world.ask(recall(other)), Reply::Refused(Refused::KeyReused)));
    assert!(matches!(world.ask(recall(key(2))), Reply::Refused(Refused::NotFound { .. })));
}
