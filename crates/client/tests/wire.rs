//! The client against a scripted server: retries, idle connections, error responses and invalid responses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod scripted;

use std::time::Duration;

use abide_client::{Client, ClientError, ErrorCode, NewInstance, PurgeRequest, StartOutcome, Status};
use scripted::{ScriptedServer, ServerStep, failed, succeeded};
use serde_json::json;

const STARTED: &str = r#"{"instanceId":"i","executionId":"i/1","createdAtUtc":"2026-01-01T00:00:00.000Z"}"#;

fn busy() -> ServerStep {
    failed(503, "SERVICE_UNAVAILABLE", "retry later")
}

#[tokio::test]
async fn a_read_is_retried_and_a_request_that_could_take_effect_twice_is_not() {
    let server = ScriptedServer::start([busy(), succeeded(200, r#"{"health":"ready"}"#), busy()]).await;
    let client = server.client();
    assert_eq!(client.readiness().await.unwrap().health, "ready");
    let error = client.delete_event_route("t").await.unwrap_err();
    assert_eq!(error.error_response().unwrap().code, ErrorCode::ServiceUnavailable);
    assert_eq!(server.request_heads(), ["GET /readyz", "GET /readyz", "DELETE /api/routes/t"]);
}

#[tokio::test]
async fn events_control_operations_and_deletions_are_retried_under_one_key() {
    let ack = || succeeded(202, r#"{"instanceId":"i"}"#);
    let script = [busy(), ack(), ServerStep::HangUp, ack(), busy(), ack()];
    let server = ScriptedServer::start(script).await;
    let client = server.client();
    client.raise_event("i", "Go", &json!(1)).await.unwrap();
    client.terminate("i", None).await.unwrap();
    client.purge("i").await.unwrap();
    let keys = server.header("idempotency-key");
    assert_eq!(keys.len(), 6);
    assert!(
        keys.chunks(2).all(|pair| pair[0] == pair[1]) && keys[1] != keys[2] && keys[3] != keys[4],
        "{keys:?}"
    );
}

#[tokio::test]
async fn a_start_is_retried_under_one_key_and_two_starts_have_two_keys() {
    let script =
        [ServerStep::HangUp, succeeded(202, STARTED), succeeded(202, STARTED), succeeded(202, STARTED)];
    let server = ScriptedServer::start(script).await;
    let client = server.client();
    for start in [NewInstance::new("w"), NewInstance::new("w"), NewInstance::new("w").idempotency_key("mine")]
    {
        assert!(matches!(client.start(&start).await.unwrap(), StartOutcome::Running(_)));
    }
    let keys = server.header("idempotency-key");
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] != keys[2] && keys[3] == "mine", "{keys:?}");
}

#[tokio::test]
async fn a_response_that_breaks_off_leaves_the_outcome_unknown() {
    let server = ScriptedServer::start([
        ServerStep::HangUp,
        ServerStep::Last("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".into()),
    ])
    .await;
    let client = server.client();
    let error = client.delete_event_route("t").await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
    let error = client.purge_matching(&PurgeRequest::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
    assert_eq!(server.request_heads().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_causes_a_timeout_that_is_not_retried() {
    let server = ScriptedServer::start([ServerStep::Silence]).await;
    let client = server.client().with_timeout(Duration::from_secs(2));
    let error = client.stats().await.unwrap_err();
    assert!(
        matches!(error, ClientError::Timeout { within, .. } if within == Duration::from_secs(2)),
        "{error}"
    );
    assert_eq!(server.request_heads().len(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_running_is_unreachable_after_all_retries() {
    let (listener, client) = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        (listener, client.with_retries(1))
    };
    drop(listener);
    let error = client.raise_event("i", "Go", &json!(1)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_connection_is_reused_and_one_that_was_closed_meanwhile_is_replaced_silently() {
    let ack = r#"{"instanceId":"i"}"#;
    let script =
        [succeeded(202, ack), succeeded(202, ack), succeeded(202, ack).then_close(), succeeded(202, ack)];
    let server = ScriptedServer::start(script).await;
    let client = server.client();
    for _ in 0..3 {
        client.suspend("i", None).await.unwrap();
    }
    server.all_closed().await;
    client.suspend("i", Some("why")).await.unwrap();
    assert_eq!((server.request_heads().len(), server.connections()), (4, 2));
}

#[tokio::test]
async fn an_error_response_is_returned_in_full() {
    let body = r#"{"status":"Failed","correlationId":"c-1","timestamp":"2026-01-01T00:00:00Z","error":{"code":"VALIDATION_ERROR",
        "message":"the input does not fit","target":"/input/a","details":[{"code":"type","message":"no","target":"/input/a","hint":"do"}]}}"#;
    let server = ScriptedServer::start([ServerStep::response(400, body)]).await;
    let error = server.client().start(&NewInstance::new("w")).await.unwrap_err();
    let response = error.error_response().unwrap();
    assert_eq!(
        (response.status, response.code, response.target.as_deref()),
        (400, ErrorCode::ValidationError, Some("/input/a"))
    );
    assert_eq!((response.correlation_id.as_str(), response.details[0].hint.as_deref()), ("c-1", Some("do")));
    assert_eq!(error.to_string(), "the input does not fit");
}

#[tokio::test]
async fn responses_of_another_service_are_errors() {
    let foreign = [
        ServerStep::response(502, "<html>bad gateway</html>"),
        ServerStep::response(200, "hello"),
        ServerStep::response(200, r#"{"data": {"health": 1}}"#),
        ServerStep::response(200, r#"{"status": "Succeeded"}"#),
    ];
    let server = ScriptedServer::start(foreign).await;
    let client = server.client();
    for _ in 0..4 {
        let error = client.health().await.unwrap_err();
        assert!(matches!(error, ClientError::UnexpectedResponse { .. }), "{error}");
    }
}

#[tokio::test]
async fn lists_are_read_page_by_page_and_end() {
    let item = |id: &str| {
        format!(
            r#"{{"instanceId":"{id}","executionId":"{id}/1","workflow":"w","version":"1.0.0","status":"Someday",
            "createdAtUtc":"2026-01-01T00:00:00Z","lastUpdatedAtUtc":"2026-01-01T00:00:00Z"}}"#
        )
    };
    let page = |items: &[String], token: &str| {
        succeeded(200, &format!(r#"{{"items":[{}],"continuationToken":{token}}}"#, items.join(",")))
    };
    let script = [page(&[item("a"), item("b")], "\"t 1\""), page(&[], "\"t2\""), page(&[item("c")], "null")];
    let server = ScriptedServer::start(script).await;
    let filter = abide_client::InstanceFilter { workflow: Some("a&b".to_owned()), ..Default::default() };
    let mut pages = server.client().instances(&filter).page_size(2);
    let mut ids = Vec::new();
    while let Some(item) = pages.next().await.unwrap() {
        assert_eq!(item.status, Status::Unknown, "the status of a newer server");
        ids.push(item.instance_id);
    }
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(pages.next().await.unwrap().is_none());
    assert_eq!(
        server.request_heads(),
        [
            "GET /api/instances?workflow=a%26b&limit=2",
            "GET /api/instances?workflow=a%26b&limit=2&continuationToken=t+1",
            "GET /api/instances?workflow=a%26b&limit=2&continuationToken=t2"
        ]
    );
}

#[tokio::test]
async fn a_continuation_token_that_does_not_advance_is_an_error() {
    let page = || succeeded(200, r#"{"items":[],"continuationToken":"t"}"#);
    let server = ScriptedServer::start([page(), page()]).await;
    let error = server.client().stuck_runs().next().await.unwrap_err();
    assert!(error.to_string().contains("the continuation token did not advance"), "{error}");
}
