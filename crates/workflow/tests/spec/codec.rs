//! Stored parts: pinned bytes, broken bytes, and keys.

use std::collections::BTreeMap;

use abide_workflow::ids::BranchId;
use abide_workflow::instance::{FORMAT, SlotName};
use abide_workflow::{
    CorruptInstance, Instance, InstanceId, Limits, Message, PartKey, Plan, RunNumber, RunOrigin, Timestamp,
    advance,
};
use proptest::prelude::*;
use serde_json::json;

use crate::bench::case;

/// A plan whose runs have every kind of part: branches, slots of all names, buffered and held messages, compensations,
/// an outcome.
fn plan() -> Plan {
    let states = json!({
        "Make": {"type": "task", "activity": "Make", "output": "$.state.made", "onError": "Fan", "next": "Fan",
                 "compensateWith": {"activity": "Unmake", "input": "$.state.made"}},
        "Fan": {"type": "map", "items": "$.input.items[?@ > 0]", "next": "End", "iterator": {"startAt": "Gate", "states": {
            "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Done"}, "Done": {"type": "succeed", "output": "$.item"}}}},
        "End": {"type": "succeed"},
    });
    case("Make", states).configuration(json!({"timeout": "PT9H"})).plan()
}

/// The stored parts of a run of this plan after two turns.
fn parts() -> BTreeMap<PartKey, Vec<u8>> {
    let plan = plan();
    let mut origin = RunOrigin::new(InstanceId::new("pinned").unwrap(), RunNumber(3), &plan);
    origin.input = json!({"items": [0, 1, 2]}).into();
    let mut instance = Instance::pending(origin, Timestamp(1_000));
    let mut stored = BTreeMap::new();
    let event = |name: &str| Message::EventRaised { name: name.to_owned(), payload: json!({"n": 1}).into() };
    let made =
        Message::ActivityCompleted { command: abide_workflow::CommandId(2), result: json!("thing").into() };
    let suspend = Message::Suspend { reason: "look".to_owned() };
    for inbox in [vec![], vec![event("Other"), made, event("Go"), suspend, event("Go")]] {
        let turn = advance(&plan, &mut instance, &inbox, Timestamp(2_000), &Limits::default()).unwrap();
        for change in turn.changes {
            match change.value {
                Some(bytes) => stored.insert(change.key, bytes),
                None => stored.remove(&change.key),
            };
        }
    }
    stored
}

fn load(parts: &BTreeMap<PartKey, Vec<u8>>) -> Result<Instance, CorruptInstance> {
    Instance::load(parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice())))
}

#[test]
fn stored_bytes_have_not_changed() {
    let encoded: Vec<String> = parts()
        .iter()
        .map(|(key, bytes)| {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("{} {}", hex(&key.to_bytes()), hex(bytes))
        })
        .collect();
    let pinned = include_str!("instance-format-1.txt");
    assert_eq!(
        encoded.join("\n"),
        pinned.trim_end(),
        "a changed encoding needs a new format number and a reader for the old one"
    );
}

#[test]
fn missing_newer_and_trailing_bytes_have_different_errors() {
    let whole = parts();
    assert!(load(&whole).is_ok());
    let reason = |change: &dyn Fn(&mut BTreeMap<PartKey, Vec<u8>>)| {
        let mut parts = whole.clone();
        change(&mut parts);
        load(&parts).unwrap_err().reason
    };
    assert!(reason(&|parts| drop(parts.remove(&PartKey::Header))).contains("header is missing"));
    assert!(reason(&|parts| drop(parts.remove(&PartKey::Branch(BranchId(0))))).contains("invalid parent"));
    assert!(reason(&|parts| parts.get_mut(&PartKey::Header).unwrap()[0] = FORMAT + 1).contains("newer"));
    assert!(reason(&|parts| parts.get_mut(&PartKey::Header).unwrap().push(0)).contains("bytes remain"));
    assert!(reason(&|parts| parts.get_mut(&PartKey::Header).unwrap().clear()).contains("empty part"));
}

#[test]
fn keys_survive_encoding_and_decoding() {
    for key in [
        PartKey::Origin,
        PartKey::Header,
        PartKey::Outcome,
        PartKey::Branch(BranchId(7)),
        PartKey::Compensation(9),
        PartKey::HeldMessage(u64::MAX),
        PartKey::UnansweredCall(abide_ids::Digest([7; 32])),
        PartKey::Rewinding,
        PartKey::CompensationTally,
        PartKey::CompensationRetry,
        PartKey::FailedCompensation(9),
        PartKey::BufferedEvent("gö".to_owned(), 3),
        PartKey::Slot(BranchId(1), SlotName::State("a b".to_owned())),
        PartKey::Slot(BranchId(1), SlotName::Event),
        PartKey::Slot(BranchId(1), SlotName::Error),
        PartKey::Slot(BranchId(1), SlotName::Items),
        PartKey::Slot(BranchId(1), SlotName::Results),
        PartKey::Slot(BranchId(1), SlotName::Result),
    ] {
        assert_eq!(PartKey::from_bytes(&key.to_bytes()), Ok(key));
    }
}

proptest! {
    #[test]
    fn broken_bytes_are_an_error_and_never_a_panic(part in 0_usize..12, at in 0_usize..400, byte: u8) {
        let mut parts = parts();
        let key = parts.keys().nth(part % parts.len()).unwrap().clone();
        let bytes = parts.get_mut(&key).unwrap();
        let position = at % bytes.len();
        bytes[position] = byte;
        // An instance that still loads must run or return an error, without a panic.
        if let Ok(mut instance) = load(&parts) {
            let event = |name: &str| Message::EventRaised { name: name.to_owned(), payload: json!(1).into() };
            let resume = Message::Resume { reason: String::new() };
            let completed = Message::ActivityCompleted { command: abide_workflow::CommandId(2), result: json!(1).into() };
            let timer = Message::TimerFired { timer: abide_workflow::CommandId(1) };
            for message in [resume, event("Go"), completed, timer, Message::Terminate { reason: String::new() }] {
                if advance(&plan(), &mut instance, &[message], Timestamp(3_000), &Limits::default()).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn any_key_bytes_are_decoded_or_rejected(bytes: Vec<u8>) {
        if let Ok(key) = PartKey::from_bytes(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes);
        }
    }
}
