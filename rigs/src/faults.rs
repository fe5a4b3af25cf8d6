//! Failing system calls, injected by strace, and a full disk.

use std::fs;
use std::path::Path;
use std::process::Command;

use abide_testkit::verdict::{control_verdict, print_figure};

use crate::kill::Writer;
use crate::ledger::{StoreLedger, WriterLine};
use crate::power::Disk;
use crate::store_check::{self, check};

const PARTITIONS: u64 = 4;
/// After so many commits the rig no longer waits for the fault.
const COMMITS_MAX: u64 = 1_000_000;

/// The expected reaction of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedReaction {
    /// After the fault, commits are refused until the store is opened again.
    StaysClosed,
    /// Commits continue after the fault without a restart; those in flight have an unknown outcome.
    Continues,
    /// Like `Continues`, but no outcome needs to be unknown: the fault was not in a commit.
    Heals,
}

impl ExpectedReaction {
    /// How often a partition retries before its writer stops: long enough for the store to reopen itself, if it should.
    fn refusals_max(self) -> &'static str {
        match self {
            Self::StaysClosed => "20",
            Self::Continues | Self::Heals => "2000",
        }
    }
}

struct Case {
    name: &'static str,
    /// In the syntax of strace.
    inject_spec: &'static str,
    partitions: u64,
    expect: ExpectedReaction,
    /// True if the engine must have rotated its journal by then.
    rotates: bool,
}

const CASES: [Case; 6] = [
    Case::new("one failing fdatasync", "fdatasync:error=EIO:when=200", ExpectedReaction::StaysClosed),
    Case::new("fdatasync fails permanently", "fdatasync:error=EIO:when=300+", ExpectedReaction::StaysClosed),
    Case::new(
        "fsync fails in every thread after some calls",
        "fsync:error=EIO:when=60+",
        ExpectedReaction::Heals,
    ),
    Case::new("one journal write on a full disk", "write:error=ENOSPC:when=400", ExpectedReaction::Continues),
    Case::new("one journal write fails", "write:error=EIO:when=400", ExpectedReaction::StaysClosed),
    // So many groups of so many partitions are far over the 64 MiB at which the engine rotates its journal.
    Case {
        partitions: 64,
        rotates: true,
        ..Case::new(
            "one failing fdatasync after the journal was rotated",
            "fdatasync:error=EIO:when=12000",
            ExpectedReaction::StaysClosed,
        )
    },
];

impl Case {
    const fn new(name: &'static str, inject_spec: &'static str, expect: ExpectedReaction) -> Self {
        Self { name, inject_spec, partitions: PARTITIONS, expect, rotates: false }
    }
}

/// Runs every case, or the control: the first case with a writer that acknowledges too early, which the check must
/// find.
pub(crate) fn run(folder: &Path, only: Option<usize>, control: bool) -> Result<(), String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Err("FAILING SYSTEM CALLS WERE NOT TRIED: strace is not installed".to_owned());
    }
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    if control {
        return try_control(&CASES[0], &folder.join("control"));
    }
    for (number, case) in
        CASES.iter().enumerate().filter(|(number, _)| only.is_none_or(|only| only == *number))
    {
        let store = folder.join(format!("case-{number}"));
        try_case(case, &store).map_err(|error| format!("{}: {error}", case.name))?;
    }
    if only.is_some() {
        return Ok(());
    }
    full_disk(&folder.join("full-disk"), "a full disk, with a reserve", 32 * 1024 * 1024)?;
    full_disk(&folder.join("full-to-the-end"), "a full disk, to the last byte", 0)
}

fn try_control(case: &Case, store: &Path) -> Result<(), String> {
    let mut ledger = StoreLedger::default();
    inject_into(store, case, &mut ledger, true)?;
    let report = check(store, case.partitions, store_check::options(true), &mut ledger);
    let mut report = report.map_err(|failed| failed.to_string())?;
    report.add_ledger(&ledger);
    println!("control: {} with a writer that acknowledges too early", case.name);
    print_figure("acknowledged and lost", report.lost);
    control_verdict(report.lost, "found nothing")
}

fn try_case(case: &Case, store: &Path) -> Result<(), String> {
    let mut ledger = StoreLedger::default();
    let tally = inject_into(store, case, &mut ledger, false)?;
    let rotated = has_later_journal(store).map_err(|error| error.to_string())?;
    let report = check(store, case.partitions, store_check::options(true), &mut ledger);
    let mut report = report.map_err(|failed| failed.to_string())?;
    report.add_ledger(&ledger);
    println!(
        "{}: {} acknowledged, {} unknown, {} refused, {} acknowledged after the first refusal; lost {}, wrong rows {}, false outcomes {}, unacknowledged but present {}",
        case.name,
        tally.committed,
        tally.unknown,
        tally.refused,
        tally.committed_after_fault,
        report.lost,
        report.wrong_rows,
        report.false_outcomes,
        report.unacknowledged
    );
    report.verdict()?;
    let as_expected = match case.expect {
        // The lines of partitions have no order: each partition may print one acknowledgement late.
        ExpectedReaction::StaysClosed => tally.refused > 0 && tally.committed_after_fault <= case.partitions,
        ExpectedReaction::Continues => tally.unknown > 0 && tally.committed_after_fault > 100,
        ExpectedReaction::Heals => tally.refused > 0 && tally.committed_after_fault > 100,
    };
    if !as_expected {
        return Err("the store did not react as expected".to_owned());
    }
    if case.rotates && !rotated {
        return Err("the engine did not rotate its journal, so nothing was tried".to_owned());
    }
    Ok(())
}

/// True if the engine has a journal after its first.
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
struct WriterTally {
    committed: u64,
    unknown: u64,
    refused: u64,
    /// Commits acknowledged after the first one that was unknown or refused.
    committed_after_fault: u64,
}

impl WriterTally {
    fn record(&mut self, line: &WriterLine) {
        match line {
            WriterLine::Committed { .. } => {
                self.committed += 1;
                self.committed_after_fault += u64::from(self.unknown + self.refused > 0);
            }
            WriterLine::Unknown { .. } => self.unknown += 1,
            WriterLine::Unavailable { .. } | WriterLine::Unread { .. } => self.refused += 1,
            WriterLine::Started { .. } | WriterLine::Put { .. } | WriterLine::FalseOutcome { .. } => {}
        }
    }
}

fn inject_into(
    store: &Path,
    case: &Case,
    ledger: &mut StoreLedger,
    acknowledge_early: bool,
) -> Result<WriterTally, String> {
    // The first open creates the store, so that its buffers are small and its journal file exists for strace.
    check(store, case.partitions, store_check::options(true), ledger).map_err(|failed| failed.to_string())?;
    let journal = store.join("engine").join("0.jnl");
    let journal = journal.to_string_lossy().into_owned();
    let inject = format!("inject={}", case.inject_spec);
    let call = inject.split([':', '=']).nth(1).unwrap_or_default();
    let trace = format!("trace={call}");
    // Only the traced calls stop for strace: everything else runs at full speed.
    let mut wrapper =
        vec!["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    if inject.contains("inject=write") {
        wrapper.extend(["-P", &journal]);
    }
    let partitions = case.partitions.to_string();
    let mut arguments = vec!["--partitions", &partitions, "--refusals-max", case.expect.refusals_max()];
    if acknowledge_early {
        arguments.push("--acknowledge-early");
    }
    let mut writer = Writer::start_under(Some(&wrapper), store, &arguments, true)?;
    let mut tally = WriterTally::default();
    while tally.committed_after_fault < 2_000 && tally.committed < COMMITS_MAX {
        let Some(line) = writer.next_line() else { break };
        tally.record(&line);
        ledger.record(&line);
    }
    writer.kill_if_running(ledger)?;
    Ok(tally)
}

/// Fills the file system with a foreign file: commits are refused, and accepted again by the same process once the file
/// is deleted. With a reserve the engine never reaches the end of the disk; without one it does.
fn full_disk(folder: &Path, name: &str, reserve: u64) -> Result<(), String> {
    let disk = Disk::make(folder, 192)?;
    disk.mount()?;
    let outcome = fill_and_free(&disk, name, reserve);
    disk.unmount()?;
    outcome
}

fn fill_and_free(disk: &Disk, name: &str, reserve: u64) -> Result<(), String> {
    let mut ledger = StoreLedger::default();
    let partitions = PARTITIONS.to_string();
    let reserve = reserve.to_string();
    let arguments =
        ["--partitions", &partitions, "--refusals-max", "1000000", "--disk-reserve-bytes", &reserve];
    let mut writer = Writer::start(&disk.store(), &arguments, true)?;
    let filler = disk.folder().join("foreign-file");
    let mut tally = WriterTally::default();
    let mut filled = false;
    let mut freed = false;
    let mut after = 0;
    while after < 1_000 {
        let line = writer.next_line().ok_or("the writer ended on a full disk")?;
        tally.record(&line);
        ledger.record(&line);
        if !filled && tally.committed > 1_000 {
            // Writes as much as fits: the write fails at the end, and the file stays.
            drop(fs::write(&filler, vec![1; 256 * 1024 * 1024]));
            filled = true;
        }
        if filled && !freed && tally.refused + tally.unknown > 20 {
            fs::remove_file(&filler).map_err(|error| error.to_string())?;
            freed = true;
            tally.committed_after_fault = 0;
        }
        if freed {
            after = tally.committed_after_fault;
        }
    }
    writer.kill(&mut ledger)?;
    let report = check(&disk.store(), PARTITIONS, store_check::options(true), &mut ledger);
    let mut report = report.map_err(|failed| format!("{name}: {failed}"))?;
    report.add_ledger(&ledger);
    println!(
        "{name}: {} acknowledged, {} refused, {} unknown, {after} acknowledged after space was freed; lost {}, wrong rows {}, false outcomes {}",
        tally.committed, tally.refused, tally.unknown, report.lost, report.wrong_rows, report.false_outcomes
    );
    report.verdict().map_err(|error| format!("{name}: {error}"))
}
