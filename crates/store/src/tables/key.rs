//! How keys are encoded: the table's tag, then fields whose bytes sort as the fields do.

use crate::rows::{Key, Scan};

use super::TableError;

/// The tags. Numbers are stored: append, never reuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Table {
    /// The head of a partition: owner, fencing token, last commit.
    Head = 1,
    /// Instance id → its current run.
    Instance = 2,
    /// Parts of a run, as of its last fold.
    Part = 3,
    /// Pages of a run's history, one per turn.
    Page = 4,
    /// Messages a run has been promised and not taken yet.
    Inbox = 5,
    /// Messages from elsewhere that the owner has not taken over yet.
    Arrival = 6,
    /// The last number taken over from each source.
    Source = 7,
    /// Messages for elsewhere.
    Outbox = 8,
    /// Activity calls and their journal.
    Dispatch = 9,
    /// What is due when.
    Timer = 10,
    /// Answers kept for callers who repeat themselves.
    Dedupe = 11,
    /// What is to be deleted when.
    Expiry = 12,
    /// Entities.
    Entity = 13,
    /// Events an entity has recorded.
    EntityEvent = 14,
    /// Published definitions.
    Definition = 15,
    /// Which version of a definition is started by default.
    DefaultVersion = 16,
    /// Where events of a type go.
    Route = 17,
    /// A poller's checkpoint and lease.
    StateDocument = 18,
    /// The context's registry.
    Registry = 19,
    /// Payloads too large for the rows that refer to them.
    Payload = 20,
    /// Activities that were declared while the server ran.
    Activity = 21,
    /// Runs that another one has replaced under their id.
    EarlierRun = 22,
}

impl Table {
    const ALL: [Self; 22] = [
        Self::Head,
        Self::Instance,
        Self::Part,
        Self::Page,
        Self::Inbox,
        Self::Arrival,
        Self::Source,
        Self::Outbox,
        Self::Dispatch,
        Self::Timer,
        Self::Dedupe,
        Self::Expiry,
        Self::Entity,
        Self::EntityEvent,
        Self::Definition,
        Self::DefaultVersion,
        Self::Route,
        Self::StateDocument,
        Self::Registry,
        Self::Payload,
        Self::Activity,
        Self::EarlierRun,
    ];

    /// The table a key belongs to, if it is one that this program knows.
    pub fn of(key: &Key) -> Option<Self> {
        let tag = key.as_bytes().first()?;
        Self::ALL.into_iter().find(|table| *table as u8 == *tag)
    }

    /// A scan of the whole table in a partition.
    pub fn scan(self) -> Scan {
        Scan::prefix(&[self as u8])
    }
}

/// Builds a key.
#[derive(Debug)]
pub struct KeyWriter(Vec<u8>);

impl KeyWriter {
    /// A key of this table.
    pub fn new(table: Table) -> Self {
        Self(vec![table as u8])
    }

    /// A number.
    #[must_use]
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// A smaller number.
    #[must_use]
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// A moment, which may be before 1970: the sign bit is turned, so that it sorts first.
    #[must_use]
    pub fn time(mut self, at: i64) -> Self {
        self.0.extend_from_slice(&(at.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        self
    }

    /// A text with more after it: NUL ends it, and a NUL inside is told apart by the byte that follows.
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

    /// Bytes that fill the rest of the key, or have a fixed width.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The key.
    pub fn key(self) -> Key {
        Key::new(self.0)
    }

    /// A scan of every key that begins like this one.
    pub fn scan(self) -> Scan {
        Scan::prefix(&self.0)
    }
}

/// Takes a key apart again.
#[derive(Debug)]
pub struct KeyReader<'k> {
    table: Table,
    rest: &'k [u8],
}

impl<'k> KeyReader<'k> {
    /// The fields of a key of this table.
    pub fn new(table: Table, key: &'k Key) -> Result<Self, TableError> {
        match key.as_bytes().split_first() {
            Some((tag, rest)) if *tag == table as u8 => Ok(Self { table, rest }),
            _ => Err(TableError::Key { table, reason: "it has another table's tag" }),
        }
    }

    /// A number.
    pub fn u64(&mut self) -> Result<u64, TableError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A smaller number.
    pub fn u32(&mut self) -> Result<u32, TableError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A moment.
    pub fn time(&mut self) -> Result<i64, TableError> {
        self.u64().map(|bits| (bits ^ (1 << 63)).cast_signed())
    }

    /// A text that [`KeyWriter::text`] wrote.
    pub fn text(&mut self) -> Result<String, TableError> {
        let mut text = Vec::new();
        loop {
            match self.rest {
                [0, 0, rest @ ..] => {
                    self.rest = rest;
                    return String::from_utf8(text).map_err(|_| self.broken("a text is not UTF-8"));
                }
                [0, 0xff, rest @ ..] => {
                    text.push(0);
                    self.rest = rest;
                }
                [0, ..] | [] => return Err(self.broken("a text has no end")),
                [byte, rest @ ..] => {
                    text.push(*byte);
                    self.rest = rest;
                }
            }
        }
    }

    /// Bytes of fixed width.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], TableError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.broken("it is too short"))?;
        self.rest = rest;
        Ok(*array)
    }

    /// All that is left.
    pub fn rest(self) -> &'k [u8] {
        self.rest
    }

    /// Checks that nothing is left, and hands on what was read.
    pub fn end<T>(self, fields: T) -> Result<T, TableError> {
        if self.rest.is_empty() { Ok(fields) } else { Err(self.broken("bytes are left over")) }
    }

    fn broken(&self, reason: &'static str) -> TableError {
        TableError::Key { table: self.table, reason }
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
                |(text, at, long, short)| KeyWriter::new(Table::Timer).text(text).time(*at).u64(*long).u32(*short).key(),
                |key| {
                    let mut reader = KeyReader::new(Table::Timer, key)?;
                    let fields = (reader.text()?, reader.time()?, reader.u64()?, reader.u32()?);
                    reader.end(fields)
                },
            );
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let key = Key::new(bytes);
            if let Ok(mut reader) = KeyReader::new(Table::Head, &key) {
                let _ = reader.text();
                let _ = reader.time();
            }
        }
    }
}
