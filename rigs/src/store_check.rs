//! Opens a store after a crash and compares every row with the model, and every acknowledgement with the rows.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use abide_store::public::{IndexColumns, PublicQuery, PublicRow, PublicTables};
use abide_store::rows::{Key, PrivateRows, Row, Scan};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore};
use abide_testkit::verdict::print_figure;

use crate::ledger::StoreLedger;
use crate::workload::{self, PUBLIC, PUBLIC_ROWS, SLOTS};
use crate::writer;

/// The result of the checks of a rig.
#[derive(Default, Debug)]
pub(crate) struct StoreCheckReport {
    pub acknowledged: u64,
    /// Acknowledged commits that are missing, over all partitions.
    pub lost: u64,
    /// Commits that were applied and not acknowledged: they were in flight when the writer ended.
    pub unacknowledged: u64,
    /// Rows that no prefix of the commits explains: a torn batch or an invented row.
    pub wrong_rows: u64,
    pub failed_opens: u64,
    /// Outcomes that the store reported and that were not true.
    pub false_outcomes: u64,
    pub first_false_outcome: Option<String>,
    pub opened_in: Duration,
}

impl StoreCheckReport {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.unacknowledged += other.unacknowledged;
        self.wrong_rows += other.wrong_rows;
        self.opened_in = self.opened_in.max(other.opened_in);
    }

    /// Adds the findings of a ledger; called once for each ledger, at its end.
    pub(crate) fn add_ledger(&mut self, ledger: &StoreLedger) {
        self.acknowledged += ledger.acknowledged;
        self.lost += ledger.lost_at_start;
        self.false_outcomes += ledger.false_outcomes;
        if self.first_false_outcome.is_none() {
            self.first_false_outcome.clone_from(&ledger.first_false_outcome);
        }
    }

    pub(crate) fn report(&self, what: &str, cycles: u32) {
        println!("{cycles} {what}, {} acknowledgements", self.acknowledged);
        print_figure("acknowledged and lost", self.lost);
        print_figure("unexplained rows", self.wrong_rows);
        print_figure("failed opens", self.failed_opens);
        print_figure("false outcomes", self.false_outcomes);
        let in_flight = format_args!("{} (in flight when the writer ended)", self.unacknowledged);
        print_figure("unacknowledged but present", in_flight);
        print_figure("slowest open", format_args!("{:.3} s", self.opened_in.as_secs_f64()));
    }

    pub(crate) fn verdict(&self) -> Result<(), String> {
        if self.lost + self.wrong_rows > 0 {
            return Err(format!(
                "{} acknowledged commits were lost, {} rows are wrong",
                self.lost, self.wrong_rows
            ));
        }
        if self.failed_opens > 0 {
            return Err(format!("the store failed to open {} times", self.failed_opens));
        }
        self.outcome_verdict()?;
        if self.acknowledged == 0 {
            return Err("nothing was acknowledged, so nothing was tried".to_owned());
        }
        Ok(())
    }

    pub(crate) fn outcome_verdict(&self) -> Result<(), String> {
        match &self.first_false_outcome {
            Some(first) => Err(format!("{} outcomes were false; the first: {first}", self.false_outcomes)),
            None => Ok(()),
        }
    }
}

/// Why a store could not be checked.
#[derive(Debug)]
pub(crate) enum StoreCheckError {
    Open(String),
    Read(String),
}

impl fmt::Display for StoreCheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "the store does not open: {error}"),
            Self::Read(error) => write!(f, "the store opens but cannot be read: {error}"),
        }
    }
}

/// The options with which a checker opens a store; it may be the first to open it.
pub(crate) fn options(small_buffers: bool) -> EmbeddedOptions {
    let write_buffer_bytes = writer::buffer_bytes(small_buffers);
    EmbeddedOptions { write_buffer_bytes, disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
pub(crate) fn check(
    folder: &Path,
    partitions: u64,
    options: EmbeddedOptions,
    ledger: &mut StoreLedger,
) -> Result<StoreCheckReport, StoreCheckError> {
    let started = Instant::now();
    let store =
        EmbeddedStore::open(folder, options).map_err(|error| StoreCheckError::Open(error.to_string()))?;
    let mut report = StoreCheckReport { opened_in: started.elapsed(), ..StoreCheckReport::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| StoreCheckError::Read(error.to_string()))?;
    let checked: Result<(), String> = runtime.block_on(async {
        for partition in 0..partitions {
            check_rows(&store, partition, ledger, &mut report).await?;
            check_public(&store, partition, ledger, &mut report).await?;
        }
        Ok(())
    });
    checked.map(|()| report).map_err(StoreCheckError::Read)
}

async fn check_rows(
    store: &EmbeddedStore,
    number: u64,
    ledger: &mut StoreLedger,
    report: &mut StoreCheckReport,
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
    report.lost += acknowledged.saturating_sub(commits);
    report.unacknowledged += commits.saturating_sub(acknowledged);
    ledger.committed.insert(number, commits);
    ledger.record_head(number, commits);

    let expected = (0..SLOTS).filter_map(|slot| {
        workload::slot_after(number, slot, commits).map(|value| (workload::slot_key(slot), value))
    });
    let expected: Vec<(Key, Vec<u8>)> = expected.collect();
    let actual: Vec<(Key, Vec<u8>)> =
        rows.into_iter().filter(|row| row.key != workload::head()).map(|row| (row.key, row.value)).collect();
    let missing = expected.iter().filter(|row| !actual.contains(row)).count();
    let invented = actual.iter().filter(|row| !expected.contains(row)).count();
    report.wrong_rows += (missing + invented) as u64;
    Ok(())
}

async fn check_public(
    store: &EmbeddedStore,
    number: u64,
    ledger: &mut StoreLedger,
    report: &mut StoreCheckReport,
) -> Result<(), String> {
    let mut rows: Vec<PublicRow> = Vec::new();
    for slot in 0..PUBLIC_ROWS {
        let key = workload::public_key(number, slot);
        let row = store.get(PUBLIC, &key).await.map_err(|error| error.to_string())?;
        let acknowledged = ledger.put.get(&(number, slot)).copied().unwrap_or(0);
        let revision = row.as_ref().map_or(0, |row| row.revision);
        report.lost += u64::from(revision < acknowledged);
        report.unacknowledged += u64::from(revision > acknowledged);
        ledger.put.insert((number, slot), revision);
        if let Some(row) = row {
            let right = revision > 0
                && row.key == key
                && workload::public_row(number, revision).as_ref() == Some(&row);
            report.wrong_rows += u64::from(!right) + missing_in_indexes(store, &row).await?;
            rows.push(row);
        }
    }
    // The index must not have other rows, nor the same row twice.
    let query =
        PublicQuery::default().filter("Engine", &format!("engine {number}")).limit(PublicQuery::LIMIT_MAX);
    let listed = store.query(PUBLIC, &query).await.map_err(|error| error.to_string())?.rows;
    let unknown = listed.iter().filter(|row| !rows.contains(row)).count();
    report.wrong_rows += (unknown + listed.len().abs_diff(rows.len())) as u64;
    Ok(())
}

/// How many indexes lack the row. The index without columns has all rows in order.
async fn missing_in_indexes(store: &EmbeddedStore, row: &PublicRow) -> Result<u64, String> {
    let at = row.order_time(PUBLIC);
    let every_row: IndexColumns = &[];
    let mut missing = 0;
    for index in PUBLIC.indexes.iter().copied().chain([every_row]) {
        let mut query = PublicQuery {
            from: at,
            until: at.map(|at| at.plus(abide_ids::Duration(1))),
            limit: PublicQuery::LIMIT_MAX,
            ..PublicQuery::default()
        };
        for column in index {
            query = query.filter(column, row.text(column).unwrap_or_default());
        }
        let page = store.query(PUBLIC, &query).await.map_err(|error| error.to_string())?;
        missing += u64::from(!page.rows.contains(row));
    }
    Ok(missing)
}
