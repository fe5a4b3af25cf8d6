//! A run's history and its present, as people ask for them.

use abide_store::rows::{Partition, PrivateRows, StoreError};
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
    /// The number of the first event that is left, if there is one.
    pub next: Option<u64>,
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

    /// Events of the current run from this number on, at most so many.
    pub async fn history(
        &self,
        partition: &Partition,
        id: &InstanceId,
        from: u64,
        events_max: usize,
    ) -> Result<Result<Option<HistoryPage>, UnreadableRun>, StoreError> {
        let row = match self.row(partition, id).await? {
            Ok(Some(row)) if row.status != RunStatus::Purged => row,
            Ok(_) => return Ok(Ok(None)),
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        const BYTES_MAX: usize = 2 * 1024 * 1024;
        let (mut found, mut bytes) = (HistoryPage::default(), 0);
        let mut next = Some(pages::of_run(row.run));
        while let Some(scan) = next {
            let scanned = self.store.scan(partition, scan).await?;
            for stored in scanned.rows {
                let Ok(page) = decode::<Page>(&stored.value) else { continue };
                if page.events_count == 0 || page.first_event + u64::from(page.events_count) <= from {
                    continue;
                }
                let events: Vec<Box<RawValue>> = serde_json::from_slice(&page.events).unwrap_or_default();
                for (event, sequence) in events.into_iter().zip(page.first_event..) {
                    if sequence < from {
                        continue;
                    }
                    bytes += event.get().len();
                    if found.events.len() == events_max || bytes > BYTES_MAX && !found.events.is_empty() {
                        found.next = Some(sequence);
                        return Ok(Ok(Some(found)));
                    }
                    found.events.push(event);
                }
            }
            next = scanned.next;
        }
        Ok(Ok(Some(found)))
    }
}
