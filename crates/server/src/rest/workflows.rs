//! `/api/workflows`: publishing definitions, and which versions there are.

use abide_runtime::definitions::Publication;
use abide_runtime::hands::Store;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{PlanHash, Timestamp};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::versions::VERSION_TEXT;
use crate::app::App;
use crate::asked::{self, Asked};
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

/// The definition in a path.
pub(super) const ID: Field =
    Field::required("id", Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX }, "The definition.");

pub(super) const PUBLISH: Operation = Operation {
    id: "publishWorkflow",
    tag: "Workflows",
    about: "Publishes a version of a definition; the first version of an id becomes its default. Publishing the same again changes nothing.",
    body: Some(Body {
        required: true,
        about: "The definition, as workflow-schema-v1.json has it.",
        kinds: &[(JSON, Shape::Schema(DEFINITION))],
    }),
    answers: &[
        Answer::data::<PublishedJson<'static>>(200, "It was there already.").with(LOCATED),
        Answer::data::<PublishedJson<'static>>(201, "It is published.").with(LOCATED),
    ],
    refuses: &[409],
    ..Operation::NONE
};

pub(super) const SHOW: Operation = Operation {
    id: "showWorkflow",
    tag: "Workflows",
    about: "Shows a definition as it was published, in its default version or another.",
    path: &[ID],
    query: &[VERSION],
    answers: &[Answer::data::<WorkflowJson<'static>>(200, "The definition.")],
    refuses: &[404],
    ..Operation::NONE
};

const VERSION: Field = Field::optional("version", VERSION_TEXT, "The version; without it the default.");

const LOCATED: &[(&str, &str)] = &[("Location", "Where to ask for the definition.")];

/// The outermost of a definition; the rest is in its own schema.
pub(super) const DEFINITION: &str = r#"{
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

/// What was published.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Published")]
struct PublishedJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
    hash: Text<PlanHash>,
}

/// A definition.
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
pub(super) async fn publish<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let bytes = asked.bytes(app.limits().body_bytes_max).await?;
    let text = asked::text(&bytes)?;
    check_id(text)?;
    let registry = app.catalogue().registry();
    let publish = app.node().definitions().publish(text, Some(&registry), app.now());
    let (plan, publication) = app.in_time(publish).await??;
    let status = match publication {
        Publication::New => StatusCode::CREATED,
        Publication::Identical => StatusCode::OK,
    };
    let data = PublishedJson { id: plan.id(), version: Text(plan.version()), hash: Text(plan.hash()) };
    let mut response = asked.succeed(status, app.now(), &data);
    let id: String = url::form_urlencoded::byte_serialize(plan.id().as_bytes()).collect();
    let location = HeaderValue::try_from(format!("/api/workflows/{}", id.replace('+', "%20")));
    let location = location.map_err(|error| ApiError::internal(&error))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Names that dead letters and histories are kept under for others than definitions.
const RESERVED: [&str; 9] =
    ["provisioning", "hmac", "tls", "spn", "update-publisher", "update", "health", "alerts", "ingress"];

/// Refuses a definition that has the name of an engine. What is wrong with it besides is for validation to say.
pub(super) fn check_id(text: &str) -> Result<(), ApiError> {
    #[derive(serde::Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        id: std::borrow::Cow<'a, str>,
    }
    match serde_json::from_str::<Named<'_>>(text) {
        Ok(named) if RESERVED.contains(&named.id.as_ref()) => {
            Err(ApiError::invalid("/id", format!("{:?} is the name of an engine; choose another", named.id)))
        }
        _ => Ok(()),
    }
}

/// Shows a definition.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [version] = asked.parameters(&[VERSION])?;
    let version = version.map(|text| version_of(&text, VERSION.name)).transpose()?;
    let id = asked.param("id").await?;
    let definitions = app.node().definitions();
    let default = app.in_time(definitions.pick(&id, None)).await??.version().clone();
    let version = version.unwrap_or_else(|| default.clone());
    let row = app.in_time(definitions.stored(&id, &version)).await??;
    let data = WorkflowJson {
        id: &id,
        default: version == default,
        version: Text(&version),
        hash: Text(PlanHash(row.hash)),
        published_at_utc: Text(Timestamp(row.published_at)),
        retired_at_utc: row.retired_at.map(Timestamp).map(Text),
        definition: serde_json::from_slice(&row.json).map_err(|error| ApiError::internal(&error))?,
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

/// A version that a client has spelled.
pub(super) fn version_of(text: &str, target: &str) -> Result<Version, ApiError> {
    Version::parse(text).map_err(|error| ApiError::invalid(target, format!("it is no version: {error}")))
}
