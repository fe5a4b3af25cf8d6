//! Public rows beside the private ones: commits do not wait for many of them, and journals not for those that came and went.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::path::Path;
use std::pin::pin;

use abide_store::conformance::together;
use abide_store::public::{PublicKey, PublicRow, PublicTables, PublicWrite, Query, Value};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows};
use abide_store::tables::public_instances::SCHEMA;
use abide_store_embedded::{EmbeddedStore, Options, SyncMode};

fn row(number: u32) -> PublicRow {
    let names = ["InstanceId", "ExecutionId", "Workflow", "Version", "Status", "CorrelationId"];
    let mut columns: BTreeMap<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), Value::Text(format!("{name} {number}")))).collect();
    columns.insert("CreatedAtUtc".to_owned(), Value::Time(i64::from(number)));
    columns.insert("LastUpdatedAtUtc".to_owned(), Value::Time(i64::from(number)));
    PublicRow { key: PublicKey { partition: number.to_string(), row: "1".to_owned() }, revision: 1, columns }
}

fn journals(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).count()
}

/// Index entries that came and went vanish when their buffer is written out; the journal they stand in must not wait for them for ever.
#[tokio::test]
async fn rows_that_came_and_went_hold_no_journal_back() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        sync: SyncMode::OperatingSystem,
        write_buffer_bytes: 8 * 1024 * 1024,
        disk_reserve_bytes: 0,
        ..Options::default()
    };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    for slice in 0..40 {
        let rows: Vec<PublicRow> = (slice * 500..(slice + 1) * 500).map(row).collect();
        let gone = rows
            .iter()
            .map(|row| PublicWrite::Delete { key: row.key.clone(), revision: row.revision })
            .collect();
        store.put(&SCHEMA, rows.into_iter().map(PublicWrite::Put).collect()).await.unwrap();
        store.put(&SCHEMA, gone).await.unwrap();
    }
    // From here on only private rows: five journals' worth.
    let partition = Partition::new("p").unwrap();
    let mut version = None;
    for number in 0..340u32 {
        let batch = Batch::fenced(Key::new("head"), version, vec![]);
        let batch = batch.put(Key::new((number % 50).to_be_bytes()), vec![7; 1024 * 1024]);
        match store.commit(&partition, batch).await {
            CommitOutcome::Committed(receipt) => version = receipt.head,
            other => panic!("{other:?}"),
        }
    }
    drop(store);
    let left = journals(folder.path());
    assert!(left <= 3, "{left} journals are left of about six");
}

/// All is asked for before anything is done. Without a bound on what rides along the commit would wait for all these rows.
#[tokio::test]
async fn a_commit_does_not_wait_for_many_public_rows() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { sync: SyncMode::OperatingSystem, disk_reserve_bytes: 0, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    let partition = Partition::new("p").unwrap();
    let puts = (0..8u32).map(|put| {
        let rows = (put * 500..(put + 1) * 500).map(row).map(PublicWrite::Put).collect();
        store.put(&SCHEMA, rows)
    });
    let puts = together(puts.collect());
    let commit = store.commit(&partition, Batch::checked().create(Key::new("a"), vec![1]));
    let (mut puts, mut commit) = (pin!(puts), pin!(commit));
    poll_fn(|context| {
        assert!(puts.as_mut().poll(context).is_pending(), "the rows were written before the commit was");
        commit.as_mut().poll(context).map(|outcome| assert!(matches!(outcome, CommitOutcome::Committed(_))))
    })
    .await;
    assert!(puts.await.into_iter().all(|put| put.is_ok()));
    let all = store.query(&SCHEMA, &Query { limit: 1_000, ..Query::default() }).await.unwrap();
    assert_eq!(all.rows.len(), 1_000);
}
