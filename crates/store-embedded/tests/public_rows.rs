//! Public rows beside private rows: commits do not wait for many of them, and deleted ones keep no journal.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::path::Path;
use std::pin::pin;

use abide_ids::Timestamp;
use abide_store::conformance::join_all;
use abide_store::public::{CellValue, PublicKey, PublicQuery, PublicRow, PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows};
use abide_store::tables::public_instances::SCHEMA;
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, SyncMode};

fn row(number: u32) -> PublicRow {
    let names = ["InstanceId", "ExecutionId", "Workflow", "Version", "Status", "CorrelationId"];
    let mut columns: BTreeMap<String, CellValue> =
        names.iter().map(|name| ((*name).to_owned(), CellValue::Text(format!("{name} {number}")))).collect();
    columns.insert("CreatedAtUtc".to_owned(), CellValue::Time(Timestamp(i64::from(number))));
    columns.insert("LastUpdatedAtUtc".to_owned(), CellValue::Time(Timestamp(i64::from(number))));
    PublicRow { key: PublicKey { partition: number.to_string(), row: "1".to_owned() }, revision: 1, columns }
}

fn journals(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).count()
}

/// Index entries that were written and deleted vanish when their buffer is flushed. The engine must still delete their
/// journal.
#[tokio::test]
async fn rows_that_were_written_and_deleted_keep_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        sync: SyncMode::OperatingSystem,
        write_buffer_bytes: 8 * 1024 * 1024,
        disk_reserve_bytes: 0,
        ..EmbeddedOptions::default()
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
            CommitOutcome::Committed(receipt) => version = receipt.head_version,
            other => panic!("{other:?}"),
        }
    }
    drop(store);
    let left = journals(folder.path());
    assert!(left <= 3, "{left} of about six journals are left");
}

/// All requests are queued before any is processed. Without a limit on the public rows of a group, the commit would
/// wait for all of them.
#[tokio::test]
async fn a_commit_does_not_wait_for_many_public_rows() {
    let folder = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        sync: SyncMode::OperatingSystem,
        disk_reserve_bytes: 0,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    let partition = Partition::new("p").unwrap();
    let puts = (0..8u32).map(|put| {
        let rows = (put * 500..(put + 1) * 500).map(row).map(PublicWrite::Put).collect();
        store.put(&SCHEMA, rows)
    });
    let puts = join_all(puts.collect());
    let commit = store.commit(&partition, Batch::checked().create(Key::new("a"), vec![1]));
    let mut puts = pin!(puts);
    let mut commit = pin!(commit);
    poll_fn(|context| {
        assert!(puts.as_mut().poll(context).is_pending(), "the rows were written before the commit was");
        commit.as_mut().poll(context).map(|outcome| assert!(matches!(outcome, CommitOutcome::Committed(_))))
    })
    .await;
    assert!(puts.await.into_iter().all(|put| put.is_ok()));
    let all = store.query(&SCHEMA, &PublicQuery { limit: 1_000, ..PublicQuery::default() }).await.unwrap();
    assert_eq!(all.rows.len(), 1_000);
}
