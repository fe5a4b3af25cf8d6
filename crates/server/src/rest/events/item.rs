//! What a sender is told of each event, and the dead letter of one that has nowhere to go.

use abide_runtime::Repeat;
use abide_runtime::entity::{INGRESS, Operated, session_key};
use abide_runtime::hands::Store;
use abide_store::public::PublicWrite;
use abide_store::tables::dedupe::CLOUD_EVENT;
use abide_store::tables::engine_dlq::{self, DeadLetter, DeadLetterStatus};
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::cloud_event::CloudEvent;
use crate::app::App;
use crate::envelope::Text;
use crate::error::ApiError;

/// The answer to a request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TakenEvents")]
pub(super) struct Accepted {
    pub(super) accepted: usize,
    pub(super) items: Vec<ItemJson>,
}

/// The answer to one event.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TakenEvent")]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemJson {
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
    dlq: Option<DlqJson>,
    /// When it was answered first, if it came before.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_answered_at_utc: Option<Text<Timestamp>>,
    /// Until when it is known if it comes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ends_at_utc: Option<Text<Timestamp>>,
}

/// Where a dead letter is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterPlace")]
#[serde(rename_all = "camelCase")]
struct DlqJson {
    engine: &'static str,
    row_key: String,
}

impl ItemJson {
    pub(super) fn taken(event: &CloudEvent, run: Option<&str>, operated: &Operated) -> Self {
        let output: Value = serde_json::from_str(&operated.output).unwrap_or_default();
        let entity_type = output.get("entityType").and_then(Value::as_str);
        Self {
            source: event.source.clone(),
            id: event.id.clone(),
            status: if operated.repeated { "duplicate" } else { "recorded" },
            entity_type: entity_type.map(str::to_owned),
            entity_key: event.session().map(str::to_owned),
            position: output.get("position").and_then(Value::as_u64),
            instance_id: run.map(str::to_owned),
            reason: None,
            dlq: None,
            first_answered_at_utc: operated.repeated.then_some(Text(operated.done_at)),
            window_ends_at_utc: operated.repeats_until.map(Text),
        }
    }
}

/// What an event is recognised by when it comes again: its source and id, within its session. The same two in another session are another event: what is
/// known of them lies elsewhere.
pub(super) fn digest(event: &CloudEvent) -> [u8; 32] {
    let session = event.session().unwrap_or_default();
    Repeat::digest(&[event.source.as_bytes(), event.id.as_bytes(), session.as_bytes()])
}

/// What tells an event from others wherever it is kept.
pub(super) fn message_id(event: &CloudEvent) -> String {
    let digest = digest(event);
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// An event that nobody can do anything with: a dead letter, durable before the sender is told. One that came before is left as it is, and one that was
/// recorded when its type still had a route is answered as it was then.
pub(super) async fn give_up<S: Store>(
    app: &App<S>,
    event: &CloudEvent,
    reason: &str,
) -> Result<ItemJson, ApiError> {
    let now = app.now();
    if let Some(session) = event.session() {
        let (key, digest) = (session_key(session), digest(event));
        let recall = app.node().recall_operation(&key, CLOUD_EVENT, &digest);
        if let Some(operated) = app.in_time(recall).await?? {
            return Ok(ItemJson::taken(event, None, &Operated { repeated: true, ..operated }));
        }
    }
    // By what the event says of itself, so that the same event is the same letter.
    let row_key = engine_dlq::row_key(&message_id(event), event.at().unwrap_or(0));
    let there = app.node().store().get(&engine_dlq::SCHEMA, &engine_dlq::key(INGRESS, &row_key)).await?;
    let known = there.as_ref().and_then(|row| DeadLetter::from_row(row).ok());
    let (reason, answered_at) = match known {
        Some(letter) => (letter.error_message, Some(Timestamp(letter.last_failure_at))),
        None => {
            let letter = DeadLetter {
                row_key: row_key.clone(),
                engine: INGRESS.to_owned(),
                instance_id: event.session().unwrap_or("-").to_owned(),
                original_queue: INGRESS.to_owned(),
                original_message: Value::Object(event.whole.clone()).to_string(),
                error_message: reason.to_owned(),
                dequeue_count: 1,
                first_failure_at: now.0,
                last_failure_at: now.0,
                status: DeadLetterStatus::Pending,
                resolution_notes: None,
                resolved_at: None,
                resolved_by: None,
                correlation_id: event.correlation().unwrap_or(&event.id).to_owned(),
            };
            let write = PublicWrite::Put(letter.to_row(1));
            app.node().store().put(&engine_dlq::SCHEMA, vec![write]).await?;
            app.node().metrics().dead_lettered.add(1);
            (reason.to_owned(), None)
        }
    };
    Ok(ItemJson {
        source: event.source.clone(),
        id: event.id.clone(),
        status: "deadLettered",
        entity_type: None,
        entity_key: None,
        position: None,
        instance_id: None,
        reason: Some(reason),
        dlq: Some(DlqJson { engine: INGRESS, row_key }),
        first_answered_at_utc: answered_at.map(Text),
        window_ends_at_utc: None,
    })
}
