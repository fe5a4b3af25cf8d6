//! The OpenAPI 3.1 document of a list of described routes.

use std::collections::BTreeSet;

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::{Answer, Body, Field, Operation, Shape};
use crate::envelope::Failed;

/// A route, as far as the document is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) operation: &'a Operation,
}

const ABOUT: &str = "Durable workflows in one binary. Every answer is an envelope: `status` is `Succeeded` and `data` is there, or `status` \
    is `Failed` and `error` says why. Moments are RFC 3339 in UTC, durations ISO 8601. Query parameters and fields that are not listed are \
    refused. Lists are answered in pages: ask again with `continuationToken` until it is null; a page may have fewer items than `limit`.";

/// Statuses that every route may refuse with, whatever it is about.
const ALWAYS: [u16; 8] = [400, 403, 414, 421, 429, 431, 500, 503];
/// Besides, statuses of routes that read a body.
const WITH_BODY: [u16; 3] = [408, 413, 415];

/// The document.
pub(crate) fn document<'a>(routes: impl IntoIterator<Item = Described<'a>>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.contract = Contract::Serialize;
        settings.meta_schema = None;
    });
    let mut schemas = SchemaGenerator::new(settings);
    let failed = schemas.subschema_for::<Failed<'static>>();
    let mut paths = Map::new();
    let (mut tags, mut statuses) = (Vec::new(), BTreeSet::new());
    for Described { method, path, operation } in routes {
        if !tags.contains(&operation.tag) {
            tags.push(operation.tag);
        }
        statuses.extend(refusals(operation));
        let described = describe(operation, &mut schemas);
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = methods {
            methods.insert(method.to_ascii_lowercase(), described);
        }
    }
    let refusal = |status: &u16| (refusal_name(*status), refusal(*status, failed.as_value()));
    let responses: Map<String, Value> = statuses.iter().map(refusal).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Abide",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags.iter().map(|tag| json!({"name": tag})).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "parameters": {"CorrelationId": {
                "name": "X-Correlation-Id", "in": "header", "required": false, "schema": {"type": "string"},
                "description": "Names the request in the answer and in logs: 1 to 128 visible ASCII characters. One that is not usable is \
                    replaced.",
            }},
            "headers": {"CorrelationId": {
                "required": true, "schema": {"type": "string", "minLength": 1, "maxLength": 128},
                "description": "The request's, or one that was made for it.",
            }},
            "responses": responses,
            "schemas": schemas.take_definitions(true),
        },
    })
}

/// The statuses an operation may refuse with.
fn refusals(operation: &Operation) -> BTreeSet<u16> {
    let body = operation.body.map(|_| WITH_BODY);
    ALWAYS.into_iter().chain(body.into_iter().flatten()).chain(operation.refuses.iter().copied()).collect()
}

fn describe(operation: &Operation, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters = vec![json!({"$ref": "#/components/parameters/CorrelationId"})];
    let places = [("path", operation.path), ("query", operation.query), ("header", operation.headers)];
    for (place, fields) in places {
        parameters.extend(fields.iter().map(|field| parameter(place, field)));
    }
    let mut responses = Map::new();
    for answer in operation.answers {
        responses.insert(answer.status.to_string(), response(answer, schemas));
    }
    for status in refusals(operation) {
        let refusal = json!({"$ref": format!("#/components/responses/{}", refusal_name(status))});
        // A status may be both: 503 is how a server says that it is not ready.
        responses.entry(status.to_string()).or_insert(refusal);
    }
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.about,
        "parameters": parameters,
        "responses": responses,
    });
    if let (Some(body), Value::Object(described)) = (&operation.body, &mut described) {
        described.insert("requestBody".to_owned(), request_body(body));
    }
    described
}

fn parameter(place: &str, field: &Field) -> Value {
    let Field { name, about, required, .. } = field;
    json!({"name": name, "in": place, "required": required, "schema": field.schema(), "description": about})
}

fn request_body(body: &Body) -> Value {
    let content: Map<String, Value> = body
        .kinds
        .iter()
        .map(|(media, shape)| ((*media).to_owned(), json!({"schema": shaped(shape)})))
        .collect();
    json!({"required": body.required, "description": body.about, "content": content})
}

fn shaped(shape: &Shape) -> Value {
    match shape {
        Shape::Any => json!({}),
        // A constant of this crate; a test reads every one of them.
        Shape::Schema(text) => serde_json::from_str(text).unwrap_or_default(),
        Shape::Fields(fields) => {
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

fn response(answer: &Answer, schemas: &mut SchemaGenerator) -> Value {
    let mut headers = Map::new();
    headers.insert("X-Correlation-Id".to_owned(), json!({"$ref": "#/components/headers/CorrelationId"}));
    for (name, about) in answer.headers {
        let header = json!({"required": true, "schema": {"type": "string"}, "description": about});
        headers.insert((*name).to_owned(), header);
    }
    let content = json!({answer.media: {"schema": (answer.schema)(schemas)}});
    json!({"description": answer.about, "headers": headers, "content": content})
}

fn refusal_name(status: u16) -> String {
    format!("Refused{status}")
}

fn refusal(status: u16, failed: &Value) -> Value {
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
        "description": why(status), "headers": headers,
        "content": {"application/json": {"schema": failed}},
    })
}

fn why(status: u16) -> &'static str {
    match status {
        400 => "The request is not as it must be; `error.target` says where.",
        403 => "A page of another site may not ask.",
        404 => "There is no such thing.",
        405 => "The path does not take this method; the header Allow has those it takes.",
        408 => "The body did not arrive in time.",
        409 => "What is there does not allow it.",
        413 => "The body, or something in it, is too large.",
        414 => "The URI is too long.",
        415 => "The body is of a kind that is not read here.",
        421 => "The name in `Host` is none of this server's.",
        429 => "Too much is asked for at once.",
        431 => "The headers are too many or too large.",
        500 => "The server could not do it; its log says why, under the same correlation id.",
        503 => {
            "Not now: the server is starting, stopping, or without its store. Whether it was done is not known if it changes something."
        }
        _ => "It was not done.",
    }
}
