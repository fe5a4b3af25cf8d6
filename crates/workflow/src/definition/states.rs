//! Reads the JSON of a state: one function per state type. It does not look up targets; `validate` does.

use serde_json::Value;

use super::conditions::read_condition;
use super::fields::{FieldReader, Findings, closest_name, report_wrong_type};
use super::read::{BlockReader, read_call, read_call_fields, read_retry_policy};
use super::{
    ActivityCall, ChildCall, CompensationStep, ErrorHandler, EventWait, Join, State, StateKind, Task,
    WaitTime,
};
use crate::condition::Condition;
use crate::finding::Code;
use crate::ids::{BlockId, StateId};

/// The valid values of `type`.
const TYPES: [&str; 10] = [
    "task",
    "wait",
    "choice",
    "parallel",
    "map",
    "workflow",
    "continueAsNew",
    "compensation",
    "succeed",
    "fail",
];

impl State {
    /// A state whose contents are unknown: it ends its block and causes no further findings.
    pub(super) fn placeholder(name: &str, path: String, pointer: String, block: BlockId) -> Self {
        Self {
            name: name.to_owned(),
            path,
            pointer,
            block,
            next: None,
            output: None,
            on_error: Vec::new(),
            timeout: None,
            timeout_next: None,
            kind: StateKind::Succeed { output: None },
            has_unreadable_exits: true,
        }
    }
}

/// Reads one state, as far as it can be read.
pub(super) fn read_state(
    value: &Value,
    id: StateId,
    blocks: &mut BlockReader<'_>,
    pointer: String,
    findings: &Findings,
) -> State {
    let mut state = State::placeholder("", String::new(), pointer.clone(), BlockId::TOP);
    let Some(fields) = FieldReader::of(value, pointer, findings) else {
        return state;
    };
    fields.string("description");
    let Some(type_name) = fields.required_string("type") else {
        return state;
    };
    let kind = match type_name {
        "task" => {
            read_common_fields(&fields, &mut state);
            read_timeout(&fields, &mut state);
            read_task(&fields).map(StateKind::Task)
        }
        "wait" => {
            read_common_fields(&fields, &mut state);
            read_wait(&fields, &mut state)
        }
        "choice" => read_choice(&fields),
        "parallel" => {
            read_common_fields(&fields, &mut state);
            read_parallel(&fields, id, blocks)
        }
        "map" => {
            read_common_fields(&fields, &mut state);
            read_map(&fields, id, blocks)
        }
        "workflow" => {
            read_common_fields(&fields, &mut state);
            read_timeout(&fields, &mut state);
            read_child(&fields).map(StateKind::Workflow)
        }
        "continueAsNew" => Some(StateKind::ContinueAsNew { input: fields.template("input") }),
        "compensation" => {
            state.next = fields.required_string("next").map(str::to_owned);
            Some(StateKind::Compensation { steps: read_compensation_steps(&fields) })
        }
        "succeed" => Some(StateKind::Succeed { output: fields.template("output") }),
        "fail" => Some(StateKind::Fail {
            error: fields.text_template("error"),
            message: fields.text_template("message"),
        }),
        other => {
            let hint = match closest_name(other, TYPES.into_iter()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("use one of {}", TYPES.join(", ")),
            };
            fields.report(Code::InvalidValue, "type", format!("unknown state type {other:?}"), hint);
            return state;
        }
    };
    fields.finish();
    if let Some(kind) = kind {
        state.kind = kind;
        let needs_no_next = state.is_terminal() || matches!(state.kind, StateKind::Choice { .. });
        state.has_unreadable_exits = !needs_no_next && state.next.is_none();
    }
    state
}

/// Reads the fields that all states with a `next` have in common.
fn read_common_fields(fields: &FieldReader<'_>, state: &mut State) {
    state.next = fields.required_string("next").map(str::to_owned);
    state.output = fields.reference("output");
    state.on_error = read_error_handlers(fields);
}

fn read_timeout(fields: &FieldReader<'_>, state: &mut State) {
    state.timeout = fields.duration("timeout");
    state.timeout_next = fields.string("timeoutNext").map(str::to_owned);
}

fn read_error_handlers(fields: &FieldReader<'_>) -> Vec<ErrorHandler> {
    match fields.value("onError") {
        None => Vec::new(),
        Some(Value::String(next)) => {
            vec![ErrorHandler { codes: Vec::new(), next: next.clone(), output: None, shorthand: true }]
        }
        Some(Value::Array(handlers)) => {
            let read = |(position, value)| read_error_handler(fields, position, value);
            handlers.iter().enumerate().filter_map(read).collect()
        }
        Some(other) => {
            report_wrong_type(
                fields.findings(),
                &fields.pointer_of("onError"),
                "a state's name or an array",
                other,
            );
            Vec::new()
        }
    }
}

fn read_error_handler(outer: &FieldReader<'_>, position: usize, value: &Value) -> Option<ErrorHandler> {
    let pointer = format!("{}/{position}", outer.pointer_of("onError"));
    let fields = FieldReader::of(value, pointer, outer.findings())?;
    let codes = fields.strings("match");
    let next = fields.required_string("next");
    let output = fields.reference("output");
    fields.finish();
    Some(ErrorHandler { codes, next: next?.to_owned(), output, shorthand: false })
}

fn read_task(fields: &FieldReader<'_>) -> Option<Task> {
    let call = read_call_fields(fields);
    let retry_policy = fields.value("retryPolicy").and_then(|value| read_retry_policy(fields, value));
    let attempt_timeout = fields.duration("attemptTimeout");
    let compensate_with =
        fields.value("compensateWith").and_then(|value| read_call(fields, "compensateWith", value));
    Some(Task { call: call?, retry_policy, attempt_timeout, compensate_with })
}

fn read_wait(fields: &FieldReader<'_>, state: &mut State) -> Option<StateKind> {
    let kind = fields.required_string("waitType");
    if !matches!(kind, Some("duration" | "timestamp" | "externalEvent")) {
        // The fields that belong here depend on the waitType, which could not be read.
        fields.ignore(&["duration", "timestamp", "eventName", "match", "timeout", "timeoutNext"]);
    }
    match kind? {
        "duration" => {
            let duration = fields.duration_or_path("duration")?;
            Some(StateKind::WaitUntil(duration.map_or_else(WaitTime::AfterPath, WaitTime::After)))
        }
        "timestamp" => {
            let timestamp = fields.timestamp_or_path("timestamp")?;
            Some(StateKind::WaitUntil(timestamp.map_or_else(WaitTime::AtPath, WaitTime::At)))
        }
        "externalEvent" => {
            read_timeout(fields, state);
            let name = fields.required_name("eventName");
            let matching = fields
                .value("match")
                .and_then(|value| read_condition(value, fields.pointer_of("match"), fields.findings()));
            Some(StateKind::WaitEvent(EventWait { name: name?, matching }))
        }
        other => {
            let message = format!("unknown waitType {other:?}");
            fields.report(
                Code::InvalidValue,
                "waitType",
                message,
                "use duration, timestamp or externalEvent",
            );
            None
        }
    }
}

fn read_choice(fields: &FieldReader<'_>) -> Option<StateKind> {
    let default = fields.string("default").map(str::to_owned);
    let entries = fields.required_array("choices")?;
    if entries.is_empty() {
        fields.report(Code::InvalidValue, "choices", "there are no choices", "add at least one");
    }
    let mut choices = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.pointer_of("choices"));
        let Some(entry) = FieldReader::of(entry, pointer, fields.findings()) else { continue };
        let condition = entry
            .required("when")
            .and_then(|when| read_condition(when, entry.pointer_of("when"), fields.findings()));
        let next = entry.required_string("next").map(str::to_owned);
        entry.finish();
        // A condition that could not be read never holds, but its target still counts as reachable.
        choices.extend(next.map(|next| (condition.unwrap_or(Condition::Or(Vec::new())), next)));
    }
    Some(StateKind::Choice { choices, default })
}

fn read_parallel(fields: &FieldReader<'_>, id: StateId, blocks: &mut BlockReader<'_>) -> Option<StateKind> {
    let join = read_join(fields);
    let entries = fields.required_array("branches")?;
    if entries.is_empty() {
        fields.report(Code::InvalidValue, "branches", "there are no branches", "add at least one");
    }
    let mut branches = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.pointer_of("branches"));
        let path = format!("{}/branches/{position}/", blocks.path_of(id));
        if let Some(entry) = FieldReader::of(entry, pointer, fields.findings()) {
            branches.push(blocks.read(&entry, Some(id), &path));
            entry.finish();
        }
    }
    Some(StateKind::Parallel { branches, join })
}

fn read_map(fields: &FieldReader<'_>, id: StateId, blocks: &mut BlockReader<'_>) -> Option<StateKind> {
    let items = fields.required_path("items");
    let max_concurrency = fields.bounded_integer("maxConcurrency", 1, u64::from(u32::MAX));
    let join = read_join(fields);
    let entry =
        FieldReader::of(fields.required("iterator")?, fields.pointer_of("iterator"), fields.findings())?;
    let path = format!("{}/iterator/", blocks.path_of(id));
    let iterator = blocks.read(&entry, Some(id), &path);
    entry.finish();
    let max_concurrency = max_concurrency.and_then(|n| u32::try_from(n).ok());
    Some(StateKind::Map { items: items?, max_concurrency, iterator, join })
}

fn read_join(fields: &FieldReader<'_>) -> Join {
    let join = fields
        .value("join")
        .and_then(|value| FieldReader::of(value, fields.pointer_of("join"), fields.findings()));
    let at_least = join.and_then(|join| {
        join.required("atLeast");
        let at_least = join.bounded_integer("atLeast", 1, u64::from(u32::MAX));
        join.finish();
        at_least.and_then(|n| u32::try_from(n).ok())
    });
    at_least.map_or(Join::All, Join::AtLeast)
}

fn read_child(fields: &FieldReader<'_>) -> Option<ChildCall> {
    let workflow = fields.required_name("workflow");
    let version = fields.string("version").and_then(|text| {
        let report = |error: semver::Error| {
            let message = format!("{text:?} is not a version range: {error}");
            fields.report(Code::InvalidValue, "version", message, "write a range such as ^1.2 or >=1.0, <3");
        };
        semver::VersionReq::parse(text).map_err(report).ok()
    });
    let input = fields.template("input");
    let abandon = match fields.string("onParentClose") {
        None | Some("terminate") => false,
        Some("abandon") => true,
        Some(other) => {
            let message = format!("unknown onParentClose {other:?}");
            fields.report(Code::InvalidValue, "onParentClose", message, "use terminate or abandon");
            false
        }
    };
    let spread = fields.boolean("spread").unwrap_or(false);
    Some(ChildCall { workflow: workflow?, version, input, abandon, spread })
}

fn read_compensation_steps(fields: &FieldReader<'_>) -> Option<Vec<CompensationStep>> {
    let entries = fields.array("steps")?;
    let mut steps = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.pointer_of("steps"));
        let Some(entry) = FieldReader::of(entry, pointer, fields.findings()) else { continue };
        let call: Option<ActivityCall> = read_call_fields(&entry);
        let retry_policy = entry.value("retryPolicy").and_then(|value| read_retry_policy(&entry, value));
        let timeout = entry.duration("timeout");
        let attempt_timeout = entry.duration("attemptTimeout");
        entry.finish();
        steps.extend(call.map(|call| CompensationStep { call, retry_policy, timeout, attempt_timeout }));
    }
    Some(steps)
}
