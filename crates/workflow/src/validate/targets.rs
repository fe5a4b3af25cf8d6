//! Where transitions lead: every target exists, every state can be reached, and from every state there is a way to an end.
//!
//! A state that is unreachable only because a transition leads nowhere is told as that transition's consequence: mending the
//! one mends the other.

use std::collections::BTreeSet;

use crate::definition::{Definition, State, closest};
use crate::finding::{Code, Finding, within};
use crate::flow::{Flow, resolve, state_of};
use crate::ids::{BlockId, StateId};

/// Dangling targets told with a suggestion and with what follows from them. A definition may have thousands.
const TOLD_IN_FULL_MAX: usize = 20;

pub(super) fn check(definition: &Definition, flow: &Flow, findings: &mut Vec<Finding>) {
    for (number, block) in (0_u32..).zip(&definition.blocks) {
        let block_id = BlockId(number);
        if block.states.is_empty() {
            continue;
        }
        let mut dangling = Vec::new();
        let mut starts = Vec::new();
        let mut start = |pointer: String, name: &str| match resolve(definition, block_id, name) {
            Some(state) => starts.push(state),
            None => dangling.push(dangling_target(definition, block_id, pointer, name, 0)),
        };
        // A startAt that could not be read has its own finding.
        if let Some(name) = &block.start_at {
            start(format!("{}/startAt", block.pointer), name);
        }
        let recover =
            definition.configuration.escalation.as_ref().and_then(|escalation| escalation.recover.as_ref());
        if let (BlockId::TOP, Some(recover)) = (block_id, recover) {
            start("/configuration/escalation/recover".to_owned(), recover);
        }
        let reachable = flow.reachable(starts.iter().copied());
        let mut open_ended: BTreeSet<StateId> = BTreeSet::new();
        for id in block.states.values() {
            let Some(state) = state_of(definition, *id) else { continue };
            for (place, name) in state.targets() {
                if resolve(definition, block_id, name).is_none() {
                    open_ended.insert(*id);
                    let pointer = format!("{}/{place}", state.pointer);
                    let before = dangling.len();
                    dangling.push(dangling_target(definition, block_id, pointer, name, before));
                }
            }
        }
        let unread: Vec<&State> = block
            .states
            .values()
            .filter_map(|id| state_of(definition, *id))
            .filter(|state| state.exits_unread)
            .collect();
        report_unreachable(definition, block_id, &reachable, &unread, &mut dangling, findings);
        report_endless(definition, flow, block_id, &reachable, &open_ended, findings);
        findings.append(&mut dangling);
    }
}

fn dangling_target(
    definition: &Definition,
    block: BlockId,
    pointer: String,
    name: &str,
    told_before: usize,
) -> Finding {
    let plain = || format!("add a state {name:?} beside this one, or name one of those there");
    let hint = if name.is_empty() {
        "name the state to go to".to_owned()
    } else if told_before >= TOLD_IN_FULL_MAX {
        plain()
    } else if definition.states.iter().any(|state| state.name == name) {
        format!(
            "{name:?} is in another block, which no transition can enter or leave: end this branch with a succeed or fail of its own"
        )
    } else {
        let block = definition.blocks.get(block.0 as usize);
        let known = block.into_iter().flat_map(|block| block.states.keys()).map(String::as_str);
        closest(name, known)
            .map_or_else(plain, |near| format!("did you mean {near:?}? Else add a state {name:?}"))
    };
    Finding::new(Code::DanglingTarget, pointer, format!("there is no state {name:?} to go to"), hint)
}

/// States nobody leads to: consequences of dangling targets where there are any, else findings of their own.
fn report_unreachable(
    definition: &Definition,
    block: BlockId,
    reachable: &BTreeSet<StateId>,
    unread: &[&State],
    dangling: &mut [Finding],
    findings: &mut Vec<Finding>,
) {
    let Some(block) = definition.blocks.get(block.0 as usize) else { return };
    if block.start_at.is_none() {
        return;
    }
    for (name, id) in block.states.iter().filter(|(_, id)| !reachable.contains(id)) {
        let Some(state) = state_of(definition, *id) else { continue };
        let consequence = format!("so state {name:?} ({}) cannot be reached", state.pointer);
        // What is wrong with a state whose exits could not be read has been found already; this follows from it.
        let of_unread =
            |finding: &&mut Finding| unread.iter().any(|state| within(&finding.pointer, &state.pointer));
        for finding in findings.iter_mut().filter(of_unread).take(TOLD_IN_FULL_MAX) {
            finding.follows(&consequence);
        }
        if dangling.is_empty() && unread.is_empty() {
            let message = format!("no transition leads to state {name:?}");
            let hint = "let a state lead to it, or remove it";
            findings.push(Finding::new(Code::UnreachableState, state.pointer.clone(), message, hint));
        }
        for finding in dangling.iter_mut().take(TOLD_IN_FULL_MAX) {
            finding.follows(&consequence);
        }
    }
}

/// Reachable states from which no terminal state can be reached. A dangling target may have been meant as the way out.
fn report_endless(
    definition: &Definition,
    flow: &Flow,
    block: BlockId,
    reachable: &BTreeSet<StateId>,
    open_ended: &BTreeSet<StateId>,
    findings: &mut Vec<Finding>,
) {
    let is_end = |id: &StateId| {
        state_of(definition, *id).is_some_and(|state| state.is_terminal() || has_no_exit(state))
    };
    let Some(block) = definition.blocks.get(block.0 as usize) else { return };
    let ends = block.states.values().copied().filter(|id| is_end(id) || open_ended.contains(id));
    let can_end = flow.leading_to(ends);
    for id in block.states.values().filter(|id| reachable.contains(id) && !can_end.contains(id)) {
        let Some(state) = state_of(definition, *id) else { continue };
        let message = format!("from state {:?} no succeed, fail or continueAsNew can be reached", state.name);
        let hint = "add a way out; a loop that is to go on for ever ends each round with continueAsNew";
        findings.push(Finding::new(Code::NoWayToEnd, state.pointer.clone(), message, hint));
    }
}

/// A state whose `next` could not be read has a finding already.
fn has_no_exit(state: &State) -> bool {
    state.targets().is_empty()
}
