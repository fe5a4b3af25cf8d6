//! The receipt that the sender gets for each event, and the dead letter of an event that cannot be processed.

use abide_ids::KeyDigest;
use abide_runtime::entity::{INGRESS_ENGINE, OperationReply, session_placement_key};
use abide_store::Store;
use abide_store::public::PublicWrite;
use abide_store::tables::dead_letters::{self, DeadLetterRow, DeadLetterStatus};
use abide_store::tables::idempotency::SCOPE_CLOUD_EVENT;
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::cloud_event::InboundCloudEvent;
use crate::app::App;
use crate::error::ApiError;
use crate::response::Text;

/// The receipts of all events of a request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TakenEvents")]
pub(super) struct EventReceiptsJson {
    pub(super) accepted: usize,
    pub(super) items: Vec<EventReceiptJson>,
}

/// The receipt of one event.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TakenEvent")]
#[serde(rename_all = "camelCase")]
pub(super) struct EventReceiptJson {
    source: String,
    id: String,
    #[schemars(extend("enum" = ["recorded", "duplicate", "deadLettered"]))]
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dlq: Option<DeadLetterRefJson>,
    /// When the event was first processed, if it is a repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_answered_at_utc: Option<Text<Timestamp>>,
    /// Until when a repetition of the event is recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ends_at_utc: Option<Text<Timestamp>>,
}

/// A reference to a dead letter.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterPlace")]
#[serde(rename_all = "camelCase")]
struct DeadLetterRefJson {
    engine: &'static str,
    row_key: String,
}

impl EventReceiptJson {
    /// The receipt of an event that is recorded, now or by an earlier request. The entity type is that of the stored
    /// reply: the event route may have changed since. `run` is the instance that the event starts or reaches, if that
    /// is certain.
    pub(super) fn recorded(event: &InboundCloudEvent, run: Option<&str>, operated: &OperationReply) -> Self {
        let output: Value = serde_json::from_str(&operated.output).unwrap_or_default();
        let entity_type = output.get("entityType").and_then(Value::as_str);
        Self {
            source: event.source.clone(),
            id: event.id.clone(),
            status: if operated.is_replay { "duplicate" } else { "recorded" },
            entity_type: entity_type.map(str::to_owned),
            entity_key: event.session().map(str::to_owned),
            position: output.get("position").and_then(Value::as_u64),
            instance_id: run.map(str::to_owned),
            reason: None,
            dlq: None,
            first_answered_at_utc: operated.is_replay.then_some(Text(operated.done_at)),
            window_ends_at_utc: operated.idempotent_until.map(Text),
        }
    }
}

/// The idempotency key of an event: its source and id within its session. The same source and id in another session are
/// another event, because its idempotency record is kept in another place.
pub(super) fn idempotency_digest(event: &InboundCloudEvent) -> KeyDigest {
    let session = event.session().unwrap_or_default();
    KeyDigest::of_parts(&[event.source.as_bytes(), event.id.as_bytes(), session.as_bytes()])
}

/// Identifies an event in the keys of its dead letters, those written here and those that its session's shard writes.
pub(super) fn message_id(event: &InboundCloudEvent) -> String {
    let KeyDigest(digest) = idempotency_digest(event);
    digest.as_bytes().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Dead-letters an event that cannot be processed; it is durable before the sender gets the receipt. An existing dead
/// letter is left unchanged. An event that was recorded while its type still had a route gets its original receipt.
pub(super) async fn dead_letter<S: Store>(
    app: &App<S>,
    event: &InboundCloudEvent,
    correlation_id: &str,
    reason: &str,
) -> Result<EventReceiptJson, ApiError> {
    if let Some(session) = event.session() {
        let key = session_placement_key(session);
        let digest = idempotency_digest(event);
        let stored_reply = app.node().stored_operation_reply(&key, SCOPE_CLOUD_EVENT, &digest);
        if let Some(operated) = app.with_timeout(stored_reply).await?? {
            return Ok(EventReceiptJson::recorded(
                event,
                None,
                &OperationReply { is_replay: true, ..operated },
            ));
        }
    }
    // Its key has the time when the event first arrived, which a repetition does not know: it is found by the part that
    // depends only on the event. Under the lock, so that two requests with the same event cannot both find none.
    let message_id = message_id(event);
    let _lock = app.lock_dead_letters_of(&message_id).await;
    let prefix = dead_letters::key_prefix(INGRESS_ENGINE, &message_id);
    let row = app.node().store().get_first(&dead_letters::SCHEMA, &prefix).await?;
    let existing = row.as_ref().and_then(|row| DeadLetterRow::from_public_row(row).ok());
    let (row_key, reason, first_answered_at) = match existing {
        Some(letter) => (letter.row_key, letter.error_message, Some(letter.last_failure_at)),
        None => {
            let now = app.now();
            let row_key = dead_letters::row_key(&message_id, now);
            let letter = DeadLetterRow {
                row_key: row_key.clone(),
                engine: INGRESS_ENGINE.to_owned(),
                instance_id: event.session().unwrap_or("-").to_owned(),
                original_queue: INGRESS_ENGINE.to_owned(),
                original_message: Value::Object(event.json.clone()).to_string(),
                error_message: reason.to_owned(),
                dequeue_count: 1,
                first_failure_at: now,
                last_failure_at: now,
                status: DeadLetterStatus::Pending,
                resolution_notes: None,
                resolved_at: None,
                resolved_by: None,
                correlation_id: correlation_id.to_owned(),
            };
            let write = PublicWrite::Put(letter.to_public_row(1));
            app.node().store().put(&dead_letters::SCHEMA, vec![write]).await?;
            app.node().metrics().dead_lettered.add(1);
            tracing::warn!(engine = INGRESS_ENGINE, row_key, correlation_id, reason, "event dead-lettered");
            (row_key, reason.to_owned(), None)
        }
    };
    Ok(EventReceiptJson {
        source: event.source.clone(),
        id: event.id.clone(),
        status: "deadLettered",
        entity_type: None,
        entity_key: None,
        position: None,
        instance_id: None,
        reason: Some(reason),
        dlq: Some(DeadLetterRefJson { engine: INGRESS_ENGINE, row_key }),
        first_answered_at_utc: first_answered_at.map(Text),
        window_ends_at_utc: None,
    })
}
