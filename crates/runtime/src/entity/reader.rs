//! Entities as they are committed: one, its events, and all of them. Reads past the shard; what an answered operation did is seen.

use abide_store::rows::{Partition, PrivateRows, Scan, StoreError};
use abide_store::tables::entities::{self, Entity};
use abide_store::tables::entity_events::{self, EntityEvent};
use abide_store::tables::{Table, TableError, decode};
use abide_workflow::Timestamp;
use serde_json::value::RawValue;

use super::EntityId;

/// Why an entity cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EntityReadError {
    /// A row is damaged.
    #[error("the entity cannot be read: {0}")]
    Damaged(#[from] TableError),
    /// The store could not say.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads entities of one partition.
#[derive(Debug)]
pub struct EntityReader<'r, S> {
    /// Where they lie.
    pub store: &'r S,
    /// In which partition.
    pub partition: &'r Partition,
}

/// An entity, as people see it.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityView {
    /// Its own state, as JSON text, if its kind has one.
    pub state: Option<String>,
    /// Events that are there.
    pub event_count: u64,
    /// The position of the first of them, or of the next one.
    pub first_position: u64,
    /// The position the next event gets.
    pub next_position: u64,
    /// Operations it has taken.
    pub operations: u64,
    /// When it took the last one.
    pub updated_at: Timestamp,
    generation: u64,
}

/// One event.
#[derive(Debug)]
pub struct RecordedEvent {
    /// Its place among all events of the entity, from 0; never used again.
    pub position: u64,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The event.
    pub event: Box<RawValue>,
}

/// Some of an entity's events, in order.
#[derive(Debug, Default)]
pub struct EventsPage {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// The position of the first one that is left, if there is one.
    pub next: Option<u64>,
}

/// An entity in a list.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedEntity {
    /// Which.
    pub entity: EntityId,
    /// As it is.
    pub view: EntityView,
}

/// Bytes of events in one page.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

impl<S: PrivateRows> EntityReader<'_, S> {
    /// One entity, if it has ever taken an operation.
    pub async fn view(&self, entity: &EntityId) -> Result<Option<EntityView>, EntityReadError> {
        let key = entities::key(entity.kind(), entity.key());
        let Some(row) = self.store.read(self.partition, &key).await? else { return Ok(None) };
        Ok(Some(view_of(&decode(&row.value)?)))
    }

    /// Events from a position on, at most so many.
    pub async fn events(
        &self,
        view: &EntityView,
        from: u64,
        events_max: usize,
    ) -> Result<EventsPage, EntityReadError> {
        let (mut page, mut bytes) = (EventsPage::default(), 0);
        let from = from.max(view.first_position);
        let mut next = Some(entity_events::from_position(view.generation, from));
        while let Some(scan) = next {
            let scanned = self.store.scan(self.partition, scan.at_most(events_max.saturating_add(1))).await?;
            for row in scanned.rows {
                let (_, position) = entity_events::read_key(&row.key)?;
                // What came after the look at the entity is for the next look.
                if position >= view.next_position {
                    return Ok(page);
                }
                let stored: EntityEvent = decode(&row.value)?;
                bytes += stored.event.len();
                if page.events.len() == events_max || bytes > PAGE_BYTES_MAX && !page.events.is_empty() {
                    page.next = Some(position);
                    return Ok(page);
                }
                page.events.push(RecordedEvent {
                    position,
                    recorded_at: Timestamp(stored.recorded_at),
                    event: raw(stored.event)?,
                });
            }
            next = scanned.next;
        }
        Ok(page)
    }

    /// Entities of the partition in the order of type and key: of one type, or of all, after one, at most so many.
    pub async fn list(
        &self,
        kind: Option<&str>,
        after: Option<&EntityId>,
        most: usize,
    ) -> Result<Vec<ListedEntity>, EntityReadError> {
        let mut scan = kind.map_or_else(|| Table::Entity.scan(), entities::of_type);
        // One of another type is not in this list: it must not let the scan begin elsewhere.
        if let Some(after) = after.filter(|after| kind.is_none_or(|kind| kind == after.kind())) {
            scan = Scan { from: std::ops::Bound::Excluded(entities::key(after.kind(), after.key())), ..scan };
        }
        let mut found = Vec::new();
        let mut next = Some(scan.at_most(most));
        while let Some(scan) = next.filter(|_| found.len() < most) {
            let scanned = self.store.scan(self.partition, scan).await?;
            for row in scanned.rows {
                let (kind, key) = entities::read_key(&row.key)?;
                let Ok(entity) = EntityId::new(&kind, key) else { continue };
                found.push(ListedEntity { entity, view: view_of(&decode(&row.value)?) });
            }
            next = scanned.next;
        }
        found.truncate(most);
        Ok(found)
    }
}

fn view_of(row: &Entity) -> EntityView {
    EntityView {
        state: String::from_utf8(row.state.clone()).ok().filter(|state| !state.is_empty()),
        event_count: row.next_position.saturating_sub(row.first_position),
        first_position: row.first_position,
        next_position: row.next_position,
        operations: row.operations,
        updated_at: Timestamp(row.updated_at),
        generation: row.generation,
    }
}

fn raw(event: Vec<u8>) -> Result<Box<RawValue>, TableError> {
    let damaged = || TableError::Value { table: Table::EntityEvent, reason: "it is not JSON".to_owned() };
    let text = String::from_utf8(event).map_err(|_| damaged())?;
    RawValue::from_string(text).map_err(|_| damaged())
}
