//! Queries: public tables can be filtered by every declared index, have one row per key, and reject invalid rows and
//! queries.

use std::collections::BTreeMap;

use abide_ids::Timestamp;

use super::BackendUnderTest;
use super::harness::{ConformanceResult, checks, ensure};
use crate::public::{CellValue, TableSchema};
use crate::public::{
    Column, ColumnType, PublicKey, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite,
};

checks!(
    every_filter_finds_its_rows_and_no_others,
    from_is_included_and_until_is_excluded,
    rows_are_sorted_newest_first_by_default,
    repeated_puts_of_a_key_give_one_row,
    an_older_revision_never_replaces_a_newer_one,
    a_changed_row_moves_between_filters,
    a_deleted_row_is_in_no_result,
    a_deletion_spares_a_newer_revision,
    the_first_row_of_a_prefix_is_found_in_its_partition_only,
    values_with_a_long_common_beginning_are_distinguished,
    a_put_with_an_invalid_row_writes_nothing,
    an_invalid_query_is_rejected,
);

/// The table of these checks. It has single-column indexes and an index of two columns, like the ledger of an engine.
pub(super) static LEDGER: TableSchema = TableSchema {
    tag: 200,
    name: "ledger",
    columns: &[
        Column { name: "Engine", column_type: ColumnType::Text, required: true },
        Column { name: "Status", column_type: ColumnType::Text, required: true },
        Column { name: "Note", column_type: ColumnType::Text, required: false },
        Column { name: "Count", column_type: ColumnType::Integer, required: false },
        Column { name: "CreatedAtUtc", column_type: ColumnType::Time, required: true },
    ],
    order_column: "CreatedAtUtc",
    indexes: &[&["Note"], &["Engine", "Status"], &["Status"], &["Engine"]],
};

/// Another table with the same columns: its rows must not appear in the first.
pub(super) static OTHER: TableSchema = TableSchema { tag: 201, name: "other", ..LEDGER };

pub(super) fn entry(row: &str, at: i64, engine: &str, status: &str) -> PublicRow {
    let columns = BTreeMap::from([
        ("Engine".to_owned(), CellValue::Text(engine.to_owned())),
        ("Status".to_owned(), CellValue::Text(status.to_owned())),
        ("CreatedAtUtc".to_owned(), CellValue::Time(Timestamp(at))),
    ]);
    PublicRow { key: PublicKey { partition: engine.to_owned(), row: row.to_owned() }, revision: 1, columns }
}

pub(super) fn names(rows: &[PublicRow]) -> Vec<String> {
    rows.iter().map(|row| row.key.row.clone()).collect()
}

fn noted(mut row: PublicRow, note: &str) -> PublicRow {
    row.columns.insert("Note".to_owned(), CellValue::Text(note.to_owned()));
    row
}

fn revised(mut row: PublicRow, revision: u64, status: &str) -> PublicRow {
    row.revision = revision;
    row.columns.insert("Status".to_owned(), CellValue::Text(status.to_owned()));
    row
}

async fn put<S: BackendUnderTest>(store: &S::Store, rows: Vec<PublicRow>) -> ConformanceResult {
    Ok(store.put(&LEDGER, rows.into_iter().map(PublicWrite::Put).collect()).await?)
}

/// Every row that a query finds, page by page.
async fn found<S: BackendUnderTest>(store: &S::Store, query: PublicQuery) -> ConformanceResult<Vec<String>> {
    let mut rows = Vec::new();
    let mut query = query;
    loop {
        let page = store.query(&LEDGER, &query).await?;
        rows.extend(names(&page.rows));
        if page.continuation.is_none() {
            return Ok(rows);
        }
        query = query.continue_from(page.continuation);
    }
}

async fn every_filter_finds_its_rows_and_no_others<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let engines = ["hmac", "tls", "spn", "hma", ""];
    let statuses = ["Pending", "Resolved", "Pend"];
    let mut rows = Vec::new();
    let kinds = engines.iter().cycle().zip(statuses.iter().cycle());
    for (number, (engine, status)) in (0..60usize).zip(kinds) {
        let mut row = entry(&format!("{number:02}"), i64::try_from(number).unwrap_or(0), engine, status);
        row.key.partition = "all".to_owned();
        rows.push(if number % 4 == 0 { noted(row, &format!("note {}", number % 8)) } else { row });
    }
    put::<S>(&store, rows.clone()).await?;
    store.put(&OTHER, vec![PublicWrite::Put(entry("of another table", 5, "hmac", "Pending"))]).await?;
    let filters =
        [("Engine", "hmac"), ("Engine", ""), ("Status", "Pend"), ("Note", "note 4"), ("Engine", "nobody")];
    for (column, value) in filters {
        for (second, other) in [("", ""), ("Status", "Pending"), ("Note", "note 0"), ("Engine", "tls")] {
            let mut query = PublicQuery::default().filter(column, value).limit(7);
            if !second.is_empty() {
                query = query.filter(second, other);
            }
            let accepted = rows.iter().rev().filter(|row| query.matches(&LEDGER, row)).cloned();
            let expected = names(&accepted.collect::<Vec<_>>());
            let got = found::<S>(&store, query).await?;
            ensure!(got == expected, "{column}={value:?} {second}={other:?} found {got:?}, not {expected:?}");
        }
    }
    let all = found::<S>(&store, PublicQuery::default().limit(1_000)).await?;
    ensure!(all.len() == 60, "without a filter {} of 60 rows were found", all.len());
    Ok(())
}

async fn from_is_included_and_until_is_excluded<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let times = [i64::MIN, -5, -1, 0, 1, 7, i64::MAX - 1, i64::MAX];
    put::<S>(&store, times.iter().map(|at| entry(&at.to_string(), *at, "hmac", "Pending")).collect()).await?;
    for from in times.iter().map(|at| Some(*at)).chain([None]) {
        for until in times.iter().map(|at| Some(*at)).chain([None]) {
            for filter in [None, Some("hmac")] {
                let after = from.map(Timestamp);
                let before = until.map(Timestamp);
                let mut query =
                    PublicQuery { from: after, until: before, oldest_first: true, ..PublicQuery::default() };
                query.filters.extend(filter.map(|engine| ("Engine".to_owned(), engine.to_owned())));
                let inside = |at: &&i64| {
                    from.is_none_or(|from| **at >= from) && until.is_none_or(|until| **at < until)
                };
                let expected: Vec<String> = times.iter().filter(inside).map(ToString::to_string).collect();
                let got = found::<S>(&store, query).await?;
                ensure!(got == expected, "from {from:?} until {until:?} found {got:?}");
            }
        }
    }
    Ok(())
}

async fn rows_are_sorted_newest_first_by_default<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    // Two times with several rows each: at the same time, the key decides.
    let rows = ["b", "a", "c"]
        .iter()
        .flat_map(|name| [entry(name, 10, "x", "s"), entry(&format!("{name}9"), 9, "x", "s")]);
    put::<S>(&store, rows.collect()).await?;
    for query in [
        PublicQuery::default(),
        PublicQuery::default().filter("Engine", "x"),
        PublicQuery::default().filter("Status", "s").limit(2),
    ] {
        let newest = found::<S>(&store, query.clone()).await?;
        ensure!(newest == ["c", "b", "a", "c9", "b9", "a9"], "newest first gave {newest:?}");
        let mut oldest = found::<S>(&store, PublicQuery { oldest_first: true, ..query }).await?;
        oldest.reverse();
        ensure!(oldest == newest, "oldest first is not newest first reversed but {oldest:?} reversed");
    }
    Ok(())
}

async fn repeated_puts_of_a_key_give_one_row<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let row = entry("a", 1, "hmac", "Pending");
    for _ in 0..3 {
        put::<S>(&store, vec![row.clone(), row.clone()]).await?;
    }
    let all = found::<S>(&store, PublicQuery::default()).await?;
    ensure!(all == ["a"], "a row written six times is found as {all:?}");
    let got = store.get(&LEDGER, &row.key).await?;
    ensure!(got.as_ref() == Some(&row), "the row was read back as {got:?}");
    let missing = store.get(&OTHER, &row.key).await?;
    ensure!(missing.is_none(), "another table has the row");
    Ok(())
}

async fn an_older_revision_never_replaces_a_newer_one<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let row = entry("a", 1, "hmac", "Pending");
    put::<S>(&store, vec![revised(row.clone(), 3, "Resolved")]).await?;
    put::<S>(&store, vec![row.clone(), revised(row.clone(), 2, "Expired")]).await?;
    let got = store.get(&LEDGER, &row.key).await?;
    ensure!(
        got.as_ref().and_then(|row| row.text("Status")) == Some("Resolved"),
        "an old revision won: {got:?}"
    );
    for (status, expected) in [("Resolved", 1), ("Pending", 0), ("Expired", 0)] {
        let found = found::<S>(&store, PublicQuery::default().filter("Status", status)).await?.len();
        ensure!(found == expected, "{found} rows are found as {status}");
    }
    Ok(())
}

async fn a_changed_row_moves_between_filters<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let row = noted(entry("a", 1, "hmac", "Pending"), "first");
    put::<S>(&store, vec![row.clone()]).await?;
    let mut changed = noted(revised(row, 2, "Resolved"), "second");
    changed.columns.insert("Count".to_owned(), CellValue::Integer(-1));
    put::<S>(&store, vec![changed.clone()]).await?;
    for (column, value, expected) in [
        ("Status", "Pending", 0),
        ("Status", "Resolved", 1),
        ("Note", "first", 0),
        ("Note", "second", 1),
        ("Engine", "hmac", 1),
    ] {
        let got = found::<S>(&store, PublicQuery::default().filter(column, value)).await?.len();
        ensure!(got == expected, "{got} rows are found with {column}={value}");
    }
    changed.revision = 3;
    changed.columns.remove("Note");
    put::<S>(&store, vec![changed]).await?;
    let got = found::<S>(&store, PublicQuery::default().filter("Note", "second")).await?;
    ensure!(got.is_empty(), "a row that lost its note is found by it");
    Ok(())
}

async fn a_deleted_row_is_in_no_result<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    put::<S>(&store, vec![entry("a", 1, "hmac", "Pending"), entry("b", 2, "hmac", "Pending")]).await?;
    let gone = entry("a", 1, "hmac", "Pending").key;
    let delete = PublicWrite::Delete { key: gone.clone(), revision: 1 };
    store.put(&LEDGER, vec![delete.clone(), delete]).await?;
    ensure!(store.get(&LEDGER, &gone).await?.is_none(), "a deleted row can be read");
    for query in [
        PublicQuery::default(),
        PublicQuery::default().filter("Engine", "hmac"),
        PublicQuery::default().filter("Status", "Pending"),
    ] {
        let got = found::<S>(&store, query).await?;
        ensure!(got == ["b"], "after deleting one of two rows {got:?} are found");
    }
    put::<S>(&store, vec![entry("a", 1, "hmac", "Pending")]).await?;
    ensure!(
        found::<S>(&store, PublicQuery::default()).await?.len() == 2,
        "a row put after its deletion is not found"
    );
    Ok(())
}

async fn a_deletion_spares_a_newer_revision<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let row = revised(entry("a", 1, "hmac", "Pending"), 3, "Resolved");
    let delete = |revision| PublicWrite::Delete { key: row.key.clone(), revision };
    // The deletion is too old for the row: once in a put of its own, once in the same put as the row.
    put::<S>(&store, vec![row.clone()]).await?;
    store.put(&LEDGER, vec![delete(2)]).await?;
    store.put(&LEDGER, vec![PublicWrite::Put(row.clone()), delete(2)]).await?;
    let got = store.get(&LEDGER, &row.key).await?;
    ensure!(got.as_ref() == Some(&row), "a deletion of revision 2 left {got:?} of a row of revision 3");
    store.put(&LEDGER, vec![delete(3)]).await?;
    let found = found::<S>(&store, PublicQuery::default()).await?;
    ensure!(found.is_empty(), "a deletion of a row's own revision left {found:?}");
    Ok(())
}

async fn the_first_row_of_a_prefix_is_found_in_its_partition_only<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let rows = ["a-2", "a-1", "a", "b-1", "ab-1"].map(|name| entry(name, 1, "hmac", "Pending"));
    put::<S>(&store, rows.to_vec()).await?;
    put::<S>(&store, vec![entry("a-0", 1, "hma", "Pending"), entry("c-0", 1, "hmac2", "Pending")]).await?;
    store.put(&OTHER, vec![PublicWrite::Put(entry("a-0", 1, "hmac", "Pending"))]).await?;
    for (prefix, expected) in
        [("a-", Some("a-1")), ("a", Some("a")), ("b", Some("b-1")), ("c", None), ("a-3", None)]
    {
        let key = PublicKey { partition: "hmac".to_owned(), row: prefix.to_owned() };
        let got = store.get_first(&LEDGER, &key).await?.map(|row| row.key.row);
        ensure!(got.as_deref() == expected, "the first row of {prefix:?} is {got:?}, not {expected:?}");
    }
    store
        .put(&LEDGER, vec![PublicWrite::Delete { key: entry("a-1", 1, "hmac", "x").key, revision: 1 }])
        .await?;
    let key = PublicKey { partition: "hmac".to_owned(), row: "a-".to_owned() };
    let got = store.get_first(&LEDGER, &key).await?.map(|row| row.key.row);
    ensure!(got.as_deref() == Some("a-2"), "after its deletion the first row of a prefix is {got:?}");
    Ok(())
}

async fn values_with_a_long_common_beginning_are_distinguished<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let long = "x".repeat(3_000);
    let values = [
        long.clone(),
        format!("{long}1"),
        format!("{long}2"),
        "x\0y".to_owned(),
        "x".to_owned(),
        "é".repeat(200),
    ];
    let rows = values.iter().zip(0..).map(|(value, at)| noted(entry(&at.to_string(), at, "e", "s"), value));
    put::<S>(&store, rows.collect()).await?;
    for (value, at) in values.iter().zip(0..) {
        let got = found::<S>(&store, PublicQuery::default().filter("Note", value)).await?;
        ensure!(got == [at.to_string()], "a value of {} bytes found rows {got:?}", value.len());
    }
    Ok(())
}

async fn a_put_with_an_invalid_row_writes_nothing<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let good = entry("good", 1, "hmac", "Pending");
    let with = |column: &str, value: Option<CellValue>| {
        let mut row = entry("bad", 1, "hmac", "Pending");
        match value {
            Some(value) => row.columns.insert(column.to_owned(), value),
            None => row.columns.remove(column),
        };
        row
    };
    let named = |partition: &str, name: &str| {
        let mut row = good.clone();
        row.key = PublicKey { partition: partition.to_owned(), row: name.to_owned() };
        row
    };
    let bad = [
        with("Unknown", Some(CellValue::Text(String::new()))),
        with("Count", Some(CellValue::Text("1".to_owned()))),
        with("CreatedAtUtc", None),
        with("Engine", None),
        with("Note", Some(CellValue::Text("x".repeat(PublicRow::BYTES_MAX)))),
        named("", "a"),
        named("a", ""),
        named("a", "a\0b"),
        named("a", &"x".repeat(PublicKey::BYTES_MAX + 1)),
    ];
    for row in bad {
        let writes = vec![PublicWrite::Put(good.clone()), PublicWrite::Put(row.clone())];
        let rejected = matches!(store.put(&LEDGER, writes).await, Err(PublicPutError::Malformed { .. }));
        ensure!(rejected, "row {:?} of {} bytes was not rejected", row.key, row.size_bytes());
    }
    let many = vec![PublicWrite::Put(good); PublicRow::PUT_ROWS_MAX + 1];
    ensure!(store.put(&LEDGER, many).await.is_err(), "a put of too many rows was not rejected");
    let got = found::<S>(&store, PublicQuery::default()).await?;
    ensure!(got.is_empty(), "rejected puts wrote {got:?}");
    Ok(())
}

async fn an_invalid_query_is_rejected<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    for column in ["Count", "CreatedAtUtc", "Unknown", "", "engine"] {
        let result = store.query(&LEDGER, &PublicQuery::default().filter(column, "1")).await;
        ensure!(
            matches!(result, Err(PublicQueryError::UnknownFilter { .. })),
            "a filter by {column:?} gave {result:?}"
        );
    }
    for limit in [0, PublicQuery::LIMIT_MAX + 1, usize::MAX] {
        let result = store.query(&LEDGER, &PublicQuery::default().limit(limit)).await;
        ensure!(result == Err(PublicQueryError::InvalidLimit { limit }), "a page of {limit} gave {result:?}");
    }
    let many =
        (0..=PublicQuery::FILTERS_MAX).fold(PublicQuery::default(), |query, _| query.filter("Engine", "x"));
    ensure!(store.query(&LEDGER, &many).await.is_err(), "too many filters were not rejected");
    Ok(())
}
