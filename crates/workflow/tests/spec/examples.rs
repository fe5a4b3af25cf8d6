//! The examples: valid without a warning, every case ends as its author expects, and no failure of a task leaves work
//! without its compensation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use abide_workflow::history::Fact;
use abide_workflow::rehearse::{ActivityAttempt, Mocks, Playback, Rehearsal, parse_stimuli};
use abide_workflow::{Outcome, ParsedDefinition, Plan, Registry, Status, TurnLimits};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The folders of the examples that are workflows.
fn workflows() -> Vec<PathBuf> {
    folders(&root()).into_iter().filter(|folder| folder.join("workflow.json").exists()).collect()
}

struct Example {
    folder: PathBuf,
    registry: Registry,
    plan: Plan,
}

impl Example {
    fn load(folder: PathBuf) -> Self {
        let registry = Registry::parse(&read(&folder.join("activities.json")))
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let plan = compile(&folder.join("workflow.json"), &registry);
        Self { folder, registry, plan }
    }

    fn cases(&self) -> Vec<PathBuf> {
        folders(&self.folder.join("cases"))
    }

    fn play(
        &self,
        case: &Path,
        fault_at_call: Option<usize>,
        turn: Option<TurnLimits>,
        reload: bool,
    ) -> Playback {
        let optional =
            |name: &str| Some(case.join(name)).filter(|path| path.exists()).map(|path| read(&path));
        let expected = expected(case);
        let children: Vec<Plan> = expected["with"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|name| compile(&self.folder.join(name.as_str().unwrap()), &self.registry))
            .collect();
        let mut rehearsal = Rehearsal {
            children: children.iter().map(|plan| (plan.id().to_owned(), plan)).collect::<BTreeMap<_, _>>(),
            mocks: optional("mock.json").map(|text| Mocks::parse(&text).unwrap()).unwrap_or_default(),
            stimuli: optional("events.json").map(|text| parse_stimuli(&text).unwrap()).unwrap_or_default(),
            input: optional("input.json").map_or(Value::Null, |text| serde_json::from_str(&text).unwrap()),
            reload,
            ..Rehearsal::new(&self.plan)
        };
        self.plan.check_input(&rehearsal.input).unwrap();
        rehearsal.mocks.fault_at_call = fault_at_call;
        if let Some(turn) = turn {
            rehearsal.limits.turn = turn;
        }
        rehearsal.play().unwrap()
    }
}

fn compile(path: &Path, registry: &Registry) -> Plan {
    match ParsedDefinition::parse(&read(path)).validate(Some(registry)) {
        Ok(validated) => {
            assert_eq!(validated.findings(), [], "{}", path.display());
            validated.compile()
        }
        Err(rejected) => panic!("{}: {:#?}", path.display(), rejected.findings),
    }
}

fn expected(case: &Path) -> Value {
    serde_json::from_str(&read(&case.join("expect.json"))).unwrap()
}

fn examples() -> Vec<Example> {
    let examples: Vec<Example> = workflows().into_iter().map(Example::load).collect();
    assert!(examples.len() >= 6);
    examples
}

/// The text of every definition under `examples/`.
pub(crate) fn definitions() -> Vec<String> {
    let mut texts = Vec::new();
    for folder in workflows() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "json")
                && path.file_name().is_some_and(|name| name != "activities.json")
            {
                texts.push(read(&path));
            }
        }
    }
    assert!(texts.len() >= 6);
    texts
}

#[test]
fn every_case_ends_as_its_author_expects_however_it_is_played() {
    for example in examples() {
        assert!(example.cases().len() >= 2, "{}", example.folder.display());
        for case in example.cases() {
            let expected = expected(&case);
            for (turn, reload) in [(None, false), (None, true), (Some(TurnLimits::FLOOR), true)] {
                let playback = example.play(&case, None, turn, reload);
                let name = case.display();
                let lines = crate::bench::story(&playback);
                assert_eq!(
                    playback.status.to_string(),
                    expected["status"].as_str().unwrap(),
                    "{name}: {lines:#?}"
                );
                match &playback.outcome {
                    Some(Outcome::Completed(output)) if expected.get("output").is_some() => {
                        assert_eq!(**output, expected["output"], "{name}");
                    }
                    Some(Outcome::Failed(failure)) if expected.get("error").is_some() => {
                        assert_eq!(failure.code, expected["error"].as_str().unwrap(), "{name}");
                    }
                    _ => {}
                }
                if let Some(activities) = expected["activities"].as_array() {
                    let called: Vec<&str> =
                        playback.attempts.iter().map(|attempt| attempt.activity.as_str()).collect();
                    assert_eq!(
                        called,
                        activities.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(),
                        "{name}"
                    );
                }
                if let Some(states) = expected["states"].as_array() {
                    let entered: Vec<&str> = playback
                        .timeline
                        .iter()
                        .filter(|(id, _)| id.as_str() == "rehearsal")
                        .filter_map(|(_, event)| match &event.fact {
                            Fact::StateEntered { state, .. } => Some(state.as_str()),
                            _ => None,
                        })
                        .collect();
                    assert_eq!(
                        entered,
                        states.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(),
                        "{name}"
                    );
                }
                assert!(playback.unmocked.is_empty(), "{name}: {:?}", playback.unmocked);
            }
        }
    }
}

#[test]
fn failing_each_task_at_each_visit_still_ends_with_completed_compensations() {
    let mut faults = 0;
    for example in examples() {
        for case in example.cases() {
            let calls = example
                .play(&case, None, None, false)
                .attempts
                .iter()
                .filter(|attempt| attempt.attempt == 0)
                .count();
            for n in 0..calls {
                faults += 1;
                let playback = example.play(&case, Some(n), None, true);
                let name = format!("{} with a fault at call {n}", case.display());
                let lines = crate::bench::story(&playback);
                assert!(!playback.turn_limit_reached, "{name}: {lines:#?}");
                let ended = playback.outcome.is_some() || expected(&case)["status"] == "Running";
                assert!(ended, "{name} hangs: {lines:#?}");
                if playback.status == Status::Failed {
                    check_compensated(&example, &playback, &name);
                }
            }
        }
    }
    assert!(faults > 50, "{faults}");
}

/// Checks that all work with a registered compensation was compensated, or that the compensation failed permanently.
fn check_compensated(example: &Example, playback: &Playback, name: &str) {
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    // The work of a child that completed is for its parent to compensate, as a whole.
    let failed: BTreeSet<&str> = playback
        .timeline
        .iter()
        .filter(|(_, event)| matches!(event.fact, Fact::ExecutionFailed { .. }))
        .map(|(instance, _)| instance.as_str())
        .collect();
    let of_failed_run =
        |attempt: &&ActivityAttempt| attempt.succeeded && failed.contains(attempt.instance.as_str());
    for attempt in playback.attempts.iter().filter(of_failed_run) {
        if let Some(compensation) =
            example.registry.get(&attempt.activity).and_then(|activity| activity.compensation.clone())
        {
            *expected.entry(compensation).or_default() += 1;
        }
    }
    let tried: BTreeSet<(&str, &str)> =
        playback.attempts.iter().map(|attempt| (attempt.activity.as_str(), attempt.step.as_str())).collect();
    for (activity, _) in tried {
        if let Some(count) = expected.get_mut(activity) {
            *count -= 1;
        }
    }
    let not_compensated: Vec<&String> =
        expected.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name).collect();
    assert!(
        not_compensated.is_empty(),
        "{name}: {not_compensated:?} did not run: {:#?}",
        crate::bench::story(playback)
    );
}

#[test]
fn the_onboarding_example_is_stuck_after_fifty_hours() {
    let example = Example::load(root().join("device-onboarding"));
    assert_eq!(example.plan.stuck_after().unwrap().0, 50 * 3_600_000);
    assert_eq!(example.plan.id(), "device-onboarding-workflow");
}

#[test]
fn every_example_can_be_drawn() {
    for text in definitions() {
        let parsed = ParsedDefinition::parse(&text);
        let drawing = abide_workflow::graph::mermaid(parsed.definition().unwrap());
        assert!(drawing.starts_with("flowchart TD\n") && !drawing.contains("missing"), "{drawing}");
        let opened = drawing.matches("subgraph").count();
        assert_eq!(opened, drawing.lines().filter(|line| line.trim() == "end").count());
    }
}
