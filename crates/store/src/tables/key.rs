//! The encoding of keys: the table's tag, then fields whose bytes sort as the fields do.
//!
//! It does not know which fields a table has: each table's file does.

use abide_ids::{Digest, IdempotencyKey, KeyDigest, PageNumber, RunId, RunNumber, Timestamp};

use crate::rows::{Key, Scan};

use super::TableError;

/// The tags of the private tables. The numbers are stored: append, never reuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TableId {
    /// The head of a partition: owner, fencing token, last commit.
    Head = 1,
    /// Instance id → its current run.
    Instance = 2,
    /// Parts of a run, as of its last fold.
    Part = 3,
    /// Pages of a run's history, one per turn.
    HistoryPage = 4,
    /// Messages for runs of the shard that are accepted and not processed yet.
    Inbox = 5,
    /// Messages from other nodes that the owner of the shard has not taken over yet.
    Inbound = 6,
    /// The last message number taken over from each source.
    InboundWatermark = 7,
    /// Messages to other partitions and to the public index.
    Outbox = 8,
    /// Activity calls that are not settled.
    Call = 9,
    /// Timers, by the time they are due.
    Timer = 10,
    /// Stored replies to requests that may be repeated.
    Idempotency = 11,
    /// Deletions, by the time they are due.
    Expiry = 12,
    Entity = 13,
    /// Events that an entity has recorded.
    EntityEvent = 14,
    Definition = 15,
    /// The version of a definition that is started by default.
    DefaultVersion = 16,
    /// The event route of an event type.
    EventRoute = 17,
    /// A poller's checkpoint and lease.
    StateDocument = 18,
    /// The context's registry.
    Registry = 19,
    /// Payloads too large for the rows that refer to them.
    Payload = 20,
    /// Activities declared while the server runs, in all versions.
    ActivityDeclaration = 21,
    /// Runs that a later run of the same instance has replaced.
    EarlierRun = 22,
}

impl TableId {
    const ALL: [Self; 22] = [
        Self::Head,
        Self::Instance,
        Self::Part,
        Self::HistoryPage,
        Self::Inbox,
        Self::Inbound,
        Self::InboundWatermark,
        Self::Outbox,
        Self::Call,
        Self::Timer,
        Self::Idempotency,
        Self::Expiry,
        Self::Entity,
        Self::EntityEvent,
        Self::Definition,
        Self::DefaultVersion,
        Self::EventRoute,
        Self::StateDocument,
        Self::Registry,
        Self::Payload,
        Self::ActivityDeclaration,
        Self::EarlierRun,
    ];

    /// The table that a key belongs to, if this program knows it.
    pub fn of_key(key: &Key) -> Option<Self> {
        let tag = key.as_bytes().first()?;
        Self::ALL.into_iter().find(|table| *table as u8 == *tag)
    }

    /// A scan of the whole table in a partition.
    pub fn scan(self) -> Scan {
        Scan::prefix(&[self as u8])
    }
}

#[derive(Debug)]
pub struct KeyWriter(Vec<u8>);

impl KeyWriter {
    /// Begins a key of this table.
    pub fn new(table: TableId) -> Self {
        Self(vec![table as u8])
    }

    #[must_use]
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    #[must_use]
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    #[must_use]
    pub fn run_id(self, run_id: RunId) -> Self {
        self.u64(run_id.0)
    }

    #[must_use]
    pub fn run_number(self, run_number: RunNumber) -> Self {
        self.u32(run_number.0)
    }

    #[must_use]
    pub fn page(self, page: PageNumber) -> Self {
        self.u64(page.0)
    }

    #[must_use]
    pub fn digest(self, digest: &Digest) -> Self {
        self.bytes(digest.as_bytes())
    }

    #[must_use]
    pub fn key_digest(self, digest: &KeyDigest) -> Self {
        self.digest(&digest.0)
    }

    #[must_use]
    pub fn idempotency_key(self, key: &IdempotencyKey) -> Self {
        self.bytes(key.as_bytes())
    }

    /// Appends a time, which may be before 1970: the sign bit is flipped, so that such a time sorts first.
    #[must_use]
    pub fn time(mut self, at: Timestamp) -> Self {
        self.0.extend_from_slice(&(at.0.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        self
    }

    /// Appends a text that other fields may follow: two NUL bytes end it, and a NUL inside is followed by `ff`.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self.0.extend_from_slice(&[0, 0]);
        self
    }

    /// Appends bytes that have a fixed width or fill the rest of the key.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn key(self) -> Key {
        Key::new(self.0)
    }

    /// A scan of every key that begins like this one.
    pub fn scan(self) -> Scan {
        Scan::prefix(&self.0)
    }
}

/// Reads the fields of a key, in the order they were written.
#[derive(Debug)]
pub struct KeyReader<'k> {
    table: TableId,
    rest: &'k [u8],
}

impl<'k> KeyReader<'k> {
    /// Begins to read a key of this table.
    pub fn new(table: TableId, key: &'k Key) -> Result<Self, TableError> {
        match key.as_bytes().split_first() {
            Some((tag, rest)) if *tag == table as u8 => Ok(Self { table, rest }),
            _ => Err(TableError::InvalidKey { table, reason: "it has another table's tag" }),
        }
    }

    pub fn u64(&mut self) -> Result<u64, TableError> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, TableError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn run_id(&mut self) -> Result<RunId, TableError> {
        self.u64().map(RunId)
    }

    pub fn run_number(&mut self) -> Result<RunNumber, TableError> {
        self.u32().map(RunNumber)
    }

    pub fn page(&mut self) -> Result<PageNumber, TableError> {
        self.u64().map(PageNumber)
    }

    pub fn digest(&mut self) -> Result<Digest, TableError> {
        self.array().map(Digest)
    }

    pub fn key_digest(&mut self) -> Result<KeyDigest, TableError> {
        self.digest().map(KeyDigest)
    }

    pub fn idempotency_key(&mut self) -> Result<IdempotencyKey, TableError> {
        self.array().map(IdempotencyKey)
    }

    pub fn time(&mut self) -> Result<Timestamp, TableError> {
        self.u64().map(|bits| Timestamp((bits ^ (1 << 63)).cast_signed()))
    }

    /// Reads a text that [`KeyWriter::text`] wrote.
    pub fn text(&mut self) -> Result<String, TableError> {
        let mut text = Vec::new();
        loop {
            match self.rest {
                [0, 0, rest @ ..] => {
                    self.rest = rest;
                    return String::from_utf8(text).map_err(|_| self.invalid("a text is not UTF-8"));
                }
                [0, 0xff, rest @ ..] => {
                    text.push(0);
                    self.rest = rest;
                }
                [0, ..] | [] => return Err(self.invalid("a text is not terminated")),
                [byte, rest @ ..] => {
                    text.push(*byte);
                    self.rest = rest;
                }
            }
        }
    }

    /// Reads bytes of fixed width.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], TableError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.invalid("it is too short"))?;
        self.rest = rest;
        Ok(*array)
    }

    /// Returns all remaining bytes.
    pub fn rest(self) -> &'k [u8] {
        self.rest
    }

    /// Checks that no bytes remain, and returns the fields that were read.
    pub fn finish<T>(self, fields: T) -> Result<T, TableError> {
        if self.rest.is_empty() { Ok(fields) } else { Err(self.invalid("bytes are left over")) }
    }

    fn invalid(&self, reason: &'static str) -> TableError {
        TableError::InvalidKey { table: self.table, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::keys_round_trip_in_order;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_sort_as_their_bytes(keys in prop::collection::vec(("(a|\u{0}|\u{1}|ß|\u{ff}){0,4}", any::<i64>(), any::<u64>(), any::<u32>()), 1..8)) {
            keys_round_trip_in_order(
                keys,
                |(text, at, long, short)| KeyWriter::new(TableId::Timer).text(text).time(Timestamp(*at)).u64(*long).u32(*short).key(),
                |key| {
                    let mut reader = KeyReader::new(TableId::Timer, key)?;
                    let fields = (reader.text()?, reader.time()?.0, reader.u64()?, reader.u32()?);
                    reader.finish(fields)
                },
            );
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let key = Key::new(bytes);
            if let Ok(mut reader) = KeyReader::new(TableId::Head, &key) {
                let _ = reader.text();
                let _ = reader.time();
            }
        }
    }
}
