//! Loops: one in which nothing ever waits would spin; one without a wait state hammers its activities.

use std::collections::BTreeSet;

use crate::definition::{Definition, State, StateKind};
use crate::finding::{Code, Finding};
use crate::flow::{Flow, state_of};
use crate::ids::StateId;

pub(super) fn check(definition: &Definition, flow: &Flow, findings: &mut Vec<Finding>) {
    let state = |id: &StateId| state_of(definition, *id);
    // What is left of a loop without its resting states, if it is still a loop, never rests.
    let instant = flow.restricted(|id| state(&id).is_some_and(|state| !rests(definition, state)));
    let mut spinning: BTreeSet<StateId> = BTreeSet::new();
    for component in instant.components().iter().filter(|component| instant.is_loop(component)) {
        let names = names(component.iter().filter_map(state));
        let message = format!("the loop through {names} never waits for anything");
        let hint = "put a task or a wait into every way round";
        report(Code::LoopWithoutRest, component.iter().filter_map(state), message, hint, findings);
        spinning.extend(component);
    }
    let limited = definition.configuration.max_transitions.is_some();
    for component in flow.components().iter().filter(|component| flow.is_loop(component) && !limited) {
        let paced = component.iter().filter_map(state).any(|state| paces(definition, state));
        if !paced && !component.iter().any(|id| spinning.contains(id)) {
            let names = names(component.iter().filter_map(state));
            let message = format!("the loop through {names} has neither a wait nor a limit");
            let hint = "add a wait state, or set configuration.maxTransitions";
            report(Code::LoopWithoutWait, component.iter().filter_map(state), message, hint, findings);
        }
    }
}

fn names<'a>(states: impl Iterator<Item = &'a State>) -> String {
    let mut names: Vec<&str> = states.map(|state| state.name.as_str()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Points at the first state of the loop.
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

/// Whether a run stays in this state for a while, at least sometimes.
fn rests(definition: &Definition, state: &State) -> bool {
    match &state.kind {
        StateKind::Task(_) | StateKind::WaitUntil(_) | StateKind::WaitEvent(_) | StateKind::Workflow(_) => {
            true
        }
        StateKind::Compensation { steps } => steps.as_ref().is_some_and(|steps| !steps.is_empty()),
        _ => inner(definition, state).any(|inner| rests(definition, inner)),
    }
}

/// Whether it waits for time or for somebody outside.
fn paces(definition: &Definition, state: &State) -> bool {
    matches!(state.kind, StateKind::WaitUntil(_) | StateKind::WaitEvent(_))
        || inner(definition, state).any(|inner| paces(definition, inner))
}

fn inner<'a>(definition: &'a Definition, state: &'a State) -> impl Iterator<Item = &'a State> {
    let blocks = state.blocks().iter().filter_map(|block| definition.blocks.get(block.0 as usize));
    blocks.flat_map(|block| block.states.values()).filter_map(|id| state_of(definition, *id))
}
