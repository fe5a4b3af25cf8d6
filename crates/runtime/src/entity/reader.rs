//! Reads committed entities: one entity, its events, or a list.
//!
//! The shard is bypassed: changes it has not committed yet are not seen, acknowledged ones are. The server reads for
//! clients, the node for entity activities.

use abide_store::rows::{Partition, PrivateRows, Scan, StoreError};
use abide_store::tables::entities::{self, EntityRow};
use abide_store::tables::entity_events::{self, EntityEventRow};
use abide_store::tables::{TableError, TableId, decode};
use abide_workflow::Timestamp;
use serde_json::value::RawValue;

use super::EntityId;

/// The reason why an entity cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EntityReadError {
    /// A row is damaged.
    #[error("a stored entity cannot be read: {0}")]
    Damaged(#[from] TableError),
    /// The store is unavailable or damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads entities of one partition.
#[derive(Debug)]
pub struct EntityReader<'r, S> {
    pub store: &'r S,
    pub partition: &'r Partition,
}

/// An entity as it is shown to clients.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityView {
    /// The state as JSON text, if the entity's kind has one.
    pub state: Option<String>,
    /// Events stored now.
    pub event_count: u64,
    /// The position of the first stored event, or of the next one if there are none.
    pub first_position: u64,
    pub next_position: u64,
    /// The number of operations that wrote the entity. Refused ones do not count, nor do those that changed nothing and
    /// had no idempotency key.
    pub operations: u64,
    /// The time of the last of them.
    pub updated_at: Timestamp,
    generation: u64,
}

#[derive(Debug)]
pub struct RecordedEvent {
    /// Numbers all events of the entity from 0; never reused.
    pub position: u64,
    pub recorded_at: Timestamp,
    pub event: Box<RawValue>,
}

/// A page of an entity's events, in order.
#[derive(Debug, Default)]
pub struct EntityEventsPage {
    pub events: Vec<RecordedEvent>,
    /// The position of the first event after this page, if there is one.
    pub next: Option<u64>,
}

/// An entity in a list.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedEntity {
    pub entity: EntityId,
    pub view: EntityView,
}

/// The most bytes of events in one page, if it has more than one event.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

impl<S: PrivateRows> EntityReader<'_, S> {
    /// One entity; none if no operation has written it yet.
    pub async fn view(&self, entity: &EntityId) -> Result<Option<EntityView>, EntityReadError> {
        let key = entities::key(entity.entity_type(), entity.key());
        let Some(row) = self.store.read(self.partition, &key).await? else { return Ok(None) };
        Ok(Some(view_of(&decode(&row.value)?)))
    }

    /// Every entity with this key, of whatever type, by looking for the key among the entities of each type that the
    /// partition has. None if there are more than `types_max` types.
    pub async fn with_key(
        &self,
        key: &str,
        types_max: usize,
    ) -> Result<Option<Vec<EntityId>>, EntityReadError> {
        let mut found = Vec::new();
        let mut types = TableId::Entity.scan();
        for _ in 0..types_max {
            let page = self.store.scan(self.partition, types.limit(1)).await?;
            let Some(first) = page.rows.first() else { return Ok(Some(found)) };
            let (entity_type, _) = entities::read_key(&first.key)?;
            let stored = self.store.read(self.partition, &entities::key(&entity_type, key)).await?;
            found.extend(stored.and_then(|_| EntityId::new(&entity_type, key).ok()));
            types = entities::after_type(&entity_type);
        }
        Ok(None)
    }

    /// Events from a position on, at most `events_max`, as the view has them: later ones are left out. Events that are
    /// cleared after the view was read may be missing.
    pub async fn events(
        &self,
        view: &EntityView,
        from: u64,
        events_max: usize,
    ) -> Result<EntityEventsPage, EntityReadError> {
        let mut page = EntityEventsPage::default();
        let mut bytes = 0;
        let from = from.max(view.first_position);
        let mut next = Some(entity_events::from_position(view.generation, from));
        while let Some(scan) = next {
            let scanned = self.store.scan(self.partition, scan.limit(events_max.saturating_add(1))).await?;
            for row in scanned.rows {
                let (_, position) = entity_events::read_key(&row.key)?;
                // Recorded after the entity was read: the view does not include it.
                if position >= view.next_position {
                    return Ok(page);
                }
                let stored: EntityEventRow = decode(&row.value)?;
                bytes += stored.event.len();
                if page.events.len() == events_max || bytes > PAGE_BYTES_MAX && !page.events.is_empty() {
                    page.next = Some(position);
                    return Ok(page);
                }
                page.events.push(RecordedEvent {
                    position,
                    recorded_at: stored.recorded_at,
                    event: raw_json(stored.event)?,
                });
            }
            next = scanned.next;
        }
        Ok(page)
    }

    /// Entities of the partition ordered by type and key: of one type or of all, after the given one, at most `most`.
    /// One unreadable row fails the whole list.
    pub async fn list(
        &self,
        entity_type: Option<&str>,
        after: Option<&EntityId>,
        most: usize,
    ) -> Result<Vec<ListedEntity>, EntityReadError> {
        let mut scan = entity_type.map_or_else(|| TableId::Entity.scan(), entities::of_type);
        // An entity of another type is not in this list: the scan must not start there.
        if let Some(after) =
            after.filter(|after| entity_type.is_none_or(|wanted| wanted == after.entity_type()))
        {
            scan = Scan {
                from: std::ops::Bound::Excluded(entities::key(after.entity_type(), after.key())),
                ..scan
            };
        }
        let mut listed = Vec::new();
        let mut next = Some(scan.limit(most));
        while let Some(scan) = next.filter(|_| listed.len() < most) {
            let scanned = self.store.scan(self.partition, scan).await?;
            for row in scanned.rows {
                let (entity_type, key) = entities::read_key(&row.key)?;
                let Ok(entity) = EntityId::new(&entity_type, key) else { continue };
                listed.push(ListedEntity { entity, view: view_of(&decode(&row.value)?) });
            }
            next = scanned.next;
        }
        listed.truncate(most);
        Ok(listed)
    }
}

fn view_of(row: &EntityRow) -> EntityView {
    EntityView {
        state: String::from_utf8(row.state.clone()).ok().filter(|state| !state.is_empty()),
        event_count: row.next_position.saturating_sub(row.first_position),
        first_position: row.first_position,
        next_position: row.next_position,
        operations: row.operation_count,
        updated_at: row.updated_at,
        generation: row.generation,
    }
}

fn raw_json(event: Vec<u8>) -> Result<Box<RawValue>, TableError> {
    let damaged = || TableError::InvalidValue { table: TableId::EntityEvent, reason: "not JSON".to_owned() };
    let text = String::from_utf8(event).map_err(|_| damaged())?;
    RawValue::from_string(text).map_err(|_| damaged())
}
