//! What the simulated clients run: a definition for each way a run can wait, and what each must come to.

use serde_json::{Value, json};

/// The kinds of runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Three tasks in a row.
    Steps,
    /// A map of tasks.
    Map,
    /// A timer, then a task.
    Timer,
    /// Three events, then their payloads.
    Events,
    /// A child beside it and one elsewhere.
    Parent,
    /// A loop of runs, each taking one event.
    Loop,
    /// A task that fails for good, and what undoes the one before.
    Undone,
    /// An event that may never come in time.
    Patience,
    /// More tasks at once than a turn may begin on a small store.
    Wide,
    /// A task that fails for good until the run is rewound.
    Mended,
    /// A wait that the workflow's own timeout ends.
    Deadline,
    /// A task whose time may be over while a retry waits, or while nobody looks.
    Hurry,
}

/// Items of a wide map: as many calls, with their timers, as the smallest store can cancel in one commit. A run that must cancel more there is parked.
pub const WIDE: u32 = 16;

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Steps,
        Self::Map,
        Self::Timer,
        Self::Events,
        Self::Parent,
        Self::Loop,
        Self::Undone,
        Self::Patience,
        Self::Wide,
        Self::Mended,
        Self::Deadline,
        Self::Hurry,
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
            Self::Undone => "undone",
            Self::Patience => "patience",
            Self::Wide => "wide",
            Self::Mended => "mended",
            Self::Deadline => "deadline",
            Self::Hurry => "hurry",
        }
    }

    /// Whether a run comes to its end without anybody doing anything.
    pub fn ends_alone(self) -> bool {
        !matches!(self, Self::Events | Self::Loop)
    }

    /// How many events a client raises.
    pub fn events(self) -> usize {
        match self {
            Self::Events => 3,
            Self::Loop => 4,
            Self::Patience => 1,
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
        configured(
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
        configured(
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
    ]
}

fn definition(id: &str, start: &str, states: &Value) -> Value {
    configured(id, start, states, json!({}))
}

fn configured(id: &str, start: &str, states: &Value, mut configuration: Value) -> Value {
    configuration["retryPolicy"] =
        json!({"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT10S"});
    json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0", "startAt": start,
           "configuration": configuration, "states": states})
}

/// What a run is started with.
pub fn input(kind: Kind, id: &str) -> Value {
    match kind {
        Kind::Map => json!({"id": id, "items": [1, 2, 3, 4, 5]}),
        Kind::Wide => json!({"id": id, "items": (1..=WIDE).collect::<Vec<u32>>()}),
        Kind::Loop => json!({"id": id, "seen": []}),
        _ => json!({"id": id}),
    }
}

/// What an activity answers, as a function of its input; `Err` for one that refuses: always, or the first piece of work of a kind.
pub fn answer(activity: &str, input: &Value, asked_before: bool) -> Result<Value, &'static str> {
    match activity {
        "refuse" => Err("Refused"),
        "mend" if !asked_before => Err("Refused"),
        "append" => {
            let mut list = input.get("list").and_then(Value::as_array).cloned().unwrap_or_default();
            list.extend(input.get("item").cloned());
            let full = list.len() >= Kind::Loop.events();
            Ok(json!({"list": list, "full": full}))
        }
        _ => Ok(json!({"did": input.get("n"), "for": input.get("id")})),
    }
}
