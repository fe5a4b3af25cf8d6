//! Runs the same random operations on several stores at once: every store must return the same result.
//!
//! It does not know which result is right. Stores assign different versions, so operations refer to a version by its
//! meaning: the version that a row has now, or one that it had before.

use std::collections::HashMap;

use abide_ids::Timestamp;

use super::harness::join_all;
use super::queries::{LEDGER, entry};
use crate::Store;
use crate::memory::SeededRng;
use crate::public::{CellValue, PublicKey, PublicQuery, PublicWrite};
use crate::rows::{Batch, CommitOutcome, Key, Partition, RowVersion, Scan};

/// A store under comparison, and the versions and tokens it has returned.
#[derive(Debug)]
pub struct ComparedStore<'s, S> {
    store: &'s S,
    known: KnownVersions,
}

/// The versions and tokens that a store has returned, by their meaning. They stay valid after a restart of the store.
#[derive(Debug, Default)]
pub struct KnownVersions {
    current: HashMap<(Partition, Key), RowVersion>,
    former: HashMap<(Partition, Key), RowVersion>,
    tokens: HashMap<usize, Option<String>>,
}

impl<'s, S: Store> ComparedStore<'s, S> {
    /// Compares a store that must be empty.
    pub fn new(store: &'s S) -> Self {
        Self::with_known(store, KnownVersions::default())
    }

    /// Compares a store that was reopened.
    pub fn with_known(store: &'s S, known: KnownVersions) -> Self {
        Self { store, known }
    }

    /// The versions and tokens that the store has returned so far.
    pub fn into_known(self) -> KnownVersions {
        self.known
    }

    /// Runs one operation and describes its result in words that are the same for every store.
    pub async fn run(&mut self, operation: &RandomOperation) -> String {
        match operation {
            RandomOperation::Commit { partition, fence, writes } => {
                let batch = self.prepare(partition, *fence, writes);
                let keys = keys_of(&batch);
                let outcome = self.store.commit(partition, batch).await;
                self.record_outcome(partition, keys, outcome)
            }
            RandomOperation::Read { partition, key } => {
                let row = self.store.read(partition, key).await;
                let current = self.known.current.get(&(partition.clone(), key.clone()));
                match row {
                    Ok(None) => format!("nothing, known: {}", current.is_some()),
                    Ok(Some(row)) => {
                        format!("{:?}, version known: {}", row.value, current == Some(&row.version))
                    }
                    Err(error) => format!("{error}"),
                }
            }
            RandomOperation::Scan { partition, scan } => match self.store.scan(partition, scan.clone()).await
            {
                Ok(page) => {
                    let rows = page.rows.iter().map(|row| (&row.key, &row.value));
                    format!("{:?} then {:?}", rows.collect::<Vec<_>>(), page.next)
                }
                Err(error) => format!("{error}"),
            },
            RandomOperation::Put(writes) => format!("{:?}", self.store.put(&LEDGER, writes.clone()).await),
            RandomOperation::Get(key) => format!("{:?}", self.store.get(&LEDGER, key).await),
            RandomOperation::Query { query, walk } => self.query(query, *walk).await,
        }
    }

    /// Runs commits and puts that were all prepared before any of them returned, as with many concurrent writers. A
    /// store must treat them as if they had been made one after the other, in this order.
    pub async fn run_concurrently(&mut self, operations: &[RandomOperation]) -> Vec<String> {
        enum PlayedOutcome {
            Commit(Partition, Vec<Key>, CommitOutcome),
            Put(String),
        }
        let store = self.store;
        let run = async |operation: &RandomOperation, batch: Option<Batch>| match (operation, batch) {
            (RandomOperation::Commit { partition, .. }, Some(batch)) => {
                let keys = keys_of(&batch);
                PlayedOutcome::Commit(partition.clone(), keys, store.commit(partition, batch).await)
            }
            (RandomOperation::Put(writes), _) => {
                PlayedOutcome::Put(format!("{:?}", store.put(&LEDGER, writes.clone()).await))
            }
            _ => PlayedOutcome::Put("only commits and puts run concurrently".to_owned()),
        };
        let prepared = operations.iter().map(|operation| match operation {
            RandomOperation::Commit { partition, fence, writes } => {
                Some(self.prepare(partition, *fence, writes))
            }
            _ => None,
        });
        let prepared: Vec<Option<Batch>> = prepared.collect();
        let running = operations.iter().zip(prepared).map(|(operation, batch)| run(operation, batch));
        let outcomes = join_all(running.collect()).await;
        let descriptions = outcomes.into_iter().map(|outcome| match outcome {
            PlayedOutcome::Commit(partition, keys, outcome) => self.record_outcome(&partition, keys, outcome),
            PlayedOutcome::Put(description) => description,
        });
        descriptions.collect()
    }

    /// Reads one page. Stores may differ in having a next page, because a store may only know that there are rows left
    /// to examine. So the description says if a next page has rows.
    async fn query(&mut self, query: &PublicQuery, walk: usize) -> String {
        let continuation = self.known.tokens.remove(&walk).flatten();
        let page = match self.store.query(&LEDGER, &query.clone().continue_from(continuation)).await {
            Ok(page) => page,
            Err(error) => return format!("{error}"),
        };
        let mut next = page.continuation;
        while let Some(token) = &next {
            match self.store.query(&LEDGER, &query.clone().continue_from(Some(token.clone()))).await {
                Ok(peeked) if peeked.rows.is_empty() => next = peeked.continuation,
                Ok(_) => break,
                Err(error) => return format!("a token that was just returned: {error}"),
            }
        }
        let more = next.is_some();
        self.known.tokens.insert(walk, next);
        format!("{:?}, more: {more}", page.rows)
    }

    /// The batch of an operation, with the versions of this store.
    fn prepare(&self, partition: &Partition, fence: Option<VersionRef>, writes: &[RandomWrite]) -> Batch {
        let head = Key::new("head");
        let at = |key: &Key, named: VersionRef| {
            let place = (partition.clone(), key.clone());
            match named {
                VersionRef::Current => self.known.current.get(&place).cloned(),
                VersionRef::Former => self.known.former.get(&place).cloned(),
                VersionRef::Absent => None,
            }
        };
        let mut batch = match fence {
            Some(named) => Batch::fenced(head.clone(), at(&head, named), vec![1]),
            None => Batch::checked(),
        };
        for change in writes {
            let key = change.key.clone();
            batch = match (change.expect.map(|named| at(&key, named)), change.value.clone()) {
                (None, Some(value)) => batch.put(key, value),
                (None, None) => batch.delete(key),
                (Some(None), value) => batch.create(key, value.unwrap_or_default()),
                (Some(Some(version)), Some(value)) => batch.replace(key, version, value),
                (Some(Some(version)), None) => batch.delete_if_at(key, version),
            };
        }
        batch
    }

    /// Describes the outcome of a batch and records its versions.
    fn record_outcome(&mut self, partition: &Partition, keys: Vec<Key>, outcome: CommitOutcome) -> String {
        match outcome {
            CommitOutcome::Committed(receipt) => {
                let shape: Vec<bool> = receipt.row_versions.iter().map(Option::is_some).collect();
                if let Some(version) = receipt.head_version {
                    self.record_version(partition, Key::new("head"), Some(version));
                }
                for (key, version) in keys.into_iter().zip(receipt.row_versions) {
                    self.record_version(partition, key, version);
                }
                format!("committed {shape:?}")
            }
            other => format!("{other:?}"),
        }
    }

    fn record_version(&mut self, partition: &Partition, key: Key, version: Option<RowVersion>) {
        let place = (partition.clone(), key);
        let before = match version {
            Some(version) => self.known.current.insert(place.clone(), version),
            None => self.known.current.remove(&place),
        };
        if let Some(before) = before {
            self.known.former.insert(place, before);
        }
    }
}

fn keys_of(batch: &Batch) -> Vec<Key> {
    batch.writes.iter().map(|write| write.key.clone()).collect()
}

/// A version by its meaning.
#[derive(Clone, Copy, Debug)]
pub enum VersionRef {
    /// The version that the row has.
    Current,
    /// A version that the row had before.
    Former,
    /// No version: the row must not exist.
    Absent,
}

/// One write of a random commit.
#[derive(Clone, Debug)]
pub struct RandomWrite {
    key: Key,
    value: Option<Vec<u8>>,
    expect: Option<VersionRef>,
}

#[derive(Clone, Debug)]
pub enum RandomOperation {
    Commit {
        partition: Partition,
        /// The expected version of the head; `None` for a commit without a fence.
        fence: Option<VersionRef>,
        writes: Vec<RandomWrite>,
    },
    Read {
        partition: Partition,
        key: Key,
    },
    /// Reads one page of a scan.
    Scan {
        partition: Partition,
        scan: Scan,
    },
    /// Writes rows of a public table.
    Put(Vec<PublicWrite>),
    /// Reads one row of a public table.
    Get(PublicKey),
    /// Reads one page of a public table, after the last page of the same walk.
    Query {
        query: PublicQuery,
        walk: usize,
    },
}

/// Generates operations on few partitions and few keys, so that they often conflict.
#[derive(Debug)]
pub struct OperationGenerator(SeededRng);

impl OperationGenerator {
    /// The same operations for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    pub fn operation(&mut self) -> RandomOperation {
        match self.0.below(20) {
            0..=7 => self.commit(),
            8..=10 => RandomOperation::Read { partition: self.partition(), key: self.key() },
            11..=13 => self.scan(),
            14..=15 => {
                let count = 1 + self.0.below(4);
                RandomOperation::Put((0..count).map(|_| self.public_write()).collect())
            }
            16 => RandomOperation::Get(self.public_key()),
            _ => self.query(),
        }
    }

    /// Commits and puts for [`ComparedStore::run_concurrently`].
    pub fn group(&mut self) -> Vec<RandomOperation> {
        let count = 2 + self.0.below(12);
        let one = |generator: &mut Self| match generator.0.below(3) {
            0 => RandomOperation::Put((0..2).map(|_| generator.public_write()).collect()),
            _ => generator.commit(),
        };
        (0..count).map(|_| one(self)).collect()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    fn partition(&mut self) -> Partition {
        super::harness::partition(if self.one_in(3) { "p" } else { "p1" })
    }

    fn key(&mut self) -> Key {
        match self.0.below(12) {
            0 => Key::new("head"),
            1 => Key::new([]),
            2 => Key::new([0xff, 0xff]),
            number => Key::new([
                b'a',
                u8::try_from(number % 5).unwrap_or(0),
                u8::try_from(self.0.below(4)).unwrap_or(0),
            ]),
        }
    }

    fn named(&mut self) -> VersionRef {
        match self.0.below(6) {
            0 => VersionRef::Former,
            1 | 2 => VersionRef::Absent,
            _ => VersionRef::Current,
        }
    }

    fn commit(&mut self) -> RandomOperation {
        let fence = if self.one_in(3) {
            None
        } else if self.one_in(8) {
            Some(self.named())
        } else {
            Some(VersionRef::Current)
        };
        let count = self.0.below(6);
        let writes = (0..count).map(|_| {
            let blind = if fence.is_some() { !self.one_in(4) } else { self.one_in(30) };
            RandomWrite {
                key: self.key(),
                value: (!self.one_in(4)).then(|| {
                    vec![
                        u8::try_from(self.0.below(256)).unwrap_or(0);
                        usize::try_from(self.0.below(60)).unwrap_or(0)
                    ]
                }),
                expect: (!blind).then(|| self.named()),
            }
        });
        RandomOperation::Commit { writes: writes.collect(), partition: self.partition(), fence }
    }

    fn scan(&mut self) -> RandomOperation {
        let from = self.key();
        let until = self.key();
        let mut scan = match self.0.below(3) {
            0 => Scan::all(),
            1 => Scan::prefix(from.as_bytes()),
            _ => Scan::range(from, until),
        };
        if self.one_in(2) {
            scan = scan.backwards();
        }
        scan = scan.limit(usize::try_from(self.0.below(12)).unwrap_or(1));
        RandomOperation::Scan { partition: self.partition(), scan }
    }

    fn public_key(&mut self) -> PublicKey {
        PublicKey { partition: format!("e{}", self.0.below(3)), row: format!("r{}", self.0.below(40)) }
    }

    fn public_write(&mut self) -> PublicWrite {
        let key = self.public_key();
        if self.one_in(6) {
            return PublicWrite::Delete { key, revision: self.0.below(5) };
        }
        let at = self.0.below(30).cast_signed() - 5;
        let status = format!("s{}", self.0.below(3));
        let mut row = entry(&key.row, at, &key.partition, &status);
        row.revision = self.0.below(5);
        if self.one_in(2) {
            row.columns.insert("Note".to_owned(), CellValue::Text(format!("n{}", self.0.below(4))));
        }
        PublicWrite::Put(row)
    }

    fn query(&mut self) -> RandomOperation {
        let walk = usize::try_from(self.0.below(6)).unwrap_or(0);
        // A walk mostly repeats the same query, so that its pages continue each other while rows change.
        let mut rng = SeededRng::new(walk as u64 + if self.one_in(10) { 100 } else { 0 });
        let mut query = PublicQuery { oldest_first: rng.below(2) == 0, limit: 3, ..PublicQuery::default() };
        for (column, letter, count) in [("Engine", 'e', 3), ("Status", 's', 3), ("Note", 'n', 4)] {
            if rng.below(3) == 0 {
                query = query.filter(column, &format!("{letter}{}", rng.below(count)));
            }
        }
        if rng.below(3) == 0 {
            query.from = Some(Timestamp(rng.below(20).cast_signed()));
        }
        if rng.below(3) == 0 {
            query.until = Some(Timestamp(rng.below(20).cast_signed()));
        }
        RandomOperation::Query { query, walk }
    }
}
