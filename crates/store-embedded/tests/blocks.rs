//! Damaged blocks of sorted files: all rows around them can be read, and no row in them is invented.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use abide_store::rows::{
    Batch, CommitOutcome, DamagedRange, Key, Partition, PrivateRows, Scan, StoreError, TolerantPage,
    scan_past_damage,
};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore};

const ROWS: u32 = 2_000;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { disk_reserve_bytes: 0, write_buffer_bytes: 128 * 1024, ..EmbeddedOptions::default() }
}

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

fn key(number: u32) -> Key {
    Key::new(number.to_be_bytes())
}

/// A value that does not compress well, so that a file has many blocks.
fn value(number: u32, round: u32) -> Vec<u8> {
    (0..60).flat_map(|i| (number * 7_919 + round * 31 + i * i).to_be_bytes()).collect()
}

/// Makes a store whose rows were all written twice, so that older files have rows that newer files replace, and closes
/// it.
async fn make(folder: &Path) {
    let store = EmbeddedStore::open(folder, options()).unwrap();
    for round in [1, 2] {
        for first in (0..ROWS).step_by(50) {
            let put = |batch: Batch, number| batch.put(key(number), value(number, round));
            let fence = Batch::fenced(Key::new(*b"head"), head(&store).await, b"head".to_vec());
            let batch = (first..first + 50).fold(fence, put);
            assert!(matches!(store.commit(&partition(), batch).await, CommitOutcome::Committed(_)));
        }
    }
}

async fn head(store: &EmbeddedStore) -> Option<abide_store::rows::RowVersion> {
    store.read(&partition(), &Key::new(*b"head")).await.unwrap().map(|row| row.version)
}

/// The sorted files of the engine, the largest first.
fn sorted_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.join("engine/keyspaces")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.parent().unwrap().ends_with("tables") {
                files.push(path);
            }
        }
    }
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    files
}

async fn walk(store: &EmbeddedStore) -> (BTreeMap<Key, Vec<u8>>, Vec<DamagedRange>) {
    let mut rows = BTreeMap::new();
    let mut damaged = Vec::new();
    let mut next = Some(Scan::all().limit(300));
    while let Some(scan) = next {
        let TolerantPage { page, damage } = scan_past_damage(store, &partition(), scan).await.unwrap();
        rows.extend(page.rows.into_iter().map(|row| (row.key, row.value)));
        damaged.extend(damage);
        next = page.next;
    }
    (rows, damaged)
}

#[tokio::test]
async fn a_scan_continues_after_a_damaged_block_and_returns_no_older_row_of_it() {
    let base = tempfile::tempdir().unwrap();
    make(base.path()).await;
    let files = sorted_files(base.path());
    let file = files.first().unwrap();
    let intact = fs::read(file).unwrap();
    let mut ranges_met = 0;
    for part in 1..8 {
        let mut bytes = intact.clone();
        let at = bytes.len() * part / 10;
        bytes[at] ^= 1;
        fs::write(file, bytes).unwrap();
        let store = EmbeddedStore::open(base.path(), options()).unwrap();
        let (rows, damaged) = walk(&store).await;
        ranges_met += damaged.len();
        let is_damaged =
            |key: &Key| damaged.iter().any(|range| (range.from.clone(), range.until.clone()).contains(key));
        for number in 0..ROWS {
            let scanned = rows.get(&key(number));
            let is_damaged = is_damaged(&key(number));
            assert_eq!(scanned.is_none(), is_damaged, "row {number}, byte {at}");
            assert!(scanned.is_none_or(|scanned| *scanned == value(number, 2)), "row {number}, byte {at}");
            // A single read returns the newest value or reports damage.
            let single = store.read(&partition(), &key(number)).await;
            match single {
                Ok(Some(row)) => assert_eq!(row.value, value(number, 2)),
                Err(StoreError::Corrupt { .. }) => {}
                other => panic!("row {number}, byte {at}: {other:?}"),
            }
        }
        assert!(damaged.len() < 2 && rows.len() > ROWS as usize - 400, "{} of {ROWS}", rows.len());
    }
    assert!(ranges_met > 3, "{ranges_met}");
}
