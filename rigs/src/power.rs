//! Power cuts under a writer: everything that its file system had not yet written to disk is lost.
//!
//! The store is on an ext4 file system in an image file. The writer is frozen, the image is copied, and the copy is
//! mounted: data that was only in the caches of the mounted file system is not in the copy. The next cycle continues on
//! the copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use abide_store::memory::SeededRng;
use abide_store_embedded::SyncMode;
use abide_testkit::verdict::control_verdict;
use rustix::process::{Pid, Signal, kill_process};

use crate::kill::{PARTITIONS, Writer};
use crate::ledger::StoreLedger;
use crate::store_check::{self, StoreCheckError, StoreCheckReport, check};

const IMAGE_MIB: u64 = 384;

pub(crate) fn run(cycles: u32, folder: &Path, sync: SyncMode) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("POWER CUTS WERE NOT TRIED: mounting an image needs root".to_owned());
    }
    let mut total = StoreCheckReport::default();
    let outcome = cut_all(cycles, folder, sync, &mut total);
    let what = match sync {
        SyncMode::EveryCommit => "power cuts",
        SyncMode::OperatingSystem => "power cuts without sync (the control)",
    };
    total.report(what, cycles);
    outcome?;
    match sync {
        SyncMode::EveryCommit => total.verdict(),
        SyncMode::OperatingSystem => {
            control_verdict(total.lost, "lost nothing").and_then(|()| total.outcome_verdict())
        }
    }
}

/// Half of the cuts are on a store with small buffers and half on one with large ones, each on a separate disk.
fn cut_all(cycles: u32, folder: &Path, sync: SyncMode, total: &mut StoreCheckReport) -> Result<(), String> {
    let mut dice = SeededRng::new(u64::from(cycles) + 1);
    let half = cycles.div_ceil(2);
    for (small_buffers, cycles) in [(true, 0..half), (false, half..cycles)] {
        let disk = Disk::make(folder, IMAGE_MIB)?;
        let mut ledger = StoreLedger::default();
        let mut outcome = Ok(());
        for cycle in cycles {
            outcome = cut(&disk, sync, small_buffers, &mut dice, &mut ledger, total)
                .map_err(|error| format!("cycle {cycle}: {error}"));
            if outcome.is_err() {
                break;
            }
        }
        total.add_ledger(&ledger);
        let unmounted = disk.unmount();
        outcome.and(unmounted)?;
    }
    Ok(())
}

fn cut(
    disk: &Disk,
    sync: SyncMode,
    small_buffers: bool,
    dice: &mut SeededRng,
    ledger: &mut StoreLedger,
    total: &mut StoreCheckReport,
) -> Result<(), String> {
    let partitions = PARTITIONS.to_string();
    let mut arguments = vec!["--partitions", partitions.as_str()];
    if sync == SyncMode::OperatingSystem {
        arguments.push("--without-sync");
    }
    disk.mount()?;
    let mut writer = Writer::start(&disk.store(), &arguments, small_buffers)?;
    let time = Duration::from_millis(100 + dice.below(500));
    writer.read_lines_for(PARTITIONS, time, ledger).inspect_err(|_| total.failed_opens += 1)?;
    freeze(writer.pid().ok_or("the writer has no process id")?)?;
    disk.copy()?;
    writer.kill(ledger)?;
    disk.unmount()?;
    disk.adopt_copy()?;
    disk.mount()?;
    let report = check(&disk.store(), PARTITIONS, store_check::options(small_buffers), ledger);
    let report = report.map_err(|failed| {
        total.failed_opens += u64::from(matches!(failed, StoreCheckError::Open(_)));
        failed.to_string()
    });
    total.add(&report?);
    disk.unmount()
}

/// Stops every thread of a process with SIGSTOP.
pub(crate) fn freeze(process: Pid) -> Result<(), String> {
    kill_process(process, Signal::STOP).map_err(|error| error.to_string())?;
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let is_stopped = |task: &PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        // A zombie cannot stop: it ended by itself, which `Writer::kill` reports.
        status.lines().any(|line| line.starts_with("State:") && line.contains(['T', 'Z']))
    };
    loop {
        let threads: Vec<PathBuf> = fs::read_dir(&tasks)
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        if threads.iter().all(is_stopped) {
            return Ok(());
        }
        std::thread::yield_now();
    }
}

/// A file system in an image file.
pub(crate) struct Disk {
    image: PathBuf,
    copy: PathBuf,
    mount: PathBuf,
}

impl Disk {
    pub(crate) fn make(folder: &Path, mebibytes: u64) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        fs::create_dir_all(folder).map_err(failed)?;
        let disk = Self {
            image: folder.join("disk.img"),
            copy: folder.join("copy.img"),
            mount: folder.join("mounted"),
        };
        fs::create_dir_all(&disk.mount).map_err(failed)?;
        let file = fs::File::create(&disk.image).map_err(failed)?;
        file.set_len(mebibytes * 1024 * 1024).map_err(failed)?;
        run_program("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), disk.image.as_os_str()])?;
        Ok(disk)
    }

    pub(crate) fn mount(&self) -> Result<(), String> {
        run_program(
            "mount",
            &["-o".as_ref(), "loop".as_ref(), self.image.as_os_str(), self.mount.as_os_str()],
        )
    }

    pub(crate) fn unmount(&self) -> Result<(), String> {
        let mounted = fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
        if mounted.contains(&*self.mount.to_string_lossy()) {
            run_program("umount", &[self.mount.as_os_str()])?;
        }
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.mount
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.mount.join("store")
    }

    /// Copies the image while it is mounted.
    pub(crate) fn copy(&self) -> Result<(), String> {
        run_program("cp", &["--sparse=always".as_ref(), self.image.as_os_str(), self.copy.as_os_str()])
    }

    /// Replaces the image by the copy.
    pub(crate) fn adopt_copy(&self) -> Result<(), String> {
        fs::rename(&self.copy, &self.image).map_err(|error| error.to_string())
    }
}

fn run_program(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), String> {
    let status = Command::new(program).args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} {arguments:?} ended with {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
