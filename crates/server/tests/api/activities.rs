//! `GET /api/activities`.

use serde_json::json;

use crate::test_api::TestApi;

#[tokio::test]
async fn activities_are_listed_by_name_in_pages() {
    let api = TestApi::new().await;
    let all = api.get("/api/activities").await.data();
    let all = all["items"].as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|activity| activity["name"].as_str().unwrap()).collect();
    assert!(
        names.is_sorted() && names.contains(&"core.echo") && names.contains(&"http.request"),
        "{names:?}"
    );
    let mut paged = Vec::new();
    let mut next = json!(null);
    loop {
        let token = next.as_str().map(|token| format!("&continuationToken={token}")).unwrap_or_default();
        let page = api.get(&format!("/api/activities?limit=1{token}")).await.data();
        paged.extend(page["items"].as_array().unwrap().clone());
        next = page["continuationToken"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(&paged, all);
    let request = all.iter().find(|activity| activity["name"] == "http.request").unwrap();
    assert_eq!((&request["transport"], request["input"].is_object()), (&json!("local"), true));
}
