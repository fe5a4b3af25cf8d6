//! The folder of a store: one process, one format, no incomplete stores; backups; a full disk.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use abide_store::conformance::join_all;
use abide_store::public::{PublicQuery, PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, Durability, Key, Partition, PrivateRows, Scan, StoreHealth};
use abide_store::tables::engine_history::SCHEMA;
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreBackupError, StoreOpenError, SyncMode};

fn options() -> EmbeddedOptions {
    EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
}

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(folder, options()).unwrap()
}

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

async fn create(store: &EmbeddedStore, name: &str) -> CommitOutcome {
    store.commit(&partition(), Batch::checked().create(Key::new(name), name.as_bytes().to_vec())).await
}

async fn names(store: &EmbeddedStore) -> Vec<String> {
    let page = store.scan(&partition(), Scan::all()).await.unwrap();
    page.rows.into_iter().map(|row| String::from_utf8(row.value).unwrap()).collect()
}

#[tokio::test]
async fn a_second_open_of_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let second = EmbeddedStore::open(folder.path(), options()).unwrap_err();
    assert!(matches!(second, StoreOpenError::InUse { .. }), "{second}");
    assert!(second.to_string().contains("in use by another process"), "{second}");
    assert!(matches!(create(&store, "a").await, CommitOutcome::Committed(_)), "the first one still works");
    drop(store);
    open(folder.path());
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    fs::write(folder.path().join("FORMAT"), "3\n").unwrap();
    let error = EmbeddedStore::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, StoreOpenError::NewerFormat { found: 3, .. }), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("FORMAT")).unwrap(), "3\n");
    fs::write(folder.path().join("FORMAT"), "rubbish").unwrap();
    assert!(matches!(EmbeddedStore::open(folder.path(), options()), Err(StoreOpenError::Damaged { .. })));
    fs::write(folder.path().join("FORMAT"), [0xff, 0xfe]).unwrap();
    let error = EmbeddedStore::open(folder.path(), options()).unwrap_err();
    assert!(error.to_string().contains("FORMAT"), "{error}");
}

#[test]
fn a_folder_with_other_files_is_not_opened_as_a_store() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "words").unwrap();
    assert!(matches!(EmbeddedStore::open(folder.path(), options()), Err(StoreOpenError::NotAStore { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written into it");
}

#[tokio::test]
async fn a_store_whose_creation_crashed_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("engine.new")).unwrap();
    fs::write(folder.path().join("engine.new").join("0.jnl"), "half").unwrap();
    fs::write(folder.path().join("LOCK"), "").unwrap();
    assert!(matches!(create(&open(folder.path()), "a").await, CommitOutcome::Committed(_)));
    // All steps of the creation but the last are complete.
    fs::remove_file(folder.path().join("FORMAT")).unwrap();
    assert_eq!(names(&open(folder.path())).await, ["a"]);
}

#[test]
fn the_sync_mode_determines_the_declared_durability() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(open(folder.path()).capabilities().durability, Durability::Synced);
    let weak = EmbeddedOptions { sync: SyncMode::OperatingSystem, ..options() };
    let store = EmbeddedStore::open(folder.path(), weak).unwrap();
    assert_eq!(store.capabilities().durability, Durability::Written);
    assert_eq!(weak.sync.name(), "operating-system");
}

#[tokio::test]
async fn commits_stop_at_the_disk_reserve_and_reads_continue() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(create(&open(folder.path()), "a").await, CommitOutcome::Committed(_)));
    let all = EmbeddedOptions { disk_reserve_bytes: u64::MAX, ..options() };
    let store = EmbeddedStore::open(folder.path(), all).unwrap();
    let outcome = create(&store, "b").await;
    assert!(
        matches!(&outcome, CommitOutcome::Unavailable { reason } if reason.contains("disk is full")),
        "{outcome:?}"
    );
    assert!(matches!(store.health(), StoreHealth::ReadOnly { reason } if reason.contains("disk is full")));
    assert_eq!(names(&store).await, ["a"]);
}

#[tokio::test]
async fn commits_that_wait_for_queue_space_all_complete() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        EmbeddedStore::open(folder.path(), EmbeddedOptions { queue_bytes: 4_096, ..options() }).unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    let outcomes = join_all(names.iter().map(|name| create(&store, name)).collect()).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Committed(_))));
    assert_eq!(self::names(&store).await, names);
}

/// A writer always writes the same value to all rows. A backup taken meanwhile has the same value in all of them, and
/// is a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_store_is_of_one_point_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("store");
    let to = folder.path().join("backup");
    let store = std::sync::Arc::new(open(&from));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let store = store.clone();
        let stop = stop.clone();
        async move {
            let mut version = None;
            let mut number = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                let value = number.to_be_bytes().to_vec();
                let batch = Batch::fenced(Key::new("head"), version, value.clone());
                let batch = batch.put(Key::new("a"), value.clone()).put(Key::new("z"), value);
                let CommitOutcome::Committed(receipt) = store.commit(&partition(), batch).await else {
                    panic!()
                };
                version = receipt.head_version;
            }
            (version, number)
        }
    });
    let mut tick = store.wait_for_change(&partition(), abide_store::ChangeTick::START).await;
    for _ in 0..20 {
        tick = store.wait_for_change(&partition(), tick).await;
    }
    let mut copied = 0;
    store.backup(&to, |bytes| copied += bytes).unwrap();
    assert!(copied > 0);
    assert!(
        matches!(store.backup(&to, |_| {}), Err(StoreBackupError::Exists { .. })),
        "a backup is never replaced"
    );
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (version, number) = writer.await.unwrap();

    let backup = open(&to);
    let rows = backup.scan(&partition(), Scan::all()).await.unwrap().rows;
    let numbers: Vec<u64> =
        rows.iter().map(|row| u64::from_be_bytes(row.value.clone().try_into().unwrap())).collect();
    assert!(
        matches!(numbers.as_slice(), [a, head, z] if a == head && head == z && *a > 0 && *a <= number),
        "{numbers:?}"
    );
    let next = Batch::fenced(Key::new("head"), Some(rows[1].version.clone()), vec![]);
    let outcome = backup.commit(&partition(), next).await;
    let CommitOutcome::Committed(receipt) = outcome else {
        panic!("versions stay valid in the copy: {outcome:?}")
    };
    assert_ne!(receipt.head_version, version, "the copy reuses no version of the store");
}

#[tokio::test]
async fn a_backup_accepts_the_continuation_tokens_of_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store"));
    let rows = (0..10).map(|at| {
        let columns = [
            ("Engine", "hmac"),
            ("InstanceId", "i"),
            ("Operation", "rotate"),
            ("Status", "Succeeded"),
            ("Input", "{}"),
            ("CorrelationId", "c"),
        ];
        let mut columns: std::collections::BTreeMap<_, _> = columns
            .map(|(name, text)| (name.to_owned(), abide_store::public::CellValue::Text(text.to_owned())))
            .into();
        columns.insert("DurationMs".to_owned(), abide_store::public::CellValue::Integer(1));
        columns.insert(
            "CreatedAtUtc".to_owned(),
            abide_store::public::CellValue::Time(abide_ids::Timestamp(at)),
        );
        let key = abide_store::public::PublicKey { partition: "hmac".to_owned(), row: at.to_string() };
        PublicWrite::Put(abide_store::public::PublicRow { key, revision: 1, columns })
    });
    store.put(&SCHEMA, rows.collect()).await.unwrap();
    let query = PublicQuery::default().filter("Engine", "hmac").limit(4);
    let first = store.query(&SCHEMA, &query).await.unwrap();
    store.backup(&folder.path().join("backup"), |_| {}).unwrap();
    let backup = open(&folder.path().join("backup"));
    let second = backup.query(&SCHEMA, &query.clone().continue_from(first.continuation)).await.unwrap();
    assert_eq!(second.rows.iter().map(|row| row.key.row.as_str()).collect::<Vec<_>>(), ["5", "4", "3", "2"]);
    let elsewhere = open(&folder.path().join("another"));
    let foreign = store.query(&SCHEMA, &query).await.unwrap().continuation;
    let result = elsewhere.query(&SCHEMA, &query.continue_from(foreign)).await;
    assert_eq!(
        result,
        Err(abide_store::public::PublicQueryError::InvalidContinuation),
        "another store's token"
    );
}

/// The files of an engine that a backup still reads are not changed, even if its last outcome is unknown.
#[tokio::test]
async fn a_store_is_not_reopened_during_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(open(&folder.path().join("store")));
    assert!(matches!(create(&store, "a").await, CommitOutcome::Committed(_)));
    let journal = folder.path().join("store/engine/0.jnl");
    let fail_and_reopen = move |store: std::sync::Arc<EmbeddedStore>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            store.make_next_commit_unknown(true);
            assert!(matches!(create(&store, "b").await, CommitOutcome::Unknown { .. }));
            let before = fs::metadata(&journal).unwrap().ino();
            let reopened = store.reopen().await;
            assert_eq!(fs::metadata(&journal).unwrap().ino(), before, "the journal was replaced");
            reopened
        })
    };
    let mut during = None;
    let copied = |_| {
        if during.is_none() {
            let store = std::sync::Arc::clone(&store);
            let fail_and_reopen = fail_and_reopen.clone();
            during = Some(std::thread::spawn(move || fail_and_reopen(store)).join().unwrap());
        }
    };
    store.backup(&folder.path().join("backup"), copied).unwrap();
    assert!(matches!(during, Some(Err(StoreOpenError::InUse { .. }))), "{during:?}");
    store.reopen().await.unwrap();
    assert_eq!(names(&store).await, ["a", "b"], "the unknown commit had been applied");
    assert_eq!(names(&open(&folder.path().join("backup"))).await, ["a"]);
}

/// Every file and folder here, with its mode.
fn modes(path: &Path) -> Vec<(std::path::PathBuf, u32)> {
    let mut modes = vec![(path.to_owned(), fs::metadata(path).unwrap().permissions().mode() & 0o777)];
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            modes.extend(self::modes(&entry.unwrap().path()));
        }
    }
    modes
}

fn assert_private(folder: &Path) {
    let modes = modes(folder);
    assert!(modes.len() > 20, "{modes:?}");
    for (path, mode) in modes {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}", path.display());
    }
}

/// Whoever can read the files can read every payload. Earlier releases left the folder readable for everybody.
#[tokio::test]
async fn only_the_owner_can_read_a_store_and_its_backups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/store");
    let store = open(&path);
    assert_private(&path);
    assert!(matches!(create(&store, "a").await, CommitOutcome::Committed(_)));
    store.backup(&folder.path().join("backup"), |_| {}).unwrap();
    drop(store);
    assert_private(&path);
    assert_private(&folder.path().join("backup"));
    for (path, _) in modes(&path) {
        let open = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
    }
    drop(open(&path));
    assert_private(&path);
}
