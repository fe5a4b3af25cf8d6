//! The definitions that the clients run: one for each way in which a run can wait, with the output that each must have.
//!
//! Calls go to the receiver. The input of each call names its run and the number of its effect.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunKind {
    /// A call, an echo, another call.
    Steps,
    /// A map of calls, two at a time.
    Map,
    /// Branches: a call, a timer and a call, an echo.
    Parallel,
    /// A timer, then a call.
    Timer,
    /// Three events of different names, a call between them.
    Events,
    /// A child on the same shard and one on another, each with a call.
    Parent,
    /// A loop by continue-as-new; each run takes one event and makes a call, until the last event.
    Loop,
    /// A call, then a child that waits forever: it must be terminated.
    NeverEnding,
}

impl RunKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Steps,
        Self::Map,
        Self::Parallel,
        Self::Timer,
        Self::Events,
        Self::Parent,
        Self::Loop,
        Self::NeverEnding,
    ];

    /// The id of its definition.
    pub(crate) fn workflow(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Map => "map",
            Self::Parallel => "parallel",
            Self::Timer => "timer",
            Self::Events => "events",
            Self::Parent => "parent",
            Self::Loop => "loop",
            Self::NeverEnding => "patient",
        }
    }

    /// The effects of one run that has completed.
    pub(crate) fn effects(self) -> &'static [u64] {
        match self {
            Self::Steps | Self::Parallel | Self::Parent => &[1, 2],
            Self::Map => &ITEMS,
            Self::Timer | Self::Events | Self::Loop | Self::NeverEnding => &[1],
        }
    }

    /// The input of a run with this id.
    pub(crate) fn input(self, id: &str) -> Value {
        match self {
            Self::Map => json!({"id": id, "items": ITEMS}),
            Self::Loop => json!({"id": id, "seen": []}),
            _ => json!({"id": id}),
        }
    }

    /// The output of a run, given the receiver's result for each effect; `None` if the output depends on events.
    pub(crate) fn output(self, id: &str, result: impl Fn(u64) -> Value) -> Option<Value> {
        Some(match self {
            Self::Steps => json!([result(1), {"id": id}, result(2)]),
            Self::Map => ITEMS.iter().map(|n| result(*n)).collect(),
            Self::Parallel => json!([result(1), result(2), {"id": id}]),
            Self::Timer => result(1),
            Self::Parent => json!([result(1), result(2)]),
            Self::Events | Self::Loop | Self::NeverEnding => return None,
        })
    }
}

const ITEMS: [u64; 4] = [1, 2, 3, 4];

/// The names of the events that a run of [`RunKind::Events`] waits for.
pub(crate) const EVENT_NAMES: [&str; 3] = ["one", "two", "three"];
/// The name of the events that a run of [`RunKind::Loop`] takes.
pub(crate) const LOOP_EVENT: &str = "go";

/// All definitions, those of children included.
pub(crate) fn all(receiver: SocketAddr) -> Vec<Value> {
    let url = format!("http://{receiver}/effect");
    let call = |n: Value, output: &str, next: &str| {
        let body = json!({"id": "$.input.id", "execution": "$.system.executionId", "n": n});
        json!({"type": "task", "activity": "http.request", "input": {"method": "POST", "url": &url, "body": body},
               "output": output, "next": next,
               "retryPolicy": {"maxAttempts": 50, "initialInterval": "PT0.1S", "maxInterval": "PT1S"}})
    };
    let echo = |output: &str, next: &str| json!({"type": "task", "activity": "core.echo", "input": {"id": "$.input.id"}, "output": output, "next": next});
    let event = |name: &str, output: &str, next: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": name, "output": output, "next": next});
    let pause = |duration: &str, next: &str| json!({"type": "wait", "waitType": "duration", "duration": duration, "next": next});
    let child = |workflow: &str, n: u64, spread: bool, output: &str, next: &str| {
        json!({"type": "workflow", "workflow": workflow, "spread": spread, "input": {"id": "$.input.id", "n": n},
               "output": output, "next": next})
    };
    let succeed = |output: Value| json!({"type": "succeed", "output": output});
    let [one, two, three] = EVENT_NAMES;
    vec![
        definition(
            "steps",
            "A",
            json!({"A": call(json!(1), "$.state.a", "B"), "B": echo("$.state.b", "C"),
                   "C": call(json!(2), "$.state.c", "End"),
                   "End": succeed(json!(["$.state.a.body", "$.state.b", "$.state.c.body"]))}),
        ),
        definition(
            "map",
            "Each",
            json!({"Each": {"type": "map", "items": "$.input.items", "maxConcurrency": 2, "output": "$.state.all",
                            "next": "End", "iterator": {"startAt": "A", "states": {
                                "A": call(json!("$.item"), "$.state.a", "Done"), "Done": succeed(json!("$.state.a.body"))}}},
                   "End": succeed(json!("$.state.all"))}),
        ),
        definition(
            "parallel",
            "Both",
            json!({"Both": {"type": "parallel", "output": "$.state.all", "next": "End", "branches": [
                       {"startAt": "A", "states": {
                           "A": call(json!(1), "$.state.a", "ADone"), "ADone": succeed(json!("$.state.a.body"))}},
                       {"startAt": "Pause", "states": {
                           "Pause": pause("PT0.5S", "B"), "B": call(json!(2), "$.state.b", "BDone"),
                           "BDone": succeed(json!("$.state.b.body"))}},
                       {"startAt": "C", "states": {"C": echo("$.state.c", "CDone"), "CDone": succeed(json!("$.state.c"))}}]},
                   "End": succeed(json!("$.state.all"))}),
        ),
        definition(
            "timer",
            "Pause",
            json!({"Pause": pause("PT2S", "A"), "A": call(json!(1), "$.state.a", "End"),
                   "End": succeed(json!("$.state.a.body"))}),
        ),
        definition(
            "events",
            "One",
            json!({"One": event(one, "$.state.one", "A"), "A": call(json!(1), "$.state.a", "Two"),
                   "Two": event(two, "$.state.two", "Three"), "Three": event(three, "$.state.three", "End"),
                   "End": succeed(json!(["$.state.one", "$.state.two", "$.state.three"]))}),
        ),
        definition(
            "parent",
            "Near",
            json!({"Near": child("child", 1, false, "$.state.near", "Far"), "Far": child("child", 2, true, "$.state.far", "End"),
                   "End": succeed(json!(["$.state.near", "$.state.far"]))}),
        ),
        definition(
            "child",
            "A",
            json!({"A": call(json!("$.input.n"), "$.state.a", "End"), "End": succeed(json!("$.state.a.body"))}),
        ),
        // The list of seen events is nested: the language cannot append, and need not.
        definition(
            "loop",
            "One",
            json!({"One": event(LOOP_EVENT, "$.state.event", "A"), "A": call(json!(1), "$.state.a", "More"),
                   "More": {"type": "choice", "default": "Next",
                            "choices": [{"when": {"path": "$.state.event.last", "op": "eq", "value": true}, "next": "End"}]},
                   "Next": {"type": "continueAsNew", "input": {"id": "$.input.id", "seen": ["$.input.seen", "$.state.event"]}},
                   "End": succeed(json!(["$.input.seen", "$.state.event"]))}),
        ),
        definition(
            "patient",
            "A",
            json!({"A": call(json!(1), "$.state.a", "Child"), "Child": child("waiting", 0, true, "$.state.child", "End"),
                   "End": succeed(json!("$.state.child"))}),
        ),
        definition(
            "waiting",
            "Wait",
            json!({"Wait": event("never", "$.state.event", "End"), "End": succeed(json!("$.state.event"))}),
        ),
    ]
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn definition(id: &str, start: &str, states: Value) -> Value {
    json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0", "startAt": start, "states": states})
}
