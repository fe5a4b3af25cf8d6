//! A run's history and its present, as people ask for them.

use abide_store::rows::{Partition, Passed, PrivateRows, Row, StoreError, scan_past_damage};
use abide_store::tables::decode;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::pages::{self, Page};
use abide_workflow::{InstanceId, RunNumber, Timestamp};
use serde_json::value::RawValue;

use super::{RunReader, UnreadableRun};
use crate::request::{RunView, ViewStatus};
use crate::shard::view_of_stored;

/// Some of a run's history.
#[derive(Debug, Default)]
pub struct HistoryPage {
    /// Events as JSON, in order.
    pub events: Vec<Box<RawValue>>,
    /// Where the first event is that is left, if there is one.
    pub next: Option<HistoryPlace>,
}

/// A place in a run's history. Found again without reading what is before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryPlace {
    /// The run it is in: another run of the instance has another history.
    pub run: RunNumber,
    /// The page.
    pub page: u64,
    /// Events of the page that come before it.
    pub event: u32,
}

impl HistoryPlace {
    /// Where the history of a run begins.
    pub fn first(run: RunNumber) -> Self {
        Self { run, page: 1, event: 0 }
    }
}

/// Why an instance cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// It is there and cannot be read.
    #[error("the instance cannot be read: {}", .0.reason)]
    Unreadable(Box<UnreadableRun>),
    /// The store could not say.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ShowError {
    /// Something of it cannot be read.
    pub(super) fn unreadable(reason: String) -> Self {
        Self::Unreadable(Box::new(UnreadableRun { row: None, last_page: 0, last_event: 0, reason }))
    }
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// The current run of an instance. A run that cannot be read is shown as far as its row goes.
    pub async fn view(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<RunView>, UnreadableRun>, StoreError> {
        let unreadable = match self.run(partition, id).await? {
            Ok(stored) => {
                let there = stored.filter(|stored| stored.row.status != RunStatus::Purged);
                return Ok(Ok(there.as_ref().map(view_of_stored)));
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
            run: RunNumber(row.run_number),
            workflow: row.definition.clone(),
            version: row.version.clone(),
            status,
            input: abide_workflow::json::Json::default(),
            output: None,
            error: None,
            correlation_id: row.correlation_id.clone(),
            entity_id: row.entity_id.clone(),
            created_at: Timestamp(row.created_at),
            updated_at: Timestamp(row.updated_at),
            current_states: Vec::new(),
        })))
    }

    /// Events of a run from this place on, or of the current run from its beginning on, at most so many; none if the run was forgotten. Nothing
    /// is left out: what cannot be read is an error when its turn comes.
    pub async fn history(
        &self,
        partition: &Partition,
        id: &InstanceId,
        from: Option<HistoryPlace>,
        events_max: usize,
    ) -> Result<Option<HistoryPage>, ShowError> {
        let Some(run) = self.numbered(partition, id, from.map(|from| from.run)).await? else {
            return Ok(None);
        };
        let from = from.unwrap_or(HistoryPlace::first(run.run));
        let mut found = HistoryPage::default();
        match self.collect(partition, run.number, from, events_max, &mut found).await? {
            Ok(next) => found.next = next,
            // What comes before it is shown; whoever goes on is told.
            Err((place, _)) if !found.events.is_empty() => found.next = Some(place),
            Err((_, reason)) => {
                return Err(ShowError::unreadable(reason));
            }
        }
        Ok(Some(found))
    }

    /// Collects events until there are enough; where to go on, or where and why not. The outer error is the store's: ask again.
    async fn collect(
        &self,
        partition: &Partition,
        run: u64,
        mut place: HistoryPlace,
        events_max: usize,
        found: &mut HistoryPage,
    ) -> Result<Result<Option<HistoryPlace>, (HistoryPlace, String)>, StoreError> {
        const BYTES_MAX: usize = 2 * 1024 * 1024;
        let mut bytes = 0;
        let mut next = Some(pages::after(run, place.page.saturating_sub(1)).at_most(events_max.max(1)));
        while let Some(scan) = next {
            let Passed { page, damage } = scan_past_damage(self.store, partition, scan).await?;
            if let Some(damage) = damage {
                return Ok(Err((place, damage.to_string())));
            }
            for row in page.rows {
                let events = match events_of(&row, place.page) {
                    Ok(events) => events,
                    Err(reason) => return Ok(Err((place, reason))),
                };
                for event in events.into_iter().skip(place.event as usize) {
                    bytes += event.get().len();
                    let enough = found.events.len() >= events_max || bytes > BYTES_MAX;
                    if enough && !found.events.is_empty() {
                        return Ok(Ok(Some(place)));
                    }
                    found.events.push(event);
                    place.event += 1;
                }
                place = HistoryPlace { page: place.page.saturating_add(1), event: 0, ..place };
            }
            next = page.next;
        }
        Ok(Ok(None))
    }
}

/// The events of a page, which must be the one that is expected.
fn events_of(row: &Row, expected: u64) -> Result<Vec<Box<RawValue>>, String> {
    let (_, number) = pages::read_key(&row.key).map_err(|error| error.to_string())?;
    if number != expected {
        return Err(format!("page {expected} is missing"));
    }
    let page: Page = decode(&row.value).map_err(|error| format!("page {number}: {error}"))?;
    if page.events_count == 0 {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&page.events).map_err(|error| format!("page {number}: {error}"))
}
