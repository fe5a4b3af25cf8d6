//! Which run an instance id and a run number lead to: the current one by the row of the id, one before it by its row among the earlier runs.
//!
//! Nothing is known here of what a run did, and nothing of it is read.

use abide_store::rows::{Partition, PrivateRows, StoreError};
use abide_store::tables::earlier_runs;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, RunNumber};

use super::{RunReader, ShowError};

/// A run of an instance that is kept.
#[derive(Clone, Debug)]
pub struct NumberedRun {
    /// Its instance.
    pub instance_id: InstanceId,
    /// Which life of the instance it is.
    pub run: RunNumber,
    /// The number the shard gave it: all its rows are found by it.
    pub number: u64,
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// A run of an instance, the current one unless another is asked for; none if it was forgotten, or never was.
    pub async fn numbered(
        &self,
        partition: &Partition,
        id: &InstanceId,
        asked: Option<RunNumber>,
    ) -> Result<Option<NumberedRun>, ShowError> {
        let found = |run, number| NumberedRun { instance_id: id.clone(), run: RunNumber(run), number };
        let row = self.row(partition, id).await?;
        let current = match &row {
            Ok(Some(row)) if row.status != RunStatus::Purged => Some(found(row.run_number, row.run)),
            _ => None,
        };
        let is_meant = |run: &NumberedRun| asked.is_none_or(|asked| asked == run.run);
        if let Some(current) = current.filter(is_meant) {
            return Ok(Some(current));
        }
        if let Some(asked) = asked {
            let page = self.store.scan(partition, earlier_runs::youngest(id.as_str(), asked.0)).await;
            let page = page.map_err(|error| match error {
                StoreError::Corrupt { .. } => ShowError::unreadable(error.to_string()),
                error => error.into(),
            })?;
            if let Some(row) = page.rows.first() {
                let key = earlier_runs::read_key(&row.key)
                    .map_err(|error| ShowError::unreadable(error.to_string()));
                let (_, run, number) = key?;
                return Ok(Some(found(run, number)));
            }
        }
        // What cannot be read may be the run that is asked for.
        row.map_err(|unreadable| ShowError::Unreadable(Box::new(unreadable)))?;
        Ok(None)
    }
}
