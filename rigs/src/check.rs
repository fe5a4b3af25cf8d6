//! Opens what is left and compares every row with the model and every acknowledgement with the rows.

use std::path::Path;
use std::time::{Duration, Instant};

use abide_store::public::{PublicTables, Query};
use abide_store::rows::{Key, PrivateRows, Row, Scan};
use abide_store_embedded::{EmbeddedStore, Options};

use crate::ledger::Ledger;
use crate::workload::{self, PUBLIC_ROWS, SLOTS};

/// What a check found.
#[derive(Default, Debug)]
pub(crate) struct Found {
    /// Acknowledged commits that are gone, over all partitions.
    pub lost: u64,
    /// Commits that were not acknowledged and are there: on their way when the world ended.
    pub unacknowledged: u64,
    /// Rows that no prefix of commits explains: a torn batch, an invented row.
    pub wrong_rows: u64,
    pub opened_in: Duration,
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
pub(crate) fn check(folder: &Path, partitions: u64, ledger: &mut Ledger) -> Result<Found, String> {
    let started = Instant::now();
    let options = Options { disk_reserve_bytes: 0, ..Options::default() };
    let store =
        EmbeddedStore::open(folder, options).map_err(|error| format!("the store does not open: {error}"))?;
    let mut found = Found { opened_in: started.elapsed(), ..Found::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime
        .block_on(async {
            for partition in 0..partitions {
                check_rows(&store, partition, ledger, &mut found).await?;
                check_public(&store, partition, ledger, &mut found).await?;
            }
            Ok(())
        })
        .map(|()| found)
}

async fn check_rows(
    store: &EmbeddedStore,
    number: u64,
    ledger: &mut Ledger,
    found: &mut Found,
) -> Result<(), String> {
    let partition = workload::partition(number);
    let mut rows: Vec<Row> = Vec::new();
    let mut next = Some(Scan::all());
    while let Some(scan) = next {
        let page = store.scan(&partition, scan).await.map_err(|error| error.to_string())?;
        rows.extend(page.rows);
        next = page.next;
    }
    let head = rows.iter().find(|row| row.key == workload::head());
    let commits = head.and_then(|row| row.value.clone().try_into().ok()).map_or(0, u64::from_be_bytes);
    let acknowledged = ledger.committed.get(&number).copied().unwrap_or(0);
    found.lost += acknowledged.saturating_sub(commits);
    found.unacknowledged += commits.saturating_sub(acknowledged);
    ledger.committed.insert(number, commits);

    let expected = (0..SLOTS).filter_map(|slot| {
        workload::slot_after(number, slot, commits).map(|value| (workload::slot_key(slot), value))
    });
    let expected: Vec<(Key, Vec<u8>)> = expected.collect();
    let actual: Vec<(Key, Vec<u8>)> =
        rows.into_iter().filter(|row| row.key != workload::head()).map(|row| (row.key, row.value)).collect();
    let missing = expected.iter().filter(|row| !actual.contains(row)).count();
    let invented = actual.iter().filter(|row| !expected.contains(row)).count();
    found.wrong_rows += (missing + invented) as u64;
    Ok(())
}

async fn check_public(
    store: &EmbeddedStore,
    number: u64,
    ledger: &mut Ledger,
    found: &mut Found,
) -> Result<(), String> {
    let query = Query::default().equal("Engine", &format!("engine {number}")).limit(1_000);
    let page = store.query(workload::PUBLIC, &query).await.map_err(|error| error.to_string())?;
    let newest = page.rows.iter().map(|row| row.revision).max().unwrap_or(0);
    let acknowledged = ledger.put.get(&number).copied().unwrap_or(0);
    found.lost += u64::from(newest < acknowledged);
    found.unacknowledged += u64::from(newest > acknowledged);
    ledger.put.insert(number, newest);
    found.wrong_rows += (page.rows.len() as u64).saturating_sub(PUBLIC_ROWS);
    for row in page.rows {
        let right = workload::public_row(number, row.revision).as_ref() == Some(&row);
        // Every index leads to the same row.
        let operation = row.text("InstanceId").unwrap_or_default();
        let query =
            Query::default().equal("InstanceId", operation).equal("Engine", &format!("engine {number}"));
        let by_index = store.query(workload::PUBLIC, &query).await.map_err(|error| error.to_string())?;
        found.wrong_rows += u64::from(!right) + u64::from(by_index.rows != [row]);
    }
    Ok(())
}
