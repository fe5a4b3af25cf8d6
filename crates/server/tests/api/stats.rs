//! `GET /api/stats`.

use serde_json::json;

use crate::test_api::{TestApi, echo};

#[tokio::test]
async fn statistics_count_runs_shards_and_calls() {
    let api = TestApi::new().await;
    api.publish("ends", &echo()).await;
    api.publish_waiting("waits").await;
    for number in 0..5 {
        let workflow = if number < 3 { "ends" } else { "waits" };
        let start = json!({"workflow": workflow, "instanceId": format!("i{number}")});
        assert_eq!(api.post("/api/instances", &start).await.status, 202);
    }
    api.list_ids("?status=Completed", 3).await;
    api.list_ids("?status=Running", 2).await;
    let stats = api.get("/api/stats").await.data();
    let by_status = &stats["instances"]["byStatus"];
    assert_eq!((&by_status["Completed"], &by_status["Running"]), (&json!(3), &json!(2)));
    assert_eq!((&by_status["Failed"], &stats["instances"]["countedUpTo"]), (&json!(0), &json!(10_000)));
    let shards = stats["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 8);
    assert!(shards.iter().enumerate().all(|(at, shard)| shard["shard"] == at && shard["working"] == true));
    let commits: u64 = shards.iter().map(|shard| shard["commits"].as_u64().unwrap()).sum();
    assert!(commits >= 5, "{commits}");
    assert_eq!(stats["activities"], json!({"running": 0, "waiting": 0}));
    assert_eq!(stats["store"], json!({"kind": "memory", "sync": "none"}));
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
}
