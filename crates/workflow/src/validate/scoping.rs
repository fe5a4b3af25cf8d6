//! Checks constructs that are valid only in some places: `$.item` inside maps, `continueAsNew` at the top level, joins
//! that can be reached, handlers that can match. It does not check the values of paths.

use crate::definition::{ActivityCall, Definition, ErrorHandler, Join, State, StateKind, WaitTime};
use crate::finding::{Code, Finding};
use crate::ids::{BlockId, StateId};
use crate::path::{Path, Root, Template};

pub(super) fn check(definition: &Definition, findings: &mut Vec<Finding>) {
    for state in &definition.states {
        let mut report = |code, place: &str, message: String, hint: &str| {
            findings.push(Finding::new(code, format!("{}{place}", state.pointer), message, hint));
        };
        if !in_map(definition, state) {
            for (place, path) in paths(state) {
                if matches!(path.root(), Root::Item | Root::Index) {
                    let message = format!("{} is outside a map", path.text());
                    report(
                        Code::ItemOutsideMap,
                        &place,
                        message,
                        "$.item and $.index exist only inside a map's iterator",
                    );
                }
            }
        }
        if matches!(state.kind, StateKind::ContinueAsNew { .. }) && state.block != BlockId::TOP {
            let message = "continueAsNew is not allowed inside a branch".to_owned();
            report(Code::ContinueInBranch, "", message, "end the branch and continue at the top level");
        }
        if let StateKind::Parallel { branches, join: Join::AtLeast(wanted) } = &state.kind
            && *wanted as usize > branches.len()
        {
            let message = format!("{wanted} branches must succeed, but there are only {}", branches.len());
            report(Code::JoinTooLarge, "/join/atLeast", message, "use at most the number of branches");
        }
        for (position, handler) in state.on_error.iter().enumerate() {
            let earlier = state.on_error.get(..position).unwrap_or_default();
            let handled_earlier = |code: &String| earlier.iter().any(|other| other.handles(code));
            let hidden = if handler.handles_all() {
                earlier.iter().any(ErrorHandler::handles_all)
            } else {
                handler.codes.iter().all(handled_earlier)
            };
            if hidden {
                let message = "earlier handlers handle every error of this one".to_owned();
                let hint = "remove it, or put it before them";
                report(Code::HandlerHidden, &format!("/onError/{position}"), message, hint);
            }
        }
        for place in misplaced_secrets(state) {
            let message =
                "no activity receives this value, so the secret reference would never be resolved".to_owned();
            let hint = "refer to secrets in the input of the activity that needs them";
            report(Code::MisplacedSecret, &place, message, hint);
        }
    }
    check_notify(definition, findings);
    check_unused(definition, findings);
}

/// The escalation channel is notified outside any map, so it has no item.
fn check_notify(definition: &Definition, findings: &mut Vec<Finding>) {
    let notify =
        definition.configuration.escalation.as_ref().and_then(|escalation| escalation.notify.as_ref());
    for (place, path) in notify.and_then(|call| call.input.as_ref()).map(Template::paths).unwrap_or_default()
    {
        if matches!(path.root(), Root::Item | Root::Index) {
            let pointer = format!("/configuration/escalation/notify/input{place}");
            let message = format!("{} is outside a map", path.text());
            let hint = "$.item and $.index exist only inside a map's iterator";
            findings.push(Finding::new(Code::ItemOutsideMap, pointer, message, hint));
        }
    }
}

/// Reports fields that have no effect without another field.
fn check_unused(definition: &Definition, findings: &mut Vec<Finding>) {
    let mut unused = |pointer: String, without: &str| {
        let message = format!("this has no effect without {without}");
        findings.push(Finding::new(
            Code::UnusedField,
            pointer,
            message,
            "remove it, or add the field it needs".to_owned(),
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
            unused(format!("{}/output", state.pointer), "a result, and a wait for time has none");
        }
    }
}

/// Secret references in values that become data: outputs, inputs of child runs, the next run's input.
fn misplaced_secrets(state: &State) -> Vec<String> {
    let (place, template) = match &state.kind {
        StateKind::Workflow(child) => ("/input", child.input.as_ref()),
        StateKind::ContinueAsNew { input } => ("/input", input.as_ref()),
        StateKind::Succeed { output } => ("/output", output.as_ref()),
        _ => return Vec::new(),
    };
    template
        .map(Template::secret_pointers)
        .unwrap_or_default()
        .iter()
        .map(|at| format!("{place}{at}"))
        .collect()
}

/// True if an enclosing block of the state belongs to a map.
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

/// All paths of a state, each with its place within the state.
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
            if let Some(compensation) = &task.compensate_with {
                call("/compensateWith", compensation, &mut found);
            }
        }
        StateKind::WaitUntil(WaitTime::AfterPath(path)) => found.push(("/duration".to_owned(), path)),
        StateKind::WaitUntil(WaitTime::AtPath(path)) => found.push(("/timestamp".to_owned(), path)),
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
