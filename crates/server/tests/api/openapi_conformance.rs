//! Compares every exchange of these tests with the OpenAPI document: every response must be documented, and every
//! accepted request must be allowed.

use std::sync::LazyLock;

use abide_server::openapi_document;
use abide_store::memory::MemoryStore;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&openapi_document::<MemoryStore>()).unwrap());

pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

/// One exchange. An undocumented path or method may only return an error status.
pub(crate) struct Exchange<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) request_headers: &'a HeaderMap,
    /// None if the body was streamed.
    pub(crate) request_body: Option<&'a [u8]>,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a str,
}

impl Exchange<'_> {
    pub(crate) fn check(&self) {
        if self.uri.path().starts_with("/runtime/webhooks/") {
            // The API of Durable Functions is documented elsewhere.
            return;
        }
        let name = format!("{} {} → {}", self.method, self.uri, self.status);
        let Some(operation) = operation(self.method, self.uri.path()) else {
            let errors = [403, 404, 405, 414, 421, 431, 503];
            assert!(errors.contains(&self.status.as_u16()), "{name} is not documented");
            return;
        };
        let response = resolve_ref(&operation["responses"][self.status.as_str()]);
        assert!(response.is_object(), "{name}: the status is not documented");
        let media = self.headers["content-type"].to_str().unwrap();
        let schema = &response["content"][media]["schema"];
        assert!(!schema.is_null(), "{name}: {media} is not documented");
        if media == "application/json" {
            assert_fits_schema(schema, &serde_json::from_str(self.body).unwrap(), &name);
        }
        for (header, declared) in response["headers"].as_object().unwrap() {
            let required = resolve_ref(declared)["required"] == json!(true);
            assert!(!required || self.headers.contains_key(header), "{name}: no {header}");
        }
        if self.status.is_success() {
            self.check_request(operation, &name);
        }
    }

    /// A successful request must have been allowed.
    fn check_request(&self, operation: &Value, name: &str) {
        let query = self.uri.query().unwrap_or_default();
        for (parameter, _) in url::form_urlencoded::parse(query.as_bytes()) {
            let declared = operation["parameters"].as_array().unwrap().iter();
            let mut declared = declared.filter(|declared| declared["in"] == "query");
            assert!(declared.any(|declared| declared["name"] == *parameter), "{name}: {parameter}");
        }
        let Some(sent) = self.request_body.filter(|sent| !sent.is_empty()) else { return };
        let Some(content) = operation["requestBody"]["content"].as_object() else { return };
        let media = self.request_headers["content-type"].to_str().unwrap();
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let Some(content) = content.get(&media) else {
            // The data of an event may have any type if its attributes are in headers.
            assert!(
                self.request_headers.contains_key("ce-specversion"),
                "the body of {name}: {media} is not documented"
            );
            return;
        };
        if let Ok(sent) = serde_json::from_slice(sent) {
            assert_fits_schema(&content["schema"], &sent, &format!("the body of {name}"));
        }
    }
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let mut found: Option<(usize, &Value)> = None;
    for (template, methods) in document()["paths"].as_object().unwrap() {
        let (parts, given): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
        let fits = |(part, given): (&&str, &&str)| {
            if part.starts_with('{') { !given.is_empty() } else { part == given }
        };
        if parts.len() == given.len() && parts.iter().zip(&given).all(fits) {
            // The template with the most fixed parts wins.
            let fixed = parts.iter().filter(|part| !part.starts_with('{')).count();
            if found.is_none_or(|(other, _)| fixed > other) {
                found = Some((fixed, methods));
            }
        }
    }
    let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
    found.and_then(|(_, methods)| methods.get(method))
}

fn resolve_ref(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(pointer) => document().pointer(pointer.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

/// Asserts that a value matches a schema of the document.
pub(crate) fn assert_fits_schema(schema: &Value, value: &Value, name: &str) {
    let schema = json!({"allOf": [schema], "components": document()["components"]});
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let wrong = validator.validate(value).err().map(|error| format!("{error} at {}", error.instance_path()));
    assert_eq!(wrong, None, "{name}: {value}");
}
