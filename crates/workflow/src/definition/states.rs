//! What each type of state looks like in JSON: one function per type, a table of which fields it has.

use serde_json::Value;

use super::conditions::read_condition;
use super::fields::{Fields, Findings, closest, wrong_type};
use super::read::{BlockReader, read_call, read_call_fields, read_retry_policy};
use super::{
    ActivityCall, ChildCall, ErrorHandler, EventWait, Join, Moment, State, StateKind, Task, UndoStep,
};
use crate::condition::Condition;
use crate::finding::Code;
use crate::ids::{BlockId, StateId};

/// The types a state can have.
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
    /// A state nothing is known of: it ends its block and raises no further findings.
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
            exits_unread: true,
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
    let Some(fields) = Fields::of(value, pointer, findings) else {
        return state;
    };
    fields.string("description");
    let Some(type_name) = fields.required_string("type") else {
        return state;
    };
    let kind = match type_name {
        "task" => {
            read_flow(&fields, &mut state);
            read_timeout(&fields, &mut state);
            read_task(&fields).map(StateKind::Task)
        }
        "wait" => {
            read_flow(&fields, &mut state);
            read_wait(&fields, &mut state)
        }
        "choice" => read_choice(&fields),
        "parallel" => {
            read_flow(&fields, &mut state);
            read_parallel(&fields, id, blocks)
        }
        "map" => {
            read_flow(&fields, &mut state);
            read_map(&fields, id, blocks)
        }
        "workflow" => {
            read_flow(&fields, &mut state);
            read_timeout(&fields, &mut state);
            read_child(&fields).map(StateKind::Workflow)
        }
        "continueAsNew" => Some(StateKind::ContinueAsNew { input: fields.template("input") }),
        "compensation" => {
            state.next = fields.required_string("next").map(str::to_owned);
            Some(StateKind::Compensation { steps: read_steps(&fields) })
        }
        "succeed" => Some(StateKind::Succeed { output: fields.template("output") }),
        "fail" => Some(StateKind::Fail {
            error: fields.text_template("error"),
            message: fields.text_template("message"),
        }),
        other => {
            let hint = match closest(other, TYPES.into_iter()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("use one of {}", TYPES.join(", ")),
            };
            fields.find(Code::InvalidValue, "type", format!("{other:?} is not a type of state"), hint);
            return state;
        }
    };
    fields.finish();
    if let Some(kind) = kind {
        state.kind = kind;
        let by_itself = state.is_terminal() || matches!(state.kind, StateKind::Choice { .. });
        state.exits_unread = !by_itself && state.next.is_none();
    }
    state
}

/// The fields of every state that does something and goes on.
fn read_flow(fields: &Fields<'_>, state: &mut State) {
    state.next = fields.required_string("next").map(str::to_owned);
    state.output = fields.reference("output");
    state.on_error = read_handlers(fields);
}

fn read_timeout(fields: &Fields<'_>, state: &mut State) {
    state.timeout = fields.duration("timeout");
    state.timeout_next = fields.string("timeoutNext").map(str::to_owned);
}

fn read_handlers(fields: &Fields<'_>) -> Vec<ErrorHandler> {
    match fields.value("onError") {
        None => Vec::new(),
        Some(Value::String(next)) => {
            vec![ErrorHandler { codes: Vec::new(), next: next.clone(), output: None, shorthand: true }]
        }
        Some(Value::Array(handlers)) => {
            let read = |(position, value)| read_handler(fields, position, value);
            handlers.iter().enumerate().filter_map(read).collect()
        }
        Some(other) => {
            wrong_type(fields.findings(), &fields.at("onError"), "a state's name or an array", other);
            Vec::new()
        }
    }
}

fn read_handler(outer: &Fields<'_>, position: usize, value: &Value) -> Option<ErrorHandler> {
    let pointer = format!("{}/{position}", outer.at("onError"));
    let fields = Fields::of(value, pointer, outer.findings())?;
    let (codes, next) = (fields.strings("match"), fields.required_string("next"));
    let output = fields.reference("output");
    fields.finish();
    Some(ErrorHandler { codes, next: next?.to_owned(), output, shorthand: false })
}

fn read_task(fields: &Fields<'_>) -> Option<Task> {
    let call = read_call_fields(fields);
    let retry_policy = fields.value("retryPolicy").and_then(|value| read_retry_policy(fields, value));
    let attempt_timeout = fields.duration("attemptTimeout");
    let compensate_with =
        fields.value("compensateWith").and_then(|value| read_call(fields, "compensateWith", value));
    Some(Task { call: call?, retry_policy, attempt_timeout, compensate_with })
}

fn read_wait(fields: &Fields<'_>, state: &mut State) -> Option<StateKind> {
    let kind = fields.required_string("waitType");
    if !matches!(kind, Some("duration" | "timestamp" | "externalEvent")) {
        // Which of these belong here depends on what could not be read.
        fields.pass_over(&["duration", "timestamp", "eventName", "match", "timeout", "timeoutNext"]);
    }
    match kind? {
        "duration" => {
            let moment = fields.duration_or_path("duration")?;
            Some(StateKind::WaitUntil(moment.map_or_else(Moment::AfterPath, Moment::After)))
        }
        "timestamp" => {
            let moment = fields.timestamp_or_path("timestamp")?;
            Some(StateKind::WaitUntil(moment.map_or_else(Moment::AtPath, Moment::At)))
        }
        "externalEvent" => {
            read_timeout(fields, state);
            let name = fields.required_name("eventName");
            let matching = fields
                .value("match")
                .and_then(|value| read_condition(value, fields.at("match"), fields.findings()));
            Some(StateKind::WaitEvent(EventWait { name: name?, matching }))
        }
        other => {
            let message = format!("{other:?} is not a kind of wait");
            fields.find(Code::InvalidValue, "waitType", message, "use duration, timestamp or externalEvent");
            None
        }
    }
}

fn read_choice(fields: &Fields<'_>) -> Option<StateKind> {
    let default = fields.string("default").map(str::to_owned);
    let entries = fields.required_array("choices")?;
    if entries.is_empty() {
        fields.find(Code::InvalidValue, "choices", "there are no choices", "add at least one");
    }
    let mut choices = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.at("choices"));
        let Some(entry) = Fields::of(entry, pointer, fields.findings()) else { continue };
        let condition =
            entry.required("when").and_then(|when| read_condition(when, entry.at("when"), fields.findings()));
        let next = entry.required_string("next").map(str::to_owned);
        entry.finish();
        // A condition that could not be read never holds; its target is still led to.
        choices.extend(next.map(|next| (condition.unwrap_or(Condition::Or(Vec::new())), next)));
    }
    Some(StateKind::Choice { choices, default })
}

fn read_parallel(fields: &Fields<'_>, id: StateId, blocks: &mut BlockReader<'_>) -> Option<StateKind> {
    let join = read_join(fields);
    let entries = fields.required_array("branches")?;
    if entries.is_empty() {
        fields.find(Code::InvalidValue, "branches", "there are no branches", "add at least one");
    }
    let mut branches = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.at("branches"));
        let path = format!("{}/branches/{position}/", blocks.path_of(id));
        if let Some(entry) = Fields::of(entry, pointer, fields.findings()) {
            branches.push(blocks.read(&entry, Some(id), &path));
            entry.finish();
        }
    }
    Some(StateKind::Parallel { branches, join })
}

fn read_map(fields: &Fields<'_>, id: StateId, blocks: &mut BlockReader<'_>) -> Option<StateKind> {
    let items = fields.required_path("items");
    let max_concurrency = fields.whole("maxConcurrency", 1, u64::from(u32::MAX));
    let join = read_join(fields);
    let entry = Fields::of(fields.required("iterator")?, fields.at("iterator"), fields.findings())?;
    let path = format!("{}/iterator/", blocks.path_of(id));
    let iterator = blocks.read(&entry, Some(id), &path);
    entry.finish();
    let max_concurrency = max_concurrency.and_then(|n| u32::try_from(n).ok());
    Some(StateKind::Map { items: items?, max_concurrency, iterator, join })
}

fn read_join(fields: &Fields<'_>) -> Join {
    let join = fields.value("join").and_then(|value| Fields::of(value, fields.at("join"), fields.findings()));
    let at_least = join.and_then(|join| {
        join.required("atLeast");
        let at_least = join.whole("atLeast", 1, u64::from(u32::MAX));
        join.finish();
        at_least.and_then(|n| u32::try_from(n).ok())
    });
    at_least.map_or(Join::All, Join::AtLeast)
}

fn read_child(fields: &Fields<'_>) -> Option<ChildCall> {
    let workflow = fields.required_name("workflow");
    let version = fields.string("version").and_then(|text| {
        let wrong = |error: semver::Error| {
            let message = format!("{text:?} is not a range of versions: {error}");
            fields.find(Code::InvalidValue, "version", message, "write a range such as ^1.2 or >=1.0, <3");
        };
        semver::VersionReq::parse(text).map_err(wrong).ok()
    });
    let input = fields.template("input");
    let abandon = match fields.string("onParentClose") {
        None | Some("terminate") => false,
        Some("abandon") => true,
        Some(other) => {
            let message = format!("{other:?} is not known");
            fields.find(Code::InvalidValue, "onParentClose", message, "use terminate or abandon");
            false
        }
    };
    let spread = fields.boolean("spread").unwrap_or(false);
    Some(ChildCall { workflow: workflow?, version, input, abandon, spread })
}

fn read_steps(fields: &Fields<'_>) -> Option<Vec<UndoStep>> {
    let entries = fields.array("steps")?;
    let mut steps = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{}/{position}", fields.at("steps"));
        let Some(entry) = Fields::of(entry, pointer, fields.findings()) else { continue };
        let call: Option<ActivityCall> = read_call_fields(&entry);
        let retry_policy = entry.value("retryPolicy").and_then(|value| read_retry_policy(&entry, value));
        let (timeout, attempt_timeout) = (entry.duration("timeout"), entry.duration("attemptTimeout"));
        entry.finish();
        steps.extend(call.map(|call| UndoStep { call, retry_policy, timeout, attempt_timeout }));
    }
    Some(steps)
}
