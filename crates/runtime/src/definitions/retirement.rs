//! Retires versions of definitions, and reverts a retirement.
//!
//! Runs are not known here. The caller checks for live runs after the version is marked, when no new run can pick it
//! any more; if it finds one, it reverts the retirement.

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
    /// The version was retired, with this mark.
    New(Timestamp),
    /// The version was already retired.
    Already,
}

impl<S: PrivateRows> Definitions<S> {
    /// Retires a version, which must not be the default: no new run picks it. Its live runs continue.
    pub async fn retire(
        &self,
        id: &str,
        version: &Version,
        now: Timestamp,
    ) -> Result<RetireOutcome, DefinitionError> {
        let (key, default) = (definition_key(id, version), default_versions::key(id));
        let mut may_be_written = false;
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, published)) = self.read::<DefinitionRow>(&key).await? else {
                return Err(DefinitionError::NotFound { id: id.to_owned(), wanted: version.to_string() });
            };
            if let Some(at) = row.retired_at {
                // After an unknown outcome the mark may be ours.
                let is_ours = may_be_written && at == now;
                return Ok(if is_ours { RetireOutcome::New(now) } else { RetireOutcome::Already });
            }
            row.retired_at = Some(now);
            let mut batch = Batch::checked().replace(key.clone(), published, encode(&row));
            // The default is written unchanged: it must not become this version in the meantime.
            if let Some((stored, before)) = self.read::<DefaultVersionRow>(&default).await? {
                if stored.version == version.to_string() {
                    return Err(DefinitionError::IsDefault { id: id.to_owned(), version: version.clone() });
                }
                batch = batch.replace(default.clone(), before, encode(&stored));
            }
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(RetireOutcome::New(now)),
                outcome => may_be_written |= is_outcome_unknown(outcome)?,
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Removes the mark of a retirement if it is this one: a version that another caller retired stays retired.
    pub async fn revert_retirement(
        &self,
        id: &str,
        version: &Version,
        mark: Timestamp,
    ) -> Result<(), DefinitionError> {
        let key = definition_key(id, version);
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, published)) = self.read::<DefinitionRow>(&key).await? else { return Ok(()) };
            if row.retired_at != Some(mark) {
                return Ok(());
            }
            row.retired_at = None;
            let batch = Batch::checked().replace(key.clone(), published, encode(&row));
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(()),
                outcome => drop(is_outcome_unknown(outcome)?),
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Returns an error if the version is retired.
    pub async fn check_not_retired(&self, id: &str, version: &Version) -> Result<(), DefinitionError> {
        match self.row(id, version).await?.retired_at {
            Some(_) => Err(DefinitionError::Retired { id: id.to_owned(), version: version.clone() }),
            None => Ok(()),
        }
    }
}
