//! Reads all rows of an engine as of one point in time, and writes them into another one.
//!
//! How rows travel between the two is not known here: [`crate::backup`] copies them into a folder, [`crate::export`]
//! into a stream of bytes.

use fjall::{Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use super::Engine;
use crate::backup::StoreBackupError;

/// Rows of one keyspace, in key order: key and value.
pub(crate) type StoredRows = Vec<(fjall::UserKey, fjall::UserValue)>;

/// Rows are handed out in slices of about this size, or one larger row.
const SLICE_BYTES: usize = 1024 * 1024;

impl Engine {
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The keyspaces that a copy has, by number. The numbers are part of the format of [`crate::export`].
    fn copied_keyspaces(&self) -> [(u8, &Keyspace); 3] {
        [(1, &self.rows), (2, &self.public), (3, &self.index)]
    }

    /// Hands out one snapshot of all rows, slice by slice, with the number of their keyspace. Every row is read through
    /// its checksum.
    pub(crate) fn read_slices(
        &self,
        mut on_slice: impl FnMut(u8, &StoredRows) -> Result<(), StoreBackupError>,
    ) -> Result<(), StoreBackupError> {
        let snapshot = self.snapshot();
        for (number, keyspace) in self.copied_keyspaces() {
            let mut rows = StoredRows::new();
            let mut bytes = 0;
            for guard in snapshot.iter(keyspace) {
                let (key, value) = guard.into_inner().map_err(copy_error)?;
                bytes += key.len() + value.len();
                rows.push((key, value));
                if bytes >= SLICE_BYTES {
                    on_slice(number, &rows)?;
                    rows.clear();
                    bytes = 0;
                }
            }
            if !rows.is_empty() {
                on_slice(number, &rows)?;
            }
        }
        Ok(())
    }

    /// Writes rows of a copy; [`Engine::finish_copy`] makes them durable.
    pub(crate) fn write_rows<'r>(
        &self,
        number: u8,
        rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
    ) -> Result<(), StoreBackupError> {
        let known = self.copied_keyspaces().into_iter().find(|(known, _)| *known == number);
        let unknown = || StoreBackupError::Copy { reason: format!("unknown kind of rows: {number}") };
        let (_, keyspace) = known.ok_or_else(unknown)?;
        if !self.wait_for_write_capacity() {
            return Err(copy_error(fjall::Error::Poisoned));
        }
        let mut batch = self.database.batch();
        for (key, value) in rows {
            batch.insert(keyspace, key, value);
        }
        batch.commit().map_err(copy_error)
    }

    /// Syncs a copy, and takes over what identifies the original: its incarnation, so that versions stay unique, and
    /// the secret of its tokens, if that is known, so that they stay valid.
    pub(crate) fn finish_copy(
        &self,
        incarnation: u64,
        secret: Option<&[u8; 64]>,
    ) -> Result<(), StoreBackupError> {
        self.database.persist(PersistMode::SyncAll).map_err(copy_error)?;
        let meta = self.database.keyspace("meta", KeyspaceCreateOptions::default).map_err(copy_error)?;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&meta, "incarnation", incarnation.to_be_bytes());
        if let Some(secret) = secret {
            batch.insert(&meta, "token-key", secret);
        }
        batch.commit().map_err(copy_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn copy_error(error: fjall::Error) -> StoreBackupError {
    StoreBackupError::Copy { reason: error.to_string() }
}
