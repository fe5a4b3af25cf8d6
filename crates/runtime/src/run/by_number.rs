//! Finds a run by instance id and run number: the current run by the row of the id, an earlier one by its earlier-run
//! row.
//!
//! The run itself is not read. History, lists of calls and the purge of earlier runs begin with it.

use abide_ids::RunId;
use abide_store::rows::{Partition, PrivateRows, StoreError};
use abide_store::tables::earlier_runs;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, RunNumber};

use super::{RunReadError, RunReader};

/// A stored run of an instance, by its number and its id.
#[derive(Clone, Debug)]
pub struct RunRef {
    pub instance_id: InstanceId,
    pub run_number: RunNumber,
    /// Given by the shard; the keys of all rows of the run contain it.
    pub run_id: RunId,
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// The run with this number, or the current run. None if it was deleted or never existed.
    pub async fn find_run(
        &self,
        partition: &Partition,
        id: &InstanceId,
        run_number: Option<RunNumber>,
    ) -> Result<Option<RunRef>, RunReadError> {
        let run_ref = |number, run_id| RunRef { instance_id: id.clone(), run_number: number, run_id };
        let row = self.instance_row(partition, id).await?;
        let current = match &row {
            Ok(Some(row)) if row.status != RunStatus::Purged => Some(run_ref(row.run_number, row.run_id)),
            _ => None,
        };
        let is_wanted = |run: &RunRef| run_number.is_none_or(|wanted| wanted == run.run_number);
        if let Some(current) = current.filter(is_wanted) {
            return Ok(Some(current));
        }
        if let Some(wanted) = run_number {
            let page = self.store.scan(partition, earlier_runs::latest(id.as_str(), wanted)).await;
            let page = page.map_err(|error| match error {
                StoreError::Corrupt { .. } => RunReadError::unreadable(error.to_string()),
                error => error.into(),
            })?;
            if let Some(row) = page.rows.first() {
                let key = earlier_runs::read_key(&row.key)
                    .map_err(|error| RunReadError::unreadable(error.to_string()));
                let (_, number, run_id) = key?;
                return Ok(Some(run_ref(number, run_id)));
            }
        }
        // An unreadable row may belong to the wanted run.
        row.map_err(|unreadable| RunReadError::Unreadable(Box::new(unreadable)))?;
        Ok(None)
    }
}
