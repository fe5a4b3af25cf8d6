//! What the clients run: flows of calls over all lines, one after the other and at once, quick, slow and failing; and what each must come to.
//!
//! Every call has a tag of its own, by which its effect is found in the receiver's store.

use serde_json::{Map, Value, json};

use super::lines::{
    ADD, CONFORMANCE, LINES, Line, PYTHON_ENVELOPE, PYTHON_REST, RUST_ENVELOPE, RUST_GRPC, RUST_PROTOBUF,
    RUST_REST, TYPESCRIPT_ENVELOPE, TYPESCRIPT_REST, Who,
};

/// The kinds of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Four entries, one after the other.
    Near,
    /// The same over other wires.
    Far,
    /// An entry over every line, all at once.
    Branches,
    /// Three maps of entries, two at a time.
    Items,
    /// Calls that take a moment.
    Slow,
    /// Calls that fail some times before they succeed.
    Flaky,
    /// Calls that take longer than a delivery may: a later one finds the answer.
    Late,
}

/// How the calls of a flow follow each other.
enum Shape {
    Sequence,
    Branches,
    Maps,
}

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Does {
    /// An entry in a ledger.
    Add,
    /// One run, after a while.
    Wait,
    /// Runs that fail, and one that does not.
    Fail,
}

/// Items of a map.
const ITEMS: usize = 4;
/// A wait that outlasts a delivery.
const LATE_MS: u64 = 2_600;

/// One call that a flow makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Planned {
    pub tag: String,
    pub who: Who,
    pub does: Does,
    /// How often it fails first.
    pub times: u64,
}

impl Kind {
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

    fn plan(self) -> (Shape, &'static [Line], Does) {
        match self {
            Self::Near => (Shape::Sequence, &[RUST_REST, PYTHON_REST, TYPESCRIPT_REST, RUST_GRPC], Does::Add),
            Self::Far => (
                Shape::Sequence,
                &[RUST_PROTOBUF, PYTHON_ENVELOPE, TYPESCRIPT_ENVELOPE, RUST_ENVELOPE],
                Does::Add,
            ),
            Self::Branches => (Shape::Branches, &LINES, Does::Add),
            Self::Items => (Shape::Maps, &[RUST_GRPC, PYTHON_REST, TYPESCRIPT_REST], Does::Add),
            Self::Slow => {
                (Shape::Branches, &[RUST_PROTOBUF, RUST_GRPC, PYTHON_REST, TYPESCRIPT_ENVELOPE], Does::Wait)
            }
            Self::Flaky => {
                (Shape::Branches, &[RUST_REST, RUST_GRPC, PYTHON_ENVELOPE, TYPESCRIPT_REST], Does::Fail)
            }
            Self::Late => (Shape::Branches, &[RUST_ENVELOPE, PYTHON_REST, TYPESCRIPT_REST], Does::Wait),
        }
    }

    /// The calls of a flow with this id, in the order of its output.
    pub(crate) fn calls(self, id: &str, times: u64) -> Vec<Planned> {
        let (shape, lines, does) = self.plan();
        let each = if matches!(shape, Shape::Maps) { ITEMS } else { 1 };
        let lines = lines.iter().flat_map(|line| std::iter::repeat_n(line, each));
        let call = |(n, line): (usize, &Line)| Planned { tag: tag(id, n), who: line.who, does, times };
        lines.enumerate().map(call).collect()
    }

    /// What a flow with this id is started with.
    pub(crate) fn input(self, id: &str, ms: u64, times: u64) -> Value {
        let (shape, lines, _) = self.plan();
        let ms = if self == Self::Late { LATE_MS } else { ms };
        let mut input = Map::from_iter([("ms".to_owned(), ms.into()), ("times".to_owned(), times.into())]);
        for n in 0..lines.len() {
            let tags = match shape {
                Shape::Maps => (n * ITEMS..(n + 1) * ITEMS).map(|n| tag(id, n)).collect(),
                _ => Value::from(tag(id, n)),
            };
            input.insert(format!("t{n}"), tags);
        }
        Value::Object(input)
    }

    /// The answers of its calls, in order.
    pub(crate) fn answers(self, output: &Value) -> Vec<Value> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self.plan().0 {
            Shape::Maps => list(output).iter().flat_map(list).collect(),
            _ => list(output),
        }
    }

    fn definition(self) -> Value {
        let (shape, lines, does) = self.plan();
        let mut states = Map::new();
        let first = match shape {
            Shape::Sequence => {
                for (n, line) in lines.iter().enumerate() {
                    let next = if n + 1 == lines.len() { "End".to_owned() } else { format!("S{}", n + 1) };
                    let (tag, output) = (format!("$.input.t{n}"), format!("$.state.s{n}"));
                    states.insert(format!("S{n}"), task(*line, does, &tag, &output, &next));
                }
                let outputs: Value = (0..lines.len()).map(|n| format!("$.state.s{n}")).collect();
                states.insert("End".to_owned(), json!({"type": "succeed", "output": outputs}));
                "S0"
            }
            Shape::Maps => {
                for (n, line) in lines.iter().enumerate() {
                    let next = if n + 1 == lines.len() { "End".to_owned() } else { format!("S{}", n + 1) };
                    let call = task(*line, does, "$.item", "$.state.a", "Done");
                    let iterator = json!({"startAt": "A", "states": {"A": call, "Done": {"type": "succeed", "output": "$.state.a"}}});
                    let map = json!({"type": "map", "items": format!("$.input.t{n}"), "maxConcurrency": 2,
                                     "output": format!("$.state.s{n}"), "next": next, "iterator": iterator});
                    states.insert(format!("S{n}"), map);
                }
                let outputs: Value = (0..lines.len()).map(|n| format!("$.state.s{n}")).collect();
                states.insert("End".to_owned(), json!({"type": "succeed", "output": outputs}));
                "S0"
            }
            Shape::Branches => {
                let branch = |(n, line): (usize, &Line)| {
                    let call = task(*line, does, &format!("$.input.t{n}"), "$.state.a", "Done");
                    json!({"startAt": "A", "states": {"A": call, "Done": {"type": "succeed", "output": "$.state.a"}}})
                };
                let branches: Value = lines.iter().enumerate().map(branch).collect();
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

impl Planned {
    /// What is wrong with an answer, given what the receiver's own store says of runs.
    pub(crate) fn wrong(&self, answer: &Value, runs: Option<u64>) -> Option<String> {
        let expected = match (self.does, self.who) {
            (Does::Add, Who::Rust) => json!({"added": true}),
            // Every account is one call's.
            (Does::Add, _) => json!({"balance": 1}),
            (Does::Wait, _) => json!({"runs": 1}),
            // A worker counts a run that fails before it says so: killed in between, it fails once more.
            (Does::Fail, _) => {
                let told = answer.get("runs").and_then(Value::as_u64).unwrap_or_default();
                let enough = if self.who == Who::Rust { told == self.times + 1 } else { told > self.times };
                return (!enough || Some(told) != runs).then(|| {
                    format!(
                        "{} was to fail {} times, answered {answer} and ran {runs:?} times",
                        self.tag, self.times
                    )
                });
            }
        };
        (*answer != expected).then(|| format!("{} was answered {answer}, not {expected}", self.tag))
    }
}

/// All definitions.
pub(crate) fn definitions() -> Vec<Value> {
    Kind::ALL.into_iter().map(Kind::definition).collect()
}

fn tag(id: &str, n: usize) -> String {
    format!("{id}.{n}")
}

fn task(line: Line, does: Does, tag: &str, output: &str, next: &str) -> Value {
    let (served, input) = match does {
        Does::Add => (ADD, json!({"account": tag, "amount": 1})),
        Does::Wait => (CONFORMANCE, json!({"op": "wait", "tag": tag, "ms": "$.input.ms"})),
        Does::Fail => (
            CONFORMANCE,
            json!({"op": "fail", "tag": tag, "status": "UNAVAILABLE", "times": "$.input.times"}),
        ),
    };
    json!({"type": "task", "activity": line.activity(served), "input": input, "output": output, "next": next})
}
