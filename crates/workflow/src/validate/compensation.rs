//! Gaps in undoing: work that can be undone but would stay done if a later state fails for good.
//!
//! A gap is a warning: leaving work done may be what the author wants.

use std::collections::BTreeSet;

use crate::definition::{Definition, State, StateKind};
use crate::finding::{Code, Finding};
use crate::flow::{Flow, resolve};
use crate::ids::StateId;
use crate::registry::Registry;

pub(super) fn check(
    definition: &Definition,
    flow: &Flow,
    registry: Option<&Registry>,
    findings: &mut Vec<Finding>,
) {
    let ids = || (0_u32..).zip(&definition.states).map(|(id, state)| (StateId(id), state));
    let undoable: Vec<StateId> =
        ids().filter(|(_, state)| undoing_activity(state, registry).is_some()).map(|(id, _)| id).collect();
    let automatic = ids().any(|(_, state)| matches!(state.kind, StateKind::Compensation { steps: None }));
    report_empty(definition, automatic && undoable.is_empty(), findings);
    report_never_undone(definition, registry, automatic, findings);

    let compensations: BTreeSet<StateId> = ids()
        .filter(|(_, state)| matches!(state.kind, StateKind::Compensation { .. }))
        .map(|(id, _)| id)
        .collect();
    if compensations.is_empty() {
        return;
    }
    let leads_to_undo = flow.leading_to(compensations.iter().copied());
    let followers = undoable.iter().flat_map(|id| flow.successors(*id).iter().copied());
    // What comes after a compensation has nothing left to undo.
    let mut after = flow.reachable_until(followers, |state| compensations.contains(&state));
    let mut covered: BTreeSet<StateId> = BTreeSet::new();
    // Owners have lower numbers than the states inside them, so both sets flow inwards in one pass.
    for (id, state) in ids() {
        let owner = definition.blocks.get(state.block.0 as usize).and_then(|block| block.owner);
        if owner.is_some_and(|owner| after.contains(&owner)) {
            after.insert(id);
        }
        let catch_all = state.on_error.iter().find(|handler| handler.takes_all());
        let caught = catch_all
            .and_then(|handler| resolve(definition, state.block, &handler.next))
            .is_some_and(|target| leads_to_undo.contains(&target));
        if caught || owner.is_some_and(|owner| covered.contains(&owner)) {
            covered.insert(id);
        }
        if can_fail(state) && after.contains(&id) && !covered.contains(&id) {
            let message = format!(
                "if {:?} fails for good, what was done before it and can be undone stays done",
                state.name
            );
            let hint = "add an onError that leads to a compensation";
            findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
        }
    }
}

fn can_fail(state: &State) -> bool {
    matches!(
        state.kind,
        StateKind::Task(_) | StateKind::Workflow(_) | StateKind::Parallel { .. } | StateKind::Map { .. }
    )
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

/// Tasks whose undoing nothing ever starts: no automatic compensation, no workflow timeout, no explicit step that names it.
fn report_never_undone(
    definition: &Definition,
    registry: Option<&Registry>,
    automatic: bool,
    findings: &mut Vec<Finding>,
) {
    if automatic || definition.configuration.timeout.is_some() {
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
            let message = format!("{activity:?} would undo {:?}, but nothing ever runs it", state.name);
            let hint = "add a compensation state without steps, or with a step for it, and lead errors there";
            findings.push(Finding::new(Code::CompensationGap, state.pointer.clone(), message, hint));
        }
    }
}
