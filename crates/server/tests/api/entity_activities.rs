//! The activities with which workflows use entities, on a complete server.

use serde_json::{Value, json};

use crate::server::{config, http_request};
use crate::test_api::definition;

fn task(activity: &str, input: &Value, to: &str, next: &str) -> Value {
    json!({"type": "task", "activity": activity, "input": input, "output": to, "next": next})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_recorded_after_the_workflow_read_the_position_are_neither_read_nor_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let server = abide_server::Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let input = |up_to: &str| json!({"entityType": "device", "entityId": "$.input.key", "upTo": up_to});
    let states = json!({
        "Begin": task("entity.get", &json!({"entityType": "device", "entityId": "$.input.key"}), "$.state.e", "Wait"),
        "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "next": "Read"},
        "Read": task("GetEntityEvents", &input("$.state.e.lastPosition"), "$.state.events", "Clear"),
        "Clear": task("ClearEntityEvents", &input("$.state.e.lastPosition"), "$.state.cleared", "Page"),
        "Page": task(
            "entity.call",
            &json!({"entityType": "device", "entityId": "$.input.key", "operation": "GetEvents", "input": {"from": 0, "limit": 1}}),
            "$.state.page", "Done",
        ),
        "Done": {"type": "succeed", "output": "$.state"},
    });
    let published =
        http_request(address, "POST", "/api/workflows", &definition("w", "1.0.0", &states).to_string()).await;
    assert_eq!(published.0, 201, "{}", published.1);
    let record = async |key: &str, event: Value| {
        let path = format!("/api/entities/device/{key}/RecordEvent");
        assert_eq!(http_request(address, "POST", &path, &event.to_string()).await.0, 200);
    };
    let run = async |key: &str| {
        let start = json!({"workflow": "w", "instanceId": key, "input": {"key": key}}).to_string();
        assert_eq!(http_request(address, "POST", "/api/instances", &start).await.0, 202);
        let path = format!("/api/instances/{key}");
        let shown = async || http_request(address, "GET", &path, "").await.1["data"].clone();
        while shown().await["currentStates"][0]["state"] != "Wait" {
            assert_ne!(shown().await["status"], "Failed", "{}", shown().await);
        }
        record(key, json!({"n": "late-1"})).await;
        record(key, json!({"n": "late-2"})).await;
        http_request(address, "POST", &format!("{path}/events/Go"), "").await;
        loop {
            let shown = shown().await;
            assert_ne!(shown["status"], "Failed", "{shown}");
            if shown["status"] == "Completed" {
                break shown["output"].clone();
            }
        }
    };
    record("full", json!({"n": 0})).await;
    record("full", json!({"n": 1})).await;
    let full = run("full").await;
    assert_eq!((&full["e"]["lastPosition"], &full["e"]["eventCount"]), (&json!(1), &json!(2)), "{full}");
    let events = full["events"].as_array().unwrap();
    let members = |event: &Value| (event["n"].clone(), event["position"].clone());
    assert_eq!(events.iter().map(members).collect::<Vec<_>>(), [(json!(0), json!(0)), (json!(1), json!(1))]);
    assert_eq!(full["cleared"]["cleared"], 2);
    let page = &full["page"];
    assert_eq!(
        (&page["events"][0]["position"], &page["events"][0]["event"]),
        (&json!(2), &json!({"n": "late-1"}))
    );
    assert!(page["events"][0]["recordedAtUtc"].is_string() && page["events"][1].is_null(), "{page}");
    assert_eq!(page["nextPosition"], 3);

    record("empty", json!({"n": 0})).await;
    assert_eq!(http_request(address, "POST", "/api/entities/device/empty/Clear", "").await.0, 200);
    let empty = run("empty").await;
    assert_eq!((&empty["e"]["lastPosition"], &empty["events"]), (&json!(null), &json!([])), "{empty}");
    assert_eq!((&empty["cleared"]["cleared"], &empty["page"]["nextPosition"]), (&json!(0), &json!(2)));
    server.stop().await;
}

/// A server with workflows that read an entity by its key alone.
struct Readers {
    server: abide_server::Server,
    _folder: tempfile::TempDir,
}

impl Readers {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = abide_server::Server::start(&config(folder.path())).await.unwrap();
        server.ready().await;
        let readers = Self { server, _folder: folder };
        let entity = json!({"entityId": "$.input.entityId"});
        let reads = json!({
            "Begin": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "next": "Get"},
            "Get": task("entity.get", &entity, "$.state.entity", "Read"),
            "Read": task("GetEntityEvents", &entity, "$.state.events", "Done"),
            "Done": {"type": "succeed", "output": "$.state"},
        });
        let parent = json!({
            "Begin": {"type": "workflow", "workflow": "reads", "input": "$.input", "output": "$.state.child", "next": "Done"},
            "Done": {"type": "succeed", "output": "$.state"},
        });
        let renewing = json!({
            "Begin": {"type": "choice", "choices": [
                {"when": {"path": "$.input.again", "op": "eq", "value": true}, "next": "Read"}], "default": "Again"},
            "Again": {"type": "continueAsNew", "input": {"entityId": "$.input.entityId", "again": true}},
            "Read": task("GetEntityEvents", &entity, "$.state.events", "Done"),
            "Done": {"type": "succeed", "output": "$.state"},
        });
        for (id, states) in [("reads", reads), ("parent", parent), ("renewing", renewing)] {
            let published = readers.call("POST", "/api/workflows", &definition(id, "1.0.0", &states)).await;
            assert_eq!(published.0, 201, "{}", published.1);
        }
        readers
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        http_request(self.server.address(), method, path, &body.to_string()).await
    }

    async fn record(&self, entity_type: &str, key: &str, event: &Value) {
        let path = format!("/api/entities/{entity_type}/{key}/RecordEvent");
        assert_eq!(self.call("POST", &path, event).await.0, 200);
    }

    /// Starts a run of `reads` with these fields.
    async fn start(&self, id: &str, fields: &Value) {
        let mut start = json!({"workflow": "reads", "instanceId": id});
        start.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, reply) = self.call("POST", "/api/instances", &start).await;
        assert_eq!(status, 202, "{reply}");
    }

    /// Lets a run of `reads` go on, and returns how it ended.
    async fn end(&self, id: &str) -> Value {
        self.call("POST", &format!("/api/instances/{id}/events/Go"), &json!({})).await;
        loop {
            let shown =
                self.call("GET", &format!("/api/instances/{id}"), &Value::Null).await.1["data"].clone();
            if matches!(shown["status"].as_str(), Some("Completed" | "Failed")) {
                return shown;
            }
        }
    }
}

fn seen(run: &Value) -> Vec<&Value> {
    let events = &run["output"]["events"];
    assert!(events.is_array(), "{run}");
    events.as_array().unwrap().iter().map(|event| &event["id"]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_reads_the_entity_it_was_started_for_though_its_routes_are_gone_and_another_type_has_the_key() {
    let readers = Readers::new().await;
    for (event_type, entity_type, workflow) in [
        ("joined", "device", "reads"),
        ("adopted", "device", "parent"),
        ("renewed", "device", "renewing"),
        ("sensed", "sensor", ""),
    ] {
        let mut route = json!({"entityType": entity_type, "action": "record"});
        if !workflow.is_empty() {
            route = json!({"entityType": entity_type, "action": "start", "workflow": workflow});
        }
        assert_eq!(readers.call("PUT", &format!("/api/routes/{event_type}"), &route).await.0, 200);
    }
    let event = |id: &str, kind: &str| json!({"specversion": "1.0", "id": id, "source": "/fleet", "type": kind, "subject": "dev-1"});
    for (id, kind) in [("s", "sensed"), ("1", "joined"), ("2", "adopted")] {
        assert_eq!(readers.call("POST", "/api/events", &event(id, kind)).await.0, 202);
    }
    for kind in ["joined", "adopted", "sensed"] {
        assert_eq!(readers.call("DELETE", &format!("/api/routes/{kind}"), &Value::Null).await.0, 200);
    }
    let run = readers.end("dev-1~reads").await;
    assert_eq!(seen(&run), ["1", "2"]);
    assert_eq!(run["output"]["entity"]["eventCount"], 2);

    // A child acts for the entity of its parent.
    let child = loop {
        let parent = readers.call("GET", "/api/instances/dev-1~parent", &Value::Null).await.1;
        if let Some(child) = parent["data"]["currentStates"][0]["waitingFor"]["childInstanceId"].as_str() {
            break child.to_owned();
        }
    };
    assert_eq!(seen(&readers.end(&child).await), ["1", "2"]);

    // And so does the next run, whose input does not name the type.
    assert_eq!(readers.call("POST", "/api/events", &event("3", "renewed")).await.0, 202);
    assert_eq!(seen(&readers.end("dev-1~renewing").await), ["1", "2", "3"]);
    readers.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_is_found_by_its_key_without_any_route_and_two_are_ambiguous_unless_the_start_says_which() {
    let readers = Readers::new().await;
    let input = json!({"input": {"entityId": "k"}});
    readers.record("device", "k", &json!({"id": "d"})).await;
    readers.start("only", &input).await;
    assert_eq!(seen(&readers.end("only").await), ["d"]);
    readers.start("nothing", &json!({"input": {"entityId": "other"}})).await;
    let nothing = readers.end("nothing").await;
    assert_eq!((&nothing["output"]["entity"], &nothing["output"]["events"]), (&json!(null), &json!([])));

    readers.record("sensor", "k", &json!({"id": "s"})).await;
    readers.start("ambiguous", &input).await;
    let ambiguous = readers.end("ambiguous").await;
    assert_eq!(
        (&ambiguous["status"], &ambiguous["error"]["code"]),
        (&json!("Failed"), &json!("AmbiguousEntity"))
    );
    assert!(ambiguous["error"]["message"].as_str().unwrap().contains("@sensor@k"), "{ambiguous}");
    let named = json!({"input": {"entityId": "k"}, "entityId": "k", "entityType": "Sensor"});
    readers.start("named", &named).await;
    assert_eq!(seen(&readers.end("named").await), ["s"]);
    readers.start("in-input", &json!({"input": {"entityId": "k", "entityType": "Device"}})).await;
    assert_eq!(seen(&readers.end("in-input").await), ["d"]);
    // Another key than its own is not the run's business: it is searched for.
    let other = json!({"input": {"entityId": "k"}, "entityId": "own", "entityType": "sensor"});
    readers.start("other", &other).await;
    assert_eq!(readers.end("other").await["error"]["code"], "AmbiguousEntity");

    for wrong in [json!({"entityType": "device"}), json!({"entityType": "no type", "entityId": "k"})] {
        let mut start = json!({"workflow": "reads"});
        start.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let (status, reply) = readers.call("POST", "/api/instances", &start).await;
        assert_eq!((status, &reply["error"]["target"]), (400, &json!("/entityType")));
    }
    readers.server.stop().await;
}

fn positions(events: &Value) -> Vec<u64> {
    events.as_array().unwrap().iter().map(|event| event["position"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_clears_what_it_has_read_as_a_list_or_page_by_page_and_not_what_came_since() {
    let readers = Readers::new().await;
    let entity = json!({"entityId": "$.input.entityId"});
    let page = |from: &str, limit: Option<u64>| {
        let mut input = json!({"entityId": "$.input.entityId", "from": from});
        if let Some(limit) = limit {
            input["limit"] = json!(limit);
        }
        input
    };
    let clears = json!({
        "Begin": task("GetEntityEvents", &entity, "$.state.read", "Wait"),
        "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "next": "Clear"},
        "Clear": task("ClearEntityEvents", &entity, "$.state.cleared", "Left"),
        "Left": task("GetEntityEvents", &page("$.state.cleared.firstPosition", Some(2)), "$.state.left", "Rest"),
        "Rest": task("GetEntityEvents", &page("$.state.left.nextFrom", None), "$.state.rest", "ClearRest"),
        "ClearRest": task("ClearEntityEvents", &entity, "$.state.clearedRest", "Done"),
        "Done": {"type": "succeed", "output": "$.state"},
    });
    let blind = json!({
        "Begin": task("ClearEntityEvents", &entity, "$.state.cleared", "Done"),
        "Done": {"type": "succeed", "output": "$.state"},
    });
    for (id, states) in [("clears", clears), ("blind", blind)] {
        let published = readers.call("POST", "/api/workflows", &definition(id, "1.0.0", &states)).await;
        assert_eq!(published.0, 201, "{}", published.1);
    }
    let start =
        |workflow: &str| json!({"workflow": workflow, "instanceId": workflow, "input": {"entityId": "k"}});
    for n in 0..2 {
        readers.record("device", "k", &json!({"n": n, "position": "its own"})).await;
    }
    assert_eq!(readers.call("POST", "/api/instances", &start("blind")).await.0, 202);
    assert_eq!(readers.end("blind").await["output"]["cleared"]["cleared"], 0, "it has read nothing");
    assert_eq!(readers.call("POST", "/api/instances", &start("clears")).await.0, 202);
    while readers.call("GET", "/api/instances/clears", &Value::Null).await.1["data"]["currentStates"][0]["state"]
        != "Wait"
    {}
    for event in [json!({"n": 2}), json!({"n": 3}), json!(7)] {
        readers.record("device", "k", &event).await;
    }
    let run = readers.end("clears").await;
    let output = &run["output"];
    assert_eq!((positions(&output["read"]), &output["read"][1]["n"]), (vec![0, 1], &json!(1)), "{run}");
    assert!(output["read"][0]["recordedAtUtc"].as_str().is_some_and(|at| at.ends_with('Z')), "{run}");
    assert_eq!(output["cleared"], json!({"cleared": 2, "firstPosition": 2}));
    let left = &output["left"];
    assert_eq!(
        (positions(&left["events"]), &left["nextFrom"], &left["more"]),
        (vec![2, 3], &json!(4), &json!(true))
    );
    let rest = &output["rest"];
    assert_eq!(
        (positions(&rest["events"]), &rest["nextFrom"], &rest["more"]),
        (vec![4], &json!(null), &json!(false))
    );
    assert_eq!(rest["events"][0]["event"], 7, "an event that is no object");
    assert_eq!(output["clearedRest"]["cleared"], 3);
    readers.server.stop().await;
}
