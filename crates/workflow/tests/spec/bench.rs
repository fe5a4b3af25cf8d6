//! The test bench that plays every case: a definition, mocks and events in; a story with one line per fact out.

use std::collections::BTreeMap;

use abide_workflow::history::{BranchOutcome, Fact, HistoryEvent, Note};
use abide_workflow::rehearse::{Mocks, Playback, Rehearsal, parse_stimuli};
use abide_workflow::{Failure, Finding, Limits, ParsedDefinition, Plan, Registry, Severity, TurnLimits};
use serde_json::{Value, json};

/// One case: a definition with its mocks, events, input and limits.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) definition: Value,
    registry: Option<Value>,
    mocks: Value,
    events: Vec<Value>,
    input: Value,
    children: Vec<Value>,
    pub(crate) limits: Limits,
}

/// A definition with these states that starts at `start`.
pub(crate) fn definition(start: &str, states: Value) -> Value {
    json!({
        "$schema": "workflow-schema-v1.json", "id": "case", "version": "1.0.0",
        "startAt": start, "states": states,
    })
}

/// A case with these states and defaults for everything else.
pub(crate) fn case(start: &str, states: Value) -> Case {
    Case {
        definition: definition(start, states),
        registry: None,
        mocks: json!({"activities": {}, "workflows": {}}),
        events: Vec::new(),
        input: json!({}),
        children: Vec::new(),
        limits: Limits::default(),
    }
}

impl Case {
    pub(crate) fn configuration(mut self, configuration: Value) -> Self {
        self.definition["configuration"] = configuration;
        self
    }

    pub(crate) fn registry(mut self, activities: Value) -> Self {
        self.registry = Some(json!({"activities": activities}));
        self
    }

    pub(crate) fn mock(mut self, activity: &str, outcomes: Value) -> Self {
        self.mocks["activities"][activity] = outcomes;
        self
    }

    pub(crate) fn mock_workflow(mut self, workflow: &str, outcomes: Value) -> Self {
        self.mocks["workflows"][workflow] = outcomes;
        self
    }

    pub(crate) fn event(mut self, at: &str, name: &str, data: Value) -> Self {
        self.events.push(json!({"at": at, "event": name, "data": data}));
        self
    }

    pub(crate) fn control(mut self, at: &str, operation: &str) -> Self {
        self.events.push(json!({"at": at, "do": operation}));
        self
    }

    pub(crate) fn input(mut self, input: Value) -> Self {
        self.input = input;
        self
    }

    pub(crate) fn with(mut self, id: &str, start: &str, states: Value) -> Self {
        let mut child = definition(start, states);
        child["id"] = id.into();
        self.children.push(child);
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn plan(&self) -> Plan {
        let registry = self.registry.as_ref().map(|value| Registry::parse(&value.to_string()).unwrap());
        compile(&self.definition, registry.as_ref())
    }

    /// Plays the case once.
    pub(crate) fn play(&self, turn: TurnLimits, reload: bool) -> Playback {
        let plan = self.plan();
        let children: Vec<Plan> = self.children.iter().map(|child| compile(child, None)).collect();
        Rehearsal {
            children: children.iter().map(|plan| (plan.id().to_owned(), plan)).collect::<BTreeMap<_, _>>(),
            mocks: Mocks::parse(&self.mocks.to_string()).unwrap(),
            stimuli: parse_stimuli(&Value::Array(self.events.clone()).to_string()).unwrap(),
            input: self.input.clone(),
            limits: Limits { turn, ..self.limits.clone() },
            reload,
            turns_max: 20_000,
            ..Rehearsal::new(&plan)
        }
        .play()
        .unwrap()
    }
}

pub(crate) fn compile(definition: &Value, registry: Option<&Registry>) -> Plan {
    match ParsedDefinition::parse(&definition.to_string()).validate(registry) {
        Ok(validated) => validated.compile(),
        Err(rejected) => panic!("the case's definition is rejected: {:#?}", rejected.findings),
    }
}

/// Checks that the case gives this story in all modes.
#[track_caller]
pub(crate) fn check(rule: &str, case: &Case, expected: &[&str]) {
    let default = case.limits.turn;
    for (mode, turn, reload) in [
        ("plainly", default, false),
        ("reloaded", default, true),
        ("in smallest turns", TurnLimits::FLOOR, true),
    ] {
        let playback = case.play(turn, reload);
        let story = story(&playback);
        assert!(!playback.turn_limit_reached, "{rule}: turn limit reached when played {mode}: {story:#?}");
        let expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(story, expected, "{rule}, played {mode}\nstory was: {story:#?}");
    }
}

/// Checks that validation finds exactly these codes at these places, notes aside.
#[track_caller]
pub(crate) fn finds(rule: &str, definition: &Value, registry: Option<&Value>, expected: &[(&str, &str)]) {
    let is_serious = |finding: &Finding| finding.severity() > Severity::Note;
    let findings = findings(definition, registry);
    let findings: Vec<(&str, &str)> = findings
        .iter()
        .filter(|finding| is_serious(finding))
        .map(|finding| (finding.code.as_str(), finding.pointer.as_str()))
        .collect();
    assert_eq!(findings, expected, "{rule}");
}

pub(crate) fn findings(definition: &Value, registry: Option<&Value>) -> Vec<Finding> {
    let registry =
        registry.map(|activities| Registry::parse(&json!({"activities": activities}).to_string()).unwrap());
    match ParsedDefinition::parse(&definition.to_string()).validate(registry.as_ref()) {
        Ok(validated) => validated.findings().to_vec(),
        Err(rejected) => rejected.findings,
    }
}

/// One line per fact that matters for the language. Lines of child runs are indented.
pub(crate) fn story(playback: &Playback) -> Vec<String> {
    let mut positions = BTreeMap::new();
    let mut lines = Vec::new();
    for (instance, event) in &playback.timeline {
        if let Fact::BranchStarted { branch, index, .. } = &event.fact {
            positions.insert((instance.clone(), *branch), *index);
        }
        let position = |branch| positions.get(&(instance.clone(), branch)).copied().unwrap_or(0);
        let indent = if instance.as_str() == "rehearsal" { "" } else { "  " };
        lines.extend(line(event, position).map(|line| format!("{indent}{line}")));
    }
    lines.extend(playback.refusals.iter().map(|refusal| format!("refused: {refusal}")));
    if playback.outcome.is_none() {
        lines.extend(playback.current_states.iter().map(|state| format!("waits in {}", state.state)));
    }
    lines
}

fn line(event: &HistoryEvent, position: impl Fn(abide_workflow::ids::BranchId) -> u32) -> Option<String> {
    let when = |late: bool| if late { "late " } else { "" };
    Some(match &event.fact {
        Fact::OrchestratorStarted
        | Fact::OrchestratorCompleted
        | Fact::ExecutionStarted { .. }
        | Fact::BranchStarted { .. } => return None,
        Fact::StateEntered { state, visit: 1, .. } => state.clone(),
        Fact::StateEntered { state, visit, .. } => format!("{state} #{visit}"),
        Fact::StateLeft { error: Some(error), next: Some(next), .. } => format!("{} -> {next}", error.code),
        Fact::StateLeft { error: Some(error), .. } => format!("{} is not caught", error.code),
        Fact::StateLeft { .. } => return None,
        Fact::BranchEnded { branch, outcome } => {
            let outcome = match outcome {
                BranchOutcome::Succeeded => "succeeded",
                BranchOutcome::Failed => "failed",
                BranchOutcome::Cancelled => "cancelled",
            };
            format!("branch {} {outcome}", position(*branch))
        }
        Fact::TaskScheduled { activity, input, .. } => format!("{activity}({input})"),
        Fact::TaskCompleted { result, late, .. } => format!("{}= {result}", when(*late)),
        Fact::TaskFailed { error, retry_at: Some(_), .. } => format!("! {}, again", error.code),
        Fact::TaskFailed { error, late, .. } => format!("{}! {}", when(*late), error.code),
        Fact::TimerCreated { fire_at, .. } => format!("timer {}", fire_at.since(event.timestamp)),
        Fact::TimerFired { .. } => "fired".to_owned(),
        Fact::EventRaised { name, input } => format!("event {name} {input}"),
        Fact::SubOrchestrationInstanceCreated { name, input, .. } => format!("child {name}({input})"),
        Fact::SubOrchestrationInstanceCompleted { result, late, .. } => {
            format!("{}child = {result}", when(*late))
        }
        Fact::SubOrchestrationInstanceFailed { error, late, .. } => {
            format!("{}child ! {}", when(*late), error.code)
        }
        Fact::ExecutionSuspended { .. } => "suspended".to_owned(),
        Fact::ExecutionResumed { .. } => "resumed".to_owned(),
        Fact::ExecutionRewound { redrive, .. } => format!("rewound {redrive}"),
        Fact::ExecutionCompleted { result } => format!("Completed {result}"),
        Fact::ExecutionFailed { error } => format!("Failed {}", failure_line(error)),
        Fact::ExecutionTerminated { .. } => "Terminated".to_owned(),
        Fact::ContinueAsNew { input } => format!("ContinuedAsNew {input}"),
        Fact::GenericEvent { note } => note_line(note),
    })
}

fn failure_line(error: &Failure) -> String {
    format!("{} in {}", error.code, error.state.as_deref().unwrap_or("?"))
}

fn note_line(note: &Note) -> String {
    match note {
        Note::TransitionsNearLimit { transitions, limit } => {
            format!("note: {transitions} of {limit} transitions")
        }
        Note::WorkflowTimedOut { timeout, states } => {
            format!("note: timed out after {timeout} in {}", states.join(", "))
        }
        Note::EscalationNotifyFailed { error } => format!("note: notify failed {}", error.code),
        Note::RecoveryStarted { state } => format!("note: recovery in {state}"),
        Note::RecoveryFailed { error } => format!("note: recovery failed {}", error.code),
        Note::CompensationStarted { steps, .. } => format!("note: compensating {steps}"),
        Note::CompensationRetried { steps, .. } => format!("note: compensating {steps} again"),
        Note::CompensationStepFailed { activity, error, .. } => {
            format!("note: {activity} failed to compensate: {}", error.code)
        }
        Note::CompensationInputIncomplete { step, .. } => {
            format!("note: compensation input of {step} is incomplete")
        }
        Note::CompensationCompleted { succeeded, failed, .. } => {
            format!("note: compensated {succeeded}, failed {failed}")
        }
    }
}
