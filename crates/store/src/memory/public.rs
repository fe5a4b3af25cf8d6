//! The reference semantics of public tables: examine every row, sort, cut. There is no index, so none can be wrong.

use std::collections::BTreeMap;

use crate::public::{
    PublicKey, PublicPage, PublicQuery, PublicRow, PublicWrite, RowPosition, TableSchema, TokenKey,
};

/// All rows of all tables.
#[derive(Debug, Default)]
pub(super) struct MemoryPublicTables {
    rows: BTreeMap<u8, BTreeMap<PublicKey, PublicRow>>,
}

impl MemoryPublicTables {
    pub(super) fn put(&mut self, table: &TableSchema, writes: Vec<PublicWrite>) {
        let rows = self.rows.entry(table.tag).or_default();
        for write in writes {
            match write {
                PublicWrite::Put(row) => {
                    if rows.get(&row.key).is_none_or(|stored| row.revision >= stored.revision) {
                        rows.insert(row.key.clone(), row);
                    }
                }
                PublicWrite::Delete { key, revision } => {
                    if rows.get(&key).is_some_and(|stored| stored.revision <= revision) {
                        rows.remove(&key);
                    }
                }
            }
        }
    }

    pub(super) fn get(&self, table: &TableSchema, key: &PublicKey) -> Option<PublicRow> {
        self.rows.get(&table.tag)?.get(key).cloned()
    }

    pub(super) fn get_first(&self, table: &TableSchema, prefix: &PublicKey) -> Option<PublicRow> {
        let (key, row) = self.rows.get(&table.tag)?.range(prefix..).next()?;
        (key.partition == prefix.partition && key.row.starts_with(&prefix.row)).then(|| row.clone())
    }

    pub(super) fn query(
        &self,
        table: &TableSchema,
        query: &PublicQuery,
        after: Option<&RowPosition>,
        token_key: &TokenKey,
    ) -> PublicPage {
        let mut matching: Vec<(RowPosition, &PublicRow)> = self
            .rows
            .get(&table.tag)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|row| query.matches(table, row))
            .map(|row| (RowPosition::of_row(table, row), row))
            .filter(|(position, _)| after.is_none_or(|last| query.is_after(position, last)))
            .collect();
        matching.sort_by(|(a, _), (b, _)| if query.oldest_first { a.cmp(b) } else { b.cmp(a) });
        let mut bytes = 0;
        let fitting = matching.iter().take(query.limit).take_while(|(_, row)| {
            let fits = bytes < PublicRow::PAGE_BYTES_MAX;
            bytes += row.size_bytes();
            fits
        });
        let page_rows = fitting.count();
        let more = matching.len() > page_rows;
        matching.truncate(page_rows);
        let last = matching.last().filter(|_| more);
        let continuation = last.map(|(position, _)| token_key.sign(table, query, position));
        PublicPage { rows: matching.into_iter().map(|(_, row)| row.clone()).collect(), continuation }
    }
}
