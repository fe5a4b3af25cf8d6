//! kill -9: the writer dies at a random moment, again and again, on the same two stores.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use abide_store::memory::Dice;

use crate::check::{self, Failed, Found, check};
use crate::ledger::{Ledger, Line};

pub(crate) const PARTITIONS: u64 = 16;
const SIGKILL: i32 = 9;

/// One store of the rig and what was acknowledged on it.
struct Victim {
    folder: PathBuf,
    small_buffers: bool,
    ledger: Ledger,
}

/// Kills `cycles` writers, by turns on a store with small buffers and on one with large ones.
pub(crate) fn run(cycles: u32, folder: &Path) -> Result<(), String> {
    let victim = |name: &str, small_buffers| Victim {
        folder: folder.join(name),
        small_buffers,
        ledger: Ledger::default(),
    };
    let (mut small, mut large) = (victim("small", true), victim("large", false));
    let mut total = Found::default();
    let outcome = kill_all(cycles, &mut small, &mut large, &mut total);
    total.add_ledger(&small.ledger);
    total.add_ledger(&large.ledger);
    total.report("kills", cycles);
    outcome.and_then(|()| total.verdict())
}

/// Every second time on a store the next writer recovers it itself, before it is checked.
fn kill_all(cycles: u32, small: &mut Victim, large: &mut Victim, total: &mut Found) -> Result<(), String> {
    let mut dice = Dice::new(u64::from(cycles));
    for cycle in 0..cycles {
        let victim = if cycle % 2 == 0 { &mut *small } else { &mut *large };
        let time = Duration::from_millis(30 + dice.below(250));
        let is_last = cycle + 2 >= cycles;
        kill_one(victim, time, total).map_err(|error| format!("cycle {cycle}: {error}"))?;
        if cycle / 2 % 2 == 0 || is_last {
            check_one(victim, total).map_err(|error| format!("cycle {cycle}: {error}"))?;
        }
    }
    Ok(())
}

fn kill_one(victim: &mut Victim, time: Duration, total: &mut Found) -> Result<(), String> {
    let partitions = PARTITIONS.to_string();
    let mut writer = Writer::start(&victim.folder, &["--partitions", &partitions], victim.small_buffers)?;
    match writer.listen(PARTITIONS, time, &mut victim.ledger) {
        Ok(()) => writer.kill(&mut victim.ledger),
        Err(problem) => {
            println!("{}: {problem}", victim.folder.display());
            total.failed_opens += 1;
            Ok(())
        }
    }
}

fn check_one(victim: &mut Victim, total: &mut Found) -> Result<(), Failed> {
    let options = check::options(victim.small_buffers);
    match check(&victim.folder, PARTITIONS, options, &mut victim.ledger) {
        Ok(found) => {
            total.add(&found);
            Ok(())
        }
        Err(failed) => {
            total.failed_opens += u64::from(matches!(failed, Failed::Open(_)));
            Err(failed)
        }
    }
}

/// A writer in a process of its own.
pub(crate) struct Writer {
    child: Child,
    output: BufReader<ChildStdout>,
    half_line: String,
    /// Its output has come to its end.
    has_ended: bool,
}

impl Writer {
    pub(crate) fn start(folder: &Path, arguments: &[&str], small_buffers: bool) -> Result<Self, String> {
        Self::start_under(None, folder, arguments, small_buffers)
    }

    /// Starts the writer, perhaps under another program such as strace.
    pub(crate) fn start_under(
        wrapper: Option<&[&str]>,
        folder: &Path,
        arguments: &[&str],
        small_buffers: bool,
    ) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match wrapper {
            Some([wrapper, rest @ ..]) => {
                let mut command = Command::new(wrapper);
                command.args(rest).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.arg("write").arg("--folder").arg(folder).args(arguments);
        if small_buffers {
            command.arg("--small-buffers");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("the writer has no output")?;
        Ok(Self { child, output: BufReader::new(output), half_line: String::new(), has_ended: false })
    }

    pub(crate) fn process(&self) -> Option<rustix::process::Pid> {
        i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
    }

    /// Notes what the writer says, until every partition has started and for a while from then on. An error if it ended before.
    #[expect(clippy::disallowed_methods, reason = "a rig works in real time")]
    pub(crate) fn listen(
        &mut self,
        partitions: u64,
        time: Duration,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let mut started: HashSet<u64> = HashSet::new();
        while (started.len() as u64) < partitions {
            let Some(line) = self.line() else {
                let status = self.child.wait().map_err(|error| error.to_string())?;
                return Err(format!("the writer ended before every partition had started: {status}"));
            };
            if let Line::Started { partition, .. } = line {
                started.insert(partition);
            }
            ledger.note(&line);
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            // One that has ended is found when it is to be killed.
            let Some(line) = self.line() else { break };
            ledger.note(&line);
        }
        Ok(())
    }

    /// The next line, or `None` when the writer has ended.
    pub(crate) fn line(&mut self) -> Option<Line> {
        loop {
            self.half_line.clear();
            match self.output.read_line(&mut self.half_line) {
                Ok(0) | Err(_) => {
                    self.has_ended = true;
                    return None;
                }
                Ok(_) => {}
            }
            if let Some(line) = Line::from_text(&self.half_line) {
                return Some(line);
            }
        }
    }

    /// Kills the writer and notes what it had said before. An error if it was not the kill that ended it.
    pub(crate) fn kill(mut self, ledger: &mut Ledger) -> Result<(), String> {
        let ended_before = self.has_ended;
        let status = self.end(ledger)?;
        if ended_before || status.signal() != Some(SIGKILL) {
            return Err(format!("the writer ended by itself: {status}"));
        }
        Ok(())
    }

    /// Like [`Writer::kill`], for a writer that may have given up by itself, but not with an error.
    pub(crate) fn kill_if_there(mut self, ledger: &mut Ledger) -> Result<(), String> {
        let status = self.end(ledger)?;
        if !status.success() && status.signal() != Some(SIGKILL) {
            return Err(format!("the writer failed: {status}"));
        }
        Ok(())
    }

    fn end(&mut self, ledger: &mut Ledger) -> Result<ExitStatus, String> {
        if !self.has_ended {
            self.child.kill().map_err(|error| error.to_string())?;
        }
        while let Some(line) = self.line() {
            ledger.note(&line);
        }
        self.child.wait().map_err(|error| error.to_string())
    }
}
