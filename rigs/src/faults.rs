//! System calls that fail, by strace, and a disk that is really full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::check::check;
use crate::kill::Writer;
use crate::ledger::{Ledger, Line};
use crate::power::Disk;

const PARTITIONS: u64 = 4;

/// What a case expects of the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Commits are refused from the fault on, until the store is opened again.
    Closed,
    /// Commits go on after the fault, without a restart.
    GoesOn,
}

pub(crate) fn run(folder: &Path) -> Result<(), String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Err("FAILING SYSTEM CALLS WERE NOT TRIED: strace is not installed".to_owned());
    }
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let cases = [
        ("one failing fdatasync", "fdatasync:error=EIO:when=200", Expect::Closed),
        ("fdatasync fails for good", "fdatasync:error=EIO:when=300+", Expect::Closed),
        ("fsync of the engine's files fails for good", "fsync:error=EIO:when=60+", Expect::Closed),
        ("one journal write meets a full disk", "write:error=ENOSPC:when=400", Expect::GoesOn),
        ("one journal write fails", "write:error=EIO:when=400", Expect::Closed),
    ];
    for (number, (name, inject, expect)) in cases.into_iter().enumerate() {
        let store = folder.join(format!("case-{number}"));
        let mut ledger = Ledger::default();
        let told = inject_into(&store, inject, &mut ledger)?;
        let found = check(&store, PARTITIONS, &mut ledger).map_err(|error| format!("{name}: {error}"))?;
        println!(
            "{name}: {} acknowledged, {} unknown, {} refused, {} acknowledged after the first refusal; lost {}, wrong {}, there unacknowledged {}",
            told.committed,
            told.unknown,
            told.refused,
            told.after,
            found.lost,
            found.wrong_rows,
            found.unacknowledged
        );
        let as_expected = match expect {
            // Tasks say what they were told in no order: one acknowledgement each may be said late.
            Expect::Closed => told.refused > 0 && told.after <= PARTITIONS,
            Expect::GoesOn => told.unknown > 0 && told.after > 100,
        };
        if found.lost + found.wrong_rows > 0 || told.committed == 0 || !as_expected {
            return Err(format!("{name}: this is not what was promised"));
        }
    }
    full_disk(&folder.join("full-disk"), "a full disk, with a reserve", 32 * 1024 * 1024)?;
    full_disk(&folder.join("full-to-the-end"), "a full disk, to the last byte", 0)
}

#[derive(Default)]
struct Told {
    committed: u64,
    unknown: u64,
    refused: u64,
    /// Commits acknowledged after the first one that was unknown or refused.
    after: u64,
}

impl Told {
    fn note(&mut self, line: &Line) {
        match line {
            Line::Committed { .. } => {
                self.committed += 1;
                self.after += u64::from(self.unknown + self.refused > 0);
            }
            Line::Unknown { .. } => self.unknown += 1,
            Line::Unavailable { .. } => self.refused += 1,
            Line::Started { .. } | Line::Put { .. } => {}
        }
    }
}

fn inject_into(store: &Path, inject: &str, ledger: &mut Ledger) -> Result<Told, String> {
    // The first open makes the store, so that its journal is there to be named.
    check(store, PARTITIONS, ledger)?;
    let journal = store.join("engine").join("0.jnl");
    let (journal, inject) = (journal.to_string_lossy().into_owned(), format!("inject={inject}"));
    let call = inject.split([':', '=']).nth(1).unwrap_or_default();
    let trace = format!("trace={call}");
    // Only the calls in question stop for strace: everything else runs at full speed.
    let mut wrapper =
        vec!["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    if inject.contains("inject=write") {
        wrapper.extend(["-P", &journal]);
    }
    let partitions = PARTITIONS.to_string();
    let arguments = ["--partitions", &partitions, "--refusals-max", "20"];
    let mut writer = Writer::start_under(Some(&wrapper), store, &arguments, true)?;
    let mut told = Told::default();
    while told.after < 2_000 && told.committed < 100_000 {
        let Some(line) = writer.line() else { break };
        told.note(&line);
        ledger.note(&line);
    }
    writer.kill(ledger)?;
    Ok(told)
}

/// A file system filled by somebody else's file: commits are refused, and accepted again when the file is gone, by the same process.
/// With a reserve the engine never meets the end; without one it does.
fn full_disk(folder: &Path, name: &str, reserve: u64) -> Result<(), String> {
    let disk = Disk::make(folder, 192)?;
    disk.mount()?;
    let outcome = fill_and_free(&disk, name, reserve);
    disk.unmount()?;
    outcome
}

fn fill_and_free(disk: &Disk, name: &str, reserve: u64) -> Result<(), String> {
    let mut ledger = Ledger::default();
    let (partitions, reserve) = (PARTITIONS.to_string(), reserve.to_string());
    let arguments =
        ["--partitions", &partitions, "--refusals-max", "1000000", "--disk-reserve-bytes", &reserve];
    let mut writer = Writer::start(&disk.store(), &arguments, true)?;
    let filler = disk.folder().join("somebody else's");
    let (mut told, mut filled, mut freed, mut after) = (Told::default(), false, false, 0);
    while after < 1_000 {
        let line = writer.line().ok_or("the writer ended on a full disk")?;
        told.note(&line);
        ledger.note(&line);
        if !filled && told.committed > 1_000 {
            // As much as fits: the write ends with an error, and the file stays.
            drop(fs::write(&filler, vec![1; 256 * 1024 * 1024]));
            filled = true;
        }
        if filled && !freed && told.refused + told.unknown > 20 {
            fs::remove_file(&filler).map_err(|error| error.to_string())?;
            freed = true;
            told.after = 0;
        }
        if freed {
            after = told.after;
        }
    }
    writer.kill(&mut ledger)?;
    let found =
        check(&disk.store(), PARTITIONS, &mut ledger).map_err(|error| format!("full disk: {error}"))?;
    println!(
        "{name}: {} acknowledged, {} refused, {} unknown, {after} acknowledged after there was room again; lost {}, wrong {}",
        told.committed, told.refused, told.unknown, found.lost, found.wrong_rows
    );
    if found.lost + found.wrong_rows > 0 { Err("a full disk cost rows".to_owned()) } else { Ok(()) }
}
