//! What goes over the wire: which calls are repeated, how connections are kept, and answers that are none.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod scripted;

use std::time::Duration;

use abide_client::{Client, ClientError, Code, Purge, Start, StartOutcome, Status};
use scripted::{Scripted, Step, failed, succeeded};
use serde_json::json;

const BEGUN: &str = r#"{"instanceId":"i","executionId":"i/1","createdAtUtc":"2026-01-01T00:00:00.000Z"}"#;

fn busy() -> Step {
    failed(503, "SERVICE_UNAVAILABLE", "again later")
}

#[tokio::test]
async fn what_reads_is_repeated_and_what_would_be_done_twice_is_not() {
    let server = Scripted::play([busy(), succeeded(200, r#"{"health":"ready"}"#), busy()]).await;
    let client = server.client();
    assert_eq!(client.readiness().await.unwrap().health, "ready");
    let error = client.delete_route("t").await.unwrap_err();
    assert_eq!(error.refusal().unwrap().code, Code::ServiceUnavailable);
    assert_eq!(server.heads(), ["GET /readyz", "GET /readyz", "DELETE /api/routes/t"]);
}

#[tokio::test]
async fn events_orders_and_deletions_are_repeated_under_one_key() {
    let named = || succeeded(202, r#"{"instanceId":"i"}"#);
    let script = [busy(), named(), Step::HangUp, named(), busy(), named()];
    let server = Scripted::play(script).await;
    let client = server.client();
    client.raise("i", "Go", &json!(1)).await.unwrap();
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
async fn a_start_is_repeated_under_one_key_and_two_starts_have_two() {
    let script = [Step::HangUp, succeeded(202, BEGUN), succeeded(202, BEGUN), succeeded(202, BEGUN)];
    let server = Scripted::play(script).await;
    let client = server.client();
    for start in [Start::of("w"), Start::of("w"), Start::of("w").key("mine")] {
        assert!(matches!(client.start(&start).await.unwrap(), StartOutcome::Running(_)));
    }
    let keys = server.header("idempotency-key");
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] != keys[2] && keys[3] == "mine", "{keys:?}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_leaves_open_what_happened() {
    let server =
        Scripted::play([Step::HangUp, Step::Last("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".into())])
            .await;
    let client = server.client();
    let error = client.delete_route("t").await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
    let error = client.purge_matching(&Purge::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
    assert_eq!(server.heads().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_with_a_timeout_and_is_not_repeated() {
    let server = Scripted::play([Step::Silence]).await;
    let client = server.client().with_timeout(Duration::from_secs(2));
    let error = client.stats().await.unwrap_err();
    assert!(
        matches!(error, ClientError::Timeout { within, .. } if within == Duration::from_secs(2)),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn nobody_there_is_told_as_such_after_all_repeats() {
    let (listener, client) = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        (listener, client.with_retries(1))
    };
    drop(listener);
    let error = client.raise("i", "Go", &json!(1)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_connection_is_kept_and_one_that_was_closed_meanwhile_is_replaced_without_a_word() {
    let named = r#"{"instanceId":"i"}"#;
    let script = [
        succeeded(202, named),
        succeeded(202, named),
        succeeded(202, named).and_closes(),
        succeeded(202, named),
    ];
    let server = Scripted::play(script).await;
    let client = server.client();
    for _ in 0..3 {
        client.suspend("i", None).await.unwrap();
    }
    server.closed().await;
    client.suspend("i", Some("why")).await.unwrap();
    assert_eq!((server.heads().len(), server.connections()), (4, 2));
}

#[tokio::test]
async fn what_the_server_refuses_is_told_in_full() {
    let body = r#"{"status":"Failed","correlationId":"c-1","timestamp":"2026-01-01T00:00:00Z","error":{"code":"VALIDATION_ERROR",
        "message":"the input does not fit","target":"/input/a","details":[{"code":"type","message":"no","target":"/input/a","hint":"do"}]}}"#;
    let server = Scripted::play([Step::answer(400, body)]).await;
    let error = server.client().start(&Start::of("w")).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(
        (refusal.status, refusal.code, refusal.target.as_deref()),
        (400, Code::ValidationError, Some("/input/a"))
    );
    assert_eq!((refusal.correlation_id.as_str(), refusal.details[0].hint.as_deref()), ("c-1", Some("do")));
    assert_eq!(error.to_string(), "the input does not fit");
}

#[tokio::test]
async fn answers_of_somebody_else_are_not_taken_for_the_servers() {
    let strange = [
        Step::answer(502, "<html>bad gateway</html>"),
        Step::answer(200, "hello"),
        Step::answer(200, r#"{"data": {"health": 1}}"#),
        Step::answer(200, r#"{"status": "Succeeded"}"#),
    ];
    let server = Scripted::play(strange).await;
    let client = server.client();
    for _ in 0..4 {
        let error = client.health().await.unwrap_err();
        assert!(matches!(error, ClientError::Unexpected { .. }), "{error}");
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
    let server = Scripted::play(script).await;
    let filter = abide_client::InstanceFilter { workflow: Some("a&b".to_owned()), ..Default::default() };
    let mut pages = server.client().instances(&filter).page_size(2);
    let mut ids = Vec::new();
    while let Some(item) = pages.next().await.unwrap() {
        assert_eq!(item.status, Status::Unknown, "a word of tomorrow");
        ids.push(item.instance_id);
    }
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(pages.next().await.unwrap().is_none());
    assert_eq!(
        server.heads(),
        [
            "GET /api/instances?workflow=a%26b&limit=2",
            "GET /api/instances?workflow=a%26b&limit=2&continuationToken=t+1",
            "GET /api/instances?workflow=a%26b&limit=2&continuationToken=t2"
        ]
    );
}

#[tokio::test]
async fn a_page_that_leads_to_itself_is_not_followed_for_ever() {
    let page = || succeeded(200, r#"{"items":[],"continuationToken":"t"}"#);
    let server = Scripted::play([page(), page()]).await;
    let error = server.client().stuck().next().await.unwrap_err();
    assert!(error.to_string().contains("leads to itself"), "{error}");
}
