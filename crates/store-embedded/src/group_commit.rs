//! One group of commits that share a sync: each is checked against the engine and against the earlier commits of the
//! group.
//!
//! Nothing is written here and no reply is sent; [`crate::committer`] does both, with one `fdatasync` for the group. A
//! commit that conflicts with another commit of its group must not be reported as such before that other commit is
//! durable.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use abide_store::public::{PublicRow, PublicWrite, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, CommitReceipt, Key, Partition, Precondition, RowVersion};
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::engine::{Engine, GroupChanges, split_version, stored_key, stored_value};
use crate::public_tables;

pub(crate) struct CommitGroup<'e> {
    engine: &'e Engine,
    head_versions: &'e mut HeadVersions,
    /// In the order they were added: a batch is sorted, and neighbouring keys are faster to insert one after the other.
    rows: IndexMap<Vec<u8>, Option<Vec<u8>>, RandomState>,
    public: HashMap<Vec<u8>, PublicChange, RandomState>,
}

/// A public row before the group, and after the writes that are in the group so far.
struct PublicChange {
    table: &'static TableSchema,
    before: Option<PublicRow>,
    after: Option<PublicRow>,
}

/// The versions of heads that were committed recently. The committer is the only writer, so they cannot be stale.
/// Looking them up here instead of in the engine halves the cost of checking a commit.
#[derive(Default)]
pub(crate) struct HeadVersions(HashMap<Vec<u8>, u64, RandomState>);

impl HeadVersions {
    const ENTRIES_MAX: usize = 16 * 1024;

    fn remember(&mut self, key: Vec<u8>, version: u64) {
        if self.0.len() >= Self::ENTRIES_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, version);
    }
}

impl<'e> CommitGroup<'e> {
    pub(crate) fn new(engine: &'e Engine, head_versions: &'e mut HeadVersions) -> Self {
        Self { engine, head_versions, rows: IndexMap::default(), public: HashMap::default() }
    }

    /// The number of rows that the commits of the group change.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Adds a batch as commit number `counter`, or returns why it cannot be applied. `Committed` is valid once the
    /// group is durable.
    pub(crate) fn add(
        &mut self,
        partition: &Partition,
        batch: &Batch,
        counter: u64,
    ) -> Result<CommitOutcome, fjall::Error> {
        if let Some(fence) = &batch.fence {
            let expected = match &fence.expected_version {
                None => None,
                Some(version) => match version_number(version) {
                    Some(number) => Some(number),
                    None => return Ok(CommitOutcome::Fenced),
                },
            };
            if self.head_version(&stored_key(partition, fence.key.as_bytes()))? != expected {
                return Ok(CommitOutcome::Fenced);
            }
        }
        let mut conflicts: Vec<Key> = Vec::new();
        for write in &batch.writes {
            let holds = match &write.precondition {
                Precondition::Unchecked => true,
                Precondition::Absent => self.version(&stored_key(partition, write.key.as_bytes()))?.is_none(),
                Precondition::VersionIs(version) => {
                    let stored = self.version(&stored_key(partition, write.key.as_bytes()))?;
                    stored.is_some() && stored == version_number(version)
                }
            };
            if !holds {
                conflicts.push(write.key.clone());
            }
        }
        if !conflicts.is_empty() {
            return Ok(CommitOutcome::Conflict(conflicts));
        }

        let version = self.engine.commit_version(counter);
        let receipt_version = RowVersion::from_bytes(&version.to_be_bytes());
        let mut receipt =
            CommitReceipt { head_version: None, row_versions: Vec::with_capacity(batch.writes.len()) };
        if let Some(fence) = &batch.fence {
            let key = stored_key(partition, fence.key.as_bytes());
            self.head_versions.remember(key.clone(), version);
            self.rows.insert(key, Some(stored_value(version, &fence.value)));
            receipt.head_version = Some(receipt_version.clone());
        }
        for write in &batch.writes {
            receipt.row_versions.push(write.value.is_some().then(|| receipt_version.clone()));
            let key = stored_key(partition, write.key.as_bytes());
            // A head may also be written as an ordinary row; its remembered version would be stale.
            self.head_versions.0.remove(&key);
            self.rows.insert(key, write.value.as_ref().map(|value| stored_value(version, value)));
        }
        Ok(CommitOutcome::Committed(receipt))
    }

    /// Adds writes of a public table. They have been checked against its schema.
    pub(crate) fn put(
        &mut self,
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
    ) -> Result<(), fjall::Error> {
        for write in writes {
            let change = match self.public.entry(public_tables::row_key(table, write.key())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) => {
                    let stored = self.engine.public_get(vacant.key())?;
                    // A row that cannot be read cannot be replaced either: its index entries would be left behind.
                    let unreadable = || std::io::Error::from(std::io::ErrorKind::InvalidData);
                    let decode = |stored: Vec<u8>| public_tables::decode_row(&stored).ok_or_else(unreadable);
                    let before = stored.map(decode).transpose()?;
                    vacant.insert(PublicChange { table, after: before.clone(), before })
                }
            };
            match write {
                PublicWrite::Put(row) => {
                    if change.after.as_ref().is_none_or(|stored| row.revision >= stored.revision) {
                        change.after = Some(row);
                    }
                }
                PublicWrite::Delete { revision, .. } => {
                    change.after = change.after.take().filter(|stored| stored.revision > revision);
                }
            }
        }
        Ok(())
    }

    /// The rows and index entries that the group writes and deletes.
    pub(crate) fn into_changes(self) -> GroupChanges {
        let mut changes = GroupChanges { rows: self.rows.into_iter().collect(), ..GroupChanges::default() };
        for (key, change) in self.public {
            if change.before == change.after {
                continue;
            }
            let entries = |row: Option<&PublicRow>| -> Vec<Vec<u8>> {
                row.map(|row| public_tables::index_keys(change.table, row)).unwrap_or_default()
            };
            let mut removed = entries(change.before.as_ref());
            let mut added = entries(change.after.as_ref());
            // Only the difference: an entry that exists already is not written again. A row has few entries.
            if !removed.is_empty() && !added.is_empty() {
                let unchanged: Vec<Vec<u8>> = removed.extract_if(.., |entry| added.contains(entry)).collect();
                added.retain(|entry| !unchanged.contains(entry));
            }
            changes.removed_index_entries.append(&mut removed);
            changes.added_index_entries.append(&mut added);
            changes.public.push((key, change.after.as_ref().map(public_tables::encode_row)));
        }
        changes
    }

    fn head_version(&self, key: &[u8]) -> Result<Option<u64>, fjall::Error> {
        match self.head_versions.0.get(key) {
            Some(version) => Ok(Some(*version)),
            None => self.version(key),
        }
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>, fjall::Error> {
        match self.rows.get(key) {
            Some(pending) => Ok(pending.as_deref().and_then(split_version).map(|(version, _)| version)),
            None => self.engine.stored_version(key),
        }
    }
}

/// The number in a version of this backend; `None` for a version of another backend.
fn version_number(version: &RowVersion) -> Option<u64> {
    version.as_bytes().try_into().ok().map(u64::from_be_bytes)
}
