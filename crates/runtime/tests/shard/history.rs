//! The history of a run, page by page: complete and in order, or an error.

use abide_runtime::definitions::Definitions;
use abide_runtime::run::{HistoryCursor, HistoryPage, RunReadError, RunReader};
use abide_runtime::{ShardReply, ShardRequest};
use abide_store::memory::MemoryStore;
use abide_store::rows::Batch;
use abide_store::tables::TableId;
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, instance_id, task_state};

fn loops(harness: &ShardHarness) {
    let states = json!({
        "Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.last", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.state.last", "op": "eq", "value": "end"}, "next": "End"}], "default": "Start"},
        "End": {"type": "succeed"}});
    harness.publish("loops", &states);
}

fn page(
    harness: &ShardHarness,
    from: Option<HistoryCursor>,
    events: usize,
) -> Result<HistoryPage, RunReadError> {
    let definitions: &Definitions<MemoryStore> = &harness.definitions;
    let reader = RunReader { store: &*harness.store, definitions };
    poll_ready(reader.history(&harness.partition(), &instance_id("a"), from, events)).map(Option::unwrap)
}

fn sequences(page: &HistoryPage) -> Vec<u64> {
    let event = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    page.events.iter().map(|raw| event(raw.get()).get("sequence").unwrap().as_u64().unwrap()).collect()
}

#[test]
fn pages_of_any_size_have_every_event_once_and_read_only_what_they_return() {
    let mut harness = ShardHarness::new();
    loops(&harness);
    harness.start("loops", "a");
    for _ in 0..60 {
        harness.raise("a", "go");
    }
    let all = sequences(&page(&harness, None, usize::MAX).unwrap());
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    for size in [1, 2, 7, 50] {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let page = page(&harness, from, size).unwrap();
            found.extend(sequences(&page));
            // Rows of earlier pages are not read again: they may even be gone.
            if let Some(place) = page.next_cursor {
                assert_eq!(
                    sequences(&self::page(&harness, Some(place), 1).unwrap()),
                    [found.len() as u64 + 1]
                );
            }
            from = page.next_cursor;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "{size} at a time");
    }
    let middle = page(&harness, None, 40).unwrap().next_cursor.unwrap();
    let partition = harness.partition();
    harness.store.inject_damage(
        &partition,
        harness.keys(TableId::HistoryPage)[0].clone(),
        harness.keys(TableId::HistoryPage)[3].clone(),
    );
    assert_eq!(sequences(&page(&harness, Some(middle), 5).unwrap()), [41, 42, 43, 44, 45]);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_not_a_gap() {
    for garble in [true, false] {
        let mut harness = ShardHarness::new();
        loops(&harness);
        harness.start("loops", "a");
        for _ in 0..20 {
            harness.raise("a", "go");
        }
        let partition = harness.partition();
        let key = harness.keys(TableId::HistoryPage)[9].clone();
        if garble {
            let version = harness.store.read_now(&partition, &key).unwrap().unwrap().version;
            harness
                .store
                .commit_now(&partition, &Batch::checked().replace(key, version, b"garbage".to_vec()));
        } else {
            harness.store.inject_damage(&partition, key.clone(), key);
        }
        let before = page(&harness, None, usize::MAX).unwrap();
        assert!(!before.events.is_empty());
        let error = page(&harness, before.next_cursor, usize::MAX).unwrap_err();
        assert!(matches!(error, RunReadError::Unreadable(_)), "{error}");
    }
}

#[test]
fn a_cursor_stays_in_its_run_when_another_run_replaces_it() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.complete_attempt();
    let all = page(&harness, None, usize::MAX).unwrap();
    let place = page(&harness, None, 2).unwrap().next_cursor.unwrap();
    assert!(matches!(
        harness.request(ShardRequest::Restart { instance_id: instance_id("a") }),
        ShardReply::Started(_)
    ));
    let rest = page(&harness, Some(place), usize::MAX).unwrap();
    assert_eq!(sequences(&rest), sequences(&all)[2..]);
    assert_eq!(rest.events.last().unwrap().get(), all.events.last().unwrap().get());
    assert!(
        sequences(&page(&harness, None, usize::MAX).unwrap()).len() < sequences(&all).len(),
        "run 2 is live"
    );
}

#[test]
fn the_termination_of_an_unreadable_run_is_numbered_and_not_skipped() {
    let mut harness = ShardHarness::new();
    loops(&harness);
    harness.start("loops", "a");
    harness.raise("a", "go");
    let before = page(&harness, None, usize::MAX).unwrap();
    let last = *sequences(&before).last().unwrap();
    // The parts are inconsistent: the changes of the first page are gone, its events are not.
    let partition = harness.partition();
    let key = harness.keys(TableId::HistoryPage)[0].clone();
    let row = harness.store.read_now(&partition, &key).unwrap().unwrap();
    let mut first: abide_store::tables::history_pages::HistoryPageRow =
        abide_store::tables::decode(&row.value).unwrap();
    first.part_changes.clear();
    let value = abide_store::tables::encode(&first);
    harness.store.commit_now(&partition, &Batch::checked().replace(key, row.version, value));
    harness.crash();
    let ended = harness.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    assert!(matches!(ended, ShardReply::Accepted), "{ended:?}");
    let mut all = Vec::new();
    let mut from = None;
    loop {
        let page = page(&harness, from, 1).unwrap();
        all.extend(sequences(&page));
        from = page.next_cursor;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(all, (1..=last + 1).collect::<Vec<_>>());
}
