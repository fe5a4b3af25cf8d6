//! Every fact that the language can write is one that the client can read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_workflow::rehearse::{Mocks, Rehearsal, parse_stimuli};
use abide_workflow::{Authored, Registry};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Plays every case of every example and reads all of its history.
#[test]
fn every_event_of_every_example_is_understood() {
    let mut kinds = BTreeSet::new();
    for example in std::fs::read_dir(examples()).unwrap() {
        let folder = example.unwrap().path();
        let Some(text) = read(&folder.join("workflow.json")) else { continue };
        let registry = Registry::parse(&read(&folder.join("activities.json")).unwrap()).unwrap();
        let plan = Authored::parse(&text).validate(Some(&registry)).unwrap().compile();
        for case in std::fs::read_dir(folder.join("cases")).unwrap() {
            let case = case.unwrap().path();
            let mut rehearsal = Rehearsal::new(&plan);
            if let Some(input) = read(&case.join("input.json")) {
                rehearsal.input = serde_json::from_str(&input).unwrap();
            }
            if let Some(mocks) = read(&case.join("mock.json")) {
                rehearsal.mocks = Mocks::parse(&mocks).unwrap();
            }
            if let Some(events) = read(&case.join("events.json")) {
                rehearsal.stimuli = parse_stimuli(&events).unwrap();
            }
            for (_, told) in rehearsal.play().unwrap().timeline {
                let json = serde_json::to_value(&told).unwrap();
                let kind = (
                    json["eventType"].as_str().unwrap().to_owned(),
                    json["name"].as_str().map(str::to_owned),
                );
                let read: HistoryEvent = serde_json::from_value(json).unwrap();
                assert_eq!(
                    (read.sequence, read.timestamp.as_millisecond()),
                    (told.sequence, told.timestamp.0)
                );
                assert!(!is_unknown(&read.fact), "{told:?}");
                kinds.insert(kind.0);
            }
        }
    }
    assert!(kinds.len() > 15, "the examples have become poor: {kinds:?}");
}

fn is_unknown(fact: &Fact) -> bool {
    matches!(fact, Fact::Unknown | Fact::GenericEvent { note: Note::Unknown })
}

#[test]
fn a_fact_of_tomorrow_is_no_error() {
    for text in [
        r#"{"sequence": 1, "timestamp": "2026-01-01T00:00:00Z", "eventType": "Someday", "x": 1}"#,
        r#"{"sequence": 1, "timestamp": "2026-01-01T00:00:00Z", "eventType": "GenericEvent", "name": "Someday"}"#,
    ] {
        let event: HistoryEvent = serde_json::from_str(text).unwrap();
        assert!(is_unknown(&event.fact), "{event:?}");
    }
}
