//! Runs that another one has replaced under their id: found by their number as long as they are kept, and no longer.

use abide_runtime::run::{CallReader, RunReader, SettledPlace, ShowError};
use abide_runtime::{Refused, Reply, Request};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::expiries::{Expired, Expiry};
use abide_store::tables::{Table, decode, encode};
use abide_workflow::{Duration, RunNumber};
use serde_json::json;

use crate::world::{World, name, ready, task};

/// Runs of one call.
fn publish(world: &World) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

fn restart(world: &mut World) {
    assert!(matches!(world.ask(Request::Restart { instance_id: name("a") }), Reply::Started(_)));
}

/// The keys of the settled calls of a run, if the run is found.
fn calls(world: &World, run: u32) -> Option<Vec<[u8; 32]>> {
    let partition = world.partition();
    let reader = RunReader { store: &*world.store, definitions: &*world.definitions };
    let reader = CallReader { reader, partition: &partition };
    let run = ready(reader.run(&name("a"), Some(RunNumber(run)))).unwrap()?;
    let settled = ready(reader.settled(&run, SettledPlace::FIRST, usize::MAX)).unwrap();
    Some(settled.calls.into_iter().map(|(_, call)| call.idempotency_key).collect())
}

/// Which of the first runs are found.
fn found(world: &World) -> Vec<u32> {
    (1..6).filter(|run| calls(world, *run).is_some()).collect()
}

#[test]
fn the_calls_of_every_run_are_found_by_its_number_also_after_a_crash() {
    let mut world = World::new();
    publish(&world);
    world.start("one", "a");
    let mut keys = vec![world.complete().metadata.idempotency_key];
    for _ in 0..2 {
        restart(&mut world);
        keys.push(world.complete().metadata.idempotency_key);
    }
    for crashed in [false, true] {
        for (run, key) in (1..).zip(&keys) {
            let [call] = calls(&world, run).unwrap()[..] else { panic!("run {run} has one call") };
            assert_eq!(abide_dispatch::IdempotencyKey(call).to_string(), *key, "run {run}");
        }
        assert_eq!(found(&world), [1, 2, 3], "{crashed}");
        world.crash();
        world.pass(2_000);
    }
    world.check();
}

#[test]
fn runs_that_continued_as_new_are_found() {
    let mut world = World::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    world.publish("loop", &json!({"Start": gate, "Again": {"type": "continueAsNew", "input": {}}}));
    world.start("loop", "a");
    for _ in 0..3 {
        world.raise("a", "go");
    }
    assert_eq!(found(&world), [1, 2, 3, 4]);
    world.pass(2_000);
    world.check();
}

#[test]
fn an_earlier_run_is_found_until_it_has_been_kept_long_enough() {
    let mut world = World::with(|config| config.retention = Duration::hours(1));
    publish(&world);
    world.start("one", "a");
    world.complete();
    world.pass(1_800_000);
    restart(&mut world);
    world.complete();
    assert_eq!(found(&world), [1, 2]);
    world.pass(1_900_000);
    assert_eq!((found(&world), world.keys(Table::EarlierRun)), (vec![2], vec![]));
    world.check();
    world.pass(1_800_000);
    assert_eq!((found(&world), world.keys(Table::Page)), (vec![], vec![]));
    world.check();
}

#[test]
fn an_instance_that_is_purged_takes_its_earlier_runs_with_it() {
    let mut world = World::new();
    publish(&world);
    world.start("one", "a");
    world.complete();
    for _ in 0..3 {
        restart(&mut world);
        world.complete();
    }
    world.pass(2_000);
    assert_eq!(world.keys(Table::EarlierRun).len(), 3);
    assert!(matches!(world.ask(Request::Purge { instance_id: name("a"), run: None }), Reply::Purged));
    world.crash();
    world.pass(120_000);
    assert_eq!(
        (found(&world), world.keys(Table::EarlierRun), world.keys(Table::Page)),
        (vec![], vec![], vec![])
    );
    let public = abide_store::tables::public_instances::key("a", 2);
    let schema = &abide_store::tables::public_instances::SCHEMA;
    let row = ready(abide_store::public::PublicTables::get(&*world.store, schema, &public)).unwrap();
    assert!(row.is_none(), "{row:?}");
    world.check();
}

#[test]
fn runs_that_began_after_a_purge_are_not_taken_for_those_before_it() {
    let mut world = World::new();
    world.publish("short", &json!({"Start": {"type": "succeed"}}));
    world.start("short", "a");
    restart(&mut world);
    world.pass(2_000);
    // All of it is in one commit, before anything can have been swept.
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "away".to_owned() }));
    let purged = world.ask_later(Request::Purge { instance_id: name("a"), run: None });
    for _ in 0..3 {
        let start = world.start_request("short", "a", None);
        world.ask_later(start);
    }
    world.pass(120_000);
    assert!(matches!(world.reply_to(purged), Some(Reply::Purged)));
    assert_eq!(found(&world), [3, 4, 5]);
    assert_eq!(world.keys(Table::EarlierRun).len(), 2);
    world.check();
}

/// The request that forgets an earlier run.
fn earlier(world: &World, run: u32) -> Request {
    let reader = RunReader { store: &*world.store, definitions: &*world.definitions };
    let found =
        ready(reader.numbered(&world.partition(), &name("a"), Some(RunNumber(run)))).unwrap().unwrap();
    Request::PurgeEarlier { instance_id: name("a"), run: found.run, number: found.number }
}

#[test]
fn an_earlier_run_is_purged_by_its_number_and_no_other_with_it() {
    let mut world = World::new();
    publish(&world);
    world.start("one", "a");
    world.complete();
    for _ in 0..2 {
        restart(&mut world);
        world.complete();
    }
    let purge = |run| Request::Purge { instance_id: name("a"), run };
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "away".to_owned() }));
    let purged = world.ask_later(earlier(&world, 2));
    assert!(world.reply_to(purged).is_none(), "it is not durable yet");
    world.pass(120_000);
    assert!(matches!(world.reply_to(purged), Some(Reply::Purged)));
    assert_eq!(found(&world), [1, 3]);
    let current = world.ask(earlier(&world, 3));
    assert!(matches!(current, Reply::Refused(Refused::NotFound { .. })), "it is no earlier one: {current:?}");
    let gone = world.ask(purge(Some(RunNumber(2))));
    assert!(matches!(gone, Reply::Refused(Refused::NotFound { .. })), "{gone:?}");
    // The last one by its number: what came before it is not meant, and can still be deleted.
    assert!(matches!(world.ask(purge(Some(RunNumber(3)))), Reply::Purged));
    world.pass(120_000);
    assert_eq!(found(&world), [1]);
    assert!(matches!(world.ask(purge(None)), Reply::Refused(Refused::NotFound { .. })));
    world.pass(120_000);
    assert_eq!((found(&world), world.keys(Table::EarlierRun)), (vec![], vec![]));
    world.check();
}

#[test]
fn a_number_that_is_given_again_leads_to_its_youngest_run_and_deleting_leaves_none() {
    let mut world = World::with(|config| config.repeat_window = Duration::hours(1));
    publish(&world);
    world.start("one", "a");
    let first = world.complete().metadata.idempotency_key;
    restart(&mut world);
    world.complete();
    let purge = |run| Request::Purge { instance_id: name("a"), run };
    assert!(matches!(world.ask(purge(Some(RunNumber(2)))), Reply::Purged));
    world.pass(2 * 3_600_000);
    assert_eq!((found(&world), world.keys(Table::Instance)), (vec![1], vec![]));
    world.start("one", "a");
    world.complete();
    let call = calls(&world, 1).unwrap()[0];
    assert_eq!(
        abide_dispatch::IdempotencyKey(call).to_string(),
        first,
        "keys are those of the same execution"
    );
    assert!(matches!(world.ask(purge(None)), Reply::Purged));
    world.pass(120_000);
    assert_eq!(
        (found(&world), world.keys(Table::EarlierRun), world.keys(Table::Page)),
        (vec![], vec![], vec![])
    );
    world.check();
}

#[test]
fn an_expiry_that_does_not_know_the_number_of_its_run_leaves_nothing_behind() {
    let mut world = World::with(|config| config.retention = Duration::hours(1));
    publish(&world);
    world.start("one", "a");
    world.complete();
    world.pass(2_000);
    // As an older program wrote it.
    let (partition, key) = (world.partition(), world.keys(Table::Expiry).remove(0));
    let row = world.store.read_now(&partition, &key).unwrap().unwrap();
    let Expired::EndedRuns(ended) = decode::<Expiry>(&row.value).unwrap().what else { panic!("{row:?}") };
    let what = Expired::Ended(vec![("a".to_owned(), ended[0].run)]);
    let batch = Batch::checked().replace(key, row.version, encode(&Expiry { what }));
    world.store.commit_now(&partition, &batch);
    world.crash();
    world.start("one", "a");
    assert_eq!(world.keys(Table::EarlierRun).len(), 1);
    world.complete();
    world.pass(3_700_000);
    assert_eq!(world.keys(Table::EarlierRun), []);
    world.check();
}

#[test]
fn damage_among_earlier_runs_is_the_runs_own_and_not_the_stores() {
    let mut world = World::new();
    publish(&world);
    world.start("one", "a");
    world.complete();
    restart(&mut world);
    let (partition, key) = (world.partition(), world.keys(Table::EarlierRun).remove(0));
    world.store.damage(&partition, key.clone(), key);
    let reader = RunReader { store: &*world.store, definitions: &*world.definitions };
    let asked = |run| ready(reader.numbered(&partition, &name("a"), Some(RunNumber(run))));
    assert!(matches!(asked(1), Err(ShowError::Unreadable(_))));
    assert!(asked(2).unwrap().is_some());
}
