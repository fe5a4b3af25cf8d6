//! `GET /api/stats`.

use serde_json::json;

use crate::world::{World, echo};

#[tokio::test]
async fn the_numbers_are_those_of_what_was_done() {
    let world = World::new().await;
    world.publish("ends", &echo()).await;
    world.publish_waiting("waits").await;
    for number in 0..5 {
        let workflow = if number < 3 { "ends" } else { "waits" };
        let start = json!({"workflow": workflow, "instanceId": format!("i{number}")});
        assert_eq!(world.post("/api/instances", &start).await.status, 202);
    }
    world.listed("?status=Completed", 3).await;
    world.listed("?status=Running", 2).await;
    let stats = world.get("/api/stats").await.data();
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
