//! The layout of public tables in the engine, and the translation of a query into a scan of one index.
//!
//! ```text
//! table 0   partition NUL row                          → the row
//! table n   (length value)… ¬time ¬(partition NUL row) → nothing     entry of index n − 1
//! table 255 ¬time ¬(partition NUL row)                 → nothing     entry of every row
//! ```
//! The entries of one index and one value are stored newest first, the usual order of queries: the engine's buffers are
//! fast to scan forwards and slow to scan backwards. A page is a scan of these entries. Each entry's row is looked up
//! and checked against all filters, so neither a truncated value in the index nor a stale entry does harm. The meaning
//! of the tables is not known here.

use std::ops::Bound;

use abide_ids::Timestamp;
use abide_store::public::{
    PublicKey, PublicPage, PublicQuery, PublicQueryError, PublicRow, RowPosition, TableSchema, TokenKey,
};
use abide_store::rows::{Key, Partition, StoreError};

use crate::engine::PublicSnapshot;
use crate::engine_error::read_error;

const ROW_SPACE: u8 = 0;
const ALL_ROWS_INDEX: u8 = 255;
const ROW_FORMAT: u8 = 1;
/// The most bytes of a value in an index entry.
const INDEXED_BYTES: usize = 256;

pub(crate) fn row_key(table: &TableSchema, key: &PublicKey) -> Vec<u8> {
    append_key(vec![table.tag, ROW_SPACE], key)
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

/// Every index entry of a row. A row without a value in a column has no entry in the indexes of that column.
pub(crate) fn index_keys(table: &TableSchema, row: &PublicRow) -> Vec<Vec<u8>> {
    let position = append_position(Vec::new(), &RowPosition::of_row(table, row));
    let entry = |mut prefix: Vec<u8>| {
        prefix.extend_from_slice(&position);
        prefix
    };
    let mut keys = Vec::with_capacity(table.indexes.len() + 1);
    keys.push(entry(vec![table.tag, ALL_ROWS_INDEX]));
    for (number, index) in table.indexes.iter().enumerate() {
        let values: Option<Vec<&str>> = index.iter().map(|column| row.text(column)).collect();
        keys.extend(values.map(|values| entry(index_prefix(table, number, &values))));
    }
    keys
}

/// One page of a query, from one snapshot.
pub(crate) fn query(
    view: &PublicSnapshot<'_>,
    table: &'static TableSchema,
    query: &PublicQuery,
    token_key: &TokenKey,
) -> Result<PublicPage, PublicQueryError> {
    query.check(table)?;
    let after = token_key.verify(table, query)?;
    let damaged = |error: fjall::Error, key: &[u8]| public_read_error(&error, table, key);
    let prefix = index_scan_prefix(table, query);
    let range = index_scan_range(&prefix, query, after.as_ref());
    let mut page = PublicPage { rows: Vec::new(), continuation: None };
    if is_empty_range(&range) {
        return Ok(page);
    }
    let mut entries = view.index_keys(range);
    let mut examined = 0;
    let mut bytes = 0;
    let mut last: Option<RowPosition> = None;
    loop {
        let entry = if query.oldest_first { entries.next_back() } else { entries.next() };
        let Some(entry) = entry else { return Ok(page) };
        let full = page.rows.len() == query.limit || bytes >= PublicRow::PAGE_BYTES_MAX;
        if full || examined == PublicQuery::EXAMINED_MAX {
            page.continuation = last.map(|last| token_key.sign(table, query, &last));
            return Ok(page);
        }
        let entry = entry.map_err(|error| damaged(error, &prefix))?;
        let position = entry.get(prefix.len()..).and_then(decode_position);
        let position = position.ok_or_else(|| undecodable(table, &entry))?;
        let key = row_key(table, &position.key);
        examined += 1;
        if let Some(stored) = view.get(&key).map_err(|error| damaged(error, &key))? {
            let row = decode_row(&stored).ok_or_else(|| undecodable(table, &key))?;
            // An entry may be older than its row, or outlive it: it counts only if it is an entry of the present row.
            if query.matches(table, &row) && RowPosition::of_row(table, &row) == position {
                bytes += row.size_bytes();
                page.rows.push(row);
            }
        }
        last = Some(position);
    }
}

/// The error of a public row or index entry that cannot be read. It names the table as the partition.
pub(crate) fn public_read_error(error: &fjall::Error, table: &TableSchema, key: &[u8]) -> StoreError {
    match Partition::new(table.name) {
        Ok(partition) => read_error(error, &partition, &Key::new(key)),
        Err(error) => StoreError::Unavailable { reason: error.to_string() },
    }
}

pub(crate) fn undecodable(table: &TableSchema, key: &[u8]) -> StoreError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is missing or cannot be decoded");
    public_read_error(&error.into(), table, key)
}

fn index_scan_prefix(table: &TableSchema, query: &PublicQuery) -> Vec<u8> {
    let columns: Vec<&str> = query.filters.iter().map(|(column, _)| column.as_str()).collect();
    let Some((number, index)) = table.best_index(&columns) else { return vec![table.tag, ALL_ROWS_INDEX] };
    let value = |column: &&str| {
        let filter = query.filters.iter().find(|(name, _)| name == column);
        filter.map_or("", |(_, value)| value.as_str())
    };
    index_prefix(table, number, &index.iter().map(value).collect::<Vec<_>>())
}

/// The range of index entries to scan. Entries are stored newest first, so the later time is the lower bound.
fn index_scan_range(
    prefix: &[u8],
    query: &PublicQuery,
    after: Option<&RowPosition>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // After the time comes the first byte of a partition key, which is not NUL, so it is not ff when its bits are
    // inverted.
    let above = |at| [append_time(prefix.to_vec(), at), vec![0xff]].concat();
    let mut first = match query.until {
        Some(until) => Bound::Excluded(above(until)),
        None => Bound::Included(prefix.to_vec()),
    };
    let mut last = match query.from {
        Some(from) => Bound::Included(above(from)),
        None => Bound::Included(above(Timestamp::MIN)),
    };
    if let Some(position) = after {
        let position = Bound::Excluded(append_position(prefix.to_vec(), position));
        if query.oldest_first { last = position } else { first = position }
    }
    (first, last)
}

fn is_empty_range(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(until)) => from > until,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(until) | Bound::Excluded(until)) => {
            from >= until
        }
        _ => false,
    }
}

fn index_prefix(table: &TableSchema, number: usize, values: &[&str]) -> Vec<u8> {
    let mut key = vec![table.tag, u8::try_from(number + 1).unwrap_or(ALL_ROWS_INDEX - 1)];
    for value in values {
        let bytes = value.as_bytes();
        let bytes = bytes.get(..INDEXED_BYTES).unwrap_or(bytes);
        key.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend_from_slice(bytes);
    }
    key
}

/// All bits but the sign are inverted, so that the latest time sorts first.
fn append_time(mut key: Vec<u8>, at: Timestamp) -> Vec<u8> {
    key.extend_from_slice(&(at.0.cast_unsigned() ^ (u64::MAX >> 1)).to_be_bytes());
    key
}

fn append_key(mut bytes: Vec<u8>, key: &PublicKey) -> Vec<u8> {
    bytes.extend_from_slice(key.partition.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(key.row.as_bytes());
    bytes
}

/// Entries of the same time are in descending order of their keys: every bit of a key is inverted, and the NUL between
/// and after its parts becomes ff. So a key comes after the longer keys that begin with it.
fn append_position(key: Vec<u8>, position: &RowPosition) -> Vec<u8> {
    let mut key = append_time(key, position.at);
    key.extend(append_key(Vec::new(), &position.key).into_iter().map(|byte| !byte));
    key.push(0xff);
    key
}

fn decode_position(bytes: &[u8]) -> Option<RowPosition> {
    let (time, key) = bytes.split_first_chunk()?;
    let at = Timestamp((u64::from_be_bytes(*time) ^ (u64::MAX >> 1)).cast_signed());
    let key = key.strip_suffix(&[0xff])?.iter().map(|byte| !byte).collect();
    let key = String::from_utf8(key).ok()?;
    let (partition, row) = key.split_once('\0')?;
    Some(RowPosition { at, key: PublicKey { partition: partition.to_owned(), row: row.to_owned() } })
}
