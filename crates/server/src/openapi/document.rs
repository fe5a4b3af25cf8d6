//! Builds the OpenAPI 3.1 document of a list of documented routes. Knows no handler and no particular route.

use std::collections::BTreeSet;

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::{BodyShape, BodySpec, Field, OperationSpec, ResponseSpec};
use crate::response::FailureEnvelope;

/// An API route as the document shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentedRoute<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) operation: &'a OperationSpec,
}

const DESCRIPTION: &str = "Durable workflows in one binary. Every response is an envelope: `status` is `Succeeded` and `data` has the \
    result, or `status` is `Failed` and `error` has the reason. Timestamps are RFC 3339 in UTC, durations ISO 8601. Query parameters and \
    fields that are not listed are rejected. Lists are returned in pages: repeat the request with `continuationToken` until it is null. \
    A page may have fewer items than `limit`.";

/// Error statuses that every route may return.
const COMMON_ERROR_STATUSES: [u16; 8] = [400, 403, 414, 421, 429, 431, 500, 503];
/// Further error statuses of routes that read a body.
const BODY_ERROR_STATUSES: [u16; 3] = [408, 413, 415];

/// The document of all API routes. Schemas of the types that responses use are collected on the way.
pub(crate) fn document<'a>(routes: impl IntoIterator<Item = DocumentedRoute<'a>>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.contract = Contract::Serialize;
        settings.meta_schema = None;
    });
    let mut schemas = SchemaGenerator::new(settings);
    let failure_schema = schemas.subschema_for::<FailureEnvelope<'static>>();
    let mut paths = Map::new();
    let mut tags = Vec::new();
    let mut statuses = BTreeSet::new();
    for DocumentedRoute { method, path, operation } in routes {
        if !tags.contains(&operation.tag) {
            tags.push(operation.tag);
        }
        statuses.extend(error_statuses(operation));
        let object = operation_object(operation, &mut schemas);
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = methods {
            methods.insert(method.to_ascii_lowercase(), object);
        }
    }
    let error = |status: &u16| {
        (error_response_name(*status), error_response_object(*status, failure_schema.as_value()))
    };
    let responses: Map<String, Value> = statuses.iter().map(error).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Abide",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags.iter().map(|tag| json!({"name": tag})).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "parameters": {"CorrelationId": {
                "name": "X-Correlation-Id", "in": "header", "required": false, "schema": {"type": "string"},
                "description": "Identifies the request in the response and in logs: 1 to 128 visible ASCII characters. An invalid value \
                    is replaced.",
            }},
            "headers": {"CorrelationId": {
                "required": true, "schema": {"type": "string", "minLength": 1, "maxLength": 128},
                "description": "The correlation id of the request, or a generated one.",
            }},
            "responses": responses,
            "schemas": schemas.take_definitions(true),
        },
    })
}

/// All error statuses of an operation.
fn error_statuses(operation: &OperationSpec) -> BTreeSet<u16> {
    let body = operation.body.map(|_| BODY_ERROR_STATUSES);
    COMMON_ERROR_STATUSES
        .into_iter()
        .chain(body.into_iter().flatten())
        .chain(operation.error_statuses.iter().copied())
        .collect()
}

fn operation_object(operation: &OperationSpec, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters = vec![json!({"$ref": "#/components/parameters/CorrelationId"})];
    let locations = [("path", operation.path), ("query", operation.query), ("header", operation.headers)];
    for (location, fields) in locations {
        parameters.extend(fields.iter().map(|field| parameter_object(location, field)));
    }
    let mut responses = Map::new();
    for response in operation.responses {
        responses.insert(response.status.to_string(), response_object(response, schemas));
    }
    for status in error_statuses(operation) {
        let error = json!({"$ref": format!("#/components/responses/{}", error_response_name(status))});
        // A status may be both a regular response and an error: 503 is also how the readiness check says "not ready".
        responses.entry(status.to_string()).or_insert(error);
    }
    let mut object = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.about,
        "parameters": parameters,
        "responses": responses,
    });
    if let (Some(body), Value::Object(object)) = (&operation.body, &mut object) {
        object.insert("requestBody".to_owned(), request_body(body));
    }
    object
}

fn parameter_object(location: &str, field: &Field) -> Value {
    let Field { name, about, required, .. } = field;
    json!({"name": name, "in": location, "required": required, "schema": field.schema(), "description": about})
}

fn request_body(body: &BodySpec) -> Value {
    let content: Map<String, Value> = body
        .content
        .iter()
        .map(|(media, shape)| ((*media).to_owned(), json!({"schema": body_schema(shape)})))
        .collect();
    json!({"required": body.required, "description": body.about, "content": content})
}

fn body_schema(shape: &BodyShape) -> Value {
    match shape {
        BodyShape::Any => json!({}),
        // A constant of this crate; a test parses every one of them.
        BodyShape::Schema(text) => serde_json::from_str(text).unwrap_or_default(),
        BodyShape::Fields(fields) => {
            let required: Vec<&str> =
                fields.iter().filter(|field| field.required).map(|field| field.name).collect();
            let properties: Map<String, Value> =
                fields.iter().map(|field| (field.name.to_owned(), field.body_schema())).collect();
            json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            })
        }
    }
}

fn response_object(response: &ResponseSpec, schemas: &mut SchemaGenerator) -> Value {
    let mut headers = Map::new();
    headers.insert("X-Correlation-Id".to_owned(), json!({"$ref": "#/components/headers/CorrelationId"}));
    for (name, about) in response.headers {
        let header = json!({"required": true, "schema": {"type": "string"}, "description": about});
        headers.insert((*name).to_owned(), header);
    }
    let content = json!({response.media_type: {"schema": (response.schema)(schemas)}});
    json!({"description": response.about, "headers": headers, "content": content})
}

fn error_response_name(status: u16) -> String {
    format!("Refused{status}")
}

fn error_response_object(status: u16, failure_schema: &Value) -> Value {
    let correlation = json!({"$ref": "#/components/headers/CorrelationId"});
    let headers = match status {
        429 | 503 => json!({
            "X-Correlation-Id": correlation,
            "Retry-After": {
                "required": true, "schema": {"type": "integer", "minimum": 1},
                "description": "Seconds after which the same request may succeed.",
            },
        }),
        _ => json!({"X-Correlation-Id": correlation}),
    };
    json!({
        "description": status_description(status), "headers": headers,
        "content": {"application/json": {"schema": failure_schema}},
    })
}

fn status_description(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; `error.target` names the invalid part.",
        403 => "The request came from a web page of another site.",
        404 => "Not found.",
        405 => "The path does not support this method; the header Allow lists the supported ones.",
        408 => "The body did not arrive in time.",
        409 => "The request conflicts with the present state.",
        413 => "The body, or something in it, is too large.",
        414 => "The URI is too long.",
        415 => "The content type of the body is not supported.",
        421 => "The server does not accept requests for the name in `Host`.",
        429 => "The server is overloaded, or a rate limit is exceeded.",
        431 => "The headers are too many or too large.",
        500 => "Internal error; the server's log has the reason, under the same correlation id.",
        503 => {
            "The server is starting, shutting down, overloaded, or cannot reach its store; try again. With the detail OUTCOME_UNKNOWN the request may have taken effect."
        }
        _ => "The request failed.",
    }
}
