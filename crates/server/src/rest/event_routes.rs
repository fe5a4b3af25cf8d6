//! `/api/routes`: event routes, which decide what happens to incoming events of a type. Routes no event itself.

use abide_runtime::entity::EntityId;
use abide_store::Store;
use abide_store::tables::event_routes::{EventRouteAction, EventRouteRow};
use abide_workflow::Timestamp;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use semver::VersionReq;
use serde::Serialize;

use super::body_fields::BodyFields;
use super::control;
use super::entities;
use super::page::{self, LIMIT, PageJson, TOKEN};
use super::workflow_versions::VERSION_TEXT;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

const TYPE: Field = Field::required(
    "eventType",
    FieldKind::Text { chars_min: 1, chars_max: 1_024 },
    "The type of the events.",
);
const NAME: FieldKind = FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX };
const ENTITY_TYPE: Field =
    Field::required("entityType", entities::TYPE.kind, "The type of the entity that records them.");
const WORKFLOW: Field = Field::optional(
    "workflow",
    NAME,
    "The definition whose runs are started or receive the events; absent if events are only recorded.",
);
const VERSION: Field = Field::optional(
    "version",
    VERSION_TEXT,
    "The version range to start; by default, the default version. Not allowed if events are only recorded.",
);
const ACTION: Field = Field::required(
    "action",
    FieldKind::OneOf(&["startOrRaise", "start", "raise", "record"]),
    "The action besides recording.",
);
const EVENT_NAME: Field = Field::optional(
    "eventName",
    NAME,
    "The name under which events are raised; by default, their type, which must then have at most 128 characters.",
);

pub(super) const PUT: OperationSpec = OperationSpec {
    id: "putRoute",
    about: "Sets the event route of an event type.",
    body: Some(BodySpec {
        required: true,
        about: "The event route.",
        content: &[(JSON, BodyShape::Fields(&[ENTITY_TYPE, WORKFLOW, VERSION, ACTION, EVENT_NAME]))],
    }),
    error_statuses: &[404, 409],
    ..ROUTE
};
pub(super) const SHOW: OperationSpec =
    OperationSpec { id: "showRoute", about: "Shows an event route.", ..ROUTE };
pub(super) const DELETE: OperationSpec = OperationSpec {
    id: "deleteRoute",
    about: "Deletes an event route; events of its type are dead-lettered from then on.",
    responses: &[ResponseSpec::enveloped::<DeletedRouteJson<'static>>(200, "The event route is deleted.")],
    ..ROUTE
};
const LIST_QUERY: [Field; 2] = [LIMIT, TOKEN];
pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listRoutes",
    about: "Lists event routes in the order of their event types.",
    path: &[],
    query: &LIST_QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<EventRouteJson<'static>>>(
        200,
        "A page of event routes.",
    )],
    error_statuses: &[],
    ..ROUTE
};

/// The common part of the routes of one event type.
const ROUTE: OperationSpec = OperationSpec {
    tag: "Events",
    path: &[TYPE],
    responses: &[ResponseSpec::enveloped::<EventRouteJson<'static>>(200, "The event route.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Route")]
#[serde(rename_all = "camelCase")]
struct EventRouteJson<'a> {
    event_type: &'a str,
    entity_type: &'a str,
    workflow: Option<&'a str>,
    version: Option<&'a str>,
    action: &'static str,
    event_name: Option<&'a str>,
    updated_at_utc: Text<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeletedRoute")]
#[serde(rename_all = "camelCase")]
struct DeletedRouteJson<'a> {
    event_type: &'a str,
}

/// The names of actions.
const ACTIONS: [(&str, EventRouteAction); 4] = [
    ("startOrRaise", EventRouteAction::StartOrRaise),
    ("start", EventRouteAction::Start),
    ("raise", EventRouteAction::Raise),
    ("record", EventRouteAction::Record),
];

fn event_route_json<'a>(event_type: &'a str, route: &'a EventRouteRow) -> EventRouteJson<'a> {
    EventRouteJson {
        event_type,
        entity_type: &route.entity_type,
        workflow: route.workflow.as_deref(),
        version: route.version.as_deref(),
        action: ACTIONS.iter().find(|(_, action)| *action == route.action).map_or("", |(word, _)| word),
        event_name: route.event_name.as_deref(),
        updated_at_utc: Text(route.updated_at),
    }
}

/// Sets the event route of a type, in place of one that exists. It applies to events that arrive from now on; the
/// version range is resolved again whenever an event starts a run.
pub(super) async fn put<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let event_type = request.checked_path_param(&TYPE).await?;
    let [] = request.raw_query([])?;
    let mut fields = BodyFields::from_body(request.json_body(app.limits().body_bytes_max).await?)?;
    let entity_type = fields.take_checked_text(&ENTITY_TYPE)?.unwrap_or_default();
    let entity = EntityId::new(&entity_type, "key");
    let entity = entity.map_err(|error| ApiError::invalid("/entityType", error.to_string()))?;
    let workflow = fields.take_checked_text(&WORKFLOW)?;
    let version = fields.take_checked_text(&VERSION)?;
    let action = fields.take_checked_text(&ACTION)?;
    let action = ACTIONS.iter().find(|(word, _)| Some(*word) == action.as_deref()).map(|(_, action)| *action);
    let action = action.ok_or_else(|| ApiError::invalid("/action", "unknown action"))?;
    let event_name = fields.take_checked_text(&EVENT_NAME)?;
    fields.reject_unknown()?;
    let range = version.as_deref().map(VersionReq::parse).transpose();
    let range = range.map_err(|error| ApiError::invalid("/version", error.to_string()))?;
    if version.is_some() && action == EventRouteAction::Record {
        return Err(ApiError::invalid("/version", "not allowed: the action \"record\" starts no run"));
    }
    if matches!(action, EventRouteAction::StartOrRaise | EventRouteAction::Raise) {
        let name = event_name.clone().unwrap_or_else(|| event_type.clone());
        control::validate_event_name(name).map_err(|error| error.with_target("/eventName"))?;
    }
    match (&workflow, action) {
        (None, EventRouteAction::StartOrRaise | EventRouteAction::Start | EventRouteAction::Raise) => {
            return Err(ApiError::invalid("/workflow", "required for this action"));
        }
        (Some(_), EventRouteAction::Record) => {
            return Err(ApiError::invalid(
                "/workflow",
                "not allowed: the action \"record\" uses no workflow",
            ));
        }
        (Some(workflow), _) => {
            // A route to a missing workflow would dead-letter every event, so it is rejected here.
            let found = app.with_timeout(app.node().definitions().resolve(workflow, range.as_ref())).await?;
            found.map_err(|error| ApiError::from(error).with_target("/workflow"))?;
        }
        (None, EventRouteAction::Record) => {}
    }
    let route = EventRouteRow {
        entity_type: entity.entity_type().to_owned(),
        workflow,
        version,
        action,
        event_name,
        updated_at: app.now(),
    };
    app.node().event_routes().set(&event_type, Some(&route)).await?;
    Ok(request.data_response(StatusCode::OK, app.now(), &event_route_json(&event_type, &route)))
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let event_type = request.checked_path_param(&TYPE).await?;
    let [] = request.raw_query([])?;
    match app.node().event_routes().get(&event_type).await? {
        Some(route) => {
            Ok(request.data_response(StatusCode::OK, app.now(), &event_route_json(&event_type, &route)))
        }
        None => Err(no_route(&event_type)),
    }
}

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [limit, token] = request.checked_query(&LIST_QUERY)?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let from = token.unwrap_or_default();
    let mut routes = app.node().event_routes().list().await?;
    routes.retain(|(event_type, _)| **event_type >= *from);
    routes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let next = page::truncate_to_page(&mut routes, limit, |(event_type, _)| event_type.clone());
    let items = routes.iter().map(|(event_type, route)| event_route_json(event_type, route)).collect();
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

pub(super) async fn delete<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let event_type = request.checked_path_param(&TYPE).await?;
    let [] = request.raw_query([])?;
    if !app.node().event_routes().set(&event_type, None).await? {
        return Err(no_route(&event_type));
    }
    Ok(request.data_response(StatusCode::OK, app.now(), &DeletedRouteJson { event_type: &event_type }))
}

fn no_route(event_type: &str) -> ApiError {
    ApiError::not_found(format!("no event route for type {event_type:?}"))
}
