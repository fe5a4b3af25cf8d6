//! Taking a version out of use, and back into it.
//!
//! Whether runs of a version live is asked elsewhere, after it was marked: no new run picks it then. Who finds one takes the mark back.

use abide_store::rows::{Batch, CommitOutcome, PrivateRows};
use abide_store::tables::default_versions::{self, DefaultVersion};
use abide_store::tables::definitions::Definition;
use abide_store::tables::encode;
use abide_workflow::Timestamp;
use semver::Version;

use super::{ATTEMPTS_MAX, DefinitionError, Definitions, again, definition_key};

/// What became of a retirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retirement {
    /// It is retired now, with this mark.
    New(Timestamp),
    /// It was retired before.
    Already,
}

impl<S: PrivateRows> Definitions<S> {
    /// Takes a version out of use: no new run picks it. Not the default one. Runs of it that live go on.
    pub async fn retire(
        &self,
        id: &str,
        version: &Version,
        now: Timestamp,
    ) -> Result<Retirement, DefinitionError> {
        let (key, default) = (definition_key(id, version), default_versions::key(id));
        let mut asked = false;
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, published)) = self.read::<Definition>(&key).await? else {
                return Err(DefinitionError::Unknown { id: id.to_owned(), wanted: version.to_string() });
            };
            if let Some(at) = row.retired_at {
                // After an unknown outcome it may be ours.
                let ours = asked && at == now.0;
                return Ok(if ours { Retirement::New(now) } else { Retirement::Already });
            }
            row.retired_at = Some(now.0);
            let mut batch = Batch::checked().replace(key.clone(), published, encode(&row));
            // The default is written unchanged: it must not become this one meanwhile.
            if let Some((there, before)) = self.read::<DefaultVersion>(&default).await? {
                if there.version == version.to_string() {
                    return Err(DefinitionError::IsDefault { id: id.to_owned(), version: version.clone() });
                }
                batch = batch.replace(default.clone(), before, encode(&there));
            }
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(Retirement::New(now)),
                outcome => asked |= again(outcome)?,
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Takes the mark of a retirement back, if it is this one: a version that others have retired stays so.
    pub async fn take_back(
        &self,
        id: &str,
        version: &Version,
        mark: Timestamp,
    ) -> Result<(), DefinitionError> {
        let key = definition_key(id, version);
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut row, published)) = self.read::<Definition>(&key).await? else { return Ok(()) };
            if row.retired_at != Some(mark.0) {
                return Ok(());
            }
            row.retired_at = None;
            let batch = Batch::checked().replace(key.clone(), published, encode(&row));
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => return Ok(()),
                outcome => drop(again(outcome)?),
            }
        }
        Err(DefinitionError::Busy { id: id.to_owned() })
    }

    /// Refuses a version that is retired.
    pub async fn check_in_use(&self, id: &str, version: &Version) -> Result<(), DefinitionError> {
        match self.stored(id, version).await?.retired_at {
            Some(_) => Err(DefinitionError::Retired { id: id.to_owned(), version: version.clone() }),
            None => Ok(()),
        }
    }
}
