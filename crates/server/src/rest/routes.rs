//! `/api/routes`: what happens when an event of a type comes in.

use abide_runtime::entity::EntityId;
use abide_runtime::hands::Store;
use abide_store::tables::routes::{Route, RouteAction};
use abide_workflow::Timestamp;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use semver::VersionReq;
use serde::Serialize;

use super::body::Fields;
use super::entities;
use super::orders;
use super::page::{self, LIMIT, PageJson, TOKEN};
use super::versions::VERSION_TEXT;
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

const TYPE: Field =
    Field::required("eventType", Kind::Text { chars_min: 1, chars_max: 1_024 }, "The type of the events.");
const NAME: Kind = Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX };
const ENTITY_TYPE: Field =
    Field::required("entityType", entities::TYPE.kind, "The type of the entity that records them.");
const WORKFLOW: Field = Field::optional(
    "workflow",
    NAME,
    "The definition that is started or told, unless they are only recorded.",
);
const VERSION: Field = Field::optional(
    "version",
    VERSION_TEXT,
    "A range of versions to start; without it, the default. Not if they are only recorded.",
);
const ACTION: Field = Field::required(
    "action",
    Kind::Word(&["startOrRaise", "start", "raise", "record"]),
    "What is done besides recording.",
);
const EVENT_NAME: Field = Field::optional(
    "eventName",
    NAME,
    "The name they are raised under; without it, their type, which must have at most 128 characters then.",
);

pub(super) const PUT: Operation = Operation {
    id: "putRoute",
    about: "Sets what happens when an event of a type comes in.",
    body: Some(Body {
        required: true,
        about: "Where events of this type go.",
        kinds: &[(JSON, Shape::Fields(&[ENTITY_TYPE, WORKFLOW, VERSION, ACTION, EVENT_NAME]))],
    }),
    refuses: &[404, 409],
    ..ROUTE
};
pub(super) const SHOW: Operation = Operation { id: "showRoute", about: "Shows a route.", ..ROUTE };
pub(super) const DELETE: Operation = Operation {
    id: "deleteRoute",
    about: "Takes a route away; events of its type are dead-lettered from then on.",
    answers: &[Answer::data::<DeletedJson<'static>>(200, "It is gone.")],
    ..ROUTE
};
const LIST_QUERY: [Field; 2] = [LIMIT, TOKEN];
pub(super) const LIST: Operation = Operation {
    id: "listRoutes",
    about: "Lists routes in the order of their types.",
    path: &[],
    query: &LIST_QUERY,
    answers: &[Answer::data::<PageJson<RouteJson<'static>>>(200, "A page of routes.")],
    refuses: &[],
    ..ROUTE
};

/// What all of them have in common.
const ROUTE: Operation = Operation {
    tag: "Events",
    path: &[TYPE],
    answers: &[Answer::data::<RouteJson<'static>>(200, "The route.")],
    refuses: &[404],
    ..Operation::NONE
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Route")]
#[serde(rename_all = "camelCase")]
struct RouteJson<'a> {
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
struct DeletedJson<'a> {
    event_type: &'a str,
}

/// The words for actions.
const ACTIONS: [(&str, RouteAction); 4] = [
    ("startOrRaise", RouteAction::StartOrRaise),
    ("start", RouteAction::Start),
    ("raise", RouteAction::Raise),
    ("record", RouteAction::Record),
];

fn route_json<'a>(event_type: &'a str, route: &'a Route) -> RouteJson<'a> {
    RouteJson {
        event_type,
        entity_type: &route.entity_type,
        workflow: route.workflow.as_deref(),
        version: route.version.as_deref(),
        action: ACTIONS.iter().find(|(_, action)| *action == route.action).map_or("", |(word, _)| word),
        event_name: route.event_name.as_deref(),
        updated_at_utc: Text(Timestamp(route.updated_at)),
    }
}

/// Sets a route.
pub(super) async fn put<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let event_type = asked.part(&TYPE).await?;
    let [] = asked.query([])?;
    let mut fields = Fields::of(asked.json(app.limits().body_bytes_max).await?)?;
    let entity_type = fields.checked_text(&ENTITY_TYPE)?.unwrap_or_default();
    let entity = EntityId::new(&entity_type, "key");
    let entity = entity.map_err(|error| ApiError::invalid("/entityType", error.to_string()))?;
    let workflow = fields.checked_text(&WORKFLOW)?;
    let version = fields.checked_text(&VERSION)?;
    let action = fields.checked_text(&ACTION)?;
    let action = ACTIONS.iter().find(|(word, _)| Some(*word) == action.as_deref()).map(|(_, action)| *action);
    let action = action.ok_or_else(|| ApiError::invalid("/action", "there is no such action"))?;
    let event_name = fields.checked_text(&EVENT_NAME)?;
    fields.end()?;
    let range = version.as_deref().map(VersionReq::parse).transpose();
    let range = range.map_err(|error| ApiError::invalid("/version", error.to_string()))?;
    if version.is_some() && action == RouteAction::Record {
        return Err(ApiError::invalid("/version", "an event that is only recorded starts no version"));
    }
    if matches!(action, RouteAction::StartOrRaise | RouteAction::Raise) {
        let name = event_name.clone().unwrap_or_else(|| event_type.clone());
        orders::event_name(name).map_err(|error| error.at("/eventName"))?;
    }
    match (&workflow, action) {
        (None, RouteAction::StartOrRaise | RouteAction::Start | RouteAction::Raise) => {
            return Err(ApiError::invalid("/workflow", "this action needs a workflow"));
        }
        (Some(_), RouteAction::Record) => {
            return Err(ApiError::invalid("/workflow", "an event that is only recorded reaches no workflow"));
        }
        (Some(workflow), _) => {
            // A route to nowhere would dead-letter every event; better to hear of it now.
            let found = app.in_time(app.node().definitions().pick(workflow, range.as_ref())).await?;
            found.map_err(|error| ApiError::from(error).at("/workflow"))?;
        }
        (None, RouteAction::Record) => {}
    }
    let route = Route {
        entity_type: entity.kind().to_owned(),
        workflow,
        version,
        action,
        event_name,
        updated_at: app.now().0,
    };
    app.node().routes().set(&event_type, Some(&route)).await?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &route_json(&event_type, &route)))
}

/// Shows a route.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let event_type = asked.part(&TYPE).await?;
    let [] = asked.query([])?;
    match app.node().routes().of(&event_type).await? {
        Some(route) => Ok(asked.succeed(StatusCode::OK, app.now(), &route_json(&event_type, &route))),
        None => Err(none_for(&event_type)),
    }
}

/// Lists routes.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, token] = asked.parameters(&LIST_QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    let from = token.unwrap_or_default();
    let mut routes = app.node().routes().all().await?;
    routes.retain(|(event_type, _)| **event_type >= *from);
    routes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let next = page::cut(&mut routes, limit, |(event_type, _)| event_type.clone());
    let items = routes.iter().map(|(event_type, route)| route_json(event_type, route)).collect();
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

/// Takes a route away.
pub(super) async fn delete<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let event_type = asked.part(&TYPE).await?;
    let [] = asked.query([])?;
    if !app.node().routes().set(&event_type, None).await? {
        return Err(none_for(&event_type));
    }
    Ok(asked.succeed(StatusCode::OK, app.now(), &DeletedJson { event_type: &event_type }))
}

fn none_for(event_type: &str) -> ApiError {
    ApiError::not_found(format!("there is no route for events of type {event_type:?}"))
}
