//! Journals are let go of once what is in them is written out, also when that is nothing.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;

use abide_store::public::{PublicKey, PublicRow, PublicTables, PublicWrite, Value};
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
