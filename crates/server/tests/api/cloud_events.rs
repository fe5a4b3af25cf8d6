//! `POST /api/events` and `/api/routes`: the three modes of CloudEvents, sessions, duplicates, dead letters.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::server::{config, http_request};
use crate::test_api::{TestApi, TestResponse, error};

fn event(id: &str, kind: &str, session: &str) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/fleet", "type": kind, "subject": session, "data": {"n": id}})
}

impl TestApi {
    async fn events(&self, kind: &str, body: &Value) -> TestResponse {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/api/events")
            .header("content-type", format!("application/{kind}+json"))
            .body(Body::from(body.to_string()))
            .unwrap();
        self.send(request).await
    }

    async fn send_event(&self, event: &Value) -> Value {
        let response = self.events("cloudevents", event).await;
        assert_eq!(response.status, 202, "{}", response.text);
        response.data()["items"][0].clone()
    }

    async fn route(&self, kind: &str, route: &Value) -> TestResponse {
        self.request(Method::PUT, &format!("/api/routes/{kind}"), route.to_string()).await
    }

    /// The instance, once it has this status.
    async fn until(&self, id: &str, status: &str) -> Value {
        loop {
            let response = self.get(&format!("/api/instances/{id}")).await;
            if response.status == 200 && response.data()["status"] == status {
                return response.data();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// A server with a route for each action. The workflow waits for `Go`.
async fn routed() -> TestApi {
    route_all(TestApi::new().await).await
}

async fn route_all(api: TestApi) -> TestApi {
    api.publish_waiting("waits").await;
    for (kind, action) in
        [("begun", "start"), ("going", "startOrRaise"), ("told", "raise"), ("noted", "record")]
    {
        let mut route = json!({"entityType": "Device", "action": action, "eventName": "Go"});
        if action != "record" {
            route["workflow"] = json!("waits");
        }
        let response = api.route(kind, &route).await;
        assert_eq!(response.status, 200, "{}", response.text);
    }
    api
}

#[tokio::test]
async fn an_event_starts_the_run_of_its_session_and_the_next_one_reaches_it() {
    let api = routed().await;
    let item = api.send_event(&event("1", "going", "dev-1")).await;
    assert_eq!(
        (&item["status"], &item["entityType"], &item["entityKey"], &item["position"], &item["instanceId"]),
        (&json!("recorded"), &json!("device"), &json!("dev-1"), &json!(0), &json!("dev-1~waits"))
    );
    let run = api.until("dev-1~waits", "Running").await;
    assert_eq!((&run["input"]["entityId"], &run["input"]["event"]["id"]), (&json!("dev-1"), &json!("1")));
    assert_eq!(run["entityId"], "dev-1");
    api.send_event(&event("2", "noted", "dev-1")).await;
    api.send_event(&event("3", "told", "dev-1")).await;
    let run = api.until("dev-1~waits", "Completed").await;
    assert_eq!(run["output"]["id"], "3");
    assert_eq!(api.get("/api/entities/device/dev-1").await.data()["eventCount"], 3);
}

#[tokio::test]
async fn a_duplicate_gets_the_original_receipt_and_has_no_effect() {
    let api = routed().await;
    let first = api.send_event(&event("1", "going", "dev-1")).await;
    let again = api.send_event(&event("1", "going", "dev-1")).await;
    assert_eq!((&again["status"], &again["position"]), (&json!("duplicate"), &first["position"]));
    assert!(again["firstAnsweredAtUtc"].is_string() && again["windowEndsAtUtc"] == first["windowEndsAtUtc"]);
    assert_eq!(api.get("/api/entities/device/dev-1").await.data()["eventCount"], 1);
    assert_eq!(api.until("dev-1~waits", "Running").await["executionId"], "dev-1~waits/1");
}

#[tokio::test]
async fn a_batch_keeps_the_order_of_each_session() {
    let api = routed().await;
    let batch: Vec<Value> =
        (0..60).map(|number| event(&number.to_string(), "noted", &format!("dev-{}", number % 3))).collect();
    let response = api.events("cloudevents-batch", &json!(batch)).await;
    assert_eq!((response.status.as_u16(), &response.data()["accepted"]), (202, &json!(60)));
    for session in 0..3 {
        let events = api.get(&format!("/api/entities/device/dev-{session}/events")).await.data();
        let ids: Vec<String> = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["event"]["id"].as_str().unwrap().to_owned())
            .collect();
        let expected: Vec<String> = (0..20).map(|number| (number * 3 + session).to_string()).collect();
        assert_eq!(ids, expected);
    }
}

#[tokio::test]
async fn an_overloaded_session_is_rejected_as_a_whole_and_keeps_its_order_on_retry() {
    // A very short queue, so that most batches are rejected at first.
    let api = TestApi::with_config(|config| {
        config.store.shards = 1;
        config.runtime.max_concurrent_orchestrator_functions = 16;
    });
    let api = route_all(api.await).await;
    let batch = |session: usize| -> Value {
        (0..100).map(|number| event(&number.to_string(), "noted", &format!("dev-{session}"))).collect()
    };
    let mut rejected = 0;
    let sessions = (0..12).map(|session| {
        let api = &api;
        let batch = batch(session);
        async move {
            let mut rejected = 0;
            while api.events("cloudevents-batch", &batch).await.status != 202 {
                rejected += 1;
                tokio::task::yield_now().await;
            }
            rejected
        }
    });
    for count in futures_util::future::join_all(sessions).await {
        rejected += count;
    }
    assert!(rejected > 0, "no batch was rejected, so the test proves nothing");
    for session in 0..12 {
        let events = api.get(&format!("/api/entities/device/dev-{session}/events?limit=100")).await.data();
        let ids =
            events["items"].as_array().unwrap().iter().map(|item| item["event"]["id"].as_str().unwrap());
        let ids: Vec<usize> = ids.map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids, (0..100).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_event_is_recognised_within_its_session_even_if_its_route_has_changed() {
    let api = routed().await;
    let first = api.send_event(&event("1", "noted", "dev-1")).await;
    assert_eq!(first["instanceId"], Value::Null, "no run is started");
    for session in 2..20 {
        let other = format!("dev-{session}");
        assert_eq!(api.send_event(&event("1", "noted", &other)).await["status"], "recorded");
        assert_eq!(api.get(&format!("/api/entities/device/{other}")).await.data()["eventCount"], 1);
    }
    api.route("noted", &json!({"entityType": "other", "action": "record"})).await;
    let again = api.send_event(&event("1", "noted", "dev-1")).await;
    assert_eq!((&again["status"], &again["entityType"]), (&json!("duplicate"), &json!("device")));
    api.request(Method::DELETE, "/api/routes/noted", Body::empty()).await;
    let again = api.send_event(&event("1", "noted", "dev-1")).await;
    assert_eq!((&again["status"], &again["entityType"]), (&json!("duplicate"), &json!("device")));
    assert_eq!(api.send_event(&event("2", "noted", "dev-1")).await["status"], "deadLettered");
    assert_eq!(api.get("/api/dlq?engine=ingress").await.data()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn attributes_may_be_in_headers() {
    let api = routed().await;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/api/events")
        .header("ce-specversion", "1.0")
        .header("ce-id", "1")
        .header("ce-source", "/fleet")
        .header("ce-type", "noted")
        .header("ce-subject", "ger%C3%A4t")
        .header("content-type", "text/plain")
        .body(Body::from("hot"))
        .unwrap();
    let response = api.send(request).await;
    assert_eq!(response.data()["items"][0]["entityKey"], "gerät", "{}", response.text);
    let events = api.get("/api/entities/device/ger%C3%A4t/events").await.data();
    let event = &events["items"][0]["event"];
    assert_eq!((&event["data"], &event["datacontenttype"]), (&json!("hot"), &json!("text/plain")));
}

#[tokio::test]
async fn an_event_without_route_or_session_is_dead_lettered_once_with_a_reason() {
    let api = routed().await;
    let mut without_session = event("1", "noted", "x");
    without_session.as_object_mut().unwrap().remove("subject");
    for (event, reason) in [(event("2", "unknown", "dev-1"), "route"), (without_session, "subject")] {
        let item = api.send_event(&event).await;
        assert_eq!(item["status"], "deadLettered");
        assert!(item["reason"].as_str().unwrap().contains(reason), "{item}");
        let again = api.send_event(&event).await;
        assert_eq!(again["dlq"], item["dlq"]);
        assert!(again["firstAnsweredAtUtc"].is_string());
        let row_key = item["dlq"]["rowKey"].as_str().unwrap();
        let letter = api.get(&format!("/api/dlq/ingress/{row_key}")).await.data();
        assert_eq!((&letter["engine"], &letter["status"]), (&json!("ingress"), &json!("Pending")));
        let original: Value = serde_json::from_str(letter["originalMessage"].as_str().unwrap()).unwrap();
        assert_eq!(original, event);
    }
    assert_eq!(api.get("/api/dlq?engine=ingress").await.data()["items"].as_array().unwrap().len(), 2);
}

/// Log lines, as text.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_dead_letter_has_the_correlation_id_and_the_time_of_arrival_in_its_key_and_is_logged_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let api = routed().await;
    let send = async |event: &Value| {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/api/events")
            .header("content-type", "application/cloudevents+json")
            .header("x-correlation-id", "order-7")
            .body(Body::from(event.to_string()))
            .unwrap();
        api.send(request).await.data()["items"][0].clone()
    };
    let letter_of = async |item: &Value| {
        let row_key = item["dlq"]["rowKey"].as_str().unwrap();
        api.get(&format!("/api/dlq/ingress/{row_key}")).await.data()
    };
    let plain = event("1", "unknown", "dev-1");
    let mut tagged = event("2", "unknown", "dev-1");
    (tagged["correlationid"], tagged["time"]) = (json!("trace-9"), json!("2001-01-01T00:00:00Z"));
    for (event, correlation_id) in [(plain, "order-7"), (tagged, "trace-9")] {
        let item = send(&event).await;
        let letter = letter_of(&item).await;
        assert_eq!(letter["correlationId"], correlation_id);
        let (_, arrived) = item["dlq"]["rowKey"].as_str().unwrap().rsplit_once('-').unwrap();
        let arrived = abide_workflow::Timestamp(arrived.parse().unwrap()).to_string();
        assert_eq!(letter["firstFailureAtUtc"], arrived);
        assert_eq!(send(&event).await["dlq"], item["dlq"], "a repetition has the dead letter of the first");
        let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = lines.lines().filter(|line| line.contains(correlation_id)).collect();
        let row_key = item["dlq"]["rowKey"].as_str().unwrap();
        assert!(
            matches!(lines[..], [line] if line.contains("WARN") && line.contains(row_key) && line.contains("no event route")),
            "{lines:?}"
        );
    }
}

#[tokio::test]
async fn one_event_in_many_requests_at_the_same_time_has_one_dead_letter() {
    // On a store whose writes take a while.
    let folder = tempfile::tempdir().unwrap();
    let server = abide_server::Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let body = event("1", "unknown", "dev-1").to_string();
    let send = || http_request(server.address(), "POST", "/api/events", &body);
    let answers = futures_util::future::join_all((0..20).map(|_| send())).await;
    let first = &answers[0].1["data"]["items"][0]["dlq"];
    assert!(answers.iter().all(|(_, answer)| &answer["data"]["items"][0]["dlq"] == first), "{answers:?}");
    let (_, letters) = http_request(server.address(), "GET", "/api/dlq?engine=ingress", "").await;
    assert_eq!(letters["data"]["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_event_is_rejected_and_nothing_of_its_batch_is_recorded() {
    let api = routed().await;
    let wrong = |name: &str, value: Value| {
        let mut event = event("1", "noted", "dev-1");
        event[name] = value;
        event
    };
    for (event, target) in [
        (wrong("specversion", json!("0.3")), "/specversion"),
        (wrong("id", json!("")), "/id"),
        (wrong("source", Value::Null), "/source"),
        (wrong("time", json!("yesterday")), "/time"),
        (wrong("Name", json!("x")), "/Name"),
        (wrong("extension", json!({})), "/extension"),
        (wrong("subject", json!(5)), "/subject"),
        (wrong("data_base64", json!("!")), "/data_base64"),
    ] {
        assert_eq!(error(&api.events("cloudevents", &event).await, 400)["target"], target, "{event}");
        let batch = json!([self::event("9", "noted", "dev-9"), event]);
        let response = api.events("cloudevents-batch", &batch).await;
        assert_eq!(error(&response, 400)["target"], format!("/1{target}"));
    }
    assert_eq!(api.get("/api/entities/device/dev-9").await.status, 404);
    assert_eq!(api.events("cloudevents-batch", &json!({})).await.status, 400);
    let too_many = api.events("cloudevents-batch", &json!(vec![json!({}); 1_001])).await;
    assert!(error(&too_many, 400)["message"].as_str().unwrap().contains("the limit is 1000"));
    let unset = api.events("cloudevents", &wrong("time", Value::Null)).await.data();
    assert_eq!(unset["items"][0]["status"], "recorded", "an attribute that is null counts as absent");
    assert_eq!(api.events("octet-stream", &json!({})).await.status, 415);
}

#[tokio::test]
async fn an_invalid_route_is_rejected_when_it_is_set() {
    let api = routed().await;
    for (route, status, target) in [
        (json!({"entityType": "d", "action": "start"}), 400, "/workflow"),
        (json!({"entityType": "d", "action": "record", "workflow": "waits"}), 400, "/workflow"),
        (json!({"entityType": "d", "action": "start", "workflow": "none"}), 404, "/workflow"),
        (json!({"entityType": "d", "action": "start", "workflow": "waits", "version": "^"}), 400, "/version"),
        (json!({"entityType": "d e", "action": "record"}), 400, "/entityType"),
        (json!({"entityType": "d", "action": "dance"}), 400, "/action"),
        (json!({"action": "record"}), 400, "/entityType"),
    ] {
        assert_eq!(error(&api.route("kind", &route).await, status)["target"], target, "{route}");
    }
    assert_eq!(api.get("/api/routes/kind").await.status, 404);
    let routes = api.get("/api/routes").await.data();
    assert_eq!(routes["items"].as_array().unwrap().len(), 4);
    assert_eq!(api.get("/api/routes/going").await.data()["action"], "startOrRaise");
    assert_eq!(api.request(Method::DELETE, "/api/routes/going", Body::empty()).await.status, 200);
    assert_eq!(api.request(Method::DELETE, "/api/routes/going", Body::empty()).await.status, 404);
    assert_eq!(api.send_event(&event("1", "going", "dev-1")).await["status"], "deadLettered");
}
