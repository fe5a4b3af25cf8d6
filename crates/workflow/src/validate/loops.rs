//! Loops: one in which nothing ever waits would spin; one without a wait state hammers its activities.

use crate::definition::{Definition, State, StateKind};
use crate::finding::{Code, Finding};
use crate::flow::{Flow, state_of};
use crate::ids::StateId;

pub(super) fn check(definition: &Definition, flow: &Flow, findings: &mut Vec<Finding>) {
    for component in flow.components().iter().filter(|component| flow.is_loop(component)) {
        let states: Vec<&State> = component.iter().filter_map(|id| state_of(definition, *id)).collect();
        let Some(first) = states.iter().min_by_key(|state| &state.pointer) else { continue };
        let mut names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        names.sort_unstable();
        let names = names.join(", ");
        if spins(definition, flow, component) {
            let message = format!("the loop through {names} never waits for anything");
            let hint = "put a task or a wait into every way round";
            findings.push(Finding::new(Code::LoopWithoutRest, first.pointer.clone(), message, hint));
        } else if definition.configuration.max_transitions.is_none()
            && !states.iter().any(|state| paces(definition, state))
        {
            let message = format!("the loop through {names} has neither a wait nor a limit");
            let hint = "add a wait state, or set configuration.maxTransitions";
            findings.push(Finding::new(Code::LoopWithoutWait, first.pointer.clone(), message, hint));
        }
    }
}

/// Whether some way round the loop passes no state that rests: the loop without its resting states is still a loop.
fn spins(definition: &Definition, flow: &Flow, component: &[StateId]) -> bool {
    let instant = |id: &StateId| state_of(definition, *id).is_some_and(|state| !rests(definition, state));
    let mut left: Vec<StateId> = component.iter().copied().filter(instant).collect();
    // States without a successor among those left are no part of a loop; what remains in the end is.
    loop {
        let before = left.len();
        let known: std::collections::BTreeSet<StateId> = left.iter().copied().collect();
        left.retain(|id| flow.successors(*id).iter().any(|next| known.contains(next)));
        if left.len() == before {
            return before > 0;
        }
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
