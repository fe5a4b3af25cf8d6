//! The workload of the simulated clients: a definition for each way in which a run can wait, with inputs and results.

use abide_runtime::fault_injection::{Poison, PoisonEffect};
use abide_workflow::InstanceId;
use serde_json::{Value, json};

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkloadKind {
    /// Three tasks in a row.
    Steps,
    /// A map of tasks.
    Map,
    /// A timer, then a task.
    Timer,
    /// Three events; the output is their payloads.
    Events,
    /// A child on the same shard and one on another.
    Parent,
    /// A loop by continue-as-new; each run takes one event.
    Loop,
    /// A task that fails permanently, and the compensation of the one before.
    Compensated,
    /// A wait for an event, with a timeout.
    EventTimeout,
    /// More tasks at once than one turn can start on a store with small commits.
    Wide,
    /// A task that fails permanently until the run is rewound.
    Rewound,
    /// A wait that the workflow's timeout ends.
    WorkflowTimeout,
    /// A task whose timeout may pass while a retry waits, or while no node runs its shard.
    TaskTimeout,
    /// A run that starts itself twice and abandons both, as deep as allowed; only an order for its tree ends them.
    Tree,
}

/// The instance whose turns end the process in a poisoned scenario.
pub const POISONED: &str = "timer-2";

/// The poison of [`POISONED`].
pub fn poison() -> Option<Poison> {
    Some(Poison { instance_id: InstanceId::new(POISONED).ok()?, effect: PoisonEffect::Die })
}

/// Items of a wide map: as many calls, with their timers, as the store with the smallest commits can cancel in one
/// commit. A run that must cancel more is parked there.
pub const WIDE_ITEMS: u32 = 16;

impl WorkloadKind {
    pub const ALL: [Self; 13] = [
        Self::Steps,
        Self::Map,
        Self::Timer,
        Self::Events,
        Self::Parent,
        Self::Loop,
        Self::Compensated,
        Self::EventTimeout,
        Self::Wide,
        Self::Rewound,
        Self::WorkflowTimeout,
        Self::TaskTimeout,
        Self::Tree,
    ];

    /// The id of its definition.
    pub fn workflow(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Map => "map",
            Self::Timer => "timer",
            Self::Events => "events",
            Self::Parent => "parent",
            Self::Loop => "loop",
            Self::Compensated => "undone",
            Self::EventTimeout => "patience",
            Self::Wide => "wide",
            Self::Rewound => "mended",
            Self::WorkflowTimeout => "deadline",
            Self::TaskTimeout => "hurry",
            Self::Tree => "tree",
        }
    }

    /// True if a run ends without any request from a client.
    pub fn ends_unaided(self) -> bool {
        !matches!(self, Self::Events | Self::Loop | Self::Tree)
    }

    /// How many events a client raises.
    pub fn events(self) -> usize {
        match self {
            Self::Events => 3,
            Self::Loop => 4,
            Self::EventTimeout => 1,
            _ => 0,
        }
    }
}

/// All definitions, those of children included.
pub fn definitions() -> Vec<Value> {
    let task = |activity: &str, input: Value, output: &str, next: &str| {
        json!({"type": "task", "activity": activity, "input": input, "output": output, "next": next,
               "retryPolicy": {"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT10S"}})
    };
    let work =
        |n: u32, output: &str, next: &str| task("work", json!({"id": "$.input.id", "n": n}), output, next);
    let wait = |next: &str, output: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": output, "next": next});
    let one_event = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.event", "next": "Count"});
    vec![
        definition(
            "steps",
            "A",
            &json!({"A": work(1, "$.state.a", "B"), "B": work(2, "$.state.b", "C"), "C": work(3, "$.state.c", "End"),
                   "End": {"type": "succeed", "output": ["$.state.a", "$.state.b", "$.state.c"]}}),
        ),
        definition(
            "map",
            "Each",
            &json!({"Each": {"type": "map", "items": "$.input.items", "maxConcurrency": 3, "output": "$.state.all", "next": "End", "iterator": {
                       "startAt": "Do", "states": {"Do": task("work", json!({"id": "$.input.id", "n": "$.item"}), "$.state.x", "Done"),
                                                   "Done": {"type": "succeed", "output": "$.state.x"}}}},
                   "End": {"type": "succeed", "output": "$.state.all"}}),
        ),
        definition_with_configuration(
            "timer",
            "Wait",
            &json!({"Wait": {"type": "wait", "waitType": "duration", "duration": "PT45S", "next": "A"},
                   "A": work(1, "$.state.a", "Again"),
                   "Again": {"type": "wait", "waitType": "duration", "duration": "PT2M", "next": "End"},
                   "End": {"type": "succeed", "output": "$.state.a"}}),
            json!({"stuckAfter": "PT90S"}),
        ),
        definition(
            "events",
            "One",
            &json!({"One": wait("A", "$.state.one"), "A": work(1, "$.state.a", "Two"), "Two": wait("Three", "$.state.two"),
                   "Three": wait("End", "$.state.three"),
                   "End": {"type": "succeed", "output": ["$.state.one", "$.state.two", "$.state.three"]}}),
        ),
        definition(
            "parent",
            "Near",
            &json!({"Near": {"type": "workflow", "workflow": "child", "input": {"id": "$.input.id", "n": 1}, "output": "$.state.near", "next": "Far"},
                   "Far": {"type": "workflow", "workflow": "child", "spread": true, "input": {"id": "$.input.id", "n": 2}, "output": "$.state.far", "next": "End"},
                   "End": {"type": "succeed", "output": ["$.state.near", "$.state.far"]}}),
        ),
        definition(
            "child",
            "A",
            &json!({"A": task("work", json!({"id": "$.input.id", "n": "$.input.n"}), "$.state.a", "End"),
                   "End": {"type": "succeed", "output": "$.state.a"}}),
        ),
        definition(
            "loop",
            "One",
            &json!({"One": one_event,
                   "Count": task("append", json!({"list": "$.input.seen", "item": "$.state.event"}), "$.state.seen", "More"),
                   "More": {"type": "choice", "choices": [{"when": {"path": "$.state.seen.full", "op": "eq", "value": true}, "next": "End"}], "default": "Next"},
                   "Next": {"type": "continueAsNew", "input": {"id": "$.input.id", "seen": "$.state.seen.list"}},
                   "End": {"type": "succeed", "output": "$.state.seen.list"}}),
        ),
        definition(
            "undone",
            "A",
            &json!({"A": {"type": "task", "activity": "work", "input": {"id": "$.input.id", "n": 1}, "output": "$.state.a", "next": "B",
                         "retryPolicy": {"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT10S"},
                         "compensateWith": {"activity": "undo", "input": {"id": "$.input.id", "n": 1}}},
                   "B": {"type": "task", "activity": "refuse", "input": {"id": "$.input.id", "n": 2}, "next": "End", "onError": "Undo",
                         "retryPolicy": {"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT10S"}},
                   "Undo": {"type": "compensation", "next": "Failed"},
                   "Failed": {"type": "fail", "error": "Undone", "message": "as it should"},
                   "End": {"type": "succeed"}}),
        ),
        definition(
            "patience",
            "Wait",
            &json!({"Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT3M", "timeoutNext": "Late", "output": "$.state.e", "next": "End"},
                   "Late": {"type": "succeed", "output": "late"},
                   "End": {"type": "succeed", "output": "in time"}}),
        ),
        definition(
            "wide",
            "Each",
            &json!({"Each": {"type": "map", "items": "$.input.items", "output": "$.state.all", "next": "End", "iterator": {
                       "startAt": "Do", "states": {"Do": task("work", json!({"id": "$.input.id", "n": "$.item"}), "$.state.x", "Done"),
                                                   "Done": {"type": "succeed", "output": "$.state.x"}}}},
                   "End": {"type": "succeed", "output": "$.state.all"}}),
        ),
        definition(
            "mended",
            "A",
            &json!({"A": work(1, "$.state.a", "B"),
                   "B": task("mend", json!({"id": "$.input.id", "n": 2}), "$.state.b", "End"),
                   "End": {"type": "succeed", "output": ["$.state.a", "$.state.b"]}}),
        ),
        definition_with_configuration(
            "deadline",
            "A",
            &json!({"A": {"type": "task", "activity": "work", "input": {"id": "$.input.id", "n": 1}, "output": "$.state.a", "next": "Wait",
                         "compensateWith": {"activity": "undo", "input": {"id": "$.input.id", "n": 1}}},
                   "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "never", "next": "End"},
                   "End": {"type": "succeed"}}),
            json!({"timeout": "PT2M", "escalation": {"notify": {"activity": "page", "input": {"id": "$.input.id", "n": 9}}}}),
        ),
        definition(
            "hurry",
            "A",
            &json!({"A": {"type": "task", "activity": "work", "input": {"id": "$.input.id", "n": 1}, "output": "$.state.a", "next": "End",
                         "timeout": "PT12S", "retryPolicy": {"maxAttempts": 50, "initialInterval": "PT5S", "maxInterval": "PT10S"},
                         "onError": [{"match": ["Timeout"], "next": "Late"}]},
                   "Late": {"type": "succeed", "output": "late"},
                   "End": {"type": "succeed", "output": "$.state.a"}}),
        ),
        definition(
            "tree",
            "Fork",
            &json!({"Fork": {"type": "parallel", "branches": [branch_below(false), branch_below(true)], "next": "End"},
                   "End": {"type": "succeed"}}),
        ),
    ]
}

/// A branch that starts a tree below its run and abandons it. Where no child is allowed any more, it waits for ever.
fn branch_below(spread: bool) -> Value {
    json!({"startAt": "Below", "states": {
        "Below": {"type": "workflow", "workflow": "tree", "input": {"id": "$.input.id"}, "spread": spread,
                  "onParentClose": "abandon", "timeout": "PT40S", "timeoutNext": "Never", "onError": "Never", "next": "Done"},
        "Never": {"type": "wait", "waitType": "externalEvent", "eventName": "never", "next": "Done"},
        "Done": {"type": "succeed"}}})
}

fn definition(id: &str, start: &str, states: &Value) -> Value {
    definition_with_configuration(id, start, states, json!({}))
}

fn definition_with_configuration(id: &str, start: &str, states: &Value, mut configuration: Value) -> Value {
    configuration["retryPolicy"] =
        json!({"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT10S"});
    json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0", "startAt": start,
           "configuration": configuration, "states": states})
}

/// The input of a run.
pub fn input(kind: WorkloadKind, id: &str) -> Value {
    match kind {
        WorkloadKind::Map => json!({"id": id, "items": [1, 2, 3, 4, 5]}),
        WorkloadKind::Wide => json!({"id": id, "items": (1..=WIDE_ITEMS).collect::<Vec<u32>>()}),
        WorkloadKind::Loop => json!({"id": id, "seen": []}),
        _ => json!({"id": id}),
    }
}

/// The result of an activity, as a function of its input. `refuse` always fails with `Err`, `mend` fails until the run
/// is rewound.
pub fn activity_result(activity: &str, input: &Value, called_before: bool) -> Result<Value, &'static str> {
    match activity {
        "refuse" => Err("Refused"),
        "mend" if !called_before => Err("Refused"),
        "append" => {
            let mut list = input.get("list").and_then(Value::as_array).cloned().unwrap_or_default();
            list.extend(input.get("item").cloned());
            let full = list.len() >= WorkloadKind::Loop.events();
            Ok(json!({"list": list, "full": full}))
        }
        _ => Ok(json!({"did": input.get("n"), "for": input.get("id")})),
    }
}
