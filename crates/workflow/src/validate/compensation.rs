//! Finds gaps in compensation: work that can be compensated but would not be if a later state fails permanently.
//!
//! A gap is only a warning: not compensating may be what the author wants.

use std::collections::BTreeSet;

use crate::definition::{Definition, ErrorHandler, State, StateKind};
use crate::finding::{Code, Finding};
use crate::flow::{Flow, resolve, state_of};
use crate::ids::StateId;
use crate::registry::Registry;

pub(super) fn check(
    definition: &Definition,
    flow: &Flow,
    registry: Option<&Registry>,
    findings: &mut Vec<Finding>,
) {
    let is_compensation = |state: &State| matches!(state.kind, StateKind::Compensation { .. });
    let compensable: BTreeSet<StateId> = states_with_ids(definition)
        .filter(|(_, state)| compensating_activity(state, registry).is_some())
        .map(|(id, _)| id)
        .collect();
    let automatic =
        definition.states.iter().any(|state| matches!(state.kind, StateKind::Compensation { steps: None }));
    // A state that could not be read may be the work to compensate.
    let all_read = definition.states.iter().all(|state| !state.has_unreadable_exits);
    report_empty_compensations(definition, automatic && compensable.is_empty() && all_read, findings);
    report_never_compensated(definition, registry, automatic, findings);
    if !definition.states.iter().any(is_compensation) {
        return;
    }
    let after = states_after_compensable_work(definition, flow, &compensable);
    for (id, state) in states_with_ids(definition).filter(|(id, _)| after.contains(id)) {
        if is_caught(definition, id) {
            continue;
        }
        let message = match &state.kind {
            StateKind::Fail { .. } => {
                format!(
                    "the run may end at {:?} although work before it can be compensated and was not",
                    state.name
                )
            }
            _ if can_fail(definition, state) => {
                format!(
                    "if {:?} fails permanently, work before it that can be compensated is not compensated",
                    state.name
                )
            }
            _ => continue,
        };
        let hint = "put a compensation state before it, or add an onError that leads to one";
        findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
    }
}

fn states_with_ids(definition: &Definition) -> impl Iterator<Item = (StateId, &State)> {
    (0_u32..).map(StateId).zip(&definition.states)
}

fn owner_of(definition: &Definition, state: &State) -> Option<StateId> {
    definition.blocks.get(state.block.0 as usize)?.owner
}

/// The states that may be entered after work that can be compensated: all that follow it, up to a compensation.
fn states_after_compensable_work(
    definition: &Definition,
    flow: &Flow,
    compensable: &BTreeSet<StateId>,
) -> BTreeSet<StateId> {
    let mut seeds: Vec<StateId> = Vec::new();
    let mut working: BTreeSet<StateId> = BTreeSet::new();
    // Inner states have higher numbers than their owners, so one pass from the end propagates work outwards.
    for (id, state) in states_with_ids(definition).collect::<Vec<_>>().into_iter().rev() {
        if working.contains(&id) {
            // One branch may have done work while another failed: every exit of the owner may follow.
            seeds.extend(flow.successors(id));
        } else if compensable.contains(&id) {
            // A task that fails has no work to compensate, so only its success leads on.
            seeds.extend(state.next.as_ref().and_then(|next| resolve(definition, state.block, next)));
        } else {
            continue;
        }
        working.extend(owner_of(definition, state));
    }
    let is_compensation = |id: StateId| {
        state_of(definition, id).is_some_and(|state| matches!(state.kind, StateKind::Compensation { .. }))
    };
    let mut after = flow.reachable_until(seeds, is_compensation);
    // One pass from the start propagates it inwards: to branches of a state entered afterwards, and to siblings of a
    // branch that did work.
    for (id, state) in states_with_ids(definition) {
        let inside = owner_of(definition, state)
            .is_some_and(|owner| after.contains(&owner) || working.contains(&owner));
        if inside {
            after.insert(id);
        }
    }
    after
}

/// True if a handler catches every error of a state: its own or one of an enclosing state.
fn is_caught(definition: &Definition, id: StateId) -> bool {
    let Some(state) = state_of(definition, id) else { return true };
    let own = state.on_error.iter().any(ErrorHandler::handles_all);
    own || owner_of(definition, state).is_some_and(|owner| is_caught(definition, owner))
}

fn can_fail(definition: &Definition, state: &State) -> bool {
    match &state.kind {
        StateKind::Task(_) | StateKind::Workflow(_) => true,
        StateKind::WaitEvent(_) => {
            let limited = state.timeout.or(definition.configuration.default_timeout).is_some();
            limited && state.timeout_next.is_none()
        }
        StateKind::Choice { default, .. } => default.is_none(),
        _ => false,
    }
}

/// The activity that compensates a task: the task's own, or the one registered for its activity.
fn compensating_activity(state: &State, registry: Option<&Registry>) -> Option<String> {
    let StateKind::Task(task) = &state.kind else { return None };
    let own = task.compensate_with.as_ref().map(|call| call.activity.clone());
    own.or_else(|| registry?.get(&task.call.activity)?.compensation.clone())
}

/// Reports compensations that will never have anything to compensate.
fn report_empty_compensations(definition: &Definition, nothing_recorded: bool, findings: &mut Vec<Finding>) {
    for state in &definition.states {
        let empty = match &state.kind {
            StateKind::Compensation { steps: Some(steps) } => steps.is_empty(),
            StateKind::Compensation { steps: None } => nothing_recorded,
            _ => false,
        };
        if empty {
            let message = format!("compensation {:?} has nothing to compensate", state.name);
            let hint = "add steps, or compensateWith to the tasks before it";
            findings.push(Finding::new(Code::CompensationEmpty, state.pointer.clone(), message, hint));
        }
    }
}

/// Reports tasks that no compensation covers: there is no automatic one, and no explicit step calls their compensating
/// activity.
fn report_never_compensated(
    definition: &Definition,
    registry: Option<&Registry>,
    automatic: bool,
    findings: &mut Vec<Finding>,
) {
    if automatic {
        return;
    }
    let explicit: BTreeSet<&str> = definition
        .states
        .iter()
        .filter_map(|state| match &state.kind {
            StateKind::Compensation { steps: Some(steps) } => Some(steps),
            _ => None,
        })
        .flatten()
        .map(|step| step.call.activity.as_str())
        .collect();
    for state in &definition.states {
        let Some(activity) = compensating_activity(state, registry) else { continue };
        if !explicit.contains(activity.as_str()) {
            let message =
                format!("{activity:?} would compensate {:?}, but no compensation calls it", state.name);
            let hint =
                "add a compensation state without steps, or with a step for it, and route errors there";
            findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
        }
    }
}
