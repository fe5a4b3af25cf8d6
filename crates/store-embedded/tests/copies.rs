//! Copies of a store: streamed from a running one, and opened in place of one on a read-only medium.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Scan};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, StoreImport, StoreOpenError};

fn options() -> EmbeddedOptions {
    EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() }
}

fn partition() -> Partition {
    Partition::new("p").unwrap()
}

async fn put(store: &EmbeddedStore, key: &str, value: Vec<u8>) {
    put_all(store, &[key], &value).await;
}

/// Writes one value under several keys, in one commit.
async fn put_all(store: &EmbeddedStore, keys: &[&str], value: &[u8]) {
    let head = Key::new("head");
    let version = store.read(&partition(), &head).await.unwrap().map(|row| row.version);
    let batch = Batch::fenced(head, version, Vec::new());
    let batch = keys.iter().fold(batch, |batch, key| batch.put(Key::new(*key), value.to_vec()));
    let outcome = store.commit(&partition(), batch).await;
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

async fn rows(store: &EmbeddedStore) -> Vec<(Key, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut next = Some(Scan::all());
    while let Some(scan) = next {
        let page = store.scan(&partition(), scan).await.unwrap();
        let written = page.rows.into_iter().filter(|row| row.key != Key::new("head"));
        rows.extend(written.map(|row| (row.key, row.value)));
        next = page.next;
    }
    rows
}

fn export(store: &EmbeddedStore) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut on_piece = |piece: Vec<u8>| {
        stream.extend(piece);
        true
    };
    store.export(b"attached", &mut on_piece).unwrap();
    stream
}

/// A writer always writes the same value to three rows. A copy that is streamed meanwhile has the same value in all of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_busy_store_is_a_store_of_one_point_in_time() {
    let base = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&base.path().join("store"), options()).unwrap());
    for number in 0..30 {
        put(&store, &format!("large {number:02}"), vec![number; 300_000]).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (written, mut counting) = tokio::sync::watch::channel(0_u64);
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let value = (*written.borrow() + 1).to_be_bytes();
                put_all(&store, &["a", "m", "z"], &value).await;
                written.send_modify(|count| *count += 1);
            }
        }
    });
    counting.wait_for(|count| *count > 20).await.unwrap();
    let to = base.path().join("copy");
    let mut import = StoreImport::start(&to, options()).unwrap();
    let mut pieces = 0;
    let before = *counting.borrow();
    let mut on_piece = |piece: Vec<u8>| {
        pieces += 1;
        // In pieces of odd sizes, as a network delivers them.
        piece.chunks(7_919).for_each(|part| import.receive(part).unwrap());
        true
    };
    store.export(b"attached", &mut on_piece).unwrap();
    let after = *counting.borrow();
    assert!(pieces > 5, "{pieces} pieces");
    assert!(!to.exists(), "no copy before it is complete");
    assert_eq!(import.finish().unwrap(), b"attached");
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();

    let copy = EmbeddedStore::open(&to, options()).unwrap();
    let rows = rows(&copy).await;
    assert_eq!(rows.len(), 33);
    let value_of = |name: &str| rows.iter().find(|(key, _)| *key == Key::new(name)).unwrap().1.clone();
    assert_eq!((value_of("a"), value_of("m")), (value_of("z"), value_of("z")));
    let value = u64::from_be_bytes(value_of("a").try_into().unwrap());
    assert!((before..=after + 1).contains(&value), "{before} <= {value} <= {after}");
    assert_eq!(value_of("large 07"), vec![7; 300_000]);
}

#[tokio::test]
async fn a_copy_reuses_no_version_of_its_original() {
    let base = tempfile::tempdir().unwrap();
    let mut store = EmbeddedStore::open(&base.path().join("store"), options()).unwrap();
    for _ in 0..5 {
        drop(store);
        store = EmbeddedStore::open(&base.path().join("store"), options()).unwrap();
    }
    put(&store, "a", vec![1]).await;
    let original = store.read(&partition(), &Key::new("a")).await.unwrap().unwrap().version;
    let to = base.path().join("copy");
    let mut import = StoreImport::start(&to, options()).unwrap();
    import.receive(&export(&store)).unwrap();
    import.finish().unwrap();
    let copy = EmbeddedStore::open(&to, options()).unwrap();
    put(&copy, "a", vec![2]).await;
    let version = copy.read(&partition(), &Key::new("a")).await.unwrap().unwrap().version;
    assert!(version.as_bytes() > original.as_bytes(), "{version:?} after {original:?}");
}

#[tokio::test]
async fn a_stream_that_is_cut_off_or_changed_leaves_no_copy() {
    let base = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&base.path().join("store"), options()).unwrap();
    put(&store, "a", vec![1; 100]).await;
    let stream = export(&store);
    let to = base.path().join("copy");
    let import = |stream: &[u8]| {
        let mut import = StoreImport::start(&to, options()).unwrap();
        import.receive(stream)?;
        import.finish()
    };
    for length in (0..stream.len()).step_by(stream.len() / 10).chain([stream.len() - 1]) {
        assert!(import(&stream[..length]).is_err(), "cut off after {length} bytes");
    }
    for at in (0..stream.len()).step_by(stream.len() / 20) {
        let mut changed = stream.clone();
        changed[at] ^= 1;
        assert!(import(&changed).is_err(), "byte {at} changed");
    }
    assert!(import(&[&stream[..], b"more"].concat()).is_err(), "something follows");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "only the store is there");
    import(&stream).unwrap();
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Small buffers, so that there are sorted files, to which the working copy links.
#[tokio::test]
async fn a_working_copy_reads_everything_and_leaves_the_original_as_it_is() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("store");
    let small = EmbeddedOptions { write_buffer_bytes: 256 * 1024, ..options() };
    let store = EmbeddedStore::open(&folder, small).unwrap();
    for number in 0..60 {
        put(&store, &format!("{number:02}"), vec![number; 50_000]).await;
    }
    let all = rows(&store).await;
    let refused = EmbeddedStore::open_working_copy(&folder, options()).unwrap_err();
    assert!(matches!(refused, StoreOpenError::InUse { .. }), "{refused}");
    drop(store);
    // As after a kill: opening it would rewrite the journal.
    fs::remove_file(folder.join("CLEAN")).unwrap();
    let before = files(&folder);
    assert!(before.iter().any(|(path, _)| path.parent().unwrap().ends_with("tables")), "sorted files");
    let copy = EmbeddedStore::open_working_copy(&folder, options()).unwrap();
    assert_eq!(rows(&copy).await, all);
    put(&copy, "only in the copy", vec![1]).await;
    copy.backup(&base.path().join("backup"), |_| {}).unwrap();
    drop(copy);
    assert_eq!(files(&folder), before);
    assert_eq!(rows(&EmbeddedStore::open(&folder, options()).unwrap()).await, all);

    fs::remove_file(folder.join("engine/version")).unwrap();
    let error = EmbeddedStore::open_working_copy(&folder, options()).unwrap_err();
    let place = fs::canonicalize(&folder).unwrap().join("engine/version");
    assert!(matches!(&error, StoreOpenError::Damaged { file, .. } if *file == place), "{error}");
}
