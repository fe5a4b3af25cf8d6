//! Damaged blocks of sorted files: everything around them is read, nothing of them is invented.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use abide_store::rows::{
    Batch, CommitOutcome, Damage, Key, Partition, Passed, PrivateRows, Scan, StoreError, scan_past_damage,
};
use abide_store_embedded::{EmbeddedStore, Options};

const ROWS: u32 = 2_000;

fn options() -> Options {
    Options { disk_reserve_bytes: 0, write_buffer_bytes: 128 * 1024, ..Options::default() }
}

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

fn key(number: u32) -> Key {
    Key::new(number.to_be_bytes())
}

/// Does not compress to nothing, so that a file has many blocks.
fn value(number: u32, round: u32) -> Vec<u8> {
    (0..60).flat_map(|i| (number * 7_919 + round * 31 + i * i).to_be_bytes()).collect()
}

/// A closed store whose rows were all written twice, so that older files have what newer ones replace.
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

async fn head(store: &EmbeddedStore) -> Option<abide_store::rows::Version> {
    store.read(&partition(), &Key::new(*b"head")).await.unwrap().map(|row| row.version)
}

/// Sorted files, the largest first.
fn sorted_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("engine/keyspaces")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.parent().unwrap().ends_with("tables") {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    found
}

async fn walk(store: &EmbeddedStore) -> (BTreeMap<Key, Vec<u8>>, Vec<Damage>) {
    let (mut rows, mut places, mut next) = (BTreeMap::new(), Vec::new(), Some(Scan::all().at_most(300)));
    while let Some(scan) = next {
        let Passed { page, damage } = scan_past_damage(store, &partition(), scan).await.unwrap();
        rows.extend(page.rows.into_iter().map(|row| (row.key, row.value)));
        places.extend(damage);
        next = page.next;
    }
    (rows, places)
}

#[tokio::test]
async fn a_scan_goes_on_behind_a_damaged_block_and_gives_no_older_row_in_its_place() {
    let base = tempfile::tempdir().unwrap();
    make(base.path()).await;
    let files = sorted_files(base.path());
    let file = files.first().unwrap();
    let whole = fs::read(file).unwrap();
    let mut places_met = 0;
    for part in 1..8 {
        let mut bytes = whole.clone();
        let at = bytes.len() * part / 10;
        bytes[at] ^= 1;
        fs::write(file, bytes).unwrap();
        let store = EmbeddedStore::open(base.path(), options()).unwrap();
        let (rows, places) = walk(&store).await;
        places_met += places.len();
        let hit =
            |key: &Key| places.iter().any(|place| (place.from.clone(), place.until.clone()).contains(key));
        for number in 0..ROWS {
            let (found, hit) = (rows.get(&key(number)), hit(&key(number)));
            assert_eq!(found.is_none(), hit, "row {number}, byte {at}");
            assert!(found.is_none_or(|found| *found == value(number, 2)), "row {number}, byte {at}");
            // What a scan passes over is not more than what cannot be read singly either.
            let single = store.read(&partition(), &key(number)).await;
            match single {
                Ok(Some(row)) => assert_eq!(row.value, value(number, 2)),
                Err(StoreError::Corrupt { .. }) => {}
                other => panic!("row {number}, byte {at}: {other:?}"),
            }
        }
        assert!(places.len() < 2 && rows.len() > ROWS as usize - 400, "{} of {ROWS}", rows.len());
    }
    assert!(places_met > 3, "{places_met}");
}
