//! Retires versions of definitions, and reverts a retirement.
//!
//! Runs are not known here. The server checks for live runs after the version is marked, when no new run can pick it
//! any more; if it finds one, it reverts the retirement. A start that picked the version before may still come: it is
//! served.

use abide_store::rows::{Batch, CommitOutcome, PrivateRows};
use abide_store::tables::default_versions::{self, DefaultVersionRow};
use abide_store::tables::definitions::DefinitionRow;
use abide_store::tables::encode;
use abide_workflow::Timestamp;
use semver::Version;

use super::{ATTEMPTS_MAX, DefinitionError, Definitions, definition_key, is_outcome_unknown};

/// The outcome of retiring a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetireOutcome {
    /// The version was retired at this time. The time identifies the retirement if it is to be reverted.
    New(Timestamp),
    /// The version was already retired.
    Already,
}

impl<S: PrivateRows> Definitions<S> {
    /// Retires a version, which must not be the default: no new run picks it. Live runs of it go on and still find
    /// their plan.
    pub async fn retire(
        &self,
        id: &str,
        version: &Version,
        now: Timestamp,
    ) -> Result<RetireOutcome, DefinitionError> {
        let (key, default_key) = (definition_key(id, version), default_versions::key(id));
        let mut outcome_unknown = false;
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, row_version)) = self.read::<DefinitionRow>(&key).await? else {
                return Err(DefinitionError::NotFound { id: id.to_owned(), wanted: version.to_string() });
            };
            if let Some(at) = row.retired_at {
                // After an unknown outcome the retirement may be ours.
                let is_ours = outcome_unknown && at == now;
                return Ok(if is_ours { RetireOutcome::New(now) } else { RetireOutcome::Already });
            }
            row.retired_at = Some(now);
            let mut batch = Batch::checked().replace(key.clone(), row_version, encode(&row));
            // The default is written unchanged: it must not become this version in the meantime.
            if let Some((stored, default_version)) = self.read::<DefaultVersionRow>(&default_key).await? {
                if stored.version == version.to_string() {
                    return Err(DefinitionError::IsDefault { id: id.to_owned(), version: version.clone() });
                }
                batch = batch.replace(default_key.clone(), default_version, encode(&stored));
            }
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(RetireOutcome::New(now)),
                outcome => outcome_unknown |= is_outcome_unknown(outcome)?,
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Reverts the retirement of this time, because there are live runs or they could not be counted. A version that
    /// another caller retired stays retired.
    pub async fn revert_retirement(
        &self,
        id: &str,
        version: &Version,
        retired_at: Timestamp,
    ) -> Result<(), DefinitionError> {
        let key = definition_key(id, version);
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, row_version)) = self.read::<DefinitionRow>(&key).await? else { return Ok(()) };
            if row.retired_at != Some(retired_at) {
                return Ok(());
            }
            row.retired_at = None;
            let batch = Batch::checked().replace(key.clone(), row_version, encode(&row));
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(()),
                outcome => drop(is_outcome_unknown(outcome)?),
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Returns an error if the version is retired. The server calls it before a restart, which uses the version of the
    /// last run without [resolving](Self::resolve) one.
    pub async fn check_not_retired(&self, id: &str, version: &Version) -> Result<(), DefinitionError> {
        match self.row(id, version).await?.retired_at {
            Some(_) => Err(DefinitionError::Retired { id: id.to_owned(), version: version.clone() }),
            None => Ok(()),
        }
    }
}
