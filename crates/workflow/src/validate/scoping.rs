//! What only makes sense in some places: `$.item` inside maps, `continueAsNew` at the top, joins that can be met, handlers that
//! can be reached.

use crate::definition::{ActivityCall, Definition, ErrorHandler, Join, Moment, State, StateKind};
use crate::finding::{Code, Finding};
use crate::ids::{BlockId, StateId};
use crate::path::{Path, Root, Template};

pub(super) fn check(definition: &Definition, findings: &mut Vec<Finding>) {
    for state in &definition.states {
        let mut find = |code, place: &str, message: String, hint: &str| {
            findings.push(Finding::new(code, format!("{}{place}", state.pointer), message, hint));
        };
        if !in_map(definition, state) {
            for (place, path) in paths(state) {
                if matches!(path.root(), Root::Item | Root::Index) {
                    let message = format!("{} is outside a map", path.text());
                    find(
                        Code::ItemOutsideMap,
                        &place,
                        message,
                        "$.item and $.index exist inside a map's iterator only",
                    );
                }
            }
        }
        if matches!(state.kind, StateKind::ContinueAsNew { .. }) && state.block != BlockId::TOP {
            let message = "a branch cannot begin the run again".to_owned();
            find(Code::ContinueInBranch, "", message, "end the branch and continue at the top level");
        }
        if let StateKind::Parallel { branches, join: Join::AtLeast(wanted) } = &state.kind
            && *wanted as usize > branches.len()
        {
            let message = format!("{wanted} branches are to succeed and there are {}", branches.len());
            find(Code::JoinTooLarge, "/join/atLeast", message, "ask for at most as many as there are");
        }
        let catch_all = state.on_error.iter().position(ErrorHandler::takes_all);
        if let Some(position) = catch_all.filter(|position| position + 1 < state.on_error.len()) {
            let message = format!("handler {position} takes every error, so those after it never do");
            find(
                Code::HandlerHidden,
                &format!("/onError/{}", position + 1),
                message,
                "put the handler for all errors last",
            );
        }
    }
}

/// Whether some block around the state belongs to a map.
fn in_map(definition: &Definition, state: &State) -> bool {
    let mut block = state.block;
    loop {
        let owner: Option<StateId> = definition.blocks.get(block.0 as usize).and_then(|block| block.owner);
        let Some(owner) = owner.and_then(|owner| definition.states.get(owner.0 as usize)) else {
            return false;
        };
        if matches!(owner.kind, StateKind::Map { .. }) {
            return true;
        }
        block = owner.block;
    }
}

/// Every path of a state with its place in it.
fn paths(state: &State) -> Vec<(String, &Path)> {
    fn template<'a>(at: &str, template: Option<&'a Template>, found: &mut Vec<(String, &'a Path)>) {
        let paths = template.map(Template::paths).unwrap_or_default();
        found.extend(paths.into_iter().map(|(below, path)| (format!("{at}{below}"), path)));
    }
    fn call<'a>(at: &str, call: &'a ActivityCall, found: &mut Vec<(String, &'a Path)>) {
        template(&format!("{at}/input"), call.input.as_ref(), found);
    }
    let mut found = Vec::new();
    match &state.kind {
        StateKind::Task(task) => {
            call("", &task.call, &mut found);
            if let Some(undo) = &task.compensate_with {
                call("/compensateWith", undo, &mut found);
            }
        }
        StateKind::WaitUntil(Moment::AfterPath(path)) => found.push(("/duration".to_owned(), path)),
        StateKind::WaitUntil(Moment::AtPath(path)) => found.push(("/timestamp".to_owned(), path)),
        StateKind::WaitUntil(_) => {}
        StateKind::WaitEvent(wait) => {
            let paths = wait.matching.iter().flat_map(|condition| condition.paths());
            found.extend(paths.map(|path| ("/match".to_owned(), path)));
        }
        StateKind::Choice { choices, .. } => {
            for (position, (condition, _)) in choices.iter().enumerate() {
                let place = format!("/choices/{position}/when");
                found.extend(condition.paths().into_iter().map(|path| (place.clone(), path)));
            }
        }
        StateKind::Map { items, .. } => found.push(("/items".to_owned(), items)),
        StateKind::Workflow(child) => template("/input", child.input.as_ref(), &mut found),
        StateKind::ContinueAsNew { input } => template("/input", input.as_ref(), &mut found),
        StateKind::Compensation { steps } => {
            for (position, step) in steps.iter().flatten().enumerate() {
                call(&format!("/steps/{position}"), &step.call, &mut found);
            }
        }
        StateKind::Succeed { output } => template("/output", output.as_ref(), &mut found),
        StateKind::Fail { error, message } => {
            template("/error", error.as_ref(), &mut found);
            template("/message", message.as_ref(), &mut found);
        }
        StateKind::Parallel { .. } => {}
    }
    found
}
