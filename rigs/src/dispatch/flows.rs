//! The flows that the clients run: calls over all wires, in sequence and in parallel, quick, slow and failing, with the
//! results that each must have.
//!
//! Every call has a unique tag, by which its effect is found in the receiver's store.

use serde_json::{Map, Value, json};

use super::receiver_wires::{
    ADD, CONFORMANCE, PYTHON_ENVELOPE, PYTHON_REST, RECEIVER_WIRES, RUST_ENVELOPE, RUST_GRPC, RUST_PROTOBUF,
    RUST_REST, ReceiverWire, RigProcess, TYPESCRIPT_ENVELOPE, TYPESCRIPT_REST,
};

/// A kind of flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowKind {
    /// Four entries, one after the other.
    Near,
    /// Like `Near`, over other wires.
    Far,
    /// An entry over every wire, all at once.
    Branches,
    /// Three maps of entries, two at a time.
    Items,
    /// Calls that take some time.
    Slow,
    /// Calls that fail a few times before they succeed.
    Flaky,
    /// Calls that exceed the attempt timeout: a later attempt gets the result.
    Late,
}

/// The arrangement of the calls in a flow.
enum FlowShape {
    Sequence,
    Branches,
    Maps,
}

/// The behaviour of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallBehaviour {
    /// Makes an entry in a ledger.
    Add,
    /// Waits, then succeeds.
    Wait,
    /// Fails a few times, then succeeds.
    Fail,
}

/// The number of items of a map.
const ITEMS: usize = 4;
/// A wait longer than the attempt timeout.
const LATE_MS: u64 = 2_600;

/// One call of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlannedCall {
    pub tag: String,
    pub who: RigProcess,
    pub does: CallBehaviour,
    /// How often it fails before it succeeds.
    pub failures_first: u64,
}

impl FlowKind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Near, Self::Far, Self::Branches, Self::Items, Self::Slow, Self::Flaky, Self::Late];

    /// The id of its definition.
    pub(crate) fn workflow(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Branches => "branches",
            Self::Items => "items",
            Self::Slow => "slow",
            Self::Flaky => "flaky",
            Self::Late => "late",
        }
    }

    fn plan(self) -> (FlowShape, &'static [ReceiverWire], CallBehaviour) {
        match self {
            Self::Near => (
                FlowShape::Sequence,
                &[RUST_REST, PYTHON_REST, TYPESCRIPT_REST, RUST_GRPC],
                CallBehaviour::Add,
            ),
            Self::Far => (
                FlowShape::Sequence,
                &[RUST_PROTOBUF, PYTHON_ENVELOPE, TYPESCRIPT_ENVELOPE, RUST_ENVELOPE],
                CallBehaviour::Add,
            ),
            Self::Branches => (FlowShape::Branches, &RECEIVER_WIRES, CallBehaviour::Add),
            Self::Items => (FlowShape::Maps, &[RUST_GRPC, PYTHON_REST, TYPESCRIPT_REST], CallBehaviour::Add),
            Self::Slow => (
                FlowShape::Branches,
                &[RUST_PROTOBUF, RUST_GRPC, PYTHON_REST, TYPESCRIPT_ENVELOPE],
                CallBehaviour::Wait,
            ),
            Self::Flaky => (
                FlowShape::Branches,
                &[RUST_REST, RUST_GRPC, PYTHON_ENVELOPE, TYPESCRIPT_REST],
                CallBehaviour::Fail,
            ),
            Self::Late => {
                (FlowShape::Branches, &[RUST_ENVELOPE, PYTHON_REST, TYPESCRIPT_REST], CallBehaviour::Wait)
            }
        }
    }

    /// The calls of a flow with this id, in the order of its output.
    pub(crate) fn calls(self, id: &str, times: u64) -> Vec<PlannedCall> {
        let (shape, wires, does) = self.plan();
        let each = if matches!(shape, FlowShape::Maps) { ITEMS } else { 1 };
        let wires = wires.iter().flat_map(|wire| std::iter::repeat_n(wire, each));
        let call = |(n, wire): (usize, &ReceiverWire)| PlannedCall {
            tag: tag(id, n),
            who: wire.who,
            does,
            failures_first: times,
        };
        wires.enumerate().map(call).collect()
    }

    /// The input of a flow with this id.
    pub(crate) fn input(self, id: &str, ms: u64, times: u64) -> Value {
        let (shape, wires, _) = self.plan();
        let ms = if self == Self::Late { LATE_MS } else { ms };
        let mut input = Map::from_iter([("ms".to_owned(), ms.into()), ("times".to_owned(), times.into())]);
        for n in 0..wires.len() {
            let tags = match shape {
                FlowShape::Maps => (n * ITEMS..(n + 1) * ITEMS).map(|n| tag(id, n)).collect(),
                _ => Value::from(tag(id, n)),
            };
            input.insert(format!("t{n}"), tags);
        }
        Value::Object(input)
    }

    /// The results of its calls, in order.
    pub(crate) fn call_results(self, output: &Value) -> Vec<Value> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self.plan().0 {
            FlowShape::Maps => list(output).iter().flat_map(list).collect(),
            _ => list(output),
        }
    }

    fn definition(self) -> Value {
        let (shape, wires, does) = self.plan();
        let mut states = Map::new();
        let first = match shape {
            FlowShape::Sequence => {
                for (n, wire) in wires.iter().enumerate() {
                    let next = if n + 1 == wires.len() { "End".to_owned() } else { format!("S{}", n + 1) };
                    let tag = format!("$.input.t{n}");
                    let output = format!("$.state.s{n}");
                    states.insert(format!("S{n}"), task(*wire, does, &tag, &output, &next));
                }
                let outputs: Value = (0..wires.len()).map(|n| format!("$.state.s{n}")).collect();
                states.insert("End".to_owned(), json!({"type": "succeed", "output": outputs}));
                "S0"
            }
            FlowShape::Maps => {
                for (n, wire) in wires.iter().enumerate() {
                    let next = if n + 1 == wires.len() { "End".to_owned() } else { format!("S{}", n + 1) };
                    let call = task(*wire, does, "$.item", "$.state.a", "Done");
                    let iterator = json!({"startAt": "A", "states": {"A": call, "Done": {"type": "succeed", "output": "$.state.a"}}});
                    let map = json!({"type": "map", "items": format!("$.input.t{n}"), "maxConcurrency": 2,
                                     "output": format!("$.state.s{n}"), "next": next, "iterator": iterator});
                    states.insert(format!("S{n}"), map);
                }
                let outputs: Value = (0..wires.len()).map(|n| format!("$.state.s{n}")).collect();
                states.insert("End".to_owned(), json!({"type": "succeed", "output": outputs}));
                "S0"
            }
            FlowShape::Branches => {
                let branch = |(n, wire): (usize, &ReceiverWire)| {
                    let call = task(*wire, does, &format!("$.input.t{n}"), "$.state.a", "Done");
                    json!({"startAt": "A", "states": {"A": call, "Done": {"type": "succeed", "output": "$.state.a"}}})
                };
                let branches: Value = wires.iter().enumerate().map(branch).collect();
                let all =
                    json!({"type": "parallel", "output": "$.state.all", "next": "End", "branches": branches});
                states.insert("All".to_owned(), all);
                states.insert("End".to_owned(), json!({"type": "succeed", "output": "$.state.all"}));
                "All"
            }
        };
        json!({"$schema": "workflow-schema-v1.json", "id": self.workflow(), "version": "1.0.0", "startAt": first,
               "states": states})
    }
}

impl PlannedCall {
    /// Describes a wrong result. `runs` is the number of runs in the receiver's store.
    pub(crate) fn result_violation(&self, result: &Value, runs: Option<u64>) -> Option<String> {
        let expected = match (self.does, self.who) {
            (CallBehaviour::Add, RigProcess::Rust) => json!({"added": true}),
            // Every account belongs to one call.
            (CallBehaviour::Add, _) => json!({"balance": 1}),
            (CallBehaviour::Wait, _) => json!({"runs": 1}),
            // A worker counts a failing run before it responds: if it is killed in between, the call fails once more.
            (CallBehaviour::Fail, _) => {
                let reported = result.get("runs").and_then(Value::as_u64).unwrap_or_default();
                let enough = if self.who == RigProcess::Rust {
                    reported == self.failures_first + 1
                } else {
                    reported > self.failures_first
                };
                return (!enough || Some(reported) != runs).then(|| {
                    format!(
                        "{} should fail {} times; it returned {result} and ran {runs:?} times",
                        self.tag, self.failures_first
                    )
                });
            }
        };
        (*result != expected).then(|| format!("{} returned {result}; expected {expected}", self.tag))
    }
}

pub(crate) fn definitions() -> Vec<Value> {
    FlowKind::ALL.into_iter().map(FlowKind::definition).collect()
}

fn tag(id: &str, n: usize) -> String {
    format!("{id}.{n}")
}

fn task(wire: ReceiverWire, does: CallBehaviour, tag: &str, output: &str, next: &str) -> Value {
    let (served, input) = match does {
        CallBehaviour::Add => (ADD, json!({"account": tag, "amount": 1})),
        CallBehaviour::Wait => (CONFORMANCE, json!({"op": "wait", "tag": tag, "ms": "$.input.ms"})),
        CallBehaviour::Fail => (
            CONFORMANCE,
            json!({"op": "fail", "tag": tag, "status": "UNAVAILABLE", "times": "$.input.times"}),
        ),
    };
    json!({"type": "task", "activity": wire.activity(served), "input": input, "output": output, "next": next})
}
