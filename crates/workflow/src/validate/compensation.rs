//! Gaps in undoing: work that can be undone but would stay done if a later state fails for good.
//!
//! A gap is a warning: leaving work done may be what the author wants.

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
    let is_undo = |state: &State| matches!(state.kind, StateKind::Compensation { .. });
    let undoable: BTreeSet<StateId> = numbered(definition)
        .filter(|(_, state)| undoing_activity(state, registry).is_some())
        .map(|(id, _)| id)
        .collect();
    let automatic =
        definition.states.iter().any(|state| matches!(state.kind, StateKind::Compensation { steps: None }));
    // A state that could not be read may be what there is to undo.
    let all_read = definition.states.iter().all(|state| !state.exits_unread);
    report_empty(definition, automatic && undoable.is_empty() && all_read, findings);
    report_never_undone(definition, registry, automatic, findings);
    if !definition.states.iter().any(is_undo) {
        return;
    }
    let after = after_work(definition, flow, &undoable);
    for (id, state) in numbered(definition).filter(|(id, _)| after.contains(id)) {
        if caught(definition, id) {
            continue;
        }
        let message = match &state.kind {
            StateKind::Fail { .. } => {
                format!(
                    "the run may end at {:?} with work done before it that can be undone and was not",
                    state.name
                )
            }
            _ if can_fail(definition, state) => {
                format!(
                    "if {:?} fails for good, what was done before it and can be undone stays done",
                    state.name
                )
            }
            _ => continue,
        };
        let hint = "lead here through a compensation, or add an onError that leads to one";
        findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
    }
}

fn numbered(definition: &Definition) -> impl Iterator<Item = (StateId, &State)> {
    (0_u32..).map(StateId).zip(&definition.states)
}

fn owner_of(definition: &Definition, state: &State) -> Option<StateId> {
    definition.blocks.get(state.block.0 as usize)?.owner
}

/// The states that may be entered while work that can be undone is done: what follows it, up to a compensation.
fn after_work(definition: &Definition, flow: &Flow, undoable: &BTreeSet<StateId>) -> BTreeSet<StateId> {
    let mut seeds: Vec<StateId> = Vec::new();
    let mut working: BTreeSet<StateId> = BTreeSet::new();
    // Inner states have higher numbers than their owners, so one pass from the end carries work outwards.
    for (id, state) in numbered(definition).collect::<Vec<_>>().into_iter().rev() {
        if working.contains(&id) {
            // Some branch has worked while another failed: every way out of the owner may follow.
            seeds.extend(flow.successors(id));
        } else if undoable.contains(&id) {
            // A task that fails has done nothing to undo, so only success leads on.
            seeds.extend(state.next.as_ref().and_then(|next| resolve(definition, state.block, next)));
        } else {
            continue;
        }
        working.extend(owner_of(definition, state));
    }
    let is_undo = |id: StateId| {
        state_of(definition, id).is_some_and(|state| matches!(state.kind, StateKind::Compensation { .. }))
    };
    let mut after = flow.reachable_until(seeds, is_undo);
    // One pass from the start carries it inwards: branches of a state entered afterwards, and siblings of a working branch.
    for (id, state) in numbered(definition) {
        let inside = owner_of(definition, state)
            .is_some_and(|owner| after.contains(&owner) || working.contains(&owner));
        if inside {
            after.insert(id);
        }
    }
    after
}

/// Whether every error of a state is taken by a handler, its own or one around it.
fn caught(definition: &Definition, id: StateId) -> bool {
    let Some(state) = state_of(definition, id) else { return true };
    let own = state.on_error.iter().any(ErrorHandler::takes_all);
    own || owner_of(definition, state).is_some_and(|owner| caught(definition, owner))
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

/// What undoes a task: its own, or the activity's registered pair.
fn undoing_activity(state: &State, registry: Option<&Registry>) -> Option<String> {
    let StateKind::Task(task) = &state.kind else { return None };
    let own = task.compensate_with.as_ref().map(|call| call.activity.clone());
    own.or_else(|| registry?.get(&task.call.activity)?.compensation.clone())
}

/// A compensation that will never find anything to undo.
fn report_empty(definition: &Definition, nothing_recorded: bool, findings: &mut Vec<Finding>) {
    for state in &definition.states {
        let empty = match &state.kind {
            StateKind::Compensation { steps: Some(steps) } => steps.is_empty(),
            StateKind::Compensation { steps: None } => nothing_recorded,
            _ => false,
        };
        if empty {
            let message = format!("compensation {:?} has nothing to undo", state.name);
            let hint = "add steps, or compensateWith to the tasks before it";
            findings.push(Finding::new(Code::CompensationEmpty, state.pointer.clone(), message, hint));
        }
    }
}

/// Tasks whose undoing nothing starts when a state fails: no automatic compensation, no explicit step that names it.
fn report_never_undone(
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
        let Some(activity) = undoing_activity(state, registry) else { continue };
        if !explicit.contains(activity.as_str()) {
            let message = format!("{activity:?} would undo {:?}, but no compensation runs it", state.name);
            let hint = "add a compensation state without steps, or with a step for it, and lead errors there";
            findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
        }
    }
}
