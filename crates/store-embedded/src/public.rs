//! How public tables lie in the engine, and how a question becomes a walk along one index.
//!
//! ```text
//! table 0   partition NUL row                          → the row
//! table n   (length value)… ¬time ¬(partition NUL row) → nothing     entry of index n − 1
//! table 255 ¬time ¬(partition NUL row)                 → nothing     entry of every row
//! ```
//! Entries of one index and one value lie newest first, as they are mostly asked for: the engine's buffers are quick to walk forwards
//! and slow to walk backwards. A page is a walk along them; each entry's row is looked up and checked against all filters, so neither a
//! value that the index holds cut short nor an entry that its row has left does harm.

use std::ops::Bound;

use abide_store::public::{Page, Position, PublicKey, PublicRow, Query, QueryError, TableSchema, TokenKey};
use abide_store::rows::{Key, Partition, StoreError};

use crate::engine::{PublicView, read_error};

const ROWS: u8 = 0;
const EVERY_ROW: u8 = 255;
const ROW_FORMAT: u8 = 1;
/// Bytes of a value that an index entry holds.
const INDEXED_BYTES: usize = 256;

pub(crate) fn row_key(table: &TableSchema, key: &PublicKey) -> Vec<u8> {
    with_key(vec![table.tag, ROWS], key)
}

pub(crate) fn encode_row(row: &PublicRow) -> Vec<u8> {
    postcard::to_extend(row, vec![ROW_FORMAT]).unwrap_or_default()
}

pub(crate) fn decode_row(stored: &[u8]) -> Option<PublicRow> {
    match stored.split_first() {
        Some((&ROW_FORMAT, bytes)) => postcard::from_bytes(bytes).ok(),
        _ => None,
    }
}

/// Every index entry of a row. A row without a value in a column is in no index over it.
pub(crate) fn index_keys(table: &TableSchema, row: &PublicRow) -> Vec<Vec<u8>> {
    let position = with_position(Vec::new(), &Position::of(table, row));
    let entry = |mut prefix: Vec<u8>| {
        prefix.extend_from_slice(&position);
        prefix
    };
    let mut keys = Vec::with_capacity(table.indexes.len() + 1);
    keys.push(entry(vec![table.tag, EVERY_ROW]));
    for (place, index) in table.indexes.iter().enumerate() {
        let values: Option<Vec<&str>> = index.iter().map(|column| row.text(column)).collect();
        keys.extend(values.map(|values| entry(index_prefix(table, place, &values))));
    }
    keys
}

/// One page of an answer, of one moment.
pub(crate) fn query(
    view: &PublicView<'_>,
    table: &'static TableSchema,
    query: &Query,
    token_key: &TokenKey,
) -> Result<Page, QueryError> {
    query.check(table)?;
    let after = token_key.open(table, query)?;
    let damaged = |error: fjall::Error, key: &[u8]| damaged(&error, table, key);
    let prefix = walked_prefix(table, query);
    let range = walked_range(&prefix, query, after.as_ref());
    let mut page = Page { rows: Vec::new(), continuation: None };
    if is_empty(&range) {
        return Ok(page);
    }
    let mut entries = view.keys(range);
    let (mut examined, mut bytes) = (0, 0);
    let mut last: Option<Position> = None;
    loop {
        let entry = if query.oldest_first { entries.next_back() } else { entries.next() };
        let Some(entry) = entry else { return Ok(page) };
        let full = page.rows.len() == query.limit || bytes >= PublicRow::PAGE_BYTES_MAX;
        if full || examined == Query::EXAMINED_MAX {
            page.continuation = last.map(|last| token_key.seal(table, query, &last));
            return Ok(page);
        }
        let entry = entry.map_err(|error| damaged(error, &prefix))?;
        let position = entry.get(prefix.len()..).and_then(read_position);
        let position = position.ok_or_else(|| unreadable(table, &entry))?;
        let key = row_key(table, &position.key);
        examined += 1;
        if let Some(stored) = view.get(&key).map_err(|error| damaged(error, &key))? {
            let row = decode_row(&stored).ok_or_else(|| unreadable(table, &key))?;
            // An entry may be older than its row, or outlive it: it leads to the row only if it is the row's own.
            if query.accepts(table, &row) && Position::of(table, &row) == position {
                bytes += row.bytes();
                page.rows.push(row);
            }
        }
        last = Some(position);
    }
}

/// A row or an entry of a public table that cannot be read, named as the row of a partition that the table would be.
pub(crate) fn damaged(error: &fjall::Error, table: &TableSchema, key: &[u8]) -> StoreError {
    match Partition::new(table.name) {
        Ok(partition) => read_error(error, &partition, &Key::new(key)),
        Err(error) => StoreError::Unavailable { reason: error.to_string() },
    }
}

pub(crate) fn unreadable(table: &TableSchema, key: &[u8]) -> StoreError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is missing or cannot be decoded");
    damaged(&error.into(), table, key)
}

fn walked_prefix(table: &TableSchema, query: &Query) -> Vec<u8> {
    let columns: Vec<&str> = query.equals.iter().map(|(column, _)| column.as_str()).collect();
    let Some((place, index)) = table.index_for(&columns) else { return vec![table.tag, EVERY_ROW] };
    let value = |column: &&str| {
        let filter = query.equals.iter().find(|(name, _)| name == column);
        filter.map_or("", |(_, value)| value.as_str())
    };
    index_prefix(table, place, &index.iter().map(value).collect::<Vec<_>>())
}

/// Entries are stored newest first, so a later moment is the earlier bound.
fn walked_range(prefix: &[u8], query: &Query, after: Option<&Position>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // After the time comes the first byte of a partition key, which is not NUL, so not ff once it is turned.
    let above = |at| [with_time(prefix.to_vec(), at), vec![0xff]].concat();
    let mut first = match query.until {
        Some(until) => Bound::Excluded(above(until)),
        None => Bound::Included(prefix.to_vec()),
    };
    let mut last = match query.from {
        Some(from) => Bound::Included(above(from)),
        None => Bound::Included(above(i64::MIN)),
    };
    if let Some(position) = after {
        let position = Bound::Excluded(with_position(prefix.to_vec(), position));
        if query.oldest_first { last = position } else { first = position }
    }
    (first, last)
}

fn is_empty(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(until)) => from > until,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(until) | Bound::Excluded(until)) => {
            from >= until
        }
        _ => false,
    }
}

fn index_prefix(table: &TableSchema, place: usize, values: &[&str]) -> Vec<u8> {
    let mut key = vec![table.tag, u8::try_from(place + 1).unwrap_or(EVERY_ROW - 1)];
    for value in values {
        let bytes = value.as_bytes();
        let bytes = bytes.get(..INDEXED_BYTES).unwrap_or(bytes);
        key.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend_from_slice(bytes);
    }
    key
}

/// All bits but the sign are turned, so that the latest moment sorts first.
fn with_time(mut key: Vec<u8>, at: i64) -> Vec<u8> {
    key.extend_from_slice(&(at.cast_unsigned() ^ (u64::MAX >> 1)).to_be_bytes());
    key
}

fn with_key(mut bytes: Vec<u8>, key: &PublicKey) -> Vec<u8> {
    bytes.extend_from_slice(key.partition.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(key.row.as_bytes());
    bytes
}

/// Within a moment keys are in falling order too: every bit of them is turned, NUL between and after them becomes ff, so that a key comes after
/// those it is the beginning of.
fn with_position(key: Vec<u8>, position: &Position) -> Vec<u8> {
    let mut key = with_time(key, position.at);
    key.extend(with_key(Vec::new(), &position.key).into_iter().map(|byte| !byte));
    key.push(0xff);
    key
}

fn read_position(bytes: &[u8]) -> Option<Position> {
    let (time, key) = bytes.split_first_chunk()?;
    let at = (u64::from_be_bytes(*time) ^ (u64::MAX >> 1)).cast_signed();
    let key = key.strip_suffix(&[0xff])?.iter().map(|byte| !byte).collect();
    let key = String::from_utf8(key).ok()?;
    let (partition, row) = key.split_once('\0')?;
    Some(Position { at, key: PublicKey { partition: partition.to_owned(), row: row.to_owned() } })
}
