//! The same random operations on several stores at once: every answer of every store must be the same.
//!
//! Stores give different versions, so operations name them by what they mean: the version this row has now, or one it once had.

use std::collections::HashMap;

use super::bench::together;
use super::queries::{LEDGER, entry};
use crate::Store;
use crate::memory::Dice;
use crate::public::{PublicKey, PublicWrite, Query, Value};
use crate::rows::{Batch, CommitOutcome, Key, Partition, Scan, Version};

/// A store under comparison, and what it has said.
#[derive(Debug)]
pub struct Side<'s, S> {
    store: &'s S,
    known: Known,
}

/// The versions and tokens a store has given, by what they mean; they outlive a restart of the store.
#[derive(Debug, Default)]
pub struct Known {
    current: HashMap<(Partition, Key), Version>,
    former: HashMap<(Partition, Key), Version>,
    tokens: HashMap<usize, Option<String>>,
}

impl<'s, S: Store> Side<'s, S> {
    /// This store, which must be empty.
    pub fn new(store: &'s S) -> Self {
        Self::knowing(store, Known::default())
    }

    /// This store, which has been opened again.
    pub fn knowing(store: &'s S, known: Known) -> Self {
        Self { store, known }
    }

    /// What it has said so far.
    pub fn into_known(self) -> Known {
        self.known
    }

    /// Plays one operation and tells what came of it, in words that are the same for every store.
    pub async fn play(&mut self, operation: &Operation) -> String {
        match operation {
            Operation::Commit { partition, fence, writes } => {
                let batch = self.prepare(partition, *fence, writes);
                let keys = keys_of(&batch);
                let outcome = self.store.commit(partition, batch).await;
                self.absorb(partition, keys, outcome)
            }
            Operation::Read { partition, key } => {
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
            Operation::Scan { partition, scan } => match self.store.scan(partition, scan.clone()).await {
                Ok(page) => {
                    let rows = page.rows.iter().map(|row| (&row.key, &row.value));
                    format!("{:?} then {:?}", rows.collect::<Vec<_>>(), page.next)
                }
                Err(error) => format!("{error}"),
            },
            Operation::Put(writes) => format!("{:?}", self.store.put(&LEDGER, writes.clone()).await),
            Operation::Get(key) => format!("{:?}", self.store.get(&LEDGER, key).await),
            Operation::Query { query, walk } => self.query(query, *walk).await,
        }
    }

    /// Plays commits and puts that were all decided upon before any of them was answered, as many writers at once do. A store must treat them as if
    /// they had come one after the other, in this order.
    pub async fn play_together(&mut self, operations: &[Operation]) -> Vec<String> {
        enum Answer {
            Commit(Partition, Vec<Key>, CommitOutcome),
            Put(String),
        }
        let store = self.store;
        let play = async |operation: &Operation, batch: Option<Batch>| match (operation, batch) {
            (Operation::Commit { partition, .. }, Some(batch)) => {
                let keys = keys_of(&batch);
                Answer::Commit(partition.clone(), keys, store.commit(partition, batch).await)
            }
            (Operation::Put(writes), _) => {
                Answer::Put(format!("{:?}", store.put(&LEDGER, writes.clone()).await))
            }
            _ => Answer::Put("only commits and puts are played together".to_owned()),
        };
        let prepared = operations.iter().map(|operation| match operation {
            Operation::Commit { partition, fence, writes } => Some(self.prepare(partition, *fence, writes)),
            _ => None,
        });
        let prepared: Vec<Option<Batch>> = prepared.collect();
        let playing = operations.iter().zip(prepared).map(|(operation, batch)| play(operation, batch));
        let answers = together(playing.collect()).await;
        let told = answers.into_iter().map(|answer| match answer {
            Answer::Commit(partition, keys, outcome) => self.absorb(&partition, keys, outcome),
            Answer::Put(told) => told,
        });
        told.collect()
    }

    /// One page. Whether there is a next one may differ (a store may only know that there are rows left to look at), so what counts
    /// is whether a next one has rows.
    async fn query(&mut self, query: &Query, walk: usize) -> String {
        let continuation = self.known.tokens.remove(&walk).flatten();
        let page = match self.store.query(&LEDGER, &query.clone().after(continuation)).await {
            Ok(page) => page,
            Err(error) => return format!("{error}"),
        };
        let mut next = page.continuation;
        while let Some(token) = &next {
            match self.store.query(&LEDGER, &query.clone().after(Some(token.clone()))).await {
                Ok(peeked) if peeked.rows.is_empty() => next = peeked.continuation,
                Ok(_) => break,
                Err(error) => return format!("a token just given: {error}"),
            }
        }
        let more = next.is_some();
        self.known.tokens.insert(walk, next);
        format!("{:?}, more: {more}", page.rows)
    }

    /// The batch that an operation means on this store.
    fn prepare(&self, partition: &Partition, fence: Option<Named>, writes: &[Change]) -> Batch {
        let head = Key::new("head");
        let at = |key: &Key, named: Named| {
            let place = (partition.clone(), key.clone());
            match named {
                Named::Current => self.known.current.get(&place).cloned(),
                Named::Former => self.known.former.get(&place).cloned(),
                Named::Absent => None,
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
                (Some(Some(version)), None) => batch.delete_at(key, version),
            };
        }
        batch
    }

    /// What came of a batch, and what is known by it.
    fn absorb(&mut self, partition: &Partition, keys: Vec<Key>, outcome: CommitOutcome) -> String {
        match outcome {
            CommitOutcome::Committed(receipt) => {
                let shape: Vec<bool> = receipt.rows.iter().map(Option::is_some).collect();
                if let Some(version) = receipt.head {
                    self.learn(partition, Key::new("head"), Some(version));
                }
                for (key, version) in keys.into_iter().zip(receipt.rows) {
                    self.learn(partition, key, version);
                }
                format!("committed {shape:?}")
            }
            other => format!("{other:?}"),
        }
    }

    fn learn(&mut self, partition: &Partition, key: Key, version: Option<Version>) {
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

/// A version by what it means.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// The one the row has.
    Current,
    /// One the row had.
    Former,
    /// None.
    Absent,
}

/// One write of a random commit.
#[derive(Clone, Debug)]
pub struct Change {
    key: Key,
    value: Option<Vec<u8>>,
    expect: Option<Named>,
}

/// One random operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A commit, fenced or not.
    Commit {
        /// Where.
        partition: Partition,
        /// Which head it expects.
        fence: Option<Named>,
        /// Its rows.
        writes: Vec<Change>,
    },
    /// A read.
    Read {
        /// Where.
        partition: Partition,
        /// Which row.
        key: Key,
    },
    /// A page of a scan.
    Scan {
        /// Where.
        partition: Partition,
        /// Which rows.
        scan: Scan,
    },
    /// Rows of a public table.
    Put(Vec<PublicWrite>),
    /// One row of a public table.
    Get(PublicKey),
    /// A page of a public table, continuing the last one of the same walk.
    Query {
        /// The question.
        query: Query,
        /// Whose continuation it uses.
        walk: usize,
    },
}

/// Draws operations: few partitions, few keys, so that they meet often.
#[derive(Debug)]
pub struct Draw(Dice);

impl Draw {
    /// The same operations for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    /// The next operation.
    pub fn operation(&mut self) -> Operation {
        match self.0.below(20) {
            0..=7 => self.commit(),
            8..=10 => Operation::Read { partition: self.partition(), key: self.key() },
            11..=13 => self.scan(),
            14..=15 => {
                let count = 1 + self.0.below(4);
                Operation::Put((0..count).map(|_| self.public_write()).collect())
            }
            16 => Operation::Get(self.public_key()),
            _ => self.query(),
        }
    }

    /// Commits and puts for [`Side::play_together`].
    pub fn group(&mut self) -> Vec<Operation> {
        let count = 2 + self.0.below(12);
        let one = |draw: &mut Self| match draw.0.below(3) {
            0 => Operation::Put((0..2).map(|_| draw.public_write()).collect()),
            _ => draw.commit(),
        };
        (0..count).map(|_| one(self)).collect()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    fn partition(&mut self) -> Partition {
        super::bench::partition(if self.one_in(3) { "p" } else { "p1" })
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

    fn named(&mut self) -> Named {
        match self.0.below(6) {
            0 => Named::Former,
            1 | 2 => Named::Absent,
            _ => Named::Current,
        }
    }

    fn commit(&mut self) -> Operation {
        let fence = if self.one_in(3) {
            None
        } else if self.one_in(8) {
            Some(self.named())
        } else {
            Some(Named::Current)
        };
        let count = self.0.below(6);
        let writes = (0..count).map(|_| {
            let blind = if fence.is_some() { !self.one_in(4) } else { self.one_in(30) };
            Change {
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
        Operation::Commit { writes: writes.collect(), partition: self.partition(), fence }
    }

    fn scan(&mut self) -> Operation {
        let (from, until) = (self.key(), self.key());
        let mut scan = match self.0.below(3) {
            0 => Scan::all(),
            1 => Scan::prefix(from.as_bytes()),
            _ => Scan::range(from, until),
        };
        if self.one_in(2) {
            scan = scan.backwards();
        }
        scan = scan.at_most(usize::try_from(self.0.below(12)).unwrap_or(1));
        Operation::Scan { partition: self.partition(), scan }
    }

    fn public_key(&mut self) -> PublicKey {
        PublicKey { partition: format!("e{}", self.0.below(3)), row: format!("r{}", self.0.below(40)) }
    }

    fn public_write(&mut self) -> PublicWrite {
        let key = self.public_key();
        if self.one_in(6) {
            return PublicWrite::Delete { key, revision: self.0.below(5) };
        }
        let (at, status) = (self.0.below(30).cast_signed() - 5, format!("s{}", self.0.below(3)));
        let mut row = entry(&key.row, at, &key.partition, &status);
        row.revision = self.0.below(5);
        if self.one_in(2) {
            row.columns.insert("Note".to_owned(), Value::Text(format!("n{}", self.0.below(4))));
        }
        PublicWrite::Put(row)
    }

    fn query(&mut self) -> Operation {
        let walk = usize::try_from(self.0.below(6)).unwrap_or(0);
        // The question of a walk is mostly the same, so that its pages continue each other while rows change.
        let mut dice = Dice::new(walk as u64 + if self.one_in(10) { 100 } else { 0 });
        let mut query = Query { oldest_first: dice.below(2) == 0, limit: 3, ..Query::default() };
        for (column, letter, count) in [("Engine", 'e', 3), ("Status", 's', 3), ("Note", 'n', 4)] {
            if dice.below(3) == 0 {
                query = query.equal(column, &format!("{letter}{}", dice.below(count)));
            }
        }
        if dice.below(3) == 0 {
            query.from = Some(dice.below(20).cast_signed());
        }
        if dice.below(3) == 0 {
            query.until = Some(dice.below(20).cast_signed());
        }
        Operation::Query { query, walk }
    }
}
