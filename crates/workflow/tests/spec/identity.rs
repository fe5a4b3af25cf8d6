//! The identity of a piece of work: stable over retries and reloads, different for every other piece of work.

use std::collections::BTreeSet;

use abide_workflow::command::{CommandKind, StepIdentity};
use abide_workflow::{
    Failure, Instance, InstanceId, Limits, Message, RunNumber, RunOrigin, Timestamp, advance,
};
use serde_json::json;

use crate::bench::case;

fn identities(turn: &abide_workflow::Turn) -> Vec<StepIdentity> {
    let activity = |command: &abide_workflow::command::Command| match &command.kind {
        CommandKind::StartActivity(start) => Some(start.step.clone()),
        _ => None,
    };
    turn.commands.iter().filter_map(activity).collect()
}

#[test]
fn visits_items_and_redrives_distinguish_pieces_of_work() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "next": "Pause", "iterator": {
            "startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "next": "Done"}, "Done": {"type": "succeed"}}}},
        "Pause": {"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "Check"},
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.input.stop", "op": "isPresent"}, "next": "End"}], "default": "Each"},
        "End": {"type": "succeed"},
    });
    let plan = case("Each", states).plan();
    let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
    origin.input = json!({"items": [1, 2]}).into();
    let mut instance = Instance::pending(origin, Timestamp(0));
    let limits = Limits::default();
    let mut turn =
        |messages: &[Message]| advance(&plan, &mut instance, messages, Timestamp(0), &limits).unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let started = turn(&[]);
        let started = if started.commands.is_empty() { panic!("nothing started") } else { started };
        seen.extend(identities(&started));
        let results: Vec<Message> = started
            .commands
            .iter()
            .map(|command| Message::ActivityCompleted { command: command.id, result: json!(1).into() })
            .collect();
        let joined = turn(&results);
        let timer = joined
            .commands
            .iter()
            .find(|command| matches!(command.kind, CommandKind::StartTimer { .. }))
            .unwrap()
            .id;
        if seen.len() == 2 {
            // The next round starts in the turn in which the timer fires.
            let next = turn(&[Message::TimerFired { timer }]);
            seen.extend(identities(&next));
            let failed: Vec<Message> = next
                .commands
                .iter()
                .take(1)
                .map(|command| Message::ActivityFailed {
                    command: command.id,
                    attempt: 0,
                    failure: Failure::permanent("Boom", ""),
                })
                .collect();
            turn(&failed);
            let rewound = turn(&[Message::Rewind { reason: String::new() }]);
            seen.extend(identities(&rewound));
            break;
        }
    }
    let paths: BTreeSet<&str> = seen.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(paths, BTreeSet::from(["Each/iterator/Do"]));
    let positions: Vec<(u32, u32, Vec<(u32, u32)>)> = seen
        .iter()
        .map(|step| (step.visit, step.redrive, step.fan_outs.iter().map(|l| (l.visit, l.index)).collect()))
        .collect();
    assert_eq!(
        positions[..4],
        [(1, 0, vec![(1, 0)]), (1, 0, vec![(1, 1)]), (1, 0, vec![(2, 0)]), (1, 0, vec![(2, 1)])]
    );
    let redriven: BTreeSet<(u32, u32)> =
        positions[4..].iter().map(|(_, redrive, fan_outs)| (*redrive, fan_outs[0].1)).collect();
    assert_eq!(
        redriven,
        BTreeSet::from([(0, 1), (1, 0)]),
        "the failed item is new work; the interrupted one may have run and is not"
    );
}

#[test]
fn work_names_the_innermost_map_or_parallel_that_fanned_out_into_it() {
    let does = |next: &str| json!({"type": "task", "activity": "Do", "next": next});
    let done = json!({"type": "succeed"});
    let inner = json!({"type": "map", "items": "$.input.items", "next": "Done", "iterator": {
        "startAt": "Do", "states": {"Do": does("Done"), "Done": done}}});
    let plan = case(
        "Fan",
        json!({
            "Fan": {"type": "parallel", "next": "End", "branches": [
                {"startAt": "Do", "states": {"Do": does("Done"), "Done": done}},
                {"startAt": "Each", "states": {"Each": inner, "Done": done}}]},
            "End": does("Done"),
            "Done": done,
        }),
    )
    .plan();
    let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
    origin.input = json!({"items": [1]}).into();
    let mut instance = Instance::pending(origin, Timestamp(0));
    let mut seen = Vec::new();
    let mut results = Vec::new();
    for _ in 0..2 {
        let turn = advance(&plan, &mut instance, &results, Timestamp(0), &Limits::default()).unwrap();
        seen.extend(identities(&turn));
        let completed = |command: &abide_workflow::command::Command| Message::ActivityCompleted {
            command: command.id,
            result: json!(1).into(),
        };
        results = turn.commands.iter().map(completed).collect();
    }
    let positions: Vec<_> = seen
        .iter()
        .map(|step| (step.path.as_str(), step.fan_out_path.as_deref(), step.fan_outs.len()))
        .collect();
    let each = "Fan/branches/1/Each";
    assert_eq!(
        positions,
        [
            ("Fan/branches/0/Do", Some("Fan"), 1),
            ("Fan/branches/1/Each/iterator/Do", Some(each), 2),
            ("End", None, 0)
        ]
    );
}

#[test]
fn a_second_run_of_an_instance_has_an_execution_id_of_its_own() {
    let plan = case("End", json!({"End": {"type": "succeed"}})).plan();
    let origin = |run| RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(run), &plan);
    assert_eq!(origin(2).execution_id().to_string(), "i/2");
    assert_ne!(origin(1).seed, origin(2).seed);
}
