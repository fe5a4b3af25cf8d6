//! A store that fails, an instance that cannot be read, another owner.

use abide_runtime::{Event, Notice, Refused, Reply, Stopped};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::heads::{self, Head};
use abide_store::tables::{Table, decode, encode};
use abide_workflow::Message;
use serde_json::json;

use crate::world::{World, task};

fn one(world: &World) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

#[test]
fn a_commit_whose_outcome_is_unknown_is_asked_for_and_neither_lost_nor_done_twice() {
    for applied in [true, false] {
        let mut world = World::new();
        one(&world);
        world.store.make_next_commit_unknown(applied);
        let request = world.start_request("one", "a", None);
        let ticket = world.ask_later(request);
        world.pass(1_000);
        assert!(matches!(world.reply_to(ticket), Some(Reply::Started(_))));
        assert_eq!(world.calls.len(), 1);
        world.complete();
        assert_eq!(world.status("a"), "Completed");
        world.check();
    }
}

#[test]
fn a_store_that_is_away_for_a_while_costs_nothing_but_time() {
    let mut world = World::new();
    one(&world);
    let away = || Some(CommitOutcome::Unavailable { reason: "away".to_owned() });
    world.outcomes.extend((0..6).map(|_| away()));
    let request = world.start_request("one", "a", None);
    let ticket = world.ask_later(request);
    assert!(world.replies.is_empty() && world.calls.is_empty());
    world.pass(10_000);
    assert!(matches!(world.reply_to(ticket), Some(Reply::Started(_))));
    assert_eq!(world.calls.len(), 1);
}

#[test]
fn who_lost_the_shard_stops_and_says_nothing() {
    let mut world = World::new();
    one(&world);
    let (partition, key) = (world.partition(), heads::key());
    let row = world.store.read_now(&partition, &key).unwrap().unwrap();
    let head = Head { owner: "another".to_owned(), fencing_token: 9, ..decode(&row.value).unwrap() };
    world.store.commit_now(&partition, &Batch::fenced(key, Some(row.version), encode(&head)));
    let request = world.start_request("one", "a", None);
    let ticket = world.ask_later(request);
    assert_eq!(world.stopped, Some(Stopped::Lost));
    assert!(world.reply_to(ticket).is_none() && world.calls.is_empty());
    assert!(world.run("a").is_none());
}

#[test]
fn an_instance_that_cannot_be_read_is_parked_with_a_reason_and_everything_else_goes_on() {
    let mut world = World::new();
    one(&world);
    world.start("one", "bad");
    world.start("one", "good");
    world.crash();
    world.calls.clear();
    // Its first page, overwritten by hand.
    let partition = world.partition();
    let page = world.keys(Table::Page).remove(0);
    let version = world.store.read_now(&partition, &page).unwrap().unwrap().version;
    world.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
    world.crash();
    let parked = |notice: &Notice| matches!(notice, Notice::Parked { instance_id, .. } if instance_id.as_str() == "bad");
    assert!(world.notices.iter().any(parked), "{:?}", world.notices);
    assert_eq!(world.calls.len(), 1, "the other one's call is made again");
    world.complete();
    assert_eq!(world.status("good"), "Completed");
    assert!(matches!(world.raise("bad", "go"), Reply::Refused(Refused::Parked { .. })));
    world.crash();
    assert!(
        matches!(world.raise("bad", "go"), Reply::Refused(Refused::Parked { .. })),
        "after a restart too"
    );
    assert!(matches!(
        world.order("bad", Message::Terminate { reason: "enough".to_owned() }),
        Reply::Accepted
    ));
    world.start("one", "bad");
    world.complete();
    assert_eq!(world.status("bad"), "Completed", "its id is free again");
}

/// Overwrites the last page, by hand.
fn damage_last_page(world: &World) {
    let partition = world.partition();
    let page = world.keys(Table::Page).pop().unwrap();
    let version = world.store.read_now(&partition, &page).unwrap().unwrap().version;
    world.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
}

#[test]
fn a_child_that_cannot_be_read_is_ended_with_its_calls_and_its_parent_is_told() {
    for restarted in [false, true] {
        let mut world = World::new();
        world.publish("child", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
        let child = json!({"type": "workflow", "workflow": "child", "input": {"id": 1}, "next": "End",
            "onError": [{"match": ["Terminated"], "next": "End"}]});
        world.publish("parent", &json!({"Start": child, "End": {"type": "succeed"}}));
        world.start("parent", "p");
        let call = world.calls[0].0.clone();
        world.pass(20_000);
        assert_eq!(world.shard.instances_in_memory(), 0);
        damage_last_page(&world);
        if restarted {
            world.crash();
        }
        let refused = world.raise(call.instance_id.as_str(), "go");
        assert!(matches!(refused, Reply::Refused(Refused::Parked { .. })), "{refused:?}");
        world.check();
        let order = Message::Terminate { reason: "enough".to_owned() };
        assert!(matches!(world.order(call.instance_id.as_str(), order), Reply::Accepted));
        assert_eq!(world.cancelled, if restarted { vec![] } else { vec![call] });
        assert_eq!(world.status("p"), "Completed", "it took the end of its child for what it was");
        world.pass(2_000);
        world.check();
    }
}

#[test]
fn too_much_that_waits_is_refused_and_nothing_is_lost() {
    let mut world = World::with(|config| config.waiting_max = 8);
    one(&world);
    let tickets: Vec<_> = (0..40).map(|_| world.next_ticket()).collect();
    let events: Vec<_> = tickets
        .iter()
        .enumerate()
        .map(|(number, ticket)| {
            Event::Asked(*ticket, world.start_request("one", &format!("i-{number}"), None))
        })
        .collect();
    world.tell_all(events);
    let replies: Vec<Reply> = tickets.into_iter().map(|ticket| world.reply_to(ticket).unwrap()).collect();
    let begun = replies.iter().filter(|reply| matches!(reply, Reply::Started(_))).count();
    let busy = replies.iter().filter(|reply| matches!(reply, Reply::Refused(Refused::Busy))).count();
    assert_eq!((begun, busy), (8, 32));
    assert_eq!(world.calls.len(), 8);
}
