//! `/api/activities`: lists the activities that definitions may name, and declares remote ones. The rules of declaring
//! are in the activity catalogue.

use std::collections::BTreeMap;

use abide_dispatch::remote::{RemoteActivity, RemoteDeclaration};
use abide_runtime::activity_declarations::{
    DeclarationVersion, DeclareOutcome, LatestDeclaration, VERSIONS_MAX,
};
use abide_store::Store;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::activity_json::{ActivityJson, ActivityVersionJson, RemovedActivityJson};
use super::page::{self, LIMIT, PageJson, TOKEN};
use crate::activity_catalogue::{self, ActivitySource, CatalogueError};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

const QUERY: [Field; 2] = [LIMIT, TOKEN];
const NAME: Field = Field::required(
    "name",
    FieldKind::Text { chars_min: 1, chars_max: 256 },
    "The name by which definitions call the activity.",
);
const VERSION: Field = Field::optional(
    "version",
    FieldKind::Integer { min: 1, max: VERSIONS_MAX + 1, default: None },
    "A version declared through the API; by default, the version in force.",
);

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listActivities",
    tag: "Activities",
    about: "Lists the activities that definitions may name, by name.",
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<ActivityJson>>(200, "A page of activities.")],
    ..OperationSpec::EMPTY
};
pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showActivity",
    about: "Shows the version of an activity that is in force, or a given one that was declared through the API.",
    query: &[VERSION],
    ..ACTIVITY
};
pub(super) const PUT: OperationSpec = OperationSpec {
    id: "putActivity",
    about: "Declares a remote activity in a new version, which applies to every call from now on. Its retries, attempt timeout and \
            compensation apply to definitions published from now on. Declaring the same again changes nothing.",
    body: Some(BodySpec {
        required: true,
        about: "The declaration; docs/reference/activities.md explains every field.",
        content: &[(JSON, BodyShape::Schema(DECLARATION_SCHEMA))],
    }),
    responses: &[
        ResponseSpec::enveloped::<ActivityJson>(200, "The same declaration is already in force."),
        ResponseSpec::enveloped::<ActivityJson>(201, "The activity is declared in a new version."),
    ],
    error_statuses: &[409],
    ..ACTIVITY
};
pub(super) const DELETE: OperationSpec = OperationSpec {
    id: "deleteActivity",
    about: "Removes an activity that was declared through the API. Calls in flight finish unchanged; later ones fail permanently. Its \
            versions stay readable.",
    responses: &[ResponseSpec::enveloped::<RemovedActivityJson>(200, "The activity is removed.")],
    error_statuses: &[404, 409],
    ..ACTIVITY
};

/// The common part of the routes of one activity.
const ACTIVITY: OperationSpec = OperationSpec {
    tag: "Activities",
    path: &[NAME],
    responses: &[ResponseSpec::enveloped::<ActivityJson>(200, "The activity.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

/// The top level of a declaration.
const DECLARATION_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "category": {"enum": ["database", "externalApi", "messaging", "polling", "entity", "other"]},
        "transport": {"enum": ["rest", "protobuf", "grpc", "envelope"]},
        "endpoint": {"type": "string"},
        "input": {"type": ["object", "boolean"]},
        "output": {"type": ["object", "boolean"]},
        "attemptTimeout": {"type": "string"},
        "retryPolicy": {"type": "object"},
        "compensation": {"type": "string"},
        "concurrency": {"type": "integer", "minimum": 1, "maximum": 10000},
        "ratePerSecond": {"type": "number"},
        "probe": {"type": "boolean"},
        "auth": {"type": "object"},
        "tls": {"type": "object"}
    },
    "required": ["category", "transport", "endpoint"],
    "additionalProperties": false
}"#;

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [limit, from] = request.checked_query(&QUERY)?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let catalogue = app.catalogue();
    let router = app.catalogue().activity_router();
    let declared = app.with_timeout(catalogue.declared_activities()).await??;
    let mut items: BTreeMap<String, ActivityJson> =
        router.local().declarations().map(|one| (one.name.clone(), ActivityJson::built_in(one))).collect();
    for remote in router.remote().all() {
        let item = ActivityJson::remote(remote.declaration()).with_live_status(&remote);
        items.entry(remote.declaration().activity.name.clone()).or_insert(item);
    }
    let readable = declared.in_force.into_iter().map(Ok);
    for latest in readable.chain(declared.unreadable.into_iter().map(Err)) {
        let name = latest.as_ref().map_or_else(|one| &one.name, |one| &one.name).clone();
        if catalogue.source(&name) == ActivitySource::Api {
            items.insert(name, latest_json(app, &latest));
        }
    }
    let mut items: Vec<ActivityJson> = items.into_values().collect();
    items.retain(|item| from.as_deref().is_none_or(|from| item.name.as_str() >= from));
    let continuation_token = page::truncate_to_page(&mut items, limit, |item| item.name.clone());
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let name = request.checked_path_param(&NAME).await?;
    let [version] = request.checked_query(&[VERSION])?;
    let version = version.map(|text| VERSION.parse_integer(Some(&text))).transpose()?;
    let catalogue = app.catalogue();
    let router = catalogue.activity_router();
    let missing = || ApiError::from(CatalogueError::Unknown { name: name.clone() });
    let item = match (version, catalogue.source(&name)) {
        (None, ActivitySource::Server) => {
            let declaration = router.local().declarations().find(|one| one.name == name);
            ActivityJson::built_in(declaration.ok_or_else(missing)?)
        }
        (None, ActivitySource::Configuration) => in_force_json(app, &name).ok_or_else(missing)?,
        (None, ActivitySource::Api) => {
            let latest = app.with_timeout(catalogue.latest(&name)).await??.ok_or_else(missing)?;
            if latest.as_ref().is_ok_and(|latest| latest.activity.declaration.is_none()) {
                return Err(missing());
            }
            latest_json(app, &latest)
        }
        (Some(version), _) => {
            let found = app.with_timeout(catalogue.version(&name, version)).await??.ok_or_else(missing)?;
            let item = match &found.activity.declaration {
                None => ActivityJson::removed(&name),
                Some(_) => {
                    parse_stored(&found).map_or_else(|unusable| *unusable, |one| ActivityJson::remote(&one))
                }
            };
            item.with_version(version_json(&found))
        }
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &item))
}

pub(super) async fn put<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let name = request.checked_path_param(&NAME).await?;
    let [] = request.raw_query([])?;
    let mut body = request.json_body(app.limits().body_bytes_max).await?.unwrap_or_default();
    let Value::Object(fields) = &mut body else {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    };
    let body_name = fields.insert("name".to_owned(), Value::String(name.clone()));
    if body_name.is_some_and(|body_name| body_name != Value::String(name.clone())) {
        return Err(ApiError::invalid("/name", "must equal the name in the path, or be absent"));
    }
    let declaration = RemoteDeclaration::read(&body).map_err(CatalogueError::from)?;
    // A task of its own, so that a timeout cannot interrupt it: a stored declaration must come into force.
    let changing = app.clone();
    let now = app.now();
    let task = tokio::spawn(async move { changing.catalogue().put(declaration, now).await });
    let outcome = app.with_timeout(task).await?.map_err(|error| ApiError::internal(&error))??;
    let (status, version) = match outcome {
        DeclareOutcome::New(version) => (StatusCode::CREATED, version),
        DeclareOutcome::Unchanged(version) => (StatusCode::OK, version),
    };
    let item = ActivityJson::remote(&activity_catalogue::stored_declaration(&version)?)
        .with_version(version_json(&version));
    Ok(request.data_response(status, app.now(), &item))
}

pub(super) async fn delete<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let name = request.checked_path_param(&NAME).await?;
    let [] = request.raw_query([])?;
    // A task of its own, as in `put`: a stored removal must come into force.
    let changing = app.clone();
    let removed_name = name.clone();
    let now = app.now();
    let removing = tokio::spawn(async move { changing.catalogue().remove(&removed_name, now).await });
    let removed = app.with_timeout(removing).await?.map_err(|error| ApiError::internal(&error))??;
    Ok(request.data_response(
        StatusCode::OK,
        app.now(),
        &RemovedActivityJson { name, version: removed.version },
    ))
}

/// The declaration in force of an activity of the configuration, with its live status.
fn in_force_json<S: Store>(app: &App<S>, name: &str) -> Option<ActivityJson> {
    let remote = app.catalogue().activity_router().remote().get(name)?;
    let remote: &RemoteActivity = &remote;
    Some(ActivityJson::remote(remote.declaration()).with_live_status(remote))
}

/// An activity declared through the API. Declaration and version come from the same row: during a change, the version
/// in force may still be the previous one. Only the live status comes from the version in force.
fn latest_json<S: Store>(app: &App<S>, latest: &LatestDeclaration) -> ActivityJson {
    let latest = match latest {
        Ok(latest) => latest,
        Err(unreadable) => {
            return ActivityJson::unreadable(&unreadable.name, unreadable.reason.to_string());
        }
    };
    let item = match parse_stored(latest) {
        Err(unusable) => *unusable,
        Ok(declaration) => {
            let item = ActivityJson::remote(&declaration);
            let catalogue = app.catalogue();
            match catalogue.activity_router().remote().get(&latest.name) {
                Some(remote) => item.with_live_status(&remote),
                None => match catalogue.unusable_reason(&declaration) {
                    Some(reason) => item.with_unusable_reason(reason),
                    None => item,
                },
            }
        }
    };
    item.with_version(version_json(latest))
}

/// The declaration of a version; if it is no longer valid, the item to show instead.
fn parse_stored(version: &DeclarationVersion) -> Result<RemoteDeclaration, Box<ActivityJson>> {
    let unreadable = |error: CatalogueError| ActivityJson::unreadable(&version.name, error.to_string());
    activity_catalogue::stored_declaration(version).map_err(|error| Box::new(unreadable(error)))
}

fn version_json(version: &DeclarationVersion) -> ActivityVersionJson {
    ActivityVersionJson { version: version.version, declared_at_utc: Text(version.activity.declared_at) }
}
