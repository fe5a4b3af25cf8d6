//! Properties of any definition and any inbox: no panic, no spinning, the same turn twice, nothing lost by a reload,
//! and limits that split turns without changing what happens.

use std::collections::BTreeMap;

use abide_workflow::command::CommandKind;
use abide_workflow::{
    CommandId, Failure, Instance, InstanceId, Limits, Message, ParsedDefinition, PartKey, Plan, RunNumber,
    RunOrigin, Status, Timestamp, TurnLimits, advance,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any small JSON value.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z$.\\[\\]*?@ä ]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "task",
            "wait",
            "choice",
            "$.input.x",
            "$.state.a[*]",
            "PT1S",
            "A",
            "B",
            "End"
        ])
        .prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "type",
        "next",
        "activity",
        "input",
        "output",
        "states",
        "startAt",
        "branches",
        "iterator",
        "items",
        "choices",
        "when",
        "path",
        "op",
        "value",
        "waitType",
        "duration",
        "eventName",
        "timeout",
        "onError",
        "match",
        "steps",
        "configuration",
        "id",
        "version",
        "$schema",
        "x",
    ]);
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The states of a block, by number: every target exists, every state is reached, and the last one ends the block.
fn block(depth: u32) -> BoxedStrategy<Value> {
    let states = prop::collection::vec((state(depth), any::<prop::sample::Index>(), any::<bool>()), 0..4);
    (states, prop::bool::weighted(0.2))
        .prop_map(|(states, fails)| {
            let count = states.len();
            let name = |n: usize| if n >= count { "End".to_owned() } else { format!("S{n}") };
            let mut block = serde_json::Map::new();
            for (n, (mut state, jump, compensates)) in states.into_iter().enumerate() {
                let next = name(n + 1);
                // Only forward, so that every generated definition ends; loops have cases of their own.
                let other = name(n + 1 + jump.index(count - n));
                match state["type"].as_str() {
                    Some("choice") => {
                        state["choices"] =
                            json!([{"when": {"path": "$.state.x", "op": "isPresent"}, "next": other}]);
                        state["default"] = next.into();
                    }
                    _ => {
                        state["next"] = next.into();
                        if compensates && state["type"] != "compensation" {
                            state["onError"] = other.into();
                        }
                    }
                }
                block.insert(name(n), state);
            }
            let end = if fails {
                json!({"type": "fail", "error": "Chosen"})
            } else {
                json!({"type": "succeed", "output": ["$.state.x?", "$.event?", "$.error?"]})
            };
            block.insert("End".to_owned(), end);
            json!({"startAt": name(0), "states": block})
        })
        .boxed()
}

fn state(depth: u32) -> BoxedStrategy<Value> {
    let task = (prop::sample::select(vec!["A", "B", "C"]), any::<bool>(), 1_u32..4).prop_map(|(activity, compensable, attempts)| {
        let mut task = json!({"type": "task", "activity": activity, "input": {"x": "$.state.x?"}, "output": "$.state.x", "timeout": "PT1H",
            "retryPolicy": {"maxAttempts": attempts}});
        if compensable {
            task["compensateWith"] = json!({"activity": "Undo", "input": "$.state.x"});
        }
        task
    });
    let simple = prop_oneof![
        4 => task,
        1 => Just(json!({"type": "wait", "waitType": "duration", "duration": "PT1M"})),
        2 => prop::sample::select(vec!["Go", "go", "Stop"]).prop_map(|name| json!({"type": "wait", "waitType": "externalEvent", "eventName": name, "timeout": "PT1H", "output": "$.state.x"})),
        1 => Just(json!({"type": "choice"})),
        1 => Just(json!({"type": "compensation"})),
        1 => Just(json!({"type": "compensation", "steps": [{"activity": "Undo", "input": "$.state.x?"}, {"activity": "Undo"}]})),
        1 => Just(json!({"type": "workflow", "workflow": "kid", "timeout": "PT1H", "output": "$.state.x"})),
    ];
    if depth == 0 {
        return simple.boxed();
    }
    let fan = (prop::collection::vec(block(depth - 1), 1..4), prop::option::of(1_usize..3)).prop_map(
        |(branches, least)| {
            let mut state = json!({"type": "parallel", "output": "$.state.x"});
            if let Some(least) = least.filter(|least| *least <= branches.len()) {
                state["join"] = json!({"atLeast": least});
            }
            state["branches"] = branches.into();
            state
        },
    );
    let map = (block(depth - 1), prop::option::of(1_u32..3), prop::option::of(1_u32..4)).prop_map(
        |(iterator, cap, least)| {
            let mut state =
                json!({"type": "map", "items": "$.input.items", "iterator": iterator, "output": "$.state.x"});
            if let Some(least) = least {
                state["join"] = json!({"atLeast": least});
            }
            if let Some(cap) = cap {
                state["maxConcurrency"] = cap.into();
            }
            state
        },
    );
    prop_oneof![6 => simple, 2 => fan, 2 => map].boxed()
}

/// Valid definitions: a generated definition becomes valid by removing its unreachable states.
fn valid() -> impl Strategy<Value = Plan> {
    (block(2), any::<bool>()).prop_map(|(mut block, timeout)| {
        prune(&mut block);
        let mut definition = json!({"$schema": "workflow-schema-v1.json", "id": "drawn", "version": "1.0.0"});
        for (name, value) in block.as_object().unwrap() {
            definition[name] = value.clone();
        }
        if timeout {
            definition["configuration"] =
                json!({"timeout": "PT2H", "escalation": {"notify": {"activity": "A"}}});
        }
        match ParsedDefinition::parse(&definition.to_string()).validate(None) {
            Ok(validated) => validated.compile(),
            Err(rejected) => panic!("{definition:#}\n{:#?}", rejected.findings),
        }
    })
}

/// Removes unreachable states, here and in inner blocks.
fn prune(block: &mut Value) {
    let mut reached = vec![block["startAt"].as_str().unwrap().to_owned()];
    let mut at = 0;
    while let Some(name) = reached.get(at).cloned() {
        at += 1;
        let state = &block["states"][&name];
        let mut targets: Vec<&Value> = vec![&state["next"], &state["onError"], &state["default"]];
        targets.extend(state["choices"].as_array().into_iter().flatten().map(|choice| &choice["next"]));
        for target in targets.into_iter().filter_map(Value::as_str) {
            if !reached.iter().any(|known| known == target) {
                reached.push(target.to_owned());
            }
        }
    }
    block["states"].as_object_mut().unwrap().retain(|name, _| reached.contains(name));
    for state in block["states"].as_object_mut().unwrap().values_mut() {
        state.get_mut("branches").and_then(Value::as_array_mut).into_iter().flatten().for_each(prune);
        state.get_mut("iterator").into_iter().for_each(prune);
    }
}

/// The next event from outside; commands are chosen by how recent they are.
#[derive(Clone, Debug)]
enum Move {
    Complete(prop::sample::Index),
    Fail(prop::sample::Index, bool),
    Fire(prop::sample::Index),
    Raise(&'static str),
    Order(u8),
    Wait,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => any::<prop::sample::Index>().prop_map(Move::Complete),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, again)| Move::Fail(at, again)),
        2 => any::<prop::sample::Index>().prop_map(Move::Fire),
        2 => prop::sample::select(vec!["Go", "Stop", "Other"]).prop_map(Move::Raise),
        1 => (0_u8..8).prop_map(Move::Order),
        1 => Just(Move::Wait),
    ];
    prop::collection::vec(one, 0..60)
}

/// A run driven by moves, with all its commands, facts and refusals.
struct Driven<'a> {
    plan: &'a Plan,
    limits: Limits,
    instance: Instance,
    stored: BTreeMap<PartKey, Vec<u8>>,
    reload: bool,
    now: Timestamp,
    commands: Vec<(CommandId, CommandKind)>,
    facts: Vec<String>,
    refusals: Vec<String>,
    turns: usize,
}

impl<'a> Driven<'a> {
    fn new(plan: &'a Plan, turn: TurnLimits, reload: bool) -> Self {
        let mut origin = RunOrigin::new(InstanceId::new("drawn").unwrap(), RunNumber(1), plan);
        origin.input = json!({"items": [1, 2, 3]}).into();
        Self {
            plan,
            limits: Limits { turn, ..Limits::default() },
            instance: Instance::pending(origin, Timestamp(0)),
            stored: BTreeMap::new(),
            reload,
            now: Timestamp(0),
            commands: Vec::new(),
            facts: Vec::new(),
            refusals: Vec::new(),
            turns: 0,
        }
    }

    fn send(&mut self, messages: Vec<Message>) {
        let mut inbox = messages;
        loop {
            self.turns += 1;
            assert!(self.turns < 20_000, "the run spins");
            let turn = advance(self.plan, &mut self.instance, &inbox, self.now, &self.limits).unwrap();
            inbox.drain(..turn.consumed);
            assert!(
                turn.commands.len()
                    <= self.limits.turn.at_least_floor(self.limits.payload_bytes_max).commands_max
            );
            for change in turn.changes {
                match change.value {
                    Some(bytes) => self.stored.insert(change.key, bytes),
                    None => self.stored.remove(&change.key),
                };
            }
            self.commands.extend(turn.commands.into_iter().map(|command| (command.id, command.kind)));
            let describe = |event: &abide_workflow::history::HistoryEvent| {
                let json = json!(event);
                let grouping = json["eventType"] == "OrchestratorStarted"
                    || json["eventType"] == "OrchestratorCompleted";
                let mut json = json;
                json.as_object_mut().unwrap().remove("sequence");
                (!grouping).then(|| json.to_string())
            };
            self.facts.extend(turn.history.iter().filter_map(describe));
            self.refusals.extend(turn.refusals.iter().map(|(_, refusal)| refusal.to_string()));
            if self.reload {
                let parts = self.stored.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice()));
                self.instance = Instance::load(parts).unwrap();
            }
            if !turn.has_more_work && inbox.is_empty() {
                return;
            }
        }
    }

    fn make(&mut self, step: &Move) {
        let message = self.message(step);
        self.send(message.into_iter().collect());
    }

    /// Sends several messages at once, so that the message limit of a turn matters.
    fn make_together(&mut self, steps: &[Move]) {
        let messages = steps.iter().filter_map(|step| self.message(step)).collect();
        self.send(messages);
    }

    fn message(&mut self, step: &Move) -> Option<Message> {
        let of = |commands: &[(CommandId, CommandKind)],
                  at: &prop::sample::Index,
                  wanted: fn(&CommandKind) -> bool| {
            let matching: Vec<&(CommandId, CommandKind)> =
                commands.iter().filter(|(_, kind)| wanted(kind)).collect();
            // Late and repeated results are generated too, but the latest commands more often.
            (!matching.is_empty())
                .then(|| matching[matching.len() - 1 - at.index(matching.len().min(6))].clone())
        };
        let work: fn(&CommandKind) -> bool =
            |kind| matches!(kind, CommandKind::StartActivity(_) | CommandKind::StartChild(_));
        match step {
            Move::Complete(at) => of(&self.commands, at, work).map(|(command, kind)| match kind {
                CommandKind::StartChild(_) => {
                    Message::ChildCompleted { command, output: json!("kid").into() }
                }
                _ => Message::ActivityCompleted { command, result: json!(command.0).into() },
            }),
            Move::Fail(at, again) => of(&self.commands, at, work).map(|(command, kind)| {
                let failure =
                    if *again { Failure::retryable("Busy", "b") } else { Failure::permanent("Boom", "b") };
                match kind {
                    CommandKind::StartChild(_) => Message::ChildFailed { command, failure },
                    _ => Message::ActivityFailed { command, attempt: 0, failure },
                }
            }),
            Move::Fire(at) => of(&self.commands, at, |kind| matches!(kind, CommandKind::StartTimer { .. }))
                .map(|(timer, _)| Message::TimerFired { timer }),
            Move::Raise(name) => {
                Some(Message::EventRaised { name: (*name).to_owned(), payload: json!({"e": name}).into() })
            }
            Move::Order(operation) => {
                let reason = String::new();
                Some(match operation {
                    0 => Message::Terminate { reason },
                    1..=2 => Message::Suspend { reason },
                    3..=5 => Message::Resume { reason },
                    _ => Message::Rewind { reason },
                })
            }
            Move::Wait => {
                self.now = Timestamp(self.now.0 + 60_000);
                None
            }
        }
    }

    /// Completes all open commands until none is left.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            if self.instance.status().is_terminal() {
                return;
            }
            let before = self.commands.len();
            if self.instance.status() == Status::Suspended {
                self.send(vec![Message::Resume { reason: String::new() }]);
            }
            let results: Vec<Message> = self
                .commands
                .iter()
                .filter_map(|(id, kind)| match kind {
                    CommandKind::StartActivity(_) => {
                        Some(Message::ActivityCompleted { command: *id, result: json!(1).into() })
                    }
                    CommandKind::StartChild(_) => {
                        Some(Message::ChildCompleted { command: *id, output: json!(1).into() })
                    }
                    CommandKind::StartTimer { .. } => Some(Message::TimerFired { timer: *id }),
                    _ => None,
                })
                .collect();
            self.commands.retain(|(_, kind)| {
                !matches!(
                    kind,
                    CommandKind::StartActivity(_)
                        | CommandKind::StartChild(_)
                        | CommandKind::StartTimer { .. }
                )
            });
            for result in results {
                self.send(vec![result]);
            }
            if self.commands.len() == before && !self.instance.status().is_terminal() {
                self.send(vec![
                    Message::EventRaised { name: "Go".to_owned(), payload: json!(1).into() },
                    Message::EventRaised { name: "Stop".to_owned(), payload: json!(1).into() },
                ]);
            }
        }
    }
}

fn drive(
    plan: &Plan,
    moves: &[Move],
    turn: TurnLimits,
    reload: bool,
) -> (Vec<String>, Vec<(CommandId, CommandKind)>, Status) {
    let mut driven = Driven::new(plan, turn, reload);
    driven.send(Vec::new());
    for steps in moves.chunks(4) {
        driven.make_together(steps);
    }
    let status = driven.instance.status();
    // The position of refusals among the facts depends on how turns are split; the refusals themselves do not.
    driven.facts.append(&mut driven.refusals);
    (driven.facts, driven.commands, status)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_rejected(text: String) {
        let _ = ParsedDefinition::parse(&text).validate(None);
    }

    #[test]
    fn any_json_is_validated_without_a_panic_and_runs_if_valid(json in any_json()) {
        if let Ok(validated) = ParsedDefinition::parse(&json.to_string()).validate(None) {
            let plan = validated.compile();
            drive(&plan, &[], Limits::default().turn, true);
        }
    }

    #[test]
    fn any_states_in_a_sound_frame_are_validated_without_a_panic(states in any_json(), configuration in any_json()) {
        let definition = json!({"$schema": "workflow-schema-v1.json", "id": "x", "version": "1.0.0", "startAt": "A",
            "configuration": configuration, "states": {"A": states, "End": {"type": "succeed"}}});
        if let Ok(validated) = ParsedDefinition::parse(&definition.to_string()).validate(None) {
            let plan = validated.compile();
            drive(&plan, &[], Limits::default().turn, true);
        }
    }

    #[test]
    fn any_path_is_compiled_or_rejected(text in "\\$[a-z.\\[\\]*?@(),:'\"!=<>&|0-9 $-]{0,40}") {
        let _ = abide_workflow::path::Path::parse(&text);
        let _ = abide_workflow::path::Path::parse(&format!("$.state{text}"));
    }

    #[test]
    fn the_same_inputs_give_the_same_turns(plan in valid(), moves in moves()) {
        let turn = Limits::default().turn;
        prop_assert_eq!(drive(&plan, &moves, turn, false), drive(&plan, &moves, turn, false));
    }

    #[test]
    fn a_crash_and_reload_between_any_two_turns_changes_nothing(plan in valid(), moves in moves()) {
        let turn = Limits::default().turn;
        prop_assert_eq!(drive(&plan, &moves, turn, false), drive(&plan, &moves, turn, true));
    }

    #[test]
    fn limits_split_turns_and_change_nothing_else(plan in valid(), moves in moves(), commands in 40_usize..60, steps in 1_usize..30) {
        let small = TurnLimits { commands_max: commands, steps_max: steps, ..TurnLimits::FLOOR };
        prop_assert_eq!(drive(&plan, &moves, Limits::default().turn, false), drive(&plan, &moves, small, true));
    }

    #[test]
    fn any_valid_definition_driven_by_any_inbox_ends_or_waits(plan in valid(), moves in moves()) {
        let mut driven = Driven::new(&plan, Limits::default().turn, true);
        driven.send(Vec::new());
        for step in &moves {
            driven.make(step);
        }
        // When all commands complete, the run ends: nothing is stuck, whatever happened before.
        driven.settle();
        prop_assert!(driven.instance.status().is_terminal(), "{:?} {:#?}", driven.instance.status(), driven.instance.current_states(&plan));
    }

    #[test]
    fn terminate_ends_any_run_at_once(plan in valid(), moves in moves()) {
        let mut driven = Driven::new(&plan, Limits::default().turn, true);
        driven.send(Vec::new());
        for step in &moves {
            driven.make(step);
        }
        let ended = driven.instance.status().is_terminal();
        driven.send(vec![Message::Terminate { reason: "enough".to_owned() }]);
        prop_assert!(driven.instance.status().is_terminal());
        prop_assert!(ended || driven.instance.status() == Status::Terminated);
    }
}
