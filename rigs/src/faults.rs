//! System calls that fail, by strace, and a disk that is really full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::check::{self, check};
use crate::kill::Writer;
use crate::ledger::{Ledger, Line};
use crate::power::Disk;

const PARTITIONS: u64 = 4;
/// Commits after which a fault is no longer waited for.
const COMMITS_MAX: u64 = 1_000_000;

/// What a case expects of the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Commits are refused from the fault on, until the store is opened again.
    Closed,
    /// Commits go on after the fault, without a restart; those under way were unknown.
    GoesOn,
    /// The same, and nothing need be unknown: the fault was not in a commit.
    Heals,
}

impl Expect {
    /// How often a partition asks again before it gives up: long enough for the store to open itself again, if it is to.
    fn refusals_max(self) -> &'static str {
        match self {
            Self::Closed => "20",
            Self::GoesOn | Self::Heals => "2000",
        }
    }
}

struct Case {
    name: &'static str,
    /// As strace wants it.
    inject: &'static str,
    partitions: u64,
    expect: Expect,
    /// Whether the engine must have begun another journal by then.
    rotates: bool,
}

const CASES: [Case; 6] = [
    Case::new("one failing fdatasync", "fdatasync:error=EIO:when=200", Expect::Closed),
    Case::new("fdatasync fails for good", "fdatasync:error=EIO:when=300+", Expect::Closed),
    Case::new("fsync fails in every thread after a while", "fsync:error=EIO:when=60+", Expect::Heals),
    Case::new("one journal write meets a full disk", "write:error=ENOSPC:when=400", Expect::GoesOn),
    Case::new("one journal write fails", "write:error=EIO:when=400", Expect::Closed),
    // So many groups of so many partitions are far over the 64 MiB at which the engine begins another journal.
    Case {
        partitions: 64,
        rotates: true,
        ..Case::new(
            "one failing fdatasync after the journal was rotated",
            "fdatasync:error=EIO:when=12000",
            Expect::Closed,
        )
    },
];

impl Case {
    const fn new(name: &'static str, inject: &'static str, expect: Expect) -> Self {
        Self { name, inject, partitions: PARTITIONS, expect, rotates: false }
    }
}

pub(crate) fn run(folder: &Path) -> Result<(), String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Err("FAILING SYSTEM CALLS WERE NOT TRIED: strace is not installed".to_owned());
    }
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for (number, case) in CASES.iter().enumerate() {
        let store = folder.join(format!("case-{number}"));
        try_case(case, &store).map_err(|error| format!("{}: {error}", case.name))?;
    }
    full_disk(&folder.join("full-disk"), "a full disk, with a reserve", 32 * 1024 * 1024)?;
    full_disk(&folder.join("full-to-the-end"), "a full disk, to the last byte", 0)
}

fn try_case(case: &Case, store: &Path) -> Result<(), String> {
    let mut ledger = Ledger::default();
    let told = inject_into(store, case, &mut ledger)?;
    let rotated = has_later_journal(store).map_err(|error| error.to_string())?;
    let found = check(store, case.partitions, check::options(true), &mut ledger);
    let mut found = found.map_err(|failed| failed.to_string())?;
    found.add_ledger(&ledger);
    println!(
        "{}: {} acknowledged, {} unknown, {} refused, {} acknowledged after the first refusal; lost {}, wrong {}, lies {}, there unacknowledged {}",
        case.name,
        told.committed,
        told.unknown,
        told.refused,
        told.after,
        found.lost,
        found.wrong_rows,
        found.lies,
        found.unacknowledged
    );
    found.verdict()?;
    let as_expected = match case.expect {
        // Tasks say what they were told in no order: one acknowledgement each may be said late.
        Expect::Closed => told.refused > 0 && told.after <= case.partitions,
        Expect::GoesOn => told.unknown > 0 && told.after > 100,
        Expect::Heals => told.refused > 0 && told.after > 100,
    };
    if !as_expected {
        return Err("this is not what was promised".to_owned());
    }
    if case.rotates && !rotated {
        return Err("the engine did not begin another journal, so nothing was tried".to_owned());
    }
    Ok(())
}

/// Whether the engine has begun a journal after its first.
fn has_later_journal(store: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(store.join("engine"))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok());
        if number.is_some_and(|number| number > 0) {
            return Ok(true);
        }
    }
    Ok(false)
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
            Line::Unavailable { .. } | Line::Unread { .. } => self.refused += 1,
            Line::Started { .. } | Line::Put { .. } | Line::Lied { .. } => {}
        }
    }
}

fn inject_into(store: &Path, case: &Case, ledger: &mut Ledger) -> Result<Told, String> {
    // The first open makes the store, so that its buffers are small and its journal is there to be named.
    check(store, case.partitions, check::options(true), ledger).map_err(|failed| failed.to_string())?;
    let journal = store.join("engine").join("0.jnl");
    let (journal, inject) = (journal.to_string_lossy().into_owned(), format!("inject={}", case.inject));
    let call = inject.split([':', '=']).nth(1).unwrap_or_default();
    let trace = format!("trace={call}");
    // Only the calls in question stop for strace: everything else runs at full speed.
    let mut wrapper =
        vec!["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    if inject.contains("inject=write") {
        wrapper.extend(["-P", &journal]);
    }
    let partitions = case.partitions.to_string();
    let arguments = ["--partitions", &partitions, "--refusals-max", case.expect.refusals_max()];
    let mut writer = Writer::start_under(Some(&wrapper), store, &arguments, true)?;
    let mut told = Told::default();
    while told.after < 2_000 && told.committed < COMMITS_MAX {
        let Some(line) = writer.line() else { break };
        told.note(&line);
        ledger.note(&line);
    }
    writer.kill_if_there(ledger)?;
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
    let found = check(&disk.store(), PARTITIONS, check::options(true), &mut ledger);
    let mut found = found.map_err(|failed| format!("{name}: {failed}"))?;
    found.add_ledger(&ledger);
    println!(
        "{name}: {} acknowledged, {} refused, {} unknown, {after} acknowledged after there was room again; lost {}, wrong {}, lies {}",
        told.committed, told.refused, told.unknown, found.lost, found.wrong_rows, found.lies
    );
    found.verdict().map_err(|error| format!("{name}: {error}"))
}
