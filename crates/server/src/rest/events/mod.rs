//! `POST /api/events`: events from outside, each recorded in the entity of its session and told to the session's run.
//!
//! All events of a request are checked before the first is taken. Those of one session are taken in their order; sessions do not wait for
//! each other. What was taken is known when it comes again, so a sender that got no answer, or not for all, sends the same again.

mod cloud_event;
mod item;

use abide_runtime::entity::{EntityId, Operate, Operation, Routed, session_instance};
use abide_runtime::hands::Store;
use abide_runtime::{Repeat, Reply, Request};
use abide_store::tables::dedupe::CLOUD_EVENT;
use abide_store::tables::routes::{Route, RouteAction};
use abide_workflow::json;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use serde_json::Value;

use self::cloud_event::{CloudEvent, Mode};
use self::item::{Accepted, ItemJson};
use crate::app::App;
use crate::asked::{self, Asked};
use crate::correlation;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, JSON, Operation as Described, Shape};

const CLOUD_EVENT_SCHEMA: &str = r#"{"type": "object", "required": ["specversion", "id", "source", "type"], "properties": {
    "specversion": {"const": "1.0"}, "id": {"type": "string", "minLength": 1, "maxLength": 1024},
    "source": {"type": "string", "minLength": 1, "maxLength": 1024}, "type": {"type": "string", "minLength": 1, "maxLength": 1024},
    "subject": {"type": ["string", "null"]}, "sessionid": {"type": ["string", "null"]},
    "time": {"type": ["string", "null"], "format": "date-time"}, "data": {}}}"#;
const BATCH_SCHEMA: &str = r#"{"type": "array", "maxItems": 1000, "items": {"type": "object"}}"#;

pub(super) const TAKE: Described = Described {
    id: "takeEvents",
    tag: "Events",
    about: "Takes CloudEvents 1.0: one, a batch, or one with its attributes in ce- headers. Each is recorded in the entity of its session.",
    body: Some(Body {
        required: true,
        about: "One event, an array of them, or, with ce- headers, the data of one, which may be of any media type.",
        kinds: &[
            ("application/cloudevents+json", Shape::Schema(CLOUD_EVENT_SCHEMA)),
            ("application/cloudevents-batch+json", Shape::Schema(BATCH_SCHEMA)),
            // One event, or the data of one whose attributes are in headers.
            (JSON, Shape::Any),
        ],
    }),
    answers: &[Answer::data::<Accepted>(202, "All are taken, and durable; each says what became of it.")],
    refuses: &[],
    ..Described::NONE
};

/// Takes events.
pub(super) async fn take<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let mode = Mode::of(asked.headers())?;
    let body = asked.raw_bytes(app.limits().body_bytes_max).await?;
    let events = match mode {
        Mode::Binary => vec![cloud_event::of_headers(asked.headers(), &body)?],
        mode => cloud_event::of_json(mode, json::parse(asked::text(&body)?)?)?,
    };
    let bytes_max = app.limits().payload_bytes_max;
    let correlation = asked.correlation().as_str().to_owned();
    let mut ways = Vec::with_capacity(events.len());
    for event in &events {
        let bytes = json::size(&Value::Object(event.whole.clone()));
        if bytes > bytes_max {
            let message = format!("event {:?} has {bytes} bytes; the limit is {bytes_max}", event.id);
            return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        ways.push(way_of(app, &correlation, event).await?);
    }

    // Sessions beside each other; the events of one are handed over in their order, before anything is waited for.
    let mut sessions: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (place, way) in ways.iter().enumerate() {
        let session = way.as_ref().map_or("", |operate| operate.entity.key());
        let at = *places.entry(session).or_insert_with(|| {
            sessions.push((session, Vec::new()));
            sessions.len() - 1
        });
        if let Some((_, of_session)) = sessions.get_mut(at) {
            of_session.push(place);
        }
    }
    let mut taken = Vec::with_capacity(sessions.len());
    for (_, places) in &sessions {
        taken.push(take_session(app, &events, &ways, places));
    }
    let mut items: Vec<(usize, Result<ItemJson, ApiError>)> =
        join_all(taken).await.into_iter().flatten().collect();
    items.sort_by_key(|(place, _)| *place);
    let accepted = items.iter().filter(|(_, item)| item.is_ok()).count();
    let all = items.len();
    let items: Result<Vec<ItemJson>, ApiError> = items.into_iter().map(|(_, item)| item).collect();
    match items {
        Ok(items) => Ok(asked.succeed(StatusCode::ACCEPTED, app.now(), &Accepted { accepted, items })),
        Err(error) if all == 1 => Err(error),
        Err(error) => Err(error.with_note(&format!(
            "{accepted} of {all} events are taken; send all of them again: those that were taken are known"
        ))),
    }
}

/// Takes the events of one session, in their order.
async fn take_session<S: Store>(
    app: &App<S>,
    events: &[CloudEvent],
    ways: &[Result<Operate, String>],
    places: &[usize],
) -> Vec<(usize, Result<ItemJson, ApiError>)> {
    let session = app.session().await;
    let mut operations = Vec::with_capacity(places.len());
    let mut key = String::new();
    for operate in places.iter().filter_map(|place| ways.get(*place)?.as_ref().ok()) {
        key = operate.entity.placement_key().into_owned();
        operations.push(Request::Operate(Box::new(operate.clone())));
    }
    // Taken or refused as a whole, so that none of them can overtake another when they come again.
    let replies = app.in_time(join_all(app.node().ask_together(&key, operations))).await;
    let mut replies = replies.map(Vec::into_iter);
    let mut taken = Vec::with_capacity(places.len());
    for place in places {
        let (Some(event), Some(way)) = (events.get(*place), ways.get(*place)) else { continue };
        let item = match way {
            Ok(operate) => match replies.as_mut().map(Iterator::next) {
                Err(late) => Err(late.clone()),
                Ok(Some(Ok(reply))) => answered(app, event, operate, reply).await,
                Ok(Some(Err(_)) | None) => Err(abide_runtime::node::Unanswered.into()),
            },
            Err(reason) => item::give_up(app, event, reason).await,
        };
        taken.push((*place, item));
    }
    drop(session);
    taken
}

async fn answered<S: Store>(
    app: &App<S>,
    event: &CloudEvent,
    operate: &Operate,
    reply: Reply,
) -> Result<ItemJson, ApiError> {
    match reply {
        Reply::Operated(operated) => {
            let route = operate.route.as_ref();
            // Whether there is a run to raise it to is not known yet.
            let run = route.filter(|route| route.starts).map(|route| route.instance_id.as_str());
            Ok(ItemJson::taken(event, run, &operated))
        }
        Reply::Refused(refused) if refused.is_transient() => Err(refused.into()),
        Reply::Refused(refused) => item::give_up(app, event, &refused.to_string()).await,
        other => Err(ApiError::internal(&format!("an event was answered by {other:?}"))),
    }
}

/// What is to be done for an event, or why nobody can say.
async fn way_of<S: Store>(
    app: &App<S>,
    correlation: &str,
    event: &CloudEvent,
) -> Result<Result<Operate, String>, ApiError> {
    let Some(route) = app.node().routes().of(&event.kind).await? else {
        return Ok(Err(format!("there is no route for events of type {:?}", event.kind)));
    };
    let Some(session) = event.session() else {
        return Ok(Err("the event has neither a sessionid nor a subject".to_owned()));
    };
    let entity = match EntityId::new(&route.entity_type, session) {
        Ok(entity) => entity,
        Err(error) => return Ok(Err(format!("the session cannot be an entity's key: {error}"))),
    };
    let correlation_id = event.correlation().filter(|given| correlation::is_usable(given.as_bytes()));
    let correlation_id = correlation_id.unwrap_or(correlation).to_owned();
    let key = item::digest(event);
    let route = match routed(&route, &entity, event, correlation_id) {
        Ok(route) => route,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(Operate {
        operation: Operation::RecordEvent { event: Value::Object(event.whole.clone()).into() },
        // Source and id name the event; whatever else it says the second time, it is the same one.
        repeat: Some(Repeat::new(key, key)),
        scope: CLOUD_EVENT,
        route,
        entity,
    }))
}

fn routed(
    route: &Route,
    entity: &EntityId,
    event: &CloudEvent,
    correlation_id: String,
) -> Result<Option<Box<Routed>>, String> {
    let Some(workflow) = route.workflow.clone().filter(|_| route.action != RouteAction::Record) else {
        return Ok(None);
    };
    let instance_id = session_instance(entity.key(), &workflow).map_err(|error| error.to_string())?;
    let name = route.event_name.clone().unwrap_or_else(|| event.kind.clone());
    let raises = matches!(route.action, RouteAction::StartOrRaise | RouteAction::Raise).then_some(name);
    Ok(Some(Box::new(Routed {
        instance_id,
        starts: matches!(route.action, RouteAction::StartOrRaise | RouteAction::Start),
        raises,
        workflow,
        version: route.version.clone(),
        entity_type: entity.kind().to_owned(),
        entity_key: entity.key().to_owned(),
        event: Value::Object(event.whole.clone()).to_string(),
        correlation_id,
        message_id: item::message_id(event),
    })))
}
