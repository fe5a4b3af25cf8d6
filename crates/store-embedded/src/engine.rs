//! The engine and the layout of rows in it: with its submodule, the only file that calls fjall. Other files know its
//! errors, and three know its files ([`crate::journal_recovery`], [`crate::journal_frames`], [`crate::manifest`]).
//! Groups, replies and failures are the committer's business.
//!
//! ```text
//! keyspace `rows`    partition NUL key                → version (8 bytes) value
//! keyspaces `public`, `index`  see public_tables.rs
//! keyspace `meta`    `incarnation` → number of opens; `token-key` → secret of continuation tokens
//! ```
//! Index entries are deleted by weak tombstones. A weak tombstone vanishes together with its entry as soon as the two
//! meet, instead of slowing down scans until it reaches the last level. If an entry was written, deleted, written and
//! deleted again, an old one may reappear. So a scan of an index checks every entry against its row.
//!
//! Readers always use a snapshot that was taken between two groups. A plain read of the engine sees rows of a group as
//! they arrive in memory, and sometimes so does a snapshot taken during a group.
//!
//! A version is the incarnation and a counter, so none is ever reused, whatever a crash leaves behind.

mod copy;

use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use abide_store::public::TokenKey;
use abide_store::rows::{
    Direction, Key, Partition, Row, RowVersion, Scan, ScanPage, StoreError, StoreLimits,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot,
};

use crate::buffer_reclaimer::WriteBuffer;
use crate::engine_error::{corrupt, read_error};
use crate::length_recorder::LengthRecorder;
use crate::options::{EmbeddedOptions, SyncMode};

pub(crate) use copy::StoredRows;

pub(crate) struct Engine {
    /// Ends before the database is closed.
    length_recorder: Option<LengthRecorder>,
    database: Database,
    rows: Keyspace,
    public: Keyspace,
    index: Keyspace,
    /// The snapshot after the last group. The engine's own newest snapshot may be in the middle of a group: flushes and
    /// compactions advance it while a group is applied.
    published_snapshot: RwLock<Snapshot>,
    /// Held while a group is applied.
    apply_lock: Mutex<()>,
    /// The sizes at which the buffers of rows, public rows and index entries are full.
    buffer_bytes: [u64; 3],
    incarnation: u64,
    token_key: TokenKey,
}

/// The changes of one group, each key once: the engine gives all of them one sequence number, so two changes of one key
/// would have no order.
#[derive(Default)]
pub(crate) struct GroupChanges {
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub public: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Entries that did not exist before.
    pub added_index_entries: Vec<Vec<u8>>,
    /// Entries that existed before.
    pub removed_index_entries: Vec<Vec<u8>>,
}

/// The size of all journals at which the engine flushes the buffers that keep the oldest journal. It determines how
/// long opening takes after a crash.
const JOURNAL_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The index buffer is small, because scans pass over the entries of deleted rows until their buffer is flushed. It is
/// not smaller, because each flush stops readers and writers for some syncs: four times as many flushes cost a tenth of
/// all CPU.
const INDEX_BUFFER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A key that no row or entry of a public table has: tables are numbered from 1.
const DELETION_MARK: [u8; 1] = [0];

/// What the journal needs for an item beside its key and value.
const ITEM_BYTES: usize = 21;

const VERSION_BYTES: usize = 8;
const COUNTER_BITS: u32 = 40;

impl Engine {
    pub(crate) fn open(folder: &Path, options: &EmbeddedOptions) -> fjall::Result<Self> {
        let database = Database::builder(folder)
            .cache_size(options.cache_bytes)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            // With more threads, the first one spins while another compacts: a tenth of all CPU in a profile.
            .worker_threads(1)
            .open()?;
        let keyspace = |name, buffer_bytes| {
            database.keyspace(name, || KeyspaceCreateOptions::default().max_memtable_size(buffer_bytes))
        };
        let index_buffer_bytes = options.write_buffer_bytes.min(INDEX_BUFFER_BYTES_MAX);
        let rows = keyspace("rows", options.write_buffer_bytes)?;
        let public = keyspace("public", options.write_buffer_bytes)?;
        let meta = keyspace("meta", options.write_buffer_bytes)?;
        let index = keyspace("index", index_buffer_bytes)?;
        let buffer_bytes = [options.write_buffer_bytes, options.write_buffer_bytes, index_buffer_bytes];

        // Salvage may have left out the stored incarnation; the versions of the rows tell which incarnations there
        // were.
        let last = match read_fixed(&meta, "incarnation")?.map(u64::from_be_bytes) {
            Some(last) if !options.salvage => last,
            stored => stored.unwrap_or(0).max(last_incarnation(&rows)?),
        };
        let incarnation = last + 1;
        let mut secret = [0; 64];
        match read_fixed(&meta, "token-key")? {
            Some(bytes) => secret = bytes,
            None => getrandom::fill(&mut secret).map_err(|error| std::io::Error::other(error.to_string()))?,
        }
        let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&meta, "incarnation", incarnation.to_be_bytes());
        batch.insert(&meta, "token-key", secret);
        batch.commit()?;
        let published = RwLock::new(database.snapshot());
        let applying = Mutex::new(());
        let token_key = TokenKey::new(secret);
        Ok(Self {
            length_recorder: None,
            database,
            rows,
            public,
            index,
            published_snapshot: published,
            apply_lock: applying,
            buffer_bytes,
            incarnation,
            token_key,
        })
    }

    /// From now on the recorder learns of every group.
    pub(crate) fn attach_recorder(&mut self, recorder: LengthRecorder) {
        self.length_recorder = Some(recorder);
    }

    /// Why the synced length of the journal is not recorded, if so.
    pub(crate) fn length_record_failure(&self) -> Option<String> {
        self.length_recorder.as_ref().and_then(LengthRecorder::failure)
    }

    pub(crate) fn token_key(&self) -> &TokenKey {
        &self.token_key
    }

    /// The version of the rows of a commit in this incarnation. Counters start at 1.
    pub(crate) fn commit_version(&self, counter: u64) -> u64 {
        (self.incarnation << COUNTER_BITS) | (counter & ((1 << COUNTER_BITS) - 1))
    }

    /// Writes all changes in one journal entry. Returns when they are as durable as `sync` requires; only then can they
    /// be read.
    pub(crate) fn apply(&self, changes: GroupChanges, sync: SyncMode) -> fjall::Result<()> {
        let mode = match sync {
            SyncMode::EveryCommit => PersistMode::SyncData,
            SyncMode::OperatingSystem => PersistMode::Buffer,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        let mut bytes = 0;
        for (keyspace, changes) in [(&self.rows, changes.rows), (&self.public, changes.public)] {
            for (key, value) in changes {
                bytes += ITEM_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
                match value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
        }
        for entry in changes.added_index_entries {
            bytes += ITEM_BYTES + entry.len();
            batch.insert(&self.index, entry, []);
        }
        if !changes.removed_index_entries.is_empty() {
            // Flushed weak tombstones leave nothing behind, but the engine deletes a journal only when a file has
            // something as new as the journal's content. This mark is that something. Public rows need one too: their
            // last level drops tombstones.
            batch.insert(&self.index, DELETION_MARK, []);
            batch.insert(&self.public, DELETION_MARK, []);
        }
        for entry in changes.removed_index_entries {
            bytes += ITEM_BYTES + entry.len();
            batch.remove_weak(&self.index, entry);
        }
        let _applying = self.apply_lock.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.length_recorder {
            None => batch.commit()?,
            Some(recorder) => {
                recorder.group_begins();
                batch.commit().inspect_err(|_| recorder.group_failed())?;
                recorder.group_is_durable(bytes as u64);
            }
        }
        self.publish_snapshot();
        Ok(())
    }

    /// Makes the present state visible to readers. The caller must hold `apply_lock`, so that no group is being
    /// applied.
    fn publish_snapshot(&self) {
        let snapshot = self.database.snapshot();
        *self.published_snapshot.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// The buffers that are being filled.
    pub(crate) fn active_buffers(&self) -> [WriteBuffer; 3] {
        [
            self.rows.tree.active_memtable(),
            self.public.tree.active_memtable(),
            self.index.tree.active_memtable(),
        ]
    }

    /// All groups up to the last complete one, and nothing of the next.
    fn snapshot(&self) -> Snapshot {
        self.published_snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if background work failed; the engine then accepts no more writes.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.database.persist(PersistMode::Buffer).is_err()
    }

    /// Waits until the engine has capacity for another batch; false if it never will. At four full buffers or thirty
    /// new files the engine itself waits inside a commit, without checking that its workers are still running. This
    /// wait prevents that.
    pub(crate) fn wait_for_write_capacity(&self) -> bool {
        const FULL_BUFFERS_MAX: usize = 2;
        const NEW_FILES_MAX: usize = 26;
        // The engine replaces a full buffer when it has time, and it has none while it merges files.
        const OVERFULL: u64 = 4;
        let busy = |keyspace: &Keyspace, buffer_bytes: u64| {
            keyspace.sealed_memtable_count() >= FULL_BUFFERS_MAX
                || keyspace.tree.l0_run_count() >= NEW_FILES_MAX
                || keyspace.tree.active_memtable().size() >= OVERFULL * buffer_bytes
        };
        let [rows, public, index] = self.buffer_bytes;
        while busy(&self.rows, rows) || busy(&self.public, public) || busy(&self.index, index) {
            if self.is_poisoned() {
                return false;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        true
    }

    /// Reads without a snapshot. Only for the committer: as the only writer, it cannot see half of a group.
    pub(crate) fn stored_version(&self, stored_key: &[u8]) -> fjall::Result<Option<u64>> {
        Ok(self.rows.get(stored_key)?.and_then(|stored| split_version(&stored).map(|(version, _)| version)))
    }

    pub(crate) fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let stored = self.snapshot().get(&self.rows, stored_key(partition, key.as_bytes()));
        let stored = stored.map_err(|error| read_error(&error, partition, key))?;
        let damaged = || corrupt(partition, key.clone(), TOO_SHORT.to_owned());
        stored.map(|stored| decode_row(key.clone(), &stored).ok_or_else(damaged)).transpose()
    }

    pub(crate) fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        let mut page = ScanPage { rows: Vec::new(), next: None };
        if scan.is_empty() {
            return Ok(page);
        }
        let prefix = stored_key(partition, b"");
        let mut range = self.snapshot().range(&self.rows, stored_range(partition, &scan));
        let mut bytes = 0;
        loop {
            let guard = match scan.direction {
                Direction::Forwards => range.next(),
                Direction::Backwards => range.next_back(),
            };
            let Some(guard) = guard else { return Ok(page) };
            let last = page.rows.last().map_or_else(|| Key::new([]), |row| row.key.clone());
            if page.rows.len() >= scan.page_rows_max() || bytes >= StoreLimits::SCAN_BYTES_MAX {
                page.next = Some(scan.resume_after(last));
                return Ok(page);
            }
            let (key, value) = guard.into_inner().map_err(|error| read_error(&error, partition, &last))?;
            let key = Key::new(key.get(prefix.len()..).unwrap_or_default());
            bytes += key.as_bytes().len() + value.len();
            let row =
                decode_row(key, &value).ok_or_else(|| corrupt(partition, last, TOO_SHORT.to_owned()))?;
            page.rows.push(row);
        }
    }

    /// Reads without a snapshot. Only for the committer: as the only writer, it cannot see half of a group.
    pub(crate) fn public_get(&self, key: &[u8]) -> fjall::Result<Option<Vec<u8>>> {
        Ok(self.public.get(key)?.map(|value| value.to_vec()))
    }

    /// A snapshot of the public tables. A snapshot keeps its buffers alive, even after they were flushed. So a new one
    /// is taken if no group is being applied; otherwise every query of an idle store would scan all deleted entries in
    /// those buffers.
    pub(crate) fn public_snapshot(&self) -> PublicSnapshot<'_> {
        if let Ok(_applying) = self.apply_lock.try_lock() {
            self.publish_snapshot();
        }
        PublicSnapshot { snapshot: self.snapshot(), public: &self.public, index: &self.index }
    }
}

/// Reads a value of fixed length; another length is damage, not absence.
fn read_fixed<const N: usize>(keyspace: &Keyspace, key: &str) -> fjall::Result<Option<[u8; N]>> {
    let damaged =
        |_| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{key} has the wrong length"));
    let stored = keyspace.get(key)?;
    Ok(stored.map(|value| value.as_ref().try_into().map_err(damaged)).transpose()?)
}

/// The highest incarnation in which a row was written.
fn last_incarnation(rows: &Keyspace) -> fjall::Result<u64> {
    let mut last = 0;
    for guard in rows.iter() {
        let value = guard.value()?;
        last = last.max(split_version(&value).map_or(0, |(version, _)| version >> COUNTER_BITS));
    }
    Ok(last)
}

/// A snapshot of the public tables.
pub(crate) struct PublicSnapshot<'e> {
    snapshot: Snapshot,
    public: &'e Keyspace,
    index: &'e Keyspace,
}

impl PublicSnapshot<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> fjall::Result<Option<Vec<u8>>> {
        Ok(self.snapshot.get(self.public, key)?.map(|value| value.to_vec()))
    }

    /// The first row whose key begins with these bytes, and its key.
    pub(crate) fn first(&self, prefix: &[u8]) -> fjall::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(guard) = self.snapshot.prefix(self.public, prefix).next() else { return Ok(None) };
        let (key, value) = guard.into_inner()?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    pub(crate) fn index_keys(
        &self,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> impl DoubleEndedIterator<Item = fjall::Result<Vec<u8>>> {
        self.snapshot.range(self.index, range).map(|guard| guard.key().map(|key| key.to_vec()))
    }
}

/// The key of a row among the rows of all partitions. Partition names have no control characters, so NUL ends them.
pub(crate) fn stored_key(partition: &Partition, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(partition.name().len() + 1 + key.len());
    stored.extend_from_slice(partition.name().as_bytes());
    stored.push(0);
    stored.extend_from_slice(key);
    stored
}

pub(crate) fn stored_value(version: u64, value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(VERSION_BYTES + value.len());
    stored.extend_from_slice(&version.to_be_bytes());
    stored.extend_from_slice(value);
    stored
}

pub(crate) fn split_version(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (version, value) = stored.split_first_chunk()?;
    Some((u64::from_be_bytes(*version), value))
}

fn stored_range(partition: &Partition, scan: &Scan) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let stored = |bound: &Bound<Key>| bound.as_ref().map(|key| stored_key(partition, key.as_bytes()));
    let from = match stored(&scan.from) {
        Bound::Unbounded => Bound::Included(stored_key(partition, b"")),
        bound => bound,
    };
    let until = match stored(&scan.until) {
        Bound::Unbounded => {
            let mut end = partition.name().as_bytes().to_vec();
            end.push(1);
            Bound::Excluded(end)
        }
        bound => bound,
    };
    (from, until)
}

const TOO_SHORT: &str = "it is too short to contain a version";

fn decode_row(key: Key, stored: &[u8]) -> Option<Row> {
    let (version, value) = split_version(stored)?;
    Some(Row { key, value: value.to_vec(), version: RowVersion::from_bytes(&version.to_be_bytes()) })
}
