//! `POST /api/events`: records each incoming event in the entity of its session, and sends it to the session's run.
//!
//! All events of a request are checked before the first one is recorded. Events of one session are recorded in their
//! order; sessions do not wait for each other. A recorded event is recognised when it is repeated, so a sender that got
//! no response, or not for all events, sends the same request again.

mod cloud_event;
mod receipt;

use abide_runtime::entity::{EntityId, EntityOperation, OperationRequest, SessionEvent, session_instance_id};
use abide_runtime::{RequestIdempotency, ShardReply, ShardRequest};
use abide_store::Store;
use abide_store::tables::event_routes::{EventRouteAction, EventRouteRow};
use abide_store::tables::idempotency::SCOPE_CLOUD_EVENT;
use abide_workflow::json;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use serde_json::Value;

use self::cloud_event::{ContentMode, InboundCloudEvent};
use self::receipt::{EventReceiptJson, EventReceiptsJson};
use crate::api_request::{self, ApiRequest};
use crate::app::App;
use crate::correlation;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, JSON, OperationSpec, ResponseSpec};

const CLOUD_EVENT_SCHEMA: &str = r#"{"type": "object", "required": ["specversion", "id", "source", "type"], "properties": {
    "specversion": {"const": "1.0"}, "id": {"type": "string", "minLength": 1, "maxLength": 1024},
    "source": {"type": "string", "minLength": 1, "maxLength": 1024}, "type": {"type": "string", "minLength": 1, "maxLength": 1024},
    "subject": {"type": ["string", "null"]}, "sessionid": {"type": ["string", "null"]},
    "time": {"type": ["string", "null"], "format": "date-time"}, "data": {}}}"#;
const BATCH_SCHEMA: &str = r#"{"type": "array", "maxItems": 1000, "items": {"type": "object"}}"#;

pub(super) const RECEIVE: OperationSpec = OperationSpec {
    id: "takeEvents",
    tag: "Events",
    about: "Accepts CloudEvents 1.0: one event, a batch, or one event with its attributes in ce- headers. Each is recorded in the entity of its session.",
    body: Some(BodySpec {
        required: true,
        about: "One event, an array of events, or, with ce- headers, the data of one event, of any media type.",
        content: &[
            ("application/cloudevents+json", BodyShape::Schema(CLOUD_EVENT_SCHEMA)),
            ("application/cloudevents-batch+json", BodyShape::Schema(BATCH_SCHEMA)),
            // One event, or the data of an event whose attributes are in headers.
            (JSON, BodyShape::Any),
        ],
    }),
    responses: &[ResponseSpec::enveloped::<EventReceiptsJson>(
        202,
        "All events are processed and durable; each item has the result of one event.",
    )],
    error_statuses: &[],
    ..OperationSpec::EMPTY
};

pub(super) async fn receive<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let mode = ContentMode::from_headers(request.headers())?;
    let body = request.raw_bytes(app.limits().body_bytes_max).await?;
    let events = match mode {
        ContentMode::Binary => vec![cloud_event::parse_binary(request.headers(), &body)?],
        mode => cloud_event::parse_json(mode, json::parse(api_request::utf8_text(&body)?)?)?,
    };
    let bytes_max = app.limits().payload_bytes_max;
    let correlation = request.correlation().as_str().to_owned();
    let mut resolved = Vec::with_capacity(events.len());
    for event in events {
        let bytes = json::size(&Value::Object(event.json.clone()));
        if bytes > bytes_max {
            let message =
                format!("event {:?} is {bytes} bytes long; the limit is {bytes_max} bytes", event.id);
            return Err(ApiError::rejected(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let given = event.correlation_id().filter(|given| correlation::is_valid(given.as_bytes()));
        let correlation_id = given.unwrap_or(&correlation).to_owned();
        let operation = resolve_operation(app, &correlation_id, &event).await?;
        resolved.push(ResolvedEvent { event, correlation_id, operation });
    }

    // Sessions are recorded concurrently. The events of one session are sent in their order, before any reply is
    // awaited.
    let mut sessions: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut session_indexes = std::collections::HashMap::new();
    for (index, event) in resolved.iter().enumerate() {
        let session = event.operation.as_ref().map_or("", |operate| operate.entity.key());
        let at = *session_indexes.entry(session).or_insert_with(|| {
            sessions.push((session, Vec::new()));
            sessions.len() - 1
        });
        if let Some((_, indexes)) = sessions.get_mut(at) {
            indexes.push(index);
        }
    }
    let mut recordings = Vec::with_capacity(sessions.len());
    for (_, indexes) in &sessions {
        recordings.push(record_session(app, &resolved, indexes));
    }
    let mut items: Vec<(usize, Result<EventReceiptJson, ApiError>)> =
        join_all(recordings).await.into_iter().flatten().collect();
    items.sort_by_key(|(index, _)| *index);
    let accepted = items.iter().filter(|(_, item)| item.is_ok()).count();
    let all = items.len();
    let items: Result<Vec<EventReceiptJson>, ApiError> = items.into_iter().map(|(_, item)| item).collect();
    match items {
        Ok(items) => {
            Ok(request.data_response(StatusCode::ACCEPTED, app.now(), &EventReceiptsJson { accepted, items }))
        }
        Err(error) if all == 1 => Err(error),
        Err(error) => Err(error.with_note(&format!(
            "{accepted} of {all} events were accepted; send all of them again: accepted events are recognised"
        ))),
    }
}

/// An event, and what is to be done with it.
struct ResolvedEvent {
    event: InboundCloudEvent,
    /// The event's own, else that of the request.
    correlation_id: String,
    /// The operation that records it, or the reason why it must be dead-lettered.
    operation: Result<OperationRequest, String>,
}

/// Records the events of one session, in their order, and dead-letters those that have no operation or that the entity
/// refuses for good. Waits first for a session permit. Returns a receipt or an error for each event, with its index.
async fn record_session<S: Store>(
    app: &App<S>,
    events: &[ResolvedEvent],
    indexes: &[usize],
) -> Vec<(usize, Result<EventReceiptJson, ApiError>)> {
    let permit = app.acquire_session().await;
    let mut requests = Vec::with_capacity(indexes.len());
    let mut key = String::new();
    for operate in indexes.iter().filter_map(|index| events.get(*index)?.operation.as_ref().ok()) {
        key = operate.entity.placement_key().into_owned();
        requests.push(ShardRequest::Operate(Box::new(operate.clone())));
    }
    // The group is accepted or rejected as a whole, so that no event can overtake another one on a retry.
    let replies = app.with_timeout(join_all(app.node().request_group(&key, requests))).await;
    let mut replies = replies.map(Vec::into_iter);
    let mut receipts = Vec::with_capacity(indexes.len());
    for index in indexes {
        let Some(event) = events.get(*index) else { continue };
        let receipt = match &event.operation {
            Ok(operate) => match replies.as_mut().map(Iterator::next) {
                Err(late) => Err(late.clone()),
                Ok(Some(Ok(reply))) => receipt_for_reply(app, event, operate, reply).await,
                Ok(Some(Err(_)) | None) => Err(abide_runtime::node::ShardLost.into()),
            },
            Err(reason) => dead_letter(app, event, reason).await,
        };
        receipts.push((*index, receipt));
    }
    drop(permit);
    receipts
}

/// The receipt for the shard's reply. A transient refusal is an error, so that the sender repeats the event; any other
/// refusal is final, and the event is dead-lettered.
async fn receipt_for_reply<S: Store>(
    app: &App<S>,
    event: &ResolvedEvent,
    operate: &OperationRequest,
    reply: ShardReply,
) -> Result<EventReceiptJson, ApiError> {
    match reply {
        ShardReply::Operated(operated) => {
            let route = operate.session_event.as_ref();
            // For an event that is only raised, it is not known yet whether a run exists.
            let run = route.filter(|route| route.starts_run).map(|route| route.instance_id.as_str());
            Ok(EventReceiptJson::recorded(&event.event, run, &operated))
        }
        ShardReply::Refused(refused) if refused.is_transient() => Err(refused.into()),
        ShardReply::Refused(refused) => dead_letter(app, event, &refused.to_string()).await,
        other => Err(ApiError::internal(&format!("unexpected reply to an event: {other:?}"))),
    }
}

async fn dead_letter<S: Store>(
    app: &App<S>,
    event: &ResolvedEvent,
    reason: &str,
) -> Result<EventReceiptJson, ApiError> {
    receipt::dead_letter(app, &event.event, &event.correlation_id, reason).await
}

/// The operation that records an event and tells the session's run, or the reason why it must be dead-lettered. Reads
/// the event route; records nothing.
async fn resolve_operation<S: Store>(
    app: &App<S>,
    correlation_id: &str,
    event: &InboundCloudEvent,
) -> Result<Result<OperationRequest, String>, ApiError> {
    let Some(route) = app.node().event_routes().get(&event.event_type).await? else {
        return Ok(Err(format!("no event route for type {:?}", event.event_type)));
    };
    let Some(session) = event.session() else {
        return Ok(Err("the event has neither a sessionid nor a subject".to_owned()));
    };
    let entity = match EntityId::new(&route.entity_type, session) {
        Ok(entity) => entity,
        Err(error) => return Ok(Err(format!("the session is not a valid entity key: {error}"))),
    };
    let key = receipt::idempotency_digest(event);
    let session_event = match session_event(&route, &entity, event, correlation_id.to_owned()) {
        Ok(session_event) => session_event,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(OperationRequest {
        operation: EntityOperation::RecordEvent { event: Value::Object(event.json.clone()).into() },
        // Source and id identify the event: a repetition is the same event, whatever else has changed in it.
        idempotency: Some(RequestIdempotency::new(key, key.0)),
        idempotency_scope: SCOPE_CLOUD_EVENT,
        session_event,
        entity,
    }))
}

/// What the event does to its session's run besides being recorded; none if the route only records. Fails if session
/// and workflow make no valid instance id. The shard sends it on when the event is recorded.
fn session_event(
    route: &EventRouteRow,
    entity: &EntityId,
    event: &InboundCloudEvent,
    correlation_id: String,
) -> Result<Option<Box<SessionEvent>>, String> {
    let Some(workflow) = route.workflow.clone().filter(|_| route.action != EventRouteAction::Record) else {
        return Ok(None);
    };
    let instance_id = session_instance_id(entity.key(), &workflow).map_err(|error| error.to_string())?;
    let name = route.event_name.clone().unwrap_or_else(|| event.event_type.clone());
    let raises =
        matches!(route.action, EventRouteAction::StartOrRaise | EventRouteAction::Raise).then_some(name);
    Ok(Some(Box::new(SessionEvent {
        instance_id,
        starts_run: matches!(route.action, EventRouteAction::StartOrRaise | EventRouteAction::Start),
        raised_as: raises,
        workflow,
        version: route.version.clone(),
        entity_type: entity.entity_type().to_owned(),
        entity_key: entity.key().to_owned(),
        event: Value::Object(event.json.clone()).to_string(),
        correlation_id,
        message_id: receipt::message_id(event),
    })))
}
