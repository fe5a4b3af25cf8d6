//! Checks loops: one in which nothing ever waits would spin, and one without a wait state calls its activities without
//! pause. It does not estimate how often a loop runs.

use std::collections::BTreeSet;

use crate::definition::{Definition, State, StateKind};
use crate::finding::{Code, Finding};
use crate::flow::{Flow, state_of};
use crate::ids::StateId;

pub(super) fn check(definition: &Definition, flow: &Flow, findings: &mut Vec<Finding>) {
    let state = |id: &StateId| state_of(definition, *id);
    // A loop that remains a loop without the states that can wait never waits.
    let instant = flow.restricted(|id| state(&id).is_some_and(|state| !can_wait(definition, state)));
    let mut spinning: BTreeSet<StateId> = BTreeSet::new();
    for component in instant.components().iter().filter(|component| instant.is_loop(component)) {
        let names = joined_names(component.iter().filter_map(state));
        let message = format!("the loop through {names} never waits for anything");
        let hint = "put a task or a wait on every path round the loop";
        report(Code::LoopWithoutRest, component.iter().filter_map(state), message, hint, findings);
        spinning.extend(component);
    }
    let limited = definition.configuration.max_transitions.is_some();
    for component in flow.components().iter().filter(|component| flow.is_loop(component) && !limited) {
        let paced = component.iter().filter_map(state).any(|state| has_wait_state(definition, state));
        if !paced && !component.iter().any(|id| spinning.contains(id)) {
            let names = joined_names(component.iter().filter_map(state));
            let message = format!("the loop through {names} has neither a wait nor a limit");
            let hint = "add a wait state, or set configuration.maxTransitions";
            report(Code::LoopWithoutWait, component.iter().filter_map(state), message, hint, findings);
        }
    }
}

fn joined_names<'a>(states: impl Iterator<Item = &'a State>) -> String {
    let mut names: Vec<&str> = states.map(|state| state.name.as_str()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Adds a finding that points at the first state of the loop.
fn report<'a>(
    code: Code,
    states: impl Iterator<Item = &'a State>,
    message: String,
    hint: &str,
    findings: &mut Vec<Finding>,
) {
    if let Some(pointer) = states.map(|state| &state.pointer).min() {
        findings.push(Finding::new(code, pointer.clone(), message, hint));
    }
}

/// True if a run may wait in this state.
fn can_wait(definition: &Definition, state: &State) -> bool {
    match &state.kind {
        StateKind::Task(_) | StateKind::WaitUntil(_) | StateKind::WaitEvent(_) | StateKind::Workflow(_) => {
            true
        }
        StateKind::Compensation { steps } => steps.as_ref().is_some_and(|steps| !steps.is_empty()),
        _ => inner_states(definition, state).any(|inner| can_wait(definition, inner)),
    }
}

/// True if the state, or one inside it, waits for time or for an external event.
fn has_wait_state(definition: &Definition, state: &State) -> bool {
    matches!(state.kind, StateKind::WaitUntil(_) | StateKind::WaitEvent(_))
        || inner_states(definition, state).any(|inner| has_wait_state(definition, inner))
}

fn inner_states<'a>(definition: &'a Definition, state: &'a State) -> impl Iterator<Item = &'a State> {
    let blocks = state.blocks().iter().filter_map(|block| definition.blocks.get(block.0 as usize));
    blocks.flat_map(|block| block.states.values()).filter_map(|id| state_of(definition, *id))
}
