//! `/api/workflows`: publishes definitions and shows them. Validation and compilation are in the workflow crate.

use abide_runtime::definitions::PublishOutcome;
use abide_store::Store;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{PlanHash, Timestamp};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::workflow_versions::VERSION_TEXT;
use crate::api_request::{self, ApiRequest};
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

pub(super) const ID: Field = Field::required(
    "id",
    FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "The id of the definition.",
);

pub(super) const PUBLISH: OperationSpec = OperationSpec {
    id: "publishWorkflow",
    tag: "Workflows",
    about: "Publishes a version of a definition. The first version of an id becomes its default. Publishing the same again changes nothing.",
    body: Some(BodySpec {
        required: true,
        about: "The definition, in the format of workflow-schema-v1.json.",
        content: &[(JSON, BodyShape::Schema(DEFINITION_SCHEMA))],
    }),
    responses: &[
        ResponseSpec::enveloped::<PublishedJson<'static>>(200, "The same definition was already published.")
            .with_headers(LOCATION_HEADER),
        ResponseSpec::enveloped::<PublishedJson<'static>>(201, "The definition is published.")
            .with_headers(LOCATION_HEADER),
    ],
    error_statuses: &[409],
    ..OperationSpec::EMPTY
};

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showWorkflow",
    tag: "Workflows",
    about: "Shows a published definition, in its default version or another.",
    path: &[ID],
    query: &[VERSION],
    responses: &[ResponseSpec::enveloped::<WorkflowJson<'static>>(200, "The definition.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

const VERSION: Field =
    Field::optional("version", VERSION_TEXT, "The version; by default, the default version.");

const LOCATION_HEADER: &[(&str, &str)] = &[("Location", "The path of the definition.")];

/// The top level of a definition; the rest is in its own schema.
pub(super) const DEFINITION_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "$schema": {"type": "string"},
        "id": {"type": "string"},
        "version": {"type": "string"},
        "description": {"type": "string"},
        "startAt": {"type": "string"},
        "states": {"type": "object"}
    },
    "required": ["$schema", "id", "version", "startAt", "states"]
}"#;

/// A published version.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Published")]
struct PublishedJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
    hash: Text<PlanHash>,
}

/// A published workflow definition.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Workflow")]
#[serde(rename_all = "camelCase")]
struct WorkflowJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
    default: bool,
    hash: Text<PlanHash>,
    published_at_utc: Text<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at_utc: Option<Text<Timestamp>>,
    /// As it was published.
    definition: Value,
}

/// Publishes a definition; the body is its text. Publishing it again changes nothing.
pub(super) async fn publish<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let bytes = request.json_bytes(app.limits().body_bytes_max).await?;
    let text = api_request::utf8_text(&bytes)?;
    check_id_not_reserved(text)?;
    let registry = app.catalogue().registry_json();
    let publish = app.node().definitions().publish(text, Some(&registry), app.now());
    let (plan, publication) = app.with_timeout(publish).await??;
    let status = match publication {
        PublishOutcome::New => StatusCode::CREATED,
        PublishOutcome::Identical => StatusCode::OK,
    };
    let data = PublishedJson { id: plan.id(), version: Text(plan.version()), hash: Text(plan.hash()) };
    let mut response = request.data_response(status, app.now(), &data);
    let id: String = url::form_urlencoded::byte_serialize(plan.id().as_bytes()).collect();
    let location = HeaderValue::try_from(format!("/api/workflows/{}", id.replace('+', "%20")));
    let location = location.map_err(|error| ApiError::internal(&error))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// The names under which dead letters and histories of other engines are stored.
const RESERVED_IDS: [&str; 9] =
    ["provisioning", "hmac", "tls", "spn", "update-publisher", "update", "health", "alerts", "ingress"];

/// Rejects a definition whose id is the name of an engine, when it is published or validated. All other errors are left
/// to validation, even text that is not JSON.
pub(super) fn check_id_not_reserved(text: &str) -> Result<(), ApiError> {
    #[derive(serde::Deserialize)]
    struct DefinitionHeader<'a> {
        #[serde(borrow)]
        id: std::borrow::Cow<'a, str>,
    }
    match serde_json::from_str::<DefinitionHeader<'_>>(text) {
        Ok(header) if RESERVED_IDS.contains(&header.id.as_ref()) => Err(ApiError::invalid(
            "/id",
            format!("{:?} is reserved: it is the name of an engine; choose another id", header.id),
        )),
        _ => Ok(()),
    }
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [version] = request.checked_query(&[VERSION])?;
    let version = version.map(|text| parse_version(&text, VERSION.name)).transpose()?;
    let id = request.path_param("id").await?;
    let definitions = app.node().definitions();
    let default = app.with_timeout(definitions.resolve(&id, None)).await??.version().clone();
    let version = version.unwrap_or_else(|| default.clone());
    let row = app.with_timeout(definitions.row(&id, &version)).await??;
    let data = WorkflowJson {
        id: &id,
        default: version == default,
        version: Text(&version),
        hash: Text(PlanHash(row.content_digest)),
        published_at_utc: Text(row.published_at),
        retired_at_utc: row.retired_at.map(Text),
        definition: serde_json::from_slice(&row.json).map_err(|error| ApiError::internal(&error))?,
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

/// Parses a version sent by a client.
pub(super) fn parse_version(text: &str, target: &str) -> Result<Version, ApiError> {
    Version::parse(text).map_err(|error| ApiError::invalid(target, format!("invalid version: {error}")))
}
