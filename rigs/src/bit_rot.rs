//! Bit rot: flips one bit in one file of a closed store and reads everything.
//!
//! For every bit, the store must either refuse to open and name the place, or open and answer every read correctly or
//! with an error that names the row. A wrong value, a missing row or a panic is a failure.
//!
//! Half of the flips are on a store without its CLEAN mark, as a crash leaves it. There a broken end of the journal
//! cannot be distinguished from a commit that was never acknowledged, so the last commit is one that no check reads.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use abide_store::memory::SeededRng;
use abide_store::public::{PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Scan, StoreError};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, SyncMode};
use abide_testkit::verdict::{control_verdict, print_figure};

use crate::folders::copy_folder;
use crate::workload::{self, SLOTS};

const PARTITIONS: u64 = 4;
const COMMITS: u64 = 600;
/// The file that marks a store as closed cleanly.
const CLEAN_MARK: &str = "CLEAN";

/// The outcome of one flip.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FlipOutcome {
    Refused,
    Unharmed,
    NamedRow,
    Wrong(String),
}

pub(crate) fn run(flips: u32, folder: &Path, control: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let base = folder.join("base");
    let copy = folder.join("copy");
    make_store(&base)?;
    if read_all(&base)? != FlipOutcome::Unharmed {
        return Err("the store was damaged before any bit was flipped".to_owned());
    }
    if control {
        return run_control(&base, &copy);
    }
    let mut files = Vec::new();
    collect_files(&base, &mut files).map_err(failed)?;
    files.retain(|file| used_bytes(file).is_ok_and(|length| length > 0));
    files.sort();
    let mut dice = SeededRng::new(u64::from(flips));
    let mut counts: BTreeMap<(String, FlipOutcome), u32> = BTreeMap::new();
    let mut without_mark = 0;
    for flip in 0..flips {
        let Some(file) = files.get(usize::try_from(dice.below(files.len() as u64)).unwrap_or(0)) else {
            break;
        };
        let inside = file.strip_prefix(&base).map_err(|error| error.to_string())?;
        let length = used_bytes(file).map_err(failed)?;
        if copy.exists() {
            fs::remove_dir_all(&copy).map_err(failed)?;
        }
        copy_folder(&base, &copy).map_err(failed)?;
        let at = dice.below(length);
        flip_bit(&copy.join(inside), at, dice.below(8)).map_err(failed)?;
        let unmarked = flip % 2 == 1 && inside != Path::new(CLEAN_MARK);
        if unmarked {
            fs::remove_file(copy.join(CLEAN_MARK)).map_err(failed)?;
            without_mark += 1;
        }
        let outcome = read_in_child(&copy)?;
        if let FlipOutcome::Wrong(how) = &outcome {
            let mark = if unmarked { "without" } else { "with" };
            println!("{} at byte {at}, {mark} the mark: {how}", inside.display());
        }
        *counts.entry((file_kind(inside), outcome)).or_default() += 1;
    }
    for ((file, outcome), count) in &counts {
        println!("{file:<28} {outcome:?}: {count}");
    }
    let wrong: u32 = counts
        .iter()
        .filter(|((_, outcome), _)| matches!(outcome, FlipOutcome::Wrong(_)))
        .map(|(_, n)| n)
        .sum();
    println!(
        "{flips} flipped bits, {wrong} of them undetected or fatal; {without_mark} without the CLEAN mark"
    );
    if wrong > 0 { Err(format!("{wrong} flipped bits were not detected")) } else { Ok(()) }
}

/// The control: one row gets another value through the store itself, so that every checksum is correct. The reader must
/// find it.
fn run_control(base: &Path, copy: &Path) -> Result<(), String> {
    copy_folder(base, copy).map_err(|error| error.to_string())?;
    change_one_row(copy)?;
    let outcome = read_in_child(copy)?;
    println!("one changed row with correct checksums: {outcome:?}");
    let found = u64::from(matches!(outcome, FlipOutcome::Wrong(_)));
    print_figure("findings", found);
    control_verdict(found, "found nothing")
}

fn change_one_row(folder: &Path) -> Result<(), String> {
    let options = EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(folder, options).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let partition = workload::partition(0);
        let head = store.read(&partition, &workload::head()).await.map_err(|error| error.to_string())?;
        let head = head.ok_or("partition 0 has no head")?;
        let batch = Batch::fenced(workload::head(), Some(head.version), head.value)
            .put(workload::slot_key(0), b"another value".to_vec());
        match store.commit(&partition, batch).await {
            CommitOutcome::Committed(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}

fn flip_bit(file: &Path, at: u64, bit: u64) -> std::io::Result<()> {
    let mut bytes = fs::read(file)?;
    if let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1 << bit;
    }
    fs::write(file, bytes)
}

/// Reads in a child process, because the read may crash it.
fn read_in_child(folder: &Path) -> Result<FlipOutcome, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let reader = Command::new(program).arg("read-rotten").arg("--folder").arg(folder).output();
    let reader = reader.map_err(|error| error.to_string())?;
    let output = String::from_utf8_lossy(&reader.stdout).trim().to_owned();
    Ok(match output.as_str() {
        "refused" => FlipOutcome::Refused,
        "unharmed" => FlipOutcome::Unharmed,
        "named" => FlipOutcome::NamedRow,
        _ if output.is_empty() => {
            let complaint = String::from_utf8_lossy(&reader.stderr);
            FlipOutcome::Wrong(format!(
                "a panic: {}",
                complaint.lines().take(2).collect::<Vec<_>>().join(" ")
            ))
        }
        _ => FlipOutcome::Wrong(output),
    })
}

/// The child process: reads everything and prints the outcome.
pub(crate) fn read(folder: &Path) -> Result<(), String> {
    let outcome = read_all(folder)?;
    println!(
        "{}",
        match &outcome {
            FlipOutcome::Refused => "refused",
            FlipOutcome::Unharmed => "unharmed",
            FlipOutcome::NamedRow => "named",
            FlipOutcome::Wrong(how) => how,
        }
    );
    Ok(())
}

fn file_kind(file: &Path) -> String {
    let name = file.to_string_lossy().into_owned();
    name.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect()
}

/// Makes a closed store with sorted files and a journal whose last commit is not checked.
fn make_store(folder: &Path) -> Result<(), String> {
    let options = EmbeddedOptions {
        sync: SyncMode::OperatingSystem,
        write_buffer_bytes: 512 * 1024,
        disk_reserve_bytes: 0,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(folder, options).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        for partition in 0..PARTITIONS {
            let mut version = None;
            for n in 1..=COMMITS {
                let batch = workload::batch(partition, n, version);
                match store.commit(&workload::partition(partition), batch).await {
                    CommitOutcome::Committed(receipt) => version = receipt.head_version,
                    other => return Err(format!("{other:?}")),
                }
                if let Some(row) = workload::public_row(partition, n) {
                    let put = store.put(workload::PUBLIC, vec![PublicWrite::Put(row)]).await;
                    put.map_err(|error| error.to_string())?;
                }
            }
        }
        let extra = Partition::new("extra").map_err(|error| error.to_string())?;
        match store.commit(&extra, Batch::fenced(workload::head(), None, Vec::new())).await {
            CommitOutcome::Committed(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}

/// Reads everything: by key and by scan.
fn read_all(folder: &Path) -> Result<FlipOutcome, String> {
    let options = EmbeddedOptions { disk_reserve_bytes: 0, ..EmbeddedOptions::default() };
    let Ok(store) = EmbeddedStore::open(folder, options) else { return Ok(FlipOutcome::Refused) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let read: Result<u32, String> = runtime.block_on(async {
        let mut named = 0;
        for number in 0..PARTITIONS {
            named += read_rows(&store, number).await?;
            named += scan_rows(&store, number).await?;
            named += read_public(&store, number).await?;
        }
        Ok(named)
    });
    Ok(match read {
        Ok(0) => FlipOutcome::Unharmed,
        Ok(_) => FlipOutcome::NamedRow,
        Err(wrong) => FlipOutcome::Wrong(wrong),
    })
}

/// The expected value of every key of a partition, in key order: the head first, then every slot.
fn expected(number: u64) -> impl Iterator<Item = (Key, Option<Vec<u8>>)> {
    let slots =
        (0..SLOTS).map(move |slot| (workload::slot_key(slot), workload::slot_after(number, slot, COMMITS)));
    iter::once((workload::head(), Some(COMMITS.to_be_bytes().to_vec()))).chain(slots)
}

/// Reads the head and every slot by key. Returns how many errors named their row, or a description of a wrong read.
async fn read_rows(store: &EmbeddedStore, number: u64) -> Result<u32, String> {
    let partition = workload::partition(number);
    let mut named = 0;
    for (key, value) in expected(number) {
        match store.read(&partition, &key).await {
            Err(StoreError::Corrupt { key: named_key, .. }) if named_key == key => named += 1,
            Err(error) => return Err(format!("an error that does not name the row: {error}")),
            Ok(row) => {
                let actual = row.map(|row| row.value);
                if actual != value {
                    let what = if actual.is_none() { "missing" } else { "another value" };
                    return Err(format!("{what} at {key} of {partition}"));
                }
            }
        }
    }
    Ok(named)
}

/// Scans a partition as far as it can be read.
async fn scan_rows(store: &EmbeddedStore, number: u64) -> Result<u32, String> {
    let partition = workload::partition(number);
    let mut expected = expected(number).filter_map(|(key, value)| Some((key, value?)));
    let mut next = Some(Scan::all());
    while let Some(scan) = next {
        let page = match store.scan(&partition, scan).await {
            Ok(page) => page,
            Err(StoreError::Corrupt { .. }) => return Ok(1),
            Err(error) => return Err(format!("a scan error that does not name a row: {error}")),
        };
        for row in page.rows {
            if expected.next().as_ref() != Some(&(row.key.clone(), row.value)) {
                return Err(format!("a scan of {partition} has a wrong row at {}", row.key));
            }
        }
        next = page.next;
    }
    match expected.next() {
        Some((key, _)) => Err(format!("a scan of {partition} ends before {key}")),
        None => Ok(0),
    }
}

/// Reads every public row by key.
async fn read_public(store: &EmbeddedStore, number: u64) -> Result<u32, String> {
    let mut named = 0;
    let last_rows = (0..workload::PUBLIC_ROWS).map(|back| COMMITS - 8 * back);
    for row in last_rows.filter_map(|n| workload::public_row(number, n)) {
        match store.get(workload::PUBLIC, &row.key).await {
            Err(StoreError::Corrupt { .. }) => named += 1,
            Ok(Some(actual)) if actual == row => {}
            other => return Err(format!("the read of a public row returned {other:?}")),
        }
    }
    Ok(named)
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The length of a file up to its last byte that is not zero: the engine extends its journal in advance.
fn used_bytes(file: &Path) -> std::io::Result<u64> {
    let bytes = fs::read(file)?;
    Ok(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1))
}
