//! The reference semantics of public tables: look at every row, sort, cut. No index, so it cannot have a wrong one.

use std::collections::BTreeMap;

use crate::public::{Page, Position, PublicKey, PublicRow, PublicWrite, Query, TableSchema, TokenKey};

/// All rows of all tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    rows: BTreeMap<u8, BTreeMap<PublicKey, PublicRow>>,
}

impl Tables {
    pub(super) fn put(&mut self, table: &TableSchema, writes: Vec<PublicWrite>) {
        let rows = self.rows.entry(table.tag).or_default();
        for write in writes {
            match write {
                PublicWrite::Put(row) => {
                    if rows.get(&row.key).is_none_or(|there| row.revision >= there.revision) {
                        rows.insert(row.key.clone(), row);
                    }
                }
                PublicWrite::Delete { key, revision } => {
                    if rows.get(&key).is_some_and(|there| there.revision <= revision) {
                        rows.remove(&key);
                    }
                }
            }
        }
    }

    pub(super) fn get(&self, table: &TableSchema, key: &PublicKey) -> Option<PublicRow> {
        self.rows.get(&table.tag)?.get(key).cloned()
    }

    pub(super) fn query(
        &self,
        table: &TableSchema,
        query: &Query,
        after: Option<&Position>,
        token_key: &TokenKey,
    ) -> Page {
        let mut found: Vec<(Position, &PublicRow)> = self
            .rows
            .get(&table.tag)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|row| query.accepts(table, row))
            .map(|row| (Position::of(table, row), row))
            .filter(|(position, _)| after.is_none_or(|last| query.is_after(position, last)))
            .collect();
        found.sort_by(|(a, _), (b, _)| if query.oldest_first { a.cmp(b) } else { b.cmp(a) });
        let mut bytes = 0;
        let fits = found.iter().take(query.limit).take_while(|(_, row)| {
            let room = bytes < PublicRow::PAGE_BYTES_MAX;
            bytes += row.bytes();
            room
        });
        let fits = fits.count();
        let more = found.len() > fits;
        found.truncate(fits);
        let last = found.last().filter(|_| more);
        let continuation = last.map(|(position, _)| token_key.seal(table, query, position));
        Page { rows: found.into_iter().map(|(_, row)| row.clone()).collect(), continuation }
    }
}
