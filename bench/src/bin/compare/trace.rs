//! Counts the syncs of a server with strace, in a run of its own: a traced server is slower.
//!
//! The server is started under strace with a filter in the kernel, so that only these two calls stop it. Every call is a line with
//! the time: those of the measured while are counted, and what happened before and after is not.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const LOG: &str = "strace.log";

/// Whether strace can be used here at all.
pub(crate) fn is_possible() -> bool {
    let trivial = Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-e", "trace=fdatasync", "-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    trivial.is_ok_and(|status| status.success())
}

/// The same program under strace. The server stays our child (`-D`), so that it is ended and looked at as without.
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

/// The moment as strace writes it.
pub(crate) fn moment() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The calls begun between these two moments.
pub(crate) fn syncs(folder: &Path, from: f64, until: f64) -> io::Result<u64> {
    let log = fs::read_to_string(log(folder))?;
    let calls = log.lines().filter(|line| {
        let mut words = line.split_whitespace().skip(1);
        let at = words.next().and_then(|at| at.parse::<f64>().ok());
        // A call that another thread interrupted has a second line, `<... fdatasync resumed>`, which is not counted.
        let called =
            words.next().is_some_and(|call| call.starts_with("fdatasync(") || call.starts_with("fsync("));
        called && at.is_some_and(|at| (from..until).contains(&at))
    });
    Ok(calls.count() as u64)
}

fn log(folder: &Path) -> PathBuf {
    folder.join(LOG)
}
