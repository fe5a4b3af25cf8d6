//! `GET /api/dispatches`: pages lead through everything once, and cost a bounded amount each.

use serde_json::json;

use crate::dispatches::names;
use crate::world::{World, echo};

#[tokio::test]
async fn pages_lead_through_all_calls_of_a_run_of_all_shards_and_of_all_runs() {
    let world = World::new().await;
    world.publish_callers().await;
    let delay =
        json!({"type": "task", "activity": "core.delay", "input": {"duration": "$.item"}, "next": "Out"});
    let states = json!({
        "Begin": {"type": "map", "items": "$.input", "maxConcurrency": 10, "next": "Done",
            "iterator": {"startAt": "One", "states": {"One": delay, "Out": {"type": "succeed"}}}},
        "Done": {"type": "succeed"},
    });
    let published = world.publish("fan", &states).await;
    assert_eq!(published.status, 201, "{}", published.text);
    let input = json!(["PT0S", "PT0S", "PT0S", "PT1H", "PT1H", "PT1H", "PT1H"]);
    world
        .post("/api/instances", &json!({"workflow": "fan", "instanceId": "fan", "input": input}))
        .await
        .data();
    let whole = loop {
        let whole = world.all_dispatches("executionId=fan", 100, 7).await;
        if whole.iter().filter(|item| item["state"] == "ACKED").count() == 3 {
            break whole;
        }
    };
    assert!(whole[..4].iter().all(|item| item["state"] == "SENT"), "open ones first");
    for limit in [1, 2, 3, 4, 5] {
        assert_eq!(world.all_dispatches("executionId=fan", limit, 7).await, whole, "{limit}");
    }
    for number in 0..5 {
        world.call("slow", &format!("s{number}")).await;
        world.call("worn", &format!("w{number}")).await;
    }
    let open = world.all_dispatches("", 100, 9).await;
    let given_up = world.all_dispatches("state=FAILED_FINAL", 100, 5).await;
    assert_eq!(names(&given_up), ["w4", "w3", "w2", "w1", "w0"]);
    for limit in [1, 2, 3] {
        assert_eq!(world.all_dispatches("", limit, 9).await, open, "{limit}");
        assert_eq!(world.all_dispatches("state=FAILED_FINAL", limit, 5).await, given_up, "{limit}");
        assert_eq!(world.all_dispatches("state=ACKED", limit, 3).await.len(), 3, "three of one run");
    }
}

#[tokio::test]
async fn a_page_examines_a_bounded_number_of_runs_and_may_be_empty_with_a_token() {
    let world = World::new().await;
    world.publish("echo", &echo()).await;
    world.publish_callers().await;
    world.call("shaky", "first").await;
    for number in 0..101 {
        world.call("echo", &format!("e{number}")).await;
    }
    // The call of the oldest run is the 102nd that is looked at.
    world.all_dispatches("state=ACKED", 50, 1).await;
    let page = loop {
        let page = world.get("/api/dispatches?state=ACKED").await.data();
        if page["continuationToken"].is_string() {
            break page;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(page["items"], json!([]));
    let token = page["continuationToken"].as_str().unwrap();
    let items = world.dispatches(&format!("state=ACKED&continuationToken={token}")).await;
    assert_eq!(names(&items), ["first"]);
}
