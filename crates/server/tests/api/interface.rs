//! The OpenAPI document itself: as it was, complete, and true.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::http::Method;
use serde_json::Value;

use crate::described::document;
use crate::world::{World, failed};

/// `ABIDE_GOLDEN=write cargo test -p abide-server --test api interface` writes it anew.
#[tokio::test]
async fn the_interface_is_as_it_is_documented() {
    let served = World::new().await.get("/api/openapi.json").await;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("ABIDE_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&file, &served.text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    assert!(
        served.text == golden,
        "the interface has changed; if that is meant: ABIDE_GOLDEN=write cargo test -p abide-server --test api interface"
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_a_sentence_and_its_paths_parts() {
    let mut names = BTreeSet::new();
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{name} is there twice");
            assert!(operation["summary"].as_str().unwrap().ends_with('.'), "{name}");
            assert!(!operation["tags"][0].as_str().unwrap().is_empty(), "{name}");
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with('2')), "{name}");
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
fn every_reference_leads_somewhere_and_every_schema_is_one() {
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

/// A parameter that is documented and not read would be refused as unknown; one that is read and not documented is found by every test
/// that uses it.
#[tokio::test]
async fn every_documented_parameter_is_known_to_its_handler() {
    let world = World::new().await;
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let path = path.replace(['{', '}'], "");
                let method = method.to_uppercase().parse().unwrap();
                // Nothing takes a value that is only a control character.
                let refused = world.ask(method, &format!("{path}?{name}=%01"), String::new()).await;
                assert_eq!((refused.status.as_u16(), refused.error().2.as_str()), (400, name), "{path}");
                assert!(!refused.text.contains("there is no such parameter"), "{path} {name}");
            }
        }
    }
}

/// A parameter that nobody reads would be ignored without a word.
#[tokio::test]
async fn no_handler_takes_a_parameter_that_is_not_documented() {
    let world = World::new().await;
    for (path, methods) in document()["paths"].as_object().unwrap() {
        // Something that every part of a path can be.
        let path = path.replace("{version}", "1.0.0").replace(['{', '}'], "");
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let refused = world.ask(method.clone(), &format!("{path}?nobody=1"), String::new()).await;
            let told = failed(400, "VALIDATION_ERROR", "nobody");
            assert_eq!(refused.error(), told, "{method} {path}");
        }
    }
}
