//! Counts the syncs of a server with strace, in a separate run: a traced server is slower.
//!
//! The server is started under strace with a filter in the kernel, so that only fdatasync and fsync stop it. Every call
//! is a line with its time; only the calls in the measured span are counted.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const LOG: &str = "strace.log";

/// True if strace works on this machine.
pub(crate) fn is_possible() -> bool {
    let trivial = Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-e", "trace=fdatasync", "-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    trivial.is_ok_and(|status| status.success())
}

/// The same program under strace. The server stays our child (`-D`), so that it is killed and measured as usual.
pub(crate) fn traced(program: &Command, folder: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args([
        "-D",
        "-f",
        "--seccomp-bpf",
        "-ttt",
        "-e",
        "trace=fdatasync,fsync",
        "-e",
        "signal=none",
        "-o",
    ]);
    strace.arg(log(folder)).arg(program.get_program());
    strace.args(program.get_args().map(OsString::from).collect::<Vec<_>>());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace
}

/// The current time in the format of strace.
pub(crate) fn now_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The number of calls that began between these two times.
pub(crate) fn syncs(folder: &Path, from: f64, until: f64) -> io::Result<u64> {
    let log = fs::read_to_string(log(folder))?;
    let calls = log.lines().filter(|line| {
        let mut words = line.split_whitespace().skip(1);
        let at = words.next().and_then(|at| at.parse::<f64>().ok());
        // A call interrupted by another thread has a second line, `<... fdatasync resumed>`, which is not counted.
        let called =
            words.next().is_some_and(|call| call.starts_with("fdatasync(") || call.starts_with("fsync("));
        called && at.is_some_and(|at| (from..until).contains(&at))
    });
    Ok(calls.count() as u64)
}

fn log(folder: &Path) -> PathBuf {
    folder.join(LOG)
}
