//! Rows that cannot be read: who has to do with one is told, everybody else goes on, and nothing stops or spins.

use abide_runtime::post::{self, ChildStart, Letter, Post};
use abide_runtime::{Notice, Refused, Repeat, Reply};
use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::arrivals::{self, Arrival};
use abide_store::tables::sources::{self, Taken};
use abide_store::tables::{Table, encode, instances};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Message, RunNumber};
use serde_json::json;

use crate::world::{World, name, task};

fn one(world: &World) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

fn wait(world: &World, id: &str, duration: &str) {
    world.publish(id, &json!({"Start": {"type": "wait", "waitType": "duration", "duration": duration, "next": "End"}, "End": {"type": "succeed"}}));
}

fn keyed(world: &World, id: &str, key: u8) -> abide_runtime::Request {
    world.start_request("one", id, Some(Repeat::new([key; 32], [1; 32])))
}

/// A key's row cannot be read.
fn damage(world: &World, key: &Key) {
    world.store.damage(&world.partition(), key.clone(), key.clone());
}

/// A row's bytes are no row.
fn garble(world: &World, key: &Key) {
    let partition = world.partition();
    let version = world.store.read_now(&partition, key).unwrap().unwrap().version;
    let batch = Batch::checked().replace(key.clone(), version, b"garbage".to_vec());
    assert!(matches!(world.store.commit_now(&partition, &batch), CommitOutcome::Committed(_)));
}

fn unreadable(world: &World) -> usize {
    world.notices.iter().filter(|notice| matches!(notice, Notice::Unreadable { .. })).count()
}

fn is_damaged(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(Refused::Damaged { .. }))
}

#[test]
fn a_start_with_a_key_is_refused_when_the_row_of_its_id_cannot_be_read() {
    for spoil in [damage, garble] {
        let mut world = World::new();
        one(&world);
        let request = keyed(&world, "a", 1);
        assert!(matches!(world.ask(request), Reply::Started(_)));
        world.complete();
        world.crash();
        spoil(&world, &instances::key("a"));
        let request = keyed(&world, "a", 2);
        assert!(is_damaged(&world.ask(request)), "another key");
        let request = keyed(&world, "a", 1);
        assert!(matches!(world.ask(request), Reply::Started(_)), "this key was answered before");
        let request = keyed(&world, "b", 3);
        assert!(matches!(world.ask(request), Reply::Started(_)));
    }
}

#[test]
fn a_start_whose_kept_answer_cannot_be_read_is_refused_and_nothing_begins_twice() {
    for spoil in [damage, garble] {
        let mut world = World::new();
        one(&world);
        let request = keyed(&world, "a", 1);
        assert!(matches!(world.ask(request), Reply::Started(_)));
        world.complete();
        world.crash();
        spoil(&world, &world.keys(Table::Dedupe)[0]);
        for _ in 0..2 {
            let request = keyed(&world, "a", 1);
            assert!(is_damaged(&world.ask(request)));
        }
        assert_eq!((world.run("a").unwrap().row.run_number, world.calls.len()), (1, 0));
        // Under another key it may begin; then its run is in memory when the bad key comes again.
        let request = keyed(&world, "a", 2);
        assert!(matches!(world.ask(request), Reply::Started(_)));
        let request = keyed(&world, "a", 1);
        assert!(is_damaged(&world.ask(request)));
        world.complete();
        assert_eq!(world.status("a"), "Completed");
    }
}

#[test]
fn timers_around_a_damaged_place_fire_and_those_in_it_are_known_to_their_runs() {
    let mut world = World::new();
    for number in 1..=9 {
        wait(&world, &format!("wait-{number}"), &format!("PT{number}H"));
        world.start(&format!("wait-{number}"), &format!("w-{number}"));
    }
    let timers = world.keys(Table::Timer);
    world.store.damage(&world.partition(), timers[3].clone(), timers[5].clone());
    world.crash();
    for hours in 1..=9 {
        world.pass(3_600_000);
        let done = (1..=9).filter(|number| world.status(&format!("w-{number}")) == "Completed").count();
        assert_eq!(done, hours, "after {hours} hours");
        if hours == 2 {
            // One that is set when the place is not known yet, and will lie in it.
            wait(&world, "late", "PT90M");
            world.start("late", "late");
        }
        if hours == 3 {
            // And one when it is known.
            wait(&world, "later", "PT30M");
            world.start("later", "later");
        }
    }
    assert_eq!((world.status("late").as_str(), world.status("later").as_str()), ("Completed", "Completed"));
    assert_eq!(unreadable(&world), 1, "{:?}", world.notices);
}

#[test]
fn one_timer_that_cannot_be_read_stops_none_of_its_page() {
    let mut world = World::new();
    wait(&world, "wait", "PT1M");
    for id in ["a", "b", "c"] {
        world.start("wait", id);
    }
    garble(&world, &world.keys(Table::Timer)[1]);
    world.crash();
    world.pass(61_000);
    for id in ["a", "b", "c"] {
        assert_eq!(world.status(id), "Completed", "{id}");
    }
    assert_eq!(unreadable(&world), 1, "{:?}", world.notices);
}

#[test]
fn a_call_that_cannot_be_read_sets_its_run_aside_and_no_other() {
    for spoil in [damage, garble] {
        let mut world = World::new();
        one(&world);
        for id in ["a", "b", "c"] {
            world.start("one", id);
        }
        spoil(&world, &world.keys(Table::Dispatch)[1]);
        world.crash();
        let parked = |notice: &Notice| match notice {
            Notice::Parked { instance_id, .. } => Some(instance_id.to_string()),
            _ => None,
        };
        assert_eq!(world.notices.iter().filter_map(parked).collect::<Vec<_>>(), ["b"]);
        assert_eq!(unreadable(&world), 1, "{:?}", world.notices);
        assert!(matches!(world.raise("b", "go"), Reply::Refused(Refused::Parked { .. })));
        assert_eq!(world.calls.len(), 2);
        world.complete();
        world.complete();
        assert_eq!((world.status("a").as_str(), world.status("c").as_str()), ("Completed", "Completed"));
        let ended = world.order("b", Message::Terminate { reason: "enough".to_owned() });
        assert!(matches!(ended, Reply::Accepted), "{ended:?}");
        world.start("one", "b");
    }
}

#[test]
fn recovery_goes_on_behind_damage_in_any_of_its_tables() {
    for table in [Table::Inbox, Table::Outbox, Table::Source, Table::Dispatch] {
        let mut world = World::new();
        one(&world);
        world.start("one", "a");
        let prefix = |last: u8| Key::new([table as u8, last]);
        world.store.damage(&world.partition(), prefix(0), prefix(255));
        world.crash();
        assert_eq!(world.stopped, None);
        world.start("one", &format!("b-{table:?}").to_lowercase());
        assert!(unreadable(&world) >= 1, "{table:?}");
    }
}

fn letter(child: &str) -> Letter {
    let parent = ParentLink { instance_id: name("elsewhere"), run: RunNumber(1), command: CommandId(1) };
    let start = ChildStart {
        parent,
        workflow: "one".to_owned(),
        version: None,
        input: json!({"id": child}).to_string(),
        correlation_id: child.to_owned(),
        entity_id: None,
    };
    Letter { instance_id: name(child), post: Post::StartChild(start) }
}

fn arrive(world: &World, number: u64, child: &str) {
    let message = post::encode(&letter(child));
    let arrival = Arrival { instance_id: child.to_owned(), message, sent_at: 0 };
    let batch = Batch::checked().create(arrivals::key("shard/9", number), encode(&arrival));
    let inbox = world.shard.id().inbox().unwrap();
    assert!(matches!(world.store.commit_now(&inbox, &batch), CommitOutcome::Committed(_)));
}

#[test]
fn messages_behind_one_that_cannot_be_read_arrive() {
    let mut world = World::new();
    one(&world);
    for number in 1..=5 {
        arrive(&world, number, &format!("c-{number}"));
    }
    let inbox = world.shard.id().inbox().unwrap();
    world.store.damage(&inbox, arrivals::key("shard/9", 2), arrivals::key("shard/9", 3));
    world.crash();
    world.pass(1_000);
    let begun: Vec<_> = (1..=5).filter(|number| world.run(&format!("c-{number}")).is_some()).collect();
    assert_eq!(begun, [1, 4, 5]);
    arrive(&world, 6, "c-6");
    world.tell(abide_runtime::Event::ArrivalsHinted);
    assert!(world.run("c-6").is_some());
    assert_eq!(unreadable(&world), 1, "{:?}", world.notices);
}

#[test]
fn nothing_is_taken_from_a_source_whose_number_cannot_be_read() {
    let mut world = World::new();
    one(&world);
    let taken = Taken { number: 4, taken_at: 0 };
    let batch = Batch::checked().create(sources::key("shard/9"), encode(&taken));
    world.store.commit_now(&world.partition(), &batch);
    garble(&world, &sources::key("shard/9"));
    arrive(&world, 4, "taken-before");
    world.crash();
    world.pass(1_000);
    assert!(world.run("taken-before").is_none());
    assert!(unreadable(&world) >= 1);
}

#[test]
fn a_run_whose_id_cannot_be_read_is_not_deleted_and_holds_up_no_other() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&world);
    for id in ["a", "b"] {
        world.start("one", id);
        world.complete();
    }
    let run = world.run("a").unwrap().row.run;
    world.pass(60_000);
    damage(&world, &instances::key("a"));
    world.pass(4_000_000);
    let page = abide_store::tables::pages::key(run, 1);
    assert!(world.store.read_now(&world.partition(), &page).unwrap().is_some());
    assert!(matches!(world.raise("b", "go"), Reply::Refused(Refused::NotFound { .. })));
}

#[test]
fn what_has_expired_behind_damage_goes_all_the_same() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&world);
    for id in ["a", "b", "c"] {
        world.start("one", id);
        world.complete();
        world.pass(60_000);
    }
    let expiries = world.keys(Table::Expiry);
    assert_eq!(expiries.len(), 3);
    damage(&world, &expiries[0]);
    world.crash();
    world.pass(4_000_000);
    assert_eq!(world.status("a"), "Completed", "nobody knows that it has been kept long enough");
    for id in ["b", "c"] {
        assert!(matches!(world.raise(id, "go"), Reply::Refused(Refused::NotFound { .. })), "{id}");
    }
    assert_eq!(unreadable(&world), 1, "{:?}", world.notices);
}
