//! The record of how far the journals were synced: synced commits that are missing are damage, named and refused, and
//! what was not recorded yet may be torn. Recording costs commits nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Scan, StoreError};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreOpenError, SyncMode};

const ROWS: usize = 40;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
}

fn open(folder: &Path) -> Result<EmbeddedStore, StoreOpenError> {
    EmbeddedStore::open(folder, options())
}

async fn create(store: &EmbeddedStore, number: usize, value: Vec<u8>) {
    let partition = Partition::new("p").unwrap();
    let batch = Batch::checked().create(Key::new(number.to_be_bytes()), value);
    assert!(matches!(store.commit(&partition, batch).await, CommitOutcome::Committed(_)));
}

async fn row_count(store: &EmbeddedStore) -> Result<usize, StoreError> {
    Ok(store.scan(&Partition::new("p").unwrap(), Scan::all()).await?.rows.len())
}

/// A store whose process was killed: forty commits, all of them recorded as synced, and after them one that is not.
async fn make_killed(folder: &Path) {
    let store = open(folder).unwrap();
    for number in 0..ROWS {
        create(&store, number, format!("value {number} of {}", folder.display()).into_bytes()).await;
    }
    drop(store);
    let store = open(folder).unwrap();
    let synced = fs::read(folder.join("SYNCED")).unwrap();
    create(&store, ROWS, b"not recorded".to_vec()).await;
    drop(store);
    fs::write(folder.join("SYNCED"), synced).unwrap();
    fs::remove_file(folder.join("CLEAN")).unwrap();
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("engine/0.jnl")
}

/// The file, the byte and the reason of a refusal, which must not have changed anything.
fn refusal(folder: &Path) -> (PathBuf, usize, String) {
    let before = fs::read(journal(folder)).unwrap_or_default();
    let refused = match open(folder) {
        Err(StoreOpenError::Damaged { file, at, reason }) => (file, at, reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(fs::read(journal(folder)).unwrap_or_default(), before, "nothing was changed");
    refused
}

#[tokio::test]
async fn a_journal_without_its_synced_commits_is_refused_and_named() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("store");
    make_killed(&folder).await;
    let whole = fs::read(journal(&folder)).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let garbage: Vec<u8> = (0..used).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    let losses: [(&str, Vec<u8>); 5] = [
        ("empty", Vec::new()),
        ("only zeros", vec![0; whole.len()]),
        ("garbage", garbage),
        ("half of it", whole[..used / 2].to_vec()),
        ("garbage from the middle on", [&whole[..used / 2], &vec![0x5a; used / 2]].concat()),
    ];
    for (name, loss) in losses {
        fs::write(journal(&folder), loss).unwrap();
        for attempt in ["first", "second"] {
            let (file, at, reason) = refusal(&folder);
            assert_eq!(file, journal(&folder), "{name}, {attempt}");
            assert!(at <= used / 2, "{name}, {attempt}: byte {at}");
            assert!(reason.contains("it was synced up to byte"), "{name}, {attempt}: {reason}");
        }
    }
    fs::write(journal(&folder), whole).unwrap();
    assert_eq!(row_count(&open(&folder).unwrap()).await.unwrap(), ROWS + 1, "the undamaged store opens");
}

#[tokio::test]
async fn a_commit_that_was_not_recorded_may_be_torn() {
    let base = tempfile::tempdir().unwrap();
    make_killed(base.path()).await;
    let mut bytes = fs::read(journal(base.path())).unwrap();
    let torn = bytes.windows(12).position(|window| window == b"not recorded").unwrap();
    bytes.truncate(torn + 3);
    fs::write(journal(base.path()), bytes).unwrap();
    let store = open(base.path()).unwrap();
    assert!(store.journal_recovery().torn_bytes > 0);
    assert_eq!(row_count(&store).await.unwrap(), ROWS);
}

#[tokio::test]
async fn the_journal_of_another_store_is_refused() {
    let base = tempfile::tempdir().unwrap();
    // Folders with names of the same length, so that the journals have the same length too.
    let (one, two) = (base.path().join("one"), base.path().join("two"));
    make_killed(&one).await;
    make_killed(&two).await;
    let (of_one, of_two) = (fs::read(journal(&one)).unwrap(), fs::read(journal(&two)).unwrap());
    fs::write(journal(&one), of_two).unwrap();
    fs::write(journal(&two), of_one).unwrap();
    for folder in [&one, &two] {
        let (file, _, reason) = refusal(folder);
        assert_eq!(file, journal(folder));
        assert!(reason.contains("not those that were synced"), "{reason}");
    }
}

/// A store with a sealed journal and an active one. The engine removes a sealed journal when it has flushed all its
/// rows, which happens in the background, so this may need more than one try.
async fn make_with_two_journals(base: &Path) -> PathBuf {
    for number in 0..50 {
        let folder = base.join(number.to_string());
        if try_make_with_two_journals(&folder).await {
            return folder;
        }
        fs::remove_dir_all(folder).unwrap();
    }
    panic!("the engine always removed the sealed journal");
}

/// False if the sealed journal is gone already.
async fn try_make_with_two_journals(folder: &Path) -> bool {
    let options =
        EmbeddedOptions { sync: SyncMode::OperatingSystem, write_buffer_bytes: 8 * 1024 * 1024, ..options() };
    let store = EmbeddedStore::open(folder, options).unwrap();
    let second = folder.join("engine/1.jnl");
    let mut number = 0;
    while !second.exists() {
        create(&store, number, vec![7; 900_000]).await;
        number += 1;
        assert!(number < 1_000, "the engine did not begin a second journal");
    }
    create(&store, number, b"in the second".to_vec()).await;
    drop(store);
    drop(EmbeddedStore::open(folder, options).unwrap());
    fs::remove_file(folder.join("CLEAN")).unwrap();
    journal(folder).exists() && second.exists()
}

#[tokio::test]
async fn two_journals_swapped_or_one_of_them_lost_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let folder = make_with_two_journals(base.path()).await;
    let engine = folder.join("engine");
    let (first, second, aside) = (engine.join("0.jnl"), engine.join("1.jnl"), engine.join("aside"));
    let swap = || {
        fs::rename(&first, &aside).unwrap();
        fs::rename(&second, &first).unwrap();
        fs::rename(&aside, &second).unwrap();
    };
    swap();
    assert_eq!(refusal(&folder).0, first, "swapped");
    swap();
    for (lost, reason) in [(&first, "synced up to byte"), (&second, "synced up to byte")] {
        fs::rename(lost, &aside).unwrap();
        fs::write(lost, b"").unwrap();
        let refused = refusal(&folder);
        assert_eq!((&refused.0, refused.1), (lost, 0), "emptied: {}", refused.2);
        assert!(refused.2.contains(reason), "{}", refused.2);
        fs::rename(&aside, lost).unwrap();
    }
    fs::rename(&second, &aside).unwrap();
    assert_eq!(refusal(&folder).2, "the journal is missing");
    fs::rename(&aside, &second).unwrap();
    open(&folder).unwrap();
}

#[tokio::test]
async fn salvaging_opens_what_is_left_and_reports_the_loss() {
    let base = tempfile::tempdir().unwrap();
    make_killed(base.path()).await;
    fs::write(journal(base.path()), b"").unwrap();
    let store = EmbeddedStore::open(base.path(), EmbeddedOptions { salvage: true, ..options() }).unwrap();
    let recovery = store.journal_recovery();
    assert!(recovery.lost_bytes > 0 && recovery.torn_bytes == 0, "{recovery:?}");
    drop(store);
    open(base.path()).unwrap();
}

#[tokio::test]
async fn a_store_of_format_1_is_opened_once_without_a_record_and_has_one_from_then_on() {
    let base = tempfile::tempdir().unwrap();
    make_killed(base.path()).await;
    let synced = base.path().join("SYNCED");
    fs::remove_file(&synced).unwrap();
    fs::write(base.path().join("FORMAT"), "1\n").unwrap();
    assert_eq!(row_count(&open(base.path()).unwrap()).await.unwrap(), ROWS + 1);
    assert_eq!(fs::read_to_string(base.path().join("FORMAT")).unwrap(), "2\n");
    assert!(synced.exists());
    for lost in [None, Some(vec![0; 8_192])] {
        match lost {
            None => fs::remove_file(&synced).unwrap(),
            Some(bytes) => fs::write(&synced, bytes).unwrap(),
        }
        let (file, _, reason) = refusal(base.path());
        assert_eq!((file, reason.contains("missing or broken")), (synced.clone(), true), "{reason}");
    }
}

/// The number of the newest record: it counts how often the record was written and synced.
fn record_number(folder: &Path) -> u64 {
    let bytes = fs::read(folder.join("SYNCED")).unwrap();
    let numbers =
        [16, 4096 + 16].map(|at| u64::from_le_bytes(*bytes.get(at..).unwrap().first_chunk().unwrap()));
    numbers.into_iter().max().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the bound is in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until a record with this number is written.
fn wait_for_record(folder: &Path, number: u64) {
    let began = now();
    while record_number(folder) < number {
        assert!(began.elapsed() < Duration::from_secs(30), "no record was written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_commit_is_recorded_a_second_later_and_a_mebibyte_at_once() {
    let base = tempfile::tempdir().unwrap();
    let store = open(base.path()).unwrap();
    let before = record_number(base.path());
    let began = now();
    create(&store, 0, b"small".to_vec()).await;
    wait_for_record(base.path(), before + 1);
    assert!(began.elapsed() >= Duration::from_secs(1), "commits of a second share a record");
    let began = now();
    for number in 1..=3 {
        create(&store, number, vec![1; 600_000]).await;
    }
    wait_for_record(base.path(), before + 2);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // A kill right now: what the record names must be in the journal.
    let copy = base.path().join("copy");
    copy_store(base.path(), &copy);
    let mut bytes = fs::read(journal(&copy)).unwrap();
    assert_eq!(row_count(&open(&copy).unwrap()).await.unwrap(), 4);
    fs::remove_dir_all(&copy).unwrap();
    copy_store(base.path(), &copy);
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(used - 1_100_000);
    fs::write(journal(&copy), bytes).unwrap();
    assert!(refusal(&copy).2.contains("synced up to byte"), "the first of the three was recorded");
}

/// Copies a store that is open, as a kill would leave it: the record first, because the journal only grows.
fn copy_store(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["SYNCED", "FORMAT", "LOCK", "engine"] {
        copy(&from.join(name), &to.join(name));
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

/// Two hundred commits one after the other are two hundred groups with a sync each. The records are bounded by time and
/// bytes, whatever the number of commits.
#[tokio::test]
async fn commits_cost_no_further_sync() {
    let base = tempfile::tempdir().unwrap();
    let store = open(base.path()).unwrap();
    let before = record_number(base.path());
    let began = now();
    for number in 0..200 {
        create(&store, number, vec![2; 1_000]).await;
    }
    let seconds = began.elapsed().as_secs();
    let records = record_number(base.path()) - before;
    assert!(records <= seconds + 1, "{records} records in {seconds} s");
}
