//! Damaged files: unacknowledged commits are cut off, missing acknowledged ones are reported with the file, and no row
//! is invented.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, StoreError};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreOpenError};

const ROWS: usize = 40;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
}

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

fn value(number: usize) -> Vec<u8> {
    format!("value number {number:04} ").repeat(20).into_bytes()
}

/// Makes a store of forty commits, all of them in its journal, and closes it. Returns the record of synced lengths from
/// before the commits: a crash within a second after them leaves it.
async fn make(folder: &Path) -> Vec<u8> {
    let store = EmbeddedStore::open(folder, options()).unwrap();
    let synced = fs::read(folder.join("SYNCED")).unwrap();
    for number in 0..ROWS {
        let batch = Batch::checked().create(Key::new(number.to_be_bytes()), value(number));
        assert!(matches!(store.commit(&partition(), batch).await, CommitOutcome::Committed(_)));
    }
    synced
}

/// The rows that can be read; each has the value that was written.
async fn readable(store: &EmbeddedStore) -> Vec<usize> {
    let mut rows = Vec::new();
    for number in 0..ROWS {
        match store.read(&partition(), &Key::new(number.to_be_bytes())).await {
            Ok(Some(row)) => {
                assert_eq!(row.value, value(number), "an invented value");
                rows.push(number);
            }
            Ok(None) => {}
            Err(StoreError::Corrupt { key, .. }) => assert_eq!(key, Key::new(number.to_be_bytes())),
            Err(error) => panic!("{error}"),
        }
    }
    rows
}

fn journal(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).max().unwrap()
}

fn place_of(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

/// Leaves the folder as after a crash: without the marker of a clean close, and with this record of synced lengths.
fn as_crashed(folder: &Path, synced: &[u8]) {
    fs::remove_file(folder.join("CLEAN")).unwrap();
    fs::write(folder.join("SYNCED"), synced).unwrap();
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_torn_tail_is_cut_off_and_everything_before_it_is_there() {
    let base = tempfile::tempdir().unwrap();
    let synced = make(base.path()).await;
    as_crashed(base.path(), &synced);
    let journal = journal(base.path());
    let whole = fs::read(&journal).unwrap();
    let last = place_of(&whole, &value(ROWS - 1));
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // A group whose write was interrupted: it has no end, or zeros in its middle.
    type Tear<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let torn: [(&str, Tear<'_>); 4] = [
        ("half of it", Box::new(|bytes| bytes.truncate(last + 100))),
        ("its end only zeros", Box::new(|bytes| bytes[last + 100..end].fill(0))),
        ("a hole in it", Box::new(|bytes| bytes[last..last + 50].fill(0))),
        ("its beginning lost", Box::new(|bytes| bytes[last - 30..last].fill(0))),
    ];
    for (name, tear) in torn {
        fs::write(&journal, &whole).unwrap();
        change(&journal, |bytes| tear(bytes));
        let store =
            EmbeddedStore::open(base.path(), options()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(readable(&store).await, (0..ROWS - 1).collect::<Vec<_>>(), "{name}");
        assert!(
            store.journal_recovery().torn_bytes > 0 && store.journal_recovery().lost_bytes == 0,
            "{name}"
        );
        let again = Batch::checked().create(Key::new((ROWS - 1).to_be_bytes()), value(ROWS - 1));
        assert!(matches!(store.commit(&partition(), again).await, CommitOutcome::Committed(_)), "{name}");
        drop(store);
        let store = EmbeddedStore::open(base.path(), options()).unwrap();
        assert_eq!(readable(&store).await, (0..ROWS).collect::<Vec<_>>(), "{name}: a later commit");
        drop(store);
        as_crashed(base.path(), &synced);
    }
}

#[tokio::test]
async fn damage_in_the_middle_of_the_journal_is_refused_and_named() {
    let base = tempfile::tempdir().unwrap();
    let synced = make(base.path()).await;
    as_crashed(base.path(), &synced);
    let journal = journal(base.path());
    let whole = fs::read(&journal).unwrap();
    let middle = place_of(&whole, &value(20));
    // In a value, in its item's key and header, in its batch's Start with the number, in the End of the batch before.
    for at in (middle - 70..middle + 10).flat_map(|at| [(at, 0x01), (at, 0x40)]) {
        let (at, bit) = at;
        fs::write(&journal, &whole).unwrap();
        change(&journal, |bytes| bytes[at] ^= bit);
        let damaged = fs::read(&journal).unwrap();
        match EmbeddedStore::open(base.path(), options()) {
            Err(StoreOpenError::Damaged { file, at: named, .. }) => {
                assert_eq!(file, journal);
                assert!(named.abs_diff(at) < 1_000, "named {named}, damaged {at}");
            }
            other => panic!("byte {at}: {other:?}"),
        }
        assert_eq!(fs::read(&journal).unwrap(), damaged, "nothing was changed");
    }
}

#[tokio::test]
async fn salvaging_leaves_out_the_damaged_commit_and_keeps_the_rest() {
    let base = tempfile::tempdir().unwrap();
    let synced = make(base.path()).await;
    as_crashed(base.path(), &synced);
    change(&journal(base.path()), |bytes| {
        let at = place_of(bytes, &value(20));
        bytes[at] ^= 1;
    });
    assert!(matches!(EmbeddedStore::open(base.path(), options()), Err(StoreOpenError::Damaged { .. })));
    let store = EmbeddedStore::open(base.path(), EmbeddedOptions { salvage: true, ..options() }).unwrap();
    assert_eq!(readable(&store).await, (0..ROWS).filter(|number| *number != 20).collect::<Vec<_>>());
    let lost = store.journal_recovery().lost_bytes;
    drop(store);
    assert!(lost > 0, "the lost bytes are reported");
    assert!(journal(base.path()).with_extension("damaged").exists(), "the damaged journal is kept");
    EmbeddedStore::open(base.path(), options()).unwrap();
}

#[tokio::test]
async fn a_missing_end_after_a_clean_close_is_refused() {
    let base = tempfile::tempdir().unwrap();
    make(base.path()).await;
    change(&journal(base.path()), |bytes| {
        let last = place_of(bytes, &value(ROWS - 1));
        bytes.truncate(last);
    });
    let error = EmbeddedStore::open(base.path(), options()).unwrap_err();
    assert!(error.to_string().contains("although the store was shut down cleanly"), "{error}");
    fs::remove_file(journal(base.path())).unwrap();
    let error = EmbeddedStore::open(base.path(), options()).unwrap_err();
    assert!(error.to_string().contains("the journal is missing"), "{error}");
}

#[tokio::test]
async fn missing_files_are_refused_and_not_recreated() {
    let base = tempfile::tempdir().unwrap();
    let synced = make(base.path()).await;
    as_crashed(base.path(), &synced);
    let names = [
        "version",
        "0.jnl",
        "keyspaces/0/current",
        "keyspaces/1/current",
        "keyspaces/2/current",
        "keyspaces/3/current",
        "keyspaces/4/current",
    ];
    for name in names {
        let file = base.path().join("engine").join(name);
        let aside = base.path().join("engine").join("aside");
        fs::rename(&file, &aside).unwrap();
        let opened = EmbeddedStore::open(base.path(), options());
        assert!(
            matches!(&opened, Err(StoreOpenError::Damaged { file: named, .. }) if *named == file),
            "{name}: {opened:?}"
        );
        fs::rename(&aside, &file).unwrap();
    }
    assert_eq!(readable(&EmbeddedStore::open(base.path(), options()).unwrap()).await.len(), ROWS);
}

/// The engine may begin a new journal after a failed commit: the torn tail is then in the journal before.
#[tokio::test]
async fn a_torn_tail_before_an_empty_journal_is_a_torn_tail() {
    let base = tempfile::tempdir().unwrap();
    let synced = make(base.path()).await;
    as_crashed(base.path(), &synced);
    let first = journal(base.path());
    let second = base.path().join("engine/1.jnl");
    fs::write(&second, vec![0; 1_000]).unwrap();
    change(&first, |bytes| {
        let last = place_of(bytes, &value(ROWS - 1));
        bytes[last..last + 50].fill(0);
    });
    let torn = fs::read(&first).unwrap();
    let store = EmbeddedStore::open(base.path(), options()).unwrap();
    assert_eq!(readable(&store).await, (0..ROWS - 1).collect::<Vec<_>>());
    drop(store);
    // If the later journal has batches, the break was no tail.
    as_crashed(base.path(), &synced);
    let later = fs::read(&second).unwrap();
    assert!(later.iter().any(|byte| *byte != 0), "opening the store wrote to it");
    fs::write(&first, &torn).unwrap();
    for attempt in ["first", "second"] {
        let error = EmbeddedStore::open(base.path(), options()).unwrap_err();
        assert!(
            matches!(&error, StoreOpenError::Damaged { file, .. } if *file == first),
            "{attempt}: {error}"
        );
        assert_eq!(fs::read(&first).unwrap(), torn, "nothing was changed");
    }
}

#[tokio::test]
async fn a_damaged_manifest_is_refused_and_named() {
    let base = tempfile::tempdir().unwrap();
    make(base.path()).await;
    let keyspace = base.path().join("engine/keyspaces/1");
    let manifest = fs::read_dir(&keyspace).unwrap().map(|entry| entry.unwrap().path());
    let manifest =
        manifest.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with('v')).max().unwrap();
    for file in [manifest, keyspace.join("current")] {
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            change(&file, |bytes| bytes[at] ^= 1 << (at % 8));
            let opened = EmbeddedStore::open(base.path(), options());
            assert!(
                matches!(opened, Err(StoreOpenError::Damaged { .. })),
                "byte {at} of {}: {opened:?}",
                file.display()
            );
            fs::write(&file, &whole).unwrap();
        }
    }
    assert_eq!(readable(&EmbeddedStore::open(base.path(), options()).unwrap()).await.len(), ROWS);
}
