//! Runs one workload under callgrind and reads the instruction count. It does not know what a workload does.

use std::path::Path;
use std::process::Command;

use crate::workload::{Workload, WriteCounts};

/// One repetition of a workload.
pub(crate) struct Measurement {
    /// Instructions per step, without start and shutdown.
    pub(crate) per_step: f64,
    /// The writes of the longer of its two runs.
    pub(crate) written: WriteCounts,
}

/// Counts the shorter and the longer run of a workload.
pub(crate) fn measure(workload: Workload) -> Result<Measurement, String> {
    let runs = workload.shorter();
    let (shorter, _) = count(workload, runs)?;
    let (longer, written) = count(workload, 3 * runs)?;
    let difference = longer.checked_sub(shorter).ok_or("three times the runs took fewer instructions")?;
    Ok(Measurement { per_step: difference as f64 / (2 * runs * workload.steps()) as f64, written })
}

/// The instructions and the writes of this many runs.
fn count(workload: Workload, runs: u64) -> Result<(u64, WriteCounts), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("callgrind.out");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["--run", workload.name(), &runs.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        return Err(format!("{workload}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let written =
        printed.trim().parse().map_err(|()| format!("{workload}: unreadable output {printed:?}"))?;
    Ok((total(&file)?, written))
}

/// The total of a callgrind file: the sum over all its parts, one per dump.
fn total(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let totals = text.lines().filter_map(|line| line.strip_prefix("totals: "));
    match totals.filter_map(|total| total.trim().parse::<u64>().ok()).sum() {
        0 => Err(format!("{}: callgrind counted nothing", file.display())),
        total => Ok(total),
    }
}
