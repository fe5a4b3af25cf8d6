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
        for (position, handler) in state.on_error.iter().enumerate() {
            let earlier = state.on_error.get(..position).unwrap_or_default();
            let taken = |code: &String| earlier.iter().any(|other| other.takes(code));
            let hidden = if handler.takes_all() {
                earlier.iter().any(ErrorHandler::takes_all)
            } else {
                handler.codes.iter().all(taken)
            };
            if hidden {
                let message = "earlier handlers take every error this one would".to_owned();
                let hint = "remove it, or put it before them";
                find(Code::HandlerHidden, &format!("/onError/{position}"), message, hint);
            }
        }
        for place in misplaced_secrets(state) {
            let message = "no activity receives this, so the reference would never be resolved".to_owned();
            let hint = "refer to secrets in the input of the activity that needs them";
            find(Code::MisplacedSecret, &place, message, hint);
        }
    }
    check_notify(definition, findings);
    check_unused(definition, findings);
}

/// The escalation channel is told outside any map.
fn check_notify(definition: &Definition, findings: &mut Vec<Finding>) {
    let notify =
        definition.configuration.escalation.as_ref().and_then(|escalation| escalation.notify.as_ref());
    for (place, path) in notify.and_then(|call| call.input.as_ref()).map(Template::paths).unwrap_or_default()
    {
        if matches!(path.root(), Root::Item | Root::Index) {
            let pointer = format!("/configuration/escalation/notify/input{place}");
            let message = format!("{} is outside a map", path.text());
            let hint = "$.item and $.index exist inside a map's iterator only";
            findings.push(Finding::new(Code::ItemOutsideMap, pointer, message, hint));
        }
    }
}

/// Fields that say nothing without another.
fn check_unused(definition: &Definition, findings: &mut Vec<Finding>) {
    let mut unused = |pointer: String, without: &str| {
        let message = format!("this has no effect without {without}");
        findings.push(Finding::new(
            Code::UnusedField,
            pointer,
            message,
            "remove this, or add what it needs".to_owned(),
        ));
    };
    let configuration = &definition.configuration;
    if configuration.escalation.is_some() && configuration.timeout.is_none() {
        unused("/configuration/escalation".to_owned(), "configuration.timeout");
    }
    for state in &definition.states {
        let default = match &state.kind {
            StateKind::Task(_) | StateKind::WaitEvent(_) => configuration.default_timeout,
            _ => None,
        };
        if state.timeout_next.is_some() && state.timeout.or(default).is_none() {
            unused(format!("{}/timeoutNext", state.pointer), "a timeout");
        }
        if state.output.is_some() && matches!(state.kind, StateKind::WaitUntil(_)) {
            unused(format!("{}/output", state.pointer), "a result, which a wait for time does not have");
        }
    }
}

/// Secret references in what becomes data: outputs, children's inputs, the next run's input.
fn misplaced_secrets(state: &State) -> Vec<String> {
    let (place, template) = match &state.kind {
        StateKind::Workflow(child) => ("/input", child.input.as_ref()),
        StateKind::ContinueAsNew { input } => ("/input", input.as_ref()),
        StateKind::Succeed { output } => ("/output", output.as_ref()),
        _ => return Vec::new(),
    };
    template.map(Template::secrets).unwrap_or_default().iter().map(|at| format!("{place}{at}")).collect()
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
