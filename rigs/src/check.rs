//! Opens what is left and compares every row with the model and every acknowledgement with the rows.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use abide_store::public::{Index, PublicRow, PublicTables, Query};
use abide_store::rows::{Key, PrivateRows, Row, Scan};
use abide_store_embedded::{EmbeddedStore, Options};

use crate::ledger::Ledger;
use crate::workload::{self, PUBLIC, PUBLIC_ROWS, SLOTS};
use crate::writer;

/// What the checks of a rig found.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub acknowledged: u64,
    /// Acknowledged commits that are gone, over all partitions.
    pub lost: u64,
    /// Commits that were not acknowledged and are there: on their way when the world ended.
    pub unacknowledged: u64,
    /// Rows that no prefix of commits explains: a torn batch, an invented row.
    pub wrong_rows: u64,
    pub failed_opens: u64,
    /// Outcomes that were not so.
    pub lies: u64,
    pub first_lie: Option<String>,
    pub opened_in: Duration,
}

impl Found {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.unacknowledged += other.unacknowledged;
        self.wrong_rows += other.wrong_rows;
        self.opened_in = self.opened_in.max(other.opened_in);
    }

    /// Takes in what the ledger of a store noticed by itself; once for each ledger, at its end.
    pub(crate) fn add_ledger(&mut self, ledger: &Ledger) {
        self.acknowledged += ledger.acknowledged;
        self.lost += ledger.lost_at_start;
        self.lies += ledger.lies;
        if self.first_lie.is_none() {
            self.first_lie.clone_from(&ledger.first_lie);
        }
    }

    pub(crate) fn report(&self, what: &str, cycles: u32) {
        println!("{cycles} {what}, {} acknowledgements", self.acknowledged);
        println!("  acknowledged and lost       {}", self.lost);
        println!("  rows that nothing explains  {}", self.wrong_rows);
        println!("  failed opens                {}", self.failed_opens);
        println!("  outcomes that were lies     {}", self.lies);
        println!(
            "  unacknowledged and there    {} (on their way when the writer ended)",
            self.unacknowledged
        );
        println!("  slowest open                {:.3} s", self.opened_in.as_secs_f64());
    }

    pub(crate) fn verdict(&self) -> Result<(), String> {
        if self.lost + self.wrong_rows > 0 {
            return Err(format!(
                "{} acknowledged commits were lost, {} rows are wrong",
                self.lost, self.wrong_rows
            ));
        }
        if self.failed_opens > 0 {
            return Err(format!("the store was not opened {} times", self.failed_opens));
        }
        self.honesty()?;
        if self.acknowledged == 0 {
            return Err("nothing was acknowledged, so nothing was tried".to_owned());
        }
        Ok(())
    }

    pub(crate) fn honesty(&self) -> Result<(), String> {
        match &self.first_lie {
            Some(lie) => Err(format!("{} outcomes were lies, the first: {lie}", self.lies)),
            None => Ok(()),
        }
    }
}

/// Why a store could not be checked.
#[derive(Debug)]
pub(crate) enum Failed {
    Open(String),
    Read(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "the store does not open: {error}"),
            Self::Read(error) => write!(f, "the store is open and cannot be read: {error}"),
        }
    }
}

/// How a checker opens a store, which it may be the first to do.
pub(crate) fn options(small_buffers: bool) -> Options {
    let write_buffer_bytes = writer::buffer_bytes(small_buffers);
    Options { write_buffer_bytes, disk_reserve_bytes: 0, ..Options::default() }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
pub(crate) fn check(
    folder: &Path,
    partitions: u64,
    options: Options,
    ledger: &mut Ledger,
) -> Result<Found, Failed> {
    let started = Instant::now();
    let store = EmbeddedStore::open(folder, options).map_err(|error| Failed::Open(error.to_string()))?;
    let mut found = Found { opened_in: started.elapsed(), ..Found::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| Failed::Read(error.to_string()))?;
    let checked: Result<(), String> = runtime.block_on(async {
        for partition in 0..partitions {
            check_rows(&store, partition, ledger, &mut found).await?;
            check_public(&store, partition, ledger, &mut found).await?;
        }
        Ok(())
    });
    checked.map(|()| found).map_err(Failed::Read)
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
    ledger.note_head(number, commits);

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
    let mut there: Vec<PublicRow> = Vec::new();
    for slot in 0..PUBLIC_ROWS {
        let key = workload::public_key(number, slot);
        let row = store.get(PUBLIC, &key).await.map_err(|error| error.to_string())?;
        let acknowledged = ledger.put.get(&(number, slot)).copied().unwrap_or(0);
        let revision = row.as_ref().map_or(0, |row| row.revision);
        found.lost += u64::from(revision < acknowledged);
        found.unacknowledged += u64::from(revision > acknowledged);
        ledger.put.insert((number, slot), revision);
        if let Some(row) = row {
            let right = revision > 0
                && row.key == key
                && workload::public_row(number, revision).as_ref() == Some(&row);
            found.wrong_rows += u64::from(!right) + missing_in_indexes(store, &row).await?;
            there.push(row);
        }
    }
    // What the index has besides: rows of no slot, and one row twice.
    let query = Query::default().equal("Engine", &format!("engine {number}")).limit(Query::LIMIT_MAX);
    let listed = store.query(PUBLIC, &query).await.map_err(|error| error.to_string())?.rows;
    let strangers = listed.iter().filter(|row| !there.contains(row)).count();
    found.wrong_rows += (strangers + listed.len().abs_diff(there.len())) as u64;
    Ok(())
}

/// How many indexes do not lead to the row; the one without columns is the order of all rows.
async fn missing_in_indexes(store: &EmbeddedStore, row: &PublicRow) -> Result<u64, String> {
    let at = row.ordered_at(PUBLIC);
    let every_row: Index = &[];
    let mut missing = 0;
    for index in PUBLIC.indexes.iter().copied().chain([every_row]) {
        let mut query = Query {
            from: at,
            until: at.map(|at| at.saturating_add(1)),
            limit: Query::LIMIT_MAX,
            ..Query::default()
        };
        for column in index {
            query = query.equal(column, row.text(column).unwrap_or_default());
        }
        let page = store.query(PUBLIC, &query).await.map_err(|error| error.to_string())?;
        missing += u64::from(!page.rows.contains(row));
    }
    Ok(missing)
}
