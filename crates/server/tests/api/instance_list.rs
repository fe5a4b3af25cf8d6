//! `GET /api/instances`: single and combined filters, times, pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::test_api::{TestApi, definition, echo, failed};

/// Twelve runs: two definitions, one of them in two versions; some wait, some have ended.
async fn world_with_runs() -> TestApi {
    let api = TestApi::new().await;
    api.publish_waiting("waits").await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(api.post("/api/workflows", &definition("ends", version, &echo())).await.status, 201);
    }
    for number in 0..12 {
        let (workflow, version) =
            if number % 3 == 0 { ("waits", "1.0.0") } else { ("ends", ["1.0.0", "2.0.0"][number % 2]) };
        let start = json!({
            "workflow": workflow, "version": format!("={version}"), "instanceId": format!("i{number:02}"),
            "correlationId": format!("c{}", number % 2), "entityId": format!("e{}", number % 4),
        });
        assert_eq!(api.post("/api/instances", &start).await.status, 202);
    }
    api.list_ids("", 12).await;
    api.list_ids("?status=Completed", 8).await;
    api
}

impl TestApi {
    /// The ids of a list, once there are `count` of them: the public table is slightly behind the shards.
    pub(crate) async fn list_ids(&self, query: &str, count: usize) -> Vec<String> {
        loop {
            let items = self.get(&format!("/api/instances{query}")).await.data()["items"].clone();
            let ids: Vec<String> = items.as_array().unwrap().iter().map(id_of).collect();
            if ids.len() == count {
                return ids;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

fn id_of(item: &Value) -> String {
    item["instanceId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn runs_are_listed_newest_first_with_their_properties() {
    let api = world_with_runs().await;
    let page = api.get("/api/instances").await.data();
    let items = page["items"].as_array().unwrap();
    assert_eq!((items.len(), &page["continuationToken"]), (12, &Value::Null));
    let created: Vec<&str> = items.iter().map(|item| item["createdAtUtc"].as_str().unwrap()).collect();
    assert!(created.is_sorted_by(|newer, older| newer >= older), "{created:?}");
    let item = items.iter().find(|item| item["instanceId"] == "i03").unwrap();
    assert_eq!(
        (&item["executionId"], &item["workflow"], &item["version"], &item["status"]),
        (&json!("i03/1"), &json!("waits"), &json!("1.0.0"), &json!("Running"))
    );
    assert_eq!((&item["correlationId"], &item["entityId"]), (&json!("c1"), &json!("e3")));
    assert!(item["lastUpdatedAtUtc"].as_str() >= item["createdAtUtc"].as_str());
}

/// Compares every combination of filters with the filtered complete list.
#[tokio::test]
async fn all_given_filters_must_match() {
    let api = world_with_runs().await;
    let all = api.get("/api/instances?limit=100").await.data()["items"].as_array().unwrap().clone();
    let middle = all[6]["createdAtUtc"].as_str().unwrap().to_owned();
    let filters = [
        ("status", "Completed"),
        ("workflow", "ends"),
        ("version", "2.0.0"),
        ("correlationId", "c1"),
        ("entityId", "e1"),
        ("createdFrom", middle.as_str()),
        ("createdTo", middle.as_str()),
    ];
    for chosen in 0_u32..1 << filters.len() {
        let chosen: Vec<_> =
            (0..filters.len()).filter(|at| chosen >> at & 1 == 1).map(|at| filters[at]).collect();
        let query: Vec<String> = chosen.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let passes = |item: &&Value| {
            chosen.iter().all(|(name, value)| match *name {
                "createdFrom" => item["createdAtUtc"].as_str().unwrap() >= *value,
                "createdTo" => item["createdAtUtc"].as_str().unwrap() < *value,
                name => item[name] == *value,
            })
        };
        let expected: BTreeSet<String> = all.iter().filter(passes).map(id_of).collect();
        let found = api.get(&format!("/api/instances?limit=100&{}", query.join("&"))).await.data();
        let found: BTreeSet<String> = found["items"].as_array().unwrap().iter().map(id_of).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

#[tokio::test]
async fn pages_cover_the_whole_list_and_a_token_is_valid_for_its_filter_only() {
    let api = world_with_runs().await;
    for query in ["", "&workflow=ends", "&status=Completed&correlationId=c1"] {
        let whole = api.get(&format!("/api/instances?limit=100{query}")).await.data();
        let mut paged = Vec::new();
        let mut token = String::new();
        loop {
            let page = api.get(&format!("/api/instances?limit=3{query}{token}")).await.data();
            assert!(page["items"].as_array().unwrap().len() <= 3);
            paged.extend(page["items"].as_array().unwrap().clone());
            let Some(next) = page["continuationToken"].as_str() else { break };
            token = format!("&continuationToken={next}");
        }
        assert_eq!(json!(paged), whole["items"], "{query}");
    }
    let page = api.get("/api/instances?limit=3&workflow=ends").await.data();
    let token = page["continuationToken"].as_str().unwrap();
    for query in ["", "&workflow=waits", "&workflow=ends&status=Completed"] {
        let foreign = api.get(&format!("/api/instances?continuationToken={token}{query}")).await;
        assert_eq!(foreign.error(), failed(400, "VALIDATION_ERROR", "continuationToken"), "{query}");
    }
}

#[tokio::test]
async fn unknown_filters_and_invalid_values_are_rejected() {
    let api = TestApi::new().await;
    for (query, target) in [
        ("status=running", "status"),
        ("status=", "status"),
        ("workflow=", "workflow"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=1&limit=2", "limit"),
        ("createdFrom=yesterday", "createdFrom"),
        ("createdTo=2026-01-01", "createdTo"),
        ("continuationToken=x", "continuationToken"),
        ("colour=red", "colour"),
    ] {
        let rejected = api.get(&format!("/api/instances?{query}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{query}");
    }
}
