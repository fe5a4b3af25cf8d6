//! Reads a run's history and its current view, for clients.
//!
//! Nothing is written here. A history never has holes: events that cannot be read are an error, not left out.

use abide_ids::{PageNumber, RunId};
use abide_store::rows::{Partition, PrivateRows, Row, StoreError, TolerantPage, scan_past_damage};
use abide_store::tables::decode;
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, RunNumber};
use serde_json::value::RawValue;

use super::{RunReader, UnreadableRun};
use crate::request::{RunView, ViewStatus};
use crate::run::view::view_of_stored;

/// A page of a run's history.
#[derive(Debug, Default)]
pub struct HistoryPage {
    /// Events as JSON, in order.
    pub events: Vec<Box<RawValue>>,
    /// The position of the next event, if there is one.
    pub next_cursor: Option<HistoryCursor>,
}

/// A position in a run's history. It is found without reading the events before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryCursor {
    /// Each run of an instance has its own history.
    pub run_number: RunNumber,
    pub page: PageNumber,
    /// The number of events of the page before this position.
    pub event_offset: u32,
}

impl HistoryCursor {
    /// The start of a run's history.
    pub fn start_of(run_number: RunNumber) -> Self {
        Self { run_number, page: PageNumber::FIRST, event_offset: 0 }
    }
}

/// The reason why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RunReadError {
    /// The run exists but cannot be read.
    #[error("the instance cannot be read: {}", .0.reason)]
    Unreadable(Box<UnreadableRun>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RunReadError {
    /// A part of the run cannot be read.
    pub(super) fn unreadable(reason: String) -> Self {
        Self::Unreadable(Box::new(UnreadableRun {
            row: None,
            last_page: PageNumber::ZERO,
            last_event: None,
            reason,
        }))
    }
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// The current run of an instance; none if it was purged. A run that cannot be read is shown as far as its row can
    /// tell: as terminated if the row says so, otherwise as parked, even if the shard has not parked it yet.
    pub async fn view(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<RunView>, UnreadableRun>, StoreError> {
        let unreadable = match self.load_run(partition, id).await? {
            Ok(stored) => {
                let existing = stored.filter(|stored| stored.row.status != RunStatus::Purged);
                return Ok(Ok(existing.as_ref().map(view_of_stored)));
            }
            Err(unreadable) => unreadable,
        };
        let Some(row) = &unreadable.row else { return Ok(Err(unreadable)) };
        if row.status == RunStatus::Purged {
            return Ok(Ok(None));
        }
        let status = match row.status {
            RunStatus::Terminated => ViewStatus::Run(abide_workflow::Status::Terminated),
            _ => ViewStatus::Parked(unreadable.reason.clone()),
        };
        Ok(Ok(Some(RunView {
            instance_id: id.clone(),
            run_number: row.run_number,
            workflow: row.definition_id.clone(),
            version: row.version.clone(),
            status,
            input: abide_workflow::json::Json::default(),
            output: None,
            error: None,
            correlation_id: row.correlation_id.clone(),
            entity_id: row.entity_id.clone(),
            entity_type: row.entity_type.as_deref().map(str::to_owned),
            created_at: row.created_at,
            updated_at: row.updated_at,
            current_states: Vec::new(),
            compensation: None,
        })))
    }

    /// Events of a run from a position on, or of the current run from its start; none if the run was deleted. Nothing
    /// is left out: an unreadable event is an error when the reader reaches it.
    pub async fn history(
        &self,
        partition: &Partition,
        id: &InstanceId,
        from: Option<HistoryCursor>,
        events_max: usize,
    ) -> Result<Option<HistoryPage>, RunReadError> {
        let Some(run) = self.find_run(partition, id, from.map(|from| from.run_number)).await? else {
            return Ok(None);
        };
        let from = from.unwrap_or(HistoryCursor::start_of(run.run_number));
        let mut page = HistoryPage::default();
        match self.collect_events(partition, run.run_id, from, events_max, &mut page).await? {
            Ok(next) => page.next_cursor = next,
            // The events before the damage are returned; the next request gets the error.
            Err((cursor, _)) if !page.events.is_empty() => page.next_cursor = Some(cursor),
            Err((_, reason)) => {
                return Err(RunReadError::unreadable(reason));
            }
        }
        Ok(Some(page))
    }

    /// Collects events until there are enough. Returns the position to continue from, or the position and the reason
    /// where the history cannot be read. The outer error is the store's: the caller should retry.
    async fn collect_events(
        &self,
        partition: &Partition,
        run: RunId,
        mut cursor: HistoryCursor,
        events_max: usize,
        collected: &mut HistoryPage,
    ) -> Result<Result<Option<HistoryCursor>, (HistoryCursor, String)>, StoreError> {
        const BYTES_MAX: usize = 2 * 1024 * 1024;
        let mut bytes = 0;
        let mut next = Some(history_pages::after_page(run, cursor.page.previous()).limit(events_max.max(1)));
        while let Some(scan) = next {
            let TolerantPage { page, damage } = scan_past_damage(self.store, partition, scan).await?;
            if let Some(damage) = damage {
                return Ok(Err((cursor, damage.to_string())));
            }
            for row in page.rows {
                let events = match decode_page_events(&row, cursor.page) {
                    Ok(events) => events,
                    Err(reason) => return Ok(Err((cursor, reason))),
                };
                for event in events.into_iter().skip(cursor.event_offset as usize) {
                    bytes += event.get().len();
                    let is_full = collected.events.len() >= events_max || bytes > BYTES_MAX;
                    if is_full && !collected.events.is_empty() {
                        return Ok(Ok(Some(cursor)));
                    }
                    collected.events.push(event);
                    cursor.event_offset += 1;
                }
                cursor = HistoryCursor { page: cursor.page.next(), event_offset: 0, ..cursor };
            }
            next = page.next;
        }
        Ok(Ok(None))
    }
}

/// The events of a page, which must have the expected number.
fn decode_page_events(row: &Row, expected: PageNumber) -> Result<Vec<Box<RawValue>>, String> {
    let (_, number) = history_pages::read_key(&row.key).map_err(|error| error.to_string())?;
    if number != expected {
        return Err(format!("history page {expected} is missing"));
    }
    let page: HistoryPageRow =
        decode(&row.value).map_err(|error| format!("history page {number}: {error}"))?;
    // A page without events has no JSON at all.
    if page.event_count == 0 {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&page.events).map_err(|error| format!("history page {number}: {error}"))
}
