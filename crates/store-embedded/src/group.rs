//! One group of commits that share a sync: each is checked against the engine and against those before it in the group.
//!
//! Nothing is written here and nobody is answered: a commit that conflicts with another one of its group must not be told so
//! before that other one is durable.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use abide_store::public::{PublicRow, PublicWrite, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Expect, Key, Partition, Receipt, Version};
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::engine::{Changes, Engine, split_version, stored_key, stored_value};
use crate::public;

pub(crate) struct Group<'e> {
    engine: &'e Engine,
    heads: &'e mut Heads,
    /// In the order they came: a batch is sorted, and neighbours are quicker to insert one after the other.
    rows: IndexMap<Vec<u8>, Option<Vec<u8>>, RandomState>,
    public: HashMap<Vec<u8>, PublicChange, RandomState>,
}

/// A public row before the group and after what is in it so far.
struct PublicChange {
    table: &'static TableSchema,
    before: Option<PublicRow>,
    after: Option<PublicRow>,
}

/// The versions of heads that were committed last. The committer is the only writer, so they cannot be stale; looking them up
/// here instead of in the engine is half the cost of checking a commit.
#[derive(Default)]
pub(crate) struct Heads(HashMap<Vec<u8>, u64, RandomState>);

impl Heads {
    const KEPT_MAX: usize = 16 * 1024;

    fn keep(&mut self, key: Vec<u8>, version: u64) {
        if self.0.len() >= Self::KEPT_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, version);
    }
}

impl<'e> Group<'e> {
    pub(crate) fn new(engine: &'e Engine, heads: &'e mut Heads) -> Self {
        Self { engine, heads, rows: IndexMap::default(), public: HashMap::default() }
    }

    /// How many rows its commits change.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Takes a batch in as commit number `counter`, or says why not. `Committed` holds once the group is durable.
    pub(crate) fn add(
        &mut self,
        partition: &Partition,
        batch: &Batch,
        counter: u64,
    ) -> Result<CommitOutcome, fjall::Error> {
        if let Some(fence) = &batch.fence {
            let expected = match &fence.expect {
                None => None,
                Some(version) => match number(version) {
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
            let holds = match &write.expect {
                Expect::Anything => true,
                Expect::Absent => self.version(&stored_key(partition, write.key.as_bytes()))?.is_none(),
                Expect::At(version) => {
                    let there = self.version(&stored_key(partition, write.key.as_bytes()))?;
                    there.is_some() && there == number(version)
                }
            };
            if !holds {
                conflicts.push(write.key.clone());
            }
        }
        if !conflicts.is_empty() {
            return Ok(CommitOutcome::Conflict(conflicts));
        }

        let version = self.engine.version(counter);
        let receipt_version = Version::of_bytes(&version.to_be_bytes());
        let mut receipt = Receipt { head: None, rows: Vec::with_capacity(batch.writes.len()) };
        if let Some(fence) = &batch.fence {
            let key = stored_key(partition, fence.key.as_bytes());
            self.heads.keep(key.clone(), version);
            self.rows.insert(key, Some(stored_value(version, &fence.value)));
            receipt.head = Some(receipt_version.clone());
        }
        for write in &batch.writes {
            receipt.rows.push(write.value.is_some().then(|| receipt_version.clone()));
            let key = stored_key(partition, write.key.as_bytes());
            // A head may also be written as an ordinary row; what is remembered of it would be stale.
            self.heads.0.remove(&key);
            self.rows.insert(key, write.value.as_ref().map(|value| stored_value(version, value)));
        }
        Ok(CommitOutcome::Committed(receipt))
    }

    /// Takes writes of a public table in. They have been checked against its schema.
    pub(crate) fn put(
        &mut self,
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
    ) -> Result<(), fjall::Error> {
        for write in writes {
            let change = match self.public.entry(public::row_key(table, write.key())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) => {
                    let stored = self.engine.public_get(vacant.key())?;
                    // A row that cannot be read cannot be replaced either: its index entries would be left behind.
                    let unreadable = || std::io::Error::from(std::io::ErrorKind::InvalidData);
                    let decode = |stored: Vec<u8>| public::decode_row(&stored).ok_or_else(unreadable);
                    let before = stored.map(decode).transpose()?;
                    vacant.insert(PublicChange { table, after: before.clone(), before })
                }
            };
            match write {
                PublicWrite::Put(row) => {
                    if change.after.as_ref().is_none_or(|there| row.revision >= there.revision) {
                        change.after = Some(row);
                    }
                }
                PublicWrite::Delete { revision, .. } => {
                    change.after = change.after.take().filter(|there| there.revision > revision);
                }
            }
        }
        Ok(())
    }

    /// What the group writes.
    pub(crate) fn into_changes(self) -> Changes {
        let mut changes = Changes { rows: self.rows.into_iter().collect(), ..Changes::default() };
        for (key, change) in self.public {
            if change.before == change.after {
                continue;
            }
            let entries = |row: Option<&PublicRow>| -> Vec<Vec<u8>> {
                row.map(|row| public::index_keys(change.table, row)).unwrap_or_default()
            };
            let (mut gone, mut new) = (entries(change.before.as_ref()), entries(change.after.as_ref()));
            // Only the difference: an entry that is there already is not written again. A row has few of them.
            if !gone.is_empty() && !new.is_empty() {
                let kept: Vec<Vec<u8>> = gone.extract_if(.., |entry| new.contains(entry)).collect();
                new.retain(|entry| !kept.contains(entry));
            }
            changes.gone_entries.append(&mut gone);
            changes.new_entries.append(&mut new);
            changes.public.push((key, change.after.as_ref().map(public::encode_row)));
        }
        changes
    }

    fn head_version(&self, key: &[u8]) -> Result<Option<u64>, fjall::Error> {
        match self.heads.0.get(key) {
            Some(version) => Ok(Some(*version)),
            None => self.version(key),
        }
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>, fjall::Error> {
        match self.rows.get(key) {
            Some(pending) => Ok(pending.as_deref().and_then(split_version).map(|(version, _)| version)),
            None => self.engine.version_at(key),
        }
    }
}

/// The number inside a version of this backend; another backend's has none.
fn number(version: &Version) -> Option<u64> {
    version.as_bytes().try_into().ok().map(u64::from_be_bytes)
}
