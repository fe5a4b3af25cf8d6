//! The client can read every history event that the workflow language can write.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_workflow::rehearse::{Mocks, Rehearsal, parse_stimuli};
use abide_workflow::{ParsedDefinition, Registry};

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
        let plan = ParsedDefinition::parse(&text).validate(Some(&registry)).unwrap().compile();
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
            for (_, written) in rehearsal.play().unwrap().timeline {
                let json = serde_json::to_value(&written).unwrap();
                let kind = (
                    json["eventType"].as_str().unwrap().to_owned(),
                    json["name"].as_str().map(str::to_owned),
                );
                let read: HistoryEvent = serde_json::from_value(json).unwrap();
                assert_eq!(
                    (read.sequence, read.timestamp.as_millisecond()),
                    (written.sequence, written.timestamp.0)
                );
                assert!(!is_unknown(&read.fact), "{written:?}");
                kinds.insert(kind.0);
            }
        }
    }
    assert!(kinds.len() > 15, "the examples produce too few event types: {kinds:?}");
}

fn is_unknown(fact: &Fact) -> bool {
    matches!(fact, Fact::Unknown | Fact::GenericEvent { note: Note::Unknown })
}

#[test]
fn an_event_type_of_a_newer_server_is_no_error() {
    for text in [
        r#"{"sequence": 1, "timestamp": "2026-01-01T00:00:00Z", "eventType": "Someday", "x": 1}"#,
        r#"{"sequence": 1, "timestamp": "2026-01-01T00:00:00Z", "eventType": "GenericEvent", "name": "Someday"}"#,
    ] {
        let event: HistoryEvent = serde_json::from_str(text).unwrap();
        assert!(is_unknown(&event.fact), "{event:?}");
    }
}
