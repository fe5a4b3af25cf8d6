//! Tests that the OpenAPI document is unchanged, complete and correct.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::http::Method;
use serde_json::Value;

use crate::openapi_conformance::document;
use crate::test_api::{TestApi, failed};

/// `ABIDE_GOLDEN=write cargo test -p abide-server --test api openapi_document` rewrites the file.
#[tokio::test]
async fn the_document_is_the_one_in_the_reference() {
    let served = TestApi::new().await.get("/api/openapi.json").await;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("ABIDE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&file, &served.text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    assert!(
        served.text == golden,
        "the API has changed; if this is intended: ABIDE_GOLDEN=write cargo test -p abide-server --test api openapi_document"
    );
}

#[test]
fn every_operation_has_a_unique_id_a_summary_and_its_path_parameters() {
    let mut names = BTreeSet::new();
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{name} is duplicated");
            assert!(operation["summary"].as_str().unwrap().ends_with('.'), "{name}");
            assert!(!operation["tags"][0].as_str().unwrap().is_empty(), "{name}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{name}");
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let declared: Vec<String> = parameters
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()))
                .collect();
            let parts: Vec<&str> = path.split('/').filter(|part| part.starts_with('{')).collect();
            assert_eq!(parts, declared, "{name}");
        }
    }
}

#[test]
fn every_reference_resolves_and_every_schema_is_valid() {
    fn walk(value: &Value, found: &mut dyn FnMut(&str)) {
        match value {
            Value::Object(fields) => {
                if let Some(pointer) = fields.get("$ref").and_then(Value::as_str) {
                    found(pointer);
                }
                fields.values().for_each(|field| walk(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut count = 0;
    walk(document(), &mut |pointer| {
        count += 1;
        assert!(document().pointer(pointer.trim_start_matches('#')).is_some(), "{pointer}");
    });
    assert!(count > 100, "{count}");
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let content = operation["requestBody"]["content"].as_object();
            for media in content.into_iter().flat_map(|content| content.values()) {
                assert!(jsonschema::meta::is_valid(&media["schema"]) && !media["schema"].is_null(), "{path}");
            }
        }
    }
}

/// A parameter that is documented but not read would be rejected as unknown. One that is read but not documented is
/// found by every test that uses it.
#[tokio::test]
async fn every_documented_parameter_is_known_to_its_handler() {
    let api = TestApi::new().await;
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let path = path.replace(['{', '}'], "");
                let method = method.to_uppercase().parse().unwrap();
                // No parameter accepts a value that is only a control character.
                let rejected = api.request(method, &format!("{path}?{name}=%01"), String::new()).await;
                assert_eq!((rejected.status.as_u16(), rejected.error().2.as_str()), (400, name), "{path}");
                assert!(!rejected.text.contains("unknown parameter"), "{path} {name}");
            }
        }
    }
}

/// A parameter that no handler reads would be ignored silently.
#[tokio::test]
async fn every_handler_rejects_a_parameter_that_is_not_documented() {
    let api = TestApi::new().await;
    for (path, methods) in document()["paths"].as_object().unwrap() {
        // Valid values for every part of a path.
        let path = path.replace("{version}", "1.0.0").replace(['{', '}'], "");
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let rejected = api.request(method.clone(), &format!("{path}?nobody=1"), String::new()).await;
            let expected = failed(400, "VALIDATION_ERROR", "nobody");
            assert_eq!(rejected.error(), expected, "{method} {path}");
        }
    }
}
