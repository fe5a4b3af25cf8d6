//! A run's history, page by page: all of it, in order, or an error that says so.

use abide_runtime::definitions::Definitions;
use abide_runtime::run::{HistoryPage, HistoryPlace, RunReader, ShowError};
use abide_runtime::{Reply, Request};
use abide_store::memory::MemoryStore;
use abide_store::rows::Batch;
use abide_store::tables::Table;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::world::{World, name, ready, task};

fn loops(world: &World) {
    let states = json!({
        "Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.last", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.state.last", "op": "eq", "value": "end"}, "next": "End"}], "default": "Start"},
        "End": {"type": "succeed"}});
    world.publish("loops", &states);
}

fn page(world: &World, from: Option<HistoryPlace>, events: usize) -> Result<HistoryPage, ShowError> {
    let definitions: &Definitions<MemoryStore> = &world.definitions;
    let reader = RunReader { store: &*world.store, definitions };
    ready(reader.history(&world.partition(), &name("a"), from, events)).map(Option::unwrap)
}

fn sequences(page: &HistoryPage) -> Vec<u64> {
    let event = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    page.events.iter().map(|raw| event(raw.get()).get("sequence").unwrap().as_u64().unwrap()).collect()
}

#[test]
fn pages_of_any_size_have_every_event_once_and_cost_what_they_show() {
    let mut world = World::new();
    loops(&world);
    world.start("loops", "a");
    for _ in 0..60 {
        world.raise("a", "go");
    }
    let all = sequences(&page(&world, None, usize::MAX).unwrap());
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    for size in [1, 2, 7, 50] {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = page(&world, from, size).unwrap();
            found.extend(sequences(&page));
            // What is shown already is not read again: it may even be gone.
            if let Some(place) = page.next {
                assert_eq!(sequences(&self::page(&world, Some(place), 1).unwrap()), [found.len() as u64 + 1]);
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "{size} at a time");
    }
    let middle = page(&world, None, 40).unwrap().next.unwrap();
    let partition = world.partition();
    world.store.damage(&partition, world.keys(Table::Page)[0].clone(), world.keys(Table::Page)[3].clone());
    assert_eq!(sequences(&page(&world, Some(middle), 5).unwrap()), [41, 42, 43, 44, 45]);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_not_a_gap() {
    for garble in [true, false] {
        let mut world = World::new();
        loops(&world);
        world.start("loops", "a");
        for _ in 0..20 {
            world.raise("a", "go");
        }
        let (partition, key) = (world.partition(), world.keys(Table::Page)[9].clone());
        if garble {
            let version = world.store.read_now(&partition, &key).unwrap().unwrap().version;
            world.store.commit_now(&partition, &Batch::checked().replace(key, version, b"garbage".to_vec()));
        } else {
            world.store.damage(&partition, key.clone(), key);
        }
        let before = page(&world, None, usize::MAX).unwrap();
        assert!(!before.events.is_empty());
        let error = page(&world, before.next, usize::MAX).unwrap_err();
        assert!(matches!(error, ShowError::Unreadable(_)), "{error}");
    }
}

#[test]
fn a_history_goes_on_in_the_run_it_began_with_when_another_has_replaced_it() {
    let mut world = World::new();
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.complete();
    let all = page(&world, None, usize::MAX).unwrap();
    let place = page(&world, None, 2).unwrap().next.unwrap();
    assert!(matches!(world.ask(Request::Restart { instance_id: name("a") }), Reply::Started(_)));
    let rest = page(&world, Some(place), usize::MAX).unwrap();
    assert_eq!(sequences(&rest), sequences(&all)[2..]);
    assert_eq!(rest.events.last().unwrap().get(), all.events.last().unwrap().get());
    assert!(sequences(&page(&world, None, usize::MAX).unwrap()).len() < sequences(&all).len(), "run 2 lives");
}

#[test]
fn the_end_of_a_run_that_cannot_be_read_has_its_number_and_is_not_skipped() {
    let mut world = World::new();
    loops(&world);
    world.start("loops", "a");
    world.raise("a", "go");
    let before = page(&world, None, usize::MAX).unwrap();
    let last = *sequences(&before).last().unwrap();
    // Its parts do not fit together any more: the first page's changes are gone, its events are not.
    let (partition, key) = (world.partition(), world.keys(Table::Page)[0].clone());
    let row = world.store.read_now(&partition, &key).unwrap().unwrap();
    let mut first: abide_store::tables::pages::Page = abide_store::tables::decode(&row.value).unwrap();
    first.changes.clear();
    let value = abide_store::tables::encode(&first);
    world.store.commit_now(&partition, &Batch::checked().replace(key, row.version, value));
    world.crash();
    let ended = world.order("a", Message::Terminate { reason: "enough".to_owned() });
    assert!(matches!(ended, Reply::Accepted), "{ended:?}");
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = page(&world, from, 1).unwrap();
        all.extend(sequences(&page));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(all, (1..=last + 1).collect::<Vec<_>>());
}
